"""
Where a Redis is, and how to speak to it, as the configuration says it.

Rules
- All that can be wrong is found at load: the URL, the certificates to believe, a package that is not installed.
- Two settings are equal when a connection serves both.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from protogate.config.address import host_name
from protogate.config.scalar import shown
from protogate.errors import ConfigError

if TYPE_CHECKING:
    from protogate.governance.params import Params

PORT: Final = 6379
TIMEOUT: Final = 0.05
"""Seconds, unless the configuration says something else."""
NEEDED: Final = ("txredisapi", "hiredis")
"""Packages."""

_URL: Final = re.compile(r"(rediss?)://([^/?#]+)(?:/([0-9]{1,6})?)?", re.ASCII)
_UNIX: Final = re.compile(r"unix://(/[^?#\x00-\x20]{1,100})", re.ASCII)
_BEGIN: Final = b"-----BEGIN CERTIFICATE-----"


@dataclass(frozen=True, slots=True)
class RedisSettings:
    """
    Where a Redis is, and how to speak to it.

    @ivar host: name or address; empty with C{path}.
    @ivar path: of a UNIX socket.
    @ivar tls: whether it is spoken to over TLS; it must prove to be C{host}.
    @ivar authorities: PEM: by whom its certificate must be issued; empty = by one whom the system trusts.
    @ivar password: empty = none.
    @ivar timeout: seconds that a call waits.
    @ivar secured: what Twisted makes TLS of; see L{secure}.
    """

    host: str = "127.0.0.1"
    port: int = PORT
    path: str = ""
    tls: bool = False
    authorities: bytes = field(default=b"", repr=False)
    database: int = 0
    username: str = ""
    password: bytes = field(default=b"", repr=False)
    timeout: float = TIMEOUT
    secured: Any = field(default=None, compare=False, repr=False)

    @property
    def waits(self) -> tuple[float, tuple[str, str]]:
        """How long a module waits, and the parameter that says so; see L{protogate.governance.binding.Bound}."""
        return self.timeout, ("redis", "timeout")

    @property
    def shown(self) -> str:
        """For messages."""
        where = self.path or (f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}")
        return f"{where}/{self.database}"


def located(text: str) -> RedisSettings:
    """
    What a URL says: C{redis://host:port/database}, C{rediss://…} for TLS, C{unix:///path}.

    @raise ConfigError: what is wrong with it.
    """
    unix = _UNIX.fullmatch(text)
    if unix is not None:
        return RedisSettings(host="", port=0, path=unix[1])
    if "@" in text:
        raise ConfigError("a URL here has no user and password; say username, and password: {file: path}")
    match = _URL.fullmatch(text)
    if match is None:
        raise ConfigError(
            f"expected a URL such as redis://10.0.0.1:6379/0, rediss://… for TLS, or unix:///path, got {shown(text)}"
        )
    host, colon, port = match[2].rpartition(":")
    if not colon or match[2].endswith("]"):
        host, port = match[2], ""
    if not host or (port and not port.isdecimal()) or not 0 < int(port or PORT) < 65536:
        raise ConfigError(f"expected host:port with a port from 1 to 65535, got {shown(match[2])}")
    return RedisSettings(
        host=host_name(host), port=int(port or PORT), tls=match[1] == "rediss", database=int(match[3] or 0)
    )


def secure(settings: RedisSettings) -> RedisSettings:
    """
    The same with what TLS needs, which takes its time to make: not on the event loop.

    @raise ConfigError: these are no certificates.
    """
    if not settings.tls:
        return settings
    # Not at import: it takes OpenSSL along, which most processes do without.
    from twisted.internet.ssl import Certificate, optionsForClientTLS, trustRootFromCertificates  # noqa: PLC0415

    trusted = None
    if settings.authorities:
        parts = settings.authorities.split(_BEGIN)[1:]
        try:
            trusted = trustRootFromCertificates([Certificate.loadPEM(_BEGIN + part) for part in parts])
        except Exception as error:
            raise ConfigError(f"a certificate in it cannot be read: {error}") from None
        if not parts:
            raise ConfigError("no certificate stands in it")
    return replace(settings, secured=optionsForClientTLS(settings.host, trusted))


def read(reader: Params) -> RedisSettings | None:
    """
    What C{{url: …, username: …, password: {file: …}, timeout: 50ms, ca: {file: …}}} says.

    @return: None when something is wrong with it, which the reader has noted.
    """
    url, username = reader.literal("url"), reader.literal("username", "")
    password = reader.secret("password") if "password" in reader else b""
    timeout = reader.seconds("timeout", TIMEOUT, 0.001, 10.0)
    if username and not password:
        reader.fault("a username needs its password", "username")
    if needed := missing():
        reader.fault(f"{needed} is not installed: pip install 'protogate[redis]'")
    if not url:
        return None
    at = "url"
    try:
        settings = located(url)
        if "ca" in reader:
            at = "ca"
            settings = replace(settings, authorities=_authorities(reader.given("ca"), settings.tls))
        if not reader.faults:
            settings = secure(replace(settings, username=username, password=password, timeout=timeout))
        return settings
    except ConfigError as error:
        reader.fault(error.message, at)
    except OSError as error:
        reader.fault(f"cannot be read: {error.strerror}", at)
    return None


def _authorities(given: object, tls: bool) -> bytes:
    if not tls:
        raise ConfigError("nothing is verified without TLS; write rediss://, or remove ca")
    if not isinstance(given, Mapping) or list(given) != ["file"] or not isinstance(given["file"], str):
        raise ConfigError(f"expected {{file: path}}, got {shown(given)}")
    return Path(given["file"]).read_bytes()


def missing() -> str:
    """The packages that are needed and not installed; empty = none."""
    return " and ".join(name for name in NEEDED if find_spec(name) is None)
