"""
Both ends against anything: a peer that follows the page, one that does not, and two of ours with whatever between them.

What must hold, whatever comes: nothing is raised, every request ends exactly once, no more is held than there was
credit for, and what one side sent is what the other got.
"""

from __future__ import annotations

import random

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from sotp_ends import HELLO, ORDER, VECTORS, End, frames
from twisted.internet.defer import Deferred

from protogate.errors import CLIENT, Abort
from protogate.message import Headers, Request, Response
from protogate.testing.bodies import Giver, Taker
from protogate.testing.cell import Pair
from protogate_sotp.codec import Sotp
from protogate_sotp.frames import (
    CANCEL,
    DATA,
    GOAWAY,
    PING,
    REQUEST,
    RESPONSE,
    TRAILERS,
    cancel,
    credited,
    frame,
    goaway,
)

HEADS = [bytes.fromhex(each["hex"]) for each in VECTORS["requests"] + VECTORS["bad requests"]]
TOLD = [bytes.fromhex(each["hex"]) for each in VECTORS["responses"] + VECTORS["bad responses"]]
NUMBERS = st.integers(0, 12)
STEPS = settings(max_examples=60, stateful_step_count=40, suppress_health_check=list(HealthCheck))


def frame_of(kind, number, flags, body, size):
    """Some frame: in order, or nearly so."""
    payload = {
        REQUEST: HEADS[size % len(HEADS)],
        RESPONSE: TOLD[size % len(TOLD)],
        DATA: body,
        TRAILERS: b"\0\1\1\0\1a1" if size % 3 else body,
        PING: b"8 bytes.",
    }.get(kind, body)
    if kind == GOAWAY:
        return goaway(number, size % 3)
    if kind == CANCEL:
        return cancel(number, size % 24)
    if kind == 5:
        return credited(number, size)
    return frame(kind, flags, number, payload)


class Lonely(RuleBasedStateMachine):
    """One end, and bytes of a peer that may do anything."""

    side = "server"

    def __init__(self):
        super().__init__()
        self.end = End(self.side)
        self.end.app.answer = self.answer
        self.held, self.takers, self.results = [], [], []
        self.end.feed(HELLO)
        self.next = 1

    def answer(self, request):
        if request.malformed is not None:
            return Response(request.malformed.status)
        self.held.append((request, Deferred()))
        return self.held[-1][1]

    @rule(
        kind=st.integers(0, 11),
        number=NUMBERS,
        flags=st.integers(0, 3),
        body=st.binary(max_size=60),
        size=st.integers(0, 99),
    )
    def anything(self, kind, number, flags, body, size):
        self.end.feed(frame_of(kind, number, flags, body, size))

    @rule(data=st.binary(max_size=80))
    def noise(self, data):
        self.end.feed(data)

    @rule(seconds=st.sampled_from([0.1, 3, 40]))
    def time(self, seconds):
        self.end.advance(seconds)

    @rule()
    def written(self):
        frames(self.end.wire.take())

    @rule(number=st.sampled_from([1, 3, 5]), size=st.integers(1, 70000))
    def data(self, number, size):
        self.end.feed(frame(DATA, 0, number, b"x" * min(size, 65000)))

    @rule()
    def drain(self):
        self.end.end.drain()

    @rule(full=st.booleans())
    def full(self, full):
        if not self.end.end.dead:
            (self.end.end.pauseProducing if full else self.end.end.resumeProducing)()

    @invariant()
    def within_bounds(self):
        end = self.end.end
        assert end.reader.waiting <= max(end.hello.sizes) + 12
        for stream in end.streams.values():
            body = stream.incoming
            held = sum(map(len, getattr(body, "held", None) or ()))
            assert held <= end.hello.window
            assert len(stream.queue) <= 1 << 20
        if not end.dead:
            held = sum(stream.held for stream in end.streams.values())
            assert end.hello.total - end.room == end._owed + held
            assert end._owed < end.hello.total >> 1  # what nobody holds never stops the others
            for stream in end.streams.values():
                assert stream.held <= stream.owed == end.hello.window - stream.room

    def teardown(self):
        self.end.close()
        for taker in self.takers:
            assert taker.ended


class LonelyServer(Lonely):
    """A server."""

    @rule(flags=st.integers(0, 1), which=st.integers(0, 99))
    def request(self, flags, which):
        number = self.next
        self.next += 2
        self.end.feed(frame(REQUEST, flags, number, HEADS[which % len(HEADS)] if which % 4 else ORDER))

    @precondition(lambda self: self.held)
    @rule(at=st.integers(0, 9), body=st.booleans(), size=st.integers(0, 200000))
    def respond(self, at, body, size):
        request, answer = self.held.pop(at % len(self.held))
        if request.body is not None and body and not request.body.attached:
            self.takers.append(Taker(request.body, size % 3 or None))
        if not answer.called:
            answer.callback(Response(200, [], Giver([b"x" * size]).body if body else None))

    @precondition(lambda self: self.held)
    @rule(at=st.integers(0, 9))
    def fail(self, at):
        _, answer = self.held.pop(at % len(self.held))
        if not answer.called:
            answer.errback(Abort("failed", CLIENT))


