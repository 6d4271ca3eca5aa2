"""
C{degrade}: gives something else where an upstream fails, or is not to be asked: an own answer, another upstream's, the
last good one.

Rules
- What is given is tried in the order of C{give}; the first that gives something counts.  Where none does all is as if
  the module were not there: the upstream is asked, or its failure is what the client gets.
- A failure that blames the client is its own; nobody is helped whose client has left.
- The upstream is asked through it, so that it sees failures as they are; for those of modules behind it there is what
  can be given at once.
- What was degraded says so: in a field of the answer, and in the record.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from twisted.internet.defer import CancelledError, Deferred
from twisted.logger import Logger
from twisted.python.failure import Failure
from zope.interface import implementer

from protogate.caching.storing import Policy
from protogate.errors import Abort, ConfigError
from protogate.expression.template import Template
from protogate.governance.cache import CREDENTIALS, TARGETED
from protogate.governance.degradecase import Case
from protogate.governance.degradegive import FAILURES, KNOWN, NOTE, Other, Others, Own, twice, uncached
from protogate.governance.degradekept import LastGood, Terms
from protogate.governance.degradewhen import NAME, Switches, When, read, switches
from protogate.governance.errorpage import Page, texts_of
from protogate.governance.fields import Fields
from protogate.governance.means import Means
from protogate.governance.params import Params, shown
from protogate.governance.respond import EMPTY
from protogate.governance.rewritepath import check_path
from protogate.governance.sources import Followed
from protogate.governance.stages import PRE_UPSTREAM
from protogate.interfaces import ILiveModule, IModuleFactory
from protogate.message import Response
from protogate.observe.events import Limited
from protogate.promise import waits

if TYPE_CHECKING:
    from protogate.exchange.exchange import Exchange

MARK: Final = b"x-protogate-degraded"
"""A field of the answer: the C{name} of the entry."""
MEMORY: Final = 16 << 20
SIZE: Final = 256 * 1024
AGE: Final = 86_400.0
"""Unless said otherwise."""
_OFF: Final[Switches] = frozenset()
_EVENTS: Final[dict[str, str]] = {
    "condition": "on_condition",
    "switch": "on_switch",
    "load": "on_load",
    "status": "on_status",
    "response": "on_response",
    "error": "on_error",
    "cached": "gave_cached",
    "upstream": "gave_upstream",
    Own.name: "gave_answer",
}
_log: Final = Logger()
_fails: Final = Limited(_log.failure)

Given = Response | Deferred[Response | None] | None
Fallback = Own | Other | LastGood


@implementer(ILiveModule)
class Degrade:
    """
    @ivar name: for answers, records and operators.
    @ivar when: it holds.
    @ivar last: the last good answers; None = none are kept.
    @ivar others: whether other upstreams may be asked.
    @ivar source: of the switches that are on; None = there are none.
    """

    def __init__(
        self, name: str, when: When, fallbacks: Sequence[Fallback], followed: Followed[Switches] | None, mark: bool
    ) -> None:
        """@param followed: the switches that are on."""
        self.name, self.when, self._fallbacks, self._mark = name, when, fallbacks, mark
        self.last = next((each for each in fallbacks if isinstance(each, LastGood)), None)
        self.others = any(isinstance(each, Other) for each in fallbacks)
        self.asks = {
            each.upstream: ("give", at, "upstream") for at, each in enumerate(fallbacks) if isinstance(each, Other)
        }
        self._followed = followed
        self.source = None if followed is None else followed.source
        if followed is not None and followed.source.url is not None:
            self.asks.setdefault(followed.source.url.service, ("switches", "url"))  # type: ignore[arg-type]
        self.means: Means | None = None
        self._after = bool(when.statuses or when.response or when.errors is None or when.errors)

    # -- ILiveModule

    def start(self, means: Means, before: Any) -> None:
        """See L{ILiveModule.start}."""
        self.means = means
        same = before if isinstance(before, Degrade) else None
        last, followed = self.last, self._followed
        if last is not None:
            if same is not None and same.last is not None:
                last.succeed(same.last)
            means.gauge("bytes", lambda: last.store.used)
        if followed is not None:
            followed.start(means, None if same is None else same._followed)
            means.gauge("switched_on", lambda: int(self.when.switch in self._switches))

    def stop(self) -> None:
        """See L{ILiveModule.stop}.  What is under way goes on."""
        if self._followed is not None:
            self._followed.stop()

    @property
    def _switches(self) -> Switches:
        followed = self._followed
        return _OFF if followed is None or followed.value is None else followed.value

    # -- IModule

    def process(self, exchange: Exchange) -> Response | None:
        """Answer at once, have another one asked, or see to it that a failure does not reach the client."""
        means, request = self.means, exchange.request
        if means is None or request.upgrade is not None:
            return None
        why = self.when.before(self._switches, means.load)
        last = self.last
        case = Case(self, why, None if last is None else last.seek(exchange))
        if why:
            self._count(why)
            given = self.give(exchange, case, why, Others.LEFT)
            if given is not None:
                assert isinstance(given, Response)
                return given
        if case.left or self._after or last is not None:
            exchange.through(case.ask)
        if self._after and not why:
            exchange.upon(case.seen)
        return None

    # -- what is given

    def give(self, exchange: Exchange, case: Case, why: str, others: Others, at: int = 0) -> Given:
        """
        The first that gives something, from that one on.

        @param others: what becomes of other upstreams.
        """
        for place in range(at, len(self._fallbacks)):
            fallback = self._fallbacks[place]
            if isinstance(fallback, Other) and others is not Others.ASKED:
                if others is Others.SKIPPED:
                    continue
                case.left, case.at = True, place
                return None
            try:
                given: Any = self._of(fallback, exchange, case)
            except Exception as error:
                if not isinstance(error, (Abort, ValueError)):
                    _fails("what is to be given instead cannot be made")
                self._count("fallback_failed")
                continue
            if given is None:
                continue
            if waits(given):
                extra = (exchange, case, why, place)
                given.addCallbacks(self._given, self._not_given, callbackArgs=extra, errbackArgs=extra)
                return given
            outcome: Given = self._given(given, exchange, case, why, place)
            return outcome
        return None

    def _of(self, fallback: Fallback, exchange: Exchange, case: Case) -> Response | Deferred[Response] | None:
        if isinstance(fallback, Own):
            return fallback.give(exchange)
        if isinstance(fallback, LastGood):
            return None if case.sought is None else fallback.give(exchange, case.sought)
        assert self.means is not None
        if case.resent is None or not twice(exchange.request.method, case.retry):
            return None
        return fallback.ask(exchange, self.means, case.resent)

    def _given(self, response: Response, exchange: Exchange, case: Case, why: str, at: int) -> Any:
        """It may be given, unless it tells of another failure."""
        fallback = self._fallbacks[at]
        if isinstance(fallback, Other) and response.status >= FAILURES:
            if response.body is not None:
                response.body.stopProducing()
            self._count("fallback_failed")
            return self.give(exchange, case, why, Others.ASKED, at + 1)
        case.over = True
        if isinstance(fallback, Other) and case.resent is not None:
            case.resent.given(exchange.ledger, exchange.wheel.now(), why)
            uncached(response.headers)
        self._count(fallback.name)
        note = exchange.notes[NOTE] = {"name": self.name, "why": why, "gave": fallback.name}
        if isinstance(fallback, Other):
            note["upstream"] = fallback.upstream
        if self._mark:
            response.headers.append((MARK, self.name.encode("ascii")))
        return response

    def _not_given(self, failure: Failure, exchange: Exchange, case: Case, why: str, at: int) -> Any:
        if exchange.request.gone is not None or failure.check(CancelledError):
            return failure
        self._count("fallback_failed")
        return self.give(exchange, case, why, Others.ASKED, at + 1)

    def _count(self, why: str) -> None:
        if self.means is not None:
            self.means.count(_EVENTS.get(why.partition(" ")[0], why))

    def instead(self, exchange: Exchange, case: Case, why: str, others: Others = Others.ASKED) -> Given:
        """What is given for a failure."""
        self._count(why)
        return self.give(exchange, case, why, others)


@implementer(IModuleFactory)
class DegradeFactory:
    """Makes L{Degrade}."""

    name = "degrade"
    stages = (PRE_UPSTREAM,)
    guards = False

    def build(self, params: Mapping[str, object]) -> Degrade:
        """See L{IModuleFactory.build}."""
        reader = Params(params, "name", "when", "give", "switches", "mark")
        name = reader.literal("name", "default")
        if not NAME(name):
            reader.fault(f"expected a name of letters, digits and _ . -, 64 at most, got {shown(name)}", "name")
        when = read(reader, "when")
        fallbacks = [_fallback(reader, given, at) for at, given in enumerate(reader.items("give"))]
        if not fallbacks and not reader.faults:
            reader.fault("expected a list of what is given: cached, upstream, answer", "give")
        if sum(isinstance(each, LastGood) for each in fallbacks) > 1:
            reader.fault("there is one last good answer", "give")
        followed = _followed(reader, when)
        mark = reader.flag("mark", True)
        reader.done()
        return Degrade(name, when, [each for each in fallbacks if each is not None], followed, mark)


def _followed(reader: Params, when: When) -> Followed[Switches] | None:
    source = reader.source("switches")
    if (source is not None) is not bool(when.switch) and not reader.faults:
        missing = "switches is missing: the list of those that are on" if when.switch else "when names no switch"
        reader.fault(missing, "switches")
    if source is None:
        return None
    followed = Followed(source, switches)
    reader.load(followed, "switches")
    return followed


def _fallback(reader: Params, given: Any, at: int) -> Fallback | None:
    path: tuple[str | int, ...] = ("give", at)
    if isinstance(given, Mapping) and "upstream" in given:
        inner = Params(given, "upstream", "path")
        made: Fallback = _upstream(inner)
    else:
        kind, params = next(iter(given.items())) if isinstance(given, Mapping) and len(given) == 1 else ("", None)
        if kind not in KNOWN or not isinstance(params, Mapping):
            expected = "{cached: {…}}, {upstream: name} or {answer: {…}}"
            reader.fault(f"expected {expected}, got {shown(given)}", "give", at)
            return None
        inner, path = Params(params, *KNOWN[kind]), (*path, kind)
        made = _own(inner, params) if kind == "answer" else _cached(inner)
    reader.faults += [ConfigError(fault.message, (*path, *fault.path)) for fault in inner.faults]
    return made


def _own(reader: Params, params: Mapping[str, Any]) -> Own:
    fields, texts = Fields(reader.lines("headers")), texts_of(reader, params)
    status = reader.integer("status", 200, 200, 599)
    if texts and status in EMPTY:
        reader.fault(f"a response with status {status} has no content", next(iter(texts)))
    return Own(status, fields, Page(frozenset(), texts) if texts else None)


def _upstream(reader: Params) -> Other:
    path = reader.text("path", "")
    if isinstance(path, str) and path:
        check_path(reader, "path", path)
    return Other(reader.literal("upstream"), path)


def _cached(reader: Params) -> LastGood:
    memory = reader.size("memory", MEMORY, 64 << 10, 1 << 40)
    size = reader.size("objectSize", min(SIZE, memory // 4), 1, 1 << 40)
    if size > memory // 4:
        reader.fault("more than a quarter of the memory", "objectSize")
    by = reader.text("by", "")
    if by and isinstance(by, str):
        reader.fault("expected a template such as \"${request.headers['x-tenant']}\"", "by")
    template = by if isinstance(by, Template) else None
    terms = Terms(_policy(reader), reader.flag("silent"), "" if template is None else template.text)
    return LastGood(terms, template, memory, size, int(reader.seconds("maxAge", AGE, 1.0)))


def _policy(reader: Params) -> Policy:
    given = reader.given("credentials")
    words = list(CREDENTIALS) if given is None else [] if given == [] else reader.words("credentials")
    credentials = frozenset(reader.field(word, "credentials") for word in words)
    return Policy(tuple(name.encode("ascii") for name in TARGETED), credentials, reader.flag("stripCookies"))
