"""
Whether what is made of a configuration was in force already.

Rules
- When a configuration is loaded, a file that it names and that cannot be read is a fault of it.
- Later it is trouble of whoever reads the file, and what was read before stays.  A worker that is replaced meanwhile
  has nothing from before, but to refuse to serve would help nobody: for it, too, that is no fault.
- Known in the thread in which something is made, and only until it is made.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final

_forgiven: Final = ContextVar("forgiven", default=False)


def forgiven() -> bool:
    """Whether a file that cannot be read, but may be mended, is no fault."""
    return _forgiven.get()


@contextmanager
def forgiving() -> Iterator[None]:
    """What is made meanwhile was in force already."""
    token = _forgiven.set(True)
    try:
        yield
    finally:
        _forgiven.reset(token)
