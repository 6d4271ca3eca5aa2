"""What a connection of HTTP/2 says of itself in its SETTINGS (RFC 9113, 6.5.2), whichever engine says it."""

from __future__ import annotations

from typing import Final

WINDOW: Final = 65535
"""Bytes of a stream that may come before its credit is given back."""
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
    @ivar fields: bytes of the fields of a message, as RFC 9113, 6.5.2 counts them.
    @ivar count: fields of a message.
    """

    __slots__ = ("client", "count", "fields", "streams")

    def __init__(self, client: bool, streams: int, fields: int, count: int) -> None:
        self.client, self.streams, self.fields, self.count = client, streams, fields, count

    def settings(self) -> dict[int, int]:
        """For SETTINGS."""
        said = {INITIAL_WINDOW_SIZE: WINDOW, MAX_HEADER_LIST_SIZE: self.fields}
        if self.client:
            return {ENABLE_PUSH: 0, **said}
        return {MAX_CONCURRENT_STREAMS: self.streams, ENABLE_CONNECT_PROTOCOL: 1, **said}
