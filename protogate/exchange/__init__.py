"""The life of one request, from its head to its record."""
