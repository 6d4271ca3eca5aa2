"""One connection of a pool, and one request that waits for one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mypy_extensions import mypyc_attr
from twisted.internet.defer import Deferred

from protogate.interfaces import IClientConnection
from protogate.message import Request

if TYPE_CHECKING:
    from protogate.upstream.pool import Pool


class Link:
    """
    One connection of a pool, from the attempt on.

    @ivar connection: None before it is ready and after it has closed.
    @ivar gate: the request for which it is being made, or None.
    @ivar uses: requests it was given.
    @ivar replaced: whether it is being closed to make room for another one.
    @ivar since: when it was last seen to become idle, seconds on the wheel's clock.
    @ivar preface: what is sent on it before anything else; it serves only requests that want the same.
    """

    __slots__ = ("connect", "connection", "dns", "gate", "pool", "preface", "replaced", "since", "tls", "uses")

    def __init__(self, pool: Pool, gate: Gate | None) -> None:
        self.pool, self.gate = pool, gate
        self.preface = b"" if gate is None else gate.preface
        self.connection: IClientConnection | None = None
        self.dns = self.connect = self.tls = self.since = 0.0
        self.uses = 0
        self.replaced = False

    def ready(self, connection: IClientConnection) -> None:
        """Called by the codec: there is capacity again, or for the first time."""
        if self.connection is None:
            self.connection = connection
            self.pool._joined(self, connection)
        else:
            self.pool._ready(self, connection)


@mypyc_attr(native_class=False)
class Gate(Deferred[Link]):
    """
    A request that waits for a connection.  Fires with its link, which takes the request on the spot; cancelled later
    it reaches the connection.

    @ivar at: when the queue clock runs out, seconds on the wheel's clock.
    @ivar link: the attempt that is made for this request, or None.
    @ivar preface: see L{Link}.
    """

    def __init__(self, pool: Pool, request: Request, at: float, preface: bytes = b"") -> None:
        super().__init__(pool._cancelled)
        self.request, self.at, self.preface = request, at, preface
        self.link: Link | None = None


def tell(request: Request, name: bytes, now: float) -> None:
    """Have a field say how many milliseconds are left of a request's deadline, and nobody else say it."""
    deadline = request.deadline
    if deadline is None:
        request.headers.remove(name)
    else:
        request.headers.set(name, b"%d" % max(round((deadline - now) * 1000), 1))


def note(request: Request, link: Link) -> None:
    """What making a connection took, in the ledger of a request it was made for."""
    ledger = request.ledger
    if ledger is not None:
        ledger.dns, ledger.connect, ledger.tls = link.dns, link.connect, link.tls
