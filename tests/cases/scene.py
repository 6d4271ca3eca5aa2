r"""
Both ends of a whole gateway, for tests that look at bytes: a raw client, and an origin that reads strictly.

    with Scene() as scene:
        seen = scene.play(b"GET / HTTP/1.1\r\n", b"Host: a.test\r\n\r\n")
        # seen.answers, seen.eof, seen.requests, seen.records

Rules
- An origin answers a request when the whole of it was read, never earlier.
- A connection that the gateway left within a request must be gone: nothing may be appended to it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from stage import Stage
from twisted.internet.error import ConnectionDone
from twisted.internet.interfaces import IHalfCloseableProtocol
from twisted.internet.protocol import Factory, Protocol
from wire import Message, answers, oracle, requests
from zope.interface import implementer

from protogate.testing.gateway import MemoryGateway
from protogate.testing.transport import ALL

READ = 65536
"""What one read of a socket gives at most: for C{net.most} where bodies are long."""
HOST, PORT = "192.0.2.7", 80
CONFIG: Mapping[str, Any] = {
    "gateway": {"name": "edge"},
    "listeners": [{"name": "web", "address": "127.0.0.1:8080"}],
    "upstreams": [{"name": "origin", "endpoints": [{"url": f"http://{HOST}:{PORT}"}]}],
    "routes": [
        {"name": "all", "value": "/", "matcherType": "prefix", "routes": [{"targets": [{"upstream": "origin"}]}]}
    ],
}
GET = b"GET %b HTTP/1.1\r\nHost: a.test\r\n\r\n"
NEXT = GET % b"/next"
"""What follows on the same connection: must be answered after a good request, and never read after a bad one."""

POST = b"POST /a HTTP/1.1\r\nHost: a.test\r\n"
CHUNKED = POST + b"Transfer-Encoding: chunked\r\n\r\n"

Answer = bytes | None | Callable[[Message], bytes | None]
"""What an origin sends for a request; None = nothing yet, C{origin.last.send()} goes on."""


def ok(request: Message) -> bytes:
    """Two bytes, or the head that announces them."""
    return b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n" + (b"" if request.method == b"HEAD" else b"ok")


@implementer(IHalfCloseableProtocol)
class Served(Protocol):
    """
    A connection to an origin.

    @ivar received: every byte.
    @ivar requests: those that are complete.
    @ivar rest: what there is of one that is not.
    @ivar lost: why it is gone, or None.
    """

    transport: Any

    def __init__(self, origin: Origin) -> None:
        self.origin = origin
        self.received = b""
        self.requests: list[Message] = []
        self.rest: Message | bytes | None = None
        self.lost: BaseException | None = None
        self.eof = self.tunnel = False
        self._unread = b""

    def connectionMade(self) -> None:
        if self.origin.paused:
            self.transport.pauseProducing()

    def dataReceived(self, data: bytes) -> None:
        self.received += data
        if self.tunnel:
            return
        found, self.rest, self._unread = requests(self._unread + data)
        self.requests += found
        for request in found:
            self.tunnel = request.tunnel
            self.origin.asked(self, request)

    def send(self, data: bytes) -> None:
        self.transport.write(data)

    def close(self) -> None:
        self.transport.loseConnection()

    def reset(self) -> None:
        self.transport.abortConnection()

    def readConnectionLost(self) -> None:
        self.eof = True
        self.transport.loseConnection()

    def writeConnectionLost(self) -> None:
        pass

    def connectionLost(self, reason: Any = None) -> None:
        self.lost = reason.value

    @property
    def clean(self) -> bool:
        """Whether it ended without a reset."""
        return self.lost is None or isinstance(self.lost, ConnectionDone)


class Origin(Factory):
    """
    @ivar answers: the n-th request gets the n-th, further ones the last.
    @ivar requests: every complete one, over all connections.
    @ivar connections: every connection.
    @ivar paused: new connections read nothing.
    """

    noisy = False

    def __init__(self, *given: Answer) -> None:
        self.answers: tuple[Answer, ...] = given or (ok,)
        self.requests: list[Message] = []
        self.connections: list[Served] = []
        self.paused = False

    @property
    def last(self) -> Served:
        return self.connections[-1]

    def buildProtocol(self, addr: object) -> Served:
        served = Served(self)
        self.connections.append(served)
        return served

    def asked(self, served: Served, request: Message) -> None:
        answer = self.answers[min(len(self.requests), len(self.answers) - 1)]
        self.requests.append(request)
        data = answer(request) if callable(answer) else answer
        if data:
            served.send(data)


class Seen:
    """
    What came of one client connection.

    @ivar received: what the client got.
    @ivar eof: the gateway ended the connection, or its half of it.
    @ivar reset: it did so by a reset.
    @ivar requests: what the origins got, in complete requests.
    @ivar broken: connections to origins that end within a request.
    @ivar records: as they were made, in order.
    """

    def __init__(self, client: Any, methods: Sequence[bytes]) -> None:
        self.client, self.methods = client, methods
        self.requests: list[Message] = []
        self.broken: list[Served] = []
        self.records: list[Any] = []

    @property
    def received(self) -> bytes:
        return bytes(self.client.received)

    @property
    def eof(self) -> bool:
        return bool(self.client.eof)

    @property
    def reset(self) -> bool:
        return self.client.lost is not None and not isinstance(self.client.lost, ConnectionDone)

    @property
    def answers(self) -> list[Message]:
        """Final ones, in order; interim ones are in C{interims}."""
        return [each for each in self._all() if each.status >= 200 or each.status == 101]

    @property
    def interims(self) -> list[Message]:
        return [each for each in self._all() if each.status < 200 and each.status != 101]

    @property
    def statuses(self) -> list[int]:
        return [answer.status for answer in self.answers]

    def _all(self) -> list[Message]:
        return answers(self.received, self.methods, self.eof and not self.reset)


class Scene(Stage):
    """
    A gateway with one origin behind it.

    @ivar gateway: L{MemoryGateway}.
    @ivar origin: L{Origin}.
    """

    def __init__(self, *given: Answer, config: Mapping[str, Any] | None = None) -> None:
        self.gateway = MemoryGateway(dict(CONFIG if config is None else config))
        self.origin = Origin(*given)
        self.gateway.reactor.listenTCP(PORT, self.origin, interface=HOST)

    def check(self) -> None:
        """Whatever origins received is complete, and read alike by others; or its connection is gone."""
        for served in self.origin.connections:
            if served.rest is not None:
                assert served.lost is not None, f"left open within a request: {served.received!r}"
            elif not served.tunnel:
                oracle(served.received, served.requests)

    def open(self, *methods: bytes) -> Seen:
        """A client that has sent nothing yet."""
        return Seen(self.gateway.client(), methods)

    def play(self, *pieces: bytes, methods: Sequence[bytes] = (), leave: bool = True) -> Seen:
        """
        Send C{pieces}, with all quiet between them, on a connection of its own.

        @param leave: the client closes when it got its answers.
        """
        origin, gateway = self.origin, self.gateway
        asked, recorded = len(origin.requests), len(self.records)
        seen = self.open(*methods)
        for piece in pieces:
            seen.client.send(piece)
            gateway.run()
        seen.eof_before = seen.eof  # type: ignore[attr-defined]
        if leave:
            seen.client.close()
            gateway.run()
            if not seen.client.lost:
                gateway.advance(0.05)
        self.look(seen, asked, recorded)
        return seen

    def look(self, seen: Seen, asked: int = 0, recorded: int = 0) -> None:
        """Fill in what happened since so many requests and records."""
        seen.requests = self.origin.requests[asked:]
        seen.records = self.records[recorded:]
        seen.broken = [each for each in self.origin.connections if each.rest is not None]

    def reply(self, *pieces: bytes, request: bytes = NEXT, methods: Sequence[bytes] = ()) -> Seen:
        """One request, whose answer the origin (made with C{Scene(None)}) sends in C{pieces}."""
        asked, recorded = len(self.origin.requests), len(self.records)
        seen = self.open(*methods)
        seen.client.send(request)
        self.gateway.run()
        served = self.origin.last
        for each in self.origin.connections:
            if each.lost is None and each.requests and each.requests[-1] is self.origin.requests[-1]:
                served = each
        seen.served = served  # type: ignore[attr-defined]
        for piece in pieces:
            served.send(piece)
            self.gateway.run()
        self.look(seen, asked, recorded)
        return seen

    def bytewise(self) -> Bytewise:
        """Within this C{with}, every connection carries one byte at a time."""
        return Bytewise(self.gateway)


class Bytewise:
    """See L{Scene.bytewise}."""

    def __init__(self, gateway: MemoryGateway) -> None:
        self._net = gateway.reactor.net

    def __enter__(self) -> None:
        self._net.most = 1

    def __exit__(self, *_: object) -> None:
        self._net.most = ALL


def splits(data: bytes, step: int = 1) -> Iterator[tuple[bytes, ...]]:
    """Whole, then cut in two at every offset, or at every so-manieth."""
    yield (data,)
    for at in range(1, len(data), step):
        yield data[:at], data[at:]


def refused(
    scene: Scene,
    data: bytes,
    status: int | Sequence[int] = 400,
    methods: Sequence[bytes] = (),
    step: int = 1,
    malformed: bool = True,
) -> None:
    """
    However C{data} is cut, and whatever follows it: one error answer, the end of the connection, nothing upstream but
    perhaps the beginning of a request on a connection that is gone; one record that blames the client.

    @param malformed: the fault stands in the head, so nothing at all may go upstream and the record says malformed.
    """
    allowed = (status,) if isinstance(status, int) else tuple(status)

    def check(seen: Seen, cut: object) -> None:
        got = seen.answers
        assert [each.status in allowed for each in got] == [True], (cut, seen.received)
        assert got[0].whole
        assert got[0].get(b"connection") == b"close", (cut, got)
        assert seen.eof_before, f"cut at {cut}: the connection stays open"  # type: ignore[attr-defined]
        assert seen.requests == [], (cut, seen.requests)
        assert all(each.lost is not None for each in seen.broken), cut
        assert len(seen.records) == 1, (cut, seen.records)
        record = seen.records[0]
        assert (record.status, record.who) == (got[0].status, "client"), (cut, record)
        if malformed:
            assert record.malformed, (cut, record)
            assert not scene.origin.connections, f"cut at {cut}: something went upstream"

    for pieces in splits(data, step):
        *first, last = pieces
        check(scene.play(*first, last + NEXT, methods=methods), list(map(len, pieces)))
    check(scene.play(data, methods=methods), "nothing follows")
    check(scene.play(data, NEXT, methods=methods), "followed later")
    with scene.bytewise():
        check(scene.play(data + NEXT, methods=methods), "bytewise")
    scene.check()


def passed(
    scene: Scene,
    data: bytes,
    check: Callable[[Message], object],
    methods: Sequence[bytes] = (),
    step: int = 1,
    status: int = 200,
) -> None:
    """
    However C{data} is cut: one good request upstream, which C{check} looks at, one answer, one record, and the
    connection takes the next request.
    """

    def judge(seen: Seen, count: int, cut: object) -> None:
        assert seen.statuses == [status, 200][:count], (cut, seen.received)
        assert all(answer.whole for answer in seen.answers)
        assert not seen.eof_before, f"cut at {cut}: the connection ended"  # type: ignore[attr-defined]
        assert len(seen.requests) == count, (cut, seen.requests)
        check(seen.requests[0])
        assert seen.requests[-1].target == b"/next" or count == 1
        assert [record.status for record in seen.records] == [status, 200][:count], cut
        assert not any(record.malformed or record.error for record in seen.records), (cut, seen.records)
        assert not seen.broken

    for pieces in splits(data, step):
        *first, last = pieces
        judge(scene.play(*first, last + NEXT, methods=methods), 2, list(map(len, pieces)))
    judge(scene.play(data, methods=methods), 1, "alone")
    with scene.bytewise():
        judge(scene.play(data + NEXT, methods=methods), 2, "bytewise")
    scene.check()


def good(
    data: bytes,
    check: Callable[[Seen], object],
    request: bytes = GET % b"/a",
    methods: Sequence[bytes] = (),
    step: int = 1,
) -> None:
    """However C{data}, an answer, is cut: what C{check} wants arrives, and both connections take the next request."""
    with Scene(None) as scene:
        for pieces in splits(data, step):
            seen = scene.reply(*pieces, request=request, methods=methods)
            assert len(seen.answers) == 1, (pieces, seen.received)
            check(seen)
            assert not seen.eof, pieces
            assert [record.error for record in seen.records] == [""]
            seen.client.take()
            seen.methods = ()
            seen.client.send(NEXT)
            scene.gateway.run()
            assert scene.origin.last is seen.served, pieces
            scene.origin.last.send(ok(scene.origin.requests[-1]))
            scene.gateway.run()
            assert seen.statuses == [200], pieces
            seen.client.close()
            scene.origin.last.close()
            scene.gateway.run()
