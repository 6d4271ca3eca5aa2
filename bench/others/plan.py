"""What a gateway is asked to be."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Plan:
    """
    @ivar upstream: port of loopback to which all requests go.
    @ivar governed: with all of L{configuration.governed}, or as plain as can be.
    """

    upstream: int
    governed: bool = False
