"""
Connecting.  Twisted resolves, binds and connects the socket, and knows every way in which that can fail; uvloop gets
it when it is connected.

Must not know: any protocol.
"""

from __future__ import annotations

from typing import Any

from twisted.internet import tcp
from twisted.python.failure import Failure

from protogate.reactor.drive import drive
from protogate.reactor.streams import Client, TLSClient
from protogate.reactor.tls import TLS


class HandsOver:
    """
    What of Twisted's attempt is done by uvloop.

    @cvar plain: the transport of a connection.
    @cvar secured: the one with TLS.
    """

    plain: Any
    secured: Any

    reactor: Any
    connector: Any
    connected: Any
    disconnected: Any
    socket: Any
    fileno: Any
    _transport: Any = None

    def _connectDone(self) -> None:
        connector, sock = self.connector, self.socket
        del self.socket, self.fileno  # uvloop closes it from here on
        if connector.tls is None:
            self._transport = self.plain(self)
        else:
            self._transport = self.secured(self, connector.tls, connector.name)
        drive(self.reactor.loop.connect_accepted_socket(lambda: self._transport, sock), self._handed)

    def _handed(self, result: Any) -> None:
        if isinstance(result, Failure):
            self.failIfNotConnected(result)

    def failIfNotConnected(self, err: Any) -> None:
        if self._transport is not None and not self.connected:
            self._transport.abandon()
        super().failIfNotConnected(err)  # type: ignore[misc]
        if not self.connected:
            self.disconnected = True


class Attempt(HandsOver, tcp.Client):
    """To connect over TCP."""

    plain = Client
    secured = TLSClient


class Connector(tcp.Connector):
    """
    Twisted's, for L{Attempt}.

    @ivar tls: given for TLS of uvloop's.
    @ivar name: the server's, if C{tls} has none.
    """

    tls: TLS | None = None

    @property
    def name(self) -> str:
        return str(self.host)

    def _makeTransport(self) -> Any:
        return Attempt(self.host, self.port, self.bindAddress, self, self.reactor)
