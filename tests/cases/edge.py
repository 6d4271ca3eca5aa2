"""What the whole-gateway cases share: a small configuration, answers taken apart, modules that do what a test says."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

from twisted.logger import LogEvent, formatEvent, globalLogPublisher
from zope.interface import implementer

from protogate import plugins
from protogate.governance.stages import STAGES
from protogate.interfaces import IModule, IModuleFactory
from protogate.testing.gateway import MemoryGateway
from protogate.testing.upstream import Expect, Raw
from protogate.wheel import Wheel

HOST, PORT = "192.0.2.7", 80
GET = b"GET %b HTTP/1.1\r\nHost: a.test\r\n\r\n"
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
EMPTY = b"HTTP/1.1 204 No Content\r\n\r\n"
SCRIPT = [Expect(b"\r\n\r\n"), OK]
EVERYBODY = ["0.0.0.0/0", "::/0"]


def to(*targets: str | Mapping[str, Any], **entry: Any) -> list[dict[str, Any]]:
    """The C{routes} of a rule that leads to these upstreams, or targets."""
    return [{"targets": [{"upstream": each} if isinstance(each, str) else dict(each) for each in targets], **entry}]


def rule(value: str = "/", matcher: str = "prefix", **other: Any) -> dict[str, Any]:
    """A rule, to C{origin} where nothing else is said."""
    return {"value": value, "matcherType": matcher, "name": value, "routes": to("origin"), **other}


def module(name: str, stage: str = "", /, **params: Any) -> dict[str, Any]:
    """A module; C{condition_} and the like are settings of the binding, not parameters."""
    binding = {key[:-1]: params.pop(key) for key in list(params) if key.endswith("_")}
    return {"name": name, "stage": stage, "actionParam": params, **binding}


def config(
    routes: Sequence[Mapping[str, Any]] | None = None,
    modules: Sequence[Mapping[str, Any]] = (),
    upstreams: Sequence[Mapping[str, Any]] = (),
    origin: Mapping[str, Any] | None = None,
    **gateway: Any,
) -> dict[str, Any]:
    """One listener C{web}, one upstream C{origin}, one rule for everything."""
    first = {"name": "origin", "endpoints": [{"url": f"http://{HOST}:{PORT}"}], **(origin or {})}
    return {
        "gateway": {"name": "edge-1", "watch": False, **gateway},
        "listeners": [{"name": "web", "address": "127.0.0.1:8080"}],
        "upstreams": [first, *upstreams],
        "routes": [rule()] if routes is None else list(routes),
        "modules": list(modules),
    }


@dataclass(frozen=True)
class Answer:
    """One response as a client reads it."""

    status: int
    headers: list[tuple[str, str]]
    body: bytes
    whole: bool
    """False when its framing promised more than came."""

    def __getitem__(self, name: str) -> str:
        return ", ".join(value for key, value in self.headers if key == name)


_FINAL = re.compile(rb"HTTP/1\.1 (\d{3}) [^\r\n]*\r\n")


def answers(data: bytes, *methods: str, closed: bool = False) -> list[Answer]:
    """
    Every response in C{data}; to GET where no methods are given.

    @param closed: the connection ended behind it, which is an end for a body without any other.
    """
    found = []
    while data:
        head, mark, data = data.partition(b"\r\n\r\n")
        assert mark, f"no whole head: {head!r}"
        match = _FINAL.match(head + b"\r\n")
        assert match, f"no status line: {head!r}"
        status = int(match[1])
        pairs = [line.split(b": ", 1) for line in head.split(b"\r\n")[1:]]
        headers = [(name.decode(), value.decode("latin-1")) for name, value in pairs]
        got = dict(headers)
        method = methods[len(found)] if len(found) < len(methods) else "GET"
        body, whole = b"", True
        if method == "HEAD" or status < 200 or status in (204, 304):
            pass
        elif "content-length" in got:
            size = int(got["content-length"])
            body, data = data[:size], data[size:]
            whole = len(body) == size
        elif got.get("transfer-encoding") == "chunked":
            body, data, whole = _chunks(data)
        else:
            body, data, whole = data, b"", closed
        found.append(Answer(status, headers, body, whole))
    return found


def _chunks(data: bytes) -> tuple[bytes, bytes, bool]:
    body = b""
    while True:
        size, mark, rest = data.partition(b"\r\n")
        if not mark:
            return body, b"", False
        length = int(size, 16)
        if not length:
            assert rest.startswith(b"\r\n"), "trailers are no part of these tests"
            return body, rest[2:], True
        body += rest[:length]
        if len(rest) < length + 2:
            return body, b"", False
        data = rest[length + 2 :]


def answer(data: bytes, method: str = "GET", closed: bool = False) -> Answer:
    """The one response in C{data}."""
    (found,) = answers(data, method, closed=closed)
    return found


def fetch(gateway: MemoryGateway, target: bytes | str = b"/", *fields: bytes, **where: Any) -> Answer:
    """GET, on a connection of its own."""
    raw = target.encode("latin-1") if isinstance(target, str) else target
    client = gateway.client(**where)
    client.send(b"\r\n".join([b"GET %b HTTP/1.1" % raw, b"Host: a.test", *fields, b"", b""]))
    gateway.run()
    data = client.received
    client.close()
    gateway.run()
    return answer(data, closed=True)


def heads(raw: Raw) -> list[bytes]:
    """The heads of all requests that an upstream's connection got; of requests without bodies."""
    return [part for part in raw.received.split(b"\r\n\r\n") if part]


