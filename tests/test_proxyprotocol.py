"""The PROXY protocol: what is read, what is refused, what is sent."""

from __future__ import annotations

import datetime
import ipaddress
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import NameOID
from hypothesis import given
from hypothesis import strategies as st

from protogate.message import Peer
from protogate.proxyprotocol import BLOCK, LINE, SIGNATURE, Header, Malformed, Named, Reader, crc32c, encode
from protogate.tls.session import Certificate, Session

FOUR = bytes((192, 0, 2, 1, 198, 51, 100, 7)) + (54321).to_bytes(2) + (443).to_bytes(2)
SIX = ipaddress.ip_address("2001:db8::1").packed + ipaddress.ip_address("2001:db8::2").packed + b"\x10\x01\x01\xbb"
UNIX = b"/run/a".ljust(108, b"\0") + b"/run/b".ljust(108, b"\0")


def second(command: int, kind: int, block: bytes) -> bytes:
    """A header of version 2."""
    return SIGNATURE + bytes((command, kind)) + len(block).to_bytes(2) + block


def vector(kind: int, value: bytes) -> bytes:
    return bytes((kind,)) + len(value).to_bytes(2) + value


def tls(client: int = 1, verify: int = 0, inside: bytes = b"") -> bytes:
    return vector(0x20, bytes((client,)) + verify.to_bytes(4) + inside)


def read(data: bytes) -> Header:
    """What one reader makes of it at once."""
    header = Reader().feed(data)
    assert header is not None
    return header


def slowly(data: bytes) -> None:
    """Read it byte by byte; it has no end."""
    reader = Reader()
    for at in range(len(data)):
        assert reader.feed(data[at : at + 1]) is None


def told(data: bytes) -> Peer:
    peer = read(data).peer
    assert peer is not None
    return peer


def facts(peer: Peer | None) -> Any:
    """All that a peer says, for comparing."""
    if peer is None:
        return None
    session = peer.session
    about = session and (session.version, session.cipher, session.alpn, session.name)
    certificate = session.certificate.subject if session is not None and session.certificate is not None else None
    return peer.ip, peer.port, peer.here, peer.tls, about, certificate


LINES = {
    b"PROXY TCP4 192.0.2.1 198.51.100.7 54321 443\r\n": ("192.0.2.1", 54321, ("198.51.100.7", 443)),
    b"PROXY TCP4 255.255.255.255 255.255.255.255 65535 65535\r\n": (
        "255.255.255.255",
        65535,
        ("255.255.255.255", 65535),
    ),
    b"PROXY TCP4 0.0.0.0 0.0.0.0 0 0\r\n": ("0.0.0.0", 0, ("0.0.0.0", 0)),
    b"PROXY TCP6 2001:DB8:0::1 ::1 1 2\r\n": ("2001:db8::1", 1, ("::1", 2)),
    b"PROXY TCP6 ::ffff:192.0.2.1 ::ffff:198.51.100.7 1 2\r\n": ("192.0.2.1", 1, ("198.51.100.7", 2)),
    b"PROXY UNKNOWN\r\n": None,
    b"PROXY UNKNOWN ffff:f...f:ffff ffff:f...f:ffff 65535 65535\r\n": None,
}
BLOCKS = {
    second(0x21, 0x11, FOUR): ("192.0.2.1", 54321, ("198.51.100.7", 443)),
    second(0x21, 0x12, FOUR): ("192.0.2.1", 54321, ("198.51.100.7", 443)),
    second(0x21, 0x21, SIX): ("2001:db8::1", 4097, ("2001:db8::2", 443)),
    second(0x21, 0x11, FOUR + vector(4, b"pad") + vector(0xE0, b"") + vector(5, b"id")): (
        "192.0.2.1",
        54321,
        ("198.51.100.7", 443),
    ),
    second(0x21, 0x31, UNIX): None,
    second(0x20, 0x00, b""): None,
    second(0x20, 0x11, FOUR): None,
    second(0x20, 0x21, b"what is there of a LOCAL one is not looked at"): None,
    second(0x21, 0x00, b"nor of an unknown one"): None,
    second(0x21, 0x10, FOUR): None,
    second(0x21, 0x01, FOUR): None,
}


