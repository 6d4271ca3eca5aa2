"""What SOTP can be told: C{codecs.sotp} of the configuration."""

from __future__ import annotations

from typing import Annotated, Final

from msgspec import Meta

from protogate.config.model import Bytes, Model, Seconds, within
from protogate.errors import ConfigError
from protogate_sotp.codings import CAPABILITIES
from protogate_sotp.frames import LEAST, Hello

MOST_WINDOW: Final = Bytes(1 << 30)
MOST_FRAME: Final = 1 << 23
MOST_BEAT: Final = 12 * 3600
"""Seconds; a HELLO has 16 bits for them."""


class Options(Model, frozen=True, kw_only=True):
    """Options of SOTP: what its connections say of themselves, those of clients and those to upstreams."""

    heartbeat: Annotated[Seconds, within(1, MOST_BEAT, off=True)] = Seconds(60)
    """Interval of signs of life, in whole seconds; 0 = none."""
    streams: Annotated[int, Meta(ge=1, le=1_000_000)] = 100
    """Requests of a client that one connection serves at once."""
    window: Annotated[Bytes, within(LEAST.window, MOST_WINDOW)] = Bytes(64 * 1024)
    """Content of one request or answer that may come before its credit is given back."""
    connection_window: Annotated[Bytes, within(LEAST.total, MOST_WINDOW, off=True)] = Bytes(0)
    """The same of a whole connection; 0 = a window for each of its streams."""
    frame: Annotated[Bytes, within(LEAST.data, MOST_FRAME)] = Bytes(64 * 1024)
    """Content that one frame may carry to us."""
    compression: bool = True
    """Whether compressed messages may be sent to us."""

    def hello(self, heads: int) -> Hello:
        """
        Our HELLO.

        @param heads: bytes of a head.
        """
        # One window for each stream: else a few that nobody reads would stop the others.
        total = self.connection_window or min(self.streams * self.window, MOST_WINDOW)
        return Hello(
            heartbeat=int(self.heartbeat),
            capabilities=CAPABILITIES if self.compression else 0,
            streams=self.streams,
            window=self.window,
            total=max(LEAST.total, total),
            data=self.frame,
            heads=heads,
        )

    def check(self) -> None:
        """@raise ConfigError: what the types cannot tell."""
        if self.heartbeat % 1:
            raise ConfigError("expected whole seconds: SOTP knows no others", ("heartbeat",))
        if 0 < self.connection_window < self.window:
            raise ConfigError(
                "a connection cannot take less than one of its streams: see window", ("connectionWindow",)
            )
