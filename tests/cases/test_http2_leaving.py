"""Who leaves, and what becomes of requests on their way: GOAWAY of both sides, and streams beyond the limit."""

from __future__ import annotations

import pytest
from two import BOTH, NO_ERROR, PROTOCOL_ERROR, REFUSED_STREAM, Asked, Client, Two, ok

from h2frames import (
    ACK,
    PING,
    STREAMS,
    TOP,
    WINDOW,
    data,
    fields,
    goaway,
    headers,
    literal,
    ping,
    raw,
    req,
    request,
    res,
    rst,
    settings,
    window,
)

pytestmark = pytest.mark.parametrize("engine", BOTH)


def leave(two: Two) -> None:
    """The listener is no longer configured."""
    config = dict(two.config)
    config["listeners"] = [{"name": "other", "address": "127.0.0.1:8081"}]
    assert two.gateway.reload(config)


def pong(client: Client) -> bytes:
    """The answer to the one PING that came."""
    (asked,) = [frame for frame in client.peer.frames if frame.type == PING and "ACK" not in frame.flags]
    return raw(PING, ACK, 0, asked.opaque_data)


# -- C21, our own GOAWAY


def test_a_reload_says_goaway_twice_and_takes_what_was_on_its_way(engine: str) -> None:
    with Two(engine, None, drain="10s") as two:
        client = two.client()
        client.send(req(1), req(3), req(5))
        client.peer.answers = False  # what it says after the first GOAWAY comes later
        leave(two)
        assert client.peer.goaways == [(TOP, NO_ERROR)]
        client.send(req(7, b"/on-its-way"))
        assert [asked.stream for asked in two.asked] == [1, 3, 5, 7]
        (barrier,) = [
            frame.opaque_data for frame in client.peer.frames if frame.type == PING and "ACK" not in frame.flags
        ]
        client.send(raw(PING, ACK, 0, barrier))
        assert client.peer.goaways == [(TOP, NO_ERROR), (7, NO_ERROR)]
        client.send(req(9, b"/too-late"))
        assert client.resets == {9: REFUSED_STREAM}
        assert len(two.asked) == 4
        for n in range(4):
            two.reply(ok(two.asked[n]), which=n)
        assert [client.message(number).status for number in (1, 3, 5, 7)] == [200] * 4
        two.advance(1)
        assert client.peer.closed
        assert client.peer.goaways[-1] == (7, NO_ERROR), "which is the highest that was looked at"
        assert two.statuses == [200] * 4


def test_a_client_that_never_answers_the_ping_is_not_waited_for(engine: str) -> None:
    with Two(engine, None, drain="20s") as two:
        client = two.client()
        client.send(req(1))
        client.peer.answers = False
        leave(two)
        two.advance(3.5)
        assert client.peer.goaways == [(TOP, NO_ERROR), (1, NO_ERROR)]
        two.reply(ok(two.asked[0]))
        assert client.message(1).status == 200
        two.advance(1)
        assert client.peer.closed


def test_requests_in_the_read_with_the_pong_are_counted_in(engine: str) -> None:
    """They are looked at: a lower number would have the client ask again elsewhere."""
    with Two(engine, None, drain="10s") as two:
        client = two.client()
        client.send(req(1))
        client.peer.answers = False
        leave(two)
        (barrier,) = [
            frame.opaque_data for frame in client.peer.frames if frame.type == PING and "ACK" not in frame.flags
        ]
        client.send(req(3), raw(PING, ACK, 0, barrier), req(5))
        assert client.peer.goaways[-1] == (3, NO_ERROR)
        assert client.resets == {5: REFUSED_STREAM}
        assert [asked.stream for asked in two.asked] == [1, 3]
        for n in range(2):
            two.reply(ok(two.asked[n]), which=n)
        two.advance(1)
        assert client.peer.closed


def test_an_idle_client_is_let_go_once_it_has_heard(engine: str) -> None:
    with Two(engine, drain="10s") as two:
        client = two.client()
        client.send(req(1))
        leave(two)
        two.advance(0.2)
        assert client.peer.goaways == [(TOP, NO_ERROR), (1, NO_ERROR)]
        assert client.peer.closed


def test_the_time_for_draining_ends_what_does_not(engine: str) -> None:
    with Two(engine, None, drain="10s") as two:
        client = two.client()
        client.send(req(1))
        leave(two)
        two.advance(9.5)
        assert not client.peer.closed
        two.advance(1)
        assert client.peer.closed
        (record,) = two.records
        assert (record.status, record.who) == (503, "gateway")
        assert two.asked[0].reset is not None


def test_answers_that_a_window_holds_back_are_waited_for(engine: str) -> None:
    """They are whole, as far as anybody behind the codec can tell; their client does not have them yet."""
    with Two(engine, drain="10s") as two:
        client = two.client({WINDOW: 0})
        client.send(req(1))
        leave(two)
        two.advance(5)
        assert not client.peer.closed
        client.send(window(1, 10))
        assert client.message(1).content == b"ok"
        assert client.message(1).ended
        two.advance(1)
        assert client.peer.closed


