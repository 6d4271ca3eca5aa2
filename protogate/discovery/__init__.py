"""Sources of endpoints: L{protogate.interfaces.IDiscovery}."""
