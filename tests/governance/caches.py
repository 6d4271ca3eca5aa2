"""A gateway around the cache, without connections: real exchanges, an origin that is a function, and clients."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from email.utils import formatdate
from time import time

from twisted.internet.defer import Deferred, fail
from twisted.internet.task import Clock

from protogate.config.model import Module
from protogate.errors import CLIENT_GONE, UPSTREAM, Abort
from protogate.exchange.exchange import Exchange
from protogate.governance.binding import bind
from protogate.governance.cache import CacheFactory
from protogate.governance.news import News
from protogate.message import Headers, Peer, Request, Response, ignore
from protogate.testing.bodies import Giver, Taker
from protogate.testing.exchange import exchange
from protogate.testing.means import FakeMeans, Service
from protogate.testing.reactor import START, MemoryReactor
from protogate.wheel import Wheel

REFUSED = Abort("the upstream refused the connection", UPSTREAM, 502, error="connection_refused")


def date(seconds=0.0):
    """The date of so many seconds from now."""
    return formatdate(time() + seconds, usegmt=True)


def say(control="max-age=60", content=b"hello", status=200, *, protocol="HTTP/1.1", body=None, **fields):
    """An answer of an origin; control None = no Cache-Control; a _ in a name is a -, a list is several lines."""
    lines = [] if control is None else [(b"cache-control", control.encode())]
    for name, value in fields.items():
        for one in value if isinstance(value, list) else [value]:
            lines.append((name.replace("_", "-").encode(), one.encode() if isinstance(one, str) else one))
    if body is None and content:
        body = Giver([content], len(content)).body
    return Response(status, lines, body, protocol)


class Client:
    """One request and what became of it."""

    def __init__(self, scene, method, target, headers, authority, body, limit, scheme, ip):
        peer = Peer(ip, 40000)
        self.request = Request(
            method, target, Headers(headers), body, authority, scheme, protocol="HTTP/1.1", peer=peer
        )
        self.exchange = Exchange(self.request, scene.plan, "testing")
        self.limit, self.response, self.taker, self.over = limit, None, None, False
        self.deferred = self.exchange.begin()
        if isinstance(self.deferred, Deferred):
            self.deferred.addCallbacks(self._answered, lambda failure: failure.trap(Exception) and None)
        else:
            self._answered(self.deferred)

    def _answered(self, response):
        self.response = response
        self.taker = Taker(response.body, self.limit)
        self.end()

    def end(self):
        if self.response is not None and self.taker.ended and not self.over:
            self.over = True
            self._closed(self.taker.reason)

    def leave(self):
        """The client goes away."""
        self.over = True
        self.request.gone = CLIENT_GONE
        if self.response is None:
            self.deferred.cancel()
        else:
            self.taker.stop()
        self._closed(CLIENT_GONE)

    def _closed(self, reason):
        closed, self.request.closed = self.request.closed, ignore
        closed(reason)

    @property
    def status(self):
        return None if self.response is None else self.response.status

    @property
    def data(self):
        return self.taker.data

    def field(self, name):
        value = self.response.headers.get(name.encode())
        return None if value is None else value.decode()

    @property
    def told(self):
        """Its Cache-Status, without the name of the gateway."""
        value = self.field("cache-status")
        return None if value is None else value.removeprefix("testing; ")


class Scene:
    """The module in force, an origin, and a clock."""

    def __init__(self, answer=None, behind=(), before=None, routes=None, clock=None, board=None, **params):
        """@param board: to other processes."""
        self.clock = clock or (Clock() if before is None else before.clock)
        if before is None and clock is None:
            self.clock.advance(START)
        self.counted = Counter()
        self.gauges = {}
        self.answers = []
        self.origin = Service(answer or self._next)
        factory = CacheFactory()
        (self.bound,) = bind([Module(name="cache", action_param=params)], lambda interface, name: factory)[
            "PRE_UPSTREAM"
        ]
        self.cache = self.bound.module
        wheel = Wheel(self.clock) if before is None else before.plan.wheel
        self.reactor = MemoryReactor()  # for threads; the clock is another one
        self.news = None if board is None else News(board, wheel)
        means = FakeMeans(reactor=self.reactor, wheel=wheel, counted=self.counted, gauges=self.gauges, news=self.news)
        self.cache.start(means, None if before is None else before.cache)
        base = exchange("PRE_UPSTREAM", clock=self.clock)
        self.plan = replace(
            base.plan,
            wheel=wheel,
            clusters={"origin": self.origin, "other": self.origin},
            pre_upstream=(self.bound, *behind),
        )
        if routes is not None:
            self.plan = replace(self.plan, router=routes)

    def _next(self, request):
        answer = self.answers.pop(0)
        if isinstance(answer, Abort):
            return fail(answer)
        return answer

    def ask(
        self,
        target=b"/a",
        *headers,
        method=b"GET",
        authority=b"a.test",
        body=None,
        limit=None,
        scheme=b"http",
        ip="192.0.2.1",
    ):
        """One request; headers are texts, C{name: value}."""
        lines = [
            (name.encode(), value.strip().encode()) for name, _, value in (line.partition(":") for line in headers)
        ]
        client = Client(self, method, target, lines, authority, body, limit, scheme, ip)
        self.clock.advance(0)  # the turn is over
        return client

    def get(self, *headers, target=b"/a", **more):
        return self.ask(target, *headers, **more)

    def keep(self, *answers, target=b"/a", headers=()):
        """Have something kept; further answers are for later."""
        self.answers += answers
        first = self.ask(target, *headers)
        assert first.told.endswith("stored"), first.told
        return first

    def wait(self, seconds):
        """Let time pass."""
        for _ in range(round(seconds * 20)):
            self.clock.advance(0.05)
            self.reactor.run()

    @property
    def asked(self):
        """How often the origin was asked."""
        return len(self.origin.requests)


def good(**fields):
    """304, of an origin."""
    return say(None, b"", 304, **fields)


def kept(answer, *headers, **params):
    """Whether an answer is given again to the same request."""
    scene = Scene(**params)
    scene.answers = [answer, say("no-store", b"again")]
    scene.get(*headers)
    return scene.get(*headers).data != b"again"
