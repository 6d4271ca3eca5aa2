"""
Which endpoints of an upstream are well, by looking at each again and again.

Rules
- An endpoint is well until it was found unwell C{fall} times in a row, and unwell until it was found well C{rise}
  times: what alternates changes nothing.
- The first look comes within a second, the next C{interval} later, give or take a tenth, so that many gateways do not
  look at once.  There is one at a time; a slow one puts the next off.
- Looks count as nothing else: no request, no breaker, no record.
- Of the processes of a gateway one looks (L{protogate.upstream.board}); another one that takes over begins with what is
  held against each endpoint.
- What is not an endpoint any more is looked at no more, at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from random import Random
from typing import Final

from twisted.logger import Logger

from protogate.config import model
from protogate.config.faults import ConfigFaults
from protogate.errors import ConfigError
from protogate.interfaces import IPingingCodec, IStreamCodec
from protogate.upstream.connector import Connector
from protogate.upstream.endpoint import Endpoint, spoken
from protogate.upstream.probe import Ping, Probe, judge, question
from protogate.wheel import Wheel

FIRST: Final = 1.0
"""Seconds within which an endpoint is looked at for the first time."""

PATIENCE: Final = 2.0
"""Seconds that a look may take where nothing else is said."""
BY: Final = "healthCheck"
"""Who judges."""

_log = Logger()


def verify(upstreams: Iterable[model.Upstream], codecs: Mapping[str, IStreamCodec]) -> None:
    """
    Whether endpoints can be looked at as a configuration says.

    @param codecs: by name.
    @raise ConfigFaults: some cannot.
    """
    faults = [
        ConfigError(text, ("upstreams", index, "healthCheck", key))
        for index, upstream in enumerate(upstreams)
        if upstream.health_check is not None
        for key, text in _faults(upstream, upstream.health_check, codecs)
    ]
    if faults:
        raise ConfigFaults(faults)


def _faults(
    upstream: model.Upstream, check: model.HealthCheck, codecs: Mapping[str, IStreamCodec]
) -> Iterator[tuple[str, str]]:
    if not 0 < patience(check) <= check.interval:
        yield "timeout", "a look may take no longer than interval, and some time: take less, or leave it out"
    if check.type == "ping":
        try:
            name = spoken(upstream)
        except ConfigFaults:
            return  # it is told elsewhere
        if name in codecs and not IPingingCodec.providedBy(codecs[name]):
            yield "type", f"{name} has no sign of life: take http, grpc or connect"


def patience(check: model.HealthCheck) -> float:
    """Seconds that a look may take."""
    return min(PATIENCE, float(check.interval)) if check.timeout is None else float(check.timeout)


class Health:
    """
    @param name: of the upstream, for people.
    @param connector: makes what connects to an endpoint.
    @param ping: asks one of its connections for a sign of life, where the protocol has one.
    @param hold: told what is left to an endpoint, by whom, and why, as L{Endpoint.hold} is.
    @param count: told C{check_ok}, C{check_failed}, C{endpoint_up}, C{endpoint_down}.
    @param random: puts looks off a little.
    """

    def __init__(
        self,
        name: str,
        settings: model.HealthCheck,
        connector: Callable[[Endpoint], Connector],
        ping: Ping,
        hold: Callable[[Endpoint, str, float, str], None],
        wheel: Wheel,
        count: Callable[[str], None],
        random: Random,
    ) -> None:
        self.name, self.settings = name, settings
        self.connector, self.hold, self.wheel, self.count, self.random = connector, hold, wheel, count, random
        self.ping = ping if settings.type == "ping" else None
        self._watches: dict[Endpoint, Watch] = {}

    def follow(self, endpoints: Iterable[Endpoint]) -> None:
        """These are to be looked at, and no others."""
        before, self._watches = self._watches, {}
        for endpoint in endpoints:
            watch = before.pop(endpoint, None)
            if watch is None:
                watch = Watch(self, endpoint)
                watch.start()
            self._watches[endpoint] = watch
        for watch in before.values():
            watch.stop()

    def stop(self) -> None:
        """Look at none any more."""
        self.follow(())


class Watch:
    """The looks at one endpoint."""

    __slots__ = ("_endpoint", "_health", "_probe", "_row", "_timer")

    def __init__(self, health: Health, endpoint: Endpoint) -> None:
        self._health, self._endpoint = health, endpoint
        self._row = 0  # looks in a row that say other than what counts
        self._probe: Probe | None = None
        self._timer = health.wheel.timer(self._look)

    def start(self) -> None:
        """Begin."""
        health = self._health
        self._timer.set(health.random.uniform(0.0, min(FIRST, float(health.settings.interval))))

    def stop(self) -> None:
        """End."""
        self._timer.end()
        probe, self._probe = self._probe, None
        if probe is not None:
            probe.stop()

    def _look(self) -> None:
        if self._probe is not None:
            return  # it comes when this one is over
        health, settings = self._health, self._health.settings
        request = question(settings, self._endpoint.place.authority)
        seconds = patience(settings)
        self._probe = Probe(request, judge(settings), health.wheel, seconds, self._looked, health.ping)
        self._timer.set(float(settings.interval) * health.random.uniform(0.9, 1.1))
        self._probe.start(health.connector(self._endpoint))

    def _looked(self, why: str) -> None:
        self._probe = None
        if not self._timer.active:
            self._timer.set(0.0)
        health, endpoint = self._health, self._endpoint
        health.count("check_failed" if why else "check_ok")
        if (not why) == (BY not in endpoint.held):
            self._row = 0
            return
        self._row += 1
        if self._row < (health.settings.rise if not why else health.settings.fall):
            return
        self._row = 0
        health.count("endpoint_down" if why else "endpoint_up")
        told = {"upstream": health.name, "address": endpoint.address}
        if why:
            _log.warn("upstream {upstream}: {address} is not well: {why}", why=why, **told)
        else:
            _log.info("upstream {upstream}: {address} is well again", **told)
        health.hold(endpoint, BY, 0.0 if why else 1.0, why)
