r"""
A whole gateway without sockets: the real service, on a L{MemoryReactor}.

    with MemoryGateway(CONFIG) as gateway:
        origin = gateway.upstream("192.0.2.7", 80, [Expect(b"\r\n\r\n"), b"HTTP/1.1 204 No Content\r\n\r\n"])
        client = gateway.client()
        client.send(b"GET / HTTP/1.1\r\nHost: a.test\r\n\r\n")
        gateway.run()
        # client.received, origin.received, gateway.records

Rules
- Nothing happens between two calls of C{run()} or C{advance()}.
- The configuration is a real one, read from a real file; only connections, clock, threads and names are made of memory.
- Leaving the C{with} block stops the service as a process would, and fails when something of it stays behind.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from twisted.internet.interfaces import IProtocol
from twisted.internet.protocol import ClientFactory

from protogate.build import build
from protogate.config import address
from protogate.exchange.exchange import Exchange
from protogate.observe.record import record
from protogate.observe.schema import Record
from protogate.service import GatewayService
from protogate.testing.names import Names
from protogate.testing.reactor import MemoryReactor
from protogate.testing.transport import ALL, HIGH, Link
from protogate.testing.upstream import Raw, Script, Upstream
from protogate.upstream.board import Board

Source = Mapping[str, Any] | str
"""A configuration: as the mapping it means, or as the text of a file."""


class _Watched(GatewayService):
    """Keeps every record."""

    records: list[Record]
    told: Callable[[Record], object] | None = None

    def _record(self, exchange: Exchange) -> None:
        made = record(exchange)
        self.records.append(made)
        super()._record(exchange)
        if self.told is not None:
            self.told(made)


class MemoryGateway:
    """
    @ivar reactor: connections and clock.
    @ivar names: what names stand for.
    @ivar service: the running L{GatewayService}; set its C{told} to hear of each record.
    @ivar records: what every exchange that is over ended in.
    """

    def __init__(
        self,
        config: Source,
        *,
        most: int = ALL,
        high: int = HIGH,
        reactor: MemoryReactor | None = None,
        board: Board | None = None,
        names: Names | None = None,
    ) -> None:
        """
        Build and start.

        @param most: bytes that each step carries; 1 shows every message byte by byte to everybody.
        @param high: size of all send buffers.
        @param reactor: to run on; None = one of its own, with these.
        @param board: what it tells other processes of the same gateway (L{protogate.testing.boards}).
        @param names: whom to ask for addresses; None = one of its own.
        @raise ConfigFaults: the configuration has faults.
        """
        self.reactor = MemoryReactor(most, high) if reactor is None else reactor
        self.names = Names({"localhost": ["127.0.0.1"]}) if names is None else names
        self._folder = tempfile.TemporaryDirectory(prefix="protogate-testing-")
        self._path = Path(self._folder.name, "gateway.yaml")
        try:
            self.write(config)
            self.service = _Watched(
                str(self._path), build(str(self._path)), self.reactor, now=None, signals=False, dns=self.names,
                board=board,
            )  # fmt: skip
            self.records: list[Record] = []
            self.service.records = self.records
            self.service.startService()
        except BaseException:
            self._folder.cleanup()
            raise
        self.run()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        left = self.stop()
        if error is None and left:
            raise AssertionError(f"left behind by the gateway: {'; '.join(left)}")

    # -- both ends

    def client(self, listener: str = "", *, address: tuple[str, int] | None = None) -> Raw:
        """
        A connection to a listener, by its name, or to the first one.

        @param address: of the client.
        """
        raw = Raw()
        self.connect(Once(raw), listener, address=address)
        return raw

    def connect(self, factory: Any, listener: str = "", *, address: tuple[str, int] | None = None) -> None:
        """
        Connect what a factory makes to a listener, by its name, or to the first one.

        @param address: of the client.
        """
        where = self._listener(listener)
        if where.path:
            self.reactor.connectUNIX(where.path, factory)
        else:
            host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(where.host, where.host)
            self.reactor.connectTCP(host, where.port, factory, bindAddress=address)
        self.run()

    def ask(self, data: bytes, listener: str = "") -> bytes:
        """Send C{data} on a connection of its own; what came back when all was quiet."""
        client = self.client(listener)
        client.send(data)
        self.run()
        return client.received

    def upstream(self, host: str, port: int, *scripts: Script) -> Upstream:
        """Something that listens there, see L{Upstream}."""
        made = Upstream(*scripts)
        self.reactor.listenTCP(port, made, interface=host)
        return made

    def link(self, raw: Raw) -> Link:
        """The link that a client or an upstream's connection is an end of."""
        for link in self.reactor.links:
            if any(end is raw for end, _ in link.ends):
                return link
        raise LookupError("no link of this gateway ends there")

    # -- time

    def run(self) -> None:
        """Go on until all is quiet; the clock stands still."""
        self.reactor.run()

    def advance(self, seconds: float) -> None:
        """Let time pass."""
        self.reactor.advance(seconds)

    def reload(self, config: Source) -> bool:
        """Put another configuration in force; False when it has faults, and the old one stays."""
        self.write(config)
        results: list[bool] = []
        self.service.reload().addCallback(results.append)
        self.run()
        return results == [True]

    def stop(self) -> list[str]:
        """Stop the service, with all the time that draining may take; says what is left of it."""
        if not self.service.running:
            return []
        done: list[object] = []
        try:
            self.service.stopService().addCallback(done.append)
            self.advance(float(self.service.built.config.gateway.drain) + 1)
            self.advance(60 if not done or self.reactor.net.links else 0)
        finally:
            self._folder.cleanup()
        left = [] if done else ["it is still draining"]
        left += [f"a delayed call: {call!r}" for call in self.reactor.clock.getDelayedCalls()]
        for link in self.reactor.net.links:
            left += [
                f"an open connection of {end!r}" for end, wire in link.ends if not wire.dead and type(end) is not Raw
            ]
        return left

    def write(self, config: Source) -> None:
        """Put it into the file; nothing is reloaded."""
        text = config if isinstance(config, str) else json.dumps(config)
        self._path.write_text(text, encoding="utf-8")

    def _listener(self, name: str) -> address.Listen:
        listeners = self.service.built.config.listeners
        for listener in listeners:
            if name in ("", listener.name):
                where = self.service.addresses[listener.name]
                path = getattr(where, "name", None)
                if path is not None:
                    return address.Listen("", 0, path.decode() if isinstance(path, bytes) else path)
                return address.Listen(where.host, where.port)
        raise LookupError(f"no listener {name!r}; there are {', '.join(each.name for each in listeners)}")


class Once(ClientFactory[Any]):
    """Connects a protocol that is already there."""

    noisy = False

    def __init__(self, protocol: IProtocol) -> None:
        self._protocol = protocol

    def buildProtocol(self, addr: object) -> Any:
        return self._protocol
