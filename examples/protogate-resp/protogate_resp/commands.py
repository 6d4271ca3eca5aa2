"""
What a command of Redis is between codecs: C{SET user:1 …} has the method C{SET} and the target C{/user:1}.

For who asks over another protocol, GET, PUT and DELETE are GET, SET and DEL of the key that is the path.
"""

from __future__ import annotations

from typing import Final
from urllib.parse import quote, unquote_to_bytes

from protogate.message import Request
from protogate.ordered.fault import refused

RESP: Final = "RESP"
"""C{protocol} of commands and replies."""
WORDS: Final = b"resp-words"
"""Field of a command: how many words it has.  The third is its content; of more, all but two are, as they came."""
TYPE: Final = b"resp-type"
"""Field of a reply: the byte that it began with."""
VERBS: Final = {b"GET": b"GET", b"PUT": b"SET", b"DELETE": b"DEL"}
BOUND: Final = frozenset(
    b"ASKING AUTH CLIENT DISCARD EXEC HELLO MONITOR MULTI PSUBSCRIBE PSYNC PUNSUBSCRIBE QUIT READONLY READWRITE "
    b"REPLCONF RESET SELECT SSUBSCRIBE SUBSCRIBE SUNSUBSCRIBE SYNC UNSUBSCRIBE UNWATCH WAIT WAITAOF WATCH".split()
)
"""Commands that change the connection they come by: those to an upstream are shared by all clients."""


def target_of(key: bytes) -> bytes:
    """One segment of a path, so that whatever a key holds, nobody takes part of it for something else."""
    return b"/" + quote(key, safe="!$&'()*+,=:@").encode()


def key_of(request: Request) -> bytes:
    """The key.  Rules have seen the path: with a second spelling of a key they would miss it."""
    path = request.target.partition(b"?")[0]
    key = unquote_to_bytes(path[1:])
    if path != target_of(key):
        raise refused("not how a key is spelled in a path")
    return key


def command(words: list[bytes], count: int) -> Request:
    """A command with so many words, from the first two."""
    name, key = words[0].upper(), b"".join(words[1:])
    request = Request(name, target_of(key), [(WORDS, b"%d" % count)], authority=b"resp")
    if name in BOUND:
        request.malformed = refused(f"{name.decode()} is about a connection, and this one is shared", 501)
    elif key in (b".", b".."):
        request.malformed = refused("a key of dots has no path")
    return request
