"""
One connection to a Redis: txredisapi's protocol, with hiredis as its parser, on an endpoint of ours.

Apart from L{protogate.governance.redis} because txredisapi imports the reactor: nothing here is imported before there
is one.

Rules
- A connection is handed out when it was authenticated, has its database, and has answered: a process that hangs, or is
  loading its data, accepts connections as well.
- What is sent within one turn of the event loop goes out as one piece, at its end.
- What no client should see ends it: an answer to nothing, one that is no RESP, one of more than L{LARGEST} bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import hiredis
import txredisapi
from twisted.internet.defer import Deferred, fail
from twisted.internet.endpoints import (
    HostnameEndpoint,
    TCP4ClientEndpoint,
    TCP6ClientEndpoint,
    UNIXClientEndpoint,
    wrapClientTLS,
)
from twisted.internet.interfaces import IStreamClientEndpoint
from twisted.internet.protocol import Factory
from twisted.python.failure import Failure

from protogate.expression.cidr import number

if TYPE_CHECKING:
    from protogate.governance.redis import Word
    from protogate.governance.redissettings import RedisSettings

LARGEST: Final = 1 << 20
"""Bytes of one answer."""


class Link(txredisapi.HiredisProtocol):  # type: ignore[misc]  # it has no types
    """
    @ivar lost: fires with the reason, in words, when the connection is gone; before the calls on it fail.
    """

    factory: _Once
    pipelined_commands: list[bytes]

    def __init__(self, settings: RedisSettings, soon: Callable[[Callable[[], object]], object]) -> None:
        """@param soon: L{protogate.wheel.Wheel.soon}."""
        self._soon = soon
        super().__init__(
            charset=None,
            convertNumbers=False,
            password=settings.password or None,
            username=settings.username or None,
            dbid=settings.database or None,
        )
        self.lost: Deferred[str] = Deferred()
        self._incomplete = 0  # bytes since the last answer was complete
        self._reason = ""

    def send(self, command: Sequence[Word]) -> Deferred[Any]:
        """Its answer; fails with an error of txredisapi's.  It has been connected."""
        self.pipelining = True
        if not self.pipelined_commands:
            self._soon(self._flush)
        try:
            return self.execute_command(*command)  # type: ignore[no-any-return]
        except txredisapi.RedisError:
            return fail()

    def _flush(self) -> None:
        commands, self.pipelined_commands = self.pipelined_commands, []
        self.pipelined_replies.clear()
        if commands and self.connected:
            self.transport.write(b"".join(commands))

    def close(self) -> None:
        """Nobody needs it any more; what was sent goes out."""
        self._flush()
        self.transport.loseConnection()

    def abort(self, why: str) -> None:
        """It is of no use any more."""
        self._reason = self._reason or why
        self.transport.abortConnection()

    # -- txredisapi

    def _build_command(self, *args: Word, **_: object) -> bytes:
        packed: bytes = hiredis.pack_command(args)  # type: ignore[arg-type]  # of any length
        return packed

    def dataReceived(self, data: bytes, unpause: bool = False) -> None:
        """Twisted."""
        self._incomplete += len(data)
        try:
            super().dataReceived(data, unpause)
        except (txredisapi.InvalidData, hiredis.HiredisError) as error:
            self.abort(f"what it says is not understood: {error}")
            return
        if self._incomplete > LARGEST:
            self.abort(f"an answer is longer than {LARGEST} bytes")

    def replyReceived(self, reply: object) -> None:
        """One answer is complete, or cannot come any more."""
        self._incomplete = 0
        if self.replyQueue.waiting:
            super().replyReceived(reply)
        else:
            self.abort("it answers what nobody asked")

    def connectionLost(self, why: Failure) -> None:
        """Twisted."""
        reason = self._reason or why.getErrorMessage()
        self.factory.failed(reason)
        if not self.lost.called:
            self.lost.callback(reason)
        super().connectionLost(why)


class _Once(Factory):
    """Makes one link, and says when it may be used."""

    noisy = False
    isLazy = False  # txredisapi asks for it

    def __init__(self, make: Callable[[], Link], done: Deferred[Link]) -> None:
        self._make, self._done = make, done
        self.link: Link | None = None

    def buildProtocol(self, addr: object) -> Link:
        """Twisted."""
        link = self.link = self._make()
        link.factory = self
        link.whenConnected().addCallback(self._ready)
        return link

    def _ready(self, link: Link) -> None:
        link.execute_command("PING").addCallbacks(self._answered, self._refused, callbackArgs=(link,))

    def _answered(self, _: object, link: Link) -> None:
        if not self._done.called:
            self._done.callback(link)

    def _refused(self, failure: Failure) -> None:
        link = self.link
        assert link is not None
        link.abort(failure.getErrorMessage())

    def failed(self, why: str) -> None:
        """It will not come to a link."""
        if not self._done.called:
            self._done.errback(OSError(why))

    # -- txredisapi: the password or the database is refused

    def stopTrying(self) -> None:
        """It is not ours to try again."""

    def connectionError(self, why: str) -> None:
        """Why not."""
        self.failed(why.removeprefix("Redis error: "))


def connect(
    settings: RedisSettings, reactor: Any, soon: Callable[[Callable[[], object]], object], seconds: float
) -> Deferred[Link]:
    """
    Connect, and wait until the connection may be used.

    @param soon: L{protogate.wheel.Wheel.soon}.
    @param seconds: that all of it may take.
    @return: fails with whatever was in the way.  Cancelling it gives up.
    """
    done: Deferred[Link] = Deferred(lambda _: end())
    factory = _Once(partial(Link, settings, soon), done)
    attempt = _endpoint(settings, reactor, seconds).connect(factory)

    def end() -> None:
        attempt.cancel()
        if factory.link is not None and factory.link.transport is not None:
            factory.link.transport.abortConnection()

    def give_up() -> None:
        factory.failed(f"not connected after {seconds:g} s")
        end()

    late = reactor.callLater(seconds, give_up)

    def settled(result: Any) -> Any:
        if late.active():
            late.cancel()
        return result

    attempt.addErrback(lambda failure: factory.failed(failure.getErrorMessage()))
    return done.addBoth(settled)


def _endpoint(settings: RedisSettings, reactor: Any, seconds: float) -> IStreamClientEndpoint:
    if settings.path:
        return UNIXClientEndpoint(reactor, settings.path, seconds)
    host, port = settings.host, settings.port
    endpoint: Any
    if number(host) is not None:
        endpoint = (TCP6ClientEndpoint if ":" in host else TCP4ClientEndpoint)(reactor, host, port, seconds)
    else:
        endpoint = HostnameEndpoint(reactor, host, port, seconds)
    if not settings.tls:
        return endpoint  # type: ignore[no-any-return]
    return wrapClientTLS(settings.secured, endpoint)
