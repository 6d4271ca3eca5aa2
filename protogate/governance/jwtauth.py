"""
C{jwtAuth}: signed tokens (JWT), verified with the keys of whoever issues them.

Rules
- Keys are never asked for while a request waits.  A token with a key that nobody knows has them asked for once, soon,
  and is refused; the next one finds them.
- Each issuer has keys, algorithms and audiences of its own: what one has signed never counts as the other's.
- What was verified is remembered with its token until that is over, or the keys or what is demanded are others.  A
  digest of it would take longer than all else that is done for a token that is known; and what the token says is
  remembered anyway.  Looking it up tells nothing about others: they are compared only when a hash is equal whose key
  nobody outside knows.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from zope.interface import classImplements, implementer

from protogate.errors import ConfigError
from protogate.governance.admission import COMMON, Admission, asks, followed, located
from protogate.governance.params import Params, shown
from protogate.governance.sources import Followed
from protogate.governance.stages import PRE_REQUEST, PRE_UPSTREAM
from protogate.identity import jwk, place
from protogate.identity.identity import Identity
from protogate.identity.jwk import ALGORITHMS, SECRET, KeySet
from protogate.identity.jwt import KINDS, Demands, Refused, Token
from protogate.identity.memo import Memo
from protogate.identity.place import Authorization, Place
from protogate.interfaces import ILiveModule, IModuleFactory, IReservingModule

if TYPE_CHECKING:
    from protogate.exchange.exchange import Exchange
    from protogate.governance.means import Means

REMEMBERED: Final = 10_000
"""Tokens that are remembered by one process, unless said otherwise."""
EARLY: Final = 30.0
"""Seconds in which keys are asked for once, at most, because of a token."""

OF_ISSUER: Final = ("issuer", "audience", "keys", "secret", "algorithms", "types", "required", "leeway", "endless")
"""Parameters that are about one issuer."""


class Issuer:
    """
    Somebody whose tokens count.

    @ivar name: as tokens have it; empty = whoever it is.
    @ivar keys: with which it signs.
    @ivar algorithms: with which it may.
    @ivar demands: what its tokens must say.
    @ivar where: the parameter that says where its keys are.
    """

    __slots__ = ("_next", "algorithms", "demands", "keys", "name", "where")

    def __init__(
        self,
        name: str,
        keys: Followed[KeySet] | KeySet,
        algorithms: frozenset[str],
        demands: Demands,
        where: tuple[str | int, ...],
    ) -> None:
        self.name, self.keys, self.algorithms, self.demands, self.where = name, keys, algorithms, demands, where
        self._next = 0.0

    @property
    def known(self) -> KeySet | None:
        """Its keys; None = they are not there yet."""
        return self.keys.value if isinstance(self.keys, Followed) else self.keys

    @property
    def terms(self) -> tuple[object, ...]:
        """What a verdict on its tokens depends on."""
        return self.algorithms, self.demands, self.keys.digest

    def ask(self, now: float) -> bool:
        """Ask for its keys before their time, unless that was just done; whether it is done."""
        if not isinstance(self.keys, Followed) or self.keys.source.url is None or now < self._next:
            return False
        self._next = now + EARLY
        self.keys.refresh()
        return True


class JwtAuth:
    """
    @param places: where tokens stand.
    @param issuers: whose tokens count.
    @param user: the claim, or the path to it, that is the name of who asks.
    @param now: seconds since the epoch.
    """

    def __init__(
        self,
        admission: Admission,
        places: tuple[Place, ...],
        issuers: list[Issuer],
        user: str,
        limit: int,
        now: Callable[[], float],
        warnings: list[ConfigError],
    ) -> None:
        self._admission, self._places, self._user, self.warnings = admission, places, user, warnings
        self._issuers, self._now = {issuer.name: issuer for issuer in issuers}, now
        self._place = places[0] if len(places) == 1 else None
        self._only = issuers[0] if len(issuers) == 1 else None
        self._memo: Memo[Identity] = Memo(now, limit)
        self._means: Means | None = None
        self.insists = not admission.optional
        self.reserves, self.hides = admission.reserves, place.parameters(places)
        self.asks: dict[str, tuple[str | int, ...]] = {}
        for issuer in issuers:
            if isinstance(issuer.keys, Followed):
                for name in asks("", issuer.keys):
                    self.asks[name] = (*issuer.where, "url")

    # -- ILiveModule

    def start(self, means: Means, before: Any) -> None:
        """See L{ILiveModule.start}.  Keys that came from the same URL are taken over, and verdicts on equal terms."""
        self._means = means
        old = before._issuers if isinstance(before, JwtAuth) else {}
        for name, issuer in self._issuers.items():
            if isinstance(issuer.keys, Followed):
                heir = old[name].keys if name in old else None
                issuer.keys.start(means, heir if isinstance(heir, Followed) else None, lambda _: self._memo.forget())
        if isinstance(before, JwtAuth) and before._terms() == self._terms():
            self._memo.inherit(before._memo)

    def _terms(self) -> tuple[object, ...]:
        """What a verdict depends on, but for the token and the time."""
        return self._user, {name: issuer.terms for name, issuer in self._issuers.items()}

    def stop(self) -> None:
        """See L{ILiveModule.stop}."""
        for issuer in self._issuers.values():
            if isinstance(issuer.keys, Followed):
                issuer.keys.stop()

    # -- IModule

    def process(self, exchange: Exchange) -> None:
        """Let somebody in, or raise the Abort that refuses him."""
        request = exchange.request
        if request.malformed is not None:
            return
        where, text = self._place, None
        if where is not None:
            text = where.find(request)
        else:
            found = place.find(self._places, request)
            if found is not None:
                where, text = found
        if text is None:
            self._admission.absent()
            return
        identity = self._memo.known(text)
        if identity is None:
            identity = self._verified(text)
        self._admission.admit(exchange, identity, where)

    def _verified(self, text: bytes) -> Identity:
        issuer: Issuer | None = None
        now = self._now()
        try:
            if not 0 < len(text) <= place.LONGEST:
                raise Refused(f"it has {len(text)} bytes; from 1 to {place.LONGEST} are read")
            token = Token(text)
            issuer = self._only or self._issuer(token)
            keys = issuer.known
            if keys is None:
                self._count("keys_missing")
                raise self._admission.unable("the keys of the issuer are not there yet")
            token.verify(keys, issuer.algorithms)
            end = issuer.demands.judge(token, now)
        except Refused as refused:
            if refused.unknown and issuer is not None:
                self._renew(issuer)
            self._count("token_refused")
            raise self._admission.refusal(str(refused), refused.detail, ', error="invalid_token"') from None
        self._count("token_verified")
        identity = Identity("", "jwt", token.claims)
        identity.user = identity.named(self._user)
        if not identity.user:
            why = f"it has no claim {self._user}, or one that is no name"
            raise self._admission.refusal(why, "the token is not valid", ', error="invalid_token"')
        self._memo.keep(text, identity, end - now)
        return identity

    def _renew(self, issuer: Issuer) -> None:
        """There may be newer keys."""
        means = self._means
        if means is not None and issuer.ask(means.wheel.now()):
            means.count("keys_asked_early")

    def _issuer(self, token: Token) -> Issuer:
        """Whose token it says it is: nothing is believed before that one's keys have verified it."""
        name = token.claims.get("iss")
        issuer = self._issuers.get(name) if isinstance(name, str) else None
        if issuer is None:
            raise Refused("it is from another issuer")
        return issuer

    def _count(self, event: str) -> None:
        if self._means is not None:
            self._means.count(event)


