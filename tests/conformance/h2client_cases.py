r"""
Rules that bind a client: what it must make of a server's frames.

Unless a case says otherwise, C{GET /} is under way on stream 1.
"""

from __future__ import annotations

from h2case import OPEN, Item, Table, answer, closed, reset

from h2frames import (
    FRAME,
    PUSH,
    STREAMS,
    TABLE,
    TOP,
    WINDOW,
    Field,
    data,
    fields,
    goaway,
    headers,
    literal,
    ping,
    priority,
    promise,
    request,
    res,
    rst,
    settings,
    window,
)
from h2peer import Peer

client = Table()
"""The cases."""
REFUSED = (*reset("PROTOCOL_ERROR"), "refused")
"""A stream error.  Of a stream that has ended both ways the application alone hears: no frame may follow (5.1)."""
POST = {"method": b"POST", "target": b"/sink", "content": 100_000}
"""A request with content, of which as much is sent as there is room for."""

# -- 3.4

client("3.4-no-settings", "SETTINGS are the first that a server sends.", [], closed("PROTOCOL_ERROR"), preface=ping())
client(
    "3.4-garbage",
    "What is no frame is a connection error.",
    [],
    closed("PROTOCOL_ERROR", "FRAME_SIZE_ERROR"),
    preface=b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n",
)
client("3.4-empty-settings", "They may be empty.", [res(1)], answer(), preface=settings())

# -- 5.1

client(
    "5.1-idle-headers", "HEADERS on a stream that nobody opened: PROTOCOL_ERROR.", [res(9)], closed("PROTOCOL_ERROR")
)
client("5.1-even-headers", "Or on one of the server's own.", [res(2)], closed("PROTOCOL_ERROR"))
client(
    "5.1-ended-data",
    "DATA behind END_STREAM, where all is said: STREAM_CLOSED, at most.",
    [res(1), data(1, b"x")],
    (*answer(), *closed("STREAM_CLOSED"), *reset("STREAM_CLOSED")),
)
client(
    "5.1-ended-headers",
    "HEADERS behind END_STREAM: likewise.",
    [res(1), res(1)],
    (*answer(), *closed("STREAM_CLOSED"), *reset("STREAM_CLOSED")),
)
client(
    "5.1-half-closed-data",
    "On a stream that the client still uses: a stream error of type STREAM_CLOSED.",
    [res(1), data(1, b"x")],
    (*reset("STREAM_CLOSED"), *answer()),
    ask={"method": b"POST", "target": b"/sink", "open": True},
)
client("5.1-ended-window", "WINDOW_UPDATE may come behind the end.", [res(1), window(1, 1)], answer())
client("5.1-ended-priority", "And PRIORITY.", [res(1), priority(1)], answer())
client("5.1-ended-rst", "And RST_STREAM.", [res(1), rst(1, 0)], answer())

# -- 5.1.2, 6.5.2 what the server's settings say


def requests(count: int) -> Item:
    """So many have come."""

    def look(peer: Peer) -> bytes:
        assert len(peer.messages) == count, f"{len(peer.messages)} of {count}"
        return b""

    return look


client(
    "5.1.2-none",
    "No stream is opened where there may be none.",
    [settings((STREAMS, 0)), requests(0), settings((STREAMS, 1)), requests(1), res(1)],
    answer(),
    preface=settings((STREAMS, 0)),
    section="5.1.2",
)


def sent(size: int) -> Item:
    """So much of the content has come, in frames that are not too long, and no more."""

    def look(peer: Peer) -> bytes:
        assert len(peer.messages[1].content) == size, f"{len(peer.messages[1].content)} of {size}"
        return b""

    return look


