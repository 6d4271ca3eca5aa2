"""
A source of endpoints that is asked over the network, through the upstreams of the gateway.

    class Nacos(Conversation):
        async def talk(self):
            answer = await self.ask(self.question.request())
            self.findings.found(await self.think(read, answer.content))
            await self.sleep(10)

Rules
- L{Conversation.talk} is called again and again.  What goes wrong in it (an Abort, a ValueError) is told to the
  findings, and tried again: after half a second first, each time twice as long, up to half a minute, by chance a third
  sooner.  What comes through sets that back.
- Whoever is asked is one of the gateway's upstreams, with all that one has: endpoints, health checks, TLS, clocks.
- What may be large is read in a thread (L{Conversation.think}).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final, TypeVar

from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.threads import deferToThreadPool
from twisted.logger import Logger
from twisted.python.failure import Failure
from zope.interface import implementer

from protogate.config.scalar import shown
from protogate.errors import Abort, ConfigError
from protogate.governance.asking import Answer, Question, ask
from protogate.interfaces import IDiscovery
from protogate.message import Request
from protogate.observe.events import Limited
from protogate.quiet import quiet
from protogate.upstream.discovery import Findings
from protogate.wheel import Wheel

FIRST: Final = 0.5
"""Seconds until the first attempt after a failure; each further one waits twice as long …"""
LAST: Final = 30.0
"""… up to this.  Up to a third is taken off by chance: many gateways do not come back at once."""
BETWEEN: Final = 0.05
"""Seconds between the end of one talk and the next: one that waits for nothing holds nobody up."""
PATIENCE: Final = 10.0
"""Seconds that an answer may take."""
LARGEST: Final = 16 << 20
"""Bytes that it may have."""

_OPEN: Final = "endpoints come without TLS: whoever is on the way can put others in their place"
_SHOWN: Final = "credentials are sent without TLS: whoever is on the way can read them"

T = TypeVar("T")
_log = Logger()


@implementer(IDiscovery)
class Conversation:
    """
    @ivar question: who is asked; its target is what the paths of questions begin with.
    @ivar findings: who is told; only from C{talk}.
    @ivar warnings: what works, but perhaps not as it was meant; paths are of the options.
    """

    patience = 0.0

    def __init__(self, question: Question, path: tuple[str | int, ...], secret: bool = False) -> None:
        """
        @param path: of the option that says who is asked.
        @param secret: whether questions carry one.
        """
        self.question = question
        self.warnings = [ConfigError(_SHOWN if secret else _OPEN, path)] if question.clear else []
        self.asks = {question.service: path}
        self._findings: Findings | None = None
        self._talking: Deferred[None] | None = None
        self._delay = FIRST
        self._warn: Limited | None = None

    async def talk(self) -> None:
        """To be overridden: find out what there is, and return when it is time to do so again."""
        raise NotImplementedError

    @property
    def findings(self) -> Findings:
        """See above.  @raise CancelledError: it has been stopped."""
        if self._findings is None:
            raise CancelledError
        return self._findings

    # -- IDiscovery

    def start(self, findings: Findings) -> None:
        """L{IDiscovery}."""
        self._findings = findings
        self._warn = Limited(_log.warn, now=findings.wheel.now)
        findings.wheel.soon(self._begin)

    def stop(self) -> None:
        """L{IDiscovery}."""
        self._findings = None
        talking, self._talking = self._talking, None
        if talking is not None:
            talking.cancel()

    def _begin(self) -> None:
        if self._findings is not None:
            self._talking = Deferred.fromCoroutine(self._go()).addErrback(_ended)

    async def _go(self) -> None:
        while True:
            try:
                await self.talk()
            except CancelledError:
                if self._findings is None:
                    return
                why = "it was given up"
            except (Abort, ValueError) as error:
                why = str(error)
            except Exception as error:
                _log.failure("looking for endpoints broke")
                why = repr(error)
            else:
                self._delay = FIRST
                await self.sleep(BETWEEN)
                continue
            findings = self._findings
            if findings is None:
                return
            findings.failed(why)
            delay, self._delay = self._delay, min(2 * self._delay, LAST)
            await self.sleep(delay * findings.random.uniform(2 / 3, 1.0))

    # -- for talk()

    def well(self) -> None:
        """The other side can be talked with: what fails from now on is tried again soon."""
        self._delay = FIRST

    async def ask(self, request: Request, seconds: float = PATIENCE, limit: int = LARGEST) -> Answer:
        """
        Ask, and read the whole answer.

        @raise Abort: there is none.
        """
        findings = self.findings
        answer = await ask(findings.service(self.question.service), request, findings.wheel, seconds, limit)
        self.findings  # noqa: B018 - raises where it was stopped meanwhile
        return answer

    async def think(self, function: Callable[..., T], *args: Any) -> T:
        """Call it in a thread: it takes its time, and touches nothing that is live."""
        reactor = self.findings.reactor
        made: T = await deferToThreadPool(reactor, reactor.getThreadPool(), _quietly, function, *args)
        self.findings  # noqa: B018 - as above
        return made

    async def sleep(self, seconds: float) -> None:
        """Wait."""
        await _slept(self.findings.wheel, seconds)

    def complain(self, faults: Iterable[str]) -> None:
        """Count entries that cannot be read, and tell of one a minute."""
        for fault in faults:
            self.findings.count("discovery_illegible")
            assert self._warn is not None
            self._warn("{source}: {fault}", source=self.question.service, fault=fault)


def _quietly(function: Callable[..., T], *args: Any) -> T:
    with quiet:
        return function(*args)


def _slept(wheel: Wheel, seconds: float) -> Deferred[None]:
    over: Deferred[None] = Deferred(lambda _: timer.end())
    timer = wheel.after(seconds, lambda: over.callback(None))
    return over


def _ended(failure: Failure) -> None:
    if not failure.check(CancelledError):
        _log.failure("looking for endpoints has ended", failure)


def located(options: Any) -> tuple[Question, tuple[str | int, ...]]:
    """
    Who is asked, as C{upstream} or C{url} of some options say, and which of them that was.

    @raise ConfigError: neither does, or both.
    """
    if (options.upstream is None) == (options.url is None):
        raise ConfigError("expected exactly one of upstream and url")
    if options.url is not None:
        return Question.of_url(options.url.rstrip("/") or options.url), ("url",)
    return Question.of_upstream(options.upstream, "/"), ("upstream",)


def target(question: Question, path: bytes) -> bytes:
    """A path below that of a question."""
    return question.target.rstrip(b"/") + path


def refused(answer: Answer) -> ValueError:
    """What to make of an answer that is none."""
    said = answer.content[:200].decode("utf-8", "replace").strip()
    return ValueError(f"it answered {answer.status}" + (f": {shown(said)}" if said else ""))
