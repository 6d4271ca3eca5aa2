"""
Authority, path, query and cookies of requests: each is read here and nowhere else, so routing, access rules and
upstreams cannot disagree about them (RFC 3986, RFC 9110 4.2, RFC 6265).  What a configuration says of addresses is read
by L{protogate.config.address}.

Rules
- Bytes come in, text goes out.  Validation is by byte patterns only: C{int()}, C{strip()} and C{isdigit()} accept
  more than the grammar does.
- L{authority} and L{canonical} are strict and raise ValueError with a text that says what is wrong.
- L{host_of}, L{query_of} and L{cookies_of} serve the lazy attributes of a Request and never raise.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from ipaddress import IPv6Address
from typing import Final, NamedTuple
from urllib.parse import unquote_to_bytes

PARAMETERS: Final = 1000
"""Query parameters and cookies of one request that anybody looks at; what follows is forwarded, but not seen."""

_NAME: Final = rb"[A-Za-z0-9_~!$&'()*+,;=-]+(?:\.[A-Za-z0-9_~!$&'()*+,;=-]+)*+"
"""reg-name (RFC 3986, 3.2.2) without percent-encoding, and without empty labels, which no resolver takes."""
_AUTHORITY: Final = re.compile(rb"(?:(" + _NAME + rb")\.?|\[([0-9A-Fa-f:.]+)\])(?::0*([0-9]{1,5}))?")
_COMMON_HOST: Final = re.compile(rb"([a-z0-9-]+(?:\.[a-z0-9-]+)*+)(?::[0-9]{1,4})?").fullmatch


def only(*allowed: int) -> bytes:
    """For C{text.translate(table) == text}: a table that changes all bytes but those.  Quicker than a pattern."""
    return bytes([byte if byte in allowed else byte ^ 1 for byte in range(256)])


LONGEST: Final = 260
"""
Bytes of an authority that may be remembered: a name has 253 characters at most (RFC 1035, 2.3.4), and a port six.  A
stranger can make one much longer, and thousands of those would be megabytes.
"""


def authority(value: bytes) -> tuple[str, int | None]:
    """
    Host and port of C{uri-host [ ":" port ]} (RFC 9110, 4.2.4; RFC 3986, 3.2.2).

    The host is in lower case, without the dot at the end of a rooted name, an IPv6 address without its brackets and in
    its canonical form; port is None when there is none.

    Refused with ValueError: an empty host, user information, percent-encoding, anything beyond ASCII, an IPv6 address
    without brackets or with a zone id, C{IPvFuture}, a colon without a port, a port above 65535.
    """
    match = _AUTHORITY.fullmatch(value)
    if match is None:
        raise ValueError(f"{_shown(value)} is no host with an optional port: {_why(value)}")
    name, address, digits = match.groups()
    port = None if digits is None else int(digits)
    if port is not None and port > 65535:
        raise ValueError(f"{_shown(value)} is no host with an optional port: the port is above 65535")
    if address is None:
        return name.decode("ascii").lower(), port
    try:
        return str(IPv6Address(address.decode("ascii"))), port
    except ValueError:
        raise ValueError(
            f"{_shown(value)} is no host with an optional port: not an IPv6 address in the brackets"
        ) from None


def host_of(value: bytes) -> str:
    """The host that L{authority} gives, or C{""} for what it refuses."""
    match = _COMMON_HOST(value)
    if match is not None:
        return match[1].decode("ascii")
    try:
        return authority(value)[0]
    except ValueError:
        return ""


def _why(value: bytes) -> str:
    """What is wrong with an authority, in words."""
    for pattern, why in _WRONG_AUTHORITY:
        if pattern.search(value):
            return why
    return "not a host name or IPv4 address, nor an IPv6 address in brackets"


_WRONG_AUTHORITY: Final = tuple(
    (re.compile(pattern), why)
    for pattern, why in (
        (rb"\A\Z|\A:[^:]*\Z", "the host is empty"),
        (rb"[^\x21-\x7e]", "it holds a character that is not visible ASCII"),
        (rb"@", "user information is not allowed"),
        (rb"\A\[[^\]]*%", "a zone id means nothing to anybody but the sender"),
        (rb"\A\[[^\]]*\Z", "the closing bracket is missing"),
        (rb"\A\[[vV]", "IPvFuture is not supported"),
        (rb"\A\[[^\]]*\](?!:|\Z)", "only a colon and a port may follow the brackets"),
        (rb"\A[^\[:]*:[^:]*:", "an IPv6 address needs brackets, and there is one port at most"),
        (rb":\Z", "the port is missing behind the colon"),
        (rb":[^:\]]*[^0-9:\]][^:\]]*\Z", "the port is not a number"),
        (rb":[0-9]{6,}\Z", "the port is above 65535"),
        (rb"%", "percent-encoding is not allowed in a host"),
        (rb"\A\.|\.\.", "a label of the host is empty"),
    )
)


# Path --------------------------------------------------------------------------------------------------------------

_SAFE: Final = rb"A-Za-z0-9_~!$&'()*+,=:@\-"
"""pchar (RFC 3986, 3.3) without percent-encoding, and without C{.} and C{;}, which may make a dot segment."""
_USUAL: Final = re.compile(rb"(?:/[" + _SAFE + rb"][" + _SAFE + rb".;]*+)++/?+|/").fullmatch
_PLAIN: Final = only(*b"".join(re.findall(rb"[/" + _SAFE + rb"]", bytes(range(256)))))
_BAD_PATH: Final = re.compile(rb"(?P<raw>[\x00-\x20\x7f\\#?])|%(?![0-9A-Fa-f]{2})|(?P<control>%(?:[01].|7[Ff]))")
_SPELLING: Final = re.compile(rb"%..|[^/" + _SAFE + rb".;%]", re.DOTALL)
_SLASH: Final = r"(?:%2F|%5C|%C0%AF|%C1%9C|%E0%80%AF|%E0%81%9C)"
"""What some parsers take for a slash once they have decoded it; the long ones are overlong UTF-8."""
_DOT: Final = r"(?:\.|%C0%AE|%E0%80%AE)"
_HIDDEN: Final = re.compile(rf"(?:\A|{_SLASH}){_DOT}++(?:%20)*+(?:\Z|;|%3B|%3F|%23|{_SLASH})").search
"""
Looks into a segment that is not itself a dot segment, for one that another parser would find there: C{..%2Fb},
C{a%5C..}, C{..;x=1} (parameters cut off before dots are resolved), C{..%3Fx} (decoded, then parsed again), C{....} (a
filter that deletes C{../} once, or a file system that drops dots at the end).
"""
_PARAMETERS: Final = (";", "%3B")
"""
Who cuts parameters off finds an empty segment here, and drops it: C{/;x/admin}.  At the end it is a page's own, as in
C{/;jsessionid=1}.
"""


def usual(path: bytes) -> bool:
    """
    Whether a path is canonical as it comes: no escape, no empty segment, none that starts with a dot, or none but one.
    Most are, and most of those have no dot either, which is found out without a pattern.
    """
    if path.translate(_PLAIN) == path and path[:1] == b"/" and not path.partition(b"//")[1]:
        return True
    return _USUAL(path) is not None


def _spell(match: re.Match[bytes]) -> bytes:
    return _SPELLINGS[match[0]]


def _spellings() -> dict[bytes, bytes]:
    """Canonical spelling of each escape and of each byte that may not stand in a path as it is."""
    table = {}
    for byte in range(256):
        escape = b"%%%02X" % byte
        spelling = bytes((byte,)) if re.fullmatch(rb"[A-Za-z0-9._~-]", bytes((byte,))) else escape
        table[bytes((byte,))] = escape
        for high in {escape[1:2], escape[1:2].lower()}:
            for low in {escape[2:], escape[2:].lower()}:
                table[b"%" + high + low] = spelling
    return table


_SPELLINGS: Final = _spellings()


class Canonical(NamedTuple):
    """What L{canonical} gives."""

    path: str
    """The canonical form."""
    plain: bool
    """
    True when the path differs from the form in spelling and in repeated slashes only, and may be forwarded as it came;
    False when dot segments were resolved, and then the form is what may be forwarded.
    """


def canonical(path: bytes) -> Canonical:
    """
    The one form of a path (RFC 3986, 6.2.2), and whether the path may be forwarded as it came.

    In the form, unreserved characters are decoded and everything else that needs it is percent-encoded, in upper-case
    hex; C{%2F} and C{%5C} stay as they are; dot segments are resolved, C{%2e} being a dot; repeated slashes count as
    one.  It starts with C{/}, holds ASCII only and no dot segment, and is the canonical form of itself.

    Refused with ValueError (answer 400): a path that does not start with C{/} (C{*} and the empty target of CONNECT
    are not paths); bad percent-encoding; white space and control characters, plain or encoded; a plain backslash, C{#}
    or C{?}; a climb above the root; dot segments that only another parser would see, see C{_HIDDEN}.
    """
    if usual(path):
        return Canonical(path.decode("ascii"), True)
    if path[:1] != b"/":
        raise ValueError("the path does not start with a slash")
    bad = _BAD_PATH.search(path)
    if bad is not None:
        raise ValueError(_why_path(bad))
    return _resolve(_SPELLING.sub(_spell, path).decode("ascii").split("/"))


def _resolve(segments: list[str]) -> Canonical:
    """From the segments of a path, spelled canonically; the first is what stands before the first slash: nothing."""
    kept: list[str] = []
    plain = True
    last = len(segments) - 1
    for place, segment in enumerate(segments):
        if not segment:
            continue
        if segment == "..":
            if not kept:
                raise ValueError("the path climbs above the root")
            kept.pop()
            plain = False
        elif segment == ".":
            plain = False
        elif _HIDDEN(segment) or (place < last and segment.startswith(_PARAMETERS)):
            raise ValueError("the path holds a dot or empty segment in a form that parsers do not agree on")
        else:
            kept.append(segment)
    # A dot segment at the end leaves the slash before it (RFC 3986, 5.2.4, 2B and 2C).
    slash = "/" if kept and segments[-1] in ("", ".", "..") else ""
    return Canonical(f"/{'/'.join(kept)}{slash}", plain)


def _why_path(bad: re.Match[bytes]) -> str:
    if bad["control"]:
        return f"the path holds the control character {bad['control'].decode('ascii')}"
    if bad["raw"]:
        return f"the path holds {_shown(bad['raw'])}, which must be percent-encoded"
    return "the path holds a percent sign without two hex digits behind it"


def _shown(value: bytes) -> str:
    """For messages: quoted, printable ASCII, not too long."""
    return ascii(value[:100].decode("latin-1")) + ("…" if len(value) > 100 else "")


# Query and cookies --------------------------------------------------------------------------------------------------


def query_of(target: bytes) -> dict[str, str]:
    """
    The query parameters of a request target (C{application/x-www-form-urlencoded}), decoded; the first of several of
    one name wins.  A parameter without C{=} is empty, a percent sign without two hex digits stands for itself, bytes
    that are no UTF-8 become U+FFFD.
    """
    parameters: dict[str, str] = {}
    for pair in target.partition(b"?")[2].split(b"&", PARAMETERS)[:PARAMETERS]:
        if pair:
            name, _, value = pair.partition(b"=")
            parameters.setdefault(_decoded(name), _decoded(value))
    return parameters


_PLUS: Final = ord("+")
_PERCENT: Final = ord("%")


def _decoded(value: bytes) -> str:
    if _PLUS in value:
        value = value.replace(b"+", b" ")
    if _PERCENT in value:
        value = unquote_to_bytes(value)
    return value.decode("utf-8", "replace")


def cookies_of(lines: Iterable[bytes]) -> dict[str, str]:
    """
    The cookies of all cookie lines (RFC 6265, 4.2.1 and 5.4), as latin-1; the first of several of one name wins.
    Nothing is unescaped, quotes belong to the value, and what has no name is left out.
    """
    cookies: dict[str, str] = {}
    for line in lines:
        room = PARAMETERS - len(cookies)
        for crumb in line.split(b";", room)[:room]:
            name, equals, value = crumb.partition(b"=")
            name = name.strip(b" \t")
            if equals and name:
                cookies.setdefault(name.decode("latin-1"), value.strip(b" \t").decode("latin-1"))
    return cookies