def test_goaway_names_no_request_that_was_refused(engine: str) -> None:
    with Two(engine, None, told={"streams": 2}, drain="1s") as two:
        client = two.client()
        client.send(req(1), req(3), req(5), req(7))
        assert client.resets == {5: REFUSED_STREAM, 7: REFUSED_STREAM}
        leave(two)
        assert client.peer.goaways == [(TOP, NO_ERROR), (3, NO_ERROR)]
        two.advance(2)
        assert client.peer.goaways[-1][0] == 3


def test_goaway_for_a_fault_names_what_was_looked_at_and_no_more(engine: str) -> None:
    """What it does not name may be asked again, whatever it is: so all that was asked of anybody is in it."""
    with Two(engine, None) as two:
        client = two.client()
        client.send(req(1))
        client.send(req(3), req(5), ping(b"short"))
        two.advance(5)
        assert client.peer.closed
        assert client.peer.goaways == [(two.asked[-1].stream, 6)]
        assert [asked.stream for asked in two.asked] == [1, 3, 5]
        assert two.statuses == [400] * len(two.asked)
        assert all(asked.reset is not None for asked in two.asked)


def test_goaway_never_rises(engine: str) -> None:
    with Two(engine, None, drain="10s") as two:
        client = two.client()
        client.send(req(1))
        leave(two)
        assert client.peer.goaways[-1] == (1, NO_ERROR)
        client.send(req(3), req(5))
        assert client.resets == {3: REFUSED_STREAM, 5: REFUSED_STREAM}
        client.send(data(1, b"x"))  # behind END_STREAM
        two.advance(5)
        assert [last for last, _ in client.peer.goaways] in ([TOP, 1], [TOP, 1, 1])
        client.transport.loseConnection()


def test_a_client_that_leaves_gets_its_answers_first(engine: str) -> None:
    with Two(engine, None) as two:
        client = two.client()
        client.send(req(1), req(3), goaway())
        two.advance(1)
        assert not client.peer.closed
        for n in range(2):
            two.reply(ok(two.asked[n]), which=n)
        assert [client.message(number).status for number in (1, 3)] == [200, 200]
        two.advance(1)
        assert client.peer.closed
        assert two.statuses == [200, 200]


def test_a_client_that_complains_is_counted_and_named(engine: str) -> None:
    with Two(engine, None) as two:
        client = two.client()
        client.send(req(1))
        client.send(goaway(0, PROTOCOL_ERROR, b"you lie"))
        client.transport.loseConnection()
        two.advance(1)
        assert two.counts("peer_complained") == 1
        (record,) = two.records
        assert (record.status, record.who) == (499, "client")
        assert "PROTOCOL_ERROR" in record.error


# -- GOAWAY of upstreams


def test_requests_above_an_upstream_s_goaway_are_asked_elsewhere_the_others_end_well(engine: str) -> None:
    with Two(engine, None) as two:
        client = two.client()
        client.send(*[req(number, b"/", b"POST", more=[(b"content-length", b"0")]) for number in (1, 3, 5)])
        first = two.asked[0].end
        two.reply(goaway(two.asked[0].stream))
        assert [asked.end is first for asked in two.asked] == [True] * 3 + [False] * 2, (
            "a POST, too: it was not looked at"
        )
        for n in (0, 3, 4):
            two.reply(ok(two.asked[n]), which=n)
        assert [client.seen(number) for number in (1, 3, 5)] == ["answer 200"] * 3
        two.advance(1)
        assert first.peer.closed
        assert two.statuses == [200] * 3


def test_an_upstream_s_goaway_in_two_steps_takes_nothing_from_anybody(engine: str) -> None:
    with Two(engine, None) as two:
        client = two.client()
        client.send(req(1))
        two.reply(goaway(TOP))
        client.send(req(3))
        assert len(two.origin.connections) == 2, "nothing new goes to who leaves"
        first, second = two.asked
        two.reply(goaway(first.stream), which=0)
        two.reply(ok(first), which=0)
        two.reply(ok(second))
        assert [client.seen(number) for number in (1, 3)] == ["answer 200"] * 2


def test_requests_that_an_upstream_refused_are_asked_elsewhere(engine: str) -> None:
    def refuse_once(asked: Asked) -> bytes:
        return rst(asked.stream, REFUSED_STREAM) if len(two.asked) == 1 else ok(asked)

    with Two(engine, refuse_once) as two:
        client = two.client()
        client.send(req(1, b"/", b"POST", end=False), data(1, b"hello", True))
        if client.message(1).status == 200:
            assert two.asked[-1].message.content == b"hello", "the whole of it"
        else:
            assert client.message(1).status == 502, "content that has gone cannot go again"
        client.send(req(3))
        assert client.seen(3) == "answer 200"


