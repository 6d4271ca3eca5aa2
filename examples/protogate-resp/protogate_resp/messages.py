"""
What a command is as a Request, and a reply as a Response.

A command of Redis is C{COMMAND /key}, with the arguments behind the key as its content, in RESP; its reply is the
content of the response, as it came.  For who asks over another protocol, GET, PUT and DELETE are GET, SET and DEL of
the key that is the path.  Everything that RESP has no words for (fields, a status, another method) crosses between two
of these codecs as the command PROTOGATE, whose first argument is a head, and whose second is the content.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from http import HTTPStatus
from typing import Final
from urllib.parse import quote, unquote_to_bytes

from protogate.context import Limits
from protogate.errors import CLIENT, GATEWAY, Abort
from protogate.message import Field, Request, Response
from protogate_resp.wire import array

RESP: Final = "RESP"
"""C{protocol} of a command, and of a reply as it came."""
FULL: Final = "RESP+"
"""C{protocol} of what came in a PROTOGATE."""
VERB: Final = b"PROTOGATE"
COUNT: Final = b"resp-count"
"""Field that has the number of a command's words: they are framed by the codec that reads them."""
HOST: Final = b"resp"
"""C{authority} of a command, for upstreams that want to know one."""
VERBS: Final = {b"GET": b"GET", b"PUT": b"SET", b"DELETE": b"DEL"}
BOUND: Final = frozenset(
    b"ASKING AUTH CLIENT CONNECT DISCARD EXEC HELLO MONITOR MULTI PSUBSCRIBE PSYNC PUNSUBSCRIBE QUIT READONLY "
    b"READWRITE REPLCONF RESET SELECT SSUBSCRIBE SUBSCRIBE SUNSUBSCRIBE SYNC UNSUBSCRIBE UNWATCH WAIT "
    b"WAITAOF WATCH".split()
)
"""Commands that change the connection they come by: those to the upstream are shared by all clients."""

_NAME: Final = re.compile(rb"[A-Z][A-Z0-9._|-]*").fullmatch
_START: Final = re.compile(rb"([!#$%&'*+\-.^_`|~0-9A-Za-z]+) ([\x21-\x7e]*) ([\x21-\x7e]*)").fullmatch
_STATUS: Final = re.compile(rb"[2-5][0-9][0-9]").fullmatch
_VISIBLE: Final = rb"[\x21-\x7e\x80-\xff]"
_FIELD: Final = re.compile(
    rb"([!#$%%&'*+\-.^_`|~0-9a-z]+): ((?:%b(?:[\t\x20-\x7e\x80-\xff]*%b)?)?)" % (_VISIBLE, _VISIBLE)
).fullmatch
_ERROR: Final = re.compile(rb"-([A-Z]+)(?: ([45][0-9][0-9]))?(?: [^\r\n]*)?\r\n").fullmatch
_WORDS: Final = {401: b"NOAUTH", 403: b"NOPERM"}
_STATUSES: Final = {b"NOPERM": 403, b"WRONGTYPE": 409} | dict.fromkeys(
    (b"BUSY", b"CLUSTERDOWN", b"LOADING", b"MASTERDOWN", b"OOM", b"READONLY", b"TRYAGAIN"), 503
)
_PHRASES: Final = {status.value: status.phrase.encode() for status in HTTPStatus}


def refused(why: str, status: int = 400) -> Abort:
    """The Abort for what a client should not have sent."""
    return Abort(why, CLIENT, status, detail=why)


def native(words: list[bytes], count: int) -> Request:
    """A command of Redis, from its name and key."""
    name, key = words[0].upper(), words[1] if count > 1 else b""
    if not _NAME(name):
        raise refused("not a command")
    if name in BOUND:
        raise refused(f"{name.decode()} is about a connection, and this one is shared", 501)
    if key in (b".", b".."):
        raise refused("a key of dots has no path")
    request = Request(name, _path(key), [(COUNT, b"%d" % count)], None, HOST, protocol=RESP)
    request.service = name.decode()
    return request


