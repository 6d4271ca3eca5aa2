"""
C{protogate explain} and C{protogate routes}: what a configuration would do, without a socket.

Rules
- Nothing is run that could have an effect: no module, no upstream.  What depends on something that only a running
  gateway knows is said to depend on it.
- Decisions are not written a second time here: the router traces itself, a module's binding explains itself, and so
  does an upstream.
- No protocol is known here: what a request is a call of, the codecs of the listeners are asked.
"""

from __future__ import annotations

import json
import re
import ssl
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Any, Final

from protogate.build import Build
from protogate.errors import Abort
from protogate.exchange.exchange import Exchange
from protogate.exchange.plan import Plan
from protogate.governance.binding import Bound
from protogate.governance.reserve import reserve
from protogate.governance.stages import ERROR, POST_RESPONSE, PRE_REQUEST, PRE_RESPONSE, PRE_UPSTREAM
from protogate.identity.identity import Identity
from protogate.interfaces import INamingCodec, IService
from protogate.message import Field, Peer, Request, Response
from protogate.overload.shedding import ranked
from protogate.routing.release import explained
from protogate.routing.rules import Rule, Target, forwarded
from protogate.tls.session import Session
from protogate.upstream.prospect import prospect
from protogate.uri import authority
from protogate.wheel import Wheel

