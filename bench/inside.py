"""
Ways through the gateway's own code, as L{inproc} counts what they cost: a reactor of memory, on whose connections the
bench says what clients and upstreams say.
"""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from twisted.internet.defer import Deferred, succeed
from twisted.internet.protocol import ClientFactory, Protocol

from protogate.build import build
from protogate.config.model import PoolSettings
from protogate.context import Context
from protogate.exchange.exchange import Exchange
from protogate.interfaces import IService, IStreamCodec
from protogate.observe.record import encode, record
from protogate.plugins import find
from protogate.service import GatewayService
from protogate.testing.names import Names
from protogate.testing.reactor import MemoryReactor
from protogate.testing.transport import Link, Wire
from protogate.upstream.pool import Pool
from protogate.wheel import Wheel

LISTEN, ORIGIN, ADMIN = 8080, 8081, 8082
READ: Final = 65536
"""Bytes that a transport reads at once."""
LINE: Final = b" /api/v1/orders/4711?verbose=1 HTTP/1.1\r\n"
FIELDS: Final = b"Host: shop.example:8080\r\nUser-Agent: inproc/1.0\r\nAccept: */*\r\n"
ANSWER: Final = (
    b"HTTP/1.1 200 OK\r\nServer: nginx/1.22.1\r\nDate: Mon, 30 Nov 2026 01:00:00 GMT\r\n"
    b"Content-Type: application/json\r\nContent-Length: %d\r\nConnection: keep-alive\r\n\r\n"
)
SMALL: Final = 200


class Quick(Wire):
    """A transport that costs next to nothing: what is written stands in C{sent}, and nobody ever pauses."""

    def __init__(self, *args: Any, **named: Any) -> None:
        super().__init__(*args, **named)
        self.sent: list[bytes] = []
        self.write = self.sent.append


class Reactor(MemoryReactor):
    """Joins protocols by wires that carry nothing."""

    def __init__(self, wire: type[Quick] = Quick) -> None:
        super().__init__()
        self._wire = wire

    def join(self, a: Any, b: Any, here: Any, there: Any) -> Link:
        """See L{MemoryReactor.join}."""
        link = Link(a, b, client=here, server=there, wire=self._wire)
        self.links.append(link)
        return link


class Silent(Protocol):
    """The far end of a connection: the bench speaks for it."""

    def dataReceived(self, data: bytes) -> None:
        """Never called: nothing is carried."""
        raise AssertionError("nothing is carried")


class Recording(GatewayService):
    """Makes the line of every record at once, where the access log's thread would; nothing is written."""

    lines = 0

    def _record(self, exchange: Exchange) -> None:
        super()._record(exchange)
        encode(record(exchange))
        self.lines += 1


def message(method: bytes, body: int, answer: int) -> tuple[bytes, bytes]:
    """A request and its answer, with bodies of so many bytes."""
    length = b"Content-Length: %d\r\n" % body if body else b""
    return method + LINE + FIELDS + length + b"\r\n" + b"u" * body, ANSWER % answer + b"d" * answer


