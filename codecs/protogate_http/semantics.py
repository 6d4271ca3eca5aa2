"""
RFC 9110 as every version of HTTP shares it: which fields belong to the connection, what delimits a body, and what may
be sent.

Rules
- Fields of the connection are taken out when a message is read, so nothing a peer names in C{Connection} can remove
  what a module adds later.
- What is sent is checked once more: a module cannot smuggle a line, a length or a connection option onto the wire.
"""

from __future__ import annotations

import base64
import hashlib
import os
import re
from collections.abc import Callable, Iterable
from typing import Any, Final

from mypy_extensions import mypyc_attr

from protogate.message import Field, Headers, Request, spellings
from protogate_http.wire1 import CHUNKED, KNOWN, LONG, REMEMBERED, TEXT, TOKEN, Bad, low, number

HOP: Final = frozenset(
    (
        b"connection",
        b"http2-settings",
        b"keep-alive",
        b"proxy",
        b"proxy-authenticate",
        b"proxy-authorization",
        b"proxy-connection",
        b"te",
        b"trailer",
        b"transfer-encoding",
        b"upgrade",
    )
)
"""
Fields of one connection, or of one hop (RFC 9110, 7.6.1 and 11.7).  C{proxy} is no field at all, but CGI would make
HTTP_PROXY of it, and clients of the upstream would use that (CVE-2016-5385).
"""
_MEANT: Final = HOP | {b"content-length", b"host", b"expect"}
SPECIAL: Final = _MEANT.union(*map(spellings, _MEANT))
"""Also with C{_} for C{-}: it means nothing to us, but CGI, WSGI and their like see no difference, so it ends here."""
OURS: Final = SPECIAL - {b"expect", b"proxy-authenticate", b"proxy-authorization"}
"""What only a codec writes.  (A module that adds credentials for the next hop means it.)"""
_OPTIONS: Final = {
    option: (option.lower(),) for option in (b"keep-alive", b"Keep-Alive", b"close", b"Close", b"upgrade", b"Upgrade")
}
_KNOWN: Final = frozenset(_OPTIONS.values()) | {()}
TE_TRAILERS: Final = (b"te", b"trailers")
"""The one TE that crosses a gateway: it can pass trailers on."""
UPGRADES: Final = frozenset((b"websocket",))
"""Protocols that may be switched to; what is not policed is not passed on (h2c smuggling)."""

_FORBIDDEN: Final = frozenset(
    b"age authentication-info authorization cache-control content-encoding content-language content-location "
    b"content-range content-type cookie date expires forwarded if-match if-modified-since if-none-match if-range "
    b"if-unmodified-since location max-forwards pragma proxy-authentication-info range retry-after set-cookie vary "
    b"via warning www-authenticate x-real-ip".split()
)
FORBIDDEN_TRAILERS: Final = SPECIAL | _FORBIDDEN.union(*map(spellings, _FORBIDDEN))
"""Framing, routing, credentials, request modifiers, response control, content format (RFC 9110, 6.5.1)."""
_FORWARDED: Final = frozenset((b"x-forwarded-", *spellings(b"x-forwarded-")))
"""How the names of others begin that are no trailers."""


@mypyc_attr(acyclic=True)
class Special:
    """
    What the fields of one head say about framing and connection.

    @ivar length: as of L{wire1.Reader.body}, or None when no field says anything.
    @ivar host: value of Host, or None.
    @ivar options: lower-case options of Connection.
    @ivar upgrade: lower-case protocols of Upgrade, when Connection names it.
    @ivar expect: whether 100-continue is expected.
    """

    __slots__ = ("expect", "host", "length", "options", "upgrade")

    def __init__(self) -> None:
        self.length: int | None = None
        self.host: bytes | None = None
        self.options: tuple[bytes, ...] = ()
        self.upgrade: tuple[bytes, ...] = ()
        self.expect = False


def listed(value: bytes) -> tuple[bytes, ...]:
    """The elements of a comma-separated list of tokens, in lower case."""
    return tuple([part for part in [part.strip(b" \t").lower() for part in value.split(b",")] if part])


