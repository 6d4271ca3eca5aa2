"""
Keys that verify tokens: a JSON Web Key Set (RFC 7517), or public keys and certificates in PEM form.

Rules
- What a key is decides what it is used for: an RSA key never verifies an HMAC, whatever a token says (RFC 8725, 2.1).
  A key that names its algorithm is used for that one only.
- Shared secrets are no part of a set that is published: keys of the kind C{oct} are left out.
- A key that cannot be used (another kind, use or curve, RSA below 2048 bits) is left out (RFC 7517, 5); a set without
  any other is a fault.
"""

from __future__ import annotations

import re
from base64 import urlsafe_b64decode
from collections.abc import Iterable, Sequence
from hashlib import sha256
from typing import Any, Final

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePublicKey
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_pem_public_key
from joserfc.errors import JoseError
from joserfc.jwk import ECKey, OctKey, OKPKey, RSAKey
from joserfc.jws import JWSRegistry

from protogate.identity import strictjson

SIZE: Final = 1 << 20
"""Bytes of a set."""
MOST: Final = 256
"""Keys of a set."""
TRIED: Final = 4
"""Keys that are tried for a token that does not say which one it is signed with."""

SECRET: Final = {"HS256": 32, "HS384": 48, "HS512": 64}
"""HMAC, and the bytes that its secret has at least (RFC 7518, 3.2)."""
_RSA: Final = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512")
_CURVES: Final = {"P-256": ("ES256",), "P-384": ("ES384",), "P-521": ("ES512",), "Ed25519": ("EdDSA", "Ed25519")}
ALGORITHMS: Final = (*_RSA, *(name for names in _CURVES.values() for name in names))
"""Those with a public key."""
_PRIVATE: Final = frozenset(("d", "p", "q", "dp", "dq", "qi", "oth", "k"))
_NAMES: Final = {"secp256r1": "P-256", "secp384r1": "P-384", "secp521r1": "P-521"}
"""As certificates call the curves."""
_PEM: Final = re.compile(rb"-----BEGIN (PUBLIC KEY|CERTIFICATE)-----.*?-----END \1-----", re.DOTALL)


class Key:
    """
    One key.

    @ivar kid: its name, or None.
    @ivar algorithms: that it verifies.
    """

    __slots__ = ("_key", "algorithms", "kid")

    def __init__(self, key: Any, algorithms: Iterable[str], kid: str | None = None) -> None:
        """@param key: of joserfc."""
        self._key, self.kid, self.algorithms = key, kid, frozenset(algorithms)

    def verifies(self, algorithm: str, signed: bytes, signature: bytes) -> bool:
        """Whether that is its signature.  The algorithm must be one of its own."""
        if algorithm not in self.algorithms:
            return False
        try:
            return bool(JWSRegistry.algorithms[algorithm].verify(signed, signature, self._key))
        except (InvalidSignature, JoseError, ValueError, TypeError):
            return False


class KeySet:
    """
    Some keys.

    @ivar digest: of what they were read from: two sets with an equal one are equal.
    """

    __slots__ = ("_keys", "digest")

    def __init__(self, keys: Sequence[Key], digest: bytes = b"") -> None:
        self._keys, self.digest = tuple(keys), digest

    def __len__(self) -> int:
        return len(self._keys)

    def find(self, kid: str | None, algorithm: str) -> list[Key]:
        """Keys for that algorithm which have that name; where one side has no name, all of them, up to L{TRIED}."""
        found = [
            key
            for key in self._keys
            if algorithm in key.algorithms and (kid is None or key.kid is None or key.kid == kid)
        ]
        return found[:TRIED]


def secret(value: bytes) -> KeySet:
    """
    The set of one shared secret.

    @raise ValueError: it is too short for any algorithm.
    """
    algorithms = [name for name, least in SECRET.items() if len(value) >= least]
    if not algorithms:
        raise ValueError(f"a secret for HS256 has {SECRET['HS256']} bytes at least, this one has {len(value)}")
    return KeySet([Key(OctKey.import_key(value), algorithms)], sha256(value).digest())


def parse(data: bytes) -> KeySet:
    """
    The keys of a set or of a PEM file.

    @raise ValueError: it is neither, or no key of it can be used.
    """
    keys = _pem(data) if data.lstrip().startswith(b"-----") else _set(data)
    if not keys:
        known = "RSA from 2048 bits on, P-256, P-384, P-521, Ed25519"
        raise ValueError(f"there is no key in it that can be used: a public one, for signatures, of these: {known}")
    return KeySet(keys)


def _set(data: bytes) -> list[Key]:
    try:
        found = strictjson.mapping(data)
    except ValueError as error:
        raise ValueError(f"it is no JSON Web Key Set: {error}") from None
    entries = found.get("keys")
    if not isinstance(entries, list):
        raise ValueError('it is no JSON Web Key Set: expected {"keys": […]}')
    if len(entries) > MOST:
        raise ValueError(f"it has more than {MOST} keys")
    return [key for entry in entries if (key := _key(entry)) is not None]


def _key(entry: Any) -> Key | None:
    """None = it cannot be used."""
    if not isinstance(entry, dict) or entry.get("use", "sig") != "sig":
        return None
    operations, kid = entry.get("key_ops", ["verify"]), entry.get("kid")
    if not isinstance(operations, list) or "verify" not in operations or not isinstance(kid, str | None):
        return None
    public = {name: value for name, value in entry.items() if name not in _PRIVATE}
    kind, curve = entry.get("kty"), entry.get("crv")
    try:
        if kind == "RSA":
            bits = int.from_bytes(_bytes(entry["n"])).bit_length()
            return _made(RSAKey.import_key(public), _RSA, entry) if 2048 <= bits <= 16384 else None
        if kind == "EC" or (kind == "OKP" and curve == "Ed25519"):
            return _made((ECKey if kind == "EC" else OKPKey).import_key(public), _CURVES[str(curve)], entry)
    except (JoseError, ValueError, TypeError, KeyError, UnsupportedAlgorithm):
        pass
    return None


def _made(key: Any, algorithms: Sequence[str], entry: dict[str, Any]) -> Key | None:
    named = entry.get("alg")
    if named is not None:
        algorithms = [name for name in algorithms if name == named]
    return Key(key, algorithms, entry.get("kid")) if algorithms else None


def _bytes(text: str) -> bytes:
    return urlsafe_b64decode(text + "=" * (-len(text) % 4))


def _pem(data: bytes) -> list[Key]:
    keys = []
    for match in _PEM.finditer(data):
        try:
            if match[1] == b"CERTIFICATE":
                public: Any = x509.load_pem_x509_certificate(match[0]).public_key()
            else:
                public = load_pem_public_key(match[0])
        except (ValueError, UnsupportedAlgorithm) as error:
            raise ValueError(f"it holds something that cannot be read: {error}") from None
        text = public.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
        if isinstance(public, RSAPublicKey) and public.key_size >= 2048:
            keys.append(Key(RSAKey.import_key(text), _RSA))
        elif isinstance(public, Ed25519PublicKey):
            keys.append(Key(OKPKey.import_key(text), _CURVES["Ed25519"]))
        elif isinstance(public, EllipticCurvePublicKey) and public.curve.name in _NAMES:
            keys.append(Key(ECKey.import_key(text), _CURVES[_NAMES[public.curve.name]]))
    return keys
