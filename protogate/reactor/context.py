"""
Whose work is done: what C{log.msg} writes between brackets.

Twisted wraps each read in C{callWithLogger}, which costs a microsecond whether anything is logged or not.  Here one
L{Current} lies at the bottom of the stack of contexts, and is asked only by those who log.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from twisted.python.context import defaultContextDict, theContextTracker
from twisted.python.log import ILogContext


class Current:
    """
    A context whose one entry is made when it is looked up.

    @ivar transport: the connection whose protocol is being called; None = nobody's.
    """

    def __init__(self) -> None:
        self.transport: Any = None

    def __getitem__(self, key: object) -> dict[str, Any]:
        if key is not ILogContext or self.transport is None:
            raise KeyError(key)
        try:
            system = self.transport.logPrefix()
        except Exception:
            system = "(buggy logPrefix method)"  # in Twisted's words
        return {**defaultContextDict[ILogContext], "system": system}

    @contextmanager
    def laid(self) -> Iterator[None]:
        """Have it lie there, in this thread."""
        contexts = theContextTracker.currentContext().contexts
        contexts.insert(1, self)  # what is above is more particular, what is below the default
        try:
            yield
        finally:
            contexts.remove(self)