@pytest.mark.parametrize("data", [*LINES, *BLOCKS])
def test_a_header_is_read_however_it_is_split_and_nothing_behind_it_is_taken(data: bytes) -> None:
    expected = {**LINES, **BLOCKS}[data]
    for cut in range(len(data)):
        reader = Reader()
        if cut:
            assert reader.feed(data[:cut]) is None
        header = reader.feed(data[cut:] + b"GET / HTTP/1.1\r\n")
        assert header is not None
        assert (header.found, header.rest) == (True, b"GET / HTTP/1.1\r\n")
        found = header.peer
        assert (found and (found.ip, found.port, found.here)) == expected
        assert found is None or not found.tls
    reader = Reader()
    *most, last = (data[at : at + 1] for at in range(len(data)))
    assert all(reader.feed(byte) is None for byte in most)
    header = reader.feed(last)
    assert header is not None
    assert header.rest == b""


@pytest.mark.parametrize(
    "data", [b"GET / HTTP/1.1\r\n", b"POST", b"PROXIES", b"\r\nGET", b"\r\n\r\n\0\r\nQUIX", b"\x16\x03\x01"]
)
def test_what_does_not_begin_like_one_is_no_header_however_it_is_split(data: bytes) -> None:
    assert read(data) == (False, None, data)
    reader = Reader()
    for at in range(len(data)):
        header = reader.feed(data[at : at + 1])
        if header is not None:
            assert (header.found, header.rest) == (False, data[: at + 1])
            return
    raise AssertionError("undecided")


@pytest.mark.parametrize(
    "line",
    [
        b"PROXY \r\n",
        b"PROXY TCP4\r\n",
        b"PROXY TCP5 192.0.2.1 198.51.100.7 1 2\r\n",
        b"PROXY tcp4 192.0.2.1 198.51.100.7 1 2\r\n",
        b"PROXY TCP4  192.0.2.1 198.51.100.7 1 2\r\n",
        b"PROXY TCP4 192.0.2.1 198.51.100.7 1 2 \r\n",
        b"PROXY TCP4 192.0.2.1 198.51.100.7 1\r\n",
        b"PROXY TCP4 192.0.2.1 198.51.100.7 01 2\r\n",
        b"PROXY TCP4 192.0.2.1 198.51.100.7 +1 2\r\n",
        b"PROXY TCP4 192.0.2.1 198.51.100.7 65536 2\r\n",
        b"PROXY TCP4 192.0.2.1 198.51.100.7 1 99999\r\n",
        b"PROXY TCP4 192.0.2.01 198.51.100.7 1 2\r\n",
        b"PROXY TCP4 192.0.2.256 198.51.100.7 1 2\r\n",
        b"PROXY TCP4 192.0.2.1.1 198.51.100.7 1 2\r\n",
        b"PROXY TCP4 ::1 ::1 1 2\r\n",
        b"PROXY TCP6 192.0.2.1 198.51.100.7 1 2\r\n",
        b"PROXY TCP6 fe80::1%eth0 ::1 1 2\r\n",
        b"PROXY TCP6 ::1::2 ::1 1 2\r\n",
        b"PROXY TCP4 192.0.2.1 198.51.100.7 1 2\n\r\n",
        b"PROXY UNKNOWNS\r\n",
        b"PROXY UNKNOWN \n\r\n",
        b"PROXY UNKNOWN " + b"x" * LINE,
        b"PROXY TCP4 " + b"1" * LINE,
    ],
)
def test_a_line_that_is_not_in_its_form_is_refused(line: bytes) -> None:
    with pytest.raises(Malformed):
        Reader().feed(line)
    with pytest.raises(Malformed):
        slowly(line)


