"""
One request's life: PRE_REQUEST, routing, PRE_UPSTREAM, the upstream, PRE_RESPONSE; ERROR after a failure anywhere;
POST_RESPONSE and the record when it is over.

Rules
- A step answers with a value or with a Deferred; while all answer with values, no Deferred is made.  The Deferred that
  C{begin()} returns is the one of the step that waits, with the rest of the steps as its callbacks: cancelling it
  reaches whatever waits.
- A failure goes to ERROR once.  A failure on the way back from there ends in a plain problem document.
- Whoever holds a response that is not to be sent stops its body.
- A client that left is never revived: its cancellation passes through every step untouched.
- C{closed()} is called by the server codec exactly once; it is what makes exactly one record.
- Knows no protocol, no module, no rule and no upstream: all of them come with the L{Plan}.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from twisted.internet.defer import CancelledError, Deferred
from twisted.logger import Logger
from twisted.python.failure import Failure

from protogate.body import Limit, Valve
from protogate.errors import CLIENT, CLIENT_GONE, GATEWAY, UPSTREAM, Abort, Phase, overdue
from protogate.exchange import date, problem
from protogate.exchange.ids import Ids
from protogate.exchange.ledger import Ledger
from protogate.exchange.pipeline import run
from protogate.message import Field, Peer, Request, Response, tunnels
from protogate.promise import waits
from protogate.uri import LONGEST, authority, canonical, usual

if TYPE_CHECKING:
    from protogate.exchange.plan import Plan
    from protogate.identity.identity import Identity
    from protogate.interfaces import IService
    from protogate.routing.rules import Route, Target
    from protogate.wheel import Timer, Wheel

Answer = Response | Deferred[Response]
Upon = Callable[["Exchange"], Response | None]
Ask = Callable[[], Answer]
Through = Callable[["Exchange", Ask], Answer]
Promised = tuple[tuple[Field, ...], tuple[Upon, ...], tuple[Through, ...]]

_log = Logger()
_proper: Final[set[bytes]] = set()
_ids: Final = Ids()
_NUMBER = re.compile(rb"[0-9]{1,9}").fullmatch
_MILLISECONDS = re.compile(rb"[1-9][0-9]{0,9}").fullmatch
_TRACE = re.compile(rb"[0-9a-f]{2}-([0-9a-f]{32})-[0-9a-f]{16}-[0-9a-f]{2}(?:-.*)?").fullmatch

NO_ROUTE: Final = Abort("no rule matches", CLIENT, 404, error="destination_not_found", phase=Phase.ROUTING)
KNOWN: Final = 4096
"""Authorities that are remembered to be proper; all are forgotten when there are more."""
SLACK: Final = 0.001
"""Seconds before its end in which a deadline is over: sums of times are not exact."""
LIMITED: Final = frozenset((b"OPTIONS", b"TRACE"))
"""Methods whose way may be limited by Max-Forwards (RFC 9110, 7.6.2)."""
NO_TRACE: Final = Abort("TRACE ends here, and is not reflected", CLIENT, 501, error="http_request_denied")
"""Where Max-Forwards ends: to answer it would show what the gateway adds."""


class Exchange:
    """
    What a module sees.

    @ivar request: the Request; modules before the upstream may change it.
    @ivar source: where it came from: the connection's peer, or what trusted proxies say.
    @ivar identity: who was authenticated, once a module has found out; else None.
    @ivar route: the Route once it is chosen, else None.
    @ivar target: the Target once it is chosen, else None.
    @ivar response: the Response from PRE_RESPONSE on, else None.
    @ivar error: what led to the ERROR stage: an Abort, or whatever a module raised; else None.
    @ivar reason: the Abort for it, or the one that broke the exchange off after its response had begun; else None.
    @ivar line: method, authority and target as the client sent them, whatever modules made of them.
    @ivar listener: name of the listener it came through.
    @ivar plan: what the configuration says.
    @ivar ledger: what each phase took.
    """

    __slots__ = (
        "__weakref__",
        "_afterwards",
        "_fields",
        "_guard",
        "_id",
        "_late",
        "_notes",
        "_through",
        "_trace",
        "_upon",
        "_valve",
        "_waiting",
        "error",
        "identity",
        "ledger",
        "line",
        "listener",
        "plan",
        "reason",
        "request",
        "response",
        "route",
        "source",
        "target",
    )

    def __init__(self, request: Request, plan: Plan, listener: str = "") -> None:
        self.request, self.plan, self.listener = request, plan, listener
        self.source: Peer = request.peer
        self.identity: Identity | None = None
        self.route: Route | None = None
        self.target: Target | None = None
        self.response: Response | None = None
        self.error: BaseException | None = None
        self.reason: Abort | None = None
        self.line = (request.method, request.authority, request.target)
        ledger = request.ledger
        if ledger is None:
            ledger = request.ledger = Ledger(plan.wheel.now())
        self.ledger: Ledger = ledger
        self._id: str | None = None
        self._trace: str | None = None
        self._notes: dict[str, Any] | None = None
        self._afterwards: list[Callable[[], object]] | None = None
        self._fields: list[Field] | None = None
        self._upon: list[Upon] | None = None
        self._through: list[Through] | None = None
        self._guard: Timer | None = None
        self._valve: Valve | None = None
        self._waiting: Deferred[Any] | None = None
        self._late: Abort | None = None

    # -- what modules, conditions and templates ask for

    @property
    def id(self) -> str:
        """Id of this request, 32 hex digits: C{func.requestId}."""
        if self._id is None:
            self._id = _ids.next()
        return self._id

    @property
    def trace(self) -> str:
        """Trace id, 32 hex digits: from C{traceparent} (W3C Trace Context) or the request's own id."""
        if self._trace is None:
            parent = self.request.headers.get(b"traceparent")
            match = None if parent is None else _TRACE(parent)
            self._trace = self.id if match is None else match[1].decode("ascii")
        return self._trace

    @property
    def notes(self) -> dict[str, Any]:
        """For modules: what they want to tell each other and the record.  JSON values by short names."""
        if self._notes is None:
            self._notes = {}
        return self._notes

    @property
    def noted(self) -> dict[str, Any] | None:
        """C{notes}, or None where no module ever asked for them."""
        return self._notes

    @property
    def fields(self) -> list[Field]:
        """For modules: what is to stand in the head of whatever is answered; PRE_RESPONSE sees it there."""
        if self._fields is None:
            self._fields = []
        return self._fields

    def upon(self, function: Upon) -> None:
        """
        Have C{function(exchange)} called on whatever is answered, before PRE_RESPONSE: it may change the response, or
        give another one, and see to the body of the first.  The last one that asked for it is called first.

        When something fails behind it, it is called again, on the answer that tells of that.
        """
        if self._upon is None:
            self._upon = [function]
        else:
            self._upon.insert(0, function)

    def through(self, function: Through) -> None:
        """
        Have the upstream asked by C{function(exchange, ask)}, which gives the answer: C{ask()} asks, once; then
        C{request} is as the upstream is to get it.  The last one that asked for it is the one next to the upstream.

        Held to what L{protogate.interfaces.IService.handle} is: it never raises, and cancelling what it returns
        abandons whatever it waits for.  No module's timeout is over it.
        """
        if self._through is None:
            self._through = [function]
        else:
            self._through.append(function)

    def promised(self) -> Promised:
        """What modules up to now have asked for by L{fields}, L{upon} and L{through}: for L{promise}."""
        return tuple(self._fields or ()), tuple(self._upon or ()), tuple(self._through or ())

    def promise(self, promised: Promised) -> None:
        """Have it be as it was when L{promised} said so."""
        fields, upon, through = promised
        self._fields, self._upon, self._through = list(fields) or None, list(upon) or None, list(through) or None

    def after(self, function: Callable[[], object]) -> None:
        """
        Have C{function()} called when this exchange is over, however it ends: exactly once, before POST_RESPONSE; at
        once when it is over already.
        """
        if self.ledger.end:
            function()
        elif self._afterwards is None:
            self._afterwards = [function]
        else:
            self._afterwards.append(function)

    @property
    def gateway(self) -> Plan:
        """C{name} and C{zone} of the gateway."""
        return self.plan

    @property
    def wheel(self) -> Wheel:
        """The clock for every wait."""
        return self.plan.wheel

    # -- the steps

    def begin(self) -> Answer:
        """The first step; what L{protogate.interfaces.IService.handle} returns."""
        request, plan = self.request, self.plan
        request.closed = self.closed
        if plan.deadlines:
            self._read_deadline()
        if plan.total or request.deadline is not None:
            self._guard = plan.wheel.after(self._patience(), self._expired)
        try:
            self.resolve()
            result = run(plan.pre_request, self) if plan.pre_request else None
        except Exception as error:
            return self._fail(error)
        if result is None:
            return self._admitted(None)
        if waits(result):
            return self._then(result, self._admitted)
        return self._admitted(result)

    def resolve(self) -> None:
        """Find out who asks for what: once, for everybody."""
        request, plan = self.request, self.plan
        self.source = plan.forwarding.source(request)
        if plan.reserve is not None:
            plan.reserve(self)
        if request.malformed is not None:
            return
        if request.target == b"*" or request.method == b"CONNECT":
            path = request.target.decode("latin-1")
        else:
            raw = request.target.partition(b"?")[0]
            try:
                path = raw.decode("ascii") if usual(raw) else canonical(raw).path
            except ValueError as error:
                request.malformed = _bad(str(error))
                return
            if plan.reject and path.encode("latin-1") != raw:
                request.malformed = _bad("the path is not in its canonical form")
        request.path = path
        host = request.authority
        if host and host not in _proper:
            try:
                authority(host)
            except ValueError as error:
                request.malformed = _bad(str(error))
            else:
                if len(_proper) >= KNOWN:
                    _proper.clear()
                if len(host) <= LONGEST:
                    _proper.add(host)

    def _admitted(self, answer: Response | None) -> Answer:
        if answer is not None:
            return self._outbound(answer)
        if self.request.malformed is not None:
            return self._fail(self.request.malformed)
        try:
            route = self.plan.router.route(self)
        except Exception as error:
            return self._fail(error)
        if waits(route):
            return self._then(route, self._routed)
        return self._routed(route)

    def _routed(self, route: Route | None) -> Answer:
        if route is None:
            return self._fail(NO_ROUTE)
        self.route = route
        bound = self.plan.pre_upstream
        if not bound:
            return self._ask()
        try:
            result = run(bound, self)
        except Exception as error:
            return self._fail(error)
        if waits(result):
            return self._then(result, self._prepared)
        return self._prepared(result)

    def _prepared(self, answer: Response | None) -> Answer:
        return self._ask() if answer is None else self._outbound(answer)

    def _ask(self) -> Answer:
        request, plan, route = self.request, self.plan, self.route
        assert route is not None
        try:
            if request.method in LIMITED and not _onward(request):
                return self._outbound(Response(204) if request.method == b"OPTIONS" else self._problem(NO_TRACE))
            target = self.target = route.pick(self)
            if plan.keys:
                request.key = plan.key(self, target.upstream)
            sent = plan.rewrite(request, route, target)
            if target.rewrite is None:
                request.target = sent
            else:
                request.method, request.target = target.rewrite(self, sent)
            plan.forwarding.write(request, self.source)
            body = request.body
            if body is not None and plan.body and request.upgrade is None:
                if body.length is None:
                    request.body = Limit(body, plan.body, _large(plan.body))
                elif body.length > plan.body:
                    raise _large(plan.body)
            self.ledger.chosen = plan.wheel.now()
            if self._through is None:
                result = plan.clusters[target.upstream].handle(request)
            else:
                result = self._ask_through(plan.clusters[target.upstream], self._through)
        except Exception as error:
            return self._fail(error)
        if waits(result):
            return self._then(result, self._responded)
        return self._responded(result)

    def _ask_through(self, upstream: IService, functions: list[Through]) -> Answer:
        ask: Ask = partial(upstream.handle, self.request)
        for function in reversed(functions):
            ask = partial(function, self, ask)
        return ask()

    def _responded(self, response: Response) -> Answer:
        if self._through is None or response.protocol:  # else it is of our own making
            response.headers.append((b"via", self.plan.forwarding.via(response.protocol)))
        return self._outbound(response)

    def _outbound(self, response: Response) -> Answer:
        """PRE_RESPONSE, on whatever is to be answered."""
        self.response = response
        _dated(response)
        if self._upon is not None:
            try:
                response = self._seen(response, self._upon)
            except Exception as error:
                return self._fail(error)
        if self._fields is not None:
            response.headers.extend(self._fields)
        bound = self.plan.pre_response
        if not bound:
            return self._answered(None)
        try:
            result = run(bound, self)
        except Exception as error:
            return self._fail(error)
        if waits(result):
            return self._then(result, self._answered)
        return self._answered(result)

    def _seen(self, response: Response, functions: list[Upon]) -> Response:
        """What those who wanted to see the answer make of it."""
        for function in functions:
            other = function(self)
            if other is not None and other is not response:
                response = self.response = other
                _dated(response)
        return response

    def _answered(self, answer: Response | None) -> Response:
        response = self.response
        assert response is not None
        if answer is not None and answer is not response:
            _stop(response)
            response = self.response = answer
            _dated(response)
            if self._fields is not None:
                response.headers.extend(self._fields)
        if self._guard is not None:
            self._watch(response)
        return response

    # -- failures

    def _fail(self, error: BaseException) -> Answer:
        """To ERROR, and from there to PRE_RESPONSE."""
        response, self.response = self.response, None
        if response is not None:
            _stop(response)
        abort = error if isinstance(error, Abort) else self._unexpected(error)
        abort.__traceback__ = abort.__context__ = None  # their frames have us, and we have it
        if self.error is not None:
            return self._plain(abort)
        self.error, self.reason = error, abort
        bound = self.plan.error
        if not bound:
            return self._outbound(self._problem(abort))
        try:
            result = run(bound, self)
        except Exception as second:
            return self._fail(second)
        if waits(result):
            return self._then(result, self._explained)
        return self._explained(result)

    def _explained(self, answer: Response | None) -> Answer:
        assert self.reason is not None
        return self._outbound(self._problem(self.reason) if answer is None else answer)

    def _plain(self, abort: Abort) -> Response:
        """A failure of the way back: no module is asked again."""
        response = self.response = self._problem(abort)
        _dated(response)
        if self._fields is not None:
            response.headers.extend(self._fields)
        return self._answered(None)

    def _problem(self, abort: Abort) -> Response:
        return problem.answer(abort, self.plan.forwarding.pseudonym, self.id)

    def _unexpected(self, error: BaseException) -> Abort:
        _log.failure("request {id}: a step failed", Failure(error), id=self.id)
        return Abort(f"{type(error).__name__}: {error}", GATEWAY, 500, error="proxy_internal_error")

    # -- waiting

    def _then(self, waiting: Deferred[Any], step: Callable[[Any], Answer]) -> Deferred[Response]:
        if self._waiting is None:
            self._waiting = waiting  # what comes later is chained to it, so cancelling it is enough
        waiting.addCallbacks(self._go, self._failed, (step,))
        return waiting

    def _go(self, value: Any, step: Callable[[Any], Answer]) -> Answer | Failure:
        """Behind a wait: go on, unless it is all over by now."""
        late, self._late = self._late, None
        if late is not None or self.request.gone is not None:
            if isinstance(value, Response):
                _stop(value)
            if late is None:
                return Failure(self.request.gone or CLIENT_GONE)  # not raised: all share it, with its traceback
            return self._fail(late)
        return step(value)

    def _failed(self, failure: Failure) -> Answer | Failure:
        error = failure.value
        late, self._late = self._late, None
        if self.request.gone is not None:
            return failure
        if late is not None:
            error = late
        elif error is None or isinstance(error, CancelledError):
            error = Abort("a step was cancelled by nobody", GATEWAY, 500, error="proxy_internal_error")
        return self._fail(error)

    # -- the guard over all phases

    def _read_deadline(self) -> None:
        """
        A deadline that stands in a field, where the listener has one for it; of two the earlier one holds.  It is taken
        out: what the upstream is to know is what is left when it is asked.
        """
        request = self.request
        name = self.plan.deadlines.get(self.listener)
        value = None if name is None else request.headers.get(name)
        if name is None or value is None:
            return
        request.headers.remove(name)
        if not _MILLISECONDS(value):
            self.plan.count("invalid_deadline")
            return
        deadline = self.ledger.head + int(value) / 1000
        if request.deadline is None or deadline < request.deadline:
            request.deadline = deadline

    def _patience(self) -> float:
        """Seconds until the guard says that it is over."""
        total, deadline = self.plan.total, self.request.deadline
        if deadline is None:
            return total
        left = deadline - self.plan.wheel.now()
        return min(left, total) if total else left

    def _expired(self) -> None:
        reason = self._overdue()
        if self._valve is not None:
            self._valve.cut(reason)
        elif self._waiting is not None:
            self._late = reason
            self._waiting.cancel()

    def _overdue(self) -> Abort:
        """Whose patience is over: the client's, or ours."""
        plan, deadline, ledger = self.plan, self.request.deadline, self.ledger
        if deadline is not None and deadline <= plan.wheel.now() + SLACK:
            plan.count("deadline_exceeded")
            if not ledger.connected or ledger.answered:  # nobody was asked yet, or two parties are at it
                return overdue(GATEWAY)
            return overdue(UPSTREAM if ledger.uploaded else CLIENT)
        plan.count("total_timeout")
        return Abort(
            f"the whole exchange took more than {plan.total:g} s",
            GATEWAY,
            500,
            error="proxy_internal_error",
            phase=Phase.TOTAL,
            title="Async-Timeout-Processing",
        )

    def _watch(self, response: Response) -> None:
        """The guard goes on while the response flows; not over a tunnel, which has no end of its own."""
        if tunnels(self.request, response):
            self._unguard()
        elif response.body is not None:
            self._valve = response.body = Valve(response.body)

    def _unguard(self) -> None:
        guard, self._guard = self._guard, None
        if guard is not None:
            guard.close()

    # -- the end

    def closed(self, reason: Abort | None) -> None:
        """The server codec: this request is over, in both directions.  None = cleanly."""
        self.ledger.end = self.plan.wheel.now()
        self._unguard()
        self._valve = self._waiting = None
        if reason is not None and (self.reason is None or self.response is None):
            self.reason = reason
        if self._afterwards is not None:
            self._let_go()
        bound = self.plan.post_response
        if bound:
            try:
                result = run(bound, self)
            except Exception as error:
                self._grumble(Failure(error))
            else:
                if waits(result):
                    result.addErrback(self._grumble)
                    result.addCallback(self._recorded)
                    return
                if result is not None:
                    _stop(result)
        self._recorded(None)

    def _let_go(self) -> None:
        functions, self._afterwards = self._afterwards, None
        assert functions is not None
        for function in functions:
            try:
                function()
            except Exception:
                _log.failure("request {id}: what was to be done afterwards failed", id=self.id)

    def _grumble(self, failure: Failure) -> None:
        error = failure.value
        if isinstance(error, Abort):
            if error.__cause__ is None:  # else the chain has told what the module raised
                _log.warn("request {id}: a POST_RESPONSE module failed: {reason}", id=self.id, reason=error.reason)
            return
        _log.failure("request {id}: a POST_RESPONSE module failed", failure, id=self.id)

    def _recorded(self, answer: Response | None) -> None:
        if answer is not None:
            _stop(answer)
        self.plan.record(self)


def _onward(request: Request) -> bool:
    """Whether a request may be sent on; counts this gateway in Max-Forwards."""
    left = request.headers.get(b"max-forwards")
    if left is None or not _NUMBER(left):
        return True
    hops = int(left)
    if hops:
        request.headers.set(b"max-forwards", b"%d" % (hops - 1))
    return hops > 0


def _bad(text: str) -> Abort:
    return Abort(text, CLIENT, 400, error="http_request_error", detail=text)


def _large(limit: int) -> Abort:
    return Abort(
        f"request body over {limit} bytes",
        CLIENT,
        413,
        error="http_request_error",
        detail=f"the body may have {limit} bytes",
    )


def _dated(response: Response) -> None:
    """Every final response says when it was made (RFC 9110, 6.6.1)."""
    if response.status >= 200 and response.headers.get(b"date") is None:
        response.headers.append((b"date", date.now()))


def _stop(response: Response) -> None:
    if response.body is not None:
        response.body.stopProducing()