class Row:
    """
    One way through the code, with its connections open.

    @param body: bytes that the client sends.
    @param answer: bytes that the upstream sends.
    @ivar wire: of its connections.
    """

    wire = Quick

    def __init__(self, name: str, body: int = 0, answer: int = SMALL) -> None:
        self.name, self.took = name, float("inf")
        request, response = message(b"POST" if body else b"GET", body, answer)
        self._request, self._least = request, answer
        self._pieces = [response[at : at + READ] for at in range(0, len(response), READ)]
        self._clients: list[tuple[Callable[[bytes], None], list[bytes]]] = []
        self._origins: list[tuple[Callable[[bytes], None], list[bytes]]] = []
        self.lines: Callable[[], int | None] = lambda: None
        self.service: Any = None  # held, like all else that a process holds

    @property
    def together(self) -> int:
        """Requests in each turn."""
        return len(self._clients)

    def client(self, protocol: Any) -> None:
        """A connection on which is asked."""
        self._clients.append((protocol.dataReceived, protocol.transport.sent))

    def origin(self, protocol: Any) -> None:
        """A connection on which is answered."""
        self._origins.append((protocol.dataReceived, protocol.transport.sent))

    def begin(self, dial: Callable[[], object]) -> None:
        """The first requests: C{dial} makes the connection that each of them waits for."""
        for ask, _ in self._clients:
            ask(self._request)
            dial()

    def began(self) -> None:
        """The connections to upstreams are there."""

    def turns(self, count: int) -> None:
        """Every connection asks so many times."""
        request, pieces, clients, origins = self._request, self._pieces, self._clients, self._origins
        for _ in range(count):
            for ask, _sent in clients:
                ask(request)
            for answer, sent in origins:
                if sent:
                    sent.clear()
                    for piece in pieces:
                        answer(piece)
            for _ask, sent in clients:
                if not sent:
                    raise SystemExit(f"{self.name}: a request was not answered")
                sent.clear()

    def check(self) -> None:
        """
        One more turn, looked at closely.

        @raise SystemExit: a request did not arrive as it should, or its answer did not.
        """
        for ask, _ in self._clients:
            ask(self._request)
        length = self._request.partition(b"\r\n\r\n")[2]
        asked = 0
        for answer, sent in self._origins:
            if sent:
                asked += 1
                told, sent[:] = b"".join(sent), []
                if LINE not in told or not told.endswith(b"\r\n\r\n" + length):
                    raise SystemExit(f"{self.name}: the upstream was asked {told[:200]!r}")
                for piece in self._pieces:
                    answer(piece)
        if asked != len(self._clients):
            raise SystemExit(f"{self.name}: {asked} of {len(self._clients)} requests reached the upstream")
        for _, sent in self._clients:
            told, sent[:] = b"".join(sent), []
            if not told.startswith(b"HTTP/1.1 200 ") or not told.endswith(b"\r\n\r\n" + b"d" * self._least):
                raise SystemExit(f"{self.name}: the client was answered {told[:200]!r}")

    def ask(self, requests: int) -> None:
        """One round; remembers the shortest."""
        turns = max(requests // self.together, 1)
        before, begun = self.lines(), time.process_time()
        self.turns(turns)
        took = time.process_time() - begun
        after = self.lines()
        if before is not None and after is not None and after - before != turns * self.together:
            raise SystemExit(f"{self.name}: {after - before} records of {turns * self.together} requests")
        self.took = min(self.took, took / turns / self.together)


# -- what stands between the two codecs


def bare(name: str, connections: int, now: Callable[[], float], *, pooled: bool) -> Row:
    """Codec to codec; with a pool between them, or each connection with one of its own."""
    row, codec = Row(name), find(IStreamCodec, "http1")
    context = Context(Wheel(Reactor(), now=now))

    def dial(ready: Callable[[Any], None]) -> Any:
        protocol: Any = codec.client(ready, context)
        Link(protocol, Silent(), wire=Quick)
        row.origin(protocol)
        return protocol

    class Connector:
        def connect(self, ready: Callable[[Any], None], times: object) -> Deferred[None]:
            dial(ready)
            return succeed(None)

    pool = Pool(Connector(), context, PoolSettings(max_per_endpoint=connections))
    for _ in range(connections):
        service: IService = pool if pooled else dial(lambda connection: None)
        protocol: Any = codec.server(service, context)
        Link(Silent(), protocol, wire=Quick)
        row.client(protocol)
    return row


class Ends(ClientFactory[Silent]):
    """The far ends of the gateway's connections, on either side."""

    noisy = False
    protocol = Silent


def whole(row: Row, connections: int, now: Callable[[], float], settings: dict[str, Any]) -> Row:
    """The service, with a configuration."""
    reactor, ends = Reactor(row.wire), Ends()
    with tempfile.TemporaryDirectory(prefix="protogate-inproc-") as folder:
        path = Path(folder, "gateway.json")
        path.write_text(json.dumps(settings))
        service = Recording(str(path), build(str(path)), reactor, now=now, signals=False, dns=Names({}))
    reactor.listenTCP(ORIGIN, ends, interface="127.0.0.1")
    service.startService()
    for _ in range(connections):
        reactor.connectTCP("127.0.0.1", LISTEN, ends)
        reactor.run()
        row.client(reactor.links[-1].ends[1][0])
    del reactor.links[:]
    row.begin(reactor.run)
    for link in reactor.links:
        row.origin(link.ends[0][0])
    row.began()
    row.lines = lambda: service.lines
    row.service = service
    return row
