"""Keeping answers and giving them again (RFC 9111), without a module, a gateway or a protocol around it."""
