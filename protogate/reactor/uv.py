"""
A Twisted reactor on uvloop, whose stream connections are uvloop's own transports.

TCP and UNIX streams, listening, connected or adopted, are uvloop's; so is TLS, where a C{ssl.SSLContext} or a
L{protogate.reactor.tls.TLS} is given instead of a context factory.  The rest (UDP, processes, serial lines, any reader
or writer) is Twisted's, on uvloop's polls.

Must not know: any protocol, any gateway.
"""

from __future__ import annotations

import socket
from asyncio import set_event_loop
from collections.abc import Mapping
from typing import Any

try:
    import uvloop
except ImportError as missing:
    raise ImportError(
        "the reactor protogate-uv needs uvloop, which there is for CPython on Linux and macOS: pip install uvloop"
    ) from missing
from twisted.internet._signals import SignalHandling, _MultiSignalHandling
from twisted.internet.asyncioreactor import AsyncioSelectorReactor
from twisted.internet.base import ReactorBase
from twisted.internet.error import UnsupportedAddressFamily
from twisted.internet.main import installReactor
from twisted.logger import Logger
from twisted.python.failure import Failure

from protogate.reactor import attempts, ports, unix
from protogate.reactor.adopted import Adopted
from protogate.reactor.children import Children
from protogate.reactor.context import Current
from protogate.reactor.drive import drive
from protogate.reactor.tls import TLS
from protogate.reactor.transport import Transport


class UVReactor(AsyncioSelectorReactor):
    """
    See L{IReactorCore} and the other interfaces of Twisted's reactors.

    @ivar loop: of uvloop.
    @ivar native: the connections that uvloop reads and writes.
    @ivar current: whose protocol is being called.
    """

    native_tls = True
    """TLS is that of C{ssl}: see L{protogate.tls}."""
    _log = Logger()

    def __init__(self, loop: uvloop.Loop | None = None) -> None:
        self.loop: Any = loop or uvloop.new_event_loop()
        self.native: set[Transport] = set()
        self.current = Current()
        self._written: list[Transport] = []
        set_event_loop(self.loop)
        self.loop.set_exception_handler(self._unexpected)
        super().__init__(self.loop)

    def _unexpected(self, loop: object, context: Mapping[str, Any]) -> None:
        """What nobody caught in a callback of uvloop's, or in a task that runs on the loop."""
        exception, message = context.get("exception"), context["message"]
        if exception is None:
            self._log.error("uvloop: {message}", message=message)
        else:
            self._log.failure("uvloop: {message}", Failure(exception), message=message)

    def run(self, installSignalHandlers: bool = True) -> None:
        with self.current.laid():
            super().run(installSignalHandlers)

    # -- what transports ask

    def soon(self, transport: Transport) -> None:
        """Have it flush when this turn of the loop is over."""
        if not self._written:
            self.loop.call_soon(self._flush)
        self._written.append(transport)

    def _flush(self) -> None:
        written, self._written = self._written, []
        for transport in written:
            transport.flush()

    # -- IReactorTCP, IReactorUNIX

    def listenTCP(self, port: Any, factory: Any, backlog: int = 50, interface: str = "") -> Any:
        return self._listen(ports.Port(port, factory, backlog, interface, self))

    def listenUNIX(
        self, address: Any, factory: Any, backlog: int = 50, mode: int = 0o666, wantPID: int = 0, tls: Any = None
    ) -> Any:
        return self._listen(unix.Port(address, factory, backlog, mode, self, wantPID), tls)

    def connectTCP(self, host: str, port: Any, factory: Any, timeout: float = 30, bindAddress: Any = None) -> Any:
        return self._connect(attempts.Connector(host, port, factory, timeout, bindAddress, self))

    def connectUNIX(self, address: Any, factory: Any, timeout: float = 30, checkPID: int = 0, tls: Any = None) -> Any:
        return self._connect(unix.Connector(address, factory, timeout, self, checkPID), tls)

    def _listen(self, port: Any, tls: object = None) -> Any:
        if tls is not None:
            port.tls, port._type = _native(tls), "TLS"
        port.startListening()
        return port

    def _connect(self, connector: Any, tls: object = None) -> Any:
        if tls is not None:
            connector.tls = _native(tls)
        connector.connect()
        return connector

    # -- IReactorSSL

    def listenSSL(self, port: Any, factory: Any, contextFactory: Any, backlog: int = 50, interface: str = "") -> Any:
        if TLS.of(contextFactory) is None:
            return super().listenSSL(port, factory, contextFactory, backlog, interface)
        return self._listen(ports.Port(port, factory, backlog, interface, self), contextFactory)

    def connectSSL(
        self, host: str, port: Any, factory: Any, contextFactory: Any, timeout: float = 30, bindAddress: Any = None
    ) -> Any:
        if TLS.of(contextFactory) is None:
            return super().connectSSL(host, port, factory, contextFactory, timeout, bindAddress)
        return self._connect(attempts.Connector(host, port, factory, timeout, bindAddress, self), contextFactory)

    # -- IReactorSocket; datagram ports are Twisted's

    def adoptStreamPort(self, fileDescriptor: int, addressFamily: int, factory: Any, tls: Any = None) -> Any:
        if addressFamily == socket.AF_UNIX:
            return self._listen(unix.Port._fromListeningDescriptor(self, fileDescriptor, factory), tls)
        self._supported(addressFamily)
        return self._listen(ports.Port._fromListeningDescriptor(self, fileDescriptor, addressFamily, factory), tls)

    def adoptStreamConnection(self, fileDescriptor: int, addressFamily: int, factory: Any, tls: Any = None) -> Any:
        self._supported(addressFamily)
        sock = socket.fromfd(fileDescriptor, addressFamily, socket.SOCK_STREAM)
        native = None if tls is None else _native(tls)
        try:
            port = Adopted(self, factory, native)
            if native is None and not port.build(sock):
                sock.close()
                return None
        except BaseException:
            sock.close()
            raise
        transport = port.transport(addressFamily, sock.getpeername())
        drive(self.loop.connect_accepted_socket(lambda: transport, sock), lambda _: None)
        return transport

    def _supported(self, family: int) -> None:
        if family not in self._supportedAddressFamilies:
            raise UnsupportedAddressFamily(family)

    # -- IReactorFDSet: what uvloop reads belongs to it

    def addReader(self, reader: Any) -> None:
        if isinstance(reader, Transport):
            reader.startReading()
        else:
            super().addReader(reader)

    def removeReader(self, reader: Any) -> None:
        if isinstance(reader, Transport):
            reader.stopReading()
        else:
            super().removeReader(reader)

    def getReaders(self) -> list[Any]:
        return [*super().getReaders(), *(each for each in self.native if each.reading)]

    def getWriters(self) -> list[Any]:
        return [*super().getWriters(), *(each for each in self.native if each.writing)]

    def removeAll(self) -> list[Any]:
        ours = [each for each in self.native if each.reading or each.writing]
        for each in ours:
            each.stopReading()
        return [*super().removeAll(), *ours]

    # -- signals

    def _signalsFactory(self) -> SignalHandling:
        return _MultiSignalHandling((ReactorBase._signalsFactory(self), Children(self)))


def _native(given: object) -> TLS:
    tls = TLS.of(given)
    if tls is None:
        raise TypeError(f"{given!r} is neither an ssl.SSLContext nor a TLS")
    return tls


def install() -> None:
    """Make it the reactor of this process."""
    installReactor(UVReactor())
