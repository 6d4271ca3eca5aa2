"""Captures: connections are put together from segments in whatever order, on whatever link."""

from __future__ import annotations

import ipaddress
import struct
from io import StringIO
from pathlib import Path

import pytest

from protogate.cli import main
from protogate.commands.capture import conversations
from protogate_sotp.frames import LEAST, frame

SYN, ACK, FIN = 2, 16, 1
CLIENT, SERVER = ("192.0.2.1", 40000), ("192.0.2.2", 7001)
CLIENT6, SERVER6 = ("2001:db8::1", 40000), ("2001:db8::2", 7001)


def packet(source, target, number, flags, data=b"", kind=6, fragment=0):
    """An IP packet with a TCP segment that has 4 bytes of options."""
    tcp = struct.pack("!HHIIBBHHHI", source[1], target[1], number % (1 << 32), 0, 6 << 4, flags, 0, 0, 0, 0) + data
    hosts = [ipaddress.ip_address(host).packed for host, _ in (source, target)]
    if len(hosts[0]) == 4:
        return struct.pack("!BBHHHBBH", 0x45, 0, 20 + len(tcp), 0, fragment, 9, kind, 0) + b"".join(hosts) + tcp
    return struct.pack("!IHBB", 6 << 28, len(tcp), kind, 9) + b"".join(hosts) + tcp


ETHERNET = {4: b"\0" * 12 + b"\x08\x00", 6: b"\0" * 12 + b"\x86\xdd"}
LINKS = {
    "ethernet": (1, lambda made: ETHERNET[made[0] >> 4] + made + b"\0" * 6),  # padded, as short frames are
    "vlan": (1, lambda made: b"\0" * 12 + b"\x81\x00\x00\x07" + ETHERNET[made[0] >> 4][12:] + made),
    "any": (113, lambda made: b"\0" * 14 + ETHERNET[made[0] >> 4][12:] + made),
    "any2": (276, lambda made: ETHERNET[made[0] >> 4][12:] + b"\0" * 18 + made),
    "bsd": (0, lambda made: b"\0\0\0\2" + made),
    "ip": (101, lambda made: made),
}


def capture(packets, link="ethernet", order="<", magic=0xA1B2C3D4):
    """A file."""
    number, wrap = LINKS[link]
    out = struct.pack(f"{order}IHHiIII", magic, 2, 4, 0, 0, 65535, number)
    for made in map(wrap, packets):
        out += struct.pack(f"{order}IIII", 0, 0, len(made), len(made)) + made
    return out


def talk(client=CLIENT, server=SERVER, first=1000, asked=(b"one", b"two"), said=(b"three",)):
    """The packets of a conversation."""
    out = [packet(client, server, first, SYN), packet(server, client, 5, SYN | ACK)]
    at = first + 1
    for piece in asked:
        out.append(packet(client, server, at, ACK, piece))
        at += len(piece)
    at = 6
    for piece in said:
        out.append(packet(server, client, at, ACK, piece))
        at += len(piece)
    return [*out, packet(client, server, at, FIN | ACK)]


def read(data):
    return [(str(made), made.client.read(), made.server and made.server.read()) for made in conversations(data)]


WHOLE = [("192.0.2.1:40000 to 192.0.2.2:7001", (b"onetwo", False), (b"three", False))]


@pytest.mark.parametrize("link", LINKS)
@pytest.mark.parametrize("order", ["<", ">"])
def test_every_link_and_byte_order(link: str, order: str) -> None:
    assert read(capture(talk(), link, order)) == WHOLE
    assert read(capture(talk(), link, order, 0xA1B23C4D)) == WHOLE
    (found,) = read(capture(talk(CLIENT6, SERVER6), link, order))
    assert found == ("[2001:db8::1]:40000 to [2001:db8::2]:7001", *WHOLE[0][1:])


def test_segments_come_late_twice_and_overlapping() -> None:
    syn, back, one, two, three, fin = talk()
    more = packet(CLIENT, SERVER, 1002, ACK, b"netwo, and")
    assert read(capture([syn, syn, back, two, back, three, one, one, two, fin])) == WHOLE
    assert read(capture([syn, back, two, one, more, three])) == [(WHOLE[0][0], (b"onetwo, and", False), WHOLE[0][2])]


