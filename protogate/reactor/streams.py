"""Connections by where they come from: accepted by a port, or made by an attempt; over TCP, with and without TLS."""

from __future__ import annotations

import socket
from typing import Any

from twisted.internet.address import IPv4Address, IPv6Address
from twisted.internet.interfaces import INegotiated, ITCPTransport, ITLSTransport
from twisted.internet.tcp import _getrealname
from twisted.logger import Logger
from twisted.python.failure import Failure
from zope.interface import implementer

from protogate.reactor.openssl import StartTLS
from protogate.reactor.tls import TLS, Secured
from protogate.reactor.transport import Transport

_log = Logger()


def ip_address(name: tuple[Any, ...]) -> IPv4Address | IPv6Address:
    """A socket address as Twisted's; an IPv6 scope is part of the host."""
    if len(name) == 2:
        return IPv4Address("TCP", *name)
    return IPv6Address("TCP", *(_getrealname(name) if name[3] else name))


class Accepted(Transport):
    """
    A connection that a port has accepted.

    @ivar server: the port.
    @ivar sessionno: how many it had accepted before.
    """

    def __init__(self, port: Any, sessionno: int, name: Any) -> None:
        super().__init__(port.reactor)
        self.server, self.sessionno, self._name = port, sessionno, name

    def getPeer(self) -> Any:
        return self.where(self._name)

    def build(self) -> Any:
        return self.server.factory.buildProtocol(self.getPeer())

    @property
    def hostname(self) -> Any:
        return self.getPeer().host

    def logPrefix(self) -> str:
        return f"{self.prefix()},{self.sessionno},{self.hostname}"

    @property
    def logstr(self) -> str:
        return self.logPrefix()

    def __repr__(self) -> str:
        return f"<{type(self.protocol).__name__} #{self.sessionno} on {self.getHost().port}>"


class Dialled(Transport):
    """
    A connection that an attempt has made.

    @ivar connector: Twisted's; the protocol is built by its factory.
    """

    def __init__(self, attempt: Any) -> None:
        super().__init__(attempt.reactor)
        self._attempt: Any = attempt  # until there is a protocol
        self.connector, self.addr, self._peer = attempt.connector, attempt.addr, attempt.getPeer()

    def connection_made(self, uv: Any) -> None:
        if self._attempt.disconnected:
            uv.abort()  # given up since it was connected
        else:
            super().connection_made(uv)

    def build(self) -> Any:
        self._attempt.connected, self._attempt = True, None
        self.connector.transport = self
        return self.connector.buildProtocol(self._peer)

    def getPeer(self) -> Any:
        return self._peer  # known even when it has reset the connection already

    def told(self, protocol: Any, reason: Failure) -> None:
        try:
            super().told(protocol, reason)
        finally:
            self.connector.connectionLost(reason)

    def failIfNotConnected(self, reason: object) -> None:
        """The connector's timeout came too late."""

    def logPrefix(self) -> str:
        return f"{self.prefix()},client"

    @property
    def logstr(self) -> str:
        return self.logPrefix()

    def __repr__(self) -> str:
        return f"<{self.__class__} to {self.addr} at {id(self):x}>"  # in Twisted's words


class SecuredAccepted(Accepted, Secured):
    """The server's side of TLS."""

    def __init__(self, port: Any, sessionno: int, name: Any) -> None:
        super().__init__(port, sessionno, name)
        self.tls = port.tls

    def refused(self, reason: Failure) -> None:
        heard = getattr(self.server.factory, "handshakeFailed", None)
        if heard is not None:
            try:
                heard(self.getPeer(), reason)
            except Exception:
                _log.failure("handshakeFailed of {factory}", factory=self.server.factory)


class SecuredDialled(Dialled, Secured):
    """The client's side of TLS."""

    def __init__(self, attempt: Any, tls: TLS, name: str) -> None:
        super().__init__(attempt)
        self.tls, self.name = tls, tls.hostname or name

    def refused(self, reason: Failure) -> None:
        self._attempt.failIfNotConnected(reason)


@implementer(ITCPTransport)
class TCP(Transport):
    """What is particular about TCP."""

    def where(self, name: Any) -> Any:
        return ip_address(name)

    def getHost(self) -> Any:
        return ip_address(self._raw.get_extra_info("sockname"))

    def getTcpNoDelay(self) -> bool:
        return bool(self.socket.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))

    def setTcpNoDelay(self, enabled: bool) -> None:
        self.option(socket.IPPROTO_TCP, socket.TCP_NODELAY, enabled)

    def getTcpKeepAlive(self) -> bool:
        return bool(self.socket.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE))

    def setTcpKeepAlive(self, enabled: bool) -> None:
        self.option(socket.SOL_SOCKET, socket.SO_KEEPALIVE, enabled)


@implementer(ITLSTransport)
class Server(Accepted, TCP, StartTLS):
    """A TCP server's."""


@implementer(ITLSTransport)
class Client(Dialled, TCP, StartTLS):
    """A TCP client's."""

    _tlsClientDefault = True


@implementer(INegotiated)
class TLSServer(SecuredAccepted, TCP):
    """A server's, with TLS."""


@implementer(INegotiated)
class TLSClient(SecuredDialled, TCP):
    """A client's, with TLS."""
