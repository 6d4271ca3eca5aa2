"""
Which rule a request gets: all rules, indexed by type and matcher.

The first rule that matches, narrowings and all, decides.  First is: higher C{priority}; then the type, in the order of
L{TYPES}; then exact, range (the narrower first), template, prefix (the longer first), regex; then the narrower, by host
(exact, C{*.longer}, C{*.shorter}, any) and by methods; then the place in the file.

A rule that matches is final.  When it is not published, or when none of its entries has a condition that holds, the
answer is 404: falling through to a wider rule would open what the narrower one was written to close.
When nothing matches but for the method, the answer is 405.  Methods are compared as they stand: HEAD is not GET.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING, Final

from zope.interface import classImplements

from protogate.config import model
from protogate.config.faults import ConfigFaults
from protogate.errors import CLIENT, Abort, ConfigError, Phase
from protogate.interfaces import IRouter
from protogate.routing import rules as _rules
from protogate.routing.index import Candidate, Missed, Paths, Texts
from protogate.routing.rules import Route, Rule, Target
from protogate.routing.shadow import behind_every_path, shadowed

if TYPE_CHECKING:
    from protogate.exchange.exchange import Exchange
    from protogate.message import Request

TYPES: Final = ("uri", "service", "header", "query", "cookie", "host", "method", "protocol")


def _utf8(text: str) -> str:
    """What was read from bytes as latin-1, as UTF-8."""
    return text if text.isascii() else text.encode("latin-1").decode("utf-8", "replace")


class Single:
    """Index over the one text of its type that each request has."""

    __slots__ = ("first", "get", "texts")

    def __init__(self, get: Callable[[Request], str], texts: Texts | Paths) -> None:
        self.get, self.texts, self.first = get, texts, -1

    def add(self, candidate: Candidate) -> None:
        """One more."""
        self.texts.add(candidate)
        self.first = self.texts.first

    def find(self, request: Request, best: int, missed: Missed | None) -> int:
        """See L{protogate.routing.index.Bucket.find}."""
        return self.texts.find(self.get(request), request, best, missed)


class Named:
    """Index over texts that have a name, and of which a request has many."""

    __slots__ = ("first", "get", "names")

    def __init__(self, get: Callable[[Request, Collection[str]], Iterable[tuple[str, str]]]) -> None:
        self.get, self.first = get, -1
        self.names: dict[str, Texts] = {}

    def add(self, candidate: Candidate) -> None:
        """One more."""
        if self.first < 0:
            self.first = candidate.rank
        self.names.setdefault(candidate.matcher.field, Texts()).add(candidate)

    def find(self, request: Request, best: int, missed: Missed | None) -> int:
        """See L{protogate.routing.index.Bucket.find}.  Of several lines of one header any may match."""
        for name, value in self.get(request, self.names):
            texts = self.names[name]
            if texts.first < best:
                best = texts.find(value, request, best, missed)
        return best


def headers(request: Request, names: Collection[str]) -> Iterable[tuple[str, str]]:
    """The header lines that have one of the names."""
    for key, value in request.headers:
        name = key.decode("latin-1")
        if name in names:
            yield name, value.decode("utf-8", "replace")


def parameters(request: Request, names: Collection[str]) -> Iterable[tuple[str, str]]:
    """The query parameters that have one of the names."""
    return _among(request.query, names)


def cookies(request: Request, names: Collection[str]) -> Iterable[tuple[str, str]]:
    """The cookies that have one of the names."""
    return ((name, _utf8(value)) for name, value in _among(request.cookies, names))


def _among(values: dict[str, str], names: Collection[str]) -> list[tuple[str, str]]:
    if len(values) < len(names):
        return [(name, value) for name, value in values.items() if name in names]
    return [(name, values[name]) for name in names if name in values]


TEXT: Final[dict[str, Callable[[Request], str]]] = {
    "uri": lambda request: request.path,
    "service": lambda request: request.service,
    "host": lambda request: request.host,
    "method": lambda request: request.method.decode("latin-1"),
    "protocol": lambda request: request.protocol,
}
FIELDS: Final = {"header": headers, "query": parameters, "cookie": cookies}


@dataclass(frozen=True, slots=True)
class Step:
    """One rule that was looked at."""

    rule: Rule
    matched: bool
    why: str
    """Why it missed; or what came of it."""


@dataclass(frozen=True, slots=True)
class Trace:
    """How a request finds its way."""

    steps: tuple[Step, ...]
    """Up to the rule that decides, in the order in which rules decide."""
    route: Route | None
    odds: tuple[tuple[Target, float], ...]
    """Each target of the route, with its share of the requests."""
    abort: Abort | None
    """What the router answers, when it does not give a route."""


class Router:
    """
    @ivar rules: all rules for this gateway, in the order in which they decide.
    @ivar clusters: upstream names and origins that are used (an origin holds C{://}), each with the path of its first
        use in the configuration.
    @ivar releases: of entries with targets for a part of the requests, or that may be taken back; as in the file.
    @ivar warnings: what is not wrong but surely not meant, e.g. rules that can never match; each with its path, and
        never raised.
    """

    def __init__(
        self,
        rules: Sequence[model.Rule],
        gateway: model.Gateway,
        random: Random | None = None,
    ) -> None:
        """
        @param random: decides where the sequences of weights start.
        @raise ConfigFaults: with every fault of every rule.
        """
        # Seeded once: asking the system each time gives the interpreter up and takes it back so often that an event
        # loop that waits for it, while a configuration is loaded anew, never gets it.
        random = random or Random()
        faults: list[ConfigError] = []
        built = [_rules.build(index, rule, gateway, faults, random) for index, rule in enumerate(rules)]
        if faults:
            raise ConfigFaults(faults)
        made = [rule for rule in built if rule is not None]
        self._elsewhere = tuple(rule for rule in made if not rule.routes)
        self._candidates = candidates(rule for rule in made if rule.routes)
        self._none = len(self._candidates)
        self.rules = tuple(dict.fromkeys(candidate.rule for candidate in self._candidates))
        self.clusters = _clusters(self.rules)
        self.releases = tuple(
            route.release
            for rule in sorted(self.rules, key=_index)
            for route in rule.routes
            if route.release is not None
        )
        self._sources = _indexed(self._candidates)
        self.warnings: list[ConfigError] = [
            *_zoneless(self._elsewhere, gateway),
            *shadowed(self._candidates),
            *behind_every_path(self._candidates),
            *_idle(self.rules),
            *_vain(self.rules),
        ]

    def route(self, exchange: Exchange) -> Route | None:
        """
        The route for C{exchange.request}, whose path is canonical; None when no rule matches.

        @raise Abort: 404, the rule that matches is not published or has no entry for this request; 405, with C{Allow}.
        """
        request = exchange.request
        best = self._none
        for source in self._sources:
            if source.first < best:
                best = source.find(request, best, None)
        if best == self._none:
            self._missed(request)
            return None
        rule = self._candidates[best].rule
        if not rule.published:
            raise _gone(f'rule "{rule.name}" is not published')
        for route in rule.routes:
            if route.condition is None:
                return route
            exchange.route = route  # a condition may ask for C{route}
            if route.condition(exchange):
                return route
        exchange.route = None
        raise _gone(f'rule "{rule.name}": no entry has a condition that holds')

    def _missed(self, request: Request) -> None:
        """Raise 405 when it is the method alone."""
        missed: Missed = []
        for source in self._sources:
            source.find(request, self._none, missed)
        methods = {method for candidate in missed if candidate.rule.published for method in candidate.rule.methods}
        if methods:
            allow = b", ".join(sorted(methods))
            raise Abort(
                f"no rule for method {request.method.decode('latin-1')}, only for {allow.decode('latin-1')}",
                CLIENT,
                405,
                phase=Phase.ROUTING,
                detail="method not allowed",
                headers=((b"allow", allow),),
            )

    def trace(self, exchange: Exchange) -> Trace:
        """How L{route} decides, told step by step.  Looks at each rule, for people and not for requests."""
        request = exchange.request
        steps = [Step(rule, False, "no entry is for this zone") for rule in self._elsewhere]
        abort: Abort | None = None
        route: Route | None = None
        told: set[tuple[int, str]] = set()
        for candidate in self._candidates:
            rule = candidate.rule
            why = miss(candidate, request)
            if why:
                if (rule.index, why) not in told:  # one rule stands here once for each of its hosts
                    told.add((rule.index, why))
                    steps.append(Step(rule, False, why))
                continue
            try:
                route = self.route(exchange)
            except Abort as error:
                abort = error
            steps.append(Step(rule, True, _outcome(rule, route, abort)))
            break
        else:
            try:
                self._missed(request)
            except Abort as error:
                abort = error
        return Trace(tuple(steps), route, tuple(route.odds()) if route else (), abort)


classImplements(Router, IRouter)


def _outcome(rule: Rule, route: Route | None, abort: Abort | None) -> str:
    if route is None:
        return "" if abort is None else abort.reason
    passed = [f"entry {other.index}: its condition is false" for other in rule.routes if other.index < route.index]
    return "; ".join([*passed, f"entry {route.index}"])


def miss(candidate: Candidate, request: Request) -> str:
    """Why a candidate does not fit a request; empty when it does."""
    rule, matcher = candidate.rule, candidate.matcher
    if rule.type in FIELDS:
        values = [value for _, value in FIELDS[rule.type](request, (matcher.field,))]
        if not values:
            return f"no {rule.type} {matcher.field}"
    else:
        values = [TEXT[rule.type](request)]
    if not any(matcher.matches(value) for value in values):
        shown = ", ".join(f'"{value}"' for value in values)
        return f"{rule.type} {shown} does not match {rule.matcher.kind.name.lower()} {rule.value}"
    host = candidate.host
    if host and not (request.host.endswith(host[1:]) if host.startswith("*.") else request.host == host):
        return f'host "{request.host}" is not {host}'
    if candidate.methods is not None and request.method not in candidate.methods:
        return f"method {request.method.decode('latin-1')} is not among {b', '.join(rule.methods).decode('latin-1')}"
    return ""


def candidates(rules: Iterable[Rule]) -> tuple[Candidate, ...]:
    """Each rule, once for each of its hosts and values, in the order in which they decide."""
    places = [
        (
            (
                -rule.priority,
                TYPES.index(rule.type),
                matcher.order,
                _specificity(host),
                not rule.methods,
                rule.index,
            ),
            rule,
            matcher,
            host,
        )
        for rule in rules
        for matcher in rule.matcher.each or (rule.matcher,)
        for host in rule.hosts or ("",)
    ]
    places.sort(key=lambda place: place[0])
    return tuple(Candidate(rank, rule, matcher, host) for rank, (_, rule, matcher, host) in enumerate(places))


def _specificity(host: str) -> tuple[int, int]:
    if not host:
        return 2, 0
    return (1, -host.count(".")) if host.startswith("*.") else (0, 0)


def _indexed(candidates: Iterable[Candidate]) -> tuple[Single | Named, ...]:
    """One index a type that is used; the one with the first candidate first."""
    sources: dict[str, Single | Named] = {}
    for candidate in candidates:
        type_ = candidate.rule.type
        if type_ not in sources:
            if type_ in FIELDS:
                sources[type_] = Named(FIELDS[type_])
            else:
                sources[type_] = Single(TEXT[type_], Paths() if type_ == "uri" else Texts())
        sources[type_].add(candidate)
    return tuple(sources.values())


def _clusters(rules: Iterable[Rule]) -> dict[str, tuple[str | int, ...]]:
    used: dict[str, tuple[str | int, ...]] = {}
    for rule in sorted(rules, key=lambda rule: rule.index):
        for route in rule.routes:
            for place, target in enumerate(route.targets):
                name = "url" if "://" in target.upstream else "upstream"
                path = ("routes", rule.index, "routes", route.index, "targets", place, name)
                used.setdefault(target.upstream, path)
    return used


def _zoneless(rules: Iterable[Rule], gateway: model.Gateway) -> Iterable[ConfigError]:
    if not gateway.zone:
        for rule in rules:
            yield ConfigError(
                f'rule "{rule.name}" is not for this gateway: its entries have zones, and gateway.zone is not set',
                ("routes", rule.index),
            )


def _idle(rules: Iterable[Rule]) -> Iterable[ConfigError]:
    for rule in sorted(rules, key=lambda rule: rule.index):
        final: Route | None = None
        for route in rule.routes:
            if final is not None:
                yield ConfigError(
                    f'rule "{rule.name}": entry {route.index} can never be chosen, entry {final.index} always holds',
                    ("routes", rule.index, "routes", route.index),
                )
            elif route.condition is None:
                final = route


def _vain(rules: Iterable[Rule]) -> Iterable[ConfigError]:
    """What a release says to no effect."""
    for rule in sorted(rules, key=_index):
        for route in rule.routes:
            path = ("routes", rule.index, "routes", route.index)
            release = route.release
            if release is None:
                continue
            for target in release.judged:
                if target is release.gray and release.percent >= 100:
                    yield ConfigError(
                        f'rule "{rule.name}": {target.name} gets everything, and hold has nothing to compare it with',
                        (*path, "targets", target.index, "hold"),
                    )


def _index(rule: Rule) -> int:
    return rule.index


def _gone(reason: str) -> Abort:
    # Nothing in it that tells the client of this one from a rule that is not there.
    return Abort(reason, CLIENT, 404, phase=Phase.ROUTING)