def split(fields: list[Field]) -> tuple[Headers, Special]:  # noqa: PLR0912  one branch a field
    """
    Fields without those of the connection, and what those say.

    @raise Bad: when the framing has two readings, or an expectation cannot be met.
    """
    special = Special()
    pairs: list[Any] = fields  # Any: see wire1.parsed()
    kept = Headers()
    others: list[Any] = kept
    own: list[Field] = []
    for pair in pairs:
        if pair[0] in SPECIAL:
            own.append(pair)
        else:
            others.append(pair)
    if not own:
        return kept, special
    codings: list[bytes] = []
    trailers = False
    for name, value in own:
        if name == b"host":
            if special.host is not None:
                raise Bad("more than one Host", 400, "bad_host")
            special.host = value
        elif name == b"content-length":
            if special.length is not None or not number(value):
                raise Bad("bad Content-Length", 400, "bad_framing")
            special.length = int(value)
        elif name == b"connection":
            special.options += _OPTIONS.get(value) or listed(value)
        elif name == b"transfer-encoding":
            codings.append(value)
        elif name == b"upgrade":
            special.upgrade += listed(value)
        elif name == b"expect":
            if value.lower() != b"100-continue":
                raise Bad("unknown expectation", 417, "unknown_expectation")
            if not special.expect:
                kept.append((name, b"100-continue"))
            special.expect = True
        elif name == b"te":
            trailers = trailers or b"trailers" in listed(value)
    if codings:
        if special.length is not None:
            raise Bad("both Content-Length and Transfer-Encoding", 400, "bad_framing")
        _check(codings)
        special.length = CHUNKED
    if special.options not in _KNOWN:
        # Whoever could name away what a trusted proxy says of him would pass for the proxy itself.
        gone = {option for option in special.options if option[:12] != b"x-forwarded-" and option != b"forwarded"}
        kept[:] = [field for field in kept if field[0] not in gone]
    if trailers:
        kept.append(TE_TRAILERS)
    if special.upgrade and b"upgrade" not in special.options:
        special.upgrade = ()
    return kept, special


def _check(codings: list[bytes]) -> None:
    """Chunked, once, is the only transfer coding there is (RFC 9112, 6.1)."""
    if len(codings) == 1 and codings[0].lower() == b"chunked":
        return
    names = [name.strip(b" \t").lower() for value in codings for name in value.split(b",")]
    if names[-1] == b"chunked" and names.count(b"chunked") == 1 and all(TOKEN(name) for name in names):
        raise Bad("unknown transfer coding", 501, "unknown_transfer_coding")
    raise Bad("bad Transfer-Encoding", 400, "bad_framing")


def leftovers(fields: list[Field]) -> tuple[Headers, bytes]:
    """Of a head that was refused: fields that are not of the connection, and the first Host, or empty."""
    host = next((value for name, value in fields if name == b"host"), b"")
    return Headers([field for field in fields if field[0] not in SPECIAL]), host


def bodyless(method: bytes, status: int) -> bool:
    """A response that has no body whatever its fields say (RFC 9112, 6.3)."""
    return method == b"HEAD" or status in (204, 304) or status < 200


HOST: Final = re.compile(rb"(?:[A-Za-z0-9._~!$&'()*+,;=\-]++|\[[0-9A-Fa-f:.]++\])(?::[0-9]{1,5})?").fullmatch
_CONNECT: Final = re.compile(rb"(?:[^/?#@*:\[\]]++|\[[0-9A-Fa-f:.]++\]):[0-9]{1,5}").fullmatch
_FRAGMENT: Final = ord("#")  # a number: CPython looks for bytes in bytes at ten times the cost
_ABSOLUTE: Final = re.compile(rb"([A-Za-z][A-Za-z0-9+.\-]*+)://([^/?#]*+)(.*+)").fullmatch


