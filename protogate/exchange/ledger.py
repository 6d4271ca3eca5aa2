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
    @ivar address: of the endpoint that was asked last, e.g. C{10.0.0.11:8080}, or empty.
    @ivar rpc: how a call ended in an RPC protocol that says so beside the status of the response, e.g. 0 to 16 in gRPC;
        -1 = nobody said.  Noted by the server codec.
    """

    __slots__ = (*MARKS, "address", "attempts", "connect", "delivered", "dns", "received", "reused", "rpc", "tls")

    def __init__(self, head: float = 0.0, first: float = 0.0) -> None:
        self.first = first or head
        self.head = head
        self.chosen = self.connected = self.sent = self.uploaded = self.answered = self.end = 0.0
        self.received = self.delivered = self.attempts = 0
        self.dns = self.connect = self.tls = 0.0
        self.address = ""
        self.reused = False
        self.rpc = -1

    def remote(self, now: float) -> float:
        """Seconds spent on the upstream: from asking it to its response head, or to C{now} while it is not there."""
        if not self.chosen:
            return 0.0
        return (self.answered or now) - self.chosen
