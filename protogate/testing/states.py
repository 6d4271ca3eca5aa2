"""
The states a connection can be in, and the ways in which it can end: each is tried in each.

A state is a function that takes a fresh L{Pair} there, and returns what is then being given and taken.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Final

from twisted.internet.defer import Deferred

from protogate.message import Request, Response
from protogate.testing.bodies import Giver, Taker
from protogate.testing.cell import Pair, ok
from protogate.testing.transport import ALL

Flow = tuple[list[Giver], list[Taker]]
Reach = Callable[[Pair], Flow]

BLOCK: Final = bytes(range(256)) * 64
ENDLESS: Final = 1 << 39
"""Length of a body that does not end, where it must have one."""


def _never(request: Request) -> Deferred[Response]:
    return Deferred()


def fresh(p: Pair) -> Flow:
    """Nothing was asked yet."""
    return [], []


def used(p: Pair) -> Flow:
    """One exchange is over."""
    p.app.answer = ok
    p.ask()
    p.run()
    return [], []


def asked(p: Pair) -> Flow:
    """The request is written, but did not leave."""
    p.app.answer = _never
    p.ask()
    return [], []


def half_sent(p: Pair) -> Flow:
    """The server has part of the head."""
    asked(p)
    p.net.most = 5
    p.run(1)
    p.net.most = ALL
    return [], []


def waiting(p: Pair) -> Flow:
    """The service works."""
    asked(p)
    p.run()
    return [], []


def uploading(p: Pair) -> Flow:
    """The service reads."""
    givers, _ = unread_upload(p)
    return givers, [Taker(p.app.requests[0].body)]


def unread_upload(p: Pair) -> Flow:
    """The service does not care for the body."""
    p.app.answer = _never
    giver = Giver([b"some"], 99, close=False)
    p.ask(b"PUT", giver.body)
    p.run()
    return [giver], []


def stuck_upload(p: Pair) -> Flow:
    """The service has paused a body that does not end."""
    p.app.answer = _never
    giver = Giver(itertools.repeat(BLOCK), p.length(ENDLESS))
    p.ask(b"PUT", giver.body)
    p.run()
    taker = Taker(p.app.requests[0].body, 1)
    p.run()
    return [giver], [taker]


def answered(p: Pair) -> Flow:
    """The client reads."""
    giver = Giver([b"some"], p.length(99), close=False)
    p.app.answer = lambda request: Response(200, [], giver.body)
    p.ask()
    p.run()
    return [giver], [Taker(p.result[0].body)]


def unread_answer(p: Pair) -> Flow:
    """The client does not care for a body that does not end."""
    giver = Giver(itertools.repeat(BLOCK), p.length(ENDLESS))
    p.app.answer = lambda request: Response(200, [], giver.body)
    p.ask()
    p.run()
    return [giver], []


def stuck_answer(p: Pair) -> Flow:
    """The client has paused it."""
    givers, _ = unread_answer(p)
    taker = Taker(p.result[0].body, 1)
    p.run()
    return givers, [taker]


def both_ways(p: Pair) -> Flow:
    """Answered before the request is complete."""
    up, down = Giver([b"up"], p.length(99), close=False), Giver([b"down"], p.length(99), close=False)
    p.app.answer = lambda request: Response(200, [], down.body)
    p.ask(b"PUT", up.body)
    p.run()
    return [up, down], [Taker(p.app.requests[0].body), Taker(p.result[0].body)]


def tunnel(p: Pair) -> Flow:
    """A tunnel, in use."""
    up, down = Giver([b"up"], close=False), Giver([b"down"], close=False)
    p.app.answer = lambda request: Response(101, [], down.body)
    p.ask(b"GET", up.body, upgrade=b"websocket")
    p.run()
    return [up, down], [Taker(p.app.requests[0].body), Taker(p.result[0].body)]


STATES: Final[dict[str, Reach]] = {
    state.__name__: state
    for state in (
        fresh,
        used,
        asked,
        half_sent,
        waiting,
        uploading,
        unread_upload,
        stuck_upload,
        answered,
        unread_answer,
        stuck_answer,
        both_ways,
        tunnel,
    )
}

WAYS: Final[dict[str, Callable[[Pair], None]]] = {
    "the client aborts": lambda p: p.client.abort(),
    "the server aborts": lambda p: p.server.abort(),
    "the network breaks": lambda p: p.link.reset(),
    "the client closes": lambda p: p.client.transport.loseConnection(),
    "the server closes": lambda p: p.server.transport.loseConnection(),
    "the client loses it": lambda p: p.link.cut(0),
    "the server loses it": lambda p: p.link.cut(1),
}
"""How a connection may end before its time."""