def full(block: bytes, limits: Limits) -> Request:
    """A request out of a PROTOGATE."""
    first, *lines = block.split(b"\n")
    start = _START(first)
    if start is None:
        raise refused("not a request")
    if len(first) > limits.request_line:
        raise refused("request line too long", 414)
    sizes = list(map(len, lines))
    if len(sizes) > limits.header_count or sum(sizes) > limits.headers or max(sizes, default=0) > limits.header_line:
        raise refused("header fields too large", 431)
    return Request(start[1], start[2], _fields(lines), None, start[3], protocol=FULL)


def command(request: Request) -> tuple[str, bytes, int | None]:
    """How a request is asked: RESP, FULL or neither; the start of the command; how long its last argument is."""
    method, body = request.method, request.body
    size = 0 if body is None else body.length
    key = b""
    if request.protocol not in ("", FULL):
        path = request.target.partition(b"?")[0]
        key = unquote_to_bytes(path[1:])
        if path != _path(key):  # rules have seen the path: with a second spelling of a key they would miss it
            raise refused("not how a key is spelled in a path")
    if request.protocol == RESP:
        count = int(request.headers.get(COUNT) or 1)
        if (count > 2) is (body is None):
            raise Abort("a command lost its arguments", GATEWAY, 500)
        return RESP, array(count, *[method, key][:count]), None
    if request.protocol in ("", FULL):
        start = b"%b %b %b" % (method, request.target, request.authority)
        if not _START(start) or request.upgrade is not None:
            raise Abort("a request that cannot be written as RESP", GATEWAY, 500)
        return FULL, array(2 if body is None else 3, VERB, _block(start, request.headers)), size
    verb = VERBS.get(method)
    if verb is None or request.upgrade is not None:
        raise Abort("no command is meant by this", CLIENT, 405, headers=[(b"allow", b"GET, PUT, DELETE")])
    if verb != b"SET":
        if body is not None:
            raise refused("content where a command takes none")
        return "", array(2, verb, key), size
    if size is None:
        raise refused("a value needs a length", 411)
    return "", array(3, verb, key) + (b"$0\r\n\r\n" if body is None else b""), size


def _path(key: bytes) -> bytes:
    """One segment, so that whatever a key holds, nobody takes part of it for something else."""
    return b"/" + quote(key, safe="!$&'()*+,=:@").encode()


def head(response: Response) -> bytes:
    """The head of an answer to a PROTOGATE."""
    return _block(b"%d" % response.status, response.headers)


def headed(block: bytes) -> Response:
    """The same, read."""
    first, *lines = block.split(b"\n")
    if not _STATUS(first):
        raise ValueError("not an answer")
    return Response(int(first), _fields(lines), None, FULL)


def line(response: Response) -> bytes:
    """What is said to Redis's own clients instead of a value.  A 404 of the gateway's own is an error."""
    status = response.status
    if status == 404 and response.protocol:
        return b"$-1\r\n"
    if response.body is None and status < 300:
        return b"+OK\r\n"
    if status < 300:
        status = 502  # a value whose length is not known cannot be said
    return b"-%b %d %b\r\n" % (_WORDS.get(status, b"ERR"), status, _PHRASES.get(status, b"Unknown"))


def status_of(kind: bytes, size: int | None, raw: bytes) -> int:
    """The status that a reply is, by its first line."""
    if kind == b"-":
        match = _ERROR(raw)
        if match is None:
            return 400
        return int(match[2]) if match[2] else _STATUSES.get(match[1], 400)
    return 404 if size == -1 else 200


def _block(start: bytes, fields: Iterable[Field]) -> bytes:
    lines = (b"%b: %b" % field for field in fields)
    return b"\n".join([start, *(text for text in lines if _FIELD(text))])


def _fields(lines: list[bytes]) -> list[Field]:
    found = list(map(_FIELD, lines))
    if not all(found):
        raise ValueError("not a field")
    return [(match[1], match[2]) for match in found if match]
