"""
One place to send requests to: where it is, how much it takes, and the pool of its connections.

C{http://host:port/} or C{https://host:port/} in the configuration; port 80 or 443 when none is given.  Codecs of others
may have schemes of their own, which have no port unless it is given.  An upstream has no path of its own: what path a
request goes to is the route's business.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from protogate.config import address, model
from protogate.config.address import HTTP_PORT, SCHEMES, spelled
from protogate.config.faults import ConfigFaults
from protogate.errors import ConfigError
from protogate.upstream.pool import Pool


@dataclass(frozen=True, slots=True)
class Place:
    """
    What is known of an endpoint before there is one.

    @ivar host: name or address literal, lower case; IPv6 without brackets, with its zone where there is one (RFC 4007).
    @ivar authority: its own name, as C{host: endpoint} sends it; without the port when that is the scheme's.
    @ivar tls: whether it is spoken to over TLS.
    @ivar identity: the name that it proves then; empty = C{host}.
    """

    host: str
    port: int
    authority: bytes
    weight: int = 100
    zone: str = ""
    tls: bool = False
    identity: str = ""

    @property
    def key(self) -> tuple[str, int, str]:
        """What makes it another one: also who it must be, if that is verified."""
        return self.host, self.port, (self.identity or self.host) if self.tls else ""

    @property
    def address(self) -> str:
        """For people: C{10.0.0.11:8080}, C{[2001:db8::1]:80}."""
        return spelled(self.host, self.port)


class Endpoint:
    """
    A place that is in use; C{place} may be replaced by one that differs in weight, zone or authority.

    @ivar share: what those who judge it leave of its weight, 0.0 to 1.0: the strictest decides.
    """

    __slots__ = ("_held", "address", "place", "pool", "share")

    def __init__(self, place: Place, pool: Pool) -> None:
        self.place, self.pool, self.address = place, pool, place.address
        self.share = 1.0
        self._held: dict[str, tuple[float, str]] = {}

    @property
    def up(self) -> bool:
        """Whether it gets anything."""
        return self.share > 0.0

    @property
    def held(self) -> Mapping[str, tuple[float, str]]:
        """By the names of those who judge it: the share that each leaves to it, where that is not all, and why."""
        return self._held

    def hold(self, by: str, share: float, why: str = "") -> bool:
        """
        Judge it.

        @param by: who does: C{healthCheck}, C{outliers} … as the configuration calls it.
        @param share: 1.0 = all of its weight, as if C{by} had never judged it.
        @param why: for people.
        @return: whether that changes its share.
        """
        if share >= 1.0:
            self._held.pop(by, None)
        else:
            self._held[by] = (share, why)
        before, self.share = self.share, min([1.0, *(each for each, _ in self._held.values())])
        return before != self.share


def own(host: str, port: int, usual: int | None = HTTP_PORT) -> bytes:
    """The authority by which an endpoint calls itself.  A zone means something to this machine only."""
    text = spelled(host.partition("%")[0], port)
    return (text.rpartition(":")[0] if port == usual else text).encode("ascii")


def place(url: str, weight: int = 100, zone: str = "", *, scheme: str = "") -> Place:
    """
    Read an endpoint's URL.

    @param scheme: as in L{address.url}.
    @raise ConfigError: what is wrong with it.
    """
    parts = address.origin(url, scheme=scheme)
    means = SCHEMES.get(parts.scheme)
    usual, tls = (None, False) if means is None else (means.port, means.tls)
    return Place(parts.host, parts.port, own(parts.host, parts.port, usual), weight, zone, tls)


def spoken(config: model.Upstream) -> str:
    """
    The name of the codec that an upstream is spoken to with.

    @raise ConfigFaults: its endpoints do not agree on one; paths are relative to the upstream.
    """
    faults: list[ConfigError] = []
    wanted = config.protocol
    schemes = [(endpoint.url.partition("://")[0].lower(), i) for i, endpoint in enumerate(config.endpoints)]
    if config.discovery is not None:
        schemes.append((config.discovery.scheme, -1))
    for scheme, index in schemes:
        means = SCHEMES.get(scheme)
        if means is None or (config.protocol and scheme in ("http", "https")):  # these are for every codec
            continue
        at = ("discovery", "scheme") if index < 0 else ("endpoints", index, "url")
        if not means.codec:
            if not config.protocol:
                faults.append(ConfigError(f"{scheme}:// does not say which protocol it is: the upstream needs one", at))
        elif not wanted:
            wanted = means.codec
        elif wanted != means.codec:
            before = "the upstream's protocol is" if config.protocol else "another endpoint means"
            faults.append(ConfigError(f"{scheme}:// means {means.codec}, but {before} {wanted}", at))
    if faults:
        raise ConfigFaults(faults)
    return wanted or SCHEMES["http"].codec


def codec_of(origin: str) -> str:
    """The name of the codec that an unnamed upstream is spoken to with, by the scheme of its origin."""
    return SCHEMES[origin.partition("://")[0]].codec


def layout(config: model.Upstream) -> tuple[Place, ...]:
    """
    Every place an upstream names.  Pure.

    @raise ConfigFaults: all its faults; paths are relative to the upstream.
    """
    places: list[Place] = []
    faults: list[ConfigError] = []
    for index, endpoint in enumerate(config.endpoints):
        try:
            places.append(place(endpoint.url, endpoint.weight, endpoint.zone, scheme=config.protocol))
        except ConfigError as error:
            faults.append(ConfigError(error.message, ("endpoints", index, "url")))
    if config.discovery is None and not config.endpoints:
        faults.append(ConfigError(f'upstream "{config.name}" leads nowhere: give it endpoints or discovery'))
    if faults:
        raise ConfigFaults(faults)
    return tuple(places)
