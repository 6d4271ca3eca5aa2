"""protogate_http.options2: what each option of HTTP/2 does on a connection, frame by frame, with either engine."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from h2ends import Site, Wired, quiet
from twisted.internet.task import Clock

from h2frames import (
    CONTINUATION,
    EXTENDED,
    PREFACE,
    STREAMS,
    WINDOW,
    continuation,
    data,
    fields,
    headers,
    ping,
    priority,
    req,
    request,
    res,
    rst,
    settings,
)
from h2peer import Peer
from protogate.config.model import Bytes, Seconds
from protogate.context import Context, Limits, Timeouts
from protogate.errors import ConfigError
from protogate.message import Request
from protogate.testing import Link, Net
from protogate.testing.reactor import START
from protogate.wheel import Wheel
from protogate_http import http2
from protogate_http.engine2 import ENGINES
from protogate_http.http2 import Http2
from protogate_http.options2 import Options


class Told:
    """One end that is told something, and a peer of raw frames."""

    def __init__(self, options: Options, client: bool = False) -> None:
        """
        @param client: whether the end that is looked at is the client.
        """
        self.clock, self.net, self.counted = Clock(), Net(), list[str]()
        self.clock.advance(START)
        context = Context(Wheel(self.clock), Limits(), Timeouts(response_head=0), self.counted.append)
        codec = Http2().configure(options)
        self.peer, self.site = Peer(not client), Site()
        self.end: Any = codec.client(lambda end: None, context) if client else codec.server(self.site, context)
        wired = Wired(self.peer, (b"" if client else PREFACE) + settings())
        self.net.add(Link(self.end, wired) if client else Link(wired, self.end))
        self.quiet()

    def quiet(self) -> None:
        """Let everything happen that waits for no time."""
        quiet(self.net, self.clock)

    def give(self, *items: bytes) -> Told:
        """Send."""
        for item in items:
            self.peer.send(item)
        self.quiet()
        return self

    def advance(self, seconds: float) -> None:
        """Let time pass."""
        for _ in range(round(seconds * 10)):
            self.clock.advance(0.1)
            self.quiet()

    def finish(self) -> None:
        """The peer saw no fault, and nothing is left."""
        self.end.abort()
        self.quiet()
        assert self.peer.faults == []


Make = Callable[..., Told]


@pytest.fixture(params=["ngh2", "h2"])
def made(request: pytest.FixtureRequest) -> Iterator[Make]:
    """C{made(client=False, **options)}."""
    if request.param not in ENGINES:
        pytest.skip("not installed")
    ends: list[Told] = []

    def make(client: bool = False, **options: Any) -> Told:
        ends.append(Told(Options(engine=request.param, **options), client))
        return ends[-1]

    yield make
    for end in ends:
        end.finish()


def test_streams_are_said_and_one_more_is_refused(made: Make) -> None:
    end = made(streams=2)
    assert end.peer.settings[STREAMS] == 2
    end.give(*[req(number, b"/hold") for number in (1, 3, 5)])
    assert [end.peer.seen(number) for number in (1, 3, 5)] == ["open", "open", "reset REFUSED_STREAM"]


def test_an_upstream_is_asked_no_more_than_that_at_once(made: Make) -> None:
    end = made(client=True, streams=2)
    assert end.end.capacity == 2
    asked = [end.end.handle(Request(b"GET", b"/", authority=b"a.test")) for _ in range(2)]
    assert end.end.capacity == 0
    for each in asked:
        each.addErrback(lambda failure: None)


def test_a_window_is_said_and_given_back_in_halves(made: Make) -> None:
    end = made(window=Bytes(256 << 10))
    assert end.peer.settings[WINDOW] == 256 << 10
    end.give(req(1, b"/sink", b"POST", end=False))
    for _ in range(15):
        end.give(data(1, bytes(16000)))
    assert end.peer.credit[1] >= 128 << 10
    end.give(data(1, bytes(16000), end=True))
    assert end.peer.seen(1) == "answer 200"
    assert end.peer.messages[1].content == b"256000"


@pytest.mark.parametrize(
    ("options", "total"),
    [
        ({}, 128 * 65535),
        ({"streams": 10, "window": Bytes(1 << 20)}, 10 << 20),
        ({"streams": 1, "window": Bytes(16 << 10)}, 65535),
        ({"connection_window": Bytes(1 << 20)}, 1 << 20),
        ({"connection_window": Bytes(64 << 10), "window": Bytes(1 << 20)}, 1 << 20),
    ],
)
def test_a_connection_has_a_window_for_each_stream_or_what_it_is_told(
    made: Make, options: dict[str, Any], total: int
) -> None:
    assert made(**options).peer.credit[0] == total - 65535


def test_many_uploads_that_are_owed_a_little_never_use_up_the_connection(made: Make) -> None:
    """Each has sent less than half a window, and all together many times what the connection may hold."""
    end = made(streams=128, connection_window=Bytes(64 << 10))
    sent = 0
    for number in range(1, 257, 2):
        end.give(req(number, b"/sink", b"POST", end=False))
        end.give(data(number, bytes(15000)))
        sent += 15000
        assert 65535 + end.peer.credit[0] - sent >= 16384, f"stream {number}: the window is used up"
    assert not end.peer.closed
    for number in range(1, 257, 2):
        end.give(data(number, b"", end=True))
        assert end.peer.messages[number].content == b"15000"


FLOODS = {
    "reset_flood": ("resets", lambda n: req(2 * n + 1, b"/hold") + rst(2 * n + 1)),
    "ping_flood": ("controls", lambda n: ping()),
    "settings_flood": ("controls", lambda n: settings()),
    "priority_flood": ("controls", lambda n: priority(1001)),
    "empty_data_flood": ("empty_frames", lambda n: data(1)),
}


@pytest.mark.parametrize("event", FLOODS)
def test_so_many_cheap_frames_are_taken_and_one_more_is_not(made: Make, event: str) -> None:
    option, frame = FLOODS[event]
    end = made(**{option: 20})
    before = 0
    if event == "empty_data_flood":
        end.give(req(1, b"/sink", b"POST", end=False))
    if event == "settings_flood":
        before = 1  # that of the beginning
    end.give(*[frame(n) for n in range(20 - before)])
    assert not end.peer.goaways
    end.give(frame(21))
    assert end.peer.seen(1) == "closed ENHANCE_YOUR_CALM"
    assert end.counted.count(event) == 1


def test_a_minute_later_as_many_may_come_again(made: Make) -> None:
    end = made(controls=20)
    end.give(*[ping()] * 20)
    end.advance(61)
    end.give(*[ping()] * 20)
    assert not end.peer.goaways


def test_so_many_continuations_are_taken_and_one_more_is_not(made: Make) -> None:
    block = fields(request(b"/"))
    end = made(continuations=3)
    pieces = [continuation(1, block[at : at + 1], last=False) for at in range(2)]
    end.give(headers(1, b"", last=False), *pieces, continuation(1, block[2:]))
    assert end.peer.seen(1) == "answer 200"
    end.give(headers(3, b"", last=False), *[continuation(3, b"", last=False)] * 4)
    assert end.peer.closed
    assert end.counted.count("continuation_flood") == 1
    assert not [frame for frame in end.peer.frames if frame.type == CONTINUATION]


def test_a_silent_upstream_is_asked_for_a_sign_of_life(made: Make) -> None:
    end = made(client=True, ping=Seconds(5))
    end.peer.answers = False
    end.give(b"")
    results: list[Any] = []
    end.end.handle(Request(b"GET", b"/", authority=b"a.test")).addBoth(results.append)
    end.advance(4)
    pings = [frame for frame in end.peer.frames if type(frame).__name__ == "PingFrame"]
    assert pings == []
    end.advance(2)
    assert [type(frame).__name__ for frame in end.peer.frames].count("PingFrame") == 1
    assert results == []
    end.advance(6)
    assert end.peer.closed
    assert results[0].value.status in (502, 504)


def test_without_that_it_is_not(made: Make) -> None:
    end = made(client=True, ping=Seconds(0))
    end.peer.answers = False
    results: list[Any] = []
    end.end.handle(Request(b"GET", b"/", authority=b"a.test")).addBoth(results.append)
    end.advance(120)
    assert "PingFrame" not in [type(frame).__name__ for frame in end.peer.frames]
    end.give(res(1))
    assert results[0].status == 200


def test_tunnels_are_offered_whatever_it_is_told(made: Make) -> None:
    assert made(streams=1, window=Bytes(16 << 10)).peer.settings[EXTENDED] == 1


def test_an_engine_that_is_not_installed_is_a_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http2, "ENGINES", ("h2",))
    with pytest.raises(ConfigError, match="the engine ngh2 is not installed") as caught:
        Http2().configure(Options(engine="ngh2"))
    assert caught.value.path == ("engine",)