def test_a_line_has_an_end_and_a_most() -> None:
    longest = b"PROXY UNKNOWN " + b"x" * (LINE - 16)
    assert read(longest + b"\r\n") == (True, None, b"")
    reader = Reader()
    assert reader.feed(longest) is None
    with pytest.raises(Malformed, match="107"):
        reader.feed(b"x\r\n")


@pytest.mark.parametrize(
    "data",
    [
        second(0x11, 0x11, FOUR),
        second(0x31, 0x11, FOUR),
        second(0x22, 0x11, FOUR),
        second(0x2F, 0x11, FOUR),
        second(0x21, 0x41, FOUR),
        second(0x21, 0x13, FOUR),
        second(0x20, 0xFF, b""),
        second(0x21, 0x11, FOUR[:-1]),
        second(0x21, 0x21, SIX[:-1]),
        second(0x21, 0x31, UNIX[:-1]),
        second(0x21, 0x11, FOUR + b"\x04"),
        second(0x21, 0x11, FOUR + b"\x04\0"),
        second(0x21, 0x11, FOUR + b"\x04\0\x01"),
        second(0x21, 0x31, UNIX + b"\x04\0\x01"),
        second(0x21, 0x11, FOUR + vector(1, b"h2") * 2),
        second(0x21, 0x11, FOUR + tls() * 2),
        second(0x21, 0x11, FOUR + vector(0x20, b"\x01\0\0\0")),
        second(0x21, 0x11, FOUR + tls(inside=b"\x21")),
        second(0x21, 0x11, FOUR + tls(inside=vector(0x21, b"TLS\n"))),
        second(0x21, 0x11, FOUR + tls(inside=vector(0x21, b""))),
        second(0x21, 0x11, FOUR + tls(inside=vector(0x23, b"a b"))),
        second(0x21, 0x11, FOUR + tls(inside=vector(0x23, b"x" * 65))),
        second(0x21, 0x11, FOUR + tls(inside=vector(0x22, b"a") * 2)),
        second(0x21, 0x11, FOUR + tls(client=3, inside=vector(0x22, b"\xff"))),
        second(0x21, 0x11, FOUR + vector(2, b"\xff") + tls()),
        second(0x21, 0x11, FOUR + vector(3, b"\0\0\0")),
    ],
)
def test_what_version_2_does_not_allow_is_refused(data: bytes) -> None:
    with pytest.raises(Malformed):
        Reader().feed(data)
    with pytest.raises(Malformed):
        slowly(data)


def test_a_block_has_a_most() -> None:
    fits = SIGNATURE + b"\x20\0" + BLOCK.to_bytes(2)
    assert Reader().feed(fits + bytes(BLOCK - 1)) is None
    assert read(fits + bytes(BLOCK) + b"x") == (True, None, b"x")
    with pytest.raises(Malformed, match=str(BLOCK)):
        Reader().feed(SIGNATURE + b"\x20\0" + (BLOCK + 1).to_bytes(2))


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"", 0),
        (b"123456789", 0xE3069283),
        (bytes(32), 0x8A9136AA),  # RFC 3720, B.4
        (b"\xff" * 32, 0x62A8AB43),
        (bytes(range(32)), 0x46DD794E),
    ],
)
def test_the_checksum_is_that_of_the_rfc(data: bytes, expected: int) -> None:
    assert crc32c(data) == expected


@pytest.mark.parametrize("behind", [b"", vector(4, b"pad") + tls()])
def test_a_checksum_is_verified_over_the_whole_header(behind: bytes) -> None:
    before = second(0x21, 0x11, FOUR + vector(1, b"h2") + vector(3, bytes(4)) + behind)
    at = len(before) - len(behind) - 4
    data = before[:at] + crc32c(before).to_bytes(4) + before[at + 4 :]
    assert told(data).ip == "192.0.2.1"
    for place in range(16, len(data)):
        if place in range(at - 8, at):  # the lengths and types of what is before: read before the checksum is
            continue
        with pytest.raises(Malformed):
            Reader().feed(data[:place] + bytes((data[place] ^ 1,)) + data[place + 1 :])


