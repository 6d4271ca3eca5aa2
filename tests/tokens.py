"""Tokens for tests: good ones, and ones that are wrong in one way."""

from __future__ import annotations

import json
from base64 import urlsafe_b64encode
from typing import Any

from joserfc.jwk import ECKey, OctKey, OKPKey, RSAKey
from joserfc.jws import JWSRegistry

NOW = 1_800_000_000.0
RSA = RSAKey.generate_key(2048, {"kid": "rsa"})
OTHER = RSAKey.generate_key(2048, {"kid": "other"})
EC = ECKey.generate_key("P-256", {"kid": "ec"})
EC5 = ECKey.generate_key("P-521", {"kid": "ec5"})
ED = OKPKey.generate_key("Ed25519", {"kid": "ed"})
SECRET = b"s" * 64
OCT = OctKey.import_key(SECRET)
CLAIMS: dict[str, Any] = {"iss": "https://id.test", "aud": "shop", "sub": "alice", "exp": NOW + 60}


def public(*keys: Any, **more: Any) -> bytes:
    """The set of these keys, as it is published."""
    return json.dumps({"keys": [{**key.as_dict(private=False), **more} for key in keys]}).encode()


def part(data: bytes) -> bytes:
    return urlsafe_b64encode(data).rstrip(b"=")


def signed(head: bytes, content: bytes, algorithm: str, key: Any) -> bytes:
    """Whatever stands in head and content."""
    text = part(head) + b"." + part(content)
    return text + b"." + part(JWSRegistry.algorithms[algorithm].sign(text, key))


def token(algorithm: str = "RS256", key: Any = RSA, header: dict[str, Any] | None = None, **claims: Any) -> bytes:
    """One that is good, but for what is changed; a claim or header that is None is left out."""
    head = {"alg": algorithm, "typ": "JWT", "kid": key.get("kid"), **(header or {})}
    content = {**CLAIMS, **claims}
    return signed(
        json.dumps({name: value for name, value in head.items() if value is not None}).encode(),
        json.dumps({name: value for name, value in content.items() if value is not None}).encode(),
        algorithm,
        key,
    )
