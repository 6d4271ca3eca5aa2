"""
C{keyAuth}: keys of an API, of which only digests are kept: in a file, or in a Redis.

Rules
- The digest is looked up, never the key compared: how long that takes tells nothing about any key.
- The key ends here, and a key in a query stands in no record.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from hashlib import sha256
from typing import TYPE_CHECKING, Any

from twisted.internet.defer import Deferred
from twisted.python.failure import Failure
from zope.interface import classImplements, implementer

from protogate.errors import ConfigError
from protogate.governance.admission import COMMON, Admission, asks, followed, located
from protogate.governance.lookup import LONGEST, NOBODY, Lookup
from protogate.governance.params import Params
from protogate.governance.redis import RedisError
from protogate.governance.sources import Followed
from protogate.governance.stages import PRE_REQUEST, PRE_UPSTREAM
from protogate.identity import keys, place
from protogate.identity.identity import Identity
from protogate.identity.keys import Keys
from protogate.identity.place import Header, Place
from protogate.interfaces import ILiveModule, IModuleFactory, IReservingModule

if TYPE_CHECKING:
    from protogate.exchange.exchange import Exchange
    from protogate.governance.means import Means


class KeyAuth:
    """
    @param places: where keys stand.
    @param known: a file of them, or what looks them up.
    @param now: seconds since the epoch.
    """

    def __init__(
        self,
        admission: Admission,
        places: tuple[Place, ...],
        known: Followed[Keys] | Lookup,
        now: Callable[[], float],
        warnings: list[ConfigError],
    ) -> None:
        self._admission, self._places, self._now, self.warnings = admission, places, now, warnings
        self._file = known if isinstance(known, Followed) else None
        self._lookup = known if isinstance(known, Lookup) else None
        self.waits = (0.0, ()) if self._lookup is None else self._lookup.waits
        self._means: Means | None = None
        self.insists = not admission.optional
        self.reserves, self.hides = admission.reserves, place.parameters(places)
        self.asks = asks("keys", self._file)

    # -- ILiveModule

    def start(self, means: Means, before: Any) -> None:
        """See L{ILiveModule.start}."""
        self._means = means
        heir = before if isinstance(before, KeyAuth) else None
        if self._file is not None:
            self._file.start(means, None if heir is None else heir._file)
        if self._lookup is not None:
            self._lookup.start(means, None if heir is None else heir._lookup)

    def stop(self) -> None:
        """See L{ILiveModule.stop}."""
        for each in (self._file, self._lookup):
            if each is not None:
                each.stop()

    # -- IModule

    def process(self, exchange: Exchange) -> Deferred[None] | None:
        """Let somebody in, or raise the Abort that refuses him."""
        request = exchange.request
        if request.malformed is not None:
            return None
        found = place.find(self._places, request)
        if found is None:
            self._admission.absent()
            return None
        where, key = found
        if not 0 < len(key) <= LONGEST:
            raise self._admission.refusal(f"it has {len(key)} bytes; a key has from 1 to {LONGEST}")
        if self._lookup is None:
            self._admission.admit(exchange, self._owner(key), where)
            return None
        try:
            identity = self._lookup.find(key, self._count)
        except RedisError as error:
            raise self._admission.unable(str(error)) from None
        if isinstance(identity, Deferred):
            return identity.addCallbacks(self._judge, self._failed, callbackArgs=(exchange, where))
        self._judge(identity, exchange, where)
        return None

    def _owner(self, key: bytes) -> Identity:
        known = None if self._file is None else self._file.value
        if known is None:
            raise self._admission.unable("the keys are not there yet")
        found = known.get(sha256(key).digest())
        if found is None:
            raise self._admission.refusal("nobody has that key")
        if found.expires and self._now() >= found.expires:
            raise self._admission.refusal(f"a key of {found.owner} that is over", "the key has expired")
        return Identity(found.owner, "key", found.claims)

    def _judge(self, identity: Identity, exchange: Exchange, where: Place) -> None:
        if identity is NOBODY:
            raise self._admission.refusal("nobody has that key")
        self._admission.admit(exchange, identity, where)

    def _failed(self, failure: Failure) -> None:
        failure.trap(RedisError)
        raise self._admission.unable(str(failure.value)) from None

    def _count(self, event: str) -> None:
        if self._means is not None:
            self._means.count(event)


classImplements(KeyAuth, ILiveModule, IReservingModule)


@implementer(IModuleFactory)
class KeyAuthFactory:
    """
    Makes L{KeyAuth}.

    @param now: seconds since the epoch.
    """

    name = "keyAuth"
    stages = (PRE_REQUEST, PRE_UPSTREAM)
    guards = True

    def __init__(self, now: Callable[[], float] = time.time) -> None:
        self._now = now

    def build(self, params: Mapping[str, object]) -> KeyAuth:
        """See L{IModuleFactory.build}."""
        stored = ("redis", "prefix", "hashed", "format", "user", "remember", "rememberUnknown")
        reader = Params(params, "keys", "from", *stored, *COMMON)
        places = located(reader, "from", Header(b"x-api-key"))
        admission = Admission.read(reader, self.name, "ApiKey", places)
        known: Followed[Keys] | Lookup | None = None
        if ("keys" in reader) == ("redis" in reader):
            reader.fault("expected keys: {file: …} or {url: …}, or else redis: {url: …}", "keys")
        elif "redis" in reader:
            known = Lookup.read(reader, "key", "key:", True, "owner")
        else:
            for name in stored:
                if name in reader:
                    reader.fault("this is about keys in a Redis", name)
            known = followed(reader, "keys", keys.parse, keys.SIZE)
            if known is not None and known.value == {}:
                reader.warn("there is no key in it: everybody is refused", "keys")
        reader.done()
        assert known is not None
        return KeyAuth(admission, places, known, self._now, reader.warnings)
