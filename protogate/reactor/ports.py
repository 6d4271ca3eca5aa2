"""
Listening.  Twisted binds, names and closes the socket; uvloop accepts, on a duplicate of it.

Rules
- Whatever uvloop does with its duplicate, the socket and the queue behind it stay: accepting can begin again.
- uvloop stops accepting for good at an error that it does not know (no memory, no descriptor and none in reserve, a
  firewall's veto) and tells nobody.  So the reactor looks after its ports: L{Accepting.revive}.

Must not know: any protocol.
"""

from __future__ import annotations

import socket
from typing import Any

from twisted.internet import tcp
from twisted.logger import Logger

from protogate.reactor.drive import now
from protogate.reactor.streams import Server, TLSServer
from protogate.reactor.tls import TLS
from protogate.reactor.transport import Transport

_log = Logger()


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
            self.reactor.watch(self)
            self._listen()

    def stopReading(self) -> None:
        if self._server is not None:
            self.reactor.unwatch(self)
            self._server.close()
            self._server = None

    @property
    def reading(self) -> bool:
        return self._server is not None

    def _listen(self) -> None:
        listening = self.reactor.loop.create_server(
            self._accept, sock=self.socket.dup(), backlog=self.backlog or socket.SOMAXCONN
        )
        self._server = now(listening)

    def _accept(self) -> Any:
        number = self.sessionno
        self.sessionno += 1
        kind: Any = self.plain if self.tls is None else self.secured
        return kind(self, number)

    def revive(self) -> None:
        """Accept again if uvloop has given up."""
        if self._server is not None and not all(map(_alive, self._server.sockets)):
            _log.warn("no connection could be accepted for {port}: trying again", port=self)
            self._server.close()
            self._listen()


def _alive(listening: Any) -> bool:
    return listening is not None and listening.fileno() >= 0


class Port(Accepting, tcp.Port):
    """A TCP port."""

    plain = Server
    secured = TLSServer
