"""
Rules that bind both ends alike: frames, states, settings, windows, compression.

Stream 1 is open in both directions: to a server, a request came whose content is not complete; to a client, its own
request is under way.  C{role.message()} is a message that is right: a request on stream 3, or the response on stream 1.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from h2case import CLIENT, OPEN, SERVER, Item, Role, Table, answer, closed, reset

from h2frames import (
    ACK,
    DATA,
    END_HEADERS,
    END_STREAM,
    FRAME,
    GOAWAY,
    HEADERS,
    LIST,
    PADDED,
    PING,
    PRIORITIES,
    PRIORITY,
    PUSH,
    RST_STREAM,
    SETTINGS,
    TABLE,
    TOP,
    UNKNOWN,
    WINDOW,
    WINDOW_UPDATE,
    continuation,
    data,
    fields,
    goaway,
    headers,
    integer,
    literal,
    many,
    ping,
    priority,
    raw,
    req,
    rst,
    settings,
    string,
    window,
)
from h2peer import Peer

SHARED: dict[bool, Table] = {True: Table(), False: Table()}
"""By whether the end that is looked at is the client."""
OPENED = req(1, b"/sink", b"POST", end=False)
"""How stream 1 gets open at a server; a client opens it itself."""
ASK = {"method": b"POST", "target": b"/sink", "open": True}

ANY = closed("FRAME_SIZE_ERROR") + reset("FRAME_SIZE_ERROR")


def both(
    name: str,
    must: str,
    send: Callable[[Role], Sequence[Item]] | Sequence[Item],
    expect: tuple[str, ...],
    block: bool = False,
    **named: Any,
) -> None:
    """
    A case for each role.

    @param block: what is expected speaks of the message that the role brings, not of stream 1.
    """
    for role in (CLIENT, SERVER):
        items = send(role) if callable(send) else send
        before: Sequence[Item] = () if role.client else (OPENED,)
        stream = role.stream if block else 1
        SHARED[role.client](name, must, [*before, *items], expect, stream=stream, ask=ASK, **named)


# -- 4 frames

both("4.1-unknown-connection", "A frame of an unknown type is ignored.", [raw(UNKNOWN, 0xFF, 0, bytes(99))], OPEN)
both("4.1-unknown-stream", "A frame of an unknown type is ignored.", [raw(UNKNOWN, 0xFF, 1, bytes(99))], OPEN)
both("4.1-unknown-idle", "A frame of an unknown type is ignored.", [raw(UNKNOWN, 0, 77, b"x")], OPEN)
both("4.1-unknown-long", "An unknown frame as long as any may be is ignored.", [raw(UNKNOWN, 0, 1, bytes(16384))], OPEN)
both("4.1-flags-ping", "Unused flags are ignored.", [ping(flags=0xFE)], OPEN)
both("4.1-flags-settings", "Unused flags are ignored.", [raw(SETTINGS, 0xFE)], OPEN)
both("4.1-flags-window", "Unused flags are ignored.", [raw(WINDOW_UPDATE, 0xFF, 0, b"\0\0\0\1")], OPEN)
both("4.1-flags-headers", "Unused flags are ignored.", lambda r: [r.message(flags=0xD2)], answer(), block=True)
both("4.1-reserved", "The reserved bit of a stream's number is ignored.", [raw(PING, 0, 1 << 31, bytes(8))], OPEN)
both("4.1-reserved-window", "The reserved bit is ignored.", [raw(WINDOW_UPDATE, 0, 1, b"\x80\0\0\1")], OPEN)
both(
    "4.2-largest",
    "Frames of 16,384 bytes are taken.",
    lambda r: [r.message(fields(many(16384 - 500)), pad=255)],
    answer(),
    block=True,
)
both(
    "4.2-data",
    "DATA beyond SETTINGS_MAX_FRAME_SIZE is an error of type FRAME_SIZE_ERROR.",
    lambda r: [*([r.message(end=False)] if r.client else []), data(1, bytes(16385))],
    ANY,
)
both(
    "4.2-headers",
    "HEADERS beyond it corrupt the compression: a connection error.",
    lambda r: [r.message(fields(many(16500)))],
    closed("FRAME_SIZE_ERROR"),
)
both(
    "4.2-continuation",
    "CONTINUATION beyond it corrupts the compression: a connection error.",
    lambda r: [r.message(last=False), continuation(r.stream, fields(many(16500)))],
    closed("FRAME_SIZE_ERROR"),
)
both(
    "4.2-settings",
    "SETTINGS beyond it can change the state of the connection: a connection error.",
    [settings(*[(UNKNOWN, 0)] * 2731)],
    closed("FRAME_SIZE_ERROR"),
)
both("4.2-unknown", "Any frame beyond it is an error.", [raw(UNKNOWN, 0, 0, bytes(16385))], closed("FRAME_SIZE_ERROR"))
both("4.2-headers-short", "Too short for what it must contain.", [raw(HEADERS, PADDED, 3)], closed("FRAME_SIZE_ERROR"))
both(
    "4.2-priority-short",
    "HEADERS too short for its priority fields.",
    lambda r: [raw(HEADERS, PRIORITIES | END_HEADERS, r.stream, bytes(4))],
    closed("FRAME_SIZE_ERROR"),
)
both(
    "4.2-data-short",
    "DATA too short for its Pad Length.",
    lambda r: [*([r.message(end=False)] if r.client else []), raw(DATA, PADDED, 1)],
    ANY,
)

# -- 4.3 field blocks

both(
    "4.3-garbage",
    "A block that cannot be decoded is a connection error of type COMPRESSION_ERROR.",
    lambda r: [r.message(b"\xff\xff\xff\xff\xff\xff\xff")],
    closed("COMPRESSION_ERROR"),
)
both(
    "4.3-trailers",
    "So is one of trailers.",
    lambda r: [*([r.message(end=False)] if r.client else []), headers(1, b"\x80")],
    closed("COMPRESSION_ERROR"),
)
both(
    "4.3-cut",
    "A literal that ends in the middle is one, too.",
    lambda r: [r.message(literal(b"x-a", b"0123456789")[:-1])],
    closed("COMPRESSION_ERROR"),
)
for name, between in {
    "data": data(1, b"x"),
    "ping": ping(),
    "settings": settings(),
    "window": window(0, 1),
    "priority": priority(1),
    "rst": rst(1),
    "unknown": raw(UNKNOWN),
}.items():
    both(
        f"6.10-between-{name}",
        "Nothing may come between HEADERS and its CONTINUATION, of whatever type.",
        lambda r, between=between: [r.message(last=False) + between + continuation(r.stream)],
        closed("PROTOCOL_ERROR"),
        section="6.10" if name != "unknown" else "5.5",
    )
both(
    "6.10-other-stream",
    "CONTINUATION of another stream is a connection error.",
    lambda r: [r.message(last=False) + continuation(r.stream + 2)],
    closed("PROTOCOL_ERROR"),
)
both("6.10-stream-0", "CONTINUATION of stream 0 is a connection error.", [continuation(0)], closed("PROTOCOL_ERROR"))
both("6.10-alone", "CONTINUATION without HEADERS is one, too.", [continuation(1)], closed("PROTOCOL_ERROR"))
both(
    "6.10-after-end",
    "And CONTINUATION behind END_HEADERS.",
    lambda r: [r.message(), continuation(r.stream)],
    closed("PROTOCOL_ERROR"),
)
both(
    "6.10-many",
    "A block may come in any number of pieces.",
    lambda r: [
        r.message(last=False) + b"".join(continuation(r.stream, literal(b"x-%d" % n, b"v"), n == 5) for n in range(6))
    ],
    answer(),
    block=True,
)
both(
    "6.10-pieces",
    "Cut anywhere, also within a field.",
    lambda r: [
        headers(r.stream, fields(r.pairs)[:3], last=False)
        + b"".join(continuation(r.stream, fields(r.pairs)[n : n + 15], False) for n in range(3, 90, 15))
        + continuation(r.stream, literal(b"x-a", b"1"))
    ],
    answer(),
    block=True,
)
both(
    "6.10-empty",
    "A piece may be empty.",
    lambda r: [headers(r.stream, b"", last=False) + continuation(r.stream, fields(r.pairs))],
    answer(),
    block=True,
)

# -- 5.1 states

both("5.1-idle-data", "DATA on an idle stream: PROTOCOL_ERROR.", [data(9, b"x")], closed("PROTOCOL_ERROR"))
both("5.1-idle-rst", "RST_STREAM on an idle stream: PROTOCOL_ERROR.", [rst(9)], closed("PROTOCOL_ERROR"), section="6.4")
both("5.1-idle-window", "WINDOW_UPDATE on an idle stream: PROTOCOL_ERROR.", [window(9, 1)], closed("PROTOCOL_ERROR"))
both("5.1-idle-priority", "PRIORITY may come in every state.", [priority(9)], OPEN)
both("5.1-idle-even-window", "On an idle one of the other side, too.", [window(2, 1)], closed("PROTOCOL_ERROR"))
both("5.1-open-priority", "PRIORITY may come in every state.", [priority(1)], OPEN)

# -- 5.4, 5.5

GONE = (*OPEN, "refused")
"""Nothing is sent; a client's application hears that there is no answer."""
both("5.4.2-rst", "RST_STREAM is not answered by RST_STREAM.", [rst(1, 2)], GONE)
both("7-code-stream", "An unknown code means nothing special.", [rst(1, 0xBADC0DE)], GONE)
both(
    "7-code-connection",
    "An unknown code means nothing special.",
    lambda r: [goaway(int(r.client), 0xBADC0DE)],
    OPEN,
    then=False,
)