def fields(head: bytes) -> dict[str, list[str]]:
    """The field lines of one head, by lower-case name."""
    out: dict[str, list[str]] = {}
    for line in head.split(b"\r\n")[1:]:
        if not line:
            break
        name, _, value = line.partition(b": ")
        out.setdefault(name.decode().lower(), []).append(value.decode("latin-1"))
    return out


def counted(gateway: MemoryGateway) -> dict[str, int]:
    """What the gateway counted so far, without what is of no interest here."""
    dull = ("connections_accepted", "exchanges", "dns_query")
    counts = gateway.service.counters.counts
    return {name: n for name, n in counts.items() if name not in dull and not name.startswith("failed_")}


def armed(wheel: Wheel) -> int:
    """How many deadlines a wheel has."""
    return sum(1 for slot in wheel._slots.values() for timer in slot if timer.active)


def known(wheel: Wheel) -> int:
    """How many timers a wheel remembers, armed or not."""
    return sum(len(slot) for slot in wheel._slots.values())


# -- modules


class Doing:
    """A module that calls C{function(exchange)}."""

    def __init__(self, function: Callable[[Any], Any]) -> None:
        self.process = function


implementer(IModule)(Doing)


@implementer(IModuleFactory)
class Factory:
    """Makes L{Doing}, for any stage."""

    guards = False
    stages = tuple(STAGES)

    def __init__(self, name: str, function: Callable[[Any], Any]) -> None:
        self.name, self._function = name, function

    def build(self, params: Mapping[str, object]) -> Doing:
        return Doing(self._function)


@contextmanager
def installed(**functions: Callable[[Any], Any]) -> Iterator[None]:
    """For as long as this lasts there are modules of these names."""

    def find(interface: Any, name: str) -> Any:
        if interface is IModuleFactory and name in functions:
            return Factory(name, functions[name])
        return plugins.find(interface, name)

    with patch("protogate.build.find", find):
        yield


@contextmanager
def logged() -> Iterator[list[str]]:
    """The lines that are logged meanwhile."""
    lines: list[str] = []

    def observe(event: LogEvent) -> None:
        lines.append(formatEvent(event))

    globalLogPublisher.addObserver(observe)
    try:
        yield lines
    finally:
        globalLogPublisher.removeObserver(observe)
