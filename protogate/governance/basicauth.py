"""
C{basicAuth}: name and password (RFC 7617), against a file of hashes.

Rules
- To hash is slow: it is done in threads, few at a time, and what comes out is remembered for a while under a digest
  that is worth nothing outside this process.
- A name that nobody has costs as much as a wrong password.
- While too many wait to be hashed, whoever is not remembered is told to come again: 503.
"""

from __future__ import annotations

import os
import re
from base64 import b64decode
from collections.abc import Mapping
from hashlib import blake2s
from typing import TYPE_CHECKING, Any, Final

from twisted.internet.defer import CancelledError, Deferred
from twisted.python.failure import Failure
from zope.interface import classImplements, implementer

from protogate.errors import Abort, ConfigError
from protogate.governance.admission import COMMON, Admission, asks, followed
from protogate.governance.params import Params
from protogate.governance.sources import Followed
from protogate.governance.stages import PRE_REQUEST, PRE_UPSTREAM
from protogate.identity.hands import Busy, Hands
from protogate.identity.identity import Identity
from protogate.identity.memo import Memo
from protogate.identity.password import LONGEST
from protogate.identity.place import Authorization
from protogate.identity.users import SIZE, Users, parse
from protogate.interfaces import ILiveModule, IModuleFactory, IReservingModule

if TYPE_CHECKING:
    from protogate.exchange.exchange import Exchange
    from protogate.governance.means import Means
    from protogate.wheel import Timer

HANDS: Final = 2
"""Passwords that are hashed at a time, by one process."""
ROOM: Final = 16
"""Passwords that wait for it: about as many as are done within the time that a module has."""
PATIENCE: Final = 1.5
"""Seconds that somebody waits for it: less than a module has, so that the answer says what it is about."""
REMEMBERED: Final = 10_000
"""Names with their passwords that are remembered, right ones and wrong ones each."""
REMEMBER: Final = 300.0
"""Seconds that they are, unless said otherwise."""

_PLACE: Final = Authorization("Basic")
_control: Final = re.compile(rb"[\x00-\x1f\x7f]").search


