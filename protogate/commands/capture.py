"""
Connections in a capture file, as tcpdump writes it (pcap): what each side of each TCP connection sent, in order.

Rules
- Whoever sends the first SYN is the client; a connection whose beginning is not in the file is left out, as nobody can
  tell where its frames begin.
- What was sent twice counts once.  What follows a gap is left out: bytes that the capture lost cannot be guessed.
- A packet that is no whole TCP segment over IPv4 or IPv6 is passed over.

Must not know: any protocol above TCP.
"""

from __future__ import annotations

import ipaddress
import struct
from collections.abc import Iterator
from typing import Final, NamedTuple

MAGICS: Final = {b"\xd4\xc3\xb2\xa1": "<", b"\xa1\xb2\xc3\xd4": ">", b"\x4d\x3c\xb2\xa1": "<", b"\xa1\xb2\x3c\x4d": ">"}
"""First bytes of a file, with times in microseconds or nanoseconds, and their byte order."""
_SYN, _ACK = 0x02, 0x10
_TCP: Final = 6
_IPV4, _IPV6, _VLAN = 0x0800, 0x86DD, 0x8100

Place = tuple[str, int]
"""Address and port."""


class Segment(NamedTuple):
    """What is looked at of a TCP segment."""

    source: Place
    target: Place
    number: int
    flags: int
    data: bytes


class Side:
    """
    One direction.

    @ivar data: what was sent, up to the first gap.
    @ivar gap: whether more was sent behind one.
    """

    def __init__(self, first: int) -> None:
        self._first = first  # the sequence number of the first byte
        self._pieces: dict[int, bytes] = {}  # the longest at each offset

    def add(self, number: int, piece: bytes) -> None:
        """A segment, in whatever order."""
        at = (number - self._first + (1 << 31)) % (1 << 32) - (1 << 31)  # about the first 2 GiB
        if at >= 0 and len(piece) > len(self._pieces.get(at, b"")):
            self._pieces[at] = piece

    def read(self) -> tuple[bytes, bool]:
        """(what was sent up to the first gap, whether there is one)."""
        out = bytearray()
        for at in sorted(self._pieces):
            if at > len(out):
                return bytes(out), True
            out += self._pieces[at][len(out) - at :]
        return bytes(out), False


class Conversation:
    """A TCP connection; C{server} is None until the server has answered."""

    def __init__(self, client: Place, server: Place, first: int) -> None:
        self.places = (client, server)
        self.client = Side(first)
        self.server: Side | None = None

    def __str__(self) -> str:
        return " to ".join(f"[{host}]:{port}" if ":" in host else f"{host}:{port}" for host, port in self.places)


def conversations(data: bytes) -> list[Conversation]:
    """
    Those of a file, in the order in which they began.

    @raise ValueError: it is cut off, or of a kind of link that is not known here.
    """
    found: list[Conversation] = []
    current: dict[tuple[Place, Place], Conversation] = {}
    for segment in segments(data):
        source, target, number, flags, piece = segment
        begins = flags & _SYN
        if begins:
            number = (number + 1) % (1 << 32)  # a SYN takes one
        if begins and not flags & _ACK:
            known = current.get((source, target))
            if known is None or known.server is not None:  # else it was sent again
                current[source, target] = Conversation(source, target, number)
                found.append(current[source, target])
        elif (source, target) in current:
            current[source, target].client.add(number, piece)
        elif (target, source) in current:
            made = current[target, source]
            if begins and made.server is None:
                made.server = Side(number)
            if made.server is not None:
                made.server.add(number, piece)
    return found


def segments(data: bytes) -> Iterator[Segment]:
    """Those of a file."""
    order = MAGICS[data[:4]]
    if len(data) < 24:
        raise ValueError("the capture is cut off")
    link = struct.unpack_from(f"{order}I", data, 20)[0] & 0xFFFF
    at = 24
    while at < len(data):
        if len(data) - at < 16:
            raise ValueError("the capture is cut off")
        size = struct.unpack_from(f"{order}I", data, at + 8)[0]
        at += 16
        if len(data) - at < size:
            raise ValueError("the capture is cut off")
        try:
            segment = _segment(*_network(data[at : at + size], link))
        except (struct.error, IndexError):
            segment = None
        if segment is not None:
            yield segment
        at += size


def _network(frame: bytes, link: int) -> tuple[int, bytes]:
    """(EtherType, packet) of a frame of a kind of link: those that Linux and the BSDs have, and plain IP."""
    if link == 1:  # Ethernet
        at = 12
        while struct.unpack_from("!H", frame, at)[0] == _VLAN:
            at += 4
        return struct.unpack_from("!H", frame, at)[0], frame[at + 2 :]
    if link == 113:  # "any" of Linux
        return struct.unpack_from("!H", frame, 14)[0], frame[16:]
    if link == 276:  # the same, second version
        return struct.unpack_from("!H", frame, 0)[0], frame[20:]
    if link in (0, 101):  # loopback of BSD, plain IP
        packet = frame if link else frame[4:]
        return (_IPV6 if packet[0] >> 4 == 6 else _IPV4), packet
    raise ValueError(f"a kind of link that is not known here: {link}")


def _segment(kind: int, packet: bytes) -> Segment | None:
    """The TCP segment in a packet."""
    if kind == _IPV4 and packet[9] == _TCP and not struct.unpack_from("!H", packet, 6)[0] & 0x3FFF:
        start, end = (packet[0] & 15) * 4, struct.unpack_from("!H", packet, 2)[0]
        hosts = packet[12:16], packet[16:20]
    elif kind == _IPV6 and packet[6] == _TCP:
        start, end = 40, 40 + struct.unpack_from("!H", packet, 4)[0]
        hosts = packet[8:24], packet[24:40]
    else:
        return None
    source, target, number, offset, flags = struct.unpack_from("!HHIxxxxBB", packet, start)
    if len(packet) < end:
        return None  # not captured as a whole
    from_, to = (str(ipaddress.ip_address(host)) for host in hosts)
    return Segment((from_, source), (to, target), number, flags, packet[start + (offset >> 4) * 4 : end])
