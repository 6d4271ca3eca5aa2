"""What a gateway is asked to be."""

from __future__ import annotations

from dataclasses import dataclass

from identity import Identity


@dataclass(frozen=True, slots=True)
class Plan:
    """
    @ivar upstream: port of loopback to which all requests go.
    @ivar governed: with all of L{configuration.governed}, or as plain as can be.
    @ivar front: what clients speak: C{http1}, C{http2} or C{sotp}, and nothing else.
    @ivar back: what the upstream speaks, in cleartext.
    @ivar identity: clients speak it over TLS, with this certificate; None = in cleartext.
    """

    upstream: int
    governed: bool = False
    front: str = "http1"
    back: str = "http1"
    identity: Identity | None = None
