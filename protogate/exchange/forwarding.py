"""
Who really asks, and what the upstream is told about it: X-Forwarded-For, -Proto, -Host, Forwarded (RFC 7239), Via
(RFC 9110, 7.6.3).

Rules
- Only what a trusted proxy added is believed.  The list is read from the right: each address that is a trusted proxy
  vouches for the one to its left, and the first that is not is the client.  A broken element ends the walk: what stands
  to its left is never looked at.
- One kind of list is believed, the one that the configuration names.  A proxy that writes one kind passes the other on
  as its client sent it.
- What leaves is written anew: one line of each, no matter what came in.
- What a field says about a client's certificate is believed of trusted proxies only; from anybody else it goes no
  further than here.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable, Sequence
from typing import Any, Final

from protogate.errors import GATEWAY, Abort
from protogate.message import Field, Headers, Peer, Request, alike
from protogate.uri import LONGEST, authority

Network = ipaddress.IPv4Network | ipaddress.IPv6Network

MOST: Final = 64
"""Elements of a list that are looked at."""
ROUNDS: Final = 8
"""How often a request may come by: two gateways may share a name, and one may have a reason to ask itself."""
KNOWN: Final = 4096
"""Remembered answers; the memory of all of them is dropped when there are more."""

_PREFIX: Final = b"x-forwarded-"
_OTHERS: Final = frozenset((b"forwarded", b"via", b"x-real-ip"))
"""Names, however they are spelled: see L{alike}."""
_CERTIFICATE: Final = b"x-forwarded-client-cert"
"""Nothing of ours: a trusted proxy's, or a module's."""
_SIGNS: Final = (
    *(b"client-cert", b"client-cert-", b"x-client-cer", b"x-ssl-client", b"x-tls-client", _CERTIFICATE[:18]),
    *(b"ssl-client-" + letter for letter in (b"c", b"d", b"f", b"i", b"s", b"v")),
)
"""What names of fields begin with that say something about a client's certificate (RFC 9440, and many a habit)."""
_CLAIMS: Final = frozenset(_SIGNS)
CLAIM: Final = 1
"""Something about a client's certificate."""
TOLD: Final = 2
"""Something about who asks that is written anew."""
_kinds: Final[dict[bytes, int]] = {}
_PORT = re.compile(r"(?:\[([0-9A-Fa-f:.]+)\]|([0-9.]+))(?::[0-9]{1,5})?").fullmatch
_PAIR: Final = r"""[ \t]*([!#$%&'*+\-.^_`|~0-9A-Za-z]+)=([!#$%&'*+\-.^_`|~0-9A-Za-z]+|"[^"\\\x00-\x1f\x7f]*")[ \t]*"""
_ELEMENT = re.compile(rf"{_PAIR}(?:;{_PAIR})*").fullmatch
_PAIRS = re.compile(_PAIR).findall
_TOKEN = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+").fullmatch
_NO_TOKEN: Final = re.compile(r"[^!#$%&'*+\-.^_`|~0-9A-Za-z]")


def plain(text: str) -> str | None:
    """The canonical text of an address, with or without port; IPv4 inside IPv6 as IPv4.  None when it is none."""
    match = _PORT(text)
    try:
        address = ipaddress.ip_address((match[1] or match[2]) if match else text)
    except ValueError:
        return None
    if isinstance(address, ipaddress.IPv6Address):
        if address.scope_id:
            return None
        address = address.ipv4_mapped or address
    return str(address)


