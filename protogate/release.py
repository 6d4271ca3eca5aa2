"""Which protogate this is: its version, and whether its hot path is compiled (docs/compiled.md)."""

from __future__ import annotations

from importlib.machinery import EXTENSION_SUFFIXES
from importlib.metadata import version

from protogate import message


def compiled() -> bool:
    """Whether the compiled modules are what runs, and not their source."""
    return str(message.__file__).endswith(tuple(EXTENSION_SUFFIXES))


def release() -> str:
    """The version as people read it: C{0.1.0}, or C{0.1.0 (compiled)}."""
    return f"{version('protogate')} (compiled)" if compiled() else version("protogate")
