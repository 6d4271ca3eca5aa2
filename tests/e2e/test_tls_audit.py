"""
What an auditor asks of a listener with TLS and nothing but the defaults, over both libraries: list by list, by
C{openssl s_client} and by C{ssl}, as testssl.sh does.
"""

from __future__ import annotations

import re
import socket
import ssl
import time
from collections.abc import Iterator
from contextlib import suppress
from typing import Any, NamedTuple

import pytest
from h2wire import connected
from secure import REACTORS, ask, begin, client, counters, pair, shaken

from authority import Authority, rsa_key
from gateways import WITHIN, Gateway, Wire, eventually, wire
from neighbours import Neighbours, free_port, need, run

MODERN = {
    "ECDHE-ECDSA-AES128-GCM-SHA256", "ECDHE-RSA-AES128-GCM-SHA256", "ECDHE-ECDSA-AES256-GCM-SHA384",
    "ECDHE-RSA-AES256-GCM-SHA384", "ECDHE-ECDSA-CHACHA20-POLY1305", "ECDHE-RSA-CHACHA20-POLY1305",
}  # fmt: skip
WEAK = {
    "nothing secret": "NULL:@SECLEVEL=0",
    "nobody proved": "aNULL:@SECLEVEL=0",
    "export": "EXPORT:LOW:@SECLEVEL=0",
    "RC4, DES, 3DES, IDEA, SEED": "RC4:DES:3DES:IDEA:SEED:@SECLEVEL=0",
    "MD5": "MD5:@SECLEVEL=0",
    "CBC": "AES128-SHA:AES256-SHA:ECDHE+SHA1:ECDHE+SHA256+AES:ECDHE+SHA384+AES:!AESGCM:!AESCCM:@SECLEVEL=0",
    "no forward secrecy": "kRSA:@SECLEVEL=0",
    "finite fields": "DHE:@SECLEVEL=0",
    "PSK and SRP": "PSK:SRP:@SECLEVEL=0",
}


class Shop(NamedTuple):
    """
    Listeners with the defaults, but for what their names say.

    @ivar ports: by how they ask clients for certificates.
    """

    gateway: Gateway
    authority: Authority
    ports: dict[str, int]
    admin: int


@pytest.fixture(scope="module", params=REACTORS, ids=["ssl", "pyOpenSSL"])
def shop(request: pytest.FixtureRequest, company: Neighbours) -> Iterator[Shop]:
    folder = company.directory / f"audit-{request.param}"
    folder.mkdir()
    authority, admin = Authority(folder), free_port()
    certificates = [
        pair(authority.issue("shop.test", file="ec")),
        pair(authority.issue("shop.test", file="rsa", key=rsa_key())),
    ]
    modes: dict[str, dict[str, Any]] = {
        "off": {},
        "optional": {"clientAuth": {"ca": str(authority.file), "mode": "optional"}},
        "required": {"clientAuth": {"ca": str(authority.file)}},
    }
    ports = {name: free_port() for name in modes}
    settings = {
        "gateway": {"timeouts": {"tls": "2s"}},
        "listeners": [
            {"name": "web", "address": "127.0.0.1:0"},
            *(
                {
                    "name": name,
                    "address": f"127.0.0.1:{ports[name]}",
                    "protocols": ["http2", "http1"],
                    "tls": {"certificates": certificates, **more},
                }
                for name, more in modes.items()
            ),
        ],
        "modules": [
            {
                "name": "respond",
                "condition": "!request.malformed",
                "actionParam": {"status": 200, "body": "${source.certificate.verified}|${source.certificate.subject}"},
            }
        ],
        "admin": {"address": f"127.0.0.1:{admin}"},
    }
    gateway = begin(company, settings, request.param)
    yield Shop(gateway, authority, ports, admin)
    gateway.healthy()


def openssl(port: int, *arguments: str, data: bytes = b"") -> str:
    """What C{openssl s_client} says."""
    argv = [need("openssl"), "s_client", "-connect", f"127.0.0.1:{port}", "-servername", "shop.test", *arguments]
    done = run(argv, data=data, timeout=WITHIN)
    return (done.stdout + done.stderr).decode("utf-8", "replace")


# -- versions and ciphers


