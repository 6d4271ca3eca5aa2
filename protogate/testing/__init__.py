"""Public test kit for authors of codecs and modules."""
