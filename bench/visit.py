"""
What L{traffic} asks for: one request of a random kind, when it is broken off, and what a complete answer may be.

Rules
- Each carries its number in its query, by which the gateway's record of it is found; garbage has none.
- One that the upstream breaks off, or that must not be sent again, may end in a 502; any other may not.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

LARGE: Final = b"z" * 200 * 1024
ABORTED: Final = 0.3
"""How many of all are broken off by the client."""
RESET: Final = 0.08
"""How many are by the upstream, of those that can be."""
GARBAGE: Final = (b"\x16\x03\x01\x02\x00\x01", b"GET\r\n\r\n", b"\r\n\r\n\r\n\0", b"GET / HTTP/9.9\r\nHost: a\r\n\r\n")


@dataclass(slots=True)
class Visit:
    """
    One request, and what became of it.

    @ivar abort: when to break off: in_head, head, in_body, answer, in_answer; or empty.
    @ivar rude: by a reset, not by a FIN.
    @ivar expected: statuses of a complete answer.
    @ivar fragile: the upstream will break off, so the answer may be incomplete.
    @ivar frames: what is said in a tunnel.
    """

    number: int
    kind: str
    head: bytes = b""
    body: bytes = b""
    expected: tuple[int, ...] = (200,)
    bodyless: bool = False
    fragile: bool = False
    slow: bool = False
    frames: list[bytes] = field(default_factory=list)
    abort: str = ""
    rude: bool = False
    answered: bool = False  # a byte of the answer came
    must: bool = False
    status: int = 0


def make(number: int, chance: random.Random) -> Visit:
    """A request of a random kind."""
    kind = chance.choices(list(KINDS), weights=list(WEIGHTS))[0]
    visit = Visit(number, kind)
    KINDS[kind](visit, chance)
    if chance.random() < ABORTED:
        points = ["in_head", "head", "head", "answer", "in_answer"] + (["in_body"] * 2 if len(visit.body) > 1 else [])
        visit.abort, visit.rude = chance.choice(points), chance.random() < 0.5
    return visit


def _head(visit: Visit, method: str, path: str, *fields: str, reset: str = "") -> None:
    query = f"?id={visit.number}" + (f"&reset={reset}" if reset else "")
    lines = [f"{method} {path}{query} HTTP/1.1", f"Host: h{visit.number % 50}.test", "User-Agent: traffic", *fields]
    visit.head = ("\r\n".join(lines) + "\r\n\r\n").encode()
    if reset:
        visit.fragile = True
        visit.expected = (200, 502)


def _reset(chance: random.Random, *points: str) -> str:
    return chance.choice(points) if chance.random() < RESET else ""


def _get(path: str, *, slow: bool = False) -> Callable[[Visit, random.Random], None]:
    def fill(visit: Visit, chance: random.Random) -> None:
        _head(visit, "GET", path, reset=_reset(chance, "head", "answer", "half"))
        visit.slow = slow

    return fill


def _headed(visit: Visit, chance: random.Random) -> None:
    visit.bodyless = True
    _head(visit, "HEAD", chance.choice(("/small", "/large", "/chunked")), reset=_reset(chance, "head", "answer"))


def _none(visit: Visit, chance: random.Random) -> None:
    _head(visit, "GET", "/none", reset=_reset(chance, "head"))
    visit.bodyless, visit.expected = True, (204, *visit.expected[1:])


def _post(size: int) -> Callable[[Visit, random.Random], None]:
    def fill(visit: Visit, chance: random.Random) -> None:
        body = LARGE[: chance.randrange(1, size)]
        _head(
            visit,
            "POST",
            "/small",
            f"Content-Length: {len(body)}",
            reset=_reset(chance, "head", "body", "answer", "half"),
        )
        # A connection that the upstream has just closed takes no request that must not be repeated.
        visit.body, visit.expected = body, (200, 502)

    return fill


def _expecting(visit: Visit, chance: random.Random) -> None:
    _head(visit, "POST", "/small", "Content-Length: 1000", "Expect: 100-continue")
    visit.body, visit.expected = LARGE[:1000], (200, 502)


def _chunks(visit: Visit, chance: random.Random) -> None:
    sizes = [chance.choice((1, 10, 1000, 20_000)) for _ in range(chance.randrange(1, 5))]
    _head(visit, "POST", "/small", "Transfer-Encoding: chunked", reset=_reset(chance, "head", "body", "answer", "half"))
    visit.body = b"".join(b"%x\r\n%b\r\n" % (size, LARGE[:size]) for size in sizes) + b"0\r\n\r\n"
    visit.expected = (200, 502)


def _lost(visit: Visit, chance: random.Random) -> None:
    _head(visit, "GET", "/nowhere/at/all")
    visit.expected = (404,)


def _malformed(visit: Visit, chance: random.Random) -> None:
    start = f"GET /small?id={visit.number} HTTP/1.1\r\n"
    rest = chance.choice(
        (
            "Host: a.test\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
            "Host : a.test\r\n\r\n",
            "X: y\r\n\r\n",
            "Host: a.test\r\nTransfer-Encoding: gzip\r\n\r\n",
            "Host: a.test\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
            f"Host: a.test\r\nX: {'y' * 9000}\r\n\r\n",
        )
    )
    visit.head, visit.expected = (start + rest).encode(), (400, 431, 501)


def _garbage(visit: Visit, chance: random.Random) -> None:
    visit.head, visit.expected = chance.choice(GARBAGE), (400, 408, 505)


def _websocket(visit: Visit, chance: random.Random) -> None:
    _head(
        visit, "GET", "/echo", "Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Version: 13",
        "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==",
    )  # fmt: skip
    visit.expected = (101,)
    visit.frames = [LARGE[: chance.choice((1, 125, 5000, 70_000))] for _ in range(chance.randrange(4))]
    visit.frames.append(chance.choice((b"", b"bye")))


KINDS: Final[dict[str, Callable[[Visit, random.Random], None]]] = {
    "get": _get("/small"),
    "large": _get("/large"),
    "chunked": _get("/chunked"),
    "tail": _get("/tail"),
    "late": _get("/late"),
    "slow": _get("/large", slow=True),
    "head": _headed,
    "none": _none,
    "post": _post(2000),
    "post large": _post(len(LARGE)),
    "post chunked": _chunks,
    "post expecting": _expecting,
    "404": _lost,
    "malformed": _malformed,
    "garbage": _garbage,
    "websocket": _websocket,
}
WEIGHTS: Final = (36, 5, 8, 2, 3, 2, 5, 3, 10, 4, 6, 2, 5, 3, 1, 5)
