"""RESP, the protocol of Redis, for protogate."""