def test_what_is_told_of_tls_is_kept() -> None:
    inside = vector(0x21, b"TLSv1.3") + vector(0x23, b"TLS_AES_128_GCM_SHA256") + vector(0x24, b"RSA-SHA256")
    peer = told(second(0x21, 0x11, FOUR + vector(1, b"h2") + vector(2, b"Api.Example.com") + tls(1, 1, inside)))
    assert facts(peer)[3:] == (True, ("TLSv1.3", "TLS_AES_128_GCM_SHA256", b"h2", "api.example.com"), None)


def test_a_client_without_tls_has_none_whatever_else_is_told() -> None:
    peer = told(second(0x21, 0x11, FOUR + vector(1, b"h2") + vector(2, b"api.test") + tls(6, 0, vector(0x22, b"x"))))
    assert (peer.tls, peer.session) == (False, None)


@pytest.mark.parametrize(
    ("client", "verify", "proved"), [(7, 0, True), (3, 0, True), (5, 0, True), (1, 0, False), (7, 1, False)]
)
def test_a_certificate_counts_when_the_proxy_has_verified_it(client: int, verify: int, proved: bool) -> None:
    peer = told(second(0x21, 0x11, FOUR + tls(client, verify, vector(0x22, "Größe, 1".encode()))))
    assert peer.session is not None
    certificate = peer.session.certificate
    assert (certificate is not None) is proved
    if certificate is not None:
        assert certificate.subject == "CN=Größe\\, 1"
        assert (certificate.issuer, certificate.serial, certificate.san) == ("", "", ())
        assert (certificate.fingerprint, certificate.encoded, certificate.der) == ("", "", b"")


def test_a_common_name_that_is_none_leaves_the_subject_empty() -> None:
    assert [Named(name).subject for name in ("", "x" * 65, "a")] == ["", "", "CN=a"]


@pytest.fixture(scope="module")
def certificate() -> Certificate:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name(
        [x509.NameAttribute(NameOID.ORGANIZATION_NAME, "Example"), x509.NameAttribute(NameOID.COMMON_NAME, "a+b, c")]
    )
    start = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
    made = x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key()).serial_number(7)
    made = made.not_valid_before(start).not_valid_after(start + datetime.timedelta(days=1))
    return Certificate(made.sign(key, hashes.SHA256()).public_bytes(Encoding.DER))


def test_a_certificate_that_is_passed_on_whole_is_kept_whole(certificate: Certificate) -> None:
    inside = vector(0x22, b"a+b, c") + vector(0x28, certificate.der)
    session = told(second(0x21, 0x11, FOUR + tls(7, 0, inside))).session
    assert session is not None
    assert session.certificate is not None
    assert session.certificate.der == certificate.der


# -- sending


def test_version_1_tells_the_addresses() -> None:
    assert encode("v1", Peer("192.0.2.1", 54321, here=("198.51.100.7", 443))) == next(iter(LINES))
    assert encode("v1", Peer("2001:db8::1", 1, here=("fe80::1%eth0", 2))) == b"PROXY TCP6 2001:db8::1 fe80::1 1 2\r\n"
    assert encode("v1", Peer("192.0.2.1", 5)) == b"PROXY TCP4 192.0.2.1 0.0.0.0 5 0\r\n"


def test_version_2_tells_the_addresses() -> None:
    assert encode("v2", Peer("192.0.2.1", 54321, here=("198.51.100.7", 443))) == second(0x21, 0x11, FOUR)
    assert encode("v2", Peer("2001:db8::1", 4097, here=("2001:db8::2", 443))) == second(0x21, 0x21, SIX)


@pytest.mark.parametrize("version", ["v1", "v2"])
def test_addresses_of_two_families_are_told_as_one(version: str) -> None:
    peer = told(encode(version, Peer("192.0.2.1", 1, here=("2001:db8::2", 2))))
    assert facts(peer)[:3] == ("192.0.2.1", 1, ("2001:db8::2", 2))