@pytest.mark.parametrize("version", ["-tls1", "-tls1_1"])
def test_versions_below_1_2_are_refused_with_an_alert(shop: Shop, version: str) -> None:
    said = openssl(shop.ports["off"], version, "-cipher", "ALL:@SECLEVEL=0")
    assert "alert protocol version" in said
    assert "Cipher is (NONE)" in said


def test_ssl_3_and_2_are_refused(shop: Shop) -> None:
    ciphers = b"\x00\x05\x00\x0a\xc0\x2b"
    body = bytes(32) + b"\x00" + len(ciphers).to_bytes(2, "big") + ciphers + b"\x01\x00"
    hello3 = b"\x01" + (len(body) + 2).to_bytes(3, "big") + b"\x03\x00" + body
    hello2 = b"\x80\x2e\x01\x00\x02\x00\x15\x00\x00\x00\x10" + bytes(37)
    for hello in (b"\x16\x03\x00" + len(hello3).to_bytes(2, "big") + hello3, hello2):
        with wire(shop.ports["off"]) as old:
            old.send(hello)
            came = b""
            with suppress(ConnectionResetError):
                came = old.rest()
        assert not came.startswith(b"\x16"), "no ServerHello"


@pytest.mark.parametrize("kind", WEAK)
def test_weak_ciphers_are_refused_with_an_alert(shop: Shop, kind: str) -> None:
    offered = run([need("openssl"), "ciphers", "-s", "-tls1_2", WEAK[kind]]).stdout.decode().strip()
    if offered:  # what this openssl cannot offer nobody can try
        said = openssl(shop.ports["off"], "-tls1_2", "-cipher", WEAK[kind])
        assert "alert handshake failure" in said, offered


def test_all_that_remains_of_tls_1_2_is_what_the_page_says(shop: Shop) -> None:
    context = client(shop.authority)
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    taken = set[str]()
    offered = {each["name"] for each in context.get_ciphers()} | MODERN
    for name in sorted(offered):
        if name.startswith("TLS_"):
            continue
        context.set_ciphers(f"{name}:@SECLEVEL=0")
        with suppress(ssl.SSLError, ConnectionError), shaken(shop.ports["off"], context) as connection:
            found = connection.cipher()
            assert found is not None
            taken.add(found[0])
    assert taken == MODERN


@pytest.mark.parametrize("suite", ["TLS_AES_128_GCM_SHA256", "TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256"])
def test_every_cipher_of_tls_1_3_is_taken(shop: Shop, suite: str) -> None:
    said = openssl(shop.ports["off"], "-tls1_3", "-ciphersuites", suite)
    assert f"Cipher is {suite}" in said


def test_a_good_group_is_agreed_on_and_a_weak_one_never(shop: Shop) -> None:
    assert re.search(r"Server Temp Key: X25519|Negotiated TLS1.3 group: X25519", openssl(shop.ports["off"]))
    weak = openssl(shop.ports["off"], "-tls1_2", "-groups", "secp192r1:sect163r2", "-cipher", "ALL:@SECLEVEL=0")
    assert "Cipher is (NONE)" in weak


def test_signatures_of_sha_1_are_not_made(shop: Shop) -> None:
    said = openssl(shop.ports["off"], "-tls1_2", "-sigalgs", "RSA+SHA1:ECDSA+SHA1", "-cipher", "ALL:@SECLEVEL=0")
    assert "Cipher is (NONE)" in said


# -- compression, renegotiation, downgrades


@pytest.mark.parametrize("version", ["-tls1_2", "-tls1_3"])
def test_nothing_is_compressed(shop: Shop, version: str) -> None:
    assert "Compression: NONE" in openssl(shop.ports["off"], version, "-comp")


def test_clients_cannot_renegotiate(shop: Shop) -> None:
    said = openssl(shop.ports["off"], "-tls1_2", data=b"R\n")
    assert "Secure Renegotiation IS supported" in said, "RFC 5746 is, so that others are not taken in"
    assert "no renegotiation" in said


def test_a_downgrade_is_recognised(shop: Shop) -> None:
    said = openssl(shop.ports["off"], "-tls1_2", "-fallback_scsv")
    assert "alert inappropriate fallback" in said


