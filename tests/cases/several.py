"""
A whole gateway between clients and several origins, both of any codec, for what is the same whatever is spoken.

    with Several("http1", "sotp", retry={"statuses": "503"}) as town:
        answer = town.ask()
        town.at(0).give(503)        # whoever was asked first
        town.pass_by(0.3)
        town.at(1).give(200, b"ok")
        # answer.status, answer.content, town.records

Rules
- An origin speaks its codec's own server, a client its codec's own client; what they see is what a peer sees.
- An origin answers by hand.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from stage import Stage
from twisted.internet.defer import Deferred
from twisted.internet.protocol import Factory
from zope.interface import implementer

from protogate.context import Context, Timeouts
from protogate.errors import Abort
from protogate.interfaces import IService, IStreamCodec
from protogate.message import Request, Response
from protogate.plugins import find
from protogate.testing.bodies import Giver, Taker
from protogate.testing.gateway import MemoryGateway
from protogate.testing.reactor import MemoryReactor
from protogate.testing.simulation.clients import Lines
from protogate.wheel import Wheel

SCHEMES = {"http1": "http", "http2": "h2c", "sotp": "sotp"}
OFF = Timeouts(**{each.name: 0.0 for each in dataclasses.fields(Timeouts)})


class Asked:
    """
    A request at an origin.

    @ivar origin: its number.
    @ivar connection: what it came on.
    @ivar content: what came of its body.
    @ivar left: whether whoever asked has left before there was an answer.
    @ivar ends: what C{closed()} was called with.
    """

    def __init__(self, origin: Origin, request: Request) -> None:
        self.origin, self.request = origin.number, request
        self.content = Taker(request.body)
        self.left = False
        self.ends: list[Abort | None] = []
        request.closed = self.ends.append
        self.answer: Deferred[Response] = Deferred(self._left)
        self._town = origin.town

    def _left(self, answer: Deferred[Response]) -> None:
        self.left = True

    def give(self, status: int, content: bytes = b"", fields: Any = (), close: bool = True) -> Giver | None:
        """Answer; not close = there is more to come."""
        giver = Giver([content] if content else [], len(content) if close else None, close=close)
        body = giver.body if content or not close else None
        self.answer.callback(Response(status, [(b"x-origin", b"%d" % self.origin), *fields], body))
        self._town.run()
        return giver if body is not None else None

    def hint(self, link: bytes) -> None:
        """An interim answer."""
        self.request.interim(Response(103, [(b"link", link)]))
        self._town.run()


@implementer(IService)
class Origin(Factory):
    """@ivar connections: all that are open."""

    noisy = False

    def __init__(self, town: Several, number: int, codec: str) -> None:
        self.town, self.number = town, number
        self._codec: IStreamCodec = find(IStreamCodec, codec)
        self.connections: dict[Any, None] = {}
        self.port: Any = None
        self.listen()

    def listen(self) -> None:
        """Be there."""
        self.port = self.town.reactor.listenTCP(80, self, interface=f"192.0.2.{self.number + 1}")

    def vanish(self) -> None:
        """Refuse connections from now on."""
        self.port.stopListening()

    def buildProtocol(self, addr: object) -> Any:
        """Twisted."""
        made: Any = self._codec.server(self, self.town.context)
        self.connections[made] = None
        made.closed.addCallback(lambda _: self.connections.pop(made, None) and None)
        return made

    def handle(self, request: Request) -> Deferred[Response]:
        """L{IService}."""
        asked = Asked(self, request)
        self.town.asked.append(asked)
        return asked.answer

    def abort(self) -> None:
        """Break off whatever is open."""
        for each in list(self.connections):
            each.abort()
        self.town.run()


class Answer:
    """What a client got: C{response}, its C{content}, or why there is none: C{failure}; C{hints}: before it."""

    def __init__(self, town: Several, request: Request) -> None:
        self.response: Response | None = None
        self.failure: Any = None
        self.content: Taker | None = None
        self.hints: list[Response] = []
        request.interim = self.hints.append
        self._town = town
        self._deferred = town.lines.ask(request)
        self._deferred.addCallbacks(self._head, self._failed)
        town.run()

    @property
    def status(self) -> int:
        """Of the response; 0 = there is none."""
        return 0 if self.response is None else self.response.status

    def leave(self) -> None:
        """Want it no more."""
        self._deferred.cancel()
        self._town.run()

    def _head(self, response: Response) -> None:
        self.response, self.content = response, Taker(response.body)

    def _failed(self, failure: Any) -> None:
        self.failure = failure.value


class Several(Stage):
    """
    @ivar asked: what origins were asked, in order.
    @ivar origins: all of them.
    @ivar config: what the gateway began with.
    """

    def __init__(
        self,
        front: str = "http1",
        behind: str = "http1",
        *,
        engine: str = "auto",
        origins: int = 2,
        modules: Any = (),
        gateway: Any = None,
        listener: Any = None,
        upstreams: Any = (),
        **upstream: Any,
    ) -> None:
        """
        @param front: @param behind: codecs.
        @param engine: of HTTP/2.
        @param upstream: more of its configuration.
        """
        self.reactor = MemoryReactor()
        self._wheel = Wheel(self.reactor, 1.0)
        self.context = Context(self._wheel, timeouts=OFF)
        self.asked: list[Asked] = []
        self.origins = [Origin(self, number, behind) for number in range(origins + len(upstreams))]
        urls = [f"{SCHEMES[behind]}://192.0.2.{number + 1}:80" for number in range(len(self.origins))]
        more = [
            {"name": name, "protocol": behind, "endpoints": [{"url": url}]}
            for name, url in zip(upstreams, urls[origins:], strict=True)
        ]
        self.config: dict[str, Any] = {
            "gateway": {"name": "edge", "watch": False, **(gateway or {})},
            "listeners": [{"name": "web", "address": "127.0.0.1:8080", "protocols": [front], **(listener or {})}],
            "upstreams": [
                {
                    "name": "several",
                    "protocol": behind,
                    "endpoints": [{"url": url} for url in urls[:origins]],
                    **upstream,
                },
                *more,
            ],
            "routes": [
                {
                    "name": "all",
                    "value": "/",
                    "matcherType": "prefix",
                    "routes": [{"targets": [{"upstream": "several"}]}],
                }
            ],
            "codecs": {"http2": {"engine": engine}},
            "modules": list(modules),
        }
        self.gateway = MemoryGateway(self.config, reactor=self.reactor)
        self.lines = Lines(front, self.reactor, self.context, ("127.0.0.1", 8080), "198.51.100.7")

    def close(self) -> None:
        """L{Stage}."""
        self.lines.close()
        for origin in self.origins:
            origin.vanish()
            for each in list(origin.connections):
                each.abort()
        self._wheel.stop()
        self.run()

    def check(self) -> None:
        """Nobody is held for nothing, and each request was over once wherever it was."""
        for name, stats in self.stats.items():
            assert (stats.waiting, stats.connecting, stats.open - stats.idle) == (0, 0, 0), (name, stats)
        for asked in self.asked:
            assert len(asked.ends) == 1, (asked.origin, asked.ends)

    @property
    def stats(self) -> dict[str, Any]:
        """Of each pool."""
        plan = self.gateway.service.plan
        assert plan is not None
        found: dict[str, Any] = plan.clusters["several"].stats()  # type: ignore[attr-defined]
        return found

    @property
    def record(self) -> Any:
        """The only one."""
        (made,) = self.records
        return made

    def ask(self, method: bytes = b"GET", body: Any = None, fields: Any = ()) -> Answer:
        """A client asks."""
        return Answer(self, Request(method, b"/several/thing", list(fields), body, b"a.test"))

    def at(self, turn: int) -> Asked:
        """Whatever was asked in that turn, and nothing else since."""
        assert len(self.asked) == turn + 1, [asked.origin for asked in self.asked]
        return self.asked[turn]

    def run(self) -> None:
        """Go on until all is quiet."""
        self.reactor.run()

    def pass_by(self, seconds: float) -> None:
        """Let time pass."""
        self.gateway.advance(seconds)
