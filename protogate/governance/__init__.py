"""Modules, and how configuration binds them to the stages of a request."""
