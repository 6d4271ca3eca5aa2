"""
Listening.  Twisted binds, accepts, and closes the socket; uvloop gets each connection.

uvloop can accept, too, for a third less.  But it asks for the address of the peer later, when a peer that has sent a
request and reset the connection has none any more: who that was, and what he wanted, would never be known.

Must not know: any protocol.
"""

from __future__ import annotations

from typing import Any

from twisted.internet import tcp
from twisted.internet.defer import Deferred, maybeDeferred
from twisted.internet.tcp import _accept, _BuffersLogs, _reservedFD
from twisted.logger import Logger

from protogate.reactor.drive import drive
from protogate.reactor.streams import Server, TLSServer
from protogate.reactor.tls import TLS

_log = Logger()

MORE = 20
"""Connections more that are accepted in one turn after one in which there were enough; as in Twisted."""


class Accepting:
    """
    A port whose connections uvloop gets.

    @cvar plain: the transport of a connection.
    @cvar secured: the one with TLS.
    @ivar tls: given for TLS of uvloop's.
    """

    plain: Any
    secured: Any
    tls: TLS | None = None

    _handed = 0  # connections that uvloop has, and no protocol yet
    _told: Deferred[Any] | None = None  # waits for those

    reactor: Any
    socket: Any
    sessionno: int
    numberAccepts: int
    _logger: Any

    def doRead(self) -> None:
        """Accept what waits."""
        accepted = 0
        try:
            # Nothing is logged while there is no descriptor: that might want one.
            with _BuffersLogs(self._logger.namespace, self._logger.observer) as logger:
                for sock, peer in _accept(logger, range(self.numberAccepts), self.socket, _reservedFD):
                    accepted += 1
                    self._hand(sock, peer)
        except Exception:
            _log.failure("accepting for {port}", port=self)
        self.numberAccepts = self.numberAccepts + MORE if accepted == self.numberAccepts else max(1, accepted)

    def _hand(self, sock: Any, peer: Any) -> None:
        kind = self.plain if self.tls is None else self.secured
        transport = kind(self, self.sessionno, peer)
        self.sessionno += 1
        self._handed += 1
        drive(self.reactor.loop.connect_accepted_socket(lambda: transport, sock), self._made)

    def _made(self, _: object) -> None:
        self._handed -= 1
        told = self._told
        if told is not None and not self._handed:
            self._told = None
            told.callback(None)

    def stopListening(self) -> Any:
        """Twisted: fires when it is closed, and whatever it had accepted until then has its protocol."""
        port: Any = super()
        return maybeDeferred(port.stopListening).addCallback(self._closed)

    def _closed(self, result: Any) -> Any:
        if not self._handed:
            return result
        self._told = Deferred()
        return self._told


class Port(Accepting, tcp.Port):  # type: ignore[misc]
    """A TCP port."""

    plain = Server
    secured = TLSServer
