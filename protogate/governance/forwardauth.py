"""
C{forwardAuth}: a service of one's own is asked whether a request may go on, and who it is from.

Rules
- 2xx = it may.  401, 403 and 3xx are the service's answer to the client.  Anything else, or none in time, is no answer
  to the question: nobody is let in for that.
- The service is sent what the file says, and never the content.
- What the service says about who asks nobody else can say: its fields are taken out of what clients send.
- What it is sent has one reading: a field by which it may tell who asks stands there once, or the request is refused.
- Verdicts are remembered only under a key that the file gives: what they depend on nobody here can know.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from twisted.internet.defer import Deferred
from twisted.python.failure import Failure
from zope.interface import implementer

from protogate.body import Whole
from protogate.errors import Abort, ConfigError
from protogate.expression.template import Template
from protogate.governance.admission import Admission
from protogate.governance.asking import Answer, Question, ask
from protogate.governance.fields import Fields
from protogate.governance.params import CONNECTION, FRAMING, Params
from protogate.governance.stages import PRE_REQUEST, PRE_UPSTREAM
from protogate.identity import place
from protogate.identity.identity import Identity
from protogate.identity.memo import Memo
from protogate.interfaces import ILiveModule, IModuleFactory, IReservingModule
from protogate.message import Field, Headers, Response, alike

if TYPE_CHECKING:
    from protogate.exchange.exchange import Exchange
    from protogate.governance.means import Means

SEND: Final = ("authorization", "cookie")
"""Fields of the request that the service gets, unless said otherwise."""
METHODS: Final = ("GET", "HEAD", "POST")
CONTENT: Final = 64 * 1024
"""Bytes that an answer of the service may have."""
SMALL: Final = 4096
"""Bytes of an answer to the client that is remembered."""
REMEMBERED: Final = 10_000
"""Verdicts that are remembered, good ones and bad ones each."""
_OWN: Final = frozenset((b"authorization", b"cookie"))
"""Fields that clients need to send whatever the service makes of them."""
_LISTS: Final = frozenset(
    b"accept accept-charset accept-encoding accept-language cache-control cookie forwarded if-match if-none-match link "
    b"pragma prefer te trailer via warning".split()
)
"""Fields that are lists, in one line or several (RFC 9110, 5.3)."""
_NEVER: Final = frozenset((b"date", b"via", b"server", b"connection", b"content-length"))


@dataclass(frozen=True, slots=True)
class Verdict:
    """
    What the service said.

    @ivar status: 2xx, or what the client gets.
    @ivar headers: of its answer.
    @ivar content: of its answer.
    """

    status: int
    headers: Headers
    content: bytes

    @property
    def good(self) -> bool:
        """Whether the request may go on."""
        return 200 <= self.status < 300


@dataclass(frozen=True, slots=True)
class Memory:
    """
    What is remembered of verdicts.

    @ivar key: under which; empty for one request = it is asked.
    @ivar good: seconds that somebody is let in without asking.
    @ivar bad: seconds that somebody is refused without asking.
    """

    key: Template | str
    good: float
    bad: float


@implementer(ILiveModule, IReservingModule)
class ForwardAuth:
    """
    @param question: whom to ask.
    @param method: with which.
    @param seconds: that it may take.
    @param send: fields of the request to send; None = all.
    @param more: other fields to send.
    @param take: fields of its answer that the upstream gets.
    @param give: fields of its answer that the client gets.
    @param user: the field of its answer that is the name; empty = none is.
    @param terms: all of this as one text: verdicts on equal terms are equal.
    """

    hides = ()
    insists = True

    def __init__(
        self,
        question: Question,
        method: bytes,
        seconds: float,
        send: frozenset[bytes] | None,
        more: Fields,
        take: frozenset[bytes],
        give: frozenset[bytes],
        user: bytes,
        memory: Memory | None,
        terms: str,
        warnings: list[ConfigError],
    ) -> None:
        self._question, self._method, self._seconds = question, method, seconds
        self._send, self._more, self._take, self._give, self._user = send, more, take, give, user
        self._said = frozenset(map(alike, more.names))
        self._once = (_OWN if send is None else send) - _LISTS
        self._memory, self._terms, self.warnings = memory, terms, warnings
        self._admission = Admission("forwardAuth", b"")
        self._memo: Memo[Verdict] | None = None
        self._means: Means | None = None
        self.reserves = take - _OWN
        self.asks = {question.service: ("ask",)}
        self.waits = seconds, ("timeout",)

    # -- ILiveModule

    def start(self, means: Means, before: Any) -> None:
        """See L{ILiveModule.start}.  Verdicts are taken over on equal terms; else they are about something else."""
        self._means, self._memo = means, Memo(means.wheel.now, REMEMBERED)
        if isinstance(before, ForwardAuth) and before._memo is not None and before._terms == self._terms:
            self._memo.inherit(before._memo)

    def stop(self) -> None:
        """See L{ILiveModule.stop}."""

    # -- IModule

    def process(self, exchange: Exchange) -> Response | Deferred[Response | None] | None:
        """Let it pass, answer as the service did, or raise the Abort that says that it cannot be told."""
        if exchange.request.malformed is not None:
            return None
        means, memo, memory = self._means, self._memo, self._memory
        if means is None or memo is None:
            raise self._admission.unable("it has not begun yet")
        once = self._once
        seen = [name for name, _ in exchange.request.headers if name in once]
        if len(seen) > 1 and len(seen) > len(set(seen)):
            name = next(name for name in seen if seen.count(name) > 1)
            raise place.twice(f"the field {name.decode('ascii')}")
        key = b"" if memory is None else _key(memory.key, exchange)
        if key:
            known = memo.known(key)
            if known is not None:
                return self._judge(known, exchange)
            asked = memo.ask(key, lambda: self._ask(exchange, means).addCallback(self._keep, key))
        else:
            asked = self._ask(exchange, means)
        return asked.addCallbacks(self._judge, self._failed, callbackArgs=(exchange,))

    def _ask(self, exchange: Exchange, means: Means) -> Deferred[Verdict]:
        means.count("service_asked")
        request = self._question.request(self._method, self._told(exchange))
        answer = ask(means.service(self._question.service), request, means.wheel, self._seconds, CONTENT)
        return answer.addCallback(self._read)

    def _told(self, exchange: Exchange) -> Iterable[Field]:
        """What the service is to know."""
        request, send = exchange.request, self._send
        method, authority, target = exchange.line
        told = [field for field in request.headers if send is None or field[0] in send]
        told = [field for field in told if not self._ours(field[0])]
        crumbs = [value for name, value in told if name == b"cookie"]
        if len(crumbs) > 1:  # one line for those who read only one (RFC 9113, 8.2.3)
            told = [field for field in told if field[0] != b"cookie"]
            told.append((b"cookie", b"; ".join(crumbs)))
        told += self._more.of(exchange)
        told += [
            (b"x-forwarded-method", method),
            (b"x-forwarded-proto", request.scheme),
            (b"x-forwarded-host", authority),
            (b"x-forwarded-uri", target),
            (b"x-forwarded-for", exchange.source.ip.encode("ascii", "replace")),
        ]
        return [field for field in told if field[1]]

    def _ours(self, name: bytes) -> bool:
        """Whether the gateway alone says that."""
        name = alike(name)
        return name.startswith(b"x-forwarded-") or name in self._said

    def _read(self, answer: Answer) -> Verdict:
        status = answer.status
        if not (200 <= status < 400 or status in (401, 403)) or status == 304:
            raise self._admission.unable(f"the service answered {status}")
        return Verdict(status, answer.headers, answer.content)

    def _keep(self, verdict: Verdict, key: bytes) -> Verdict:
        memory, memo = self._memory, self._memo
        assert memory is not None
        assert memo is not None
        unfit = b"no-store" in b",".join(verdict.headers.all(b"cache-control")).lower()
        if not unfit and (verdict.good or len(verdict.content) <= SMALL):
            memo.keep(key, verdict, memory.good if verdict.good else memory.bad, verdict.good)
        return verdict

    def _judge(self, verdict: Verdict, exchange: Exchange) -> Response | None:
        if not verdict.good:
            self._count("service_refused")
            exchange.notes["forwardAuth"] = f"the service answered {verdict.status}"
            fields = [field for field in verdict.headers if field[0] not in _NEVER]
            return Response(verdict.status, fields, Whole(verdict.content) if verdict.content else None)
        identity = self._identity(verdict)
        headers, take = exchange.request.headers, self._take
        if take:
            headers.without(take)
            headers.extend([field for field in verdict.headers if field[0] in take])
            exchange.request.forget()
        if self._give:
            exchange.fields.extend([field for field in verdict.headers if field[0] in self._give])
        exchange.identity = identity
        return None

    def _identity(self, verdict: Verdict) -> Identity:
        """Whoever the service let in; without a name where it says none: what he is answered is for nobody else."""
        names = verdict.headers.all(self._user) if self._user else []
        if len(names) > 1:
            raise self._admission.unable(f"the service says more than once who it is: {self._user.decode('ascii')}")
        claims = {
            name.decode("ascii"): b", ".join(values).decode("utf-8", "replace")
            for name in sorted(self._take)
            if (values := verdict.headers.all(name))
        }
        return Identity(names[0].decode("utf-8", "replace") if names else "", "forward", claims)

    def _failed(self, failure: Failure) -> Response | None:
        """No answer, or none to the question."""
        failure.trap(Abort)
        self._count("service_failed")
        error: Any = failure.value
        why = error.reason
        raise (error if why.startswith("forwardAuth: ") else self._admission.unable(f"no answer: {why}")) from None

    def _count(self, event: str) -> None:
        if self._means is not None:
            self._means.count(event)


def _key(key: Template | str, exchange: Exchange) -> bytes:
    text = key if isinstance(key, str) else key(exchange)
    return text.encode("utf-8", "surrogatepass")


@implementer(IModuleFactory)
class ForwardAuthFactory:
    """Makes L{ForwardAuth}."""

    name = "forwardAuth"
    stages = (PRE_REQUEST, PRE_UPSTREAM)
    guards = True

    def build(self, params: Mapping[str, object]) -> ForwardAuth:
        """See L{IModuleFactory.build}."""
        reader = Params(params, "ask", "method", "timeout", "send", "headers", "take", "give", "user", "remember")
        if "ask" not in reader:
            reader.fault("expected the URL to ask, or {upstream: name, path: /path}, got nothing", "ask")
        question = reader.question("ask") if "ask" in reader else None
        method = reader.choice("method", "GET", *METHODS).encode("ascii")
        seconds = reader.seconds("timeout", 1.0, 0.001, 60.0)
        words = reader.words("send") or list(SEND)
        send = None if words == ["*"] else frozenset(_named(reader, "send", words))
        more = Fields(reader.lines("headers"))
        take = frozenset(_named(reader, "take", reader.words("take")))
        give = frozenset(_named(reader, "give", reader.words("give")))
        user = reader.literal("user", "")
        name = reader.field(user, "user") if user else b""
        memory = _memory(reader) if "remember" in reader else None
        if question is not None and question.clear:
            reader.warn("credentials are sent without TLS: whoever is on the way can read them", "ask")
        reader.done()
        assert question is not None
        terms = repr(sorted(params.items()))  # templates are shown as they are written
        return ForwardAuth(question, method, seconds, send, more, take, give, name, memory, terms, reader.warnings)


def _named(reader: Params, name: str, words: list[str]) -> list[bytes]:
    found = []
    for word in words:
        field = reader.field(word, name)
        if field == b"host" or field in FRAMING or field in CONNECTION:
            reader.fault(f"{word} belongs to the codec, or to the authority of the request", name)
        found.append(field)
    return found


def _memory(reader: Params) -> Memory | None:
    given: Any = reader.given("remember")
    if not isinstance(given, Mapping):
        reader.fault("expected {key: …, good: 10s, bad: 1s}", "remember")
        return None
    inner = Params(given, "key", "good", "bad")
    key = inner.text("key")
    if isinstance(key, str) and key:
        inner.fault("a key that is the same for everybody would let everybody in: expected a template", "key")
    memory = Memory(key, inner.seconds("good", 10.0, 0.0, 3600.0), inner.seconds("bad", 0.0, 0.0, 60.0))
    for fault in inner.faults:
        reader.fault(fault.message, "remember", *fault.path)
    return memory