client("6.9.1-closed", "Nothing is sent into a window of 0.", [sent(0)], OPEN, ask=POST, said={WINDOW: 0})
client(
    "6.9.1-one", "Nor more than there is room for.", [sent(1), window(1, 7), sent(8)], OPEN, ask=POST, said={WINDOW: 1}
)
client(
    "6.9.1-initial",
    "At first there is room for 65,535 bytes on the connection.",
    [sent(65535), window(0, 65535), sent(100_000), res(1)],
    answer(),
    ask=POST,
    said={WINDOW: TOP},
)
client(
    "6.9.2-negative",
    "A window can fall below 0: nothing is sent until it is above.",
    [sent(20), settings((WINDOW, 5)), window(1, 15), sent(20), window(1, 3), sent(23)],
    OPEN,
    ask=POST,
    said={WINDOW: 20},
)
client(
    "4.2-frames",
    "Frames are as long as the server takes, at most.",
    [window(0, TOP - 65535), sent(100_000)],
    OPEN,
    ask=POST,
    said={FRAME: 16384, WINDOW: TOP},
)
client("6.5.2-push", "A server cannot let itself push.", [settings((PUSH, 1))], closed("PROTOCOL_ERROR"))
client(
    "6.5.2-table-0",
    "SETTINGS_HEADER_TABLE_SIZE of 0 empties the client's table.",
    [res(1)],
    answer(),
    said={TABLE: 0},
    section="7541 4.2",
)

# -- 6.6, 8.4 push

client(
    "8.4-push",
    "PUSH_PROMISE where push is off: PROTOCOL_ERROR.",
    [promise(1, 2, fields(request()))],
    closed("PROTOCOL_ERROR"),
)
client(
    "6.6-stream-0",
    "PUSH_PROMISE on stream 0: PROTOCOL_ERROR.",
    [promise(0, 2, fields(request()))],
    closed("PROTOCOL_ERROR"),
)

# -- 6.8 GOAWAY

client(
    "6.8-finish",
    "What GOAWAY has counted in goes on.",
    [goaway(1), res(1, end=False), data(1, b"ok", True)],
    answer(),
    then=False,
)
client("6.8-twice", "GOAWAY may come in two steps.", [goaway(TOP), ping(), goaway(1), res(1)], answer(), then=False)

# -- 8.1 messages

client(
    "8.1-content", "HEADERS and DATA are a response.", [res(1, end=False), data(1, b"ok"), data(1, end=True)], answer()
)
client(
    "8.1-trailers",
    "Trailers end it.",
    [res(1, end=False), data(1, b"ok"), headers(1, fields([(b"x-sum", b"1")]))],
    answer(),
)
client(
    "8.1-trailers-alone",
    "Also one without content.",
    [res(1, end=False), headers(1, fields([(b"x-sum", b"1")]))],
    answer(),
)
client(
    "8.1-interim",
    "Interim responses come first, any number.",
    [res(1, b"103", end=False), res(1, b"103", end=False), res(1)],
    answer(),
)
client(
    "8.1-no-error",
    "RST_STREAM with NO_ERROR behind a response takes nothing from it.",
    [res(1, end=False), data(1, b"ok", True), rst(1, 0)],
    answer(),
    ask={"method": b"POST", "target": b"/sink", "open": True},
)


def malformed(name: str, must: str, send: list[Item], **named: object) -> None:
    """A response that must not be taken."""
    client(name, must, send, REFUSED, secret=True, **named)


def section(name: str, must: str, more: list[Field], status: bytes = b"200") -> None:
    """A response with such fields."""
    malformed(name, must, [res(1, status, more)])


malformed("8.1-data-first", "A response does not begin with DATA.", [data(1, b"ok", True)])
malformed(
    "8.1-data-interim",
    "Nor does content come behind an interim one.",
    [res(1, b"103", end=False), data(1, b"ok", True)],
)
malformed("8.1-interim-end", "An interim response does not end the stream.", [res(1, b"103")])
malformed(
    "8.1-trailers-open",
    "Trailers without END_STREAM are malformed.",
    [res(1, end=False), data(1, b"ok"), headers(1, fields([(b"x-sum", b"1")]), end=False)],
)
malformed("8.1-trailers-pseudo", "Trailers have no pseudo fields.", [res(1, end=False), data(1, b"ok"), res(1)])
malformed(
    "8.1-trailers-name",
    "Their names are checked, too.",
    [res(1, end=False), headers(1, fields([(b"X-Sum", b"1")]))],
    section="8.2.1",
)

CONTENT = "content-length must be the sum of the content."


def sized(size: bytes) -> bytes:
    """A response that says how long its content will be."""
    return res(1, more=[(b"content-length", size)], end=False)


