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
from protogate.observe.schema import NOTHING, Durations, Earlier, Record
from protogate.uri import only

if TYPE_CHECKING:
    from protogate.exchange.exchange import Exchange
    from protogate.exchange.ledger import Ledger, Past

TARGET: Final = 2048
"""Bytes of a target that are kept."""
SHORT: Final = 256
"""Bytes that are kept of a method, a host, a user agent."""
KNOWN: Final = 1024
"""Short texts that are remembered."""
REASON: Final = 1024
"""Characters of a reason that are kept."""
LINE: Final = 32 * 1024
"""Bytes of a line; one that is longer loses its notes."""
CUT: Final = "..."


def record(exchange: Exchange, wall: float | None = None) -> Record:
    """
    The record of an exchange that is over.

    @param wall: seconds since the epoch at its end; None = now.
    """
    request, ledger, source = exchange.request, exchange.ledger, exchange.source
    method, host, target = exchange.line
    hide = exchange.plan.hide
    if hide is not None:
        target = hide(target)
    response, reason, route, chosen = exchange.response, exchange.reason, exchange.route, exchange.target
    agent = request.headers.get(b"user-agent")
    peer = request.peer
    end = time.time() if wall is None else wall
    # By position, in the order of the fields: a call by name costs ten times as much.
    made = Record(
        stamp(end - (ledger.end - ledger.head)),
        exchange.id,
        exchange.trace,
        exchange.gateway.name,
        exchange.listener,
        request.protocol,
        source.ip,
        source.port,
        _short(method),
        _short(host),
        _text(target, TARGET),
        response.status if response is not None else reason.status if reason is not None else 0,
        ledger.received,
        ledger.delivered,
        durations(ledger),
        "" if peer.ip == source.ip else peer.ip,
        source.tls,
        request.service,
        "" if agent is None else _short(agent),
        "" if route is None else route.name,
        "" if chosen is None else chosen.upstream,
        ledger.address,
        ledger.attempts,
        request.malformed is not None,
        exchange.noted,
    )
    if request.deadline is not None:
        made.deadline = _ms(request.deadline - ledger.head, NOTHING)
    made.rpc_status = ledger.rpc
    identity = exchange.identity
    if identity is not None:
        made.user, made.auth = _text(identity.user.encode("utf-8", "replace"), SHORT), identity.scheme
    past = ledger.past
    if past is not None:
        _look_back(made, past, ledger)
    if reason is not None:
        _explain(made, reason)
    return made


def durations(ledger: Ledger) -> Durations:
    """What each phase took."""
    head, end, chosen = ledger.head, ledger.end, ledger.chosen
    first = ledger.first or head
    none = NOTHING  # looked up once
    upload = _ms((ledger.uploaded or end) - head, none) if ledger.received else none
    if not chosen:
        head = head or end
        return Durations(_ms(end - first, none), _ms(head - first, none), upload, _ms(end - head, none))
    connected, sent, answered = ledger.connected or end, ledger.sent, ledger.answered
    made = Durations(
        _ms(end - first, none),
        none if head == first else _ms(head - first, none),
        upload,
        _ms(chosen - head, none),
        _ms(connected - chosen, none),
        _ms((sent or answered or end) - connected, none),
        _ms((answered or end) - sent, none) if sent else none,  # 0 for an answer that came before all was sent
        _ms(end - answered, none) if answered else none,
    )
    if ledger.connect:
        made.dns, made.connect, made.tls = _ms(ledger.dns, none), _ms(ledger.connect, none), _ms(ledger.tls, none)
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
    made.error = _quoted(reason.reason, REASON)
    made.who = reason.who.value
    made.phase = "" if reason.phase is None else reason.phase.value
    made.proxy_error = kind(reason)


def _look_back(made: Record, past: Past, ledger: Ledger) -> None:
    none = NOTHING
    made.earlier = [
        Earlier(each.address, each.status, _quoted(each.why, SHORT), _ms(each.seconds, none)) for each in past.attempts
    ]
    made.hedge = past.hedged
    made.ms.gateway = _ms(past.asked - ledger.head, none)
    made.ms.earlier = _ms(ledger.chosen - past.asked, none)


def _quoted(text: str, limit: int) -> str:
    """A reason, bounded."""
    if not text.isascii():
        text = text.encode("utf-8", "backslashreplace").decode("utf-8")  # it may quote what is no text
    return text if len(text) <= limit else text[:limit] + CUT


_PRINTABLE: Final = only(*range(32, 127))
_strange: Final = re.compile(rb"[^\x20-\x7e]")


def _text(value: bytes, limit: int) -> str:
    """Printable ASCII, one line, bounded."""
    if len(value) <= limit and value.translate(_PRINTABLE) == value:
        return value.decode("ascii")
    return _strange.sub(_escape, value[:limit]).decode("ascii") + (CUT if len(value) > limit else "")


_known: Final[dict[bytes, str]] = {}
"""What comes again and again; all is forgotten when there are L{KNOWN}."""


def _short(value: bytes) -> str:
    """A method, a host, a user agent."""
    found = _known.get(value)
    if found is None:
        found = _text(value, SHORT)
        if len(value) <= SHORT:
            if len(_known) >= KNOWN:
                _known.clear()
            _known[value] = found
    return found


def _escape(match: re.Match[bytes]) -> bytes:
    return b"\\x%02x" % match[0][0]


def _ms(seconds: float, none: Any) -> Any:
    """Milliseconds, exact to the microsecond; a clock never ran backwards."""
    return int(seconds * 1e6 + 0.5) / 1000 if seconds > 0.0 else none


class _Last:
    """What was written out last: a busy gateway asks for the same second, and often for the same millisecond."""

    __slots__ = ("millisecond", "second", "text", "until_second")

    def __init__(self) -> None:
        self.second = self.millisecond = -1
        self.text = self.until_second = ""


_last: Final = _Last()
_MILLISECONDS: Final = [f".{number:03d}Z" for number in range(1000)]


def stamp(seconds: float) -> str:
    """Seconds since the epoch in RFC 3339, UTC, with milliseconds."""
    millisecond = int(seconds * 1000)
    if millisecond != _last.millisecond:
        second = millisecond // 1000
        if second != _last.second:
            _last.second, _last.until_second = second, time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(second))
        _last.millisecond, _last.text = millisecond, _last.until_second + _MILLISECONDS[millisecond % 1000]
    return _last.text
