"""What HTTP/2 can be told: C{codecs.http2} of the configuration.  What each limit is for: docs/http2.md."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final, Literal

from msgspec import Meta

from protogate.config.model import Bytes, Model, Seconds, within
from protogate_http.shape2 import LEAST, MOST, WINDOW, Shape

if TYPE_CHECKING:
    from protogate.context import Limits

_Budget = Annotated[int, Meta(ge=10, le=1_000_000)]


class Options(Model, frozen=True, kw_only=True):
    """
    Options of HTTP/2: what its connections say of themselves, and what they let their peers do, those of clients and
    those to upstreams.
    """

    engine: Literal["auto", "ngh2", "h2"] = "auto"
    """What frames, compresses and keeps windows; auto = ngh2 where it is installed, else h2."""
    streams: Annotated[int, Meta(ge=1, le=10_000)] = 128
    """Requests of a client that one connection serves at once, and the most that an upstream is asked at once."""
    window: Annotated[Bytes, within(16_384, 1 << 24)] = Bytes(WINDOW)
    """Content of one request or answer that may come before its credit is given back."""
    connection_window: Annotated[Bytes, within(LEAST, MOST, off=True)] = Bytes(0)
    """The same of a whole connection; 0 = a window for each of its streams."""
    resets: _Budget = 1000
    """Streams that a client resets, or that its faults make us reset, in a minute, beyond the work it got done."""
    controls: _Budget = 1000
    """PING, SETTINGS and PRIORITY frames, of each so many in a minute, beyond the work that got done."""
    empty_frames: _Budget = 1000
    """DATA frames without content that end nothing, in a minute, beyond the work that got done."""
    continuations: Annotated[int, Meta(ge=1, le=60)] = 32
    """CONTINUATION frames of one message; h2 takes no more than 63."""
    ping: Annotated[Seconds, within(1, 3600, off=True)] = Seconds(360)
    """Silence of an upstream with requests under way, after which it is asked for a sign of life; 0 = never."""

    def shape(self, client: bool, limits: Limits) -> Shape:
        """
        Of a new connection.

        @param limits: those now in force.
        """
        most = limits.response_headers if client else limits.headers + limits.request_line
        # One window for each stream: a stream that nobody reads must not stop the others.
        total = self.connection_window or min(self.streams * self.window, MOST)
        return Shape(
            client=client,
            streams=self.streams,
            window=self.window,
            total=max(total, self.window, LEAST),
            fields=most + FIELD * limits.header_count,
            count=limits.header_count,
            continuations=self.continuations,
        )


FIELD: Final = 32
"""Bytes that each field counts beside its own (RFC 9113, 6.5.2)."""
