from __future__ import annotations

import errno
import fcntl
import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from twisted.logger import capturedLogs

from neighbours import free_port, need
from protogate.config import model
from protogate.config.address import Listen
from protogate.process import activation
from protogate.process.activation import Inherited

BASE = 300
"""Descriptors of a test begin here: 3 and what follows are in use."""

Hand = Callable[..., list[Inherited]]


def listening(where: str = "127.0.0.1", family: int = socket.AF_INET, v6only: bool = True) -> socket.socket:
    made = socket.socket(family, socket.SOCK_STREAM)
    if family == socket.AF_INET6:
        made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, v6only)
    made.bind(where if family == socket.AF_UNIX else (where, 0))
    made.listen()
    return made


def listener(name: str, address: str) -> model.Listener:
    return model.Listener(name=name, address=address)


def is_open(descriptor: int) -> bool:
    try:
        os.fstat(descriptor)
    except OSError:
        return False
    return True


@pytest.fixture
def hand() -> Iterator[Hand]:
    """Hand sockets over, as a manager does: by descriptors that follow each other, and by the environment."""
    found: list[Inherited] = []

    def give(*given: Any, names: str | None = None) -> list[Inherited]:
        for at, one in enumerate(given):
            assert fcntl.fcntl(one.fileno(), fcntl.F_DUPFD, BASE + at) == BASE + at
            one.close()
        environ = {"LISTEN_PID": "4711", "LISTEN_FDS": str(len(given))}
        if names is not None:
            environ["LISTEN_FDNAMES"] = names
        taken = activation.take(environ, 4711, BASE)
        assert environ == {}
        found.extend(taken)
        return taken

    yield give
    for one in found:
        one.socket.close()
    assert not [number for number in range(BASE, BASE + 5) if is_open(number)]


def test_sockets_come_with_their_addresses_and_names(hand: Hand, tmp_path: Path) -> None:
    path = os.fspath(tmp_path / "gateway.sock")
    tcp, unix = listening(), listening(path, socket.AF_UNIX)
    port = tcp.getsockname()[1]
    one, other = hand(tcp, unix, names="web:")
    assert (one.name, one.where, one.every) == ("web", Listen("127.0.0.1", port), False)
    assert (other.name, other.where, other.every) == ("", Listen("", 0, path), False)
    for each in (one, other):
        assert not each.socket.getblocking()
        assert not each.socket.get_inheritable()


@pytest.mark.parametrize("name", activation.UNNAMED)
def test_some_names_are_none(hand: Hand, name: str) -> None:
    (one,) = hand(listening(), names=name)
    assert one.name == ""


@pytest.mark.parametrize(
    "environ",
    [
        {},
        {"LISTEN_FDS": "1"},
        {"LISTEN_FDS": "1", "LISTEN_PID": "4712"},
        {"LISTEN_PID": "4711"},
        {"LISTEN_FDS": "", "LISTEN_PID": "4711", "LISTEN_FDNAMES": "web"},
    ],
)
def test_what_is_not_for_us_is_left_alone_but_for_the_variables(environ: dict[str, str]) -> None:
    environ["HOME"] = "/root"
    with capturedLogs() as events:
        assert activation.take(environ, 4711) == []
    assert environ == {"HOME": "/root"}
    assert events == []


@pytest.mark.parametrize("number", ["many", "-1", "٣", "1.0", " 1", "99999", "9" * 50])
def test_a_number_that_is_none_is_told(number: str) -> None:
    with capturedLogs() as events:
        assert activation.take({"LISTEN_FDS": number, "LISTEN_PID": "4711"}, 4711) == []
    assert len(events) == 1


def test_what_nobody_can_listen_on_is_closed_and_told(hand: Hand, tmp_path: Path) -> None:
    bound = socket.socket()
    bound.bind(("127.0.0.1", 0))
    pair, peer = socket.socketpair()
    with capturedLogs() as events, (tmp_path / "file").open("wb") as file:
        datagram = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        found = hand(file, datagram, bound, pair, listening(), names="a:b:c:d:web")
    peer.close()
    assert [one.name for one in found] == ["web"]
    assert [(event["name"], event["why"].partition(" (")[0]) for event in events] == [
        ("a", "it is no socket"),
        ("b", "it is no stream socket"),
        ("c", "it does not listen"),
        ("d", "it does not listen"),
    ]
    assert not [number for number in range(BASE, BASE + 4) if is_open(number)]


def test_a_descriptor_that_is_not_open_is_told() -> None:
    with capturedLogs() as events:
        assert activation.take({"LISTEN_FDS": "1", "LISTEN_PID": "4711"}, 4711, BASE) == []
    assert events[0]["why"] == os.strerror(errno.EBADF)


# -- which is whose


