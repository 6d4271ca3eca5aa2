"""SotpClient: connects, waits, comes back, repeats what is safe, and says how it went."""

from __future__ import annotations

import itertools

import pytest
from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.endpoints import TCP4ClientEndpoint
from twisted.internet.protocol import Factory

from protogate.codings import pack
from protogate.context import Context, Timeouts
from protogate.errors import ALWAYS, IDEMPOTENT, Abort, Phase
from protogate.message import Headers, Response
from protogate.testing.bodies import Giver, Taker
from protogate.testing.cell import App, read_then
from protogate.testing.reactor import MemoryReactor
from protogate.testing.upstream import Do, Upstream
from protogate.wheel import Wheel
from protogate_sotp.client import ATTEMPTS, LONGEST, WAITING, SotpClient, status_of
from protogate_sotp.codec import Sotp
from protogate_sotp.faults import REFUSED
from protogate_sotp.frames import HELLO, Reader
from protogate_sotp.heads import read_request
from protogate_sotp.options import Options


class Server(Factory):
    """Listens while it is told to."""

    noisy = False

    def __init__(self, world):
        self.world, self.made, self.port = world, [], None

    def buildProtocol(self, addr):
        self.made.append(self.world.codec.server(self.world.app, self.world.there))
        return self.made[-1]

    def listen(self):
        self.port = self.world.reactor.listenTCP(7000, self, interface="192.0.2.7")

    def stop(self):
        self.port.stopListening()


class World:
    """A client, a server, and a clock."""

    def __init__(self, listen=True, options=None, most=1 << 20, **timeouts):
        self.reactor = MemoryReactor()
        self.wheel = Wheel(self.reactor.clock)
        self.app = App(lambda request: Response(200))
        self.codec = Sotp(options)
        self.counted = []
        self.there = Context(self.wheel, None, Timeouts())
        self.server = Server(self)
        if listen:
            self.server.listen()
        here = Context(self.wheel, None, Timeouts(**timeouts), self.counted.append)
        endpoint = TCP4ClientEndpoint(self.reactor, "192.0.2.7", 7000)
        self.client = SotpClient(endpoint, here, options, most=most, chance=lambda: 1.0)

    def ask(self, *args, **named):
        """A request; [] until it is answered or failed."""
        got = []
        self.last = self.client.request(*args, **named)
        self.last.addCallbacks(got.append, lambda failure: got.append(failure.value))
        self.reactor.run()
        return got

    def run(self):
        self.reactor.run()

    def advance(self, seconds):
        self.reactor.advance(seconds)

    def close(self):
        done = []
        self.client.close().addCallback(done.append)
        self.advance(10)
        assert done == [None]
        for made in self.server.made:
            made.abort()
        self.advance(400)
        assert self.reactor.clock.getDelayedCalls() == []


@pytest.fixture
def world():
    made = World()
    yield made
    made.close()


def test_a_request_is_answered(world):
    world.app.answer = read_then(
        lambda request, data: Response(200, [(b"x-a", b"1")], Giver([data, b"!"], None, [(b"x-b", b"2")]).body)
    )
    (reply,) = world.ask(1001, "order.create", b"hello", metadata=[(b"x-c", b"3")], serialization=1, deadline=2)
    assert (reply.status, reply.http, reply.data, reply.trailers) == (0, 200, b"hello!", [(b"x-b", b"2")])
    assert reply.fields == [(b"x-a", b"1")]
    (request,) = world.app.requests
    assert request.service == "1001"
    assert request.headers == [(b"x-c", b"3"), (b"content-type", b"application/json")]
    assert request.deadline == pytest.approx(world.reactor.clock.seconds() + 2, abs=0.1)
    assert world.client.connected


def test_many_share_one_connection(world):
    for at in range(5):
        assert world.ask("orders", f"x{at}", serialization=99)[0].status == 0
    assert len(world.server.made) == 1
    assert world.app.requests[0].headers == [(b"content-type", b"application/x-sotp; type=99")]