_REQUEST: Final = re.compile(
    r"(?:(?P<method>[!#$%&'*+\-.^_`|~0-9A-Za-z]+)[ ]+)?"
    r"(?:(?P<scheme>https?)://(?P<authority>[^/?#\s]*))?(?P<target>/[^\s#]*|\*)?"
)
_FIELD: Final = re.compile(r"([!#$%&'*+\-.^_`|~0-9A-Za-z]+):[ \t]*(.*?)[ \t]*", re.DOTALL)
STAGES: Final = (
    (PRE_REQUEST, "modules before routing"),
    (PRE_UPSTREAM, "modules before the upstream"),
    (PRE_RESPONSE, "modules on the response"),
    (ERROR, "modules after a failure"),
    (POST_RESPONSE, "modules at the end"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """A request that somebody wants to know about, and the answer that its upstream would give."""

    method: bytes
    scheme: bytes
    authority: bytes
    target: bytes
    headers: Sequence[Field]
    source: str
    tls: bool
    status: int
    response_headers: Sequence[Field]
    session: Session | None = None
    identity: Identity | None = None
    service: str = ""
    protocol: str = "HTTP/1.1"

    @classmethod
    def parse(
        cls,
        text: str,
        headers: Sequence[str] = (),
        source: str = "127.0.0.1",
        tls: bool = False,
        status: int = 200,
        response_headers: Sequence[str] = (),
        certificate: str = "",
        user: str = "",
        claims: Sequence[str] = (),
        service: str = "",
        protocol: str = "HTTP/1.1",
    ) -> Question:
        """
        Read a question as the command line gives it: C{"GET http://a.test/x?y=1"}; method and origin may be missing.

        @param certificate: file with what the client shows, over TLS then; empty = nothing.
        @param user: whom a module has found to ask; empty = nobody.
        @param claims: C{NAME=VALUE} each; a value that is JSON is what it means.
        @param service: that is asked for, in protocols that have services; empty = what the codecs find.
        @param protocol: of the client, as records name it.
        @raise ValueError: what is wrong with it.
        """
        match = _REQUEST.fullmatch(text.strip())
        if match is None or not (match["authority"] or match["target"]):
            raise ValueError(f"expected a method and a URL, like 'GET http://a.test/x', got {text!r}")
        fields = [_field(header) for header in headers]
        host = match["authority"] or ""
        named = [value for name, value in fields if name == b"host"]
        try:
            authority_ = named[0] if named else host.encode("ascii")
            if authority_:
                authority(authority_)
        except ValueError as error:
            raise ValueError(f"host: {error}") from None
        try:
            ip_address(source)
        except ValueError:
            raise ValueError(f"expected the address of a client, like 192.0.2.1, got {source!r}") from None
        if not 200 <= status <= 999:
            raise ValueError(f"expected the status of an answer, 200 to 999, got {status}")
        session = _session(certificate) if certificate else None
        tls = tls or session is not None
        return cls(
            method=(match["method"] or "GET").encode("ascii"),
            scheme=(match["scheme"] or ("https" if tls else "http")).encode("ascii"),
            authority=authority_,
            target=(match["target"] or "/").encode("utf-8"),
            headers=[field for field in fields if field[0] != b"host"],
            source=source,
            tls=tls or match["scheme"] == "https",
            status=status,
            response_headers=[_field(header) for header in response_headers],
            session=session,
            identity=_identity(user, claims),
            service=service,
            protocol=protocol,
        )

    def request(self) -> Request:
        """The Request."""
        request = Request(
            self.method,
            self.target,
            self.headers,
            authority=self.authority,
            scheme=self.scheme,
            protocol=self.protocol,
            peer=Peer(self.source, 0, self.tls, self.session),
        )
        request.service = self.service
        return request


def _session(path: str) -> Session:
    """As if a client had shown the certificate in that file."""
    try:
        with open(path, encoding="ascii") as file:
            der = ssl.PEM_cert_to_DER_cert(file.read().strip())
    except OSError as error:
        raise ValueError(f"{path}: {error.strerror}") from None
    except ValueError as error:
        raise ValueError(f"{path}: expected one certificate in PEM form: {error}") from None
    return Session("TLSv1.3", "TLS_AES_128_GCM_SHA256", certificate=der)


def _identity(user: str, claims: Sequence[str]) -> Identity | None:
    """As if a module had found out who asks."""
    found: dict[str, Any] = {}
    for claim in claims:
        name, equals, value = claim.partition("=")
        if not name or not equals:
            raise ValueError(f"expected a claim like 'groups=[\"staff\"]', got {claim!r}")
        try:
            found[name] = json.loads(value)
        except ValueError:
            found[name] = value
    if found and not user:
        raise ValueError("whose claims? Name somebody with --user")
    return Identity(user, "explain", found) if user else None


def _field(text: str) -> Field:
    match = _FIELD.fullmatch(text)
    if match is None:
        raise ValueError(f"expected a header like 'X-Name: value', got {text!r}")
    return match[1].lower().encode("ascii"), match[2].encode("utf-8")


class _Clock:
    """A clock that stands still: nothing waits here."""

    def seconds(self) -> float:
        return 0.0

    def callLater(self, delay: float, function: Any, *args: Any, **more: Any) -> Any:
        raise AssertionError("nothing waits in an explanation")


def plan(built: Build) -> Plan:
    """A plan that can be asked, but not followed: it leads to no upstream."""
    gateway = built.config.gateway
    nowhere: dict[str, IService] = {}
    return Plan(
        name=gateway.name,
        zone=gateway.zone,
        wheel=Wheel(_Clock()),  # type: ignore[arg-type]
        router=built.router,
        rewrite=forwarded,
        clusters=nowhere,
        forwarding=built.forwarding,
        record=lambda exchange: None,
        count=lambda event: None,
        reject=gateway.path_policy == "reject",
        reserve=reserve(built.bound),
    )


def explain(built: Build, question: Question) -> str:
    """Everything that decides about a request, as text."""
    return "\n".join(_lines(built, question))


def _lines(built: Build, question: Question) -> Iterator[str]:
    request = question.request()
    request.service = request.service or _service(built, request)
    exchange = Exchange(request, plan(built))
    exchange.resolve()
    exchange.identity = question.identity
    yield f"{_text(request.method)} {_text(question.scheme)}://{_text(question.authority)}{_text(question.target)}"
    yield f"  source  {exchange.source.ip}{' over TLS' if exchange.source.tls else ''}"
    session = exchange.source.session
    if session is not None and session.certificate is not None:
        yield f"  shows   {session.certificate.subject or 'a certificate without a subject'}"
    if exchange.identity is not None:
        yield f"  user    {exchange.identity.user}"
    if request.malformed is not None:
        yield f"  refused {request.malformed.status}: {request.malformed.reason}"
    else:
        raw = _text(question.target.partition(b"?")[0])
        yield f"  host    {request.host or '(none)'}"
        yield f"  path    {request.path}" + ("" if raw == request.path else f"   (canonical form of {raw})")
    if request.service:
        yield f"  service {request.service}"
    if built.config.gateway.overload is not None:
        rank, name = ranked(built.priorities, exchange)
        yield f"  class   {name}   (of {len(built.priorities)} by importance this is number {rank + 1})"
    yield from _modules(built, exchange, *STAGES[0])
    if request.malformed is not None:
        yield from _modules(built, exchange, *STAGES[3])
        return
    yield from _routing(built, exchange)
    if exchange.route is not None:
        yield from _modules(built, exchange, *STAGES[1])
        exchange.response = Response(question.status, question.response_headers)
        yield from _modules(built, exchange, *STAGES[2])
    else:
        yield from _modules(built, exchange, *STAGES[3])
    yield from _modules(built, exchange, *STAGES[4])


def _service(built: Build, request: Request) -> str:
    """What a server of one of the listeners would make of it."""
    for listener in built.config.listeners:
        for name in listener.protocols:
            codec: Any = built.codec(name)
            found = str(codec.service(request)) if INamingCodec.providedBy(codec) else ""
            if found:
                return found
    return ""


def _routing(built: Build, exchange: Exchange) -> Iterator[str]:
    trace = built.router.trace(exchange)
    yield "rules tried"
    for step in trace.steps:
        mark = "yes" if step.matched else "no "
        yield f"  {mark} {_rule(step.rule)}: {step.why}"
    if not trace.steps:
        yield "  none: the configuration has no rule for this gateway"
    if trace.abort is not None:
        yield f"answer  {trace.abort.status}: {trace.abort.reason}"
    elif trace.route is None:
        yield "answer  404: no rule matches"
    route = exchange.route = trace.route
    if route is None:
        return
    zone = f", zone {route.zone}" if route.zone else ""
    yield f"route   {route.name}, entry {route.index} (condition {route.text}{zone})"
    release = route.release
    mine: Target | None = None
    if release is not None:
        mine = release.sure(exchange)
        if release.gray is not None:
            by = "" if release.key(exchange) else ", by its address: it has no key"
            yield f"cohort  {release.text}: this one is at {release.place(exchange):.2f}{by}"
    yield f"targets{'   (the same key always goes to the same one)' if route.key is not None else ''}"
    for target, share in trace.odds:
        what = explained(target, target is mine)
        try:
            method, sent = exchange.request.method, forwarded(exchange.request, route, target)
            if target.rewrite is not None:
                method, sent = target.rewrite(exchange, sent)
            asked = f"{_text(method)} {_text(sent)}"
        except Abort as error:
            asked = f"{error.status}: {error.reason}"
        yield f"  {share * 100:5.1f} % {target.upstream} -> {asked}{what}"
        endpoint = _endpoint(built, exchange, target.upstream)
        if endpoint:
            yield f"          endpoint: {endpoint}"


def _endpoint(built: Build, exchange: Exchange, name: str) -> str:
    """Which one an upstream would have asked; empty where there is but one."""
    upstream = next((each for each in built.config.upstreams if each.name == name), None)
    key = built.keys.get(name)
    if upstream is None:
        return ""
    return prospect(upstream, built.config.gateway.zone, lambda: "" if key is None else key(exchange))


def _modules(built: Build, exchange: Exchange, stage: str, title: str) -> Iterator[str]:
    bound = built.bound[stage]
    if not bound:
        return
    yield f"{title} ({stage})"
    for module in bound:
        yield f"  {_module(module, exchange)}"


def _module(module: Bound, exchange: Exchange) -> str:
    found = module.explain(exchange)
    why = []
    if found.error:
        why.append(found.error)
    elif not found.holds:
        why.append(f"condition is false: {found.condition}")
    if found.gray is False:
        at = "" if found.position is None else f", this one is at {found.position:.2f}"
        why.append(f"gray: {found.ratio:g} %{at}")
    elif found.position is not None:
        why.append(f"gray: {found.ratio:g} % takes this one, at {found.position:.2f}")
    shadow = " in the shadow: it does nothing" if module.shadow else ""
    verdict = f"applies{shadow}" if found.applies else "does not apply" if not found.error else "fails"
    return f"order {found.order:<4} {found.name}: {verdict}" + (f" ({'; '.join(why)})" if why else "")


def routes(built: Build) -> str:
    """The rules in the order in which they decide."""
    lines = []
    for rule in built.router.rules:
        name = "" if rule.name == f"{rule.type} {rule.value}" else f"   named {rule.name}"
        lines.append(f"{_rule(rule)}{name}" + ("" if rule.published else "   NOT PUBLISHED: 404"))
        for route in rule.routes:
            zone = f", zone {route.zone}" if route.zone else ""
            lines.append(f"    condition {route.text}{zone}")
            release = route.release
            if release is not None and release.gray is not None:
                lines.append(f"    cohort {release.text}")
            lines += [
                f"        {share * 100:5.1f} % {target.name}{explained(target)}" for target, share in route.odds()
            ]
    if not lines:
        lines.append("no rule is for this gateway: every request is answered 404")
    return "\n".join(lines)


def releases(built: Build) -> Iterator[str]:
    """A line for each entry that has targets for a part of the requests, or targets that may be taken back."""
    for release in built.router.releases:
        by = f" by {release.text}" if release.gray is not None else ""
        shares = ", ".join(
            f"{share * 100:.1f} % {target.name}{explained(target).replace('   ', ' ')}"
            for target, share in release.odds()
        )
        yield f"release of {release.name}{by}: {shares}"


def _rule(rule: Rule) -> str:
    parts = [f"{rule.type} {rule.matcher.kind.name.lower()} {rule.value}"]
    if rule.hosts and rule.type != "host":
        parts.append(f"hosts {', '.join(rule.hosts)}")
    if rule.methods:
        parts.append(f"methods {', '.join(map(_text, rule.methods))}")
    if rule.priority:
        parts.append(f"priority {rule.priority}")
    return f"routes[{rule.index}] {', '.join(parts)}"


def _text(value: bytes) -> str:
    return value.decode("utf-8", "backslashreplace")