# -- 6.1 to 6.10

both("6.1-stream-0", "DATA on stream 0: PROTOCOL_ERROR.", [data(0, b"x")], closed("PROTOCOL_ERROR"))
both(
    "6.1-padding-long",
    "Padding as long as the payload: PROTOCOL_ERROR.",
    lambda r: [*([r.message(end=False)] if r.client else []), raw(DATA, PADDED, 1, b"\x06hello")],
    closed("PROTOCOL_ERROR"),
)
both(
    "6.2-stream-0",
    "HEADERS on stream 0: PROTOCOL_ERROR.",
    lambda r: [headers(0, fields(r.pairs))],
    closed("PROTOCOL_ERROR"),
)
both("6.2-padded", "Padding is taken off.", lambda r: [r.message(pad=200)], answer(), block=True)
both("6.2-pad-0", "A Pad Length of 0 is fine.", lambda r: [r.message(pad=0)], answer(), block=True)
both("6.2-priority", "Priority fields are taken off.", lambda r: [r.message(priority=(0, 9))], answer(), block=True)
both(
    "6.2-priority-padded",
    "Both at once.",
    lambda r: [r.message(priority=(0x80000000, 255), pad=9)],
    answer(),
    block=True,
)
both(
    "6.2-padding-long",
    "Padding longer than what is left: PROTOCOL_ERROR.",
    lambda r: [raw(HEADERS, PADDED | END_HEADERS | END_STREAM, r.stream, b"\x7f" + fields(r.pairs))],
    closed("PROTOCOL_ERROR"),
)
both("6.3-stream-0", "PRIORITY on stream 0: PROTOCOL_ERROR.", [priority(0)], closed("PROTOCOL_ERROR"))
for size in (4, 6):
    both(
        f"6.3-length-{size}",
        "PRIORITY of other than 5 bytes: a stream error of type FRAME_SIZE_ERROR.",
        [raw(PRIORITY, 0, 1, bytes(size))],
        reset("FRAME_SIZE_ERROR"),
    )
