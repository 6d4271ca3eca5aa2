"""What one line of the access log may say."""

from __future__ import annotations

from typing import Any

import msgspec

NOTHING: Any = 0.0  # never Final: compiled code would make a new 0.0 wherever it stands
"""Milliseconds of what did not happen.  A field is left out of a line when its value *is* its default, no other 0.0."""


class Durations(msgspec.Struct, omit_defaults=True, rename="camel", gc=False):
    """
    Milliseconds of each phase; see L{protogate.exchange.ledger}.  The phase in which an exchange broke off lasts until
    its end.
    """

    total: float
    """From the first byte of the head to the end in both directions."""
    client_header: float = NOTHING
    """The head arrives."""
    upload: float = NOTHING
    """The request body arrives; beside the phases that follow."""
    gateway: float = NOTHING
    """Modules and routing; until the end for what the gateway answers itself."""
    queue: float = NOTHING
    """Waiting for an upstream connection, making one included."""
    send: float = NOTHING
    """The request is written to the upstream."""
    response_head: float = NOTHING
    """The upstream thinks."""
    response: float = NOTHING
    """The response body is relayed."""
    dns: float = NOTHING
    connect: float = NOTHING
    tls: float = NOTHING
    """Parts of C{queue}, when a connection was made for this very request."""
    earlier: float = NOTHING
    """Between C{gateway} and C{queue}: attempts before the last, and the pauses behind them."""


class Earlier(msgspec.Struct, omit_defaults=True, rename="camel", gc=False):
    """An attempt whose answer is not the one that was passed on."""

    address: str
    """Of the endpoint."""
    status: int = 0
    """What it answered."""
    error: str = ""
    """What it came to, for operators."""
    ms: float = NOTHING
    """How long it took."""


class Record(msgspec.Struct, omit_defaults=True, rename="camel", gc=False):
    """One exchange."""

    time: str
    """When its head was complete: RFC 3339, UTC, milliseconds."""
    id: str
    trace: str
    gateway: str
    listener: str
    protocol: str
    """Of the client, e.g. C{HTTP/1.1}."""
    client: str
    """Address of who asks: the connection's peer, or what trusted proxies say."""
    client_port: int
    method: str
    host: str
    """Authority as the client sent it."""
    target: str
    """Path and query as the client sent them."""
    status: int
    """What was answered; 499 = the client left before there was an answer."""
    received: int
    """Bytes of the request body."""
    delivered: int
    """Bytes of the response body."""
    ms: Durations
    peer: str = ""
    """Address of the connection's peer, where it is not C{client}."""
    tls: bool = False
    service: str = ""
    agent: str = ""
    """User-Agent."""
    route: str = ""
    upstream: str = ""
    """Name of the upstream, or the URL of one that has no name."""
    address: str = ""
    """Of the endpoint that was asked last."""
    attempts: int = 0
    """How often an upstream was asked."""
    malformed: bool = False
    """This was no request, only what is left of one."""
    notes: dict[str, Any] | None = None
    """What modules noted."""
    error: str = ""
    """What went wrong, for operators."""
    who: str = ""
    """Whose fault: client, gateway, upstream."""
    phase: str = ""
    """The phase that failed, or whose clock ran out; the names are those of C{gateway.timeouts}."""
    proxy_error: str = ""
    """Error type of C{Proxy-Status} (RFC 9209)."""
    deadline: float = NOTHING
    """Milliseconds that the client would wait, counted from C{time}."""
    rpc_status: int = -1
    """How a call of an RPC ended, beside C{status}: 0 to 16 in gRPC."""
    user: str = ""
    """Who was authenticated."""
    auth: str = ""
    """How."""
    earlier: list[Earlier] | None = None
    """What came of the attempts before the last, or beside it."""
    hedge: bool = False
    """The answer is that of a second attempt, which was made while the first took long."""
