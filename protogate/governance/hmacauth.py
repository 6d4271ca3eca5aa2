"""
C{hmacAuth}: signed requests, as HTTP Message Signatures (RFC 9421): with a secret that both sides share, or with one
whose public half is known here.

Rules
- What must be covered is: method, authority, path and query, or the file says otherwise; and the digest of the content,
  where there is some.  The content is held to it on its way.
- A signature counts for a short while, and once.
- Whoever names a secret that nobody has costs as much as who names one.
"""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from twisted.internet.defer import Deferred
from twisted.python.failure import Failure
from zope.interface import implementer

from protogate.errors import CLIENT, Abort, ConfigError
from protogate.governance.admission import COMMON, Admission, asks, followed
from protogate.governance.params import Params, shown
from protogate.governance.redis import Redis, RedisError
from protogate.governance.redissettings import RedisSettings
from protogate.governance.sources import Followed
from protogate.governance.stages import PRE_REQUEST, PRE_UPSTREAM
from protogate.identity import digest, secrets
from protogate.identity.identity import Identity
from protogate.identity.place import Header
from protogate.identity.replays import Full, Replays
from protogate.identity.secrets import Secret, Secrets, shared
from protogate.identity.signature import DERIVED, Refused, Signature
from protogate.interfaces import ILiveModule, IModuleFactory, IReservingModule

if TYPE_CHECKING:
    from protogate.exchange.exchange import Exchange
    from protogate.governance.means import Means

COMPONENTS: Final = ("@method", "@authority", "@path", "@query")
"""What must be covered, unless said otherwise."""
DIGEST: Final = "content-digest"
BODIES: Final = ("required", "covered", "ignored")
_DECOY: Final = shared("", os.urandom(32), {})
_MISMATCH: Final = Abort(
    "hmacAuth: the content is not the one that was signed",
    CLIENT,
    400,
    error="http_request_error",
    detail="the content does not match its digest",
)


class Demands:
    """
    What a signature must be like.

    @ivar components: that it covers.
    @ivar tag: that it has; empty = it is the only one.
    @ivar age: seconds that it counts, from when it was made.
    @ivar skew: seconds by which clocks may differ.
    @ivar body: one of L{BODIES}: C{required} = content is covered, C{covered} = where it is, it is held to it.
    @ivar nonce: it has one.
    @ivar once: it counts once.
    """

    __slots__ = ("age", "body", "components", "nonce", "once", "skew", "tag")

    def __init__(
        self, components: tuple[str, ...], tag: str, age: float, skew: float, body: str, nonce: bool, once: bool
    ) -> None:
        self.components, self.tag, self.age, self.skew = components, tag, age, skew
        self.body, self.nonce, self.once = body, nonce, once

    @property
    def accept(self) -> bytes:
        """As Accept-Signature says it (RFC 9421, 5.1)."""
        names = [*self.components, *([DIGEST] if self.body == "required" and DIGEST not in self.components else [])]
        listed = " ".join(f'"{name}"' for name in names)
        more = ";nonce" if self.nonce else ""
        more += f';tag="{self.tag}"' if self.tag else ""
        return f"sig=({listed});created;keyid{more}".encode("ascii")

    def judge(self, signature: Signature, content: bool, now: float) -> None:
        """@raise Refused: it is not like that."""
        for component in self.components:
            if not signature.covers(component):
                raise Refused(f"it does not cover {component}")
        if content and self.body == "required" and not signature.covers(DIGEST):
            raise Refused(f"there is content, and it does not cover {DIGEST}")
        if self.nonce and not signature.nonce:
            raise Refused("it has no nonce")
        created, expires = signature.created, signature.expires
        if created is None:
            raise Refused("it does not say when it was created")
        if created > now + self.skew:
            raise Refused("it was created in the future")
        if now >= created + self.age + self.skew or (expires is not None and now >= expires + self.skew):
            raise Refused("it is over")