classImplements(JwtAuth, ILiveModule, IReservingModule)


@implementer(IModuleFactory)
class JwtAuthFactory:
    """
    Makes L{JwtAuth}.

    @param now: seconds since the epoch.
    """

    name = "jwtAuth"
    stages = (PRE_REQUEST, PRE_UPSTREAM)
    guards = True

    def __init__(self, now: Callable[[], float] = time.time) -> None:
        self._now = now

    def build(self, params: Mapping[str, object]) -> JwtAuth:
        """See L{IModuleFactory.build}."""
        reader = Params(params, "issuers", "from", "user", "remembered", *OF_ISSUER, *COMMON)
        places = located(reader, "from", Authorization("Bearer"))
        admission = Admission.read(reader, self.name, "Bearer", places)
        user = reader.literal("user", "sub")
        limit = reader.integer("remembered", REMEMBERED, 0, 1_000_000)
        issuers = _issuers(reader)
        reader.done()
        return JwtAuth(admission, places, issuers, user, limit, self._now, reader.warnings)


def _issuers(reader: Params) -> list[Issuer]:
    if "issuers" not in reader:
        issuer = _issuer(reader)
        return [issuer] if issuer is not None else []
    found: list[Issuer] = []
    for name in OF_ISSUER:
        if name in reader:
            reader.fault("with issuers, each of them has its own", name)
    entries = reader.items("issuers")
    if not entries and not reader.faults:
        reader.fault("expected at least one issuer", "issuers")
    for index, entry in enumerate(entries):
        path = ("issuers", index)
        if not isinstance(entry, Mapping):
            reader.fault(f"expected {{issuer: …, keys: …, audience: …}}, got {shown(entry)}", *path)
            continue
        inner = Params(entry, *OF_ISSUER)
        if "issuer" not in inner:
            inner.fault("issuer is missing: by it tokens are told apart", "issuer")
        issuer = _issuer(inner, *path)
        for fault in inner.faults:
            reader.fault(fault.message, *path, *fault.path)
        for warning in inner.warnings:
            reader.warn(warning.message, *path, *warning.path)
        if issuer is not None and issuer.name in [one.name for one in found]:
            reader.fault("this issuer stands there twice", *path, "issuer")
        elif issuer is not None:
            found.append(issuer)
    return found


