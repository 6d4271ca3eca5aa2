"""
C{trafficCopy}: sends a copy of what an upstream is asked to another one, and may compare the answers.

Rules
- A copy never affects the original: not its time, not its failure, not its record.  What the copy does not take as fast
  as the original is held up to C{lag} bytes, then the copy is given up.  At most C{most} are under way.
- It is what the original's upstream is sent, modules, rewriting and fields of the gateway included; but for what
  C{strip} names, and with L{MARK}.  A request with that mark is never copied.
- Where the original goes to the copy's upstream itself there is no copy: the two would share its connections.
- Connections that become tunnels are not copied.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from twisted.internet.defer import Deferred
from twisted.logger import Logger
from zope.interface import implementer

from protogate import cohort
from protogate.errors import ConfigError
from protogate.expression.template import Template
from protogate.governance.copydifference import BODIES, DIGEST, JSON, VOLATILE, Path, Terms
from protogate.governance.copytee import Tee
from protogate.governance.copyunderway import Copies, Copy, Pair
from protogate.governance.means import Means
from protogate.governance.params import Params
from protogate.governance.rewritepath import along, check_path
from protogate.governance.stages import PRE_UPSTREAM
from protogate.interfaces import ILiveModule, IModuleFactory
from protogate.message import Headers, Request, Response
from protogate.observe.events import Limited

if TYPE_CHECKING:
    from protogate.exchange.exchange import Ask, Exchange

MARK: Final = b"x-protogate-copy"
"""A field of the copy: C{1}."""
LAG: Final = 1 << 20
MOST: Final = 100
TIMEOUT: Final = 10.0
LIMIT: Final = 64 * 1024
INTERVAL: Final = 1.0
"""Unless said otherwise."""
_log: Final = Logger()
_fails: Final = Limited(_log.failure)


@implementer(ILiveModule)
class TrafficCopy:
    """
    @ivar copies: those under way.
    """

    def __init__(
        self,
        upstream: str,
        path: str | Template,
        ratio: float,
        strip: frozenset[bytes],
        lag: int,
        most: int,
        timeout: float,
        terms: Terms | None,
        interval: float,
    ) -> None:
        """
        @param path: empty = that of the original.
        @param ratio: percent of requests.
        @param strip: fields that the copy is without.
        @param timeout: seconds that a copy may take, to the last byte of its answer.
        @param terms: None = answers are not compared.
        @param interval: seconds between two lines about differences.
        """
        self.asks = {upstream: ("upstream",)}
        self.copies = Copies()
        self._upstream, self._path, self._ratio, self._strip = upstream, path, ratio, strip
        self._lag, self._most, self._timeout, self._terms, self._interval = lag, most, timeout, terms, interval
        self._means: Means | None = None
        self._tell: Limited | None = None
        self._succeeded = False

    # -- ILiveModule

    def start(self, means: Means, before: Any) -> None:
        """See L{ILiveModule.start}.  What is under way goes on."""
        self._means = means
        self._tell = Limited(_log.info, self._interval, means.wheel.now)
        if isinstance(before, TrafficCopy):
            self.copies, before._succeeded = before.copies, True
        means.gauge("under_way", lambda: len(self.copies.under))

    def stop(self) -> None:
        """See L{ILiveModule.stop}."""
        self._means = None
        if not self._succeeded:
            self.copies.stop()

    # -- IModule

    def process(self, exchange: Exchange) -> None:
        """Have it copied when the upstream is asked, if it is among those."""
        means, request = self._means, exchange.request
        if means is None or request.upgrade is not None:
            return
        if self._ratio < 100 and cohort.position(f"{MARK!r} {exchange.id}") >= self._ratio:
            return
        if request.headers.get(MARK) is not None:
            means.count("looped")
            return
        exchange.through(self._ask)

    def _ask(self, exchange: Exchange, ask: Ask) -> Response | Deferred[Response]:
        copy = None
        try:
            copy = self._copy(exchange)
        except Exception:
            _fails("a request cannot be copied")
            if self._means is not None:
                self._means.count("failed")
        answer = ask()
        if copy is not None:
            copy.hear(answer)
        return answer

    def _copy(self, exchange: Exchange) -> Copy | None:
        """One that is asked at the end of this turn."""
        means, target, first = self._means, exchange.target, exchange.request
        if means is None:
            return None
        if target is not None and target.upstream == self._upstream:
            means.count("same_upstream")
            return None
        if len(self.copies.under) >= self._most:
            means.count("skipped")
            return None
        request = self._request(exchange)
        body, pair = first.body, None
        if self._terms is not None:
            pair = Pair(self._terms, partial(self._differs, exchange.id, request.method, request.target))
        copy = Copy(request, -1 if body is None else body.length, self._lag, self.copies, means, pair)
        if body is not None and copy.trail is not None:
            first.body = Tee(body, copy.trail)
        if pair is not None or body is not None:
            exchange.after(copy.bereft)
        means.wheel.soon(partial(copy.begin, self._upstream, self._timeout))
        return copy

    def _request(self, exchange: Exchange) -> Request:
        first = exchange.request
        headers = Headers([field for field in first.headers if field[0] not in self._strip])
        headers.append((MARK, b"1"))
        request = first.again(headers)
        request.target = along(self._path, exchange, first.target)
        request.key = exchange.plan.key(exchange, self._upstream)
        return request

    def _differs(self, identifier: str, method: bytes, target: bytes, found: list[str]) -> None:
        if self._tell is not None:
            self._tell(
                "request {id}: the copy to {upstream} was answered otherwise: {found} ({method} {path}; {suppressed} "
                "others not shown)",
                id=identifier,
                upstream=self._upstream,
                found="; ".join(found),
                method=method.decode("latin-1"),
                path=target.partition(b"?")[0][:200].decode("latin-1"),
            )


@implementer(IModuleFactory)
class TrafficCopyFactory:
    """Makes L{TrafficCopy}."""

    name = "trafficCopy"
    stages = (PRE_UPSTREAM,)
    guards = False

    def build(self, params: Mapping[str, object]) -> TrafficCopy:
        """See L{IModuleFactory.build}."""
        reader = Params(
            params, "upstream", "path", "ratio", "strip", "lag", "most", "timeout", "compare", "logInterval"
        )
        upstream = reader.literal("upstream")
        path = reader.text("path", "")
        if isinstance(path, str) and path:
            check_path(reader, "path", path)
        ratio = reader.percent("ratio")
        strip = frozenset(reader.field(name, "strip") for name in reader.words("strip"))
        lag = reader.size("lag", LAG, 4096, 1 << 30)
        most = reader.integer("most", MOST, 1, 100_000)
        timeout = reader.seconds("timeout", TIMEOUT, 0.1, 3600.0)
        terms = _terms(reader, params["compare"]) if "compare" in params else None
        interval = reader.seconds("logInterval", INTERVAL, 0.1)
        if "logInterval" in reader and terms is None and not reader.faults:
            reader.fault("nothing is compared without compare", "logInterval")
        reader.done()
        return TrafficCopy(upstream, path, ratio, strip, lag, most, timeout, terms, interval)


def _terms(reader: Params, given: object) -> Terms | None:
    if not isinstance(given, Mapping):
        reader.fault("expected a mapping: what is compared; {} is all there is", "compare")
        return None
    inner = Params(given, "status", "headers", "ignoreHeaders", "body", "ignorePaths", "limit", "values")
    body = inner.choice("body", DIGEST, *BODIES)
    for name in ("ignorePaths", "limit"):
        if name in inner and body != JSON and not inner.faults:
            inner.fault("only where body is json", name)
    terms = Terms(
        inner.flag("status", True),
        inner.flag("headers", True),
        VOLATILE | {inner.field(name, "ignoreHeaders") for name in inner.words("ignoreHeaders")},
        body,
        tuple(_pointer(inner, text) for text in inner.words("ignorePaths")),
        inner.size("limit", LIMIT, 1, 1 << 20),
        inner.flag("values"),
    )
    reader.faults += [ConfigError(fault.message, ("compare", *fault.path)) for fault in inner.faults]
    return terms


def _pointer(reader: Params, text: str) -> Path:
    """A JSON pointer (RFC 6901), in which * is any item or member."""
    if not text.startswith("/"):
        reader.fault(f'expected a JSON pointer such as /items/*/id, got "{text}"', "ignorePaths")
        return ("",)
    return tuple(name.replace("~1", "/").replace("~0", "~") for name in text[1:].split("/"))
