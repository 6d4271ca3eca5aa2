"""HTTP for protogate."""
