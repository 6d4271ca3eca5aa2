"""The configuration: file, to frozen models, to a running gateway.  Every fault is named with its place."""
