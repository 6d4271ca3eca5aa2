"""
Notices that certificates, keys or authorities were renewed, and puts the new ones in place: no reload, no connection
lost.

Rules
- Files are looked at and read in a thread, never on the event loop; one look at a time.
- They are read when they look the same twice: nobody wants a certificate whose key is still being written.
- What cannot be used is told once, and what was in force before stays.
- Each worker looks for itself: keys do not travel over the line to its supervisor.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from twisted.internet.defer import Deferred
from twisted.internet.threads import deferToThreadPool
from twisted.logger import Logger
from twisted.python.failure import Failure

from protogate.build import Build
from protogate.config.stamp import Stamp, stamp_of
from protogate.errors import ConfigError
from protogate.securing import Sides, renewed
from protogate.wheel import Wheel

INTERVAL: Final = 5.0
"""Seconds between two looks."""

_log = Logger()
Stamps = Mapping[str, Stamp | None]
Found = tuple[Stamps, tuple[Sides, Sequence[ConfigError]] | None]


class Renewal:
    """
    @param take: puts new sides in force.
    @param count: told of each renewal: C{tls_renewed} or C{tls_renewal_failed}.
    @param of_ssl: which contexts are made.
    """

    def __init__(
        self, reactor: Any, wheel: Wheel, take: Callable[[Sides], object], count: Callable[[str], None], of_ssl: bool
    ) -> None:
        self._reactor, self._take, self._count, self._of_ssl = reactor, take, count, of_ssl
        self._timer = wheel.timer(self._look)
        self._running = False
        self._looking = False
        self._built: Build | None = None
        self._sides = Sides({}, {})
        self._known: Stamps = {}  # what was read last …
        self._seen: Stamps = {}  # … and what the last look saw

    def start(self) -> None:
        """Begin to look."""
        self._running = True
        self._arm()

    def stop(self) -> None:
        """Look no more."""
        self._running = False
        self._timer.end()

    def follow(self, built: Build) -> None:
        """This is in force now."""
        self._built, self._sides = built, built.tls
        self._known = self._seen = built.tls.stamps
        self._arm()

    def _arm(self) -> None:
        if self._running and self._known:
            self._timer.set(INTERVAL)
        else:
            self._timer.clear()

    def _look(self) -> None:
        built = self._built
        if self._looking or built is None:
            return
        self._looking = True
        sides, known, seen = self._sides, self._known, self._seen

        def work() -> Found:
            now = {path: stamp_of(path) for path in known}
            if now == known or now != seen:
                return now, None
            origins = [name for name in built.destinations if "://" in name]
            return now, renewed(sides, built.config, built.codecs, origins, self._of_ssl)

        looking: Deferred[Any] = deferToThreadPool(self._reactor, self._reactor.getThreadPool(), work)
        looking.addCallback(self._looked, built)
        looking.addErrback(self._broke)
        looking.addCallback(self._over)

    def _looked(self, found: Found, built: Build) -> None:
        now, read = found
        if self._built is not built or not self._running:
            return  # another configuration came in between, which has read everything itself
        self._seen = now
        if read is None:
            return
        sides, faults = read
        before, self._sides, self._known = self._sides, sides, now
        for fault in faults:
            self._count("tls_renewal_failed")
            _log.error("{fault}; what was there before stays in use", fault=built.loaded.describe(fault))
        names = [name for name, side in sides.servers.items() if side is not before.servers.get(name)]
        names += [name for name, client in sides.clients.items() if client is not before.clients.get(name)]
        if names:
            self._count("tls_renewed")
            _log.info("renewed files of TLS are in use: {names}", names=", ".join(names))
            for warning in sides.warnings:
                _log.warn("{warning}", warning=built.loaded.describe(warning))
            self._take(sides)

    def _broke(self, failure: Failure) -> None:
        self._count("tls_renewal_failed")
        _log.failure("looking for renewed files of TLS broke", failure)

    def _over(self, _: object) -> None:
        self._looking = False
        self._arm()
