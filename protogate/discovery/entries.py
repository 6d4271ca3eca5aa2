"""
What is written about one endpoint, wherever it was found: C{"host:port"}, a URL, or a mapping with C{url}.

Rules
- What has no scheme has that of the C{discovery}.  One that has must mean the same: the same protocol, and TLS or not,
  for that is settled when the configuration is loaded, not by whoever writes to a catalogue.
- What else a mapping has is somebody else's business.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Final, NamedTuple

from protogate.config import model
from protogate.config.address import SCHEMES, Scheme
from protogate.config.scalar import shown
from protogate.errors import ConfigError
from protogate.upstream.endpoint import Place, place, spoken

MOST: Final = 10_000
"""Endpoints of one upstream."""
HEAVIEST: Final = 1000
"""The largest weight."""
WEIGHT: Final = 100
"""The usual one."""

_PORT: Final = re.compile(r".+:[0-9]{1,5}", re.ASCII | re.DOTALL).fullmatch

Entry = Callable[[object], Place]
"""See L{Entries}."""


class Entries:
    """
    Reads entries for one upstream; in any thread.

    @ivar scheme: of what says none.
    """

    def __init__(self, upstream: model.Upstream) -> None:
        """@raise ConfigFaults: its endpoints do not agree on a protocol."""
        settings = upstream.discovery
        assert settings is not None
        self.scheme: str = settings.scheme
        self._protocol, self._codec = upstream.protocol, spoken(upstream)

    def __call__(self, value: object) -> Place:
        """
        The place of an endpoint.

        @raise ConfigError: what is wrong with it.
        """
        weight, zone = WEIGHT, ""
        if isinstance(value, Mapping):
            weight, zone = _weight(value.get("weight")), _zone(value.get("zone"))
            value = value.get("url")
        if not isinstance(value, str) or not value:
            raise ConfigError(f"expected host:port or the URL of an endpoint, got {shown(value)}")
        url = value if "://" in value else f"{self.scheme}://{value}"
        if url != value and not _PORT(value):
            raise ConfigError(f"expected host:port or the URL of an endpoint, got {shown(value)}")
        self._agree(url.partition("://")[0].lower())
        return place(url, weight, zone, scheme=self._protocol)

    def _agree(self, scheme: str) -> None:
        if scheme in (self.scheme, self._protocol):
            return
        mine, its = SCHEMES[self.scheme], SCHEMES.get(scheme, _STRANGE)
        if its.tls != mine.tls or (scheme not in ("http", "https") and its.codec not in ("", self._codec)):
            raise ConfigError(f"{shown(scheme)} is not what this discovery finds; its scheme is {self.scheme}")


_STRANGE: Final = Scheme(None, False, "")


def _weight(given: object) -> int:
    if given is None:
        return WEIGHT
    if type(given) is not int or not 0 <= given <= HEAVIEST:
        raise ConfigError(f"expected a whole number from 0 to {HEAVIEST}, got {shown(given)}", ("weight",))
    return given


def _zone(given: object) -> str:
    if given is None:
        return ""
    if not isinstance(given, str):
        raise ConfigError(f"expected a text, got {shown(given)}", ("zone",))
    return given


class Legible(NamedTuple):
    """
    What could be read of several entries, and what could not.

    @ivar places: by name.
    @ivar faults: C{name: what is wrong}.
    """

    places: dict[str, Place]
    faults: list[str]


def legible(named: Iterable[tuple[str, object]], entry: Entry) -> Legible:
    """
    Read entries that many have written: one that is wrong harms no other.

    @param named: each with a name for people.
    @raise ValueError: there are some, but none of them can be read; or there are too many.
    """
    places: dict[str, Place] = {}
    faults: list[str] = []
    for name, value in named:
        try:
            places[name] = entry(value)
        except ConfigError as error:
            faults.append(f"{name}: {error.message}")
        if len(places) + len(faults) > MOST:
            raise ValueError(f"more than {MOST} endpoints")
    if faults and not places:
        raise ValueError(f"none of {len(faults)} endpoints can be read; {faults[0]}")
    return Legible(places, faults)
