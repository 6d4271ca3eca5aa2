"""
A client that keeps account: each request it sends is answered or lost, each connection closed well or refused.

It asks as fast as it can, on a thread of its own, and makes a new connection after a few requests, so that accepting is
tried all the time, too.
"""

from __future__ import annotations

import re
import select
import socket
import threading
import time
from collections import Counter, deque
from dataclasses import dataclass, field
from typing import Any, Final

from candidates import ANSWER, SMALL

EACH: Final = 50
"""Requests after which a connection of ours is closed and another one made."""
PATIENCE: Final = 30.0
"""Seconds until a request, or a connection, is given up."""
RETRY: Final = 0.02
"""Seconds before a connection that was refused is tried again."""


@dataclass
class Account:
    """
    What became of all that was asked.

    @ivar asked: requests that were sent.
    @ivar answered: those with a whole answer of status 200.
    @ivar lost: those without one, by what happened instead.
    @ivar refused: connections that could not be made.
    @ivar closed: connections that the gateway closed while no request was on them, or said that it would.
    @ivar worst: seconds, of the slowest answer.
    """

    asked: int = 0
    answered: int = 0
    lost: Counter[str] = field(default_factory=Counter)
    refused: int = 0
    closed: int = 0
    worst: float = 0.0

    def faults(self) -> list[str]:
        """What is wrong with the account itself."""
        missing = self.asked - self.answered - self.lost.total()
        return [f"{missing} of {self.asked} requests are neither answered nor lost"] if missing else []


class Line:
    """
    One connection after the other, one request after the other.

    @ivar begun: when the request that is under way was sent, or the connection was begun; 0.0 = neither.
    """

    def __init__(self, client: Client) -> None:
        self._client = client
        self.socket: Any = None
        self.begun = 0.0
        self._connected = self._asking = False
        self._left = 0
        self._data = b""

    def connect(self) -> None:
        """Begin a connection."""
        self.socket = socket.socket()
        self.socket.setblocking(False)
        self._connected = self._asking = False
        self._left, self._data, self.begun = EACH, b"", time.monotonic()
        self.socket.connect_ex(("127.0.0.1", self._client.port))
        self._client.watch(self, select.EPOLLOUT)

    def ready(self) -> None:
        """The socket can do what it could not."""
        if not self._connected:
            if self.socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
                self._client.account.refused += 1
                self.drop(later=True)
                return
            self._connected = True
            self._client.change(self, select.EPOLLIN)
            self._ask()
        else:
            self._read()

    def _ask(self) -> None:
        self._left -= 1
        self._data, self._asking, self.begun = b"", True, time.monotonic()
        self._client.account.asked += 1
        try:
            self.socket.send(self._client.request)
        except OSError as error:
            self._lose(f"{type(error).__name__} when it was sent")

    def _read(self) -> None:
        try:
            data = self.socket.recv(65536)
        except BlockingIOError:
            return
        except OSError as error:
            data, why = b"", f"{type(error).__name__} after {len(self._data)} bytes"
        else:
            why = f"closed after {len(self._data)} bytes"
        if not data:
            if self._asking:
                self._lose(re.sub(r" [1-9]\d* bytes", " a part of the answer", why))
            else:
                self._client.account.closed += 1
                self.drop()
            return
        self._data += data
        head, found, body = self._data.partition(b"\r\n\r\n")
        if found and (body == ANSWER.encode() or not head.startswith(b"HTTP/1.1 200 ")):
            self._answered(head)

    def _answered(self, head: bytes) -> None:
        account = self._client.account
        if not head.startswith(b"HTTP/1.1 200 "):
            self._lose(f"status {head[9:12].decode('latin-1')}")
            return
        account.answered += 1
        account.worst = max(account.worst, time.monotonic() - self.begun)
        self._asking = False
        if b"\r\nconnection: close" in head.lower():
            account.closed += 1
            self.drop()
        elif self._client.over or not self._left:
            self.drop()
        else:
            self._ask()

    def late(self, now: float) -> None:
        """Give up what takes too long."""
        if self.socket is not None and now - self.begun > PATIENCE:
            if self._asking:
                self._lose("no answer in time")
            else:
                self._client.account.refused += 1
                self.drop(later=True)

    def _lose(self, why: str) -> None:
        self._client.account.lost[why] += 1
        self.drop()

    def drop(self, *, later: bool = False) -> None:
        """This connection is over; on with another one."""
        self._client.forget(self)
        self.socket.close()
        self.socket, self._asking = None, False
        if not self._client.over:
            self._client.again(self, RETRY if later else 0.0)


class Client:
    """
    Our own load, on a thread.

    @ivar over: no new request is to be sent.
    """

    def __init__(self, port: int, connections: int) -> None:
        self.port, self.over = port, False
        self.account = Account()
        self.request = f"GET {SMALL} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nUser-Agent: releases\r\n\r\n".encode()
        self._poll = select.epoll()
        self._lines: dict[int, Line] = {}
        self._waiting: deque[tuple[float, Line]] = deque((0.0, Line(self)) for _ in range(connections))
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def watch(self, line: Line, events: int) -> None:
        """Tell the line when its socket is ready."""
        self._lines[line.socket.fileno()] = line
        self._poll.register(line.socket, events)

    def change(self, line: Line, events: int) -> None:
        """For other events."""
        self._poll.modify(line.socket, events)

    def forget(self, line: Line) -> None:
        """Its socket is about to be closed."""
        del self._lines[line.socket.fileno()]
        self._poll.unregister(line.socket)

    def again(self, line: Line, delay: float) -> None:
        """Let it connect, after so many seconds."""
        self._waiting.append((time.monotonic() + delay, line))

    def _run(self) -> None:
        looked = 0.0
        while self._lines or not self.over:
            now = time.monotonic()
            for _ in range(len(self._waiting)):
                due, line = self._waiting.popleft()
                if self.over:
                    continue
                if due > now:
                    self._waiting.append((due, line))
                else:
                    line.connect()
            for descriptor, _ in self._poll.poll(RETRY):
                if descriptor in self._lines:
                    self._lines[descriptor].ready()
            if now - looked > 0.5:
                looked = now
                for line in list(self._lines.values()):
                    line.late(now)
        self._poll.close()

    def stop(self) -> Account:
        """Ask no more; what is under way is waited for."""
        self.over = True
        self._thread.join(PATIENCE + 10)
        if self._thread.is_alive():
            raise SystemExit("the client does not end")
        return self.account