def _issuer(reader: Params, *path: str | int) -> Issuer | None:
    """None when it has a fault."""
    before = len(reader.faults)
    name = reader.literal("issuer", "")
    audiences = reader.words("audience")
    kinds = [kind.lower().removeprefix("application/") for kind in reader.words("types")]
    if not name:
        reader.warn("tokens of any issuer count, if one of the keys has signed them; name it", "issuer")
    if not audiences:
        reader.warn("tokens count that were issued for somebody else; name what ours are for", "audience")
    demands = Demands(
        issuers=frozenset([name] if name else []),
        audiences=frozenset(audiences),
        kinds=frozenset(kinds) if kinds else KINDS | {""},
        required=tuple(reader.words("required")),
        leeway=reader.seconds("leeway", 30.0, 0.0, 600.0),
        lasting=reader.flag("endless"),
    )
    keys: Followed[KeySet] | KeySet | None = None
    if ("keys" in reader) == ("secret" in reader):
        reader.fault("expected keys: {url: …} or {file: …}, or else secret: {file: …} or {env: …}", "keys")
    elif "keys" in reader:
        keys = followed(reader, "keys", jwk.parse, jwk.SIZE)
    else:
        value = reader.secret("secret")
        try:
            keys = jwk.secret(value) if value else None
        except ValueError as error:
            reader.fault(str(error), "secret")
    known = tuple(SECRET) if "secret" in reader else ALGORITHMS
    algorithms = reader.words("algorithms")
    for index, algorithm in enumerate(algorithms):
        if algorithm not in known:
            reader.fault(f"expected one of {', '.join(known)}, got {shown(algorithm)}", "algorithms", index)
    if len(reader.faults) > before or keys is None:
        return None
    return Issuer(name, keys, frozenset(algorithms or known), demands, (*path, "keys"))
