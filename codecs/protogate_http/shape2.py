"""What a connection of HTTP/2 says of itself in its SETTINGS (RFC 9113, 6.5.2), whichever engine says it."""

from __future__ import annotations

from typing import Final

WINDOW: Final = 65535
"""Bytes of a stream that may come before its credit is given back, unless it is told otherwise."""
LEAST: Final = 65535
"""The window of a connection when it begins (RFC 9113, 6.9.2), which nobody can make smaller."""
MOST: Final = (1 << 31) - 1
"""The largest window."""
FRAME: Final = 16384
"""Bytes of the largest frame that a peer may send."""
ENABLE_PUSH: Final = 2
MAX_CONCURRENT_STREAMS: Final = 3
INITIAL_WINDOW_SIZE: Final = 4
MAX_HEADER_LIST_SIZE: Final = 6
ENABLE_CONNECT_PROTOCOL: Final = 8


class Shape:
    """
    What a connection says of itself, and holds its peer to.

    @ivar client: whether it is ours to ask.
    @ivar streams: requests at once.
    @ivar window: bytes of a stream that may come before its credit is given back.
    @ivar total: the same of the connection.
    @ivar fields: bytes of the fields of a message, as RFC 9113, 6.5.2 counts them.
    @ivar count: fields of a message.
    @ivar continuations: CONTINUATION frames of a message.
    """

    __slots__ = ("client", "continuations", "count", "fields", "streams", "total", "window")

    def __init__(
        self, *, client: bool, streams: int, window: int, total: int, fields: int, count: int, continuations: int
    ) -> None:
        self.client, self.streams, self.window, self.total = client, streams, window, total
        self.fields, self.count, self.continuations = fields, count, continuations

    def settings(self) -> dict[int, int]:
        """For SETTINGS; but for MAX_CONCURRENT_STREAMS, see L{protogate_http.engine2.make}."""
        said = {INITIAL_WINDOW_SIZE: self.window, MAX_HEADER_LIST_SIZE: self.fields}
        if self.client:
            return {ENABLE_PUSH: 0, **said}
        return {ENABLE_CONNECT_PROTOCOL: 1, **said}
