"""What C{protogate} can do besides running a gateway and asking about its configuration, a module a command."""