@implementer(ILiveModule, IReservingModule)
class HmacAuth:
    """
    @param keys: the secrets.
    @param redis: where all processes remember what came already; None = each remembers for itself.
    @param prefix: of keys in it.
    @param now: seconds since the epoch.
    """

    hides = ()

    def __init__(
        self,
        admission: Admission,
        keys: Followed[Secrets],
        demands: Demands,
        redis: RedisSettings | None,
        prefix: str,
        now: Callable[[], float],
        warnings: list[ConfigError],
    ) -> None:
        self._admission, self._keys, self._demands, self._now = admission, keys, demands, now
        self._settings, self._prefix, self.warnings = redis, prefix, warnings
        self.waits = (0.0, ()) if redis is None else redis.waits
        self._redis: Redis | None = None
        self._running = False
        self._keep = demands.age + 2 * demands.skew
        self._replays = Replays(now, self._keep)
        self._means: Means | None = None
        self.insists = not admission.optional
        self.reserves, self.asks = admission.reserves, asks("keys", keys)
        self._accept = [(b"accept-signature", demands.accept)]

    # -- ILiveModule

    def start(self, means: Means, before: Any) -> None:
        """See L{ILiveModule.start}.  What came already must not come again because of a reload."""
        self._means = means
        heir = before if isinstance(before, HmacAuth) else None
        self._keys.start(means, None if heir is None else heir._keys)
        if heir is not None:
            self._replays = heir._replays
            self._replays.lengthen(self._keep)
        if self._settings is not None:
            self._redis, self._running = means.redis(self._settings), True
            self._prefix = means.apart(self._prefix)

    def stop(self) -> None:
        """See L{ILiveModule.stop}.  Exchanges under way ask as long as somebody else keeps the Redis."""
        self._keys.stop()
        if self._redis is not None and self._running:
            self._running = False
            self._redis.release()

    # -- IModule

    def process(self, exchange: Exchange) -> Deferred[None] | None:
        """Let somebody in, or raise the Abort that refuses him."""
        if exchange.request.malformed is not None:
            return None
        known = self._keys.value
        try:
            signature = Signature(exchange, self._demands.tag)
            if known is None:
                raise self._admission.unable("the secrets are not there yet")
            secret = self._verified(exchange, signature, known)
            self._hold(exchange, signature)
        except Refused as refused:
            if refused.absent:
                self._admission.absent(self._accept)
                return None
            self._count("signature_refused")
            raise self._admission.refusal(str(refused), "the signature is not valid", headers=self._accept) from None
        identity = Identity(secret.owner, "signature", {**secret.claims, "keyid": signature.key})
        if not self._demands.once:
            self._admission.admit(exchange, identity)
            return None
        seen = hashlib.sha256(
            b"%b\0%b" % (signature.key.encode("ascii"), signature.nonce.encode("ascii") or signature.value)
        )
        if self._settings is not None:
            return self._shared(seen.hexdigest(), exchange, identity)
        try:
            new = self._replays.add(seen.digest())
        except Full:
            self._count("replays_full")
            raise self._admission.unable("too many signatures came for each of them to be remembered") from None
        self._judge(new, exchange, identity)
        return None

    def _verified(self, exchange: Exchange, signature: Signature, known: Secrets) -> Secret:
        """Whose it is."""
        secret = known.get(signature.key, _DECOY)
        if secret is _DECOY:
            signature.algorithm = ""
        right = signature.verifies(exchange, secret)
        if secret is _DECOY:
            raise Refused("nobody has a secret of that keyid")
        if not right:
            raise Refused(f"it was not made with the secret of {secret.owner}, or of something else")
        request = exchange.request
        self._demands.judge(signature, request.body is not None and request.upgrade is None, self._now())
        return secret

    def _hold(self, exchange: Exchange, signature: Signature) -> None:
        """Hold content to the digest that was signed."""
        request = exchange.request
        if self._demands.body == "ignored" or request.upgrade is not None or not signature.covers(DIGEST):
            return
        try:
            wanted = digest.wanted(request.headers.all(DIGEST.encode("ascii")))
        except ValueError as error:
            raise Refused(f"{DIGEST}: {error}") from None
        if request.body is None:
            if any(hashlib.new(name).digest() != value for name, value in wanted.items()):
                raise _MISMATCH
        else:
            request.body = digest.Digested(request.body, wanted, _MISMATCH)

    def _shared(self, seen: str, exchange: Exchange, identity: Identity) -> Deferred[None]:
        redis = self._redis
        if redis is None:
            raise self._admission.unable("it has not begun yet")
        asked: Deferred[Any] = redis.call("SET", self._prefix + seen, 1, "NX", "PX", int(self._keep * 1000))
        return asked.addCallbacks(lambda answer: self._judge(answer is not None, exchange, identity), self._failed)

    def _failed(self, failure: Failure) -> None:
        failure.trap(RedisError)
        raise self._admission.unable(str(failure.value)) from None

    def _judge(self, new: bool, exchange: Exchange, identity: Identity) -> None:
        if not new:
            self._count("signature_replayed")
            raise self._admission.refusal("it came before", "the signature is not valid", headers=self._accept)
        self._admission.admit(exchange, identity)

    def _count(self, event: str) -> None:
        if self._means is not None:
            self._means.count(event)


