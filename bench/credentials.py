"""Credentials of every kind, and the files and services that know them: for modules that authenticate."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import time
from typing import Any, Final

from joserfc.jwk import OKPKey

from protogate.governance.redis import Redises
from protogate.governance.redissettings import RedisSettings
from protogate.message import Field, Response
from protogate.testing.means import Service
from protogate.testing.reactor import MemoryReactor
from protogate.testing.redis import RedisServer
from protogate.tls.session import Certificate, Session
from protogate.wheel import Wheel

STORE: Final = "192.0.2.9"
"""Where the Redis is."""
SERVICE: Final = "https://auth.test:443"
"""Who says yes."""
KEY: Final = OKPKey.generate_key("Ed25519", {"kid": "bench"})
SECRET: Final = bytes(64)
HASHED: Final = base64.b64encode(hashlib.pbkdf2_hmac("sha256", b"secret", b"saltsaltsalt", 10_000)).decode().rstrip("=")
FILES: Final = {
    "users": f"bob:$pbkdf2-sha256$i=10000$c2FsdHNhbHRzYWx0${HASHED}\n",
    "keys": f"sha256:{hashlib.sha256(b'bench').hexdigest()} bench\n",
    "secrets": f"bench bench {base64.b64encode(SECRET).decode()}\n",
    "jwks": json.dumps({"keys": [KEY.as_dict(private=False)]}),
}
PASSWORD: Final = b"Basic " + base64.b64encode(b"bob:secret")


class Shown(Certificate):
    """A certificate that was read already, as for every request of a connection but the first."""

    def __init__(self) -> None:
        super().__init__(b"bench")
        self._read = ("CN=bench", "CN=authority", "1", ("bench.test",))


SESSION: Final = Session("TLSv1.3", "TLS_AES_128_GCM_SHA256")
SESSION.certificate = Shown()


def token() -> bytes:
    """A token of about 800 bytes."""
    claims = {"iss": "bench", "aud": "bench", "sub": "bench", "exp": 1 << 32, "roles": ["user"], "jti": "0" * 400}
    parts = [base64.urlsafe_b64encode(json.dumps(each).encode()).rstrip(b"=") for each in ({"alg": "Ed25519"}, claims)]
    text = b".".join(parts)
    private: Any = KEY.private_key
    return text + b"." + base64.urlsafe_b64encode(private.sign(text)).rstrip(b"=")


def signed() -> tuple[Field, ...]:
    """Fields that sign C{GET http://a.test/path?q=1}."""
    told = f'("@method" "@authority" "@path" "@query");created={int(time.time())};keyid="bench"'
    text = f'"@method": GET\n"@authority": a.test\n"@path": /path\n"@query": ?q=1\n"@signature-params": {told}'
    value = base64.b64encode(hmac.digest(SECRET, text.encode(), "sha256"))
    return (b"signature-input", b"sig=" + told.encode()), (b"signature", b"sig=:%b:" % value)


def services() -> dict[str, Any]:
    """By name or origin."""
    return {SERVICE: Service(lambda request: Response(200, [(b"x-user", b"bench")]))}


def stores(reactor: MemoryReactor) -> Any:
    """What gives a connection to the Redis, on a reactor of memory."""
    server = RedisServer(reactor.seconds)
    server.put(b"session:bench", b"bench")
    reactor.listenTCP(6379, server, interface=STORE)
    redises = Redises(reactor, Wheel(reactor.clock))

    def take(settings: RedisSettings) -> Any:
        return redises.take(settings)

    return take
