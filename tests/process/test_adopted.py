"""Sockets that a service manager opened, for a process by itself."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from typing import Any

import pytest
import pytest_twisted
from twisted.internet import reactor as installed
from twisted.internet.defer import Deferred, DeferredList, maybeDeferred
from twisted.internet.endpoints import TCP4ClientEndpoint, connectProtocol
from twisted.internet.protocol import Factory, Protocol

from protogate.config.address import Listen
from protogate.config.model import Listener
from protogate.process.activation import Inherited
from protogate.process.adopted import Handed

reactor: Any = installed


class Accepting(Factory[Protocol]):
    noisy = False

    def __init__(self) -> None:
        self.accepted: Deferred[None] = Deferred()

    def buildProtocol(self, addr: object) -> None:
        self.accepted.callback(None)


@pytest.fixture
def handed() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as made:
        made.setblocking(False)
        yield made


@pytest_twisted.ensureDeferred
async def test_a_listener_is_on_the_socket_that_was_handed_over_and_others_open_theirs(handed: socket.socket) -> None:
    port = handed.getsockname()[1]
    web = Listener(name="web", address=f"127.0.0.1:{port}")
    more = Listener(name="more", address="127.0.0.1:0")
    opener = Handed([Inherited(handed, "", Listen("127.0.0.1", port))], [web, more])
    accepting: Any = Accepting()
    ports = [*opener.open(web, accepting, ()), *opener.open(more, accepting, ())]
    assert [made.getHost().port == port for made in ports] == [True, False]
    assert opener.open(web, accepting, ports[:1]) == ports[:1]
    assert handed.fileno() == -1, "a duplicate is used"
    await connectProtocol(TCP4ClientEndpoint(reactor, "127.0.0.1", port), Protocol())
    await accepting.accepted
    await DeferredList([maybeDeferred(made.stopListening) for made in ports])