for size in (3, 5):
    both(
        f"6.4-length-{size}",
        "RST_STREAM of other than 4 bytes: a connection error of type FRAME_SIZE_ERROR.",
        [raw(RST_STREAM, 0, 1, bytes(size))],
        closed("FRAME_SIZE_ERROR"),
    )
both("6.4-stream-0", "RST_STREAM on stream 0: PROTOCOL_ERROR.", [rst(0)], closed("PROTOCOL_ERROR"))

both("6.5-stream", "SETTINGS on a stream: PROTOCOL_ERROR.", [raw(SETTINGS, 0, 1)], closed("PROTOCOL_ERROR"))
both(
    "6.5-ack-payload",
    "ACK with a payload: FRAME_SIZE_ERROR.",
    [raw(SETTINGS, ACK, 0, bytes(6))],
    closed("FRAME_SIZE_ERROR"),
)
both(
    "6.5-length",
    "Not a multiple of 6 bytes: FRAME_SIZE_ERROR.",
    [raw(SETTINGS, 0, 0, bytes(5))],
    closed("FRAME_SIZE_ERROR"),
)
both(
    "6.5.2-push-2",
    "ENABLE_PUSH of other than 0 and 1: PROTOCOL_ERROR.",
    [settings((PUSH, 2))],
    closed("PROTOCOL_ERROR"),
)
both(
    "6.5.2-window",
    "INITIAL_WINDOW_SIZE above 2³¹-1: FLOW_CONTROL_ERROR.",
    [settings((WINDOW, TOP + 1))],
    closed("FLOW_CONTROL_ERROR"),
)
both(
    "6.5.2-frame-small",
    "MAX_FRAME_SIZE below 2¹⁴: PROTOCOL_ERROR.",
    [settings((FRAME, 16383))],
    closed("PROTOCOL_ERROR"),
)
both(
    "6.5.2-frame-large",
    "MAX_FRAME_SIZE above 2²⁴-1: PROTOCOL_ERROR.",
    [settings((FRAME, 1 << 24))],
    closed("PROTOCOL_ERROR"),
)
both("6.5.2-list-0", "MAX_HEADER_LIST_SIZE of 0 is advice, and allowed.", [settings((LIST, 0))], OPEN, then=False)
both("6.5.2-unknown", "An unknown setting is ignored.", [settings((0x99, 1), (0xFFFF, 2**32 - 1))], OPEN)
both("6.5.2-table-top", "HEADER_TABLE_SIZE may be any number.", [settings((TABLE, 2**32 - 1))], OPEN)


