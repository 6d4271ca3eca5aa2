r"""
A strict parser of HTTP/1.1 for tests: shares no code with the gateway, and takes only the one canonical spelling of a
message, so whatever it takes has exactly one reading.  h11 reads all of it as well, and must see the same (L{oracle}).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

import h11

T = rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]"
V = rb"[\t \x21-\x7e\x80-\xff]"
FIELD = re.compile(rb"(" + T + rb"+): ?((?:[\x21-\x7e\x80-\xff](?:" + V + rb"*[\x21-\x7e\x80-\xff])?)?)").fullmatch
REQUEST_LINE = re.compile(rb"(" + T + rb"+) ([\x21-\x7e]+) HTTP/1\.1").fullmatch
STATUS_LINE = re.compile(rb"HTTP/1\.1 ([1-5][0-9][0-9]) " + V + rb"*").fullmatch
NUMBER = re.compile(rb"0|[1-9][0-9]*").fullmatch
SIZE = re.compile(rb"0|[1-9a-f][0-9a-f]*").fullmatch
HOP = {b"keep-alive", b"proxy-connection", b"proxy-authorization", b"http2-settings", b"trailer"}


def equal(found: object, expected: object) -> None:
    """For checks in one line."""
    assert found == expected


class Message:
    """One message: C{start} holds the groups of its start line; C{whole} is False for one that was broken off."""

    def __init__(self, start: tuple[bytes, ...], fields: list[tuple[bytes, bytes]]) -> None:
        self.start, self.fields = start, fields
        self.body, self.trailers, self.whole = b"", [], True

    def all(self, name: bytes) -> list[bytes]:
        return [value for key, value in self.fields if key == name]

    def get(self, name: bytes) -> bytes | None:
        values = self.all(name)
        assert len(values) < 2, f"{name!r} stands there {len(values)} times"
        return values[0] if values else None

    @property
    def method(self) -> bytes:
        return self.start[0]

    @property
    def target(self) -> bytes:
        return self.start[1]

    @property
    def tunnel(self) -> bool:
        """A request that wants what follows to be raw bytes."""
        return self.method == b"CONNECT" or bool(self.all(b"upgrade"))

    @property
    def status(self) -> int:
        return int(self.start[0])

    def __repr__(self) -> str:
        return f"<{b' '.join(self.start)!r} {self.fields} {self.body[:60]!r}>"


def head(data: bytes, line: Callable[[bytes], Any]) -> tuple[Message, int] | None:
    """The head at the start of C{data} and where it ends, or None while it is incomplete."""
    end = data.find(b"\r\n\r\n")
    if end < 0:
        return None
    first, *lines = data[:end].split(b"\r\n")
    start = line(first)
    assert start, f"bad start line {first!r}"
    fields = [FIELD(each) for each in lines]
    assert all(fields), f"bad field line in {lines!r}"
    message = Message(start.groups(), [(field[1].lower(), field[2]) for field in fields if field])
    for name in HOP:
        assert not message.all(name), f"{name!r} crossed the gateway"
    assert set(message.all(b"te")) <= {b"trailers"}
    lengths, codings = message.all(b"content-length"), message.all(b"transfer-encoding")
    assert len(lengths) + len(codings) < 2, f"framed twice: {message}"
    assert codings in ([], [b"chunked"]), codings
    assert all(NUMBER(length) for length in lengths), f"no canonical decimal: {lengths}"
    return message, end + 4


def chunks(message: Message, data: bytes, at: int) -> int:
    """Read a chunked body; returns where it ends, or -1 while it is incomplete."""
    while True:
        end = data.find(b"\r\n", at)
        if end < 0:
            return -1
        assert SIZE(data[at:end]), f"no canonical chunk size: {data[at:end]!r}"
        size, at = int(data[at:end], 16), end + 2
        if not size:
            break
        message.body += data[at : at + size]
        at += size
        tail = data[at : at + 2]
        assert b"\r\n".startswith(tail), f"a chunk is followed by {tail!r}"
        at += 2
        if at > len(data):
            return -1
    if data[at : at + 2] == b"\r\n":
        return at + 2
    end = data.find(b"\r\n\r\n", at)
    if end < 0:
        return -1
    fields = [FIELD(each) for each in data[at:end].split(b"\r\n")]
    assert all(fields), f"bad trailers {data[at:end]!r}"
    message.trailers = [(field[1].lower(), field[2]) for field in fields if field]
    return end + 4


def body(message: Message, data: bytes, at: int) -> int:
    """Read the body that its fields announce; returns where it ends, or -1 while it is incomplete."""
    if message.all(b"transfer-encoding"):
        return chunks(message, data, at)
    size = int(message.get(b"content-length") or 0)
    message.body = data[at : at + size]
    return at + size if len(message.body) == size else -1


def requests(data: bytes) -> tuple[list[Message], Message | bytes | None, bytes]:
    """Every complete request; what there is of an incomplete one: its head, or part of that; and the bytes of that."""
    found: list[Message] = []
    while data:
        made = head(data, REQUEST_LINE)
        if made is None:
            return found, data, data
        message, at = made
        assert len(message.all(b"host")) == 1, f"not one Host: {message}"
        options = message.get(b"connection")
        assert options in (None, b"close", b"te", b"close, te", b"upgrade"), options
        assert (options == b"upgrade") == bool(message.all(b"upgrade")), message
        if message.tunnel:
            return [*found, message], None, data[at:]
        end = body(message, data, at)
        if end < 0:
            return found, message, data
        found.append(message)
        data = data[end:]
    return found, None, b""


def answers(data: bytes, methods: Sequence[bytes] = (), closed: bool = False) -> list[Message]:
    """
    What a client reads, interim answers included.

    @param methods: of the requests it sent; GET for those beyond.
    @param closed: the connection has ended well: what is framed by that is complete.
    """
    found: list[Message] = []
    finals = 0
    while data:
        made = head(data, STATUS_LINE)
        assert made, f"the client got half a head: {data!r}"
        message, at = made
        found.append(message)
        status, method = message.status, methods[finals] if finals < len(methods) else b"GET"
        finals += status >= 200
        if status == 101 or (method == b"CONNECT" and status < 300):
            message.body = data[at:]
            return found
        if status < 200 or status in {204, 304} or method == b"HEAD":
            assert not message.all(b"transfer-encoding"), message
            assert status >= 200 or not message.all(b"content-length"), message
            data = data[at:]
            continue
        if not message.all(b"content-length") and not message.all(b"transfer-encoding"):
            message.body, message.whole = data[at:], closed
            assert b"close" in message.all(b"connection"), f"nobody can tell where this ends: {message}"
            return found
        end = body(message, data, at)
        if end < 0:
            message.whole = False
            return found
        data = data[end:]
    return found


_read: set[bytes] = set()


def oracle(data: bytes, expected: list[Message]) -> None:
    """Another reader, h11, sees the same requests."""
    if data in _read:
        return
    _read.add(data)
    found: list[tuple[bytes, bytes]] = []
    connection = h11.Connection(h11.SERVER, 1 << 20)
    connection.receive_data(data)
    while len(found) <= len(expected):
        event = connection.next_event()
        if isinstance(event, h11.Request):
            target, text = event.target, b""
        elif isinstance(event, h11.Data):
            text += bytes(event.data)
        elif isinstance(event, h11.EndOfMessage):
            found.append((target, text))
            connection.send(h11.Response(status_code=200, headers=[(b"content-length", b"0")]))
            connection.send(h11.EndOfMessage())
            if connection.our_state is not h11.DONE or connection.their_state is not h11.DONE:
                break
            connection.start_next_cycle()
        else:
            break
    assert found == [(message.target, message.body) for message in expected]
