"""
A small upstream to try a gateway on: C{python -m protogate.demo}.  Not a part of the gateway; it knows HTTP, by
twisted.web, and nothing of protogate.

    /echo        what arrived: method, target, headers, body
    /slow?ms=N   the answer takes N milliseconds (1000)
    /stream?n=N  N lines (10), one every 100 ms, without a length
    /status/N    an answer with that status
    anything     a greeting that names the path

With C{--} and a command it runs that command beside itself, and ends with it: that is C{make run}.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
from collections.abc import Coroutine, Sequence
from typing import Any, Final
from urllib.parse import urlsplit

from twisted.internet import error, protocol
from twisted.internet.defer import CancelledError, Deferred, ensureDeferred
from twisted.internet.endpoints import TCP4ClientEndpoint
from twisted.internet.interfaces import (
    IProcessTransport,
    IReactorCore,
    IReactorProcess,
    IReactorTCP,
    IReactorTime,
)
from twisted.internet.task import deferLater, react
from twisted.python.failure import Failure
from twisted.web.http import Request
from twisted.web.resource import Resource
from twisted.web.server import NOT_DONE_YET, Site

BODY_SHOWN: Final = 64 * 1024
"""Bytes of a request body that /echo gives back."""
STREAM_INTERVAL: Final = 0.1
"""Seconds between two lines of /stream."""
READY_INTERVAL: Final = 0.1
"""Seconds between two looks whether the gateway listens."""


class Reactor(IReactorCore, IReactorProcess, IReactorTCP, IReactorTime):
    """What is needed of a reactor."""


def _number(request: Request, name: bytes, default: int, highest: int) -> int:
    text = request.args.get(name, [b""])[0]
    return min(int(text), highest) if text.isdigit() else default


def _answer(request: Request, value: object, status: int = 200) -> bytes:
    request.setResponseCode(status)
    request.setHeader(b"content-type", b"application/json")
    return json.dumps(value, indent=2).encode() + b"\n"


class Demo(Resource):
    """The whole site: every path is a leaf of it."""

    isLeaf = True

    def __init__(self, clock: IReactorTime) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._clock = clock

    def render(self, request: Request) -> bytes | int:
        """Called by twisted.web for each request, when its body is complete."""
        first, _, rest = request.path.decode("latin-1").lstrip("/").partition("/")
        if first == "echo":
            return self._echo(request)
        if first == "slow":
            return self._slow(request)
        if first == "stream":
            return self._stream(request)
        if first == "status" and rest.isdigit() and 200 <= int(rest) <= 599:
            return _answer(request, {"status": int(rest)}, int(rest))
        return _answer(request, {"hello": request.path.decode("latin-1"), "from": "the demo upstream"})

    @staticmethod
    def _echo(request: Request) -> bytes:
        assert request.content is not None
        body = request.content.read(BODY_SHOWN)
        return _answer(
            request,
            {
                "method": request.method.decode("latin-1"),
                "target": request.uri.decode("latin-1"),
                "headers": [
                    [name.decode("latin-1").lower(), value.decode("latin-1")]
                    for name, values in request.requestHeaders.getAllRawHeaders()
                    for value in values
                ],
                "body": body.decode("utf-8", "replace"),
            },
        )

    def _slow(self, request: Request) -> int:
        wait = _number(request, b"ms", 1000, 600_000)

        async def work() -> None:
            await deferLater(self._clock, wait / 1000)
            request.write(_answer(request, {"waited": wait}))

        return _later(request, work())

    def _stream(self, request: Request) -> int:
        async def work() -> None:
            request.setHeader(b"content-type", b"text/plain")
            for index in range(_number(request, b"n", 10, 1_000_000)):
                request.write(b"line %d\n" % index)
                await deferLater(self._clock, STREAM_INTERVAL)

        return _later(request, work())


def _later(request: Request, work: Coroutine[Deferred[None], Any, None]) -> int:
    """Let work write the answer, unless the client leaves before."""
    under_way = ensureDeferred(work)
    under_way.addCallbacks(lambda _: request.finish(), lambda failure: failure.trap(CancelledError))
    request.notifyFinish().addErrback(lambda _: under_way.cancel())
    return NOT_DONE_YET


class Command(protocol.ProcessProtocol):
    """
    The command that runs beside the upstream, on the same terminal.

    @ivar ended: fires with its exit code.
    """

    transport: IProcessTransport

    def __init__(self) -> None:
        self.ended: Deferred[int] = Deferred()
        self.running = True

    def processEnded(self, reason: Failure) -> None:
        """Called by the reactor, once."""
        self.running = False
        status = reason.value
        code = status.exitCode if isinstance(status, error.ProcessDone | error.ProcessTerminated) else None
        self.ended.callback(1 if code is None else code)

    def stop(self) -> Deferred[int] | None:
        """Ask it to end; the Deferred says when it has."""
        if not self.running:
            return None
        self.transport.signalProcess(signal.SIGTERM.name.removeprefix("SIG"))
        return self.ended


async def accepts(reactor: Reactor, host: str, port: int) -> bool:
    """Whether somebody accepts connections there."""
    try:
        connection: Any = await TCP4ClientEndpoint(reactor, host, port).connect(
            protocol.Factory.forProtocol(protocol.Protocol)
        )
    except error.ConnectError:
        return False
    connection.transport.loseConnection()
    return True


async def answers(reactor: Reactor, host: str, port: int, command: Command) -> bool:
    """Wait until somebody accepts on that address; False when the command ended before."""
    while command.running:
        if await accepts(reactor, host, port):
            return True
        await deferLater(reactor, READY_INTERVAL)
    return False


async def serve(reactor: Reactor, port: int, command: Sequence[str], url: str) -> None:
    """Run the site, and the command beside it until it ends; its exit code becomes ours."""
    try:
        site: Any = Site(Demo(reactor))
        listening: Any = reactor.listenTCP(port, site, interface="127.0.0.1")
    except error.CannotListenError as failure:
        sys.exit(f"the demo upstream cannot listen on 127.0.0.1:{port}: {failure.socketError}")
    print(f"demo upstream on http://127.0.0.1:{listening.getHost().port}", flush=True)
    if not command:
        await Deferred()
    place = urlsplit(url)
    host, gate = place.hostname or "127.0.0.1", place.port or 80
    if await accepts(reactor, host, gate):
        sys.exit(f"somebody listens on {host}:{gate} already; choose another port: make run PORT=8090")
    child = Command()
    reactor.spawnProcess(child, command[0], command, env=None, childFDs={0: 0, 1: 1, 2: 2})
    reactor.addSystemEventTrigger("before", "shutdown", child.stop)
    if await answers(reactor, host, gate, child):
        print(f"gateway on {place.scheme}://{place.netloc}\n\n    curl -i {url}\n", flush=True)
    sys.exit(await child.ended)


def main(argv: Sequence[str] | None = None) -> None:
    """The command line; see the docstring of this module."""
    parser = argparse.ArgumentParser(
        prog="python -m protogate.demo", description="A small upstream to try a gateway on."
    )
    parser.add_argument("--port", type=int, default=8081, help="of 127.0.0.1 (default: 8081; 0 = any)")
    parser.add_argument("--try", dest="url", default="http://127.0.0.1:8080/", help="what to suggest once it answers")
    parser.add_argument("command", nargs="*", help="after --: a command to run beside it")
    options = parser.parse_args(argv)
    react(lambda reactor: ensureDeferred(serve(reactor, options.port, options.command, options.url)))


if __name__ == "__main__":
    main()