def acked(count: int) -> Callable[[Peer], None]:
    """So many SETTINGS were acknowledged, the first included."""

    def look(peer: Peer) -> None:
        assert peer.acked == count, f"{peer.acked} of {count} SETTINGS were acknowledged"

    return look


both(
    "6.5.3-acks", "Each SETTINGS is acknowledged, once.", [settings(), settings((UNKNOWN, 1)) * 3], OPEN, look=acked(5)
)
both("6.5.3-ack", "An ACK is not acknowledged.", [], OPEN, look=acked(1))


def pongs(*payloads: bytes) -> Callable[[Peer], None]:
    """These came back, in this order, before anything else was asked."""

    def look(peer: Peer) -> None:
        assert peer.pongs[: len(payloads)] == list(payloads), peer.pongs

    return look


both(
    "6.7-ack",
    "A PING is answered by one with the same payload.",
    [ping(b"abcdefgh") + ping(b"\0\xff\0\xff\0\xff\0\xff")],
    OPEN,
    look=pongs(b"abcdefgh", b"\0\xff\0\xff\0\xff\0\xff"),
)


def no_pongs(peer: Peer) -> None:
    assert peer.pongs == [b"conforms"], "that of the probe, and no other"


both("6.7-of-ack", "A PING with ACK is not answered.", [ping(flags=ACK)], OPEN, look=no_pongs)
both("6.7-stream", "PING on a stream: PROTOCOL_ERROR.", [ping(stream=1)], closed("PROTOCOL_ERROR"))
for size in (0, 7, 9):
    both(
        f"6.7-length-{size}",
        "PING of other than 8 bytes: FRAME_SIZE_ERROR.",
        [ping(bytes(size))],
        closed("FRAME_SIZE_ERROR"),
    )

both("6.8-stream", "GOAWAY on a stream: PROTOCOL_ERROR.", [goaway(stream=1)], closed("PROTOCOL_ERROR"))
both(
    "6.8-length",
    "GOAWAY too short for its fields: FRAME_SIZE_ERROR.",
    [raw(GOAWAY, 0, 0, bytes(7))],
    closed("FRAME_SIZE_ERROR"),
    section="4.2",
)

both(
    "6.9-zero",
    "WINDOW_UPDATE of 0 on a stream: a stream error of type PROTOCOL_ERROR.",
    [window(1, 0)],
    reset("PROTOCOL_ERROR"),
)
both("6.9-zero-connection", "Of 0 on the connection: a connection error.", [window(0, 0)], closed("PROTOCOL_ERROR"))
for size in (3, 5):
    both(
        f"6.9-length-{size}",
        "WINDOW_UPDATE of other than 4 bytes: a connection error of type FRAME_SIZE_ERROR.",
        [raw(WINDOW_UPDATE, 0, 1, bytes(size))],
        closed("FRAME_SIZE_ERROR"),
    )
