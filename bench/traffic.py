"""
A load of mixed requests (L{visit}), of which many are broken off at a random point; it keeps account of each.

    python bench/traffic.py --port 8080 --requests 5000 --first 0 --result result.json [--users 48] [--seed 1]

Each request carries its number in its query.  The result tells, by number, whether the gateway must have a record of
it (C{1}: its head was sent to its end) or may have one (C{0}), and the status that came with a complete answer (C{0}:
there was none).  It also lists whatever no gateway may do: an answer that was not expected, one that never came, a
connection closed that had promised to stay.
"""

from __future__ import annotations

import argparse
import json
import random
from collections import Counter
from typing import Any, Final

from twisted.internet import reactor as installed
from twisted.internet.protocol import ClientFactory, Protocol

from visit import Visit, make

reactor: Any = installed
PATIENCE: Final = 40.0
"""Seconds within which every request must be over."""


class Call(Protocol):
    """A connection of one user; it serves visit after visit while the gateway lets it."""

    def __init__(self, user: User) -> None:
        self._user = user
        self._visit: Visit | None = None
        self._data = b""
        self._written = 0
        self._served = 0
        self._keep = False
        self._left = 0  # bytes of the body still to come
        self._framing = ""
        self._over = False
        self._echoed = 0
        self._clock: Any = None

    def connectionMade(self) -> None:
        self.transport.setTcpNoDelay(True)  # type: ignore[union-attr]
        self._user.connected(self)

    # -- asking

    def ask(self, visit: Visit) -> None:
        """Send it; the user is told when it is over."""
        self._visit, self._framing, self._over, self._written = visit, "", False, 0
        self._clock = reactor.callLater(PATIENCE, self._late)
        chance = self._user.chance
        if visit.abort == "in_head":
            self._write(visit.head[: chance.randrange(len(visit.head))])
            self._soon()
        elif visit.abort == "in_body":
            self._write(visit.head + visit.body[: chance.randrange(1, len(visit.body))])
            self._soon()
        elif visit.kind == "post expecting":
            self._write(visit.head)
            if visit.abort == "head":
                self._soon()
        else:
            self._write(visit.head + visit.body)
            if visit.abort == "head":
                self._soon()

    def _write(self, data: bytes) -> None:
        self._written += len(data)
        self.transport.write(data)  # type: ignore[union-attr]

    def _soon(self) -> None:
        delay = self._user.chance.choice((0.0, 0.001, 0.005, 0.03))
        reactor.callLater(delay, self._break, self._visit)

    def _sent(self) -> bool:
        """Whether the whole head is on its way."""
        transport: Any = self.transport
        unsent = len(transport.dataBuffer) - transport.offset + transport._tempDataLen
        return self._visit is not None and self._written - unsent >= len(self._visit.head)

    def _break(self, visit: Visit | None) -> None:
        """Break off, if that visit is still going on."""
        if visit is None or visit is not self._visit:
            return
        visit.must = visit.must or self._sent()
        if visit.rude:
            self.transport.abortConnection()  # type: ignore[union-attr]
        else:
            visit.must = visit.must or self._written >= len(visit.head)
            self.transport.loseConnection()  # type: ignore[union-attr]
        self._end(reusable=False)

    def _late(self) -> None:
        self._clock = None
        self._user.fault(self._visit, "it never ended")
        self.transport.abortConnection()  # type: ignore[union-attr]
        self._end(reusable=False)

    # -- being answered

    def dataReceived(self, data: bytes) -> None:
        visit = self._visit
        if visit is None:
            if not self._over:
                self._user.fault(None, f"bytes that nobody asked for: {data[:60]!r}")
            return
        visit.answered = visit.must = True
        if visit.abort == "answer":
            self._break(visit)
            return
        self._data += data
        while self._visit is visit and self._step(visit):
            pass
        if self._visit is visit and visit.abort == "in_answer" and self._user.chance.random() < 0.5:
            self._break(visit)
        elif self._visit is visit and visit.slow:
            self.transport.pauseProducing()  # type: ignore[union-attr]
            reactor.callLater(0.02, self._again)

    def _again(self) -> None:
        transport: Any = self.transport
        if transport.connected and not transport.disconnecting:
            transport.resumeProducing()

    def _step(self, visit: Visit) -> bool:
        """One element of the answer; returns whether there may be another one."""
        if not self._framing:
            return self._headed(visit)
        if self._framing == "tunnel":
            return self._talk(visit)
        if self._framing == "chunk" and not self._left:
            return self._chunk()
        used = min(self._left, len(self._data))
        self._data, self._left = self._data[used:], self._left - used
        if not self._left:
            if self._framing == "length":
                self._complete(visit)
            return self._framing == "chunk"
        return False

    def _headed(self, visit: Visit) -> bool:
        head, found, rest = self._data.partition(b"\r\n\r\n")
        if not found:
            return False
        self._data = rest
        line, *lines = head.split(b"\r\n")
        status = int(line.split(b" ")[1])
        if status == 100:
            self._write(visit.body)
            return True
        fields = dict(one.lower().split(b": ", 1) for one in lines)
        self._keep = b"close" not in fields.get(b"connection", b"")
        visit.status = status
        if status not in visit.expected:
            self._user.fault(visit, f"status {status}")
        if status == 101:
            self._framing, self._echoed = "tunnel", 0
            self._talk(visit)
            return bool(self._data)
        length = fields.get(b"content-length")
        if (visit.bodyless and visit.kind == "head") or status in {204, 304}:
            self._complete(visit)
        elif length is not None:
            self._framing, self._left = "length", int(length)
            if not self._left:
                self._complete(visit)
        elif b"transfer-encoding" in fields:
            self._framing, self._left = "chunk", 0
        else:
            self._framing, self._left = "close", 1 << 62
        return True

    def _chunk(self) -> bool:
        line, found, rest = self._data.partition(b"\r\n")
        if not found:
            return False
        if not line:  # behind a chunk
            self._data = rest
            return True
        size = int(line, 16)
        if size:
            self._data, self._left = rest, size
            return True
        if not rest.startswith(b"\r\n"):
            return False
        self._data = rest[2:]
        assert self._visit is not None
        self._complete(self._visit)
        return False

    def _talk(self, visit: Visit) -> bool:
        """Say the next thing when the last one has come back."""
        self._echoed -= len(self._data)
        self._data = b""
        if self._echoed > 0:
            return False
        if not visit.frames:
            return False  # we said bye, and wait for the end
        frame = visit.frames.pop(0)
        if frame:
            self._echoed = len(frame)
            self.transport.write(frame)  # type: ignore[union-attr]
        else:
            self._keep = False
            self._complete(visit)
        return False

    def _complete(self, visit: Visit) -> None:
        self._served += 1
        self._user.complete(visit)
        self._end(reusable=self._keep and not visit.abort)

    def connectionLost(self, reason: object = None) -> None:  # type: ignore[override]
        visit = self._visit
        if visit is None:
            if self._user.holds(self):
                self._user.fault(None, "the gateway closed a connection that had promised to stay")
                self._user.released(None)
            return
        tunnel = self._framing == "tunnel" and not visit.frames
        if tunnel or (self._framing == "close" and not visit.fragile):
            self._user.complete(visit)
        elif not visit.fragile:
            said = "in its answer" if visit.status else "without an answer"
            self._user.fault(visit, f"the connection was lost {said}; it had served {self._served} before")
            visit.must = visit.must or self._served == 0
        elif not visit.status:
            self._user.fault(visit, "no answer when the upstream reset")
        self._end(reusable=False, lost=True)

    def _end(self, reusable: bool, lost: bool = False) -> None:
        self._visit, self._over = None, not reusable
        clock, self._clock = self._clock, None
        if clock is not None:
            clock.cancel()
        if not reusable and not lost:
            self.transport.loseConnection()  # type: ignore[union-attr]
        self._user.released(self if reusable else None)


