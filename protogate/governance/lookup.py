"""
What a Redis knows of a credential: whose session, whose key it is; asked once, and remembered for a while.

Rules
- Nobody waits longer than the settings of the Redis say; while it cannot be asked, whoever is not remembered cannot be
  judged: L{RedisError}, for the module to tell.
- What nobody knows is remembered apart, and not for long: who guesses drives nobody out.
- Only keys below a prefix are asked for: what a client sends never names another one.
"""

from __future__ import annotations

from collections.abc import Callable
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Final

from twisted.internet.defer import Deferred

from protogate.governance.params import Params
from protogate.governance.redis import Redis, RedisGone
from protogate.governance.redissettings import RedisSettings
from protogate.identity import strictjson
from protogate.identity.identity import Identity, certain
from protogate.identity.memo import Memo

if TYPE_CHECKING:
    from protogate.governance.means import Means

REMEMBERED: Final = 10_000
"""Credentials that are remembered, good ones and bad ones each."""
LONGEST: Final = 512
"""Bytes of a credential that is looked up."""
FORMATS: Final = ("auto", "text", "json", "hash")
NOBODY: Final = Identity("", "")
"""Whose credential it is when nobody knows it."""


class Lookup:
    """
    @param settings: of the Redis.
    @param scheme: of identities that are found.
    @param prefix: of the keys in it; not empty.
    @param hashed: behind the prefix stands the SHA-256 of the credential in hex digits, rather than itself.
    @param form: of the values: C{text} is the name, C{json} an object of claims, C{hash} the same as a hash of Redis,
        C{auto} an object where it begins with a brace.
    @param user: the claim that is the name.
    @param good: seconds that somebody is remembered.
    @param bad: seconds that nobody is.
    """

    def __init__(
        self,
        settings: RedisSettings,
        scheme: str,
        prefix: str,
        hashed: bool,
        form: str,
        user: str,
        good: float,
        bad: float,
    ) -> None:
        self._settings, self._scheme, self._prefix = settings, scheme, prefix.encode("utf-8")
        self._hashed, self._form, self._user, self._good, self._bad = hashed, form, user, good, bad
        self.waits = settings.waits
        self._memo: Memo[Identity] | None = None
        self._redis: Redis | None = None
        self._running = False

    @classmethod
    def read(cls, reader: Params, scheme: str, prefix: str, hashed: bool, user: str) -> Lookup | None:
        """
        Of a module's parameters C{redis}, C{prefix}, C{hashed}, C{format}, C{user}, C{remember} and C{rememberUnknown}.

        @return: None when there is no Redis, or a fault.
        """
        settings = reader.redis("redis")
        start = reader.literal("prefix", prefix)
        if not start and not reader.faults:
            reader.fault("without a prefix whoever sends a credential names any key of this Redis", "prefix")
        hidden, form = reader.flag("hashed", hashed), reader.choice("format", "auto", *FORMATS)
        name = reader.literal("user", user)
        good = reader.seconds("remember", 10.0, 0.0, 3600.0)
        bad = reader.seconds("rememberUnknown", 2.0, 0.0, 3600.0)
        return None if settings is None else cls(settings, scheme, start, hidden, form, name, good, bad)

    def start(self, means: Means, before: Lookup | None = None) -> None:
        """@param before: what it remembers is taken over, where it is about the same."""
        self._redis, self._memo = means.redis(self._settings), Memo(means.wheel.now, REMEMBERED)
        self._running = True
        if before is not None and before._memo is not None and before._about() == self._about():
            self._memo.inherit(before._memo)

    def _about(self) -> tuple[object, ...]:
        return self._settings, self._scheme, self._prefix, self._hashed, self._form, self._user

    def stop(self) -> None:
        """It is not needed any more, but for exchanges under way: they ask as long as somebody else keeps the Redis."""
        if self._redis is not None and self._running:
            self._running = False
            self._redis.release()

    def find(self, credential: bytes, count: Callable[[str], None]) -> Identity | Deferred[Identity]:
        """
        Whose credential that is: L{NOBODY}'s where nobody knows it.

        @param count: told C{looked_up} of each question, C{lookup_unreadable} of each answer that says nothing.
        @return: a Deferred where it is not remembered; fails with RedisError.
        """
        memo = self._memo
        if memo is None:
            raise RedisGone("it has not begun yet")
        digest = sha256(credential).digest()
        known = memo.known(digest)
        if known is not None:
            return known
        end = digest.hex().encode("ascii") if self._hashed else credential
        return memo.ask(digest, lambda: self._ask(digest, self._prefix + end, count))

    def _ask(self, digest: bytes, key: bytes, count: Callable[[str], None]) -> Deferred[Identity]:
        redis = self._redis
        assert redis is not None
        count("looked_up")
        answer = redis.call("HGETALL" if self._form == "hash" else "GET", key)
        return answer.addCallback(self._answered, digest, count)

    def _answered(self, value: Any, digest: bytes, count: Callable[[str], None]) -> Identity:
        identity = NOBODY
        if value:
            try:
                identity = self._read(value)
            except ValueError:
                count("lookup_unreadable")
        if self._memo is not None:
            known = identity is not NOBODY
            self._memo.keep(digest, identity, self._good if known else self._bad, known)
        return identity

    def _read(self, value: Any) -> Identity:
        """@raise ValueError: it says nothing."""
        if isinstance(value, list):
            words = [word.decode("utf-8") for word in value]
            identity = Identity("", self._scheme, dict(zip(words[::2], words[1::2], strict=True)))
        elif self._form == "json" or (self._form == "auto" and value.startswith(b"{")):
            identity = Identity("", self._scheme, strictjson.mapping(value))
        else:
            return Identity(self._named(value.decode("utf-8")), self._scheme)
        identity.user = self._named(identity.named(self._user))
        return identity

    def _named(self, name: str) -> str:
        if not name or not certain(name):
            raise ValueError(f"there is no {self._user} in it, or one that is no name")
        return name