def aim(method: bytes, target: bytes, host: bytes | None) -> tuple[bytes, bytes]:
    """
    (target, authority) of a request line: the authority of the target wins over Host (RFC 9112, 3.2).

    @raise Bad: when the target has none of the four forms, or not the one of its method; or when a Host that loses is
        none (the one that wins is looked at by whoever uses it).
    """
    if host is not None and target[:1] != b"/" and target != b"*" and not HOST(host):
        raise Bad("bad Host", 400, "bad_host")
    if _FRAGMENT in target:  # to others the path or the query ends there (RFC 9112, 3.2: a target has no fragment)
        raise Bad("the request target holds a fragment", 400, "bad_target")
    if method == b"CONNECT":
        if not _CONNECT(target):
            raise Bad("CONNECT wants host:port", 400, "bad_target")
        return b"", target
    if target[:1] == b"/":
        return target, host or b""
    if target == b"*":
        if method != b"OPTIONS":
            raise Bad("* is for OPTIONS alone", 400, "bad_target")
        return target, host or b""
    match = _ABSOLUTE(target)
    if match is None or match[1].lower() not in (b"http", b"https") or not match[2]:
        raise Bad("bad request target", 400, "bad_target")
    authority, rest = match[2], match[3]
    if not rest:
        rest = b"*" if method == b"OPTIONS" else b"/"
    elif rest[:1] != b"/":
        rest = b"/" + rest
    return rest, authority


# -- what is sent

_valid: Final[set[bytes]] = set()
"""Names that are lower-case tokens and not OURS, as far as they were seen: a few thousand."""
_known: Final[dict[Any, bytes]] = {}
"""Lines that are sent again and again, by the fields they are made of; all are forgotten when there are L{KNOWN}."""
_TOKEN: Final = re.compile(rb"[!#$%&'*+\-.^_`|~0-9a-z]++").fullmatch


def compose(out: list[bytes], headers: list[Any], count: Callable[[str], None]) -> tuple[bytes, ...]:
    """
    Append the lines of those fields that may be sent, each with its CRLF.

    Fields that a codec writes itself are dropped, and so is what is no field at all; of the latter each is counted.

    @param headers: pairs; Any: see L{wire1.parsed}.
    @return: the options of C{connection} that somebody asked for.  A C{te: trailers} shows as the option C{te}
        (RFC 9110, 10.1.4).
    """
    options = b""
    for field in headers:
        line = _known.get(field)
        if line is None:
            value: bytes = field[1]
            name = low(field[0])
            if name in OURS:
                if value.translate(TEXT) != value:
                    count("invalid_field_dropped")
                elif name == b"connection":
                    options += b"," + value
                elif name == b"te" and b"trailers" in listed(value):
                    options += b",te"
                continue
            if value.translate(TEXT) != value or not named(name):
                count("invalid_field_dropped")
                continue
            line = b"%b: %b\r\n" % (name, value)
            if name in REMEMBERED and len(line) < LONG:
                if len(_known) >= KNOWN:
                    _known.clear()
                _known[field] = line
        out.append(line)
    return listed(options) if options else ()


def named(name: bytes) -> bool:
    """Whether that is a name (RFC 9110, 5.1), in lower case."""
    if name in _valid:
        return True
    if not _TOKEN(name):
        return False
    if len(_valid) < 4096 and len(name) < 64:
        _valid.add(name)
    return True


def described(headers: Headers) -> bytes | None:
    """The content-length that a HEAD or 304 response describes its content with, or None."""
    value = headers.get(b"content-length")
    return value if value is not None and number(value) else None


def admitted(trailers: list[Field] | None) -> list[Field] | None:
    """Of trailers that were read, those that may be trailers; None when nothing is left."""
    if trailers is None:
        return None
    return admissible(trailers) or None


def trailing(trailers: Iterable[Field] | None, count: Callable[[str], None]) -> list[bytes]:
    """Of trailers to be sent, the lines of those that may be trailers."""
    lines: list[bytes] = []
    if trailers:
        compose(lines, admissible([(low(name), value) for name, value in trailers]), count)
    return lines


def admissible(fields: list[Any]) -> list[Any]:
    """Those that may be trailers."""
    return [field for field in fields if field[0] not in FORBIDDEN_TRAILERS and field[0][:12] not in _FORWARDED]


# WebSocket is the one token whose handshake differs: HTTP/2 needs no key (RFC 8441, 5).  Those that pass one on all the
# same (Envoy) lean on its getting through: a server of HTTP/1 stands behind them, or a client in front.


def key(request: Request) -> bytes | None:
    """The client's part of the handshake, if it has one."""
    return request.headers.get(b"sec-websocket-key")


def new_key() -> bytes:
    """A key of our own."""
    return base64.b64encode(os.urandom(16))


def accept(key: bytes) -> bytes:
    """The server's answer to a key (RFC 6455, 4.2.2)."""
    return base64.b64encode(hashlib.sha1(key + b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11").digest())
