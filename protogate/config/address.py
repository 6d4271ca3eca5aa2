"""
Addresses as the file writes them: where to listen, where to connect, who is trusted, which hosts a rule is for.

Whatever reads one of them reads it here, so that the check of a file and what is made of it cannot disagree.  Each
function takes the text, and gives its parts or raises L{ConfigError}.  None prints the credentials of a URL.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Mapping
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_network
from typing import Final

from protogate.config.nearest import nearest
from protogate.config.scalar import shown
from protogate.errors import ConfigError
from protogate.uri import authority, canonical


@dataclass(frozen=True, slots=True)
class Scheme:
    """
    What a scheme says about a connection.

    @ivar port: the usual one; None = it must be given.
    @ivar tls: whether there is TLS.
    @ivar codec: that speaks it; empty = the upstream must say.
    """

    port: int | None
    tls: bool
    codec: str


HTTP_PORT: Final = 80
HTTPS_PORT: Final = 443
SCHEMES: Final[Mapping[str, Scheme]] = {
    "http": Scheme(HTTP_PORT, False, "http1"),
    "https": Scheme(HTTPS_PORT, True, "http1"),
    "ws": Scheme(HTTP_PORT, False, "http1"),
    "wss": Scheme(HTTPS_PORT, True, "http1"),
    "h2c": Scheme(HTTP_PORT, False, "http2"),
    "h2": Scheme(HTTPS_PORT, True, "http2"),
    "grpc": Scheme(HTTP_PORT, False, "http2"),
    "grpcs": Scheme(HTTPS_PORT, True, "http2"),
    "tls": Scheme(None, True, ""),
}
"""Those of URLs of endpoints and targets, besides the names of codecs."""
UNIX_PATH: Final = 107
"""Bytes that the kernel takes as the path of a socket."""

_PORT: Final = re.compile(r"0|[1-9][0-9]{0,4}", re.ASCII)
_LABEL: Final = re.compile(r"[A-Za-z0-9_](?:[A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?", re.ASCII)
_NUMERIC: Final = re.compile(r"[0-9.]+|0[xX][0-9a-fA-F]*", re.ASCII)
_ZONE: Final = re.compile(r"[!-~]+")
"""What stands for an interface in a link-local address (RFC 4007, 11)."""
_URL: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://([^/?#]*)([^?#]*)(\?[^#]*)?(#.*)?", re.ASCII | re.DOTALL)
_SERVICE: Final = re.compile(r"_[A-Za-z0-9-]+\._(?:tcp|udp)\.(.+)", re.ASCII)


@dataclass(frozen=True, slots=True)
class Listen:
    """
    Where to listen.

    @ivar host: an address as L{ipaddress} writes it, or a lower-case name without a dot at its end; C{""} for a socket
        in the file system.
    @ivar port: 0 = any free one.
    @ivar path: of the socket in the file system, or C{""}.
    """

    host: str
    port: int
    path: str = ""

    def covers(self, other: Listen) -> bool:
        """Whether both cannot be open at once."""
        if self.path or other.path:
            return self.path == other.path
        if self.port != other.port or not self.port:
            return False
        mine, others = _loopback(self.host), _loopback(other.host)
        if mine == others:
            return True
        if (":" in mine) != (":" in others):
            return False
        return ("::" if ":" in mine else "0.0.0.0") in (mine, others)


@dataclass(frozen=True, slots=True)
class Url:
    """
    Where to connect.

    @ivar scheme: in lower case.
    @ivar host: as in L{Listen}.
    @ivar path: C{""}, or a path in the canonical form of L{protogate.uri.canonical}.
    """

    scheme: str
    host: str
    port: int
    path: str

    @property
    def authority(self) -> str:
        """Host and port."""
        return spelled(self.host, self.port)

    @property
    def origin(self) -> str:
        """Without the path, and always with the port."""
        return f"{self.scheme}://{self.authority}"


def spelled(host: str, port: int) -> str:
    """C{host:port} or C{[v6]:port}."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def listen(text: str) -> Listen:
    """C{host:port}, C{[v6]:port} or C{unix:/path}."""
    if text.startswith("unix:"):
        path = text[5:]
        if not path.startswith("/"):
            raise ConfigError(f"expected an absolute path after unix:, got {shown(text)}")
        if len(path.encode()) > UNIX_PATH:
            raise ConfigError(f"the path of a socket has at most {UNIX_PATH} bytes, this one has {len(path.encode())}")
        return Listen("", 0, posixpath.normpath(path))
    if "://" in text:
        raise ConfigError(f"expected host:port, [v6]:port or unix:/path, not a URL, got {shown(text)}")
    host, colon, port = _split(text)
    if not colon:
        raise ConfigError(f"expected host:port, [v6]:port or unix:/path, got {shown(text)}: the port is missing")
    if host in ("", "*"):
        raise ConfigError(f'expected host:port, got {shown(text)}; write "0.0.0.0:{port}" for every IPv4 address')
    return Listen(host_name(host), _port(port, 0))