def test_statuses_that_are_no_success_are_replies(world):
    for response, status in ((Response(404), 5), (Response(409, [(b"sotp-status", b"6")]), 6), (Response(301), 19)):
        world.app.answer = lambda request, response=response: response
        assert world.ask(7, "x")[0].status == status


@pytest.mark.parametrize(
    ("status", "fields", "expected"),
    [
        (200, [(b"grpc-status", b"5")], 5),
        (200, [(b"grpc-status", b"16"), (b"sotp-status", b"3")], 16),
        (200, [(b"grpc-status", b"0")], 0),
        (200, [(b"grpc-status", b"17")], 0),
        (200, [(b"grpc-status", b"-1")], 0),
        (503, [(b"grpc-status", b"5")], 14),
        (200, [(b"sotp-status", b"none")], 0),
    ],
)
def test_the_status_of_a_call_of_grpc_is_that_of_the_reply(world, status, fields, expected):
    world.app.answer = lambda request: Response(status, fields)
    assert world.ask(7, "x")[0].status == expected


@pytest.mark.parametrize(
    ("service", "operation"),
    [(0, "x"), (1 << 32, "x"), ("", "x"), ("a/b", "x"), ("..", "x"), (7, ""), (7, "a b"), (7, "a/b")],
)
def test_what_is_no_service_is_refused_at_once(world, service, operation):
    with pytest.raises(ValueError, match="no service"):
        world.client.request(service, operation)


def test_what_is_no_compression_is_refused_at_once(world):
    with pytest.raises(ValueError, match="no compression"):
        world.client.request(7, "x", b"y", compression="br")


@pytest.mark.parametrize("name", ["gzip", "zstd"])
def test_content_is_compressed_for_a_server_that_reads_it(world, name):
    seen = []

    def answer(request, data):
        seen.append((request.headers.get(b"content-encoding"), len(data)))
        packed = pack(name.encode(), b"y" * 10000)
        return Response(200, Headers([(b"content-encoding", name.encode())]), Giver([packed], len(packed)).body)

    world.app.answer = read_then(answer)
    world.ask(7, "x", b"first")  # the server's HELLO is not there yet: plain
    (reply,) = world.ask(7, "x", b"x" * 10000, compression=name)
    assert reply.data == b"y" * 10000
    assert seen[0] == (None, 5)
    assert seen[1][0] == name.encode()
    assert seen[1][1] < 200


def test_a_reply_that_is_too_large_is_none():
    world = World(most=1000)
    giver = Giver([b"x" * 900] * 3, close=False)
    world.app.answer = lambda request: Response(200, [], giver.body)
    (error,) = world.ask(7, "x")
    assert isinstance(error, Abort)
    assert error.reason == "the reply is too large"
    world.run()
    assert giver.stopped
    world.close()


def test_a_reply_that_breaks_off_is_none(world):
    giver = Giver([b"some"], 10, close=False)
    world.app.answer = lambda request: Response(200, [], giver.body)
    got = world.ask(7, "x")
    world.server.made[0].abort()
    world.run()
    assert isinstance(got[0], Abort)


def test_content_streams_both_ways(world):
    world.app.answer = lambda request: Response(200, [], Giver([b"down"], close=False).body)
    up, got = Giver([b"up"], close=False), []
    world.client.stream(7, "x", up.body, deadline=3).addCallback(got.append)
    world.run()
    taker = Taker(world.app.requests[0].body)
    down = Taker(got[0].body)
    world.run()
    up.finish([(b"x-a", b"1")])
    world.run()
    assert (taker.data, taker.trailers) == (b"up", [(b"x-a", b"1")])
    assert down.data == b"down"
    down.stop()
    world.run()


# -- connections


def test_it_waits_for_a_server_and_less_long_than_it_is_told():
    world = World(listen=False, queue=5)
    got = world.ask(7, "x")
    world.advance(1)
    assert got == []
    world.server.listen()
    world.advance(2)
    assert got[0].status == 0
    world.close()