class BasicAuth:
    """
    @param users: the file.
    @param seconds: that a verdict is remembered.
    """

    hides = ()

    def __init__(
        self, admission: Admission, users: Followed[Users], seconds: float, warnings: list[ConfigError]
    ) -> None:
        self._admission, self._users, self._seconds, self.warnings = admission, users, seconds, warnings
        self.insists = not admission.optional
        self.reserves, self.asks = admission.reserves, asks("users", users)
        self._key = os.urandom(32)
        self._memo: Memo[Identity] | None = None
        self._hands: Hands[Identity] | None = None
        self._means: Means | None = None

    # -- ILiveModule

    def start(self, means: Means, before: Any) -> None:
        """See L{ILiveModule.start}.  What was remembered of an equal file goes on."""
        self._means = means
        self._hands = Hands(means.reactor, HANDS, ROOM)
        memo = self._memo = Memo(means.wheel.now, REMEMBERED)
        heir = isinstance(before, BasicAuth)
        self._users.start(means, before._users if heir else None, lambda _: memo.forget())
        mine = self._users.value
        theirs = before._users.value if heir else None
        if mine is not None and theirs is not None and mine.digest == theirs.digest and before._memo is not None:
            memo.inherit(before._memo)
            self._key = before._key

    def stop(self) -> None:
        """See L{ILiveModule.stop}."""
        self._users.stop()

    # -- IModule

    def process(self, exchange: Exchange) -> Deferred[None] | None:
        """Let somebody in, or raise the Abort that refuses him."""
        request, admission = exchange.request, self._admission
        if request.malformed is not None:
            return None
        given = _PLACE.find(request)
        if given is None:
            admission.absent()
            return None
        users, memo = self._users.value, self._memo
        if users is None or memo is None:
            raise admission.unable("there is no file of users")
        # BLAKE2 needs no HMAC: a digest of it tells nothing about what is longer (RFC 7693, 1).
        digest = blake2s(self._key + given).digest()
        known = memo.known(digest)
        if known is not None:
            if not known.scheme:
                raise self._wrong(known)
            admission.admit(exchange, known, _PLACE)
            return None
        name, secret = self._parsed(given)
        try:
            asked = memo.ask(digest, lambda: self._check(digest, users, name, secret))
        except Busy:
            self._count("hash_queue_full")
            raise admission.unable("too many passwords wait to be hashed") from None
        patience = exchange.wheel.after(PATIENCE, asked.cancel)
        asked.addBoth(self._waited, patience)
        return asked.addCallback(self._judge, exchange)

    def _parsed(self, given: bytes) -> tuple[bytes, bytes]:
        try:
            text = b64decode(given, validate=True)
            text.decode("utf-8")
        except ValueError:
            raise self._admission.refusal("what follows Basic is not Base64 of UTF-8") from None
        name, colon, secret = text.partition(b":")
        if not colon or not name or len(secret) > LONGEST or _control(text):
            raise self._admission.refusal("what follows Basic is no name and password")
        return name, secret

    def _check(self, digest: bytes, users: Users, name: bytes, secret: bytes) -> Deferred[Identity]:
        """See L{_identity}."""
        hands = self._hands
        assert hands is not None
        checked = hands.do(
            lambda: _identity(users, name, secret), lambda identity: self._checked(identity, digest, users)
        )
        self._count("password_hashed")
        return checked

    def _checked(self, identity: Identity, digest: bytes, users: Users) -> None:
        """Remember it, also if whoever asked did not wait for it: he will ask again."""
        if self._memo is not None and users is self._users.value:
            self._memo.keep(digest, identity, self._seconds, bool(identity.scheme))

    def _waited(self, result: Identity | Failure, patience: Timer) -> Identity | Failure:
        """It is known now, or it took too long, or the client left."""
        late = not patience.active
        patience.close()
        if late and isinstance(result, Failure) and result.check(CancelledError):
            self._count("hash_too_late")
            raise self._admission.unable(f"the password was not hashed within {PATIENCE:g} s")
        return result

    def _judge(self, identity: Identity, exchange: Exchange) -> None:
        if not identity.scheme:
            raise self._wrong(identity)
        self._admission.admit(exchange, identity, _PLACE)

    def _wrong(self, identity: Identity) -> Abort:
        who = identity.user
        return self._admission.refusal(f"this is not the password of {who}" if who else "nobody has that name")

    def _count(self, event: str) -> None:
        if self._means is not None:
            self._means.count(event)


def _identity(users: Users, name: bytes, secret: bytes) -> Identity:
    """Who it is, in a thread; without a scheme where it is nobody: with a name if only the password is wrong."""
    user = users.get(name)
    if not users.verify(name, secret):
        return Identity("" if user is None else user.name, "")
    assert user is not None
    return Identity(user.name, "basic", {"groups": list(user.groups)} if user.groups else {})


classImplements(BasicAuth, ILiveModule, IReservingModule)


@implementer(IModuleFactory)
class BasicAuthFactory:
    """Makes L{BasicAuth}."""

    name = "basicAuth"
    stages = (PRE_REQUEST, PRE_UPSTREAM)
    guards = True

    def build(self, params: Mapping[str, object]) -> BasicAuth:
        """See L{IModuleFactory.build}."""
        reader = Params(params, "users", "remember", *COMMON)
        admission = Admission.read(reader, self.name, "Basic", [_PLACE], ', charset="UTF-8"')
        users = followed(reader, "users", parse, SIZE)
        seconds = reader.seconds("remember", REMEMBER, 0.0, 86_400.0)
        if users is not None and users.value is not None and not len(users.value):
            reader.warn("there is nobody in it: everybody is refused", "users")
        reader.done()
        assert users is not None
        return BasicAuth(admission, users, seconds, reader.warnings)
