"""TLS of a listener in memory: its clock, its limits, how it ends, and what is renewed."""

from __future__ import annotations

import os
import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from twisted.logger import capturedLogs, formatEvent

from authority import Authority
from protogate.config.faults import ConfigFaults
from protogate.renewal import INTERVAL
from protogate.testing.gateway import MemoryGateway

GET = b"GET / HTTP/1.1\r\nHost: shop.test\r\n\r\n"
HELLO = b"\x16\x03\x01\x02\x00\x01"
"""How a handshake begins."""


class Client:
    """One that speaks TLS, in memory."""

    def __init__(self, gateway: MemoryGateway, context: ssl.SSLContext, name: str = "shop.test") -> None:
        self.gateway, self.raw = gateway, gateway.client()
        self._in, self._out, self._taken = ssl.MemoryBIO(), ssl.MemoryBIO(), 0
        self.tls = context.wrap_bio(self._in, self._out, server_hostname=name)

    def carry(self) -> None:
        """Both ways, until all is quiet."""
        data = self._out.read()
        if data:
            self.raw.send(data)
        self.gateway.run()
        self._in.write(self.raw.received[self._taken :])
        self._taken = len(self.raw.received)

    def shake(self) -> Client:
        """Until the handshake is done."""
        for _ in range(5):
            try:
                self.tls.do_handshake()
            except ssl.SSLWantReadError:
                self.carry()
            else:
                self.carry()
                return self
        raise AssertionError("no handshake")

    def ask(self, data: bytes = GET) -> bytes:
        """What is answered."""
        self.tls.write(data)
        self.carry()
        answer = b""
        while True:
            try:
                piece = self.tls.read(65536)
            except (ssl.SSLWantReadError, ssl.SSLZeroReturnError):
                return answer
            if not piece:
                return answer
            answer += piece


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


@pytest.fixture
def context(authority: Authority) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=str(authority.file))


def config(authority: Authority, **more: Any) -> dict[str, Any]:
    issued = authority.issue("shop.test")
    tls = {"certificates": [{"cert": str(issued.cert), "key": str(issued.key)}], **more.pop("tls", {})}
    return {
        "gateway": {"timeouts": {"tls": "2s", "clientHeader": "3s", "clientIdle": "60s"}, **more.pop("gateway", {})},
        "listeners": [{"name": "web", "address": "127.0.0.1:8443", "tls": tls, **more.pop("listener", {})}],
        "modules": [
            {"name": "respond", "condition": "!request.malformed", "actionParam": {"status": 200, "body": "here"}}
        ],
        **more,
    }


@pytest.fixture
def gateway(authority: Authority) -> Iterator[MemoryGateway]:
    with MemoryGateway(config(authority)) as running:
        yield running


def counts(gateway: MemoryGateway) -> dict[str, int]:
    """What was counted of TLS."""
    found = gateway.service.counters.counts
    return {name: int(number) for name, number in found.items() if name.startswith("tls") and number}


def test_a_request_over_tls_is_answered(gateway: MemoryGateway, context: ssl.SSLContext) -> None:
    assert Client(gateway, context).shake().ask().startswith(b"HTTP/1.1 200 OK\r\n")
    assert counts(gateway) == {"tls_handshakes": 1}
    assert [(record.tls, record.status) for record in gateway.records] == [(True, 200)]


def test_it_may_come_in_single_bytes(authority: Authority, context: ssl.SSLContext) -> None:
    with MemoryGateway(config(authority), most=1) as gateway:
        assert Client(gateway, context).shake().ask().endswith(b"\r\n\r\nhere")


@pytest.mark.parametrize("sent", [b"", HELLO])
def test_a_handshake_has_its_own_clock(gateway: MemoryGateway, sent: bytes) -> None:
    raw = gateway.client()
    raw.send(sent)
    gateway.advance(1.8)
    assert not raw.eof
    gateway.advance(0.4)
    assert raw.eof
    assert counts(gateway) == {"tls_timeout": 1}
    assert gateway.records == []


def test_a_clock_that_is_off_does_not_run(authority: Authority) -> None:
    with MemoryGateway(config(authority, gateway={"timeouts": {"tls": 0}})) as gateway:
        raw = gateway.client()
        raw.send(HELLO)
        gateway.advance(100)
        assert not raw.eof


def test_the_clock_ends_with_the_handshake(gateway: MemoryGateway, context: ssl.SSLContext) -> None:
    client = Client(gateway, context).shake()
    gateway.advance(5)
    assert client.ask().startswith(b"HTTP/1.1 200")
    assert "tls_timeout" not in counts(gateway)