def test_a_socket_serves_the_listener_of_its_address(hand: Hand, tmp_path: Path) -> None:
    path = os.fspath(tmp_path / "gateway.sock")
    first, second, third = listening(), listening(), listening(path, socket.AF_UNIX)
    ports = [each.getsockname()[1] for each in (first, second)]
    one, two, three = hand(first, second, third, names="same:same:same")
    listeners = [
        listener("socket", f"unix:{path}"),
        listener("other", "127.0.0.1:9"),
        listener("b", f"127.0.0.1:{ports[1]}"),
        listener("a", f"localhost:{ports[0]}"),
    ]
    assert activation.match([one, two, three], listeners) == {"a": one.socket, "b": two.socket, "socket": three.socket}


def test_the_address_counts_for_more_than_the_name(hand: Hand) -> None:
    first, second = listening(), listening()
    one, two = hand(first, second, names="b:a")
    port = one.socket.getsockname()[1]
    listeners = [listener("a", f"127.0.0.1:{port}"), listener("b", "127.0.0.1:9")]
    with capturedLogs() as events:
        found = activation.match([one, two], listeners)
    assert found == {"a": one.socket}
    assert [event["log_level"].name for event in events] == ["warn"]  # nobody is left whose name is a


def test_otherwise_the_name_decides_and_the_address_is_the_manager_s(hand: Hand) -> None:
    (one,) = hand(listening(), names="web")
    with capturedLogs() as events:
        assert activation.match([one], [listener("web", "127.0.0.1:9")]) == {"web": one.socket}
    assert events[0]["where"] == f"127.0.0.1:{one.socket.getsockname()[1]}"
    assert events[0]["address"] == "127.0.0.1:9"


def test_a_listener_with_any_port_has_no_address_to_go_by(hand: Hand) -> None:
    (one,) = hand(listening(), names="web")
    assert activation.match([one], [listener("other", "127.0.0.1:0"), listener("web", "127.0.0.1:0")]) == {
        "web": one.socket
    }


def test_a_port_of_both_families_is_every_ipv4_address_too(hand: Hand) -> None:
    (one,) = hand(listening("::", socket.AF_INET6, v6only=False))
    port = one.socket.getsockname()[1]
    assert one.every
    assert activation.match([one], [listener("web", f"0.0.0.0:{port}")]) == {"web": one.socket}


def test_but_rather_every_ipv6_address(hand: Hand) -> None:
    (one,) = hand(listening("::", socket.AF_INET6, v6only=False))
    port = one.socket.getsockname()[1]
    listeners = [listener("four", f"0.0.0.0:{port}"), listener("six", f"[::]:{port}")]
    assert activation.match([one], listeners) == {"six": one.socket}


@pytest.mark.parametrize(("where", "address"), [("::", "0.0.0.0:{}"), ("::1", "0.0.0.0:{}"), ("::", "127.0.0.1:{}")])
def test_an_ipv6_socket_is_no_ipv4_address(hand: Hand, where: str, address: str) -> None:
    (one,) = hand(listening(where, socket.AF_INET6))
    assert not one.every
    assert activation.match([one], [listener("web", address.format(one.socket.getsockname()[1]))]) == {}


def test_what_nobody_wants_is_closed_and_told(hand: Hand) -> None:
    one, two = hand(listening(), listening(f"\0protogate/{os.getpid()}", socket.AF_UNIX), names="a:b")
    with capturedLogs() as events:
        assert activation.match([one, two], [listener("web", "127.0.0.1:9")]) == {}
    assert [event["name"] for event in events] == ["a", "b"]
    assert (one.socket.fileno(), two.socket.fileno()) == (-1, -1)


def test_an_abstract_socket_serves_by_its_name(hand: Hand) -> None:
    (one,) = hand(listening(f"\0protogate/{os.getpid()}", socket.AF_UNIX), names="web")
    assert one.where is None
    assert activation.match([one], [listener("web", "127.0.0.1:9")]) == {"web": one.socket}


# -- a real manager

PROGRAM = """
import json, os, sys
from protogate.process import activation
from protogate.config.model import Listener
found = activation.match(activation.take(), [Listener(name="web", address="127.0.0.1:9")])
connection, _ = found["web"].accept() if found["web"].setblocking(True) is None else None
connection.sendall(json.dumps([sorted(found), [name for name in os.environ if "LISTEN" in name]]).encode())
connection.close()
"""


def test_systemd_hands_its_socket_over(tmp_path: Path) -> None:
    tool, port = need("systemd-socket-activate"), free_port()
    words = [tool, "-l", f"127.0.0.1:{port}", "--fdname=web", sys.executable, "-c", PROGRAM]
    started = subprocess.Popen(words, stderr=subprocess.PIPE, cwd=tmp_path)
    try:
        assert started.stderr is not None
        assert b"Listening" in started.stderr.readline()
        with socket.create_connection(("127.0.0.1", port), timeout=30) as client:
            assert json.loads(client.makefile("rb").read()) == [["web"], []]
        assert started.wait(30) == 0
    finally:
        started.kill()
        started.communicate()