class User(ClientFactory[Call]):
    """Asks one thing after the other."""

    noisy = False

    def __init__(self, load: Load, chance: random.Random) -> None:
        self._load, self.chance = load, chance
        self._call: Call | None = None

    def begin(self) -> None:
        """Ask the next thing."""
        if not self._load.left():
            if self._call is not None:
                call, self._call = self._call, None
                call._over = True
                call.transport.loseConnection()  # type: ignore[union-attr]
            self._load.gone()
        elif self._call is None:
            reactor.connectTCP("127.0.0.1", self._load.port, self)
        else:
            self._call.ask(self._load.next(self.chance))

    def buildProtocol(self, addr: object) -> Call:
        return Call(self)

    def clientConnectionFailed(self, connector: Any, reason: Any) -> None:
        self.fault(None, f"no connection: {reason.getErrorMessage()}")
        reactor.callLater(0.1, self.begin)

    def connected(self, call: Call) -> None:
        """A new connection."""
        self._call = call
        if self._load.left():
            call.ask(self._load.next(self.chance))
        else:
            self.begin()

    def holds(self, call: Call) -> bool:
        """Whether that connection is to be used again."""
        return self._call is call

    def released(self, call: Call | None) -> None:
        """A visit is over; None = so is its connection."""
        self._call = call
        reactor.callLater(0, self.begin)

    def complete(self, visit: Visit) -> None:
        """The whole answer came."""
        self._load.complete.add(visit.number)

    def fault(self, visit: Visit | None, text: str) -> None:
        """Something that must not be."""
        self._load.fault(f"{visit.kind} {visit.number} (abort {visit.abort!r}): {text}" if visit else text)