def test_it_does_not_wait_for_ever():
    world = World(listen=False, queue=5)
    late, soon = world.ask(7, "x"), world.ask(7, "y", deadline=2)
    world.advance(2.1)
    assert late == []
    assert (soon[0].status, soon[0].retry) == (504, ALWAYS)
    world.advance(3)
    assert (late[0].phase, late[0].retry) == (Phase.QUEUE, ALWAYS)
    world.close()


def test_waits_between_attempts_double_up_to_a_bound(monkeypatch):
    world = World(listen=False, queue=0)
    begun = []
    connect = world.client._connect

    def noted():
        begun.append(world.reactor.clock.seconds())
        connect()

    world.client._wait._function = noted
    world.ask(7, "x")
    world.advance(200)
    waits = [later - earlier for earlier, later in itertools.pairwise(begun)]
    assert waits[0] < waits[1] < waits[2] < 1
    assert waits[-1] == pytest.approx(LONGEST, abs=0.2)
    assert max(waits) < LONGEST + 0.2
    world.last.cancel()
    world.close()


def test_it_comes_back_by_itself(world):
    world.ask(7, "x")
    world.server.made[0].abort()
    world.run()
    assert not world.client.connected
    world.advance(1)
    assert len(world.server.made) == 2
    assert world.client.connected
    assert world.ask(7, "x")[0].status == 0


def test_waits_begin_anew_after_a_connection_that_was_one(world):
    world.ask(7, "x")
    for at in range(1, 8):
        world.server.made[-1].abort()
        world.advance(0.3)
        assert len(world.server.made) == at + 1


def test_it_can_connect_before_anybody_asks(world):
    world.client.connect()
    world.client.connect()
    world.run()
    assert world.client.connected
    assert len(world.server.made) == 1


def test_a_server_that_drains_is_left_and_its_answers_still_count(world):
    held = Deferred()
    world.app.answer = lambda request: held
    old = world.ask(7, "old")
    world.server.made[0].drain()
    world.run()
    world.app.answer = lambda request: Response(200)
    assert world.ask(7, "new")[0].status == 0
    assert len(world.server.made) == 2
    held.callback(Response(204))
    world.run()
    assert old[0].http == 204


def test_a_request_that_was_lost_is_the_callers(world):
    world.app.answer = lambda request: Deferred()
    got = world.ask(7, "x")
    world.server.made[0].abort()
    world.run()
    assert got[0].retry == IDEMPOTENT
    assert len(world.app.requests) == 1


def refuse(world, times):
    """Have the server refuse so many requests."""
    left = [times]

    def answer(request):
        if not left[0]:
            return read_then(lambda request, data: Response(200, [], Giver([data], len(data)).body))(request)
        left[0] -= 1
        server = world.server.made[-1]
        (number,) = server.streams
        stream = server.streams[number]
        stream.cancel(REFUSED)
        world.reactor.clock.callLater(0, stream.lost, Abort("refused"))
        return Deferred()

    world.app.answer = answer


def test_a_request_that_was_refused_is_sent_again(world):
    refuse(world, 2)
    got = world.ask(7, "x", b"data")
    world.advance(1)
    assert (got[0].status, got[0].data) == (0, b"data")
    assert len(world.app.requests) == 3


def test_a_request_is_not_sent_again_for_ever(world):
    refuse(world, 9)
    got = world.ask(7, "x", b"data")
    world.advance(1)
    assert got[0].retry == ALWAYS
    assert len(world.app.requests) == ATTEMPTS


def test_content_that_flows_is_not_sent_again(world):
    refuse(world, 1)
    giver, got = Giver([b"x"], close=False), []
    world.client.stream(7, "x", giver.body).addErrback(lambda failure: got.append(failure.value))
    world.advance(1)
    assert got[0].retry == ALWAYS
    assert giver.stopped


def test_content_that_was_never_asked_for_is_stopped():
    world = World(listen=False, queue=1)
    giver, got = Giver([b"x"]), []
    world.client.stream(7, "x", giver.body).addErrback(lambda failure: got.append(failure.value))
    world.advance(2)
    assert len(got) == 1
    assert giver.stopped
    world.close()


