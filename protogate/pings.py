"""
Signs of life that were asked for, of connections whose protocol has them: eight bytes that the peer sends back.

A connection makes its L{Pings} when it is first asked for one: most never are.
"""

from __future__ import annotations

from typing import Final

from twisted.internet.defer import Deferred

from protogate.errors import Abort

_MARK: Final = b"look"


class Pings:
    """Those of one connection."""

    __slots__ = ("_asked", "_number")

    def __init__(self) -> None:
        self._asked: dict[bytes, Deferred[None]] = {}
        self._number = 0

    def ask(self) -> tuple[bytes, Deferred[None]]:
        """What is to be sent, and what fires when it comes back; cancelling that forgets it."""
        self._number = self._number + 1 & 0xFFFFFFFF
        data = _MARK + self._number.to_bytes(4)

        def forget(_: Deferred[None]) -> None:
            self._asked.pop(data, None)

        asked = self._asked[data] = Deferred(forget)
        return data, asked

    def came(self, data: bytes) -> None:
        """That came back, whoever had sent it."""
        asked = self._asked.pop(bytes(data), None)
        if asked is not None:
            asked.callback(None)

    def end(self, reason: Abort) -> None:
        """Nothing comes any more."""
        asked, self._asked = self._asked, {}
        for each in asked.values():
            each.errback(reason)
