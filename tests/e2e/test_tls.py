"""TLS of clients, over both libraries: versions, names, protocols, certificates of clients, sessions, renewal."""

from __future__ import annotations

import re
import socket
import ssl
from collections.abc import Iterator
from contextlib import suppress
from typing import Any, NamedTuple

import pytest
from secure import REACTORS, ask, begin, client, counters, pair, shaken

from authority import Authority, Issued, rsa_key
from gateways import WITHIN, Gateway, Wire, eventually, wire
from neighbours import Neighbours, free_port, need, run

SHOWS = (
    "${source.tls} ${source.tlsVersion} ${source.serverName}"
    "|${source.certificate.subject}"
    "|${source.certificate.fingerprint}"
    "|${request.headers['client-cert']} ${request.headers['x-ssl-client-verify']}"
)


class Shop(NamedTuple):
    """A gateway with certificates for some names, which answers everything itself."""

    gateway: Gateway
    authority: Authority
    shop: Issued
    wild: Issued
    both: Issued
    admin: int
    strict: int


@pytest.fixture(scope="module", params=REACTORS, ids=["ssl", "pyOpenSSL"])
def shop(request: pytest.FixtureRequest, company: Neighbours) -> Iterator[Shop]:
    folder = company.directory / f"tls-{request.param}"
    folder.mkdir()
    authority = Authority(folder)
    issued = authority.issue("shop.test")
    wild = authority.issue("wild", ["*.wild.test", "10.1.2.3"])
    both = authority.issue("both.test", file="both-ec")
    other = authority.issue("both.test", file="both-rsa", key=rsa_key())
    admin, strict = free_port(), free_port()
    settings = {
        "gateway": {"timeouts": {"tls": "2s"}},
        "listeners": [
            {
                "name": "web",
                "address": "127.0.0.1:0",
                "protocols": ["http1", "sotp"],
                "tls": {
                    "certificates": [pair(each) for each in (issued, wild, both, other)],
                    "clientAuth": {"ca": str(authority.file), "mode": "optional"},
                },
            },
            {
                "name": "strict",
                "address": f"127.0.0.1:{strict}",
                "tls": {
                    "certificates": [pair(issued)],
                    "clientAuth": {"ca": str(authority.file)},
                    "minVersion": "1.3",
                },
            },
        ],
        "modules": [
            {
                "name": "respond",
                "condition": "request.path == '/partner' && !('partner.test' in source.certificate.san)",
                "actionParam": {"status": 403, "body": "who are you?"},
            },
            {
                "name": "respond",
                "ruleOrder": 1,
                "condition": "!request.malformed",
                "actionParam": {"status": 200, "body": SHOWS},
            },
        ],
        "admin": {"address": f"127.0.0.1:{admin}"},
        "accessLog": {"file": "access.log"},
    }
    gateway = begin(company, settings, request.param)
    yield Shop(gateway, authority, issued, wild, both, admin, strict)
    gateway.healthy()


def test_both_libraries_are_what_runs(shop: Shop) -> None:
    assert re.search(r"protogate [\w.]+ on (UVReactor|EPollReactor)", shop.gateway.log)


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_both_versions_are_spoken(shop: Shop, version: ssl.TLSVersion) -> None:
    context = client(shop.authority)
    context.minimum_version = context.maximum_version = version
    with shaken(shop.gateway.port, context) as connection:
        status, body = ask(connection)
        assert status == 200
        assert body.decode().startswith(f"true {connection.version()} shop.test|")


def openssl(*arguments: str, data: bytes = b"") -> str:
    """What C{openssl s_client} says."""
    done = run([need("openssl"), "s_client", *arguments], data=data, timeout=WITHIN)
    return (done.stdout + done.stderr).decode("utf-8", "replace")


@pytest.mark.parametrize("version", ["-tls1", "-tls1_1"])
def test_older_versions_are_refused_with_an_alert(shop: Shop, version: str) -> None:
    said = openssl("-connect", f"127.0.0.1:{shop.gateway.port}", version, "-cipher", "ALL:@SECLEVEL=0")
    assert "alert protocol version" in said


def test_a_floor_leaves_one_version(shop: Shop) -> None:
    context = client(shop.authority, shop.shop)
    with shaken(shop.strict, context) as connection:
        assert connection.version() == "TLSv1.3"
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    with pytest.raises(ssl.SSLError, match="protocol version"), shaken(shop.strict, context):
        pass


def test_weak_ciphers_are_refused_with_an_alert(shop: Shop) -> None:
    said = openssl("-connect", f"127.0.0.1:{shop.gateway.port}", "-tls1_2", "-cipher", "AES128-SHA:@SECLEVEL=0")
    assert "alert handshake failure" in said


