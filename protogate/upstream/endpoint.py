"""
One place to send requests to: where it is, how much it takes, and the pool of its connections.

C{http://host:port/} in the configuration; port 80 when none is given.  Codecs of others may have schemes of their own,
which have no port unless it is given.  An upstream has no path of its own: what path a request goes to is the route's
business.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from protogate.config import model
from protogate.config.faults import ConfigFaults
from protogate.errors import ConfigError
from protogate.upstream.pool import Pool
from protogate.upstream.resolver import literal

HTTP_PORT: Final = 80

_URL: Final = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*)://(?P<authority>[^/?#]*)/?")
_AUTHORITY: Final = re.compile(
    r"(?:\[(?P<six>[0-9A-Fa-f:.]+)(?P<zone>%[^\]%\s]+)?\]|(?P<name>[A-Za-z0-9_.-]+))(?::(?P<port>[0-9]{1,5}))?"
)
_NAME: Final = re.compile(r"(?=.{1,253}\.?\Z)(?:[A-Za-z0-9_](?:[A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?(?:\.(?!\Z)|\.?\Z))+")
_NUMBERS: Final = re.compile(r"[0-9.]+")


@dataclass(frozen=True, slots=True)
class Place:
    """
    What is known of an endpoint before there is one.

    @ivar host: name or address literal, lower case; IPv6 without brackets, with its zone where there is one (RFC 4007).
    @ivar authority: its own name, as C{host: endpoint} sends it; without the port when that is the scheme's.
    """

    host: str
    port: int
    authority: bytes
    weight: int = 100
    zone: str = ""

    @property
    def address(self) -> str:
        """For people: C{10.0.0.11:8080}, C{[2001:db8::1]:80}."""
        return spelled(self.host, self.port)


@dataclass(frozen=True, slots=True)
class Source:
    """
    Where places are looked up.

    @ivar port: of the endpoints; None = by SRV records.
    """

    host: str
    port: int | None

    @property
    def authority(self) -> bytes:
        """What C{host: endpoint} sends to the endpoints found here."""
        return own(self.host, self.port or HTTP_PORT)


class Endpoint:
    """A place that is in use; C{place} may be replaced by one that differs in weight, zone or authority."""

    __slots__ = ("address", "place", "pool")

    def __init__(self, place: Place, pool: Pool) -> None:
        self.place, self.pool, self.address = place, pool, place.address


def spelled(host: str, port: int) -> str:
    """Host and port as one text."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def own(host: str, port: int, usual: int | None = HTTP_PORT) -> bytes:
    """The authority by which an endpoint calls itself.  A zone means something to this machine only."""
    text = spelled(host.partition("%")[0], port)
    return (text.rpartition(":")[0] if port == usual else text).encode("ascii")


def place(url: str, weight: int = 100, zone: str = "") -> Place:
    """
    Read an endpoint's URL.

    @raise ConfigError: what is wrong with it.
    """
    match = _URL.fullmatch(url)
    if match is None:
        raise ConfigError(f'expected a URL like "http://host:port", without a path, got "{url}"')
    host, port = _split(match["authority"])
    usual = HTTP_PORT if match["scheme"].lower() == "http" else None
    if port is None:
        port = usual
    if port is None:
        raise ConfigError(f'only http:// has a usual port: add one to "{url}"')
    return Place(host, port, own(host, port, usual), weight, zone)


def source(name: str) -> Source:
    """
    Read C{discovery.dns}.

    @raise ConfigError: what is wrong with it.
    """
    host, port = _split(name)
    if port is None and not host.startswith("_"):
        raise ConfigError(f'expected "host:port", or "_service._tcp.host" for SRV records, got "{name}"')
    return Source(host, port)


def layout(config: model.Upstream) -> tuple[tuple[Place, ...], Source | None]:
    """
    Every place an upstream names, and where to look for more.  Pure.

    @raise ConfigFaults: all its faults; paths are relative to the upstream.
    """
    places: list[Place] = []
    faults: list[ConfigError] = []
    for index, endpoint in enumerate(config.endpoints):
        try:
            places.append(place(endpoint.url, endpoint.weight, endpoint.zone))
        except ConfigError as error:
            faults.append(ConfigError(error.message, ("endpoints", index, "url")))
    found: Source | None = None
    if config.discovery is not None:
        try:
            found = source(config.discovery.dns)
        except ConfigError as error:
            faults.append(ConfigError(error.message, ("discovery", "dns")))
    elif not config.endpoints:
        faults.append(ConfigError(f'upstream "{config.name}" leads nowhere: give it endpoints or discovery'))
    if faults:
        raise ConfigFaults(faults)
    return tuple(places), found


def _split(authority: str) -> tuple[str, int | None]:
    match = _AUTHORITY.fullmatch(authority)
    if match is None:
        raise ConfigError(f'expected host and port, like "10.0.0.11:8080" or "[2001:db8::1]:8080", got "{authority}"')
    six, name = match["six"], match["name"]
    if six is not None:
        if ":" not in six or not literal(six):
            raise ConfigError(f'"{six}" is not an IPv6 address')
    elif _NUMBERS.fullmatch(name):
        if not literal(name):
            raise ConfigError(f'"{name}" is neither a name nor an IPv4 address')
    elif not _NAME.fullmatch(name):
        raise ConfigError(f'"{name}" is not a host name')
    port = match["port"]
    if port is not None and not 0 < int(port) < 65536:
        raise ConfigError(f"expected a port from 1 to 65535, got {port}")
    host = name.lower().rstrip(".") if six is None else six.lower() + (match["zone"] or "")
    return host, None if port is None else int(port)
