"""
uvloop's TLS on a connection that has been there for a while: something was read of it, perhaps something written.

Rules
- The transport that there was is over from here on, without its protocol hearing of it; the new one has its addresses.
- What was read already is given to TLS before anything else is.
- As with L{protogate.reactor.tls}: there is a protocol when the handshake is done, and none before.

Must not know: any protocol; why TLS begins.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from twisted.internet.error import ConnectionAborted
from twisted.internet.interfaces import INegotiated
from twisted.internet.protocol import Protocol
from twisted.python.failure import Failure
from zope.interface import implementer

from protogate.reactor.streams import TCP
from protogate.reactor.tls import TLS, Secured
from protogate.reactor.transport import Transport

_ABORTED: Final = ConnectionAborted("given up during the TLS handshake")


@implementer(INegotiated)
class Overlaid(Secured, TCP):
    """
    The transport of a connection on which TLS began later; L{overlay} makes it.

    @param under: the transport that there was.
    @param name: the server's, as in L{Secured}.
    @param made: C{made(transport)}: the protocol, once everything is negotiated; None = nobody wants the connection.
    @param begun: called when that is connected.
    @param failed: C{failed(reason)}: there will be no protocol, and the connection is gone.
    """

    def __init__(
        self,
        under: Transport,
        tls: TLS,
        name: str | None,
        made: Callable[[Any], Any],
        begun: Callable[[], object],
        failed: Callable[[Failure], object],
    ) -> None:
        super().__init__(under.reactor)
        self.tls, self.name = tls, name
        self._under: Transport = under
        self._made: Callable[[Any], Any] | None = made
        self._begun: Callable[[], object] | None = begun
        self._failed: Callable[[Failure], object] | None = failed

    def build(self) -> Any:
        made, self._made, self._failed = self._made, None, None
        assert made is not None
        return made(self)

    def begin(self, protocol: Any) -> None:
        begun, self._begun = self._begun, None
        super().begin(protocol)
        assert begun is not None
        begun()

    def refused(self, reason: Failure) -> None:
        self._leave(reason)

    def connection(self) -> Any:
        """The C{ssl.SSLObject}, once there is a protocol, or about to be."""
        return self._uv.get_extra_info("ssl_object")

    def give_up(self) -> None:
        """Nobody waits for the handshake any more: the connection is dropped, and nobody hears of it."""
        if self._handshaking:
            self._failed = None
            self.abandon()
            self._leave(Failure(_ABORTED))

    def abandon(self) -> None:
        handshaking = self._handshaking
        super().abandon()
        if handshaking and self.disconnected:  # the reactor stops
            self._leave(Failure(_ABORTED))

    def _leave(self, reason: Failure) -> None:
        """The connection ends before there was a protocol."""
        failed, self._made, self._begun, self._failed = self._failed, None, None, None
        if failed is not None:
            try:
                failed(reason)
            except Exception:
                self._log.failure("a handshake that failed")
        self._under.told(Protocol(), reason)

    def told(self, protocol: Any, reason: Failure) -> None:
        self._under.told(protocol, reason)

    def getPeer(self) -> Any:
        return self._under.getPeer()

    def getHost(self) -> Any:
        return self._under.getHost()

    def logPrefix(self) -> str:
        return f"{self.prefix()},TLS"


def overlay(
    under: Transport,
    tls: TLS,
    name: str | None,
    made: Callable[[Any], Any],
    begun: Callable[[], object],
    failed: Callable[[Failure], object],
    read: bytes = b"",
) -> Overlaid:
    """
    Begin TLS on a connection; what is written there already goes first.

    @param read: what was read of it, and belongs to TLS.
    @return: what has the connection from now on.
    """
    uv, reactor = under.detach(), under.reactor
    over = Overlaid(under, tls, name, made, begun, failed)
    over.connection_made(uv)
    if read:
        # uvloop's TLS is told of the connection in the next turn, and this right after that.
        reactor.loop.call_soon(_feed, over, uv.get_protocol(), read)
    return over


def _feed(over: Overlaid, tls: Any, data: bytes) -> None:
    while data and over.shaking:
        room = tls.get_buffer(len(data))
        size = min(len(room), len(data))
        room[:size] = data[:size]
        del room
        tls.buffer_updated(size)
        data = data[size:]