def test_renegotiation_is_refused(shop: Shop) -> None:
    where = f"127.0.0.1:{shop.gateway.port}"
    said = openssl("-connect", where, "-tls1_2", data=b"R\n")
    assert "no renegotiation" in said


def certificate(port: int, context: ssl.SSLContext, name: str | None) -> bytes | None:
    """Which one is shown to who asks for that name."""
    context.check_hostname = False
    plain = socket.create_connection(("127.0.0.1", port), timeout=WITHIN)
    with plain, context.wrap_socket(plain, server_hostname=name) as connection:
        return connection.getpeercert(True)


def der(issued: Issued) -> bytes:
    return ssl.PEM_cert_to_DER_cert(issued.cert.read_text())


@pytest.mark.parametrize(
    ("name", "which"),
    [
        ("shop.test", "shop"),
        ("SHOP.test", "shop"),
        ("a.wild.test", "wild"),
        ("a.b.wild.test", "shop"),
        ("wild.test", "shop"),
        ("unknown.test", "shop"),
        (None, "shop"),
        ("both.test", "both"),
    ],
)
def test_the_name_that_is_asked_for_decides_which_certificate_is_shown(
    shop: Shop, name: str | None, which: str
) -> None:
    assert certificate(shop.gateway.port, client(shop.authority), name) == der(getattr(shop, which))


def test_an_unknown_name_is_counted(shop: Shop) -> None:
    before = counters(shop.admin).get("tls_name_unknown", 0)
    certificate(shop.gateway.port, client(shop.authority), "nobody.test")
    eventually(lambda: counters(shop.admin).get("tls_name_unknown", 0) == before + 1, "it is counted")


@pytest.mark.parametrize(
    ("cipher", "kind"), [("ECDHE-RSA-AES128-GCM-SHA256", "rsa"), ("ECDHE-ECDSA-AES128-GCM-SHA256", "ec")]
)
def test_the_abilities_of_a_client_decide_between_kinds_of_keys(shop: Shop, cipher: str, kind: str) -> None:
    context = client(shop.authority)
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    context.set_ciphers(cipher)
    shown = certificate(shop.gateway.port, context, "both.test")
    assert shown == ssl.PEM_cert_to_DER_cert((shop.both.cert.parent / f"both-{kind}.pem").read_text())


@pytest.mark.parametrize(
    ("offered", "agreed", "answer"),
    [
        (["http/1.1"], "http/1.1", b"HTTP/1.1 200 OK\r\n"),
        (["h9", "http/1.1"], "http/1.1", b"HTTP/1.1 200 OK\r\n"),
        (["h9"], None, b"HTTP/1.1 200 OK\r\n"),
        (None, None, b"HTTP/1.1 200 OK\r\n"),
    ],
)
def test_the_protocol_is_what_is_agreed_on_or_what_the_first_bytes_say(
    shop: Shop, offered: list[str] | None, agreed: str | None, answer: bytes
) -> None:
    with shaken(shop.gateway.port, client(shop.authority, alpn=offered)) as connection:
        assert connection.selected_alpn_protocol() == agreed
        connection.sendall(b"GET / HTTP/1.1\r\nHost: shop.test\r\n\r\n")
        assert Wire(connection).until(b"\r\n") == answer


def test_what_is_agreed_on_decides_even_against_the_first_bytes(shop: Shop) -> None:
    context = client(shop.authority, alpn=["sotp/1", "http/1.1"])
    with shaken(shop.gateway.port, context) as connection:
        assert connection.selected_alpn_protocol() == "http/1.1", "the listener's order counts"
    with shaken(shop.gateway.port, client(shop.authority, alpn=["sotp/1"])) as connection:
        assert connection.selected_alpn_protocol() == "sotp/1"
        connection.sendall(b"GET / HTTP/1.1\r\nHost: shop.test\r\n\r\n")
        assert not Wire(connection).rest().startswith(b"HTTP/"), "SOTP does not answer HTTP"


def test_who_speaks_without_tls_is_told_in_his_protocol(shop: Shop) -> None:
    with wire(shop.gateway.port) as plain:
        plain.send(b"GET /secret HTTP/1.1\r\nHost: shop.test\r\n\r\n")
        answer = plain.rest()
    assert answer.startswith(b"HTTP/1.1 400 Bad Request\r\n")
    assert b"this port speaks TLS" in answer
    (record,) = eventually(lambda: recorded(shop, "/secret"), "it is recorded")
    assert (record["status"], record["malformed"]) == (400, True)
    assert "tls" not in record