@pytest.mark.parametrize("peer", [Peer(), Peer("what is this", 7)])
def test_who_has_no_address_is_unknown(peer: Peer) -> None:
    assert encode("v1", peer) == b"PROXY UNKNOWN\r\n"
    assert encode("v2", peer) == second(0x21, 0, b"")


def test_a_verified_certificate_is_told_by_its_common_name(certificate: Certificate) -> None:
    session = Session("TLSv1.3", "x")
    session.certificate = certificate
    peer = told(encode("v2", Peer("192.0.2.1", 1, True, session)))
    assert peer.session is not None
    assert peer.session.certificate is not None
    assert peer.session.certificate.subject == "CN=a\\+b\\, c"
    session.certificate = Certificate(b"none")
    assert facts(told(encode("v2", Peer("192.0.2.1", 1, True, session))))[-1] == ""


class Odd(Certificate):
    """Has a name that is none."""

    subject = "CN=" + "x" * 65  # type: ignore[assignment]


def test_what_is_not_known_of_tls_is_left_out() -> None:
    assert encode("v2", Peer("192.0.2.1", 54321, True, here=("198.51.100.7", 443))) == second(
        0x21, 0x11, FOUR + tls(1, 1)
    )
    session = Session("", "")
    session.certificate = Odd(b"")
    assert encode("v2", Peer("192.0.2.1", 54321, True, session, ("198.51.100.7", 443))) == second(
        0x21, 0x11, FOUR + tls(7, 0, vector(0x22, b""))
    )


addresses = st.one_of(st.ip_addresses(v=4), st.ip_addresses(v=6).filter(lambda ip: ip.ipv4_mapped is None))
ports = st.integers(0, 65535)
printed = st.text(st.characters(min_codepoint=33, max_codepoint=126), max_size=64)


@st.composite
def peers(draw: st.DrawFn) -> Peer:
    session = None
    secure = draw(st.booleans())
    if secure:
        alpn = draw(st.none() | st.binary(min_size=1, max_size=255))
        name = draw(st.text(st.characters(codec="utf-8"), max_size=60)).lower()
        session = Session(draw(printed), draw(printed), alpn, name.lower())
        if draw(st.booleans()):
            session.certificate = Named(draw(st.text('abcdXYZ019 ,+=#"\\<>;äß', min_size=1, max_size=64)))
    here = str(draw(addresses)), draw(ports)
    return Peer(str(draw(addresses)), draw(ports), secure, session, here)


@given(peers(), st.binary(max_size=20))
def test_what_is_sent_is_read_as_it_was_meant(peer: Peer, rest: bytes) -> None:
    plain = facts(peer)[:3]
    first = read(encode("v1", peer) + rest)
    assert first.rest == rest
    assert first.peer is not None
    assert facts(first.peer)[:3] == plain
    header = read(encode("v2", peer) + rest)
    assert header.rest == rest
    assert header.peer is not None
    if peer.session is not None:
        peer.session.name = peer.session.name.lower()
    assert facts(header.peer) == facts(peer)


@given(
    st.sampled_from([b"PROXY ", b"PROXY TCP4 ", SIGNATURE, SIGNATURE + b"\x21\x11\x00\x20" + FOUR]),
    st.binary(max_size=200),
)
def test_whatever_comes_is_read_refused_or_waited_for_the_same_in_one_piece_or_in_many(
    start: bytes, end: bytes
) -> None:
    data = start + end

    def outcome(pieces: list[bytes]) -> Any:
        reader = Reader()
        for at, piece in enumerate(pieces):
            try:
                header = reader.feed(piece)
            except Malformed:
                return "malformed"
            if header is not None:
                return header.found, facts(header.peer), header.rest + b"".join(pieces[at + 1 :])
        return None

    assert outcome([data]) == outcome([data[at : at + 1] for at in range(len(data))])
