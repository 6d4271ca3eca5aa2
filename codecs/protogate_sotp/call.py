"""
C{protogate sotp call}: one request, in the manner of curl.

Rules
- One attempt, on one connection of its own: whoever looks for a fault wants to see the first one.
- Without C{--stream} nothing is printed of an answer that is not complete.
- Content goes to C{out} byte by byte as it came; all that is said about it goes to standard error.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from queue import SimpleQueue
from threading import Thread
from typing import TYPE_CHECKING, Any, Final, TextIO

from twisted.internet.defer import Deferred
from twisted.internet.endpoints import HostnameEndpoint
from twisted.internet.interfaces import IPushProducer
from twisted.internet.protocol import Factory
from twisted.python.failure import Failure
from zope.interface import implementer

from protogate.body import Body, Whole
from protogate.errors import CLIENT, Abort
from protogate.interfaces import IBody, ISink
from protogate.message import Field, Request, Response
from protogate_sotp.caller import Client
from protogate_sotp.client import MOST, status_of, unpacked
from protogate_sotp.dissect import reader, shown, status
from protogate_sotp.heads import NATIVE
from protogate_sotp.link import Greeting
from protogate_sotp.secure import secured, why

if TYPE_CHECKING:
    from argparse import Namespace

    from twisted.internet.interfaces import IStreamClientEndpoint

    from protogate.context import Context

NO_ANSWER: Final = 3
"""Exit status when there is no answer, or not all of it."""
_URL: Final = re.compile(
    r"(?P<scheme>sotps?)://(?:\[(?P<six>[0-9A-Fa-f:.]+)\]|(?P<host>[A-Za-z0-9._-]+)):(?P<port>[0-9]{1,5})(?P<target>/[\x21-\x7e]*|)"
).fullmatch
_FIELD: Final = re.compile(r"([!#$%&'*+\-.^_`|~0-9A-Za-z]+):[ \t]*(.*?)[ \t]*").fullmatch


def call(options: Namespace, reactor: Any, context: Context, out: TextIO) -> Deferred[int] | int:
    """Ask, print, and say how it went: see L{protogate_sotp.command}."""
    try:
        scheme, host, port, target = _place(options.url, options.request is None)
        fields, authority = _metadata(options.header)
        if not 0 <= options.max_time * 1000 < 1 << 32:
            raise ValueError("-m wants seconds, 0 to 4294967")
        endpoint: IStreamClientEndpoint
        endpoint = HostnameEndpoint(reactor, host.encode("ascii"), port, timeout=context.timeouts.connect)
        if scheme == "sotps":
            endpoint = secured(endpoint, host, options.cacert, options.insecure)
        body = _content(options.data, options.stream, reactor)
    except ValueError as error:
        return _complain(error, 2)
    except OSError as error:
        return _complain(error, NO_ANSWER)
    greeting = Greeting()
    method = (options.request or "POST").encode("utf-8")
    web = b"https" if scheme == "sotps" else b"http"
    request = Request(method, target, fields, body, authority or _authority(options, target), web)
    printer = _Printer(out, options.include, options.stream)
    request.interim = printer.head
    kind = _Shown if options.verbose else _Asking
    factory = Factory.forProtocol(lambda: kind(_nobody, context, greeting))
    factory.noisy = False
    return _ask(endpoint, factory, request, printer, options.max_time)


def _ask(
    endpoint: IStreamClientEndpoint, factory: Any, request: Request, printer: _Printer, seconds: float
) -> Deferred[int]:
    """Connect, ask, take the answer within so many seconds (0 = for ever), and leave."""

    async def ask() -> int:
        try:
            connection: Any = await endpoint.connect(factory)
        except Exception as error:  # whatever a resolver or a socket says
            if request.body is not None:
                request.body.stopProducing()
            return _complain(f"no connection: {error or type(error).__name__}", NO_ANSWER)
        if seconds:
            request.deadline = connection.now() + seconds
        try:
            response = unpacked(await connection.handle(request))
            await printer.take(response)
        except Abort as reason:
            connection.abort()
            await connection.closed
            text = f"{reason.reason}: {connection.lost}" if connection.lost else reason.reason
            return _complain(text, NO_ANSWER)
        connection.drain()
        await connection.closed
        code = status_of(response)
        if code:
            _complain(f"{status(code)}, HTTP {response.status}", 1)
        return 1 if code else 0

    return Deferred.fromCoroutine(ask())


def _complain(why: object, number: int) -> int:
    print(f"protogate sotp call: {why}", file=sys.stderr)
    return number


def _nobody(connection: object) -> None:
    """Nobody waits for a connection that takes more."""


# -- the request


def _place(url: str, native: bool) -> tuple[str, str, int, bytes]:
    """
    (scheme, host, port, target) of a URL.

    @raise ValueError: what is wrong with it.
    """
    match = _URL(url)
    if match is None or not 0 < int(match["port"]) < 1 << 16:
        raise ValueError(f"expected a URL like sotp://127.0.0.1:7001/1001/order.create, got {url!r}")
    target = (match["target"] or "/").encode("ascii")
    if native and not NATIVE(target):
        raise ValueError(f"{match['target']!r} is no service and operation like /1001/order.create; for HTTP say -X")
    return match["scheme"], match["six"] or match["host"], int(match["port"]), target


def _metadata(lines: Sequence[str]) -> tuple[list[Field], bytes]:
    """
    (fields, authority): C{host} is the authority, and no field.

    @raise ValueError: one is none.
    """
    fields: list[Field] = []
    authority = b""
    for line in lines:
        match = _FIELD(line)
        if match is None:
            raise ValueError(f"expected metadata like 'x-name: value', got {line!r}")
        name, value = match[1].lower().encode("ascii"), match[2].encode("utf-8")
        if name == b"host":
            authority = value
        else:
            fields.append((name, value))
    return fields, authority


def _authority(options: Namespace, target: bytes) -> bytes:
    """A service is its own; in the form of HTTP it is that of the URL."""
    text: str = options.url
    return target.split(b"/")[1] if options.request is None else text.split("/")[2].encode("ascii")


def _content(data: str | None, stream: bool, reactor: Any) -> IBody | None:
    """
    What C{-d} says.

    @raise OSError: the file cannot be read.
    """
    if data is None:
        return None
    if not data.startswith("@"):
        whole = data.encode("utf-8", "surrogateescape")
    elif stream:
        number = sys.stdin.fileno() if data == "@-" else os.open(data[1:], os.O_RDONLY | os.O_CLOEXEC)
        return _Feed(reactor, number, close=data != "@-").body
    else:
        whole = sys.stdin.buffer.read() if data == "@-" else Path(data[1:]).read_bytes()
    return Whole(whole) if whole else None


@implementer(IPushProducer)
class _Feed:
    """
    Reads a file, a pipe or a terminal in a thread of its own, one piece whenever somebody wants one: not one of them
    can be waited for in the same way, and the event loop must not wait at all.
    """

    def __init__(self, reactor: Any, number: int, close: bool) -> None:
        self.body = Body(self)
        self._reactor, self._number, self._close = reactor, number, close
        self._wanted: SimpleQueue[bool] = SimpleQueue()
        self._asked = self._paused = self._over = False
        # A daemon: a terminal where nobody types must not keep the command from ending.
        Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        try:
            while self._wanted.get():
                try:
                    data, why = os.read(self._number, 65536), ""
                except OSError as error:
                    data, why = b"", str(error)
                self._reactor.callFromThread(self._came, data, why)
                if not data:
                    return
        finally:
            if self._close:
                os.close(self._number)

    def _came(self, data: bytes, why: str) -> None:
        self._asked = False
        if self._over:
            return
        if data:
            self.body.write(data)
            if not self._paused:
                self.resumeProducing()
            return
        self._over = True
        if why:
            self.body.abort(Abort(f"the content cannot be read: {why}", CLIENT, 499))
        else:
            self.body.finish()

    def pauseProducing(self) -> None:
        """L{Body}: what was asked for may still come, and is held."""
        self._paused = True

    def resumeProducing(self) -> None:
        """L{Body}: one more piece."""
        self._paused = False
        if not self._asked and not self._over:
            self._asked = True
            self._wanted.put(True)

    def stopProducing(self) -> None:
        """L{Body}: no more."""
        self._over = True
        self._wanted.put(False)


# -- the answer


@implementer(ISink)
class _Printer:
    """
    Prints an answer.

    @param include: with its head and its trailers.
    @param stream: at once, and not when it is complete.
    """

    def __init__(self, out: TextIO, include: bool, stream: bool) -> None:
        self._out, self._include, self._stream = out, include, stream
        self._held: list[bytes] = []
        self._left = MOST
        self._body: IBody | None = None
        self._done: Deferred[None] = Deferred()

    def take(self, response: Response) -> Deferred[None]:
        """Print it; fires when that is done, or fails with the L{Abort} that broke the answer off."""
        self.head(response)
        body = self._body = response.body
        if body is None:
            self.finish()
        else:
            body.attach(self)
        return self._done

    def head(self, response: Response) -> None:
        """Status and metadata, of an interim answer, too."""
        if self._include:
            code = status(status_of(response))
            self._print(f"SOTP/1 {code}, HTTP {response.status}\n".encode())
            self._fields(response.headers)
            self._print(b"\n")

    def write(self, data: bytes) -> None:
        """L{ISink}."""
        self._print(data)

    def finish(self, trailers: Sequence[Field] | None = None) -> None:
        """L{ISink}: complete."""
        if self._include and trailers:
            self._print(b"\n\n")
            self._fields(trailers)
        self._emit(b"".join(self._held))
        self._done.callback(None)

    def abort(self, reason: Abort) -> None:
        """L{ISink}: broken off."""
        self._done.errback(reason)

    def _fields(self, fields: Sequence[Field]) -> None:
        self._print(b"".join(b"%b: %b\n" % field for field in fields))

    def _print(self, data: bytes) -> None:
        if self._stream:
            self._emit(data)
            return
        self._left -= len(data)
        if self._left >= 0:
            self._held.append(data)
        elif self._body is not None and not self._done.called:
            self._body.stopProducing()
            self._done.errback(Abort(f"the answer has more than {MOST} bytes; --stream takes it", CLIENT, 499))

    def _emit(self, data: bytes) -> None:
        raw = getattr(self._out, "buffer", None)
        if raw is not None:
            raw.write(data)
        else:  # no file, but a text in memory
            self._out.write(data.decode("utf-8", "backslashreplace"))
        self._out.flush()


# -- frames


class _Asking(Client):
    """
    A connection that knows what it ended with.

    @ivar lost: that, in words; empty = it was closed.
    """

    lost = ""

    def connectionLost(self, reason: Failure) -> None:
        if not self.dead:
            self.lost = why(reason.value)
        super().connectionLost(reason)


class _Shown(_Asking):
    """A connection whose frames are shown as they come and go."""

    def makeConnection(self, transport: Any) -> None:
        self._sent, self._got = self._show(">"), self._show("<")
        super().makeConnection(_Tap(transport, self._sent))

    def dataReceived(self, data: bytes) -> None:
        self._got(data)
        super().dataReceived(data)

    def _show(self, mark: str) -> Callable[[bytes], None]:
        read, limits = reader(), self.context.limits

        def show(data: bytes) -> None:
            for frame in read.feed(data):
                lines = shown(frame, limits).split("\n")
                print("\n".join(f"{mark} {line}" for line in lines), file=sys.stderr)

        return show


class _Tap:
    """A transport that tells what is written to it; for the rest it is the one that it is made of."""

    def __init__(self, transport: Any, tell: Callable[[bytes], None]) -> None:
        self._transport, self._tell = transport, tell

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def write(self, data: bytes) -> None:
        """Twisted."""
        self._tell(bytes(data))
        self._transport.write(data)

    def writeSequence(self, pieces: list[bytes]) -> None:
        """Twisted."""
        self.write(b"".join(pieces))