def recorded(shop: Shop, target: str) -> list[dict[str, Any]]:
    return [record for record in shop.gateway.records() if record["target"] == target]


def test_curl_is_told_as_well(shop: Shop) -> None:
    done = run([need("curl"), "-sS", "-i", f"http://127.0.0.1:{shop.gateway.port}/"])
    assert done.stdout.startswith(b"HTTP/1.1 400 Bad Request\r\n")


def test_one_who_stops_in_the_middle_is_not_waited_for(shop: Shop) -> None:
    before = counters(shop.admin).get("tls_timeout", 0)
    with wire(shop.gateway.port) as silent, wire(shop.gateway.port) as slow:
        slow.send(b"\x16\x03\x01\x02\x00\x01")
        for one in (silent, slow):
            with suppress(ConnectionResetError):
                assert one.rest() == b""
    eventually(lambda: counters(shop.admin).get("tls_timeout", 0) == before + 2, "both are counted")


def test_garbage_is_a_failed_handshake(shop: Shop) -> None:
    before = counters(shop.admin).get("tls_failed", 0)
    with wire(shop.gateway.port) as broken:
        broken.send(b"\x16\x03\x01\x00\x05hello")
        with suppress(ConnectionResetError):
            broken.rest()
    eventually(lambda: counters(shop.admin).get("tls_failed", 0) == before + 1, "it is counted")
    assert "TLS handshake with 127.0.0.1 failed" in shop.gateway.log


def test_a_certificate_of_a_client_is_known_to_conditions_and_templates(shop: Shop) -> None:
    issued = shop.authority.issue("partner", ["partner.test", "spiffe://partner/orders"])
    with shaken(shop.gateway.port, client(shop.authority, issued)) as connection:
        status, body = ask(connection, "/partner", "X-SSL-Client-Verify: SUCCESS", "Client-Cert: :AA==:")
    assert status == 200
    _, subject, fingerprint, claims = body.decode().split("|")
    assert subject == "CN=partner"
    assert fingerprint == issued.certificate.fingerprint(issued.certificate.signature_hash_algorithm).hex()
    assert claims == " ", "what a client says of certificates is taken out"
    with shaken(shop.gateway.port, client(shop.authority)) as connection:
        assert ask(connection, "/partner")[0] == 403


def test_one_of_another_authority_ends_the_handshake(shop: Shop) -> None:
    folder = shop.authority.folder / "stranger"
    folder.mkdir(exist_ok=True)
    stranger = Authority(folder, "stranger").issue("stranger.test")
    with (
        pytest.raises((ssl.SSLError, ConnectionError)),
        shaken(shop.gateway.port, client(shop.authority, stranger)) as connection,
    ):
        ask(connection)


def test_one_that_is_required_and_missing_ends_the_handshake_with_an_alert(shop: Shop) -> None:
    with (
        pytest.raises(ssl.SSLError, match="certificate required"),
        shaken(shop.strict, client(shop.authority)) as connection,
    ):
        connection.recv(1)
    with shaken(shop.strict, client(shop.authority, shop.shop)) as connection:
        assert ask(connection)[0] == 200


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_sessions_are_resumed(shop: Shop, version: ssl.TLSVersion) -> None:
    issued = shop.authority.issue("again.test")
    context = client(shop.authority, issued)
    context.minimum_version = context.maximum_version = version
    before = counters(shop.admin).get("tls_resumed", 0)
    with shaken(shop.gateway.port, context, "a.wild.test") as connection:
        ask(connection)
        session = connection.session
        assert not connection.session_reused
    with shaken(shop.gateway.port, context, "a.wild.test", session) as connection:
        assert "CN=again.test" in ask(connection)[1].decode(), "also who the client is"
        assert connection.session_reused
    assert counters(shop.admin)["tls_resumed"] == before + 1


def test_the_record_says_so(shop: Shop) -> None:
    with shaken(shop.gateway.port, client(shop.authority)) as connection:
        ask(connection, "/recorded")
    (record,) = eventually(lambda: recorded(shop, "/recorded"), "it is recorded")
    assert record["tls"] is True


def test_a_request_may_come_in_a_record_for_each_byte(shop: Shop) -> None:
    with shaken(shop.gateway.port, client(shop.authority)) as connection:
        for byte in b"GET / HTTP/1.1\r\nHost: shop.test\r\n\r\n":
            connection.sendall(bytes((byte,)))
        assert Wire(connection).answer()[0].startswith(b"HTTP/1.1 200")
