"""Peers that make work and do none: frames that cost nothing, and answers that nobody takes (RFC 9113, 10.5)."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from test_http2_resets import calm
from two import BOTH, CANCEL, REFUSED_STREAM, Asked, Two, ok

from h2frames import (
    PRIORITY,
    SETTINGS,
    TABLE,
    WINDOW,
    continuation,
    data,
    fields,
    headers,
    literal,
    ping,
    priority,
    raw,
    req,
    request,
    res,
    rst,
    settings,
    window,
)

pytestmark = pytest.mark.parametrize("engine", BOTH)
FEW = {"controls": 50, "emptyFrames": 50}
OPEN = req(1, b"/", b"POST", end=False)

# -- C3, CONTINUATION


def test_empty_continuations_without_end_are_cut_off(engine: str) -> None:
    with Two(engine) as two:
        client = two.client()
        client.send(headers(1, b"", last=False) + continuation(1, b"", False) * 1000)
        calm(two, client, "continuation_flood")
        assert two.records == []


def test_full_continuations_without_end_are_cut_off_before_they_fill_the_memory(engine: str) -> None:
    with Two(engine) as two:
        client, sent = two.client(), 0
        client.send(headers(1, fields(request()), last=False))
        piece = continuation(1, literal(b"x-a", b"v" * 16_000), False)
        while not client.peer.goaways and sent < 200:
            client.send(piece)
            sent += 1
        assert sent <= 33
        two.advance(5)
        assert client.peer.closed
        assert client.peer.goaways[-1][1] != 0
        assert two.counts("continuation_flood") + two.counts("header_flood") == 1
        assert two.records == []
        assert two.asked == []


def test_many_continuations_with_an_end_are_a_message(engine: str) -> None:
    with Two(engine) as two:
        client = two.client()
        block = fields(request())
        for number in (1, 3, 5):
            pieces = [continuation(number, literal(b"x-%d" % n, b"v"), n == 30) for n in range(31)]
            client.send(headers(number, block, last=False), *pieces)
            assert client.seen(number) == "answer 200"
        assert two.asked[-1].all(b"x-30") == [b"v"]


def test_how_many_continuations_there_may_be_is_told(engine: str) -> None:
    with Two(engine, told={"continuations": 3}) as two:
        client = two.client()
        block = fields(request())
        client.send(headers(1, block, last=False), continuation(1, b"", False) * 2, continuation(1))
        assert client.seen(1) == "answer 200"
        client.send(headers(3, block, last=False), continuation(3, b"", False) * 3, continuation(3))
        calm(two, client, "continuation_flood")


def test_a_head_that_never_ends_has_the_time_that_a_head_has(engine: str) -> None:
    """No piece of it puts the clock forward, and what is under way on other streams does not, either."""
    with Two(engine, timeouts={"clientHeader": "5s"}) as two:
        client = two.client()
        client.send(req(1))
        client.send(headers(3, b"\x82", last=False))
        for _ in range(4):
            two.advance(1)
            client.send(continuation(3, b"", False))
        assert not client.peer.closed
        two.advance(1.2)
        assert client.peer.closed
        assert two.counts("client_header_timeout") == 1
        assert two.statuses == [200]


def test_half_a_frame_has_that_time_too(engine: str) -> None:
    with Two(engine, timeouts={"clientHeader": "5s"}) as two:
        client = two.client()
        client.write(req(1)[:20])
        two.run()
        two.advance(5.2)
        assert client.peer.closed
        assert two.counts("client_header_timeout") == 1


# -- C27, the family of 2019

FLOODS: dict[str, tuple[Callable[[int], bytes], str]] = {
    "ping": (lambda n: ping(b"%08d" % n), "ping_flood"),
    "settings": (lambda n: settings((WINDOW, 65535 + n % 2)), "settings_flood"),
    "empty settings": (lambda n: settings(), "settings_flood"),
    "priority": (lambda n: priority(2 * n + 1, 0, n % 256), "priority_flood"),
    "priority that depends on itself": (lambda n: priority(101, 101), "priority_flood"),
    "empty data": (lambda n: data(1), "empty_data_flood"),
    "empty data that is padded": (lambda n: data(1, b"", pad=0), "empty_data_flood"),
    "data of nothing but padding": (lambda n: data(1, b"", pad=1), "empty_data_flood"),
}


@pytest.mark.parametrize("together", [True, False], ids=["at once", "one by one"])
@pytest.mark.parametrize("kind", FLOODS)
def test_frames_that_cost_nothing_are_cut_off(engine: str, kind: str, together: bool) -> None:
    make, event = FLOODS[kind]
    with Two(engine, None, told=FEW, early=True) as two:
        client = two.client()
        client.send(OPEN)
        frames = [make(n) for n in range(1, 200)]
        if together:
            client.send(*frames)
        else:
            for each in frames:
                if not client.peer.closed:
                    client.send(each)
        calm(two, client, event)
        assert two.statuses == [400], "what was under way"


@pytest.mark.parametrize("kind", FLOODS)
def test_some_of_them_are_taken_and_answered(engine: str, kind: str) -> None:
    make, event = FLOODS[kind]
    with Two(engine, told=FEW) as two:
        client = two.client()
        client.send(OPEN, *[make(n) for n in range(1, 46)], data(1, b"", True))
        assert client.seen(1) == "answer 200"
        assert two.counts(event) == 0
        if kind == "ping":
            assert len(client.peer.pongs) == 45
        if "settings" in kind:
            assert client.peer.acked == 46


@pytest.mark.parametrize("kind", ["ping", "settings"])
def test_who_downloads_may_ask_for_a_pong_for_every_piece(engine: str, kind: str) -> None:
    """So does gRPC, to find out how much is under way."""
    make, event = FLOODS[kind]
    with Two(engine, None, told=FEW) as two:
        client = two.client()
        client.send(req(1))
        two.reply(res(1, end=False))
        for n in range(300):
            two.reply(data(two.asked[0].stream, bytes(100)))
            client.send(make(n))
        assert two.counts(event) == 0
        two.reply(data(two.asked[0].stream, b"", True))
        assert client.seen(1) == "answer 200"


def test_an_upstream_that_floods_is_let_go_and_its_requests_fail(engine: str) -> None:
    with Two(engine, None, told=FEW) as two:
        client = two.client()
        client.send(req(1))
        two.reply(*[ping(b"%08d" % n) for n in range(200)])
        assert client.message(1).status == 502
        assert two.counts("ping_flood") == 1
        (record,) = two.records
        assert (record.status, record.who) == (502, "upstream")
        two.origin.answers = (ok,)
        client.send(req(3))
        assert client.seen(3) == "answer 200"
        assert len(two.origin.connections) == 2


def test_an_upstream_may_refuse_and_reset_whatever_it_is_asked(engine: str) -> None:
    """It costs nobody anything but the request, and the connection has others."""

    def refuse(asked: Asked) -> bytes:
        return rst(asked.stream, 2)

    with Two(engine, refuse, told={"resets": 20}) as two:
        client = two.client()
        for number in range(1, 201, 2):
            client.send(req(number))
        assert len(two.origin.connections) == 1
        two.origin.answers = (ok,)
        client.send(req(201))
        assert client.seen(201) == "answer 200"
        assert len(two.origin.connections) == 1


def test_fields_without_names_are_faults_and_counted(engine: str) -> None:
    """CVE-2019-9516."""
    with Two(engine, told={"resets": 50}) as two:
        client, number = two.client(), 1
        while not client.peer.closed and number < 1000:
            client.send(headers(number, fields(request()) + literal(b"", b"") * 10))
            number += 2
        calm(two, client, "reset_flood")
        assert two.asked == []
        assert set(two.statuses) == {400}


# -- answers that nobody takes


def test_a_window_that_opens_by_single_bytes_costs_little_and_stops_nobody_else(engine: str) -> None:
    """CVE-2019-9511."""

    def large(asked: Asked) -> bytes:
        return res(asked.stream, end=False) + b"".join(data(asked.stream, bytes(15_000), n == 3) for n in range(4))

    with Two(engine, large, ok) as two:
        client = two.client({WINDOW: 0})
        client.send(req(1))
        before = len(client.peer.frames)
        client.send(window(1, 1) * 10_000)
        assert len(client.message(1).content) == 10_000
        assert len(client.peer.frames) - before < 20, "one turn, one frame"
        client.send(req(3), window(3, 10))
        assert client.seen(3) == "answer 200"
        client.send(rst(1))


def test_a_window_that_stays_closed_is_waited_for_as_long_as_a_client_may_stall(engine: str) -> None:
    """That stream alone is given up."""

    def large(asked: Asked) -> bytes:
        return res(asked.stream, end=False) + b"".join(data(asked.stream, bytes(15_000)) for n in range(4))

    with Two(engine, large, None, timeouts={"clientStall": "10s", "responseHead": "60s"}) as two:
        client = two.client({WINDOW: 0})
        client.send(req(1))
        client.send(req(3))
        for _ in range(3):
            two.advance(8)
            client.send(window(1, 1))
        assert not client.resets
        two.advance(11)
        assert client.resets == {1: CANCEL}
        assert two.counts("client_stall_timeout") == 1
        assert two.asked[0].reset == CANCEL
        two.reply(ok(two.asked[1]))
        client.send(window(3, 10))
        assert client.seen(3) == "answer 200"


def test_small_answers_that_no_window_lets_out_take_the_place_of_requests(engine: str) -> None:
    """Else their number would have no bound: each is complete, as far as anybody behind the codec can tell."""
    with Two(engine, told={"streams": 10}, timeouts={"clientStall": "10s"}) as two:
        client = two.client({WINDOW: 0})
        for number in range(1, 61, 2):
            client.send(req(number))
        assert len(two.asked) == 10
        assert list(client.resets.values()) == [REFUSED_STREAM] * 20
        assert two.counts("stream_refused") == 20
        client.send(window(1, 2))
        client.send(req(61))
        assert client.seen(1) == "answer 200"
        assert len(two.asked) == 11
        two.advance(12)
        assert two.counts("client_stall_timeout") == 10
        assert len([code for code in client.resets.values() if code == CANCEL]) == 10


def test_an_end_that_no_window_lets_out_is_waited_for_and_no_longer_than_that(engine: str) -> None:
    """ngh2 sends not even END_STREAM into a window of 0; h2 does, as it may (RFC 9113, 6.9.1)."""

    def begins(asked: Asked) -> bytes:
        return res(asked.stream, end=False)

    with Two(engine, begins, early=True, timeouts={"clientStall": "10s"}) as two:
        client = two.client({WINDOW: 0})
        client.send(req(1), req(3, b"/", b"POST", end=False), req(5), req(7, b"/", b"POST", end=False))
        for which in range(4):
            two.reply(data(two.asked[which].stream, b"", True), which=which)
        client.send(window(1, 1), window(3, 1))
        assert [client.message(number).ended for number in (1, 3)] == [True, True]
        assert client.resets.get(3, 0) == 0, "the upload is not waited for, behind the end and not instead of it"
        if engine == "ngh2":
            assert [client.message(number).ended for number in (5, 7)] == [False, False]
            assert not {5, 7} & set(client.resets), "an answer without its end must not look whole"
        two.advance(12)
        (server,) = two.links("Server")
        assert not server.streams
        if engine == "ngh2":
            assert [client.resets[number] for number in (5, 7)] == [CANCEL, CANCEL]
            assert two.counts("client_stall_timeout") == 2


@pytest.mark.parametrize("method", [b"HEAD", b"GET"])
def test_who_reads_no_answers_gets_no_more_than_so_many(engine: str, method: bytes) -> None:
    """CVE-2019-9517: also of answers that are nothing but a head."""

    def answer(asked: Asked) -> bytes:
        return res(asked.stream, b"200", [(b"x-large", b"%d" % asked.stream * 900)])  # no table makes that small

    with Two(engine, answer, told={"streams": 20, "resets": 100_000}) as two:
        client = two.client()
        client.transport.pauseProducing()
        for number in range(1, 2001, 2):
            client.write(req(number, b"/", method))
            two.gateway.reactor.run(rounds=8)
        assert len(two.asked) < 80, "as many as fit into the buffer of a socket, and twenty"
        client.transport.resumeProducing()
        two.run()
        answered = [n for n in range(1, 2001, 2) if client.message(n).status == 200]
        assert len(answered) == len(two.asked)
        assert set(client.resets.values()) == {REFUSED_STREAM}


def test_who_reads_nothing_and_keeps_sending_is_let_go(engine: str) -> None:
    """Whatever it sends: all that we would answer would be kept for it."""
    with Two(engine, None, told={"controls": 1_000_000, "connectionWindow": "64KiB", "streams": 4}) as two:
        two.gateway.reactor.net.most = 65536
        client = two.client()
        client.send(req(1), window(0, 1 << 24), window(1, 1 << 24))
        client.transport.pauseProducing()
        asked = two.asked[0]
        asked.end.write(res(asked.stream, end=False) + b"".join(data(asked.stream, bytes(16_000)) for _ in range(4)))
        two.run()
        asked.end.write(b"".join(data(asked.stream, bytes(16_000)) for _ in range(4)))
        two.run()
        (server,) = two.links("Server")
        assert server.full
        sent = 0
        while not two.counts("deaf_flood") and sent < 300:
            client.write(b"".join(raw(0xBE, 0, 0, bytes(16_000)) for _ in range(4)))
            two.gateway.reactor.run(rounds=8)
            sent += 1
        assert sent < 40
        assert server.dead
        client.transport.abortConnection()


def test_priority_of_a_whole_tree_is_nothing_that_is_kept(engine: str) -> None:
    """CVE-2016-6580: what depends on what is not looked at (RFC 9113, 5.3.2)."""
    with Two(engine) as two:
        client = two.client()
        client.send(*[priority(2 * n + 1, 2 * n - 1 if n else 0) for n in range(900)], req(3001))
        assert client.seen(3001) == "answer 200"
        client.send(raw(PRIORITY, 0, 5001, b"\0\0\0\0\0"), raw(SETTINGS), req(5003))
        assert client.seen(5003) == "answer 200"


def test_a_table_of_fields_does_not_grow_as_large_as_a_peer_wishes(engine: str) -> None:
    """Each answer would leave its fields in it for as long as the connection lives."""

    def answer(asked: Asked) -> bytes:
        return res(asked.stream, b"200", [(b"x-large", b"%d" % asked.stream * 500)])

    with Two(engine, answer) as two:
        client = two.client({TABLE: 1 << 31})
        for number in range(1, 201, 2):
            client.send(req(number))
            assert client.seen(number) == "answer 200"
        assert client.peer.table() <= 4096


@pytest.mark.parametrize("sizes", [(0, 0), (0, 4096, 0), (100, 50, 4096), (0, 4096), (4096,), (1 << 31, 0)])
def test_a_table_of_fields_is_as_large_as_was_said_last(engine: str, sizes: tuple[int, ...]) -> None:
    """RFC 7541, 4.2: the smallest size meanwhile, then the last."""
    with Two(engine) as two:
        client = two.client()
        client.send(req(1))
        client.send(*[settings((TABLE, size)) for size in sizes])
        for number in (3, 5):
            client.send(req(number))
            assert client.seen(number) == "answer 200"
        assert client.peer.table() <= sizes[-1]