both(
    "6.9.1-overflow",
    "A window above 2³¹-1: FLOW_CONTROL_ERROR on the stream.",
    [window(1, TOP)],
    reset("FLOW_CONTROL_ERROR"),
)
both("6.9.1-overflow-connection", "Or on the connection.", [window(0, TOP)], closed("FLOW_CONTROL_ERROR"))
both(
    "6.9.1-overflow-sum",
    "It is the sum that counts.",
    [window(1, TOP - 70000), window(1, 70000)],
    reset("FLOW_CONTROL_ERROR"),
)
both(
    "6.9.2-overflow",
    "A new INITIAL_WINDOW_SIZE that lifts a window above 2³¹-1: a connection error of type FLOW_CONTROL_ERROR.",
    [window(1, TOP - 65535), settings((WINDOW, 65536))],
    closed("FLOW_CONTROL_ERROR"),
)
both(
    "6.9.2-connection",
    "SETTINGS do not change the connection's window.",
    [window(0, TOP - 65535), settings((WINDOW, 65536))],
    OPEN,
)

# -- RFC 7541


def compression(name: str, must: str, block: bytes, section: str) -> None:
    """A block that no decoder may take."""
    both(
        f"7541-{name}",
        must,
        lambda r: [headers(r.stream, fields(r.pairs) + block)],
        closed("COMPRESSION_ERROR"),
        section=f"7541 {section}",
    )


compression("index-0", "Index 0 is an error.", b"\x80", "6.1")
compression("index-beyond", "An index beyond both tables is an error.", integer(62, 7, 0x80), "2.3.3")
compression("name-beyond", "Also that of a name.", integer(99, 6, 0x40) + string(b"v"), "2.3.3")
compression(
    "integer-endless", "An integer beyond what can be held is an error.", b"\xff" + b"\xff" * 9 + b"\x7f", "5.1"
)
compression("integer-cut", "An integer without its end is an error.", b"\xff\x80", "5.1")
compression("string-beyond", "A string longer than the block is an error.", b"\0\x7fx", "5.2")
compression("value-missing", "A literal without its value is an error.", b"\0\x01x", "6.2.2")
compression("huffman-eos", "EOS within a string is an error.", b"\0\x01x\x84\xff\xff\xff\xff", "5.2")
compression("huffman-padding", "Padding of more than 7 bits is an error.", b"\0\x01x\x82\x1f\xff", "5.2")
compression("huffman-zeros", "Padding other than the beginning of EOS is an error.", b"\0\x01x\x81\x18", "5.2")
compression("size-late", "A new size of the table behind a field is an error.", b"\x3f\x01", "4.2")
both(
    "7541-size-above",
    "A new size of the table above SETTINGS_HEADER_TABLE_SIZE is an error.",
    lambda r: [headers(r.stream, integer(65537, 5, 0x20) + fields(r.pairs))],
    closed("COMPRESSION_ERROR"),
    section="7541 6.3",
)


def taken(name: str, must: str, make: Callable[[Role], bytes], section: str) -> None:
    """A block that every decoder must take."""
    both(f"7541-{name}", must, lambda r: [headers(r.stream, make(r))], answer(), block=True, section=f"7541 {section}")


taken("size-0", "The table may be emptied and opened again.", lambda r: b"\x20\x3f\xe1\x1f" + fields(r.pairs), "4.2")
taken(
    "literal-never",
    "Literals of all three kinds are taken.",
    lambda r: fields(r.pairs) + b"".join(literal(b"x-a", b"1", first) for first in (0, 0x10, 0x40)),
    "6.2",
)
taken("literal-empty", "A value may be empty.", lambda r: fields([*r.pairs, (b"x-empty", b"")]), "5.2")
taken(
    "entry-large",
    "An entry larger than the table empties it.",
    lambda r: fields(r.pairs) + literal(b"x-a", b"1", 0x40) + literal(b"x-b", b"v" * 5000, 0x40),
    "4.4",
)
taken(
    "huffman",
    "Huffman's code is read.",
    lambda r: fields(r.pairs) + b"\0\x01x\x8c\xf1\xe3\xc2\xe5\xf2\x3a\x6b\xa0\xab\x90\xf4\xff",
    "5.2",
)
taken(
    "dynamic",
    "An entry can be used in the block that made it.",
    lambda r: fields(r.pairs) + literal(b"x-a", b"1", 0x40) + b"\xbe" + integer(62, 6, 0x40) + string(b"2"),
    "2.3.2",
)
