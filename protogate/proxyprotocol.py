"""
The PROXY protocol, versions 1 and 2: a proxy that passes a connection on says first for whom (HAProxy's
proxy-protocol.txt; sections below are its).

Rules
- Sans-I/O.  L{Reader} wants the bytes of a connection from its first one on and says where the header ends; L{encode}
  gives the header of one client.  Versions are told apart by their first bytes (2.2).
- Strict: what the specification does not allow is L{Malformed}, and so is a checksum that is wrong.
- What a header says counts as the word of whoever sent it: whether that is believed is decided elsewhere, before.
- A client of which no IP address is told (LOCAL, UNKNOWN, UNSPEC, a UNIX socket) is None: then the connection is its
  sender's own (2.2).
- A client's certificate is taken as proved only where the proxy says that it has verified it (2.2.6).

Must not know: sockets, TLS, who is trusted.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from functools import reduce
from ipaddress import IPv4Address, IPv6Address, ip_address
from struct import Struct
from typing import Final, NamedTuple

from cryptography import x509
from cryptography.x509.oid import NameOID

from protogate.message import Peer
from protogate.tls.session import Certificate, Session

LINE: Final = 107
"""Bytes of the longest header of version 1, with its CRLF (2.1)."""
BLOCK: Final = 16 * 1024
"""Bytes behind the first 16 of version 2 that are read: room for addresses, names and a certificate."""
SIGNATURE: Final = b"\r\n\r\n\0\r\nQUIT\n"
"""What version 2 begins with."""
_WORD: Final = b"PROXY "
"""What version 1 begins with."""

_IP4: Final = rb"([0-9.]{7,15})"
_IP6: Final = rb"([0-9A-Fa-f:.]{2,39})"
_PORT: Final = rb"(0|[1-9][0-9]{0,4})"
_TCP4 = re.compile(rb"PROXY TCP4 %b %b %b %b\r\n" % (_IP4, _IP4, _PORT, _PORT)).fullmatch
_TCP6 = re.compile(rb"PROXY TCP6 %b %b %b %b\r\n" % (_IP6, _IP6, _PORT, _PORT)).fullmatch
_UNKNOWN = re.compile(rb"PROXY UNKNOWN(?: [^\r\n]*)?\r\n").fullmatch

_LOCAL, _PROXY = 0, 1
_INET, _INET6, _UNIX = 1, 2, 3
_ADDRESSES: Final = {_INET: Struct("!4s4sHH"), _INET6: Struct("!16s16sHH"), _UNIX: Struct("!108s108s")}
"""By address family (2.2)."""

_ALPN, _AUTHORITY, _CRC32C, _SSL = 0x01, 0x02, 0x03, 0x20
_VERSION, _COMMON_NAME, _CIPHER, _CERTIFICATE = 0x21, 0x22, 0x23, 0x28
_BY_TLS, _SHOWN, _SHOWN_BEFORE = 1, 2, 4
"""Of the field C{client} (2.2.6): the client used TLS, and gave a certificate on this connection or in its session."""
_PRINTED = re.compile(rb"[!-~]{1,64}").fullmatch
"""A version or a cipher."""


class Malformed(ValueError):
    """This is no header, although it begins like one; the text is for operators."""


class Header(NamedTuple):
    """
    The end of a header.

    @ivar found: whether there was one at all.
    @ivar peer: the client it tells of, or None.
    @ivar rest: what came behind it.
    """

    found: bool
    peer: Peer | None
    rest: bytes


class Reader:
    """The first bytes of one connection."""

    def __init__(self) -> None:
        self._held = b""

    def feed(self, data: bytes) -> Header | None:
        """
        More of them.

        @return: None while more are needed.  Not called again after anything else.
        @raise Malformed: what is wrong.
        """
        held = self._held = self._held + data
        if held.startswith(_WORD):
            return _first(held)
        if held.startswith(SIGNATURE):
            return _second(held)
        if _WORD.startswith(held) or SIGNATURE.startswith(held):
            return None
        return Header(False, None, held)


def _first(held: bytes) -> Header | None:
    """Version 1 (2.1)."""
    end = held.find(b"\r\n", 0, LINE) + 2
    if end == 1:
        if len(held) >= LINE:
            raise Malformed(f"the line of version 1 does not end within {LINE} bytes")
        return None
    line, rest = held[:end], held[end:]
    if _UNKNOWN(line):
        return Header(True, None, rest)
    found = _TCP4(line) or _TCP6(line)
    if found is None:
        raise Malformed("the line of version 1 is not in its form")
    source, target, port, its = found.groups()
    kind = IPv4Address if line.startswith(b"PROXY TCP4") else IPv6Address
    try:
        addresses = kind(source.decode("ascii")), kind(target.decode("ascii"))
    except ValueError:
        raise Malformed("the line of version 1 has an address that is none") from None
    if max(int(port), int(its)) > 0xFFFF:
        raise Malformed("the line of version 1 has a port that is none")
    return Header(True, _peer(*addresses, int(port), int(its)), rest)


def _second(held: bytes) -> Header | None:
    """Version 2 (2.2)."""
    if len(held) < 16:
        return None
    version, command = held[12] >> 4, held[12] & 15
    family, transport = held[13] >> 4, held[13] & 15
    size = int.from_bytes(held[14:16])
    if version != 2 or command > _PROXY:
        raise Malformed(f"version {version} with command {command} is not known")
    if family > _UNIX or transport > 2:
        raise Malformed(f"address family {family} with transport {transport} is not known")
    if size > BLOCK:
        raise Malformed(f"the header goes on for {size} bytes; at most {BLOCK} are read")
    if len(held) < 16 + size:
        return None
    header, rest = held[: 16 + size], held[16 + size :]
    if command == _LOCAL or not family or not transport:
        return Header(True, None, rest)
    form = _ADDRESSES[family]
    if size < form.size:
        raise Malformed(f"{size} bytes are too few for addresses of family {family}")
    told = _collect(header, 16 + form.size, (_ALPN, _AUTHORITY, _CRC32C, _SSL))
    if _CRC32C in told:
        _check(header, *told[_CRC32C])
    if family == _UNIX:
        return Header(True, None, rest)
    source, target, port, its = form.unpack_from(header, 16)
    peer = _peer(ip_address(source), ip_address(target), port, its)
    values = {kind: header[start:end] for kind, (start, end) in told.items()}
    if _SSL in values:
        _secured(peer, values)
    return Header(True, peer, rest)


def _peer(source: IPv4Address | IPv6Address, target: IPv4Address | IPv6Address, port: int, its: int) -> Peer:
    return Peer(_text(source), port, here=(_text(target), its))


def _text(ip: IPv4Address | IPv6Address) -> str:
    mapped = ip.ipv4_mapped if isinstance(ip, IPv6Address) else None
    return str(mapped or ip)


# -- what follows the addresses of version 2


def _vectors(data: bytes, start: int) -> Iterator[tuple[int, int, int]]:
    """Type, start and end of each value."""
    while start < len(data):
        begins = start + 3
        ends = begins + int.from_bytes(data[start + 1 : begins])
        if begins > len(data) or ends > len(data):
            raise Malformed("the header ends within one of its values")
        yield data[start], begins, ends
        start = ends


def _collect(data: bytes, start: int, wanted: Collection[int]) -> dict[int, tuple[int, int]]:
    """Where the wanted values are; each may be there once."""
    found: dict[int, tuple[int, int]] = {}
    for kind, begins, ends in _vectors(data, start):
        if kind in wanted:
            if kind in found:
                raise Malformed(f"the value of type 0x{kind:02x} is there twice")
            found[kind] = begins, ends
    return found


def _secured(peer: Peer, values: dict[int, bytes]) -> None:
    """Note what is told of the client's TLS (2.2.6), with the names from beside it."""
    value = values[_SSL]
    if len(value) < 5:
        raise Malformed("what it says of TLS is too short")
    client, verified = value[0], value[1:5] == b"\0\0\0\0"
    inside = {
        kind: value[start:end]
        for kind, (start, end) in _collect(value, 5, (_VERSION, _COMMON_NAME, _CIPHER, _CERTIFICATE)).items()
    }
    for kind in (_VERSION, _CIPHER):
        if kind in inside and not _PRINTED(inside[kind]):
            raise Malformed("what it says of TLS has a version or a cipher that is none")
    if not client & _BY_TLS:
        return
    session = Session(
        inside.get(_VERSION, b"").decode("ascii"),
        inside.get(_CIPHER, b"").decode("ascii"),
        values.get(_ALPN) or None,
        _utf8(values.get(_AUTHORITY, b"")).lower(),
    )
    if client & (_SHOWN | _SHOWN_BEFORE) and verified:
        if inside.get(_CERTIFICATE):
            session.certificate = Certificate(inside[_CERTIFICATE])
        else:
            session.certificate = Named(_utf8(inside.get(_COMMON_NAME, b"")))
    peer.tls, peer.session = True, session