class Load:
    """All users."""

    def __init__(self, port: int, first: int, requests: int, users: int, seed: int) -> None:
        self.port, self._next, self._end = port, first, first + requests
        self._first = first
        self.visits: list[Visit] = []
        self.complete: set[int] = set()
        self._faults: Counter[str] = Counter()
        self._told: list[str] = []
        self._users = [User(self, random.Random(seed * 1000 + number)) for number in range(users)]
        self._active = users

    def begin(self) -> None:
        """Start them."""
        for user in self._users:
            user.begin()

    def left(self) -> bool:
        """Whether there is anything left to ask."""
        return self._next < self._end

    def next(self, chance: random.Random) -> Visit:
        """The next request."""
        visit = make(self._next, chance)
        self._next += 1
        self.visits.append(visit)
        return visit

    def fault(self, text: str) -> None:
        """Keep some, count all."""
        self._faults["faults"] += 1
        if len(self._told) < 20:
            self._told.append(text)

    def gone(self) -> None:
        """A user has nothing left to do."""
        self._active -= 1
        if not self._active:
            reactor.callLater(0.2, reactor.stop)

    def result(self) -> dict[str, Any]:
        """See the docstring of this module."""
        return {
            "first": self._first,
            "must": "".join("1" if visit.must else "0" for visit in self.visits),
            "status": [visit.status if visit.number in self.complete else 0 for visit in self.visits],
            "nameless": [visit.number for visit in self.visits if visit.kind == "garbage"],
            "kinds": dict(Counter(visit.kind for visit in self.visits)),
            "aborted": sum(bool(visit.abort) for visit in self.visits),
            "resets": sum(visit.fragile for visit in self.visits),
            "faults": sum(self._faults.values()),
            "told": self._told,
        }


def main() -> None:
    """Run it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--port", type=int, required=True, help="of the gateway, on 127.0.0.1")
    parser.add_argument("--requests", type=int, required=True)
    parser.add_argument("--first", type=int, default=0, help="number of the first one")
    parser.add_argument("--users", type=int, default=48)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--result", required=True, help="where to write")
    options = parser.parse_args()
    load = Load(options.port, options.first, options.requests, options.users, options.seed)
    reactor.callWhenRunning(load.begin)
    reactor.run()
    with open(options.result, "w", encoding="utf-8") as file:
        json.dump(load.result(), file)


if __name__ == "__main__":
    main()
