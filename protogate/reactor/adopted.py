"""Connections that somebody else accepted."""

from __future__ import annotations

import socket
from typing import Any

from twisted.internet.address import UNIXAddress

from protogate.reactor import streams, unix
from protogate.reactor.tls import TLS
from protogate.reactor.transport import Transport


class Adopted:
    """
    Stands in for the port that one connection came from.

    @ivar factory: of the connection's protocol: this object itself, once that is built.
    """

    def __init__(self, reactor: Any, factory: Any, tls: TLS | None) -> None:
        self.reactor, self.factory, self.tls = reactor, factory, tls
        self._protocol: Any = None

    def build(self, sock: socket.socket) -> bool:
        """Build the protocol; whether there is to be one.  Who adopts a connection is told at once."""
        name: Any = sock.getsockname() if sock.family == socket.AF_UNIX else sock.getpeername()
        where: Any = UNIXAddress(name) if sock.family == socket.AF_UNIX else streams.ip_address(name)
        self._protocol, self.factory = self.factory.buildProtocol(where), self
        return self._protocol is not None

    def buildProtocol(self, address: object) -> Any:
        """What L{build} has built."""
        return self._protocol

    def transport(self, family: int, name: Any) -> Transport:
        """The transport for it."""
        kinds = (unix.Server, unix.TLSServer) if family == socket.AF_UNIX else (streams.Server, streams.TLSServer)
        return kinds[self.tls is not None](self, 0, name)
