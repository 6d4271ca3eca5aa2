"""SOTP for protogate: a binary protocol of many requests on one long connection (docs/sotp.md)."""