def test_an_upstream_that_ends_with_an_error_is_blamed_for_what_was_under_way(engine: str) -> None:
    with Two(engine, None) as two:
        client = two.client()
        client.send(req(1, b"/", b"POST"), req(3))
        two.origin.answers = (ok,)
        first, second = two.asked
        two.reply(res(first.stream, end=False), data(first.stream, b"half"), which=0)
        first.end.write(goaway(second.stream, 2, b"out of memory"))
        first.end.transport.loseConnection()
        two.run()
        assert client.message(1).status == 200
        assert not client.message(1).ended
        assert client.resets[1] not in (NO_ERROR, 8)
        assert client.seen(3) == "answer 200", "a GET whose answer had not begun is asked again"
        assert two.counts("peer_complained") == 1
        assert "INTERNAL_ERROR" in two.records[0].error


# -- C23, too many streams


@pytest.mark.parametrize("acked", [True, False], ids=["after its ACK", "before its ACK"])
def test_a_stream_too_many_is_refused_by_itself(engine: str, acked: bool) -> None:
    with Two(engine, None, told={"streams": 2}) as two:
        client = two.client()
        client.peer.answers = acked
        if acked:
            client.send(ping())
        client.send(req(1), req(3), req(5))
        assert client.resets == {5: REFUSED_STREAM}
        assert two.counts("stream_refused") == 1
        for n in range(2):
            two.reply(ok(two.asked[n]), which=n)
        assert [client.seen(number) for number in (1, 3)] == ["answer 200"] * 2
        client.send(req(7))
        two.reply(ok(two.asked[2]))
        assert client.seen(7) == "answer 200"
        assert two.statuses == [200] * 3, "who is refused unread has no record"


def test_a_stream_too_many_still_counts_for_the_table(engine: str) -> None:
    """Its block is decoded before it is refused (RFC 9113, 4.3)."""
    with Two(engine, None, told={"streams": 1}) as two:
        client = two.client()
        client.send(req(1), headers(3, fields(request()) + literal(b"x-kept", b"1", 0x40)))
        assert client.resets == {3: REFUSED_STREAM}
        two.reply(ok(two.asked[0]))
        client.send(headers(5, fields(request()) + b"\xbe"))
        assert two.asked[1].all(b"x-kept") == [b"1"]
        two.reply(ok(two.asked[1]))
        assert client.seen(5) == "answer 200"


def test_content_of_a_stream_too_many_is_credited(engine: str) -> None:
    with Two(engine, None, told={"streams": 1, "connectionWindow": "64KiB"}) as two:
        client = two.client()
        client.send(req(1))
        for number in range(3, 43, 2):
            client.send(req(number, b"/", b"POST", end=False), data(number, bytes(10_000), pad=50))
            assert client.resets[number] == REFUSED_STREAM
        assert client.room() > 32_000
        two.reply(ok(two.asked[0]))
        assert client.seen(1) == "answer 200"


def test_an_upstream_that_takes_none_for_now_is_waited_for(engine: str) -> None:
    with Two(engine, ok, said={STREAMS: 0}, pool={"maxPerEndpoint": 1}, timeouts={"queue": "5s"}) as two:
        client = two.client()
        client.send(req(1))
        if not two.asked:  # the first one may have gone out before its SETTINGS were read
            two.origin.connections[0].write(settings((STREAMS, 1)))
            two.run()
        assert client.seen(1) == "answer 200"
        two.origin.connections[0].write(settings((STREAMS, 0)))
        two.run()
        client.send(req(3))
        assert len(two.asked) == 1
        two.origin.connections[0].write(settings((STREAMS, 5)))
        two.run()
        assert client.seen(3) == "answer 200"


# -- signs of life


def test_an_upstream_that_is_silent_is_asked_and_then_left(engine: str) -> None:
    with Two(engine, None, told={"ping": "5s"}, timeouts={"responseHead": "100s"}) as two:
        client = two.client()
        client.send(req(1))
        served = two.asked[0].end
        two.advance(12)
        assert len([frame for frame in served.peer.frames if frame.type == PING]) == 2
        assert not client.message(1).status
        served.peer.answers = False
        two.advance(11)
        assert client.message(1).status == 504
        assert two.counts("heartbeat_timeout") == 1
        assert served.lost is not None
        assert two.records[0].who == "upstream"


def test_it_is_not_asked_more_often_than_servers_of_grpc_bear(engine: str) -> None:
    """They end the connection when more than two PINGs come within 5 minutes of each other (gRPC A8)."""
    with Two(engine, None, timeouts={"responseHead": "2h"}) as two:
        client = two.client()
        client.send(req(1))
        served = two.asked[0].end
        for count in range(1, 4):
            two.advance(301)
            assert len([frame for frame in served.peer.frames if frame.type == PING]) == count - 1
            two.advance(60)
            assert len([frame for frame in served.peer.frames if frame.type == PING]) == count
        served.peer.answers = False
        two.advance(361)
        assert not client.message(1).status
        two.advance(21)
        assert client.message(1).status == 504, "the answer to a PING does not have as long"
        assert two.counts("heartbeat_timeout") == 1


def test_an_upstream_without_requests_is_asked_nothing(engine: str) -> None:
    with Two(engine, told={"ping": "5s"}, pool={"idle": "60s"}) as two:
        client = two.client()
        client.send(req(1))
        two.advance(30)
        assert not [frame for frame in two.asked[0].end.peer.frames if frame.type == PING]
        assert two.asked[0].end.lost is None