@implementer(IModuleFactory)
class HmacAuthFactory:
    """
    Makes L{HmacAuth}.

    @param now: seconds since the epoch.
    """

    name = "hmacAuth"
    stages = (PRE_REQUEST, PRE_UPSTREAM)
    guards = True

    def __init__(self, now: Callable[[], float] = time.time) -> None:
        self._now = now

    def build(self, params: Mapping[str, object]) -> HmacAuth:
        """See L{IModuleFactory.build}."""
        common = [name for name in COMMON if name != "keepCredential"]
        mine = ("keys", "components", "tag", "maxAge", "skew", "body", "nonce", "replay", "redis", "prefix")
        reader = Params(params, *mine, *common)
        used = [Header(b"signature"), Header(b"signature-input"), Header(b"content-digest")]
        admission = Admission.read(reader, self.name, "Signature", used)
        keys = followed(reader, "keys", secrets.parse, secrets.SIZE)
        if keys is not None and keys.value == {}:
            reader.warn("there is no secret in it: everybody is refused", "keys")
        tag = reader.literal("tag", "")
        if not tag.isascii() or not tag.isprintable() or '"' in tag or "\\" in tag:
            reader.fault("expected visible ASCII characters but quotation marks and backslashes", "tag")
        demands = Demands(
            _components(reader),
            tag,
            reader.seconds("maxAge", 60.0, 1.0, 3600.0),
            reader.seconds("skew", 5.0, 0.0, 300.0),
            reader.choice("body", "required", *BODIES),
            reader.flag("nonce"),
            reader.choice("replay", "refuse", "refuse", "allow") == "refuse",
        )
        redis, prefix = reader.redis("redis"), reader.literal("prefix", "signature:")
        if redis is not None and not demands.once:
            reader.fault("with replay: allow nothing is remembered", "redis")
        reader.done()
        assert keys is not None
        return HmacAuth(admission, keys, demands, redis, prefix, self._now, reader.warnings)


def _components(reader: Params) -> tuple[str, ...]:
    if "components" not in reader:
        return COMPONENTS
    found: list[str] = []
    before = len(reader.faults)
    for index, name in enumerate(reader.items("components")):
        if isinstance(name, str) and name.startswith("@"):
            if name not in DERIVED:
                reader.fault(
                    f"expected one of {', '.join(DERIVED)}, or a field, got {shown(name)}", "components", index
                )
        else:
            name = reader.field(name, "components", index).decode("ascii")  # noqa: PLW2901
        found.append(name)
    if not found and len(reader.faults) == before:
        reader.fault("a signature that covers nothing says nothing", "components")
    missing = [name for name in ("@method", "@authority", "@path", "@query") if name not in found]
    covered = {"@target-uri": {"@authority", "@path", "@query"}, "@request-target": {"@path", "@query"}}
    missing = [name for name in missing if not any(name in covered.get(each, ()) for each in found)]
    if missing and len(reader.faults) == before:
        reader.warn(f"whoever has a signature may send it with another {', '.join(missing)}", "components")
    return tuple(found)