def test_sequence_numbers_wrap() -> None:
    assert read(capture(talk(first=(1 << 32) - 3))) == WHOLE


def test_what_follows_a_gap_is_left_out() -> None:
    syn, back, _, two, three, _ = talk(asked=(b"one", b"two"))
    assert read(capture([syn, back, two, three])) == [(WHOLE[0][0], (b"", True), (b"three", False))]


def test_the_same_ports_may_be_used_again() -> None:
    again = talk(first=77_000, asked=(b"again",), said=())
    assert [found[1][0] for found in read(capture([*talk(), *again]))] == [b"onetwo", b"again"]


def test_what_is_no_whole_segment_of_a_known_connection_is_passed_over() -> None:
    syn, back, *rest = talk()
    others = [
        packet(CLIENT, SERVER, 1001, ACK, b"udp", kind=17),
        packet(CLIENT6, SERVER6, 1001, ACK, b"udp", kind=17),
        packet(CLIENT, SERVER, 1001, ACK, b"a fragment", fragment=0x2000),
        packet(CLIENT, ("192.0.2.3", 1), 1001, ACK, b"began before"),
        packet(CLIENT, SERVER, 1001, ACK, b"cut off")[:-1],
        b"\x45",
    ]
    assert read(capture([syn, back, *others, *rest], "ip")) == WHOLE
    assert read(capture([syn, packet(SERVER, CLIENT, 9, ACK, b"no SYN before it"), back, *rest])) == WHOLE


def test_a_server_that_does_not_answer_is_none() -> None:
    assert read(capture(talk()[:1])) == [(WHOLE[0][0], (b"", False), None)]


@pytest.mark.parametrize("size", [4, 23, 30, 45])
def test_a_file_that_is_cut_off(size: int) -> None:
    with pytest.raises(ValueError, match="the capture is cut off"):
        conversations(capture(talk())[:size])


def decode(path: Path) -> tuple[int, list[str]]:
    out = StringIO()
    return main(["decode", "sotp", str(path)], out), out.getvalue().splitlines()


def test_both_sides_of_each_connection_are_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, ping, pong = tmp_path / "all.pcap", frame(7, 0, 0, b"12345678"), frame(8, 0, 0, b"12345678")
    http = talk(("192.0.2.1", 40001), SERVER, asked=(b"GET / HTTP/1.1\r\n",), said=())
    sotp = talk(asked=(LEAST.pack()[:7], LEAST.pack()[7:] + ping), said=(LEAST.pack(), pong))
    path.write_bytes(capture([*http, *sotp]))
    status, lines = decode(path)
    hello = next(line[2:] for line in lines if "HELLO" in line)
    assert (status, lines) == (
        0,
        [
            "192.0.2.1:40001 to 192.0.2.2:7001: not sotp",
            "192.0.2.1:40000 to 192.0.2.2:7001",
            f"> {hello}",
            "> 40: PING: 3132333435363738",
            f"< {hello}",
            "< 40: PONG: 3132333435363738",
        ],
    )
    path.write_bytes(capture(talk(asked=(LEAST.pack(), ping[:5]), said=(LEAST.pack(),))))
    status, lines = decode(path)
    assert (status, lines[2:]) == (1, ["> WRONG: at 40: a frame that is cut off after 5 bytes", f"< {hello}"])
    syn, back, one, _, three, _ = talk(asked=(LEAST.pack(), b"lost"), said=(LEAST.pack(),))
    path.write_bytes(capture([syn, back, one, packet(CLIENT, SERVER, 2000, ACK, b"x"), three]))
    status, lines = decode(path)
    assert (status, lines[1:3]) == (1, [f"> {hello}", "> the capture lost what comes next"])
    assert capsys.readouterr().err == ""


def test_a_capture_that_shows_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "all.pcap"
    path.write_bytes(capture([]))
    assert decode(path) == (1, [])
    assert "no connection from its beginning on" in capsys.readouterr().err
    path.write_bytes(capture(talk())[:20] + struct.pack("<I", 147) + capture(talk())[24:])
    assert decode(path) == (1, [])
    assert "a kind of link that is not known here: 147" in capsys.readouterr().err
