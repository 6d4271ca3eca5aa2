"""
A rule of the configuration → frozen Rule, Route, Target: everything is compiled and checked here, at load.

- A L{Rule} says which requests it is for.  The first that matches decides.
- A L{Route} is one entry of a rule: the first whose condition holds.  Entries of another zone are dropped at load.
- A L{Target} is one upstream of a route, chosen by weight, or by a sticky key; or by a L{Release}, for a part of the
  requests.

L{forwarded} tells what a target is sent, as far as no L{Rewrite} of the target changes that.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from random import Random
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, TypeVar

import msgspec

from protogate.config import address, model
from protogate.config.faults import ConfigFaults, under
from protogate.errors import CLIENT, GATEWAY, Abort, ConfigError, Phase
from protogate.expression import condition
from protogate.routing import matchers, rewrite
from protogate.routing.balance import Smooth, Sticky
from protogate.routing.matchers import Kind, Matcher
from protogate.routing.release import Release
from protogate.routing.rewrite import Rewrite
from protogate.uri import canonical

if TYPE_CHECKING:
    from protogate.exchange.exchange import Exchange
    from protogate.message import Request

T = TypeVar("T")


@dataclass(frozen=True, slots=True, eq=False)
class Target:
    """Where a request may be sent."""

    upstream: str
    """Name of a cluster; for a target with C{url} the origin, e.g. C{http://test.ctrip.com:80}."""
    path: bytes | None
    """What takes the place of the path that the rule matched; None = nothing does."""
    weight: int
    rewrite: Rewrite | None = None
    """What it is asked, where that is not what came."""
    index: int = 0
    """Place in the entry, from 0."""
    gray: float | None = None
    """Percent of the cohort that it is for; None = nobody is gray for it."""
    when: str = ""
    """Its condition, as written."""
    hold: model.Hold | None = None
    """What takes it back; None = nothing does."""

    @property
    def open(self) -> bool:
        """Whether it is for everybody, by weight."""
        return self.gray is None and not self.when

    @property
    def name(self) -> str:
        """For people, and for the sticky choice."""
        name = self.upstream + (self.path or b"").decode("ascii")
        return name if self.rewrite is None else f"{name} as {self.rewrite.text}"


@dataclass(frozen=True, slots=True, eq=False)
class Rule:
    """Which requests its routes are for."""

    index: int
    """Place in the file, from 0."""
    name: str
    type: str
    value: str
    matcher: Matcher
    priority: int
    hosts: tuple[str, ...]
    """Hosts and C{*.suffixes}, in their canonical form; empty = any."""
    methods: tuple[bytes, ...]
    """Empty = any."""
    tags: tuple[str, ...]
    properties: Mapping[str, str]
    published: bool
    policy: str
    """C{gateway.pathPolicy}."""
    cut: re.Pattern[bytes] | None
    """Takes the matched prefix off a path, however its slashes and characters are spelled."""
    routes: tuple[Route, ...] = ()
    """Of this zone; empty = the rule is not for this gateway."""


@dataclass(frozen=True, slots=True, eq=False)
class Route:
    """One entry of a rule."""

    rule: Rule
    """
    What it is an entry of, without its entries: no cycle keeps a configuration alive that nobody follows any more.
    """
    index: int
    """Place in the rule, from 0."""
    zone: str
    text: str
    """Its condition, as written."""
    condition: Callable[[Exchange], bool] | None
    """None = always."""
    targets: tuple[Target, ...]
    key: Callable[[Exchange], str] | None
    release: Release | None
    """Decides where some of the targets are for a part of the requests, or may be taken back; else None."""
    _smooth: Smooth = field(repr=False)
    _sticky: Sticky | None = field(repr=False)

    @property
    def name(self) -> str:
        """Of the rule."""
        return self.rule.name

    @property
    def tags(self) -> tuple[str, ...]:
        """Of the rule."""
        return self.rule.tags

    @property
    def properties(self) -> Mapping[str, str]:
        """Of the rule."""
        return self.rule.properties

    def pick(self, exchange: Exchange) -> Target:
        """
        Choose the target that is asked: by the sticky key where there is one and it is not empty, else by weight in
        turn; of an entry with a L{Release} as that says.

        @raise Abort: 503, all weights are 0.
        """
        target: Target | None = None
        if self.release is not None:
            target = self.release.pick(exchange)
        else:
            if self.key is not None and self._sticky is not None:
                key = self.key(exchange)
                if key:
                    target = self._sticky.pick(key)
            if target is None:
                target = self._smooth.pick()
        if target is None:
            raise Abort(
                f'rule "{self.name}", entry {self.index}: all targets have weight 0',
                GATEWAY,
                503,
                error="destination_unavailable",
                phase=Phase.ROUTING,
                detail="no target",
            )
        return target

    @property
    def alike(self) -> bool:
        """Whether no request has a say in which target it gets."""
        return self.release is None and (self.key is None or len(self.targets) == 1)

    def sure(self, exchange: Exchange) -> Target | None:
        """The target that the request itself decides for; None = one in turn, and nobody knows yet which."""
        if self.release is not None:
            return self.release.sure(exchange)
        if len(self.targets) == 1:
            return self.targets[0]
        key = "" if self.key is None or self._sticky is None else self.key(exchange)
        chosen: Target | None = self._sticky.pick(key) if key and self._sticky is not None else None
        return chosen

    def odds(self) -> list[tuple[Target, float]]:
        """Each target with its share of all requests, from 0 to 1."""
        if self.release is not None:
            return self.release.odds()
        total = sum(target.weight for target in self.targets)
        return [(target, target.weight / total if total else 0.0) for target in self.targets]


# Building -----------------------------------------------------------------------------------------------------------


def build(
    index: int, rule: model.Rule, gateway: model.Gateway, faults: list[ConfigError], random: Random
) -> Rule | None:
    """
    The rule, or None when it has faults.

    @param faults: gets each fault, with its path from C{routes} on.
    @param random: decides where the sequences of weights start.
    """
    mine: list[ConfigError] = []
    matcher = _matcher(rule, mine)
    hosts = _each(matchers.host, rule.hosts, "hosts", mine)
    methods = _each(matchers.method, rule.methods, "methods", mine)
    for type_, narrowing in (("host", rule.hosts), ("method", rule.methods)):
        if rule.type == type_ and narrowing:
            mine.append(ConfigError(f"narrows rules of other types; a {type_} rule has its value", (f"{type_}s",)))
    if rule.type == "host" and matcher is not None and matcher.kind is Kind.EXACT:
        hosts = [matcher.text]
    made = Rule(
        index=index,
        name=rule.name or f"{rule.type} {rule.value}",
        type=rule.type,
        value=rule.value,
        matcher=matcher or _NEVER,
        priority=rule.priority,
        hosts=tuple(dict.fromkeys(hosts)),
        methods=tuple(dict.fromkeys(methods)),
        tags=rule.tags,
        properties=MappingProxyType(dict(rule.properties)),
        published=rule.published,
        policy=gateway.path_policy,
        cut=_cut(rule.type, matcher),
    )
    routes = []
    for place, entry in enumerate(rule.routes):
        route = _route(made, place, entry, gateway.cohort, mine, random)
        if entry.zone in ("", gateway.zone):
            routes.append(route)
    faults.extend(under(fault, "routes", index) for fault in mine)
    return None if mine else replace(made, routes=tuple(routes))


_NEVER: Final = Matcher(Kind.EXACT, "", lambda _: False)
"""For a rule whose value is wrong, so that the rest of it can be checked."""


def _matcher(rule: model.Rule, faults: list[ConfigError]) -> Matcher | None:
    try:
        return matchers.build(rule.type, rule.matcher_type, rule.value)
    except ValueError as error:
        faults.append(ConfigError(str(error), ("value",)))
        return None


def _each(read: Callable[[str], T], values: tuple[str, ...], name: str, faults: list[ConfigError]) -> list[T]:
    good = []
    for place, value in enumerate(values):
        try:
            good.append(read(value))
        except ValueError as error:
            faults.append(ConfigError(str(error), (name, place)))
    return good


def _cut(type_: str, matcher: Matcher | None) -> re.Pattern[bytes] | None:
    if type_ != "uri" or matcher is None or matcher.kind is not Kind.PREFIX:
        return None
    return re.compile(rb"(?:/++[^/]++){%d}" % sum(1 for segment in matcher.text.split("/") if segment))


def _route(rule: Rule, index: int, entry: model.Entry, cohort: str, faults: list[ConfigError], random: Random) -> Route:
    path = ("routes", index)
    test = _test(entry.condition, faults, *path, "condition")
    if test is not None and condition.always(test):
        test = None
    key = None if entry.sticky is None else _key(entry.sticky.key, faults, *path, "sticky", "key")
    targets = []
    for place, target in enumerate(entry.targets):
        try:
            targets.append(_target(rule, place, target))
        except ConfigError as fault:
            faults.append(under(fault, *path, "targets", place))
        except ConfigFaults as found:
            faults.extend(under(fault, *path, "targets", place, "rewrite") for fault in found.faults)
    plain = all(target.open and target.hold is None for target in targets)
    release = None if plain else _release(rule, index, entry, targets, key, cohort, faults, random)
    weighed = targets if release is None else []
    return Route(
        rule=rule,
        index=index,
        zone=entry.zone,
        text=entry.condition,
        condition=test,
        targets=tuple(targets),
        key=key,
        release=release,
        _smooth=Smooth([(target, target.weight) for target in weighed], random),
        _sticky=None if key is None else Sticky([(target, target.name, target.weight) for target in weighed]),
    )


def _test(text: str, faults: list[ConfigError], *path: str | int) -> Callable[[Exchange], bool] | None:
    try:
        return condition.compile(text)
    except ConfigError as fault:
        faults.append(under(fault, *path))
        return None


def _key(text: str, faults: list[ConfigError], *path: str | int) -> Callable[[Exchange], str] | None:
    try:
        return condition.expression(text)
    except ConfigError as fault:
        faults.append(under(fault, *path))
        return None


def _release(
    rule: Rule,
    index: int,
    entry: model.Entry,
    targets: list[Target],
    sticky: Callable[[Exchange], str] | None,
    cohort: str,
    faults: list[ConfigError],
    random: Random,
) -> Release | None:
    """None when it has faults."""
    path, before = ("routes", index), len(faults)
    when = []
    for target in targets:
        if target.when:
            test = _test(target.when, faults, *path, "targets", target.index, "when")
            if test is not None:
                when.append((test, target))
    text = entry.cohort or cohort
    key = _key(text, faults, *path, "cohort")
    for target in [target for target in targets if target.gray is not None][1:]:
        message = "another target of the entry has it already, and one may: the others are for who is not gray"
        faults.append(ConfigError(message, (*path, "targets", target.index, "gray")))
    if not any(target.open for target in targets):
        message = "each has gray or when: one must be there for everybody else"
        faults.append(ConfigError(message, (*path, "targets")))
    elif not any(target.open and target.weight and target.hold is None for target in targets):
        for target in targets:
            if target.hold is not None:
                message = (
                    "needs something to be compared with: another target, with a weight, without gray, when and hold"
                )
                faults.append(ConfigError(message, (*path, "targets", target.index, "hold")))
    if key is None or len(faults) > before or len(targets) < len(entry.targets):
        return None
    return Release(f"{rule.name}, entry {index}", identity(rule, entry), targets, when, text, key, sticky, random)


def identity(rule: Rule, entry: model.Entry) -> str:
    """Equal for entries that say the same in rules that are for the same requests: 24 hex digits."""
    said = (rule.type, rule.value, rule.matcher.kind.name, rule.priority, rule.hosts, rule.methods, entry)
    return blake2b(msgspec.json.encode(said, enc_hook=_decoded), digest_size=12).hexdigest()


def _decoded(value: Any) -> Any:
    """What JSON does not know: numbers with units."""
    return float(value)


def _target(rule: Rule, index: int, target: model.Target) -> Target:
    if (target.upstream is None) == (target.url is None):
        raise ConfigError("expected exactly one of upstream and url")
    made = None if target.rewrite is None else rewrite.build(target.rewrite, rule.matcher)
    gray, when, hold = target.gray, target.when.strip(), target.hold
    if target.upstream is not None:
        return Target(target.upstream, None, target.weight, made, index, gray, when, hold)
    try:
        url = address.url(str(target.url))
    except ConfigError as fault:
        raise under(fault, "url") from None
    if not address.SCHEMES[url.scheme].codec:
        raise ConfigError(f"{url.scheme}:// does not say which protocol it is: name an upstream that has one", ("url",))
    if url.path and (rule.type != "uri" or rule.matcher.kind not in (Kind.EXACT, Kind.PREFIX)):
        raise ConfigError(
            "a path takes the place of what an exact or a prefix uri rule matched; this rule matches no such thing",
            ("url",),
        )
    if url.path and target.rewrite is not None and target.rewrite.path:
        raise ConfigError("the url has a path already", ("rewrite", "path"))
    path = url.path.encode("ascii") or None
    return Target(url.origin, path, target.weight, made, index, gray, when, hold)


# Forwarding ---------------------------------------------------------------------------------------------------------


def forwarded(request: Request, route: Route, target: Target) -> bytes:
    """
    The request target to send: the raw one, byte for byte, where it differs from the canonical form in nothing but
    spelling and repeated slashes; the canonical path where dot segments were resolved (C{pathPolicy: raw} forwards
    those too).  If the target has a path, that takes the place of what the rule matched; what follows it is kept, with
    exactly one slash between.  The query is never touched.

    When a module has put another path in place of the one that the rule matched, that path stays as it is.

    @raise Abort: 400, when C{pathPolicy: reject} and the path is not in its canonical form; or when the path is none.
    """
    raw = request.target
    if raw[:1] != b"/":
        return raw  # * of OPTIONS, or nothing, of CONNECT
    path, mark, query = raw.partition(b"?")
    form, plain = request.path, True
    if path.decode("latin-1") != form:
        try:
            form, plain = canonical(path)
        except ValueError as error:
            raise _bad(str(error)) from None
        if route.rule.policy == "reject" and form.encode("ascii") != path:
            raise _bad("the path is not in its canonical form")
    base = target.path
    if base is not None and route.rule.matcher.matches(form):
        path = _replaced(route.rule, base, path if plain else form.encode("ascii"))
    elif plain or route.rule.policy == "raw":
        return raw
    else:
        path = form.encode("ascii")
    return path + mark + query


def _replaced(rule: Rule, base: bytes, path: bytes) -> bytes:
    cut = rule.cut and rule.cut.match(path)
    rest = path[cut.end() :] if cut else b""
    return base.rstrip(b"/") + rest if rest else base


def _bad(why: str) -> Abort:
    return Abort(f"path: {why}", CLIENT, 400, error="http_request_error", phase=Phase.ROUTING, detail=why)