def test_no_early_data_is_taken(shop: Shop) -> None:
    said = openssl(
        shop.ports["off"], "-tls1_3", "-ign_eof", data=b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"
    )
    assert "Early data was not sent" in said
    assert "Max Early Data: 0" in said


# -- ALPN and SNI


@pytest.mark.parametrize(
    ("offered", "agreed"),
    [
        (["h2", "http/1.1"], "h2"),
        (["http/1.1", "h2"], "h2"),
        (["http/1.1"], "http/1.1"),
        (["h9", "http/1.1"], "http/1.1"),
        (["h9"], None),
        (None, None),
    ],
)
def test_http2_comes_first_and_who_offers_nothing_known_is_told_by_first_bytes(
    shop: Shop, offered: list[str] | None, agreed: str | None
) -> None:
    with shaken(shop.ports["off"], client(shop.authority, alpn=offered)) as connection:
        assert connection.selected_alpn_protocol() == agreed
        if agreed != "h2":
            assert ask(connection)[0] == 200
    if agreed == "h2":
        with connected(shop.ports["off"], client(shop.authority, alpn=offered)) as there:
            assert there.get("/").status == 200


def test_prior_knowledge_over_tls_without_alpn_is_understood(shop: Shop) -> None:
    with shaken(shop.ports["off"], client(shop.authority)) as connection:
        connection.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes(3) + b"\x04" + bytes(5))
        assert Wire(connection).exactly(9)[3] == 4, "SETTINGS"


@pytest.mark.parametrize("name", ["nobody.test", "", "x" * 60 + ".test"])
def test_an_unknown_name_gets_the_first_certificate_and_an_answer(shop: Shop, name: str) -> None:
    context = client(shop.authority)
    context.check_hostname = False
    with shaken(shop.ports["off"], context, name or None) as connection:  # type: ignore[arg-type]
        shown = connection.getpeercert(True)
        assert shown == ssl.PEM_cert_to_DER_cert((shop.authority.folder / "ec.pem").read_text())
        assert ask(connection)[0] == 200


def test_no_ocsp_response_is_stapled(shop: Shop) -> None:
    assert "OCSP response: no response sent" in openssl(shop.ports["off"], "-status")


def test_the_whole_chain_is_right(shop: Shop) -> None:
    said = openssl(shop.ports["off"], "-CAfile", str(shop.authority.file), "-verify_hostname", "shop.test")
    assert "Verify return code: 0 (ok)" in said


# -- sessions


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_sessions_are_resumed_by_tickets_alone(shop: Shop, version: ssl.TLSVersion) -> None:
    context = client(shop.authority)
    context.minimum_version = context.maximum_version = version
    with shaken(shop.ports["off"], context) as connection:
        ask(connection)
        session = connection.session
        assert session is not None
        assert session.has_ticket
        assert session.ticket_lifetime_hint <= 7 * 86400, "RFC 8446, 4.6.1"
    with shaken(shop.ports["off"], context, session=session) as connection:
        assert ask(connection)[0] == 200
        assert connection.session_reused
    context.options |= ssl.OP_NO_TICKET
    with shaken(shop.ports["off"], context) as connection:
        ask(connection)
        session = connection.session
    with shaken(shop.ports["off"], context, session=session) as connection:
        assert ask(connection)[0] == 200, "a full handshake, or one that is resumed: never an error"


def test_a_session_of_an_open_listener_opens_no_other(shop: Shop) -> None:
    context = client(shop.authority)
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    with shaken(shop.ports["off"], context) as connection:
        ask(connection)
        session = connection.session
    with (
        pytest.raises((ssl.SSLError, ConnectionError)),
        shaken(shop.ports["required"], context, session=session) as connection,
    ):
        ask(connection)


# -- certificates of clients


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
@pytest.mark.parametrize("mode", ["off", "optional", "required"])
def test_certificates_of_clients(shop: Shop, mode: str, version: ssl.TLSVersion) -> None:
    ours = shop.authority.issue("partner.test")
    folder = shop.authority.folder / "stranger"
    folder.mkdir(exist_ok=True)
    theirs = Authority(folder, "stranger").issue("partner.test")
    late = shop.authority.issue("partner.test", file="late", days=-1)

    def asked(shown: Any) -> str:
        context = client(shop.authority, shown)
        context.minimum_version = context.maximum_version = version
        try:
            with shaken(shop.ports[mode], context) as connection:
                status, body = ask(connection)
        except (ssl.SSLError, ConnectionError) as error:
            return f"refused: {error}"
        assert status == 200
        return body.decode()

    assert asked(ours) == ("false|" if mode == "off" else "true|CN=partner.test")
    nothing = asked(None)
    assert ("refused" in nothing) if mode == "required" else (nothing == "false|")
    for wrong in (theirs, late):
        answer = asked(wrong)
        assert (answer == "false|") if mode == "off" else ("refused" in answer), answer


