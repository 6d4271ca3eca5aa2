"""
When each phase of an exchange ended, and whose phase it was.

Whoever ends a phase notes the time, and nobody else: all marks are seconds on the wheel's clock, 0.0 = did not happen.
Durations are only computed when somebody asks (the record, C{request.func.remoteCost}).

    first … head        client     its head arrives                      server codec
    head … chosen       gateway    PRE_REQUEST, routing, PRE_UPSTREAM    exchange
    chosen … connected  gateway    waiting in the pool's queue           pool
    connected … sent    upstream   our request is written                client codec
    head … uploaded     client     its body arrives                      server codec
    sent … answered     upstream   until its response head               client codec
    answered … end      both       its body, relayed                     server codec
"""

from __future__ import annotations

from typing import Final

from mypy_extensions import mypyc_attr

MARKS: Final = ("first", "head", "chosen", "connected", "sent", "uploaded", "answered", "end")


@mypyc_attr(acyclic=True)
class Ledger:
    """
    @ivar first: first byte of the request head was read.
    @ivar head: the head was complete: the exchange begins.
    @ivar uploaded: last byte of the request body was read; equals C{head} where there was none.
    @ivar chosen: route and target are known, the upstream is asked.  Of the last attempt, as all that follow.
    @ivar connected: a connection took the request.
    @ivar sent: the last byte of the request was flushed.
    @ivar answered: the final response head was read from the upstream.
    @ivar end: the exchange was over in both directions.
    @ivar received: bytes of the request body read from the client.
    @ivar delivered: bytes of the response body written to the client.
    @ivar dns: @ivar connect: @ivar tls: seconds that making a connection took, when one was made for this request.
    @ivar attempts: how often an upstream was asked.
    @ivar reused: whether the connection that took the request had served others before.
    @ivar blamed: whether the head of its answer was counted as a failure of the endpoint, where that is counted.
    @ivar address: of the endpoint that was asked last, e.g. C{10.0.0.11:8080}, or empty.
    @ivar rpc: how a call ended in an RPC protocol that says so beside the status of the response, e.g. 0 to 16 in gRPC;
        -1 = nobody said.  Noted by the server codec.
    @ivar past: what came of other attempts; None where there were none.
    """

    __slots__ = (
        *MARKS,
        "address",
        "attempts",
        "blamed",
        "connect",
        "delivered",
        "dns",
        "past",
        "received",
        "reused",
        "rpc",
        "tls",
    )

    def __init__(self, head: float = 0.0, first: float = 0.0) -> None:
        self.first = first or head
        self.head = head
        self.chosen = self.connected = self.sent = self.uploaded = self.answered = self.end = 0.0
        self.received = self.delivered = self.attempts = 0
        self.dns = self.connect = self.tls = 0.0
        self.address = ""
        self.reused = self.blamed = False
        self.rpc = -1
        self.past: Past | None = None

    def remote(self, now: float) -> float:
        """Seconds spent on the upstream: from asking it to its response head, or to C{now} while it is not there."""
        if not self.chosen:
            return 0.0
        return (self.answered or now) - self.chosen

    # -- more attempts than one

    def given_up(self, now: float, why: str, status: int = 0) -> None:
        """
        The attempt that this tells of is not the one whose answer is passed on.  Harmless when that was said.

        @param why: for operators.
        @param status: that it answered.
        """
        past = self._past()
        if not past.told:
            past.told = True
            past.attempts.append(Attempt(self.address, why, status, now - self.chosen))

    def again(self) -> None:
        """From now on it tells of another attempt."""
        self.connected = self.sent = self.answered = self.dns = self.connect = self.tls = self.chosen = 0.0
        self.reused = self.blamed = False
        if self.past is not None:
            self.past.told = False

    def beside(self, other: Ledger, now: float, why: str, status: int = 0) -> None:
        """As L{given_up}, of an attempt that was made beside this one."""
        self._past().attempts.append(Attempt(other.address, why, status, now - other.chosen))

    def adopt(self, other: Ledger) -> None:
        """Tell of the attempt that another ledger tells of."""
        if other.past is not None or self.past is not None:
            past = self._past()
            past.told = False
            if other.past is not None:
                past.attempts += other.past.attempts
                past.hedged = other.past.hedged
        self.chosen, self.connected, self.sent, self.answered = (
            other.chosen,
            other.connected,
            other.sent,
            other.answered,
        )
        self.dns, self.connect, self.tls = other.dns, other.connect, other.tls
        self.reused, self.blamed, self.address = other.reused, other.blamed, other.address

    def _past(self) -> Past:
        past = self.past
        if past is None:
            past = self.past = Past(self.chosen)
        return past


@mypyc_attr(acyclic=True)
class Past:
    """
    What is not the last attempt.

    @ivar asked: when an upstream was asked first.
    @ivar attempts: those that were given up, in that order.
    @ivar told: whether the one that the ledger tells of is among them.
    @ivar hedged: whether the answer is that of a second attempt, which was made beside the first.
    """

    __slots__ = ("asked", "attempts", "hedged", "told")

    def __init__(self, asked: float) -> None:
        self.asked = asked
        self.attempts: list[Attempt] = []
        self.told = self.hedged = False


@mypyc_attr(acyclic=True)
class Attempt:
    """
    One that was given up.

    @ivar address: of the endpoint that was asked.
    @ivar why: for operators; it may name addresses.
    @ivar status: that it answered; 0 = it did not.
    @ivar seconds: that it took.
    """

    __slots__ = ("address", "seconds", "status", "why")

    def __init__(self, address: str, why: str, status: int, seconds: float) -> None:
        self.address, self.why, self.status, self.seconds = address, why, status, seconds
