"""Who really asks (cases: spoofed lists, broken elements, two kinds of lists)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protogate.errors import Abort
from protogate.exchange.forwarding import ROUNDS, Forwarding, _kinds, plain
from protogate.message import Headers, Peer, Request
from protogate.uri import LONGEST

TRUSTED = ["10.0.0.0/8", "2001:db8::/32"]


def request(*fields: tuple[bytes, bytes], ip: str = "10.0.0.1", authority: bytes = b"a.test") -> Request:
    return Request(b"GET", b"/", fields, authority=authority, protocol="HTTP/1.1", peer=Peer(ip, 4711))


def xff(value: bytes, *more: bytes) -> list[tuple[bytes, bytes]]:
    return [(b"x-forwarded-for", line) for line in (value, *more)]


@pytest.mark.parametrize(
    ("lines", "source"),
    [
        ([b"203.0.113.9"], "203.0.113.9"),
        ([b"10.0.0.1, 203.0.113.9"], "203.0.113.9"),  # what the client claimed is to the left
        ([b"203.0.113.9, 10.1.1.1"], "203.0.113.9"),
        ([b"1.2.3.4, 203.0.113.9, 10.1.1.1, 10.2.2.2"], "203.0.113.9"),
        ([b"1.2.3.4", b"203.0.113.9"], "203.0.113.9"),  # two lines are one list
        ([b"10.3.3.3, 10.1.1.1"], "10.3.3.3"),  # all trusted: the leftmost
        ([b"not-an-ip, 203.0.113.9"], "203.0.113.9"),
        ([b"203.0.113.9, not-an-ip"], "10.0.0.1"),  # broken on the right: nothing is believed
        ([b"203.0.113.9, not-an-ip, 10.1.1.1"], "10.1.1.1"),
        ([b""], "10.0.0.1"),
        ([b","], "10.0.0.1"),
        ([b"203.0.113.9,"], "10.0.0.1"),
        ([b"203.0.113.9:1234"], "203.0.113.9"),
        ([b"[2001:db9::1]:443"], "2001:db9::1"),
        ([b"2001:DB9:0::1"], "2001:db9::1"),
        ([b"::ffff:203.0.113.9"], "203.0.113.9"),
        ([b"fe80::1%eth0"], "10.0.0.1"),
        ([b"203.0.113.009"], "10.0.0.1"),
        ([b"203.0.113.9\x00"], "10.0.0.1"),
    ],
)
def test_list_is_read_from_the_right_over_trusted_proxies(lines: list[bytes], source: str) -> None:
    forwarding = Forwarding("edge", TRUSTED)
    assert forwarding.source(request(*xff(*lines))).ip == source


@pytest.mark.parametrize(
    ("value", "source"),
    [
        (b"for=203.0.113.9", "203.0.113.9"),
        (b'for=injected;by=", for=203.0.113.9', "203.0.113.9"),  # an unbalanced quote to the left
        (b"for=203.0.113.9;proto=https;host=a.test", "203.0.113.9"),
        (b'For="[2001:db9::1]:4711"', "2001:db9::1"),
        (b"for=203.0.113.9, for=10.1.1.1", "203.0.113.9"),
        (b"for=203.0.113.9, for=_hidden", "10.0.0.1"),
        (b"for=203.0.113.9, for=unknown", "10.0.0.1"),
        (b"for=203.0.113.9, by=10.0.0.1", "10.0.0.1"),
        (b'for="203.0.113.9', "10.0.0.1"),
        (b"for 203.0.113.9", "10.0.0.1"),
    ],
)
def test_forwarded_is_read_likewise_where_it_is_the_trusted_one(value: bytes, source: str) -> None:
    forwarding = Forwarding("edge", TRUSTED, "forwarded")
    fields = [(b"forwarded", value), (b"x-forwarded-for", b"6.6.6.6")]
    assert forwarding.source(request(*fields)).ip == source


def test_the_other_kind_of_list_is_not_believed() -> None:
    forwarding = Forwarding("edge", TRUSTED)
    assert forwarding.source(request((b"forwarded", b"for=6.6.6.6"))).ip == "10.0.0.1"


@pytest.mark.parametrize("trusted", [[], TRUSTED])
def test_strangers_are_not_believed(trusted: list[str]) -> None:
    forwarding = Forwarding("edge", trusted)
    asked = request(
        *xff(b"10.0.0.9"),
        (b"x-forwarded-proto", b"https"),
        (b"x-real-ip", b"10.0.0.9"),
        (b"forwarded", b"for=10.0.0.9"),
        (b"x-forwarded-host", b"evil.test"),
        ip="192.0.2.7",
    )
    source = forwarding.source(asked)
    assert (source.ip, source.port, source.tls, asked.scheme) == ("192.0.2.7", 4711, False, b"http")
    forwarding.write(asked, source)
    assert asked.headers == [
        (b"x-forwarded-for", b"192.0.2.7"),
        (b"x-forwarded-proto", b"http"),
        (b"x-forwarded-host", b"a.test"),
        (b"forwarded", b"for=192.0.2.7;host=a.test;proto=http"),
        (b"via", b"1.1 edge"),
    ]


def test_one_line_of_each_leaves() -> None:
    forwarding = Forwarding("edge", TRUSTED)
    asked = request(
        *xff(b"6.6.6.6, bad", b"203.0.113.9", b"10.1.1.1"),
        (b"x-forwarded-proto", b"https"),
        (b"x-forwarded-host", b"shop.test:8443"),
        (b"via", b"1.0 a"),
        (b"via", b"2 b"),
    )
    source = forwarding.source(asked)
    assert source.tls
    forwarding.write(asked, source)
    assert asked.headers == [
        (b"x-forwarded-for", b"203.0.113.9, 10.1.1.1, 10.0.0.1"),
        (b"x-forwarded-proto", b"https"),
        (b"x-forwarded-host", b"shop.test:8443"),
        (b"forwarded", b'for=203.0.113.9, for=10.1.1.1, for=10.0.0.1;host="shop.test:8443";proto=https'),
        (b"via", b"1.0 a, 2 b, 1.1 edge"),
    ]


def test_told_host_and_scheme_are_checked() -> None:
    forwarding = Forwarding("edge", TRUSTED)
    asked = request((b"x-forwarded-proto", b"gopher"), (b"x-forwarded-host", b'a"b'))
    forwarding.write(asked, forwarding.source(asked))
    assert asked.headers.get(b"x-forwarded-proto") == b"http"
    assert asked.headers.get(b"x-forwarded-host") == b"a.test"


def test_scheme_and_host_of_forwarded_are_those_of_the_last_element() -> None:
    forwarding = Forwarding("edge", TRUSTED, "forwarded")
    asked = request((b"forwarded", b'for=1.1.1.1;proto=http, for=203.0.113.9;proto=https;host="shop.test"'))
    assert forwarding.source(asked).tls
    forwarding.write(asked, asked.peer)
    assert asked.headers.get(b"x-forwarded-host") == b"shop.test"
    broken = request((b"forwarded", b"proto"))
    assert not forwarding.source(broken).tls


def test_without_host_no_host_is_told() -> None:
    asked = request(ip="2001:db9::7", authority=b"")
    Forwarding("my edge", ()).write(asked, asked.peer)
    assert asked.headers == [
        (b"x-forwarded-for", b"2001:db9::7"),
        (b"x-forwarded-proto", b"http"),
        (b"forwarded", b'for="[2001:db9::7]";proto=http'),
        (b"via", b"1.1 my-edge"),
    ]


def test_unix_peers_are_trusted_once_anybody_is() -> None:
    asked = request(*xff(b"203.0.113.9"), ip="")
    assert Forwarding("edge", TRUSTED).source(asked).ip == "203.0.113.9"
    assert Forwarding("edge").source(asked).ip == ""
    forwarding = Forwarding("edge", TRUSTED)
    forwarding.write(asked, asked.peer)
    assert asked.headers.get(b"x-forwarded-for") == b"203.0.113.9, unknown"


def test_names_of_protocols_in_via() -> None:
    forwarding = Forwarding("edge")
    assert [forwarding.via(name) for name in ("HTTP/1.1", "HTTP/2", "SOTP/1", "")] == [
        b"1.1 edge",
        b"2 edge",
        b"SOTP/1 edge",
        b"1.1 edge",
    ]


def test_memories_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    _kinds.clear()  # what other tests left there
    monkeypatch.setattr("protogate.exchange.forwarding.KNOWN", 3)
    forwarding = Forwarding("edge", TRUSTED)
    for number in range(10):
        forwarding.trusts(f"192.0.2.{number}")
        asked = request((b"x-%d" % number, b"a"), (b"x-" + b"y" * LONGEST, b"a"), ip=f"192.0.2.{number}")
        forwarding.write(asked, asked.peer)
        assert len(forwarding._trusts) <= 3
        assert len(forwarding._fresh) <= 3
        assert 0 < len(_kinds) <= 3
        assert max(map(len, _kinds)) <= LONGEST
    assert not forwarding.trusts("no address")


def test_a_host_that_is_no_name_is_not_remembered() -> None:
    forwarding = Forwarding("edge")
    for size, known in ((LONGEST, 1), (LONGEST + 1, 1), (8000, 1)):
        asked = request(ip="192.0.2.1")
        asked.authority = b"a" * size
        forwarding.write(asked, asked.peer)
        assert asked.headers.get(b"x-forwarded-host") == asked.authority
        assert len(forwarding._fresh) == known


@given(st.lists(st.binary(max_size=40), max_size=4), st.sampled_from(["x-forwarded-for", "forwarded"]))
def test_nothing_that_a_peer_sends_breaks_it_or_leaves_as_it_came(lines: list[bytes], header: str) -> None:
    forwarding = Forwarding("edge", TRUSTED, header)
    asked = request(*((header.encode(), line) for line in lines))
    source = forwarding.source(asked)
    assert plain(source.ip) == source.ip
    forwarding.write(asked, source)
    for name in (b"x-forwarded-for", b"forwarded"):
        (value,) = Headers(asked.headers).all(name)
        for element in value.decode("latin-1").split(", ")[:1]:
            assert plain(element.split(";")[0].removeprefix("for=").strip('"')) is not None


@pytest.mark.parametrize(
    "name",
    [
        b"x_forwarded_for",
        b"x-forwarded_for",
        b"x_forwarded-host",
        b"x_real_ip",
        b"x-real_ip",
        b"x_forwarded_port",
        b"x.forwarded.for",
        b"x~real!ip",
    ],
)
def test_other_spellings_of_what_is_told_are_dropped(name: bytes) -> None:
    """For CGI and its like they are the same."""
    asked = request((name, b"192.0.2.66"), ip="203.0.113.9")
    Forwarding("edge").write(asked, asked.peer)
    assert name not in dict(asked.headers)
    assert asked.headers.all(b"x-forwarded-for") == [b"203.0.113.9"]


def test_an_element_that_names_two_addresses_is_broken() -> None:
    forwarding = Forwarding("edge", TRUSTED, "forwarded")
    assert forwarding.source(request((b"forwarded", b"for=203.0.113.9;for=192.0.2.1"))).ip == "10.0.0.1"


def test_what_goes_round_in_circles_is_stopped() -> None:
    forwarding = Forwarding("edge.1", TRUSTED)
    asked = request()
    for _ in range(ROUNDS):
        forwarding.write(asked, asked.peer)
    with pytest.raises(Abort) as caught:
        forwarding.write(asked, asked.peer)
    assert (caught.value.status, caught.value.error) == (502, "proxy_loop_detected")


@pytest.mark.parametrize(
    "via", [b"1.1 edge-1", b"1.1 xedge.1", b"1.1 other (edge.1)", b"edge.1 other", b"1.1 edge.1:80"]
)
def test_others_are_not_taken_for_ourselves(via: bytes) -> None:
    asked = request((b"via", b", ".join([via] * 20)), (b"via", b"HTTP/2 edge.1 (x)"))
    Forwarding("edge.1").write(asked, asked.peer)
    assert len(asked.headers.all(b"via")[0].split(b",")) == 22


CLAIMS = [
    *(b"client-cert", b"client-cert-chain", b"x-client-cert", b"x-client-certificate-dn", b"x_client_cert"),
    *(b"x-ssl-client-verify", b"ssl-client-s-dn", b"ssl_client_cert", b"x-tls-client-fingerprint"),
    b"x-forwarded-client-cert",
]
"""What somebody may say about the certificate of a client."""
OTHERS = [b"x-client-version", b"client-id", b"ssl-clients", b"x-forwarded", b"x-ssl-cipher"]


@pytest.mark.parametrize("trusted", [[], TRUSTED])
def test_nobody_but_a_trusted_proxy_is_believed_about_certificates(trusted: list[str]) -> None:
    forwarding = Forwarding("edge", trusted)
    asked = request(*((name, b"1") for name in [*CLAIMS, *OTHERS]), ip="203.0.113.9")
    forwarding.source(asked)
    assert [name for name, _ in asked.headers] == OTHERS


def test_what_a_trusted_proxy_says_about_certificates_is_passed_on() -> None:
    forwarding = Forwarding("edge", TRUSTED)
    asked = request(*((name, b"1") for name in CLAIMS))
    forwarding.write(asked, forwarding.source(asked))
    assert set(CLAIMS) <= {name for name, _ in asked.headers}


def test_what_a_module_says_about_certificates_is_passed_on() -> None:
    forwarding = Forwarding("edge")
    asked = request((b"x-forwarded-client-cert", b"forged"), (b"via", b"1.1 other"), ip="203.0.113.9")
    client = forwarding.source(asked)
    asked.headers.extend([(b"client-cert", b":AA==:"), (b"x-forwarded-client-cert", b"Hash=00")])
    forwarding.write(asked, client)
    assert asked.headers.get(b"client-cert") == b":AA==:"
    assert asked.headers.all(b"x-forwarded-client-cert") == [b"Hash=00"]