def test_nobody_is_asked_for_a_certificate_unless_that_is_wanted(shop: Shop) -> None:
    asks = {mode: "Client Certificate Types: " in openssl(port, "-tls1_2") for mode, port in shop.ports.items()}
    assert asks == {"off": False, "optional": True, "required": True}


# -- those who do not speak TLS, or not to its end


def test_plain_http_is_told_what_is_wrong(shop: Shop) -> None:
    with wire(shop.ports["off"]) as plain:
        plain.send(b"GET / HTTP/1.1\r\nHost: shop.test\r\n\r\n")
        assert plain.rest().startswith(b"HTTP/1.1 400 Bad Request\r\n")


def test_plain_http2_is_told_what_is_wrong(shop: Shop) -> None:
    with connected(shop.ports["off"]) as there:
        told = there.get("/")
    assert told.status == 400
    assert b"this port speaks TLS" in told.body


def hello(shop: Shop) -> bytes:
    """A whole ClientHello."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    with suppress(ssl.SSLWantReadError):
        client(shop.authority, alpn=["h2"]).wrap_bio(incoming, outgoing, server_hostname="shop.test").do_handshake()
    return outgoing.read()


def test_a_handshake_that_stops_anywhere_ends_by_its_clock(shop: Shop) -> None:
    whole = hello(shop)
    before = counters(shop.admin).get("tls_timeout", 0)
    began = time.monotonic()
    cuts = [0, 1, 3, 5, 6, 50, len(whole) - 1, len(whole)]
    wires = [socket.create_connection(("127.0.0.1", shop.ports["off"]), WITHIN) for _ in cuts]
    for cut, each in zip(cuts, wires, strict=True):
        each.sendall(whole[:cut])
    for each in wires:
        with suppress(ConnectionResetError):
            Wire(each).rest()
        each.close()
    assert time.monotonic() - began < WITHIN
    eventually(lambda: counters(shop.admin).get("tls_timeout", 0) == before + len(cuts), "each is counted")


def test_a_hello_in_single_bytes_is_understood(shop: Shop) -> None:
    with wire(shop.ports["off"]) as slow:
        slow.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for byte in hello(shop):
            slow.send(bytes((byte,)))
        assert slow.exactly(1) == b"\x16", "ServerHello"


@pytest.mark.parametrize(
    "garbage",
    [
        b"\x16\x03\x01\xff\xff" + b"\x01" * 1000,
        b"\x16\x03\x01\x00\x05hello",
        b"\x15\x03\x01\x00\x02\x02\x28",
        b"\x17\x03\x03\x00\x05hello",
        b"\x16\x03\x01\x00\x04\x01\x00\x00\x00",
    ],
    ids=["too long", "no handshake", "an alert", "data", "an empty hello"],
)
def test_what_is_no_handshake_ends_at_once_and_harms_nobody(shop: Shop, garbage: bytes) -> None:
    with wire(shop.ports["off"]) as broken:
        broken.send(garbage)
        with suppress(ConnectionResetError):
            assert not broken.rest().startswith(b"\x16")
    with shaken(shop.ports["off"], client(shop.authority)) as connection:
        assert ask(connection)[0] == 200


def test_an_answer_ends_with_close_notify(shop: Shop) -> None:
    context = client(shop.authority)
    plain = socket.create_connection(("127.0.0.1", shop.ports["off"]), timeout=WITHIN)
    with plain, context.wrap_socket(plain, server_hostname="shop.test", suppress_ragged_eofs=False) as connection:
        connection.sendall(b"GET / HTTP/1.1\r\nHost: shop.test\r\nConnection: close\r\n\r\n")
        assert Wire(connection).rest().startswith(b"HTTP/1.1 200"), "without it, this raises"
