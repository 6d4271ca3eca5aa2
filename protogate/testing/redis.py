"""
A Redis without Redis, for a L{protogate.testing.reactor.MemoryReactor}: it speaks the real protocol, so that the real
client is at the other end.

    server = RedisServer(reactor.seconds, {GCRA: gcra})
    reactor.listenTCP(6379, server, interface="192.0.2.9")
    # afterwards: server.asked, server.values

It knows a few commands on strings and numbers, and scripts by what they are to do, written in Python.  That such a
function does what its Lua does is for a test with a real Redis to show.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import ceil, floor
from typing import Any

import hiredis
from twisted.internet.interfaces import IAddress
from twisted.internet.protocol import Factory, Protocol, connectionDone
from twisted.python.failure import Failure

from protogate.governance.redis import Script
from protogate.testing.transport import Wire

Twin = Callable[["RedisServer", list[bytes], list[bytes]], Any]
"""C{twin(server, keys, args)}: what the script answers; changes C{server.values}."""


class Refusal(Exception):
    """Answered as an error."""


class RedisServer(Factory):
    """
    @ivar now: seconds; what C{TIME} is made of.
    @ivar values: by key; each with the time when it goes away, or None.
    @ivar asked: every command, as it came.
    @ivar password: that C{AUTH} must say; empty = none.
    @ivar known: the scripts that it has seen, by their SHA-1.
    @ivar silent: it reads, and answers nothing, until C{speak()}.
    @ivar refusal: answered to everything that is not about the connection; empty = it is not.
    """

    noisy = False

    def __init__(self, now: Callable[[], float], scripts: Mapping[Script, Twin] | None = None) -> None:
        self.now = now
        self.values: dict[bytes, tuple[Any, float | None]] = {}
        self.asked: list[list[bytes]] = []
        self.password = b""
        self.known: set[str] = set()
        self.silent = False
        self.refusal = ""
        self.connections: list[_Connection] = []
        self._twins = {script.sha: (script, twin) for script, twin in (scripts or {}).items()}
        self._owed: list[tuple[_Connection, list[bytes]]] = []

    def buildProtocol(self, addr: IAddress | None) -> Protocol:
        """Twisted."""
        return _Connection(self)

    # -- for tests

    def speak(self) -> None:
        """Answer what is owed, and what comes from now on."""
        self.silent = False
        owed, self._owed = self._owed, []
        for connection, command in owed:
            connection.answer(command)

    def drop(self) -> None:
        """Break all connections off."""
        self._owed.clear()
        for connection in list(self.connections):
            connection.transport.abortConnection()

    def get(self, key: bytes) -> Any:
        """A value; None when it is not there, or not any more."""
        value, until = self.values.get(key, (None, None))
        if until is not None and until <= self.now():
            del self.values[key]
            return None
        return value

    def put(self, key: bytes, value: Any, seconds: float | None = None) -> None:
        """Set a value, for so long."""
        self.values[key] = (value, None if seconds is None else self.now() + seconds)

    # -- commands

    def take(self, connection: _Connection, command: list[bytes]) -> None:
        """One command came."""
        self.asked.append(command)
        if self.silent:
            self._owed.append((connection, command))
        else:
            connection.answer(command)

    def do(self, connection: _Connection, command: list[bytes]) -> Any:
        """What is to be answered."""
        name, *rest = command
        name = name.upper()
        if name == b"AUTH":
            if not self.password or rest[-1] != self.password:
                raise Refusal("WRONGPASS invalid username-password pair or user is disabled.")
            connection.trusted = True
            return "OK"
        if self.password and not connection.trusted:
            raise Refusal("NOAUTH Authentication required.")
        if name == b"SELECT":
            return "OK"
        if self.refusal:
            raise Refusal(self.refusal)
        return self._run(name, *rest) if name.startswith(b"EVAL") else self._value(name, rest)

    def _value(self, name: bytes, rest: list[bytes]) -> Any:
        if name == b"PING":
            return "PONG"
        if name == b"GET":
            return self.get(rest[0])
        if name == b"SET":
            return self._set(*rest)
        if name == b"HGETALL":
            return [word for pair in (self.get(rest[0]) or {}).items() for word in pair]
        raise Refusal(f"ERR unknown command '{name.decode()}'")

    def _set(self, key: bytes, value: bytes, *options: bytes) -> str | None:
        if b"NX" in options and self.get(key) is not None:
            return None
        self.put(key, value, int(options[options.index(b"PX") + 1]) / 1000 if b"PX" in options else None)
        return "OK"

    def _run(self, name: bytes, what: bytes, count: bytes, *rest: bytes) -> Any:
        sha = what.decode() if name == b"EVALSHA" else Script("", what.decode()).sha
        if name == b"EVALSHA" and sha not in self.known:
            raise Refusal("NOSCRIPT No matching script. Please use EVAL.")
        if sha not in self._twins:
            raise Refusal("ERR this script has no twin")
        self.known.add(sha)
        keys = int(count)
        return self._twins[sha][1](self, list(rest[:keys]), list(rest[keys:]))


class _Connection(Protocol):
    """One client."""

    transport: Wire

    def __init__(self, server: RedisServer) -> None:
        self._server, self.trusted = server, False
        self._reader: Any = hiredis.Reader()

    def connectionMade(self) -> None:
        """Twisted."""
        self._server.connections.append(self)

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        """Twisted."""
        self._server.connections.remove(self)

    def dataReceived(self, data: bytes) -> None:
        """Twisted."""
        self._reader.feed(data)
        while (command := self._reader.gets()) is not False:
            self._server.take(self, command)

    def answer(self, command: list[bytes]) -> None:
        """Answer it."""
        try:
            said = encoded(self._server.do(self, command))
        except Refusal as refusal:
            said = f"-{refusal}\r\n".encode()
        self.transport.write(said)


def encoded(value: Any) -> bytes:
    """RESP2: C{str} is a simple string, C{bytes} a bulk string."""
    if value is None:
        return b"$-1\r\n"
    if isinstance(value, int):
        return b":%d\r\n" % value
    if isinstance(value, str):
        return f"+{value}\r\n".encode()
    if isinstance(value, bytes):
        return b"$%d\r\n%b\r\n" % (len(value), value)
    return b"*%d\r\n" % len(value) + b"".join(encoded(each) for each in value)


def gcra(server: RedisServer, keys: list[bytes], args: list[bytes]) -> list[int]:
    """Does what L{protogate.governance.gcrascript.GCRA} does."""
    each, burst = float(args[0]), float(args[1])
    wanted, least = int(args[2]), min(int(args[3]), burst)
    now = server.now() * 1e6
    kept = server.get(keys[0])
    used = 0.0 if kept is None else min(max(kept[0] - now, 0.0) / kept[1], burst)
    left = burst - used
    given = min(wanted, floor(left + 0.0001))
    if given < least:
        return [0, ceil((least - left) * each), floor(left)]
    left = max(left - given, 0.0)
    ahead = (burst - left) * each
    server.put(keys[0], (now + ahead, each), (ceil(ahead / 1000) + 1000) / 1000)
    return [given, ceil((1 - left % 1) * each) if given < wanted else 0, floor(left)]


def quota(server: RedisServer, keys: list[bytes], args: list[bytes]) -> list[int]:
    """Does what L{protogate.governance.quotascript.QUOTA} does."""
    limit, until, wanted, least = (int(arg) for arg in args)
    used = server.get(keys[0]) or 0
    left = max(limit - used, 0)
    if wanted < 0:
        given = -min(-wanted, used)
    else:
        given = min(wanted, left)
        given = 0 if given < least else given
    if given:
        server.values[keys[0]] = (used + given, float(until))
    left = max(left - given, 0)
    return [given, 0 if left else 1_000_000, left]