def test_only_so_many_wait():
    world = World(listen=False, queue=5)
    waiting = [world.ask(7, "x") for _ in range(3)]
    world.client._waiting += [None] * (WAITING - 3)
    (error,) = world.ask(7, "x")
    assert error.status == 503
    del world.client._waiting[3:]
    world.close()
    assert [got[0].reason for got in waiting] == ["the client was closed"] * 3


def test_more_than_a_connection_takes_wait_their_turn():
    world = World(options=Options(streams=2))
    held = []

    def hold(request):
        held.append(Deferred())
        return held[-1]

    world.app.answer = hold
    world.client.connect()
    world.run()
    got = [world.ask(7, "x") for _ in range(4)]
    assert len(held) == 2
    held[0].callback(Response(204))
    world.run()
    assert len(held) == 3
    held[1].callback(Response(204))
    world.run()
    for each in held[2:]:
        each.callback(Response(204))
    world.run()
    assert [each[0].http for each in got] == [204] * 4
    world.close()


# -- giving up


def test_a_request_that_waits_can_be_given_up():
    world = World(listen=False)
    got = world.ask(7, "x")
    world.last.cancel()
    assert isinstance(got[0], CancelledError)
    assert world.client._waiting == []
    world.close()


def test_a_request_under_way_can_be_given_up(world):
    gone = []
    world.app.answer = lambda request: Deferred(gone.append)
    got = world.ask(7, "x")
    world.last.cancel()
    world.run()
    assert isinstance(got[0], CancelledError)
    assert len(gone) == 1


def test_a_reply_under_way_can_be_given_up(world):
    giver = Giver([b"some"], close=False)
    world.app.answer = lambda request: Response(200, [], giver.body)
    got = world.ask(7, "x")
    world.last.cancel()
    world.run()
    assert isinstance(got[0], CancelledError)
    assert giver.stopped


def test_a_deadline_under_way_is_kept(world):
    world.app.answer = lambda request: Deferred()
    got = world.ask(7, "x", deadline=1)
    world.advance(1.2)
    assert got[0].status == 504


def test_a_client_that_was_closed_takes_nothing(world):
    world.ask(7, "x")
    world.client.close()
    (error,) = world.ask(7, "x")
    assert error.status == 503
    world.client.connect()
    world.advance(5)
    assert len(world.server.made) == 1


def test_close_lets_end_what_is_under_way(world):
    held = Deferred()
    world.app.answer = lambda request: held
    got, done = world.ask(7, "x"), []
    world.client.close().addCallback(done.append)
    world.run()
    assert done == []
    held.callback(Response(204))
    world.run()
    assert (got[0].http, done) == (204, [None])


def test_close_ends_an_attempt():
    world = World(listen=False, queue=0)
    got = world.ask(7, "x")
    world.close()
    assert got[0].reason == "the client was closed"


def test_a_silent_server_is_found_out():
    world = World(options=Options(heartbeat=1))
    world.ask(7, "x")
    link = world.reactor.net.links[0]
    link.cut(1)
    link.ends[1][1].dead = True
    world.app.answer = lambda request: Deferred()
    got = world.ask(7, "x")
    world.advance(8)
    assert isinstance(got[0], Abort)
    assert len(world.server.made) == 2
    world.close()


def test_the_first_bytes_are_a_hello_and_a_request():
    world, heard = World(listen=False), Upstream([Do.SILENCE])
    world.reactor.listenTCP(7000, heard, interface="192.0.2.7")
    world.ask(1001, "order.create")
    reader = Reader((1024,) * 10)
    first, second = reader.feed(heard.received[0])[:2]
    assert first[0] == HELLO
    assert read_request(second[3], world.there.limits).target == b"/1001/order.create"
    world.last.cancel()
    world.close()


@pytest.mark.parametrize(("said", "status"), [(b"none", 0), (b"", 0), (b"-1", 0), (b"700000", 0), (b"6", 6)])
def test_anything_may_stand_where_a_status_stands(said, status):
    assert status_of(Response(200, [(b"sotp-status", said)])) == status
