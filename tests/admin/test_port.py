"""The port for operators over several configurations, with real sockets."""

from __future__ import annotations

import os
import socket
import stat
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest
import pytest_twisted
from twisted.internet import reactor
from twisted.internet.address import UNIXAddress
from twisted.internet.defer import Deferred
from twisted.internet.task import deferLater
from twisted.internet.threads import deferToThread

from protogate.admin.port import Admin
from protogate.config import model
from protogate.errors import ConfigError
from protogate.observe.counters import Counters
from protogate.observe.snapshot import Snapshot

Steps = Generator[Deferred[Any], Any, None]


class Watched:
    def unready(self) -> str:
        return ""

    def snapshot(self) -> Snapshot:
        return Counters().snapshot()


def settings(address: str) -> model.Admin:
    return model.Admin(address=address)


def opened(address: str) -> Admin:
    admin = Admin(Watched(), reactor)
    admin.take(admin.open(settings(address)))
    return admin


def asked(where: Any, text: str, family: int = socket.AF_INET) -> bytes:
    """In a thread: what a client of the standard library gets until the connection ends; a refusal is raised."""
    with socket.socket(family) as client:
        client.settimeout(20)
        client.connect(where)
        client.sendall(text.encode())
        return client.makefile("rb").read()


def get(port: int, path: str) -> Deferred[bytes]:
    return deferToThread(asked, ("127.0.0.1", port), f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n")


@pytest_twisted.inlineCallbacks
def test_it_answers() -> Steps:
    admin = opened("127.0.0.1:0")
    for path, text in (("/livez", b"alive\n"), ("/readyz", b"ready\n"), ("/metrics", b"protogate_workers")):
        answer = yield get(admin.host.port, path)
        assert answer.startswith(b"HTTP/1.1 200 OK\r\n")
        assert text in answer
    yield admin.close()
    assert admin.host is None


@pytest_twisted.inlineCallbacks
def test_it_listens_in_the_file_system_for_user_and_group(tmp_path: Path) -> Steps:
    path = os.fspath(tmp_path / "admin.sock")
    admin = opened(f"unix:{path}")
    assert admin.host == UNIXAddress(os.fsencode(path))
    assert stat.S_IMODE(os.stat(path).st_mode) & 0o007 == 0
    answer = yield deferToThread(asked, path, "GET /livez HTTP/1.0\r\n\r\n", socket.AF_UNIX)
    assert answer.endswith(b"\r\n\r\nalive\n")
    yield admin.close()
    assert not os.path.exists(path)


@pytest_twisted.inlineCallbacks
def test_the_same_address_is_the_same_port() -> Steps:
    admin = opened("127.0.0.1:0")
    before = admin.opened
    again = admin.open(settings("127.0.0.1:0"))
    assert again is before
    admin.take(again)
    yield admin.drop(again)  # in use
    assert admin.host.port
    yield admin.close()


@pytest_twisted.inlineCallbacks
def test_another_address_is_another_port_and_none_is_none(tmp_path: Path) -> Steps:
    admin = opened("127.0.0.1:0")
    port = admin.host.port
    admin.take(admin.open(settings(f"unix:{tmp_path / 'admin.sock'}")))
    assert isinstance(admin.host, UNIXAddress)
    yield deferLater(reactor, 0, lambda: None)  # a port is closed in the turn after
    with pytest.raises(ConnectionRefusedError):
        yield get(port, "/livez")
    admin.take(admin.open(None))
    assert admin.host is None
    yield admin.close()


@pytest.mark.filterwarnings(
    "ignore:unclosed <socket:ResourceWarning"
)  # Twisted leaves one it cannot bind to the collector
@pytest_twisted.inlineCallbacks
def test_what_cannot_be_opened_is_a_fault_and_changes_nothing(tmp_path: Path) -> Steps:
    admin = opened("127.0.0.1:0")
    other = Admin(Watched(), reactor)
    taken = f"127.0.0.1:{admin.host.port}"
    with pytest.raises(ConfigError, match=f"cannot listen on {taken}: Address already in use") as caught:
        other.open(settings(taken))
    assert caught.value.path == ("admin", "address")
    with pytest.raises(ConfigError, match="No such file or directory"):
        other.open(settings(f"unix:{tmp_path}/missing/admin.sock"))
    assert other.opened is None
    before = admin.opened
    with pytest.raises(ConfigError):
        admin.open(settings("192.0.2.1:1"))
    assert admin.opened is before
    yield admin.close()
    yield other.close()


@pytest.mark.filterwarnings(
    "ignore:unclosed <socket:ResourceWarning"
)  # Twisted leaves one it cannot bind to the collector
@pytest_twisted.inlineCallbacks
def test_a_socket_that_could_not_be_opened_can_be_opened_later(tmp_path: Path) -> Steps:
    path = tmp_path / "admin.sock"
    path.mkdir()
    admin = Admin(Watched(), reactor)
    with pytest.raises(ConfigError):
        admin.open(settings(f"unix:{path}"))
    path.rmdir()
    admin.take(admin.open(settings(f"unix:{path}")))
    assert admin.host is not None
    yield admin.close()


@pytest_twisted.inlineCallbacks
def test_one_that_is_not_taken_over_is_dropped() -> Steps:
    admin = opened("127.0.0.1:0")
    before, other = admin.opened, admin.open(settings("localhost:0"))
    assert other is not None
    assert other is not before
    port = other.port.getHost().port
    yield admin.drop(other)
    assert admin.opened is before
    with pytest.raises(ConnectionRefusedError):
        yield get(port, "/livez")
    yield admin.close()


@pytest_twisted.inlineCallbacks
def test_the_stop_waits_for_nobody() -> Steps:
    admin = opened("127.0.0.1:0")
    assert admin.opened is not None
    site = admin.opened.site
    with socket.socket() as silent:
        silent.settimeout(20)
        yield deferToThread(silent.connect, ("127.0.0.1", admin.host.port))
        yield deferToThread(silent.sendall, b"GET /livez")
        yield get(admin.host.port, "/livez")  # so that the one before is accepted
        yield admin.close()
        with pytest.raises(ConnectionResetError):
            yield deferToThread(silent.recv, 1)
    assert not site.open