def test_a_failed_handshake_is_told_once_a_minute(gateway: MemoryGateway) -> None:
    with capturedLogs() as captured:
        for _ in range(3):
            gateway.client().send(b"\x16\x03\x01\x00\x05hello")
            gateway.run()
    told = [formatEvent(event) for event in captured if "listener" in event["log_namespace"]]
    assert len(told) == 1
    assert "listener web: TLS handshake with 127.0.0.1 failed: " in (told[0] or "")
    assert counts(gateway) == {"tls_failed": 3}


def test_one_who_leaves_in_the_middle_is_a_failed_handshake(gateway: MemoryGateway) -> None:
    raw = gateway.client()
    raw.send(HELLO)
    gateway.run()
    raw.reset()
    gateway.run()
    assert counts(gateway) == {"tls_failed": 1}
    assert gateway.service.ports.opened


def test_one_who_leaves_before_he_says_anything_is_none(gateway: MemoryGateway) -> None:
    gateway.client().close()
    gateway.run()
    assert counts(gateway) == {}


def test_plain_requests_are_refused_in_their_protocol(gateway: MemoryGateway) -> None:
    raw = gateway.client()
    for byte in GET * 2:
        raw.send(bytes((byte,)))
    gateway.run()
    assert raw.received.count(b"HTTP/1.1 400 Bad Request\r\n") == 1
    assert raw.eof
    assert counts(gateway) == {"tls_missing": 1}
    assert [(record.status, record.malformed, record.tls) for record in gateway.records] == [(400, True, False)]


def test_what_is_malformed_besides_stays_so(gateway: MemoryGateway) -> None:
    raw = gateway.client()
    raw.send(b"GET / HTTP/1.1\r\n\r\n")
    gateway.run()
    assert raw.received.startswith(b"HTTP/1.1 400 ")
    assert gateway.service.counters.counts["bad_host"] == 1


def test_one_connection_too_many_is_closed_before_the_handshake(authority: Authority) -> None:
    with MemoryGateway(config(authority, gateway={"limits": {"connections": 1}})) as gateway:
        first, second = gateway.client(), gateway.client()
        gateway.run()
        assert (first.eof, second.eof) == (False, True)


def test_a_listener_that_goes_lets_a_handshake_finish(authority: Authority, context: ssl.SSLContext) -> None:
    settings = config(authority)
    with MemoryGateway(settings) as gateway:
        shaking, silent = Client(gateway, context), gateway.client()
        with pytest.raises(ssl.SSLWantReadError):
            shaking.tls.do_handshake()
        gateway.run()
        moved = {**settings, "listeners": [{**settings["listeners"][0], "address": "127.0.0.1:8444"}]}
        assert gateway.reload(moved)
        answer = shaking.shake().ask()
        assert answer.startswith(b"HTTP/1.1 200")
        assert b"connection: close" in answer
        gateway.advance(4)
        assert silent.eof


def test_a_stop_does_not_wait_for_one_that_is_stuck_in_a_handshake(authority: Authority) -> None:
    settings = config(authority, gateway={"timeouts": {"tls": 0}})
    with MemoryGateway(settings) as gateway:
        raw = gateway.client()
        raw.send(HELLO)
        gateway.run()
        moved = {**settings, "listeners": [{**settings["listeners"][0], "address": "127.0.0.1:8444"}]}
        assert gateway.reload(moved)
        gateway.advance(4)
        assert raw.eof


def test_files_that_are_broken_are_faults_of_the_configuration(authority: Authority) -> None:
    settings = config(authority, tls={"clientAuth": {"ca": "/nowhere.pem"}, "ciphers": "FAST"})
    with pytest.raises(ConfigFaults) as caught:
        MemoryGateway(settings)
    assert len(caught.value.faults) == 2
    assert "listeners[0].tls.clientAuth.ca: /nowhere.pem: No such file or directory" in str(caught.value)
    assert "listeners[0].tls.ciphers: OpenSSL knows no cipher of that name" in str(caught.value)


# Renewal ------------------------------------------------------------------------------------------------------------


def shown(gateway: MemoryGateway, context: ssl.SSLContext) -> bytes | None:
    """The certificate that a client gets to see now."""
    return Client(gateway, context).shake().tls.getpeercert(True)


def put(authority: Authority, file: str) -> bytes:
    """Put another certificate in the place of that one, and its key; the certificate."""
    fresh = authority.issue("shop.test", file="fresh")
    os.replace(fresh.cert, authority.folder / f"{file}.pem")
    os.replace(fresh.key, authority.folder / f"{file}.key")
    return ssl.PEM_cert_to_DER_cert((authority.folder / f"{file}.pem").read_text())