client("8.1.1-length", "Content as long as it said is taken.", [sized(b"5"), data(1, b"hello", True)], answer())
malformed("8.1.1-shorter", CONTENT, [sized(b"5"), data(1, b"hell", True)])
malformed("8.1.1-longer", CONTENT, [sized(b"4"), data(1, b"hello", True)])
malformed("8.1.1-none", CONTENT, [res(1, more=[(b"content-length", b"5")])])
malformed("8.1.1-shorter-trailers", CONTENT, [sized(b"5"), data(1, b"hel"), headers(1, fields([(b"x-sum", b"1")]))])
malformed("8.1.1-number", "content-length is a number in digits.", [sized(b"+5"), data(1, b"hello", True)])
malformed(
    "8.1.1-twice",
    "Two that differ are none.",
    [res(1, more=[(b"content-length", b"5"), (b"content-length", b"6")], end=False), data(1, b"hello", True)],
)
client(
    "8.1.1-head",
    "To HEAD, it says what GET would get.",
    [res(1, more=[(b"content-length", b"5")])],
    answer(),
    ask={"method": b"HEAD", "target": b"/"},
)
client("8.1.1-304", "So it does with 304.", [res(1, b"304", [(b"content-length", b"5")])], answer(304))

# -- 8.2, 8.3 fields

NAME = "A name has none of 0x00-0x20, A-Z, 0x7f-0xff."
section("8.2.1-upper", NAME, [(b"X-Big", b"1")])
for code in (0x00, 0x0A, 0x0D, 0x20, 0x7F, 0x80):
    section(f"8.2.1-name-{code:02x}", NAME, [(b"x-%ca" % code, b"1")])
section("8.2.1-colon", "But for the first of a pseudo field, no name has a colon.", [(b"x-a:b", b"1")])
for code in (0x00, 0x0A, 0x0D):
    section(f"8.2.1-value-{code:02x}", "A value has no NUL, LF or CR.", [(b"x-a", b"a%cb" % code)])
for name, value in {"space-first": b" a", "space-last": b"a ", "tab-first": b"\ta", "tab-last": b"a\t"}.items():
    section(f"8.2.1-{name}", "A value neither begins nor ends with a blank.", [(b"x-a", value)])
for name, value in {
    b"connection": b"close",
    b"proxy-connection": b"close",
    b"keep-alive": b"timeout=5",
    b"transfer-encoding": b"chunked",
    b"upgrade": b"h2c",
}.items():
    section(
        f"8.2.2-{name.decode()}", "A field that speaks of the connection makes a message malformed.", [(name, value)]
    )
malformed(
    "8.3-late", "Pseudo fields come before all others.", [headers(1, fields([(b"x-a", b"1"), (b":status", b"200")]))]
)
section("8.3-unknown", "Others than those defined are malformed.", [(b":foo", b"bar")])
section("8.3-path", "So is that of a request.", [(b":path", b"/")])
section("8.3-twice", "None comes twice.", [(b":status", b"200")])
malformed("8.3.2-no-status", "A response has a :status.", [headers(1, fields([(b"x-a", b"1")]))])
malformed("8.3.2-nothing", "Also one without other fields.", [headers(1, b"")])
for text in (b"", b"20", b"2000", b"abc", b"+20", b" 200", b"99", b"600"):
    malformed(
        f"8.3.2-status-{text.decode().replace(' ', 'space') or 'none'}",
        ":status has three digits (RFC 9110, 15).",
        [res(1, text)],
    )
malformed("8.6-101", "There is no 101 in HTTP/2.", [res(1, b"101", end=False)])

# -- RFC 7541

client(
    "7541-dynamic",
    "Entries stay for later sections.",
    [headers(1, b"\x88" + literal(b"x-a", b"1", 0x40), end=False), headers(1, b"\xbe")],
    answer(),
    section="7541 2.3.2",
)
client(
    "7541-evicted",
    "An entry that was pushed out cannot be used.",
    [
        headers(1, b"\x88" + literal(b"x-a", b"1", 0x40) + literal(b"x-b", b"v" * 4050, 0x40), end=False),
        headers(1, b"\xbf"),
    ],
    closed("COMPRESSION_ERROR"),
    section="7541 4.4",
)
