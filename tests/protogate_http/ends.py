"""One end of an HTTP/1 connection for tests: a transport that can be looked into, a service, bodies given and taken."""

from __future__ import annotations

from collections import Counter

from twisted.internet.defer import Deferred
from twisted.internet.error import ConnectionDone, ConnectionLost
from twisted.internet.task import Clock
from twisted.internet.testing import StringTransport
from twisted.python.failure import Failure

from protogate.body import Body
from protogate.context import Context, Limits, Timeouts
from protogate.message import Request, Response
from protogate.wheel import Wheel
from protogate_http.http1 import Http1

HIGH = 65536


class Wire(StringTransport):
    """A transport with a send buffer that is flushed at once, or only by flush()."""

    def __init__(self, flushing=True):
        super().__init__()
        self.flushing, self.writes = flushing, []
        self.waiting = 0
        self.asked = self.closing = self.fin = self.rst = False
        self.reading = True

    def write(self, data):
        if self.closing or self.fin or self.rst:
            return
        self.writes.append(bytes(data))
        self.waiting += len(data)
        if self.flushing:
            self.waiting = 0
        elif self.waiting > HIGH and self.producer is not None and not self.asked:
            self.asked = True
            self.producer.pauseProducing()

    def writeSequence(self, pieces):
        self.write(b"".join(pieces))

    def flush(self, most=1 << 40):
        self.waiting = max(self.waiting - most, 0)
        if self.asked and self.waiting < HIGH:
            self.asked = False
            if self.producer is not None:
                self.producer.resumeProducing()

    def unsent(self):
        return self.waiting

    def unregisterProducer(self):
        self.producer = self.streaming = None

    def loseConnection(self):
        self.closing = True

    def loseWriteConnection(self):
        self.fin = True

    def abortConnection(self):
        self.rst = True

    def pauseProducing(self):
        self.reading = False

    def resumeProducing(self):
        self.reading = True

    @property
    def data(self):
        return b"".join(self.writes)

    @property
    def ended(self):
        return self.closing or self.fin or self.rst


class World:
    """A clock and a context that counts."""

    def __init__(self, limits=None, **timeouts):
        self.clock = Clock()
        self.clock.advance(1000)
        self.counts = Counter()
        self.context = Context(
            Wheel(self.clock),
            limits or Limits(),
            Timeouts(**timeouts),
            lambda event: self.counts.update([event]),
        )

    def advance(self, seconds, step=0.5):
        for _ in range(round(seconds / step)):
            self.clock.advance(step)


class App(World):
    """A service, and one server connection to it."""

    def __init__(self, answer=None, limits=None, flushing=True, wire=None, **timeouts):
        super().__init__(limits, **timeouts)
        self.requests, self.closed = [], []
        self.answer = answer or (lambda request: Response(200))
        self.wire = wire or Wire(flushing)
        self.server = Http1().server(self, self.context)
        self.server.makeConnection(self.wire)

    def handle(self, request):
        self.requests.append(request)
        request.closed = self.closed.append
        if request.malformed is not None:
            return Response(request.malformed.status)
        return self.answer(request)

    def feed(self, data, size=0):
        if not size:
            self.server.dataReceived(data)
            return self
        for at in range(0, len(data), size):
            self.server.dataReceived(data[at : at + size])
        return self

    def lose(self, clean=False):
        self.server.connectionLost(Failure(ConnectionDone() if clean else ConnectionLost()))


class Caller(World):
    """One client connection."""

    def __init__(self, limits=None, flushing=True, **timeouts):
        super().__init__(limits, **timeouts)
        self.ready, self.results, self.errors = [], [], []
        self.wire = Wire(flushing)
        self.client = Http1().client(self.ready.append, self.context)
        self.client.makeConnection(self.wire)

    def ask(self, method=b"GET", target=b"/", headers=(), body=None, authority=b"u.test", **named):
        request = Request(method, target, headers, body, authority, **named)
        self.answer = self.client.handle(request)
        self.answer.addCallbacks(self.results.append, lambda failure: self.errors.append(failure.value))
        return request

    def feed(self, data, size=0):
        for at in range(0, len(data), size or len(data) or 1):
            self.client.dataReceived(data[at : at + (size or len(data))])
        return self

    def lose(self, clean=False):
        self.client.connectionLost(Failure(ConnectionDone() if clean else ConnectionLost()))


class Taker:
    """A sink that collects."""

    def __init__(self, body):
        self.body, self.data, self.end = body, b"", None
        body.attach(self)

    def write(self, data):
        assert self.end is None
        assert data
        self.data += data

    def finish(self, trailers=None):
        assert self.end is None
        self.end = ("finish", trailers)

    def abort(self, reason):
        assert self.end is None
        self.end = ("abort", reason)


class Slow(Taker):
    """A sink that pauses its source at each write."""

    def write(self, data):
        super().write(data)
        self.body.pauseProducing()


class Giver:
    """A source: gives its chunks as soon as somebody wants them, and ends unless told not to."""

    def __init__(self, *chunks, length=None, trailers=None, ends=True):
        self.chunks, self.trailers, self.ends = list(chunks), trailers, ends
        self.log = []
        self.body = Body(self, length)
        self.go = self.busy = False

    def pauseProducing(self):
        self.log.append("pause")
        self.go = False

    def resumeProducing(self):
        self.log.append("resume")
        self.go = True
        if self.busy:
            return
        self.busy = True
        while self.go and self.chunks:
            self.body.write(self.chunks.pop(0))
        self.busy = False
        if self.go and self.ends:
            self.go = False
            self.body.finish(self.trailers)

    def stopProducing(self):
        self.log.append("stop")
        self.go = False
        self.chunks = []

    @property
    def stopped(self):
        return "stop" in self.log


def never(cancelled):
    """An answer that never comes."""
    return Deferred(cancelled.append)


def reading(answer):
    """A service that reads the whole request body first, then answers answer(request, data)."""

    def handle(request):
        if request.body is None:
            return answer(request, b"")
        later = Deferred()

        class Sink(Taker):
            def finish(self, trailers=None):
                super().finish(trailers)
                later.callback(answer(request, self.data))

            def abort(self, reason):
                super().abort(reason)
                if not later.called:
                    later.callback(Response(reason.status))

        Sink(request.body)
        return later

    return handle