def test_renewed_files_are_used_when_they_looked_the_same_twice(
    gateway: MemoryGateway, authority: Authority, context: ssl.SSLContext
) -> None:
    before = shown(gateway, context)
    kept = Client(gateway, context).shake()
    after = put(authority, "shop.test")
    gateway.advance(INTERVAL + 0.5)
    assert shown(gateway, context) == before
    gateway.advance(INTERVAL + 0.5)
    assert shown(gateway, context) == after
    assert kept.ask().startswith(b"HTTP/1.1 200"), "who was there before stays"
    assert counts(gateway)["tls_renewed"] == 1


def test_what_cannot_be_used_is_told_once_and_changes_nothing(
    gateway: MemoryGateway, authority: Authority, context: ssl.SSLContext
) -> None:
    before = shown(gateway, context)
    os.replace(authority.issue("shop.test", file="fresh").cert, authority.folder / "shop.test.pem")
    with capturedLogs() as captured:
        gateway.advance(5 * INTERVAL)
    told = [formatEvent(event) or "" for event in captured if event["log_namespace"] == "protogate.renewal"]
    assert len(told) == 1
    assert "listeners[0].tls.certificates[0].key: " in told[0]
    assert "does not belong to the certificate" in told[0]
    assert counts(gateway)["tls_renewal_failed"] == 1
    assert shown(gateway, context) == before
    after = put(authority, "shop.test")  # the key comes, too
    gateway.advance(2 * INTERVAL + 1)
    assert shown(gateway, context) == after


def test_a_file_that_is_gone_for_a_while_is_no_renewal(
    gateway: MemoryGateway, authority: Authority, context: ssl.SSLContext
) -> None:
    before = shown(gateway, context)
    cert = authority.folder / "shop.test.pem"
    cert.rename(authority.folder / "elsewhere")
    gateway.advance(2 * INTERVAL + 1)
    assert shown(gateway, context) == before
    (authority.folder / "elsewhere").rename(cert)
    gateway.advance(2 * INTERVAL + 1)
    assert shown(gateway, context) == before
    assert counts(gateway)["tls_renewal_failed"] == 1
    assert "tls_renewed" not in counts(gateway)


def test_a_renewed_certificate_with_a_doubt_is_used_and_told(
    gateway: MemoryGateway, authority: Authority, context: ssl.SSLContext
) -> None:
    fresh = authority.issue("shop.test", file="fresh", days=-1)
    os.replace(fresh.cert, authority.folder / "shop.test.pem")
    os.replace(fresh.key, authority.folder / "shop.test.key")
    with capturedLogs() as captured:
        gateway.advance(2 * INTERVAL + 1)
    told = " ".join(formatEvent(event) or "" for event in captured if event["log_namespace"] == "protogate.renewal")
    assert "renewed files of TLS are in use: web" in told
    assert "the certificate expired on" in told


def test_a_reload_in_between_has_read_everything_itself(
    gateway: MemoryGateway, authority: Authority, context: ssl.SSLContext
) -> None:
    after = put(authority, "shop.test")
    settings = config(Authority(authority.folder / ".."))  # another one: its files are not looked at
    settings["listeners"][0]["tls"]["certificates"] = [
        {"cert": str(authority.folder / "shop.test.pem"), "key": str(authority.folder / "shop.test.key")}
    ]
    assert gateway.reload(settings)
    assert shown(gateway, context) == after
    gateway.advance(3 * INTERVAL)
    assert "tls_renewed" not in counts(gateway)


def test_a_gateway_without_files_looks_at_none() -> None:
    plain = {"listeners": [{"name": "web", "address": "127.0.0.1:8080"}]}
    with MemoryGateway(plain) as gateway:
        gateway.advance(3 * INTERVAL)
        assert gateway.service._renewal._timer.active is False


def test_a_look_that_breaks_is_told_and_not_the_last(
    gateway: MemoryGateway, monkeypatch: pytest.MonkeyPatch, flush_errors: Any
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr("protogate.renewal.stamp_of", lambda path: 1 / 0)
        gateway.advance(INTERVAL + 0.5)
    assert len(flush_errors(ZeroDivisionError)) == 1
    gateway.advance(2 * INTERVAL)
    assert counts(gateway)["tls_renewal_failed"] == 1


def test_a_peer_that_does_not_answer_close_notify_is_not_waited_for_for_ever(
    gateway: MemoryGateway, context: ssl.SSLContext
) -> None:
    client = Client(gateway, context).shake()
    client.ask(GET.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"))
    gateway.advance(1)
    assert not client.raw.eof
    gateway.advance(20)
    assert client.raw.eof
