"""
The one record of an exchange, as the access log and whoever else wants it.

Rules
- L{record} runs on the event loop, so it only copies; L{encode} runs on the thread that writes.
- No secret: of the header fields only C{User-Agent} is taken.  The target is as the client sent it, query included:
  what must not be logged must not stand in a URL.
- Everything that a stranger can make long is cut.
- A line is ASCII without control characters, whatever was sent, so it is one line for every reader and harmless in
  every terminal: bytes that are no printable ASCII stand as C{\\xNN}.
- What did not happen is not in the line: no C{error}, no C{upstream}, no phase that was not reached.
"""

from __future__ import annotations

import json
import re
import time
from typing import TYPE_CHECKING, Any, Final

import msgspec

from protogate.errors import Abort
from protogate.exchange.problem import kind

if TYPE_CHECKING:
    from protogate.exchange.exchange import Exchange
    from protogate.exchange.ledger import Ledger

TARGET: Final = 2048
"""Bytes of a target that are kept."""
SHORT: Final = 256
"""Bytes that are kept of a method, a host, a user agent."""
REASON: Final = 1024
"""Characters of a reason that are kept."""
LINE: Final = 32 * 1024
"""Bytes of a line; one that is longer loses its notes."""
CUT: Final = "..."


class Durations(msgspec.Struct, omit_defaults=True, rename="camel", gc=False):
    """
    Milliseconds of each phase; see L{protogate.exchange.ledger}.  The phase in which an exchange broke off lasts until
    its end.
    """

    total: float
    """From the first byte of the head to the end in both directions."""
    client_header: float = 0.0
    """The head arrives."""
    upload: float = 0.0
    """The request body arrives; beside the phases that follow."""
    gateway: float = 0.0
    """Modules and routing; until the end for what the gateway answers itself."""
    queue: float = 0.0
    """Waiting for an upstream connection, making one included."""
    dns: float = 0.0
    connect: float = 0.0
    tls: float = 0.0
    """Parts of C{queue}."""
    send: float = 0.0
    """The request is written to the upstream."""
    response_head: float = 0.0
    """The upstream thinks."""
    response: float = 0.0
    """The response body is relayed."""


class Record(msgspec.Struct, omit_defaults=True, rename="camel"):
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
    error: str = ""
    """What went wrong, for operators."""
    who: str = ""
    """Whose fault: client, gateway, upstream."""
    phase: str = ""
    """The phase that failed, or whose clock ran out; the names are those of C{gateway.timeouts}."""
    proxy_error: str = ""
    """Error type of C{Proxy-Status} (RFC 9209)."""
    malformed: bool = False
    """This was no request, only what is left of one."""
    notes: dict[str, Any] | None = None
    """What modules noted."""


def record(exchange: Exchange, wall: float | None = None) -> Record:
    """
    The record of an exchange that is over.

    @param wall: seconds since the epoch at its end; None = now.
    """
    request, ledger, source = exchange.request, exchange.ledger, exchange.source
    method, host, target = exchange.line
    response, reason, route, chosen = exchange.response, exchange.reason, exchange.route, exchange.target
    agent = request.headers.get(b"user-agent")
    peer = request.peer
    end = time.time() if wall is None else wall
    made = Record(
        time=stamp(end - max(ledger.end - ledger.head, 0.0)),
        id=exchange.id,
        trace=exchange.trace,
        gateway=exchange.gateway.name,
        listener=exchange.listener,
        protocol=request.protocol,
        client=source.ip,
        client_port=source.port,
        method=_text(method, SHORT),
        host=_text(host, SHORT),
        target=_text(target, TARGET),
        status=response.status if response is not None else reason.status if reason is not None else 0,
        received=ledger.received,
        delivered=ledger.delivered,
        ms=durations(ledger),
        peer="" if peer.ip == source.ip else peer.ip,
        tls=source.tls,
        service=request.service,
        agent="" if agent is None else _text(agent, SHORT),
        route="" if route is None else route.name,
        upstream="" if chosen is None else chosen.upstream,
        address=ledger.address,
        attempts=ledger.attempts,
        malformed=request.malformed is not None,
        notes=exchange.noted,
    )
    if reason is not None:
        _explain(made, reason)
    return made


def durations(ledger: Ledger) -> Durations:
    """What each phase took."""
    first, head, end = ledger.first, ledger.head, ledger.end
    made = Durations(total=_ms(end - (first or head)))
    made.client_header = _ms((head or end) - first)
    uploaded = ledger.uploaded
    if uploaded > head:
        made.upload = _ms(uploaded - head)
    chosen, connected, sent, answered = ledger.chosen, ledger.connected, ledger.sent, ledger.answered
    if not chosen:
        made.gateway = _ms(end - head)
        return made
    made.gateway = _ms(chosen - head)
    made.dns, made.connect, made.tls = _ms(ledger.dns), _ms(ledger.connect), _ms(ledger.tls)
    made.queue = _ms((connected or end) - chosen)
    if connected:
        made.send = _ms((sent or answered or end) - connected)
    if sent:
        made.response_head = _ms((answered or end) - sent)  # 0 for an answer that came before all was sent
    if answered:
        made.response = _ms(end - answered)
    return made


def encode(made: Record) -> bytes:
    """One line of JSON, line feed included."""
    try:
        line = _encode(made)
    except Exception as error:
        # Only notes hold values that are not ours.
        made = msgspec.structs.replace(made, notes={"notes": f"cannot be written as JSON: {type(error).__name__}"})
        line = _encode(made)
    if len(line) > LINE:
        line = _encode(msgspec.structs.replace(made, notes={"notes": f"too long: the line had {len(line)} bytes"}))
    return line


_encoder: Final = msgspec.json.Encoder(enc_hook=str)


def _encode(made: Record) -> bytes:
    line = _encoder.encode(made)
    if not line.isascii():
        line = json.dumps(msgspec.json.decode(line), separators=(",", ":")).encode("ascii")
    return line.replace(b"\x7f", b"\\u007f") + b"\n"


def _explain(made: Record, reason: Abort) -> None:
    text = reason.reason
    if not text.isascii():
        text = text.encode("utf-8", "backslashreplace").decode("utf-8")  # it may quote what is no text
    made.error = text if len(text) <= REASON else text[:REASON] + CUT
    made.who = reason.who.value
    made.phase = "" if reason.phase is None else reason.phase.value
    made.proxy_error = kind(reason)


_strange = re.compile(rb"[^\x20-\x7e]")


def _text(value: bytes, limit: int) -> str:
    """Printable ASCII, one line, bounded."""
    cut = CUT if len(value) > limit else ""
    value = value[:limit]
    if _strange.search(value) is not None:
        value = _strange.sub(lambda match: b"\\x%02x" % match[0][0], value)
    return value.decode("ascii") + cut


def _ms(seconds: float) -> float:
    return round(seconds * 1000, 3) if seconds > 0 else 0.0


class _Second:
    """The last whole second that was written out: a busy gateway asks for the same one a thousand times."""

    number = 0
    text = "1970-01-01T00:00:00"


def stamp(seconds: float) -> str:
    """Seconds since the epoch in RFC 3339, UTC, with milliseconds."""
    whole, millis = divmod(int(seconds * 1000), 1000)
    if whole != _Second.number:
        _Second.number, _Second.text = whole, time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(whole))
    return f"{_Second.text}.{millis:03d}Z"
