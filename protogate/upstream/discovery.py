"""
What a source of endpoints has found for one upstream, and whether that still counts.

Rules
- What was found stays in use while its source is away, for C{staleFor}: a catalogue that is down takes no service down
  with it.  Not for ever: in the end addresses belong to somebody else.
- A source that knows somebody and then nobody is doubted for C{emptyFor}: far more often it has lost its memory, or its
  sight, than all servers have gone at once; and if they have, asking them fails just as well as asking nobody.
- Before the first answer requests wait for it, not longer than C{timeouts.dns}.  When there is none, a process goes on
  with what others of its gateway use (L{protogate.upstream.known}), and for as long.
- Who is found twice in one answer is there once: as it stands there last.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace
from twisted.logger import Logger

from protogate.config import model
from protogate.config.faults import printable
from protogate.config.units import written
from protogate.context import Context
from protogate.errors import ALWAYS, UPSTREAM, Abort, Phase, timeout
from protogate.interfaces import IDiscovery, IService
from protogate.observe.events import Limited
from protogate.upstream.endpoint import Place, spoken
from protogate.upstream.known import Known
from protogate.upstream.refusal import unfound

if TYPE_CHECKING:
    from protogate.upstream.means import Means

_log = Logger()


class Findings:
    """
    @param name: of the upstream.
    @param changed: told the places each time they are others, and the first time.
    @param lost: told why there are none yet: the source has failed, or not answered in time.
    @ivar key: what the source was made by: for an equal one a reload changes nothing.
    @ivar answered: whether there was ever an answer.
    @ivar reason: why there was none so far, or None while it is still awaited.
    @ivar stale: whether what is in use was found by a source that is away now.
    """

    def __init__(
        self,
        name: str,
        source: IDiscovery,
        settings: model.Discovery,
        key: object,
        means: Means,
        context: Context,
        changed: Callable[[Sequence[Place]], None],
        lost: Callable[[Abort], None],
    ) -> None:
        self.key, self.settings = key, settings
        self.reactor: Any = means.reactor
        self.wheel, self.resolver = means.wheel, means.resolver
        self.count, self.random = means.count, means.random
        self.answered = self.stale = False
        self.reason: Abort | None = None
        self._name, self._source, self._means, self._context = name, source, means, context
        self._changed, self._lost = changed, lost
        self._places: tuple[Place, ...] = ()
        self._known = Known(means.board, name, key)
        self._begun = self._running = self._away = False
        self._said = ""  # why it is away, as it was told last
        self._warn = Limited(_log.warn, now=means.wheel.now)
        self._late = means.wheel.timer(self._overdue)
        self._expiry = means.wheel.timer(self._expired)
        self._doubt = means.wheel.timer(self._believed)

    # -- for the upstream

    def start(self) -> None:
        """Begin; harmless when begun, or stopped."""
        if self._begun:
            return
        self._begun = self._running = True
        self._known.follow()
        limit = self._context.timeouts.dns
        if limit:
            self._late.set(limit)
        try:
            self._source.start(self)
        except Exception:
            _log.failure("upstream {upstream}: {source} cannot be started", **self._about())
            self.failed("it cannot be started")

    def tune(self, settings: model.Discovery) -> None:
        """From now on other bounds hold: for what is old or in doubt already, they begin anew."""
        before, self.settings = self.settings, settings
        if self.stale and settings.stale_for != before.stale_for:
            if settings.stale_for:
                self._expiry.set(float(settings.stale_for))
            else:
                self._expiry.close()
        if self._doubt.active and settings.empty_for != before.empty_for:
            self._doubt.set(float(settings.empty_for))

    def stop(self) -> None:
        """Look for nobody any more."""
        running, self._running = self._running, False
        for timer in (self._late, self._expiry, self._doubt):
            timer.end()
        self._known.leave()
        if running:
            try:
                self._source.stop()
            except Exception:
                _log.failure("upstream {upstream}: {source} cannot be stopped", **self._about())

    # -- for the source

    def service(self, name: str) -> IService:
        """The upstream of that name or origin, one of C{asks}."""
        return self._means.service(name)

    def found(self, places: Iterable[Place]) -> None:
        """These are all endpoints there are."""
        if not self._running:
            return
        self.count("discovery_ok")
        self._late.close()
        self._expiry.close()
        if self.stale:
            self.stale = False
            self._known.use(self._places)
        if self._away:
            self._away, self._said = False, ""
            _log.info("upstream {upstream}: {source} answers", **self._about())
        now = tuple({place.key: place for place in places}.values())
        if now or not self._places or not self.settings.empty_for:
            self._take(now)
        elif not self._doubt.active:
            self.count("discovery_empty")
            self._doubt.set(float(self.settings.empty_for))
            _log.warn(
                "upstream {upstream}: {source} knows no endpoint any more; {known} is used for another {time}",
                known=self._number(),
                time=written(self.settings.empty_for),
                **self._about(),
            )

    def failed(self, why: str | Abort) -> None:
        """
        There was no answer, or none that can be used.

        @param why: one line for operators; an L{Abort} also says what requests are answered with that nobody can serve.
        """
        if not self._running:
            return
        self.count("discovery_failed")
        self._doubt.close()
        reason = unfound(self._name, f"{self._about()['source']}: {why}") if isinstance(why, str) else why
        if not self.answered:
            self._late.close()
            self._inherit()
        said = str(why)
        if said != self._said:
            tell = self._warn if self._away else _log.warn  # of further reasons not all
            self._said = said
            tell(
                "upstream {upstream}: {source}: {why}; {kept}", why=printable(said), kept=self._kept(), **self._about()
            )
        self._away = True
        if not self.answered:
            self.reason = reason
            self._lost(reason)
        elif not self.stale and self._places:
            self._age(0.0)

    # -- clocks

    def _overdue(self) -> None:
        seconds = self._context.timeouts.dns
        if self.settings.dns is not None:
            self.count("dns_timeout")
        if self._inherit():
            _log.warn(
                "upstream {upstream}: {source} has not answered for {time:g} s; {kept}",
                time=seconds,
                kept=self._kept(),
                **self._about(),
            )
            return
        if self.settings.dns is not None:
            self.reason = timeout(Phase.DNS, UPSTREAM, seconds, ALWAYS)
        else:
            self.reason = unfound(self._name, f"{self._about()['source']} has not answered for {seconds:g} s")
        self._lost(self.reason)

    def _expired(self) -> None:
        self.count("discovery_expired")
        self.stale = False
        _log.error(
            "upstream {upstream}: {source} has been away for {time}: {known} is not used any more",
            known=self._number(),
            time=written(self.settings.stale_for),
            **self._about(),
        )
        self._take(())

    def _believed(self) -> None:
        _log.warn("upstream {upstream}: {source} is believed: there are no endpoints", **self._about())
        self._take(())

    # -- what comes of it

    def _take(self, places: tuple[Place, ...]) -> None:
        self._doubt.close()
        first, self.answered, self.reason = not self.answered, True, None
        if first or places != self._places:
            self._places = places
            self._known.use(places)
            self._changed(places)

    def _inherit(self) -> bool:
        """Go on with what others of this gateway use, if they know somebody."""
        places, old = self._known.found()
        bound = float(self.settings.stale_for)
        if not places or (bound and old >= bound):
            return False
        self._take(places)
        self._age(old)
        return True

    def _age(self, old: float) -> None:
        """What is in use is old, by so many seconds."""
        self.stale = True
        bound = float(self.settings.stale_for)
        if bound:
            self._expiry.set(bound - old)
        self._known.use(self._places, old)

    def _kept(self) -> str:
        if not self._places:
            return "there is no endpoint of it to use"
        bound = self.settings.stale_for
        return f"{self._number()} is used {f'for up to {written(bound)}' if bound else 'until it answers'}"

    def _number(self) -> str:
        number = len(self._places)
        return f"what it knew ({number} endpoint{'' if number == 1 else 's'})"

    def _about(self) -> dict[str, Any]:
        """For the log."""
        return {"upstream": self._name, "source": spelled(self.settings)}


def key(config: model.Upstream) -> object:
    """What a source of an upstream is made by: while that stays the same, so does the source.  None = there is none."""
    settings = config.discovery
    if settings is None:
        return None
    return replace(settings, stale_for=model.Seconds(0), empty_for=model.Seconds(0)), spoken(config)


def spelled(settings: model.Discovery) -> str:
    """Where endpoints are found, for people."""
    if settings.dns is not None:
        return f"DNS ({settings.dns})"
    if settings.file:
        return f"file ({os.path.basename(settings.file)})"
    if settings.etcd is not None:
        return f"etcd ({settings.etcd.prefix})"
    if settings.consul is not None:
        return f"Consul ({settings.consul.service})"
    return ", ".join(settings.plugin)
