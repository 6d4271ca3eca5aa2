"""The ports of a configuration: what is open, what cannot be, and that nothing is left of what could not."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from twisted.internet import unix
from twisted.internet.task import Clock

from protogate.config.faults import ConfigFaults
from protogate.config.model import Listener
from protogate.downstream.ports import Open, Ports
from protogate.wheel import Wheel


class Reactor(Clock):
    """Opens real sockets in the file system, and never looks whether anybody comes."""

    def listenUNIX(self, path: str, factory: Any, **more: Any) -> unix.Port:
        port = unix.Port(path, factory, reactor=self, **more)
        port.startListening()
        return port

    def addReader(self, reader: object) -> None:
        pass

    removeReader = removeWriter = addReader


@pytest.fixture
def reactor() -> Reactor:
    return Reactor()


@pytest.fixture
def ports(reactor: Reactor) -> Iterator[Ports]:
    ports = Ports(reactor, Wheel(reactor), lambda name: SimpleNamespace(name=name))
    yield ports
    ports.close(0.0)
    reactor.advance(1)
    assert not ports.retired


def entry(path: Path) -> Listener:
    return Listener(name=path.name, address=f"unix:{path}")


def opened(ports: Ports, path: Path) -> dict[Any, Open]:
    made = ports.open([entry(path)])
    for one, its in made.values():
        one.ports = its
    return {key: one for key, (one, _) in made.items()}


@pytest.mark.filterwarnings(
    "ignore:unclosed <socket:ResourceWarning"
)  # Twisted leaves one it cannot bind to the collector
def test_a_socket_that_could_not_be_opened_can_be_once_nothing_is_in_its_way(ports: Ports, tmp_path: Path) -> None:
    path = tmp_path / "a.sock"
    path.write_text("something else")
    for _ in range(2):
        with pytest.raises(ConfigFaults, match="Address already in use"):
            ports.open([entry(path)])
        assert list(tmp_path.iterdir()) == [path]
    path.unlink()
    ports.opened = opened(ports, path)
    assert path.is_socket()


def test_whom_the_kernel_has_accepted_gets_a_protocol_before_a_port_is_closed(
    ports: Ports, reactor: Reactor, tmp_path: Path
) -> None:
    path = tmp_path / "a.sock"
    ports.opened = opened(ports, path)
    (one,) = ports.opened.values()
    built: list[object] = []
    one.listener.buildProtocol = built.append  # type: ignore[method-assign]
    with ExitStack() as stack:
        clients = [stack.enter_context(socket.socket(socket.AF_UNIX)) for _ in range(300)]
        for client in clients:
            client.connect(str(path))
        ports.close(1.0)
        assert len(built) == len(clients)
        assert not one.listener.draining, "what is accepted is served, as if it had been there before"
        reactor.advance(0)
        assert one.listener.draining
    assert not path.exists()


def test_the_lock_of_a_socket_that_somebody_has_stays(ports: Ports, reactor: Reactor, tmp_path: Path) -> None:
    path = tmp_path / "a.sock"
    ports.opened = opened(ports, path)
    other = Ports(reactor, Wheel(reactor), lambda name: SimpleNamespace(name=name))
    with pytest.raises(ConfigFaults, match="lock"):
        other.open([entry(path)])
    assert {each.name for each in tmp_path.iterdir()} == {"a.sock", "a.sock.lock"}


def test_all_that_cannot_be_opened_is_told_and_nothing_else_is_left_open(
    ports: Ports, reactor: Reactor, tmp_path: Path
) -> None:
    with pytest.raises(ConfigFaults) as raised:
        ports.open([entry(tmp_path / "none" / "a"), entry(tmp_path / "b"), entry(tmp_path / "none" / "c")])
    assert [fault.path for fault in raised.value.faults] == [("listeners", 0, "address"), ("listeners", 2, "address")]
    reactor.advance(0)
    assert list(tmp_path.iterdir()) == []
