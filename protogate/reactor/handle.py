"""The socket of a connection that uvloop reads and writes."""

from __future__ import annotations

import socket
from typing import Any


class Handle(socket.socket):
    """
    For whoever wants to set an option, or to know a name.  uvloop owns the descriptor, so that this one never closes it
    by itself: not when it is garbage, and L{close} has uvloop do it.
    """

    __slots__ = ("_uv",)
    _uv: Any

    @classmethod
    def of(cls, uv: Any) -> Handle:
        """That of a transport of uvloop's."""
        theirs = uv.get_extra_info("socket")
        handle = cls(theirs.family, theirs.type, theirs.proto, theirs.fileno())
        handle._uv = uv
        return handle

    def close(self) -> None:
        self._uv.abort()

    def __del__(self) -> None:
        self.detach()
