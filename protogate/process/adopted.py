"""
The ports of a worker: sockets that its supervisor opened, and that stay open when the worker is gone.

Rules
- A socket is known by its inode: a reload hands all of them over again, and those that are in use already stay so.
- Nothing is bound, unlinked or shut down here: the socket belongs to the supervisor, and perhaps to other workers.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping, Sequence
from typing import Any, cast
from weakref import WeakKeyDictionary

from twisted.internet import tcp, unix
from twisted.internet.interfaces import IListeningPort
from twisted.python.failure import Failure

from protogate.config import model
from protogate.downstream.listener import Listener
from protogate.downstream.ports import Binding
from protogate.observe.events import quietly
from protogate.process.activation import Inherited, match


class Adopting:
    """
    L{protogate.downstream.ports.Opener}.

    @ivar offer: descriptors for each listener of the configuration that is taken next, by its name.  They stay the
        caller's.
    """

    def __init__(self, reactor: Any) -> None:
        self._reactor = reactor
        self.offer: Mapping[str, Sequence[int]] = {}
        self._inodes: WeakKeyDictionary[IListeningPort, int] = WeakKeyDictionary()

    def open(self, entry: model.Listener, factory: Listener, had: Sequence[IListeningPort]) -> Sequence[IListeningPort]:
        """L{Opener}."""
        known = {self._inodes[port]: port for port in had}
        ports: list[IListeningPort] = []
        fresh: list[IListeningPort] = []
        try:
            for descriptor in self.offer[entry.name]:
                inode = os.fstat(descriptor).st_ino
                port = known.get(inode)
                if port is None:
                    port = quietly(adopt, self._reactor, descriptor, factory)
                    self._inodes[port] = inode
                    fresh.append(port)
                ports.append(port)
        except OSError:
            for port in fresh:
                port.stopListening()
            raise
        return ports


class Handed:
    """
    L{protogate.downstream.ports.Opener} of a process by itself that was handed sockets by a service manager.

    @param listeners: of the configuration to begin with; what none of them wants is closed.
    """

    def __init__(self, inherited: Sequence[Inherited], listeners: Sequence[model.Listener]) -> None:
        self._sockets = match(inherited, listeners)

    def open(self, entry: model.Listener, factory: Listener, had: Sequence[IListeningPort]) -> Sequence[IListeningPort]:
        """L{Opener}."""
        from twisted.internet import reactor  # noqa: PLC0415 - importing it installs it

        if had or entry.name not in self._sockets:
            return Binding(reactor).open(entry, factory, had)
        with self._sockets.pop(entry.name) as given:
            return [quietly(adopt, reactor, given.fileno(), factory)]


def adopt(reactor: Any, descriptor: int, factory: Listener) -> IListeningPort:
    """A port on a socket that listens already, and stays open; a duplicate of it is used."""
    with socket.socket(fileno=os.dup(descriptor)) as probe:
        family = probe.family
    if family != socket.AF_UNIX:
        port: IListeningPort = reactor.adoptStreamPort(descriptor, family, factory)
        return port
    local = Local(reactor, descriptor, factory)
    local.startListening()
    return cast("IListeningPort", local)


class Local(unix.Port):
    """A UNIX socket that somebody else bound.  Twisted's own takes its file for its own, with its mode and its end."""

    _shouldShutdown = False

    def __init__(self, reactor: Any, descriptor: int, factory: Listener) -> None:
        self._bound = socket.fromfd(descriptor, socket.AF_UNIX, socket.SOCK_STREAM)
        super().__init__(self._bound.getsockname(), factory, reactor=reactor)

    def startListening(self) -> None:
        """Twisted."""
        tcp._reservedFD.reserve()
        factory: Any = self.factory
        factory.doStart()
        self.connected = True
        self.socket = self._bound
        self.fileno = self.socket.fileno  # type: ignore[method-assign]
        self.numberAccepts = 100
        self.startReading()  # type: ignore[no-untyped-call]

    def connectionLost(self, reason: Failure) -> None:
        """Twisted."""
        tcp.Port.connectionLost(self, reason)