class Forwarding:
    """
    @param name: the gateway's, as pseudonym in C{Via}.
    @param trusted: networks whose word about others counts.
    @param header: C{x-forwarded-for} or C{forwarded}: the list that those proxies keep.
    """

    def __init__(self, name: str, trusted: Iterable[str] = (), header: str = "x-forwarded-for") -> None:
        self.pseudonym = _NO_TOKEN.sub("-", name) or "protogate"
        self._ours = re.compile(
            rb"(?:\A|,)[ \t]*+[^ \t,]++[ \t]++" + re.escape(self.pseudonym.encode("ascii")) + rb"(?![^ \t,])"
        ).findall
        self._networks: Sequence[Network] = [ipaddress.ip_network(network) for network in trusted]
        self._header = header.encode("ascii")
        self._via: dict[str, bytes] = {}
        self._trusts: dict[str, bool] = {}
        self._fresh: dict[tuple[str, bytes, bytes], tuple[Field, ...]] = {}

    def trusts(self, ip: str) -> bool:
        """Whether that address is a trusted proxy."""
        if not self._networks:
            return False
        known = self._trusts.get(ip)
        if known is None:
            try:
                address = ipaddress.ip_address(ip)
            except ValueError:  # a UNIX socket: who can reach it is decided by its permissions
                known = not ip
            else:
                known = any(address.version == network.version and address in network for network in self._networks)
            if len(self._trusts) >= KNOWN:
                self._trusts.clear()
            self._trusts[ip] = known
        return known

    def source(self, request: Request) -> Peer:
        """
        Where the request came from.  Sets C{request.scheme} to what the client spoke to its proxy, and takes out what
        nobody should have said about a certificate.
        """
        peer = request.peer
        if not self._networks or not self.trusts(peer.ip):
            for name, _ in request.headers:
                if _kind(name) & CLAIM:
                    _disbelieve(request)
                    break
            return peer
        chain = self._chain(request)
        scheme = self._told(request, b"x-forwarded-proto", b"proto")
        if scheme in (b"http", b"https"):
            request.scheme = scheme
        return Peer(chain[0] if chain else peer.ip, 0 if chain else peer.port, request.scheme == b"https")

    def write(self, request: Request, client: Peer) -> None:
        """
        Put what the upstream is to know into C{request.headers}, instead of whatever stood there.

        @raise Abort: 502, when C{Via} says that it goes round in circles (RFC 9110, 7.6.3).
        """
        peer = request.peer
        headers: list[Field] = request.headers  # compiled, a list needs no iterator and no look-up of methods
        trusted = bool(self._networks) and self.trusts(peer.ip)
        via = self.via(request.protocol)
        if trusted:
            chain = [*self._chain(request), peer.ip]
            host = self._told(request, b"x-forwarded-host", b"host") or request.authority
            fields: Iterable[Field] = self._fields(chain, request.scheme, host if _valid(host) else request.authority)
        else:
            key = (peer.ip, request.scheme, request.authority)
            found = self._fresh.get(key)
            if found is None:
                found = tuple(self._fields([peer.ip], request.scheme, request.authority))
                if len(self._fresh) >= KNOWN:
                    self._fresh.clear()
                if len(request.authority) <= LONGEST:
                    self._fresh[key] = found
            fields = found
        dirty = False
        for name, _ in headers:
            if _kind(name) & TOLD:
                dirty = True
                break
        if dirty:
            before = request.headers.all(b"via")
            if before:
                came = b", ".join(before)
                if len(self._ours(came)) >= ROUNDS:
                    raise Abort(f"the request came by {ROUNDS} times before", GATEWAY, 502, error="proxy_loop_detected")
                via = b"%b, %b" % (came, via)
            lines: Iterable[Any] = headers
            headers = request.headers = Headers([line for line in lines if not _kind(line[0]) & TOLD])
        headers.extend(fields)
        headers.append((b"via", via))

    def via(self, protocol: str) -> bytes:
        """Our own element of C{Via}: C{1.1 edge-1}.  The name is left out where it is HTTP."""
        via = self._via.get(protocol)
        if via is None:
            name, _, version = protocol.partition("/")
            received = version if name == "HTTP" else protocol
            via = self._via[protocol] = f"{received or '1.1'} {self.pseudonym}".encode("ascii")
        return via

    def _told(self, request: Request, name: bytes, parameter: bytes) -> bytes | None:
        """What the nearest proxy says about the client: the value of one line, or of a pair of the last element."""
        if self._header != b"forwarded":
            lines = request.headers.all(name)
            return lines[-1].rpartition(b",")[2].strip(b" \t").lower() if lines else None
        elements = self._elements(request)
        match = _ELEMENT(elements[-1]) if elements else None
        if match is None:
            return None
        for key, value in _PAIRS(match[0]):
            if key.lower().encode("ascii") == parameter:
                return str(value).strip('"').lower().encode("latin-1")
        return None

    def _elements(self, request: Request) -> list[str]:
        text = b",".join(request.headers.all(self._header)).decode("latin-1")
        # A quoted comma can only stand in an element that is no address: the walk ends there anyway.
        return text.rsplit(",", MOST)[-MOST:] if text else []

    def _chain(self, request: Request) -> list[str]:
        """The believed addresses, client first; without the peer itself."""
        chain: list[str] = []
        for element in reversed(self._elements(request)):
            ip = self._address(element)
            if ip is None:
                break
            chain.append(ip)
            if not self.trusts(ip):
                break
        chain.reverse()
        return chain

    def _address(self, element: str) -> str | None:
        if self._header != b"forwarded":
            return plain(element.strip(" \t"))
        if _ELEMENT(element) is None:
            return None
        said = [value for key, value in _PAIRS(element) if key.lower() == "for"]
        return plain(said[0].strip('"')) if len(said) == 1 else None  # once at most (RFC 7239, 4)

    def _fields(self, chain: list[str], scheme: bytes, host: bytes) -> list[Field]:
        nodes = [f'"[{ip}]"' if ":" in ip else (ip or "unknown") for ip in chain]
        last = f"for={nodes[-1]}"
        if host:
            text = host.decode("latin-1")
            last += f";host={text}" if _TOKEN(text) else f';host="{text}"'
        last += f";proto={scheme.decode('latin-1')}"
        elements = [f"for={node}" for node in nodes[:-1]]
        fields = [
            (b"x-forwarded-for", ", ".join(ip or "unknown" for ip in chain).encode("latin-1")),
            (b"x-forwarded-proto", scheme),
            (b"forwarded", ", ".join([*elements, last]).encode("latin-1")),
        ]
        if host:
            fields.insert(2, (b"x-forwarded-host", host))
        return fields


def _kind(name: bytes) -> int:
    """What a field of that name says: L{CLAIM}, L{TOLD}, both, or 0."""
    kind = _kinds.get(name)
    if kind is None:
        plain = alike(name)
        kind = CLAIM if plain[:12] in _CLAIMS or plain[:18] in _CLAIMS else 0
        if (plain[:12] == _PREFIX and name != _CERTIFICATE) or plain in _OTHERS:
            kind |= TOLD
        if len(name) <= LONGEST:
            if len(_kinds) >= KNOWN:
                _kinds.clear()
            _kinds[name] = kind
    return kind


def _disbelieve(request: Request) -> None:
    """Take out what is said about a client's certificate."""
    lines: list[Any] = request.headers
    lines[:] = [line for line in lines if not _kind(line[0]) & CLAIM]


def _valid(host: bytes) -> bool:
    try:
        authority(host)
    except ValueError:
        return False
    return True
