"""
Signed tokens: JSON Web Tokens (RFC 7519) in the compact form of a signature (RFC 7515), as RFC 8725 says to check them.

Rules
- One reading: three parts in base64url without padding, each as its encoder would have written it; JSON as
  L{strictjson} has it.
- A token chooses nothing but which of our keys: C{jwk}, C{jku}, C{x5u}, C{x5c} are not looked at, C{kid} is a name
  among ours and nothing else, C{crit} names what nobody here understands.
- What is allowed is decided by the key and by us, never by C{alg}.
- What a token was issued for is checked: by whom, for whom, when, and that it is no token of another kind (C{typ}).
"""

from __future__ import annotations

from base64 import urlsafe_b64decode, urlsafe_b64encode
from dataclasses import dataclass
from typing import Any, Final

from protogate.identity import strictjson
from protogate.identity.jwk import KeySet

KINDS: Final = frozenset(("jwt", "at+jwt"))
"""What C{typ} may say where nothing else is asked for; it may be missing, too."""
NAME: Final = 256
"""Characters of a C{kid}."""


class Refused(Exception):
    """
    A token that is not good.

    @ivar detail: what a stranger may read.
    @ivar unknown: it was signed by a key that is not known: there may be a newer set of keys.
    """

    def __init__(self, why: str, detail: str = "the token is not valid", unknown: bool = False) -> None:
        super().__init__(why)
        self.detail, self.unknown = detail, unknown


class Token:
    """
    One that was read, and not verified.

    @ivar algorithm: that it says it is signed with.
    @ivar kid: name of the key, or None.
    @ivar kind: C{typ}, in lower case and without C{application/}; empty where there is none.
    @ivar claims: what it says.
    """

    __slots__ = ("_signature", "_signed", "algorithm", "claims", "kid", "kind")

    def __init__(self, text: bytes) -> None:
        """@raise Refused: it is none, or one that nobody could understand."""
        signed, dot, signature = text.rpartition(b".")
        head, other, content = signed.partition(b".")
        if not dot or not other or b"." in content:
            raise Refused("it has not three parts")
        header = _object(head, "header")
        self._signed, self._signature = signed, _decoded(signature, "signature")
        self.claims = _object(content, "claims")
        algorithm, kid, kind = header.get("alg"), header.get("kid"), header.get("typ", "")
        if not isinstance(algorithm, str) or not isinstance(kind, str):
            raise Refused("alg or typ in its header is no text")
        if not (kid is None or (isinstance(kid, str) and len(kid) <= NAME)):
            raise Refused("kid in its header is no text, or too long")
        if "crit" in header or "b64" in header:
            raise Refused("its header has extensions that must be understood, and are not")
        self.algorithm, self.kid = algorithm, kid
        self.kind = kind.lower().removeprefix("application/")

    def verify(self, keys: KeySet, algorithms: frozenset[str]) -> None:
        """@raise Refused: it is not signed with one of these keys, by one of these algorithms."""
        algorithm = self.algorithm
        if algorithm not in algorithms:
            raise Refused("its algorithm is not among those that are allowed")
        found = keys.find(self.kid, algorithm)
        if not found:
            raise Refused("no key that is known has its kid and algorithm", unknown=True)
        if not any(key.verifies(algorithm, self._signed, self._signature) for key in found):
            raise Refused("its signature is wrong", unknown=self.kid is None)


@dataclass(frozen=True, slots=True)
class Demands:
    """
    What a token must say.

    @ivar issuers: one of them has issued it; empty = anybody.
    @ivar audiences: it is for one of them; empty = for anybody.
    @ivar kinds: what C{typ} may say; an empty text: it may be missing.
    @ivar required: claims that are there, and neither null nor empty.
    @ivar leeway: seconds by which clocks may differ.
    @ivar lasting: it may do without an end.
    """

    issuers: frozenset[str] = frozenset()
    audiences: frozenset[str] = frozenset()
    kinds: frozenset[str] = KINDS | {""}
    required: tuple[str, ...] = ()
    leeway: float = 30.0
    lasting: bool = False

    def judge(self, token: Token, now: float) -> float:
        """
        Whether it says so.

        @param now: seconds since the epoch.
        @return: until when it does, leeway included.
        @raise Refused: it does not.
        """
        claims = token.claims
        if token.kind not in self.kinds:
            raise Refused("it is a token of another kind: its typ is not among those that are allowed")
        if self.issuers:
            issuer = claims.get("iss")
            if not isinstance(issuer, str) or issuer not in self.issuers:
                raise Refused("it is from another issuer")
        if self.audiences and not self._for_us(claims.get("aud")):
            raise Refused("it is for somebody else: its aud is not ours")
        for name in self.required:
            if claims.get(name) in (None, "", [], {}):
                raise Refused(f"it has no claim {name}")
        begin, end = _moment(claims, "nbf"), _moment(claims, "exp")
        _moment(claims, "iat")
        if begin is not None and now + self.leeway < begin:
            raise Refused("it is not good yet", "the token is not valid yet")
        if end is None:
            if not self.lasting:
                raise Refused("it has no end: exp is missing")
            return now + 3600.0
        if now >= end + self.leeway:
            raise Refused("it is over", "the token has expired")
        return end + self.leeway

    def _for_us(self, audience: Any) -> bool:
        if isinstance(audience, str):
            return audience in self.audiences
        return isinstance(audience, list) and any(isinstance(one, str) and one in self.audiences for one in audience)


def _moment(claims: dict[str, Any], name: str) -> float | None:
    if name not in claims:
        return None
    value: Any = claims[name]
    if type(value) not in (int, float) or not 0 <= value <= 1e12:
        raise Refused(f"its {name} is no time")
    return float(value)


def _object(part: bytes, what: str) -> dict[str, Any]:
    try:
        return strictjson.mapping(_decoded(part, what))
    except ValueError as error:
        raise Refused(f"its {what}: {error}") from None


def _decoded(part: bytes, what: str) -> bytes:
    """base64url without padding (RFC 7515, 2), as its encoder would have written it."""
    try:
        data = urlsafe_b64decode(part + b"=" * (-len(part) % 4))
    except ValueError:
        data = b""
    if not data or urlsafe_b64encode(data).rstrip(b"=") != part:
        raise Refused(f"its {what} is not base64url")
    return data