def _utf8(value: bytes) -> str:
    try:
        return value.decode("utf-8")
    except UnicodeDecodeError:
        raise Malformed("a name is not in UTF-8") from None


class Named(Certificate):
    """
    A certificate of which the proxy that has verified it tells no more than the common name.

    @ivar name: that; empty = it has none.
    """

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        super().__init__(b"")
        self.name = name

    @property
    def fingerprint(self) -> str:
        """Not known."""
        return ""

    @property
    def encoded(self) -> str:
        """Not known."""
        return ""

    def _fields(self) -> tuple[str, str, str, tuple[str, ...]]:
        if not 0 < len(self.name) <= 64:  # RFC 5280, A.1: ub-common-name
            return "", "", "", ()
        return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, self.name)]).rfc4514_string(), "", "", ()


# -- the checksum


def _row(byte: int) -> int:
    return reduce(lambda crc, _: crc >> 1 ^ (0x82F63B78 if crc & 1 else 0), range(8), byte)


_TABLE: Final = tuple(map(_row, range(256)))


def crc32c(data: bytes) -> int:
    """RFC 4960, appendix B."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc = crc >> 8 ^ _TABLE[(crc ^ byte) & 0xFF]
    return crc ^ 0xFFFFFFFF


def _check(header: bytes, start: int, end: int) -> None:
    """2.2.3."""
    if end - start != 4:
        raise Malformed("a checksum has 4 bytes")
    if crc32c(b"%b\0\0\0\0%b" % (header[:start], header[end:])) != int.from_bytes(header[start:end]):
        raise Malformed("the checksum is wrong")


# -- sending


def encode(version: str, peer: Peer) -> bytes:
    """
    The header that tells of a client.

    @param version: C{v1} or C{v2}; only the latter tells of TLS.
    """
    addresses = _addresses(peer)
    if version == "v1":
        if addresses is None:
            return b"PROXY UNKNOWN\r\n"
        source, target = addresses
        ports = f"{peer.port} {_target(peer)[1]}"
        return f"PROXY TCP{source.version} {source} {target} {ports}\r\n".encode("ascii")
    if addresses is None:
        return SIGNATURE + b"\x21\0\0\0"
    source, target = addresses
    family = _INET if source.version == 4 else _INET6
    block = _ADDRESSES[family].pack(source.packed, target.packed, peer.port, _target(peer)[1])
    block += _of_tls(peer)
    return b"%b\x21%c%b%b" % (SIGNATURE, family << 4 | 1, len(block).to_bytes(2), block)


def _target(peer: Peer) -> tuple[str, int]:
    return peer.here or ("", 0)


def _addresses(peer: Peer) -> tuple[IPv4Address | IPv6Address, IPv4Address | IPv6Address] | None:
    """Of the client, and of ours that it has connected to, both of one family; None if it has no address."""
    try:
        source = ip_address(peer.ip)
    except ValueError:
        return None
    try:
        target = ip_address(_target(peer)[0].partition("%")[0])
    except ValueError:
        target = type(source)(0)
    if source.version != target.version:
        return _mapped(source), _mapped(target)
    return source, target


def _mapped(ip: IPv4Address | IPv6Address) -> IPv6Address:
    """RFC 4291, 2.5.5.2."""
    return ip if isinstance(ip, IPv6Address) else IPv6Address(0xFFFF << 32 | int(ip))


def _of_tls(peer: Peer) -> bytes:
    if not peer.tls:
        return b""
    session, told, inside = peer.session, b"", b""
    client, unverified = _BY_TLS, 1
    if session is not None:
        if session.alpn:
            told += _vector(_ALPN, session.alpn)
        if session.name:
            told += _vector(_AUTHORITY, session.name.encode("utf-8"))
        for kind, text in ((_VERSION, session.version), (_CIPHER, session.cipher)):
            if text:
                inside += _vector(kind, text.encode("ascii"))
        if session.certificate is not None:
            client, unverified = _BY_TLS | _SHOWN | _SHOWN_BEFORE, 0
            inside += _vector(_COMMON_NAME, _common_name(session.certificate).encode("utf-8"))
    return told + _vector(_SSL, b"%c%b%b" % (client, unverified.to_bytes(4), inside))


def _vector(kind: int, value: bytes) -> bytes:
    return b"%c%b%b" % (kind, len(value).to_bytes(2), value)


def _common_name(certificate: Certificate) -> str:
    """Of its subject; empty if there is none, or one that cannot be read."""
    try:
        names = x509.Name.from_rfc4514_string(certificate.subject).get_attributes_for_oid(NameOID.COMMON_NAME)
    except ValueError:
        return ""
    return str(names[0].value) if names else ""
