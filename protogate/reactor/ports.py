"""
Listening.  Twisted binds, names and closes the socket; uvloop accepts, on a duplicate of it.

Rules
- A port that pauses closes the duplicate.  The socket and the queue behind it stay: accepting can begin again.
- No error of accept() ends the accepting: libuv tries again at the next event, and without descriptors it drops
  connections with the help of one that it keeps in reserve.

Must not know: any protocol.
"""

from __future__ import annotations

import socket
from typing import Any

from twisted.internet import tcp

from protogate.reactor.drive import now
from protogate.reactor.streams import Server, TLSServer
from protogate.reactor.tls import TLS
from protogate.reactor.transport import Transport


class Accepting:
    """
    What of Twisted's port is done by uvloop.

    @cvar plain: the transport of a connection.
    @cvar secured: the one with TLS.
    @ivar tls: given for TLS of uvloop's.
    """

    plain: type[Transport]
    secured: type[Transport]
    tls: TLS | None = None

    reactor: Any
    socket: socket.socket
    backlog: Any
    sessionno: int
    _server: Any = None

    def startReading(self) -> None:
        if self._server is None:
            self.reactor.ports.add(self)
            listening = self.reactor.loop.create_server(
                self._accept, sock=self.socket.dup(), backlog=self.backlog or socket.SOMAXCONN
            )
            self._server = now(listening)

    def stopReading(self) -> None:
        if self._server is not None:
            self.reactor.ports.discard(self)
            self._server.close()
            self._server = None

    def _accept(self) -> Any:  # must not raise: uvloop would accept no more
        number = self.sessionno
        self.sessionno += 1
        kind: Any = self.plain if self.tls is None else self.secured
        return kind(self, number)


class Port(Accepting, tcp.Port):
    """A TCP port."""

    plain = Server
    secured = TLSServer