def url(text: str, *, scheme: str = "") -> Url:
    """
    C{http://host:port/path}.

    @param scheme: another one that is welcome: the name of the codec.
    """
    match = _URL.fullmatch(text)
    if match is None:
        raise ConfigError(f"expected a URL such as http://10.0.0.1:8080, got {shown(text)}")
    found = match[1].lower()
    usual = SCHEMES.get(found, Scheme(None, False, scheme))
    if found != scheme and found not in SCHEMES:
        known = ", ".join(f"{name}://" for name in SCHEMES) + (f" or {scheme}://" if scheme else "")
        close = nearest(found, [*SCHEMES, scheme])
        advice = f"; did you mean {close}://?" if close else ""
        raise ConfigError(f"expected a URL that begins with {known}, got {shown(text)}{advice}")
    if "@" in match[2]:
        raise ConfigError("a URL here has no user and password; remove everything up to the @")
    if match[4] is not None or match[5] is not None:
        raise ConfigError(f"a URL here has no query and no fragment; remove {shown(match[4] or match[5])}")
    host, colon, port = _split(match[2])
    if not host:
        raise ConfigError(f"the host is missing in {shown(text)}")
    if not colon and usual.port is None:
        raise ConfigError(f"the port is missing in {shown(text)}: {found}:// has no usual one")
    return Url(found, host_name(host), _port(port, 1) if colon else usual.port or 0, _path(match[3]))


def origin(text: str, *, scheme: str = "") -> Url:
    """A URL of host and port alone: an endpoint."""
    parts = url(text, scheme=scheme)
    if parts.path not in ("", "/"):
        raise ConfigError(f"an endpoint is a host and a port; remove the path {shown(parts.path)}")
    return parts


def name_to_resolve(text: str) -> tuple[str, int | None]:
    """C{host:port} → both; C{_service._tcp.host} → the name and None."""
    match = _SERVICE.fullmatch(text)
    if match is not None:
        return f"{text[: match.start(1)]}{host_name(match[1])}", None
    host, colon, port = _split(text)
    if not colon or not host:
        raise ConfigError(f"expected host:port, or _service._tcp.host for SRV, got {shown(text)}")
    return host_name(host), _port(port, 1)


def network(text: str) -> IPv4Network | IPv6Network:
    """A CIDR, or one address."""
    try:
        return ip_network(text)
    except ValueError:
        pass
    try:
        wide = ip_network(text, strict=False)
    except ValueError:
        raise ConfigError(f"expected a network such as 10.0.0.0/8 or fd00::/8, got {shown(text)}") from None
    raise ConfigError(f"{shown(text)} is an address within a network; for the whole network write {wide}")


def host_pattern(text: str) -> str:
    """C{host} or C{*.domain}; the host as L{protogate.uri.host_of} gives that of a request."""
    name = text.removeprefix("*.")
    if text == "*":
        raise ConfigError('"*" is every host: leave hosts out')
    if "*" in name:
        raise ConfigError(f'expected a host or "*." and a domain, got {shown(text)}: only the first label may be *')
    if "/" in text:
        raise ConfigError(f"expected a host such as api.example.com, got {shown(text)}: no scheme, no path")
    if _split(name)[1]:
        raise ConfigError(f"expected a host without a port, got {shown(text)}: hosts are compared without it")
    host = host_name(name)
    if name != text and (":" in host or _NUMERIC.fullmatch(host)):
        raise ConfigError(f"expected a domain after the *., got {shown(text)}: an address has no labels")
    try:
        return text[: len(text) - len(name)] + authority(name.encode("ascii"))[0]
    except ValueError as error:
        raise ConfigError(f"no request has the host {shown(text)}: {error}") from None


def host_name(text: str) -> str:
    """The host of an authority as in L{Listen}, without brackets."""
    if text.startswith("[") and text.endswith("]"):
        try:
            address = IPv6Address(text[1:-1])
        except ValueError:
            raise ConfigError(f"expected an IPv6 address in the brackets, got {shown(text)}") from None
        if address.scope_id and not _ZONE.fullmatch(address.scope_id):
            raise ConfigError(f"expected the name of an interface after the %, got {shown(text)}")
        return str(address.ipv4_mapped or address)
    if not text.isascii():
        raise ConfigError(f"the host {shown(text)} needs its ASCII form{_a_label(text)}")
    try:
        return str(IPv4Address(text))
    except ValueError:
        pass
    text = text.removesuffix(".")  # of a rooted name; all of them are
    labels = text.split(".")
    if _NUMERIC.fullmatch(labels[-1]):
        raise ConfigError(f"expected an IPv4 address of four numbers from 0 to 255, got {shown(text)}")
    if len(text) > 253 or not all(_LABEL.fullmatch(label) for label in labels):
        raise ConfigError(f"expected a host name or an address, got {shown(text)}")
    return text.lower()


def _split(text: str) -> tuple[str, str, str]:
    """Host, colon, port; a bare IPv6 address is a fault of its own."""
    if text.startswith("["):
        inside, bracket, rest = text.partition("]")
        if not bracket or (rest and not rest.startswith(":")):
            raise ConfigError(f"expected [v6]:port, got {shown(text)}")
        return inside + bracket, rest[:1], rest[1:]
    if text.count(":") > 1:
        raise ConfigError(f"an IPv6 address needs brackets, such as [::1]:8080, got {shown(text)}")
    host, colon, port = text.partition(":")
    return host, colon, port


def _port(text: str, least: int) -> int:
    if not _PORT.fullmatch(text) or not least <= int(text) <= 65535:
        raise ConfigError(f"expected a port from {least} to 65535, got {shown(text)}")
    return int(text)


def _path(text: str) -> str:
    if not text:
        return ""
    try:
        path = canonical(text.encode("utf-8", "surrogatepass")).path
    except ValueError as error:
        raise ConfigError(f"{error}; got {shown(text)}") from None
    if path != text:
        raise ConfigError(f"the path {shown(text)} is not in its canonical form: write {shown(path)}")
    return path


def _loopback(host: str) -> str:
    return "127.0.0.1" if host == "localhost" else host


def _a_label(text: str) -> str:
    try:
        return f": {text.encode('idna').decode()}"
    except UnicodeError:
        return " (xn--…)"