class LonelyClient(Lonely):
    """A client."""

    side = "client"

    @rule(body=st.booleans(), size=st.integers(0, 200000), close=st.booleans())
    def call(self, body, size, close):
        giver = Giver([b"x" * size] if size else [], None, None, close).body if body else None
        request = Request(b"POST", b"/7/x", Headers(), giver)
        self.end.end.handle(request).addCallbacks(self.arrived, lambda failure: self.results.append(failure.value))

    def arrived(self, response):
        self.results.append(response)
        if response.body is not None:
            self.takers.append(Taker(response.body, 1 if len(self.results) % 2 else None))

    @rule(number=st.sampled_from([1, 3, 5]), flags=st.integers(0, 2), which=st.integers(0, 99))
    def response(self, number, flags, which):
        self.end.feed(frame(RESPONSE, flags, number, TOLD[which % len(TOLD)] if which % 4 else bytes(10)))


TestLonelyServer = LonelyServer.TestCase
TestLonelyServer.settings = STEPS
TestLonelyClient = LonelyClient.TestCase
TestLonelyClient.settings = STEPS


class Together(RuleBasedStateMachine):
    """A client and a server of ours, in steps of any size: a model says what must have come through."""

    def __init__(self):
        super().__init__()
        self.pair = Pair(Sotp())
        self.pair.app.answer = self.answer
        self.requests = []  # [giver, sent, ended, taker at the server, answer, giver back, sent back, ended, taker]
        self.dice = random.Random(0)

    def answer(self, request):
        mine = self.requests[int(request.target.rpartition(b"x")[2])]
        mine["taker"] = Taker(request.body)
        mine["answer"] = Deferred()
        return mine["answer"]

    @precondition(lambda self: len(self.requests) < 8)
    @rule()
    def ask(self):
        mine = {"giver": Giver(close=False), "sent": b"", "back": None, "down": None, "sent back": b""}
        self.requests.append(mine)
        request = Request(b"POST", b"/7/x%d" % (len(self.requests) - 1), body=mine["giver"].body)
        self.pair.client.handle(request).addCallbacks(
            lambda response: mine.update(down=Taker(response.body)), self.failed
        )

    def failed(self, failure):
        raise AssertionError(failure)

    def open(self, key):
        return [mine for mine in self.requests if mine.get(key) is not None and not mine.get(f"{key} ended")]

    @rule(at=st.integers(0, 9), size=st.integers(1, 100000))
    def up(self, at, size):
        some = self.open("giver")
        if some:
            mine = some[at % len(some)]
            data = self.dice.randbytes(size)
            mine["giver"].write(data)
            mine["sent"] += data

    @rule(at=st.integers(0, 9))
    def up_ends(self, at):
        some = self.open("giver")
        if some:
            mine = some[at % len(some)]
            mine["giver"].finish([(b"x-sum", b"%d" % len(mine["sent"]))])
            mine["giver ended"] = True

    @rule(at=st.integers(0, 9))
    def answered(self, at):
        some = [mine for mine in self.requests if mine.get("answer") is not None and mine["back"] is None]
        if some:
            mine = some[at % len(some)]
            mine["back"] = Giver(close=False)
            mine["answer"].callback(Response(200, [], mine["back"].body))

    @rule(at=st.integers(0, 9), size=st.integers(1, 100000))
    def down(self, at, size):
        some = self.open("back")
        if some:
            mine = some[at % len(some)]
            data = self.dice.randbytes(size)
            mine["back"].write(data)
            mine["sent back"] += data

    @rule(rounds=st.integers(1, 9), most=st.sampled_from([1, 100, 1 << 30]))
    def carry(self, rounds, most):
        self.pair.net.most = most
        self.pair.run(rounds)

    @invariant()
    def what_came_was_sent(self):
        for mine in self.requests:
            taker, down = mine.get("taker"), mine["down"]
            if taker is not None:
                assert mine["sent"].startswith(taker.data)
            if down is not None:
                assert mine["sent back"].startswith(down.data)

    def teardown(self):
        self.pair.net.most = 1 << 30
        self.pair.run()
        for mine in self.requests:
            if not mine.get("giver ended"):
                mine["giver"].finish()
                mine["giver ended"] = True
            self.pair.run()
            if mine["back"] is None:
                mine["back"] = Giver(close=False)
                mine["answer"].callback(Response(200, [], mine["back"].body))
            mine["back"].finish()
        self.pair.run()
        for mine in self.requests:
            assert (mine["taker"].data, mine["taker"].finished) == (mine["sent"], True)
            assert (mine["down"].data, mine["down"].finished) == (mine["sent back"], True)
        assert self.pair.client.capacity == 100
        assert self.pair.client.room == self.pair.client.hello.total - self.pair.client._owed
        assert self.pair.server.room == self.pair.server.hello.total - self.pair.server._owed
        assert self.pair.counted == []
        self.pair.finish()


TestTogether = Together.TestCase
TestTogether.settings = STEPS
