"""Streams that one end gives up: what that costs, whom it stops, what must not be lost with them (RFC 9113, 5.4)."""

from __future__ import annotations

import pytest
from two import BOTH, CALM, CANCEL, NO_ERROR, PROTOCOL_ERROR, Asked, Client, Two, ok, room

from h2frames import data, fields, goaway, headers, req, res, rst, window

pytestmark = pytest.mark.parametrize("engine", BOTH)
SMALL = {"resets": 50}
TIGHT = {"connectionWindow": "64KiB", "streams": 4}
"""A connection that stops for good as soon as a few answers' worth of its window is lost."""


def calm(two: Two, client: Client, event: str) -> None:
    """The client was told to calm down, and let go; it was counted once."""
    two.advance(5)
    assert client.peer.closed
    assert client.peer.goaways[-1][1] == CALM
    assert two.counts(event) == 1
    assert two.links("Server") == []


# -- C1, rapid reset


def test_streams_that_are_reset_in_the_read_they_came_in_reach_nobody_and_end_the_connection(engine: str) -> None:
    with Two(engine, None, told=SMALL) as two:
        client = two.client()
        client.send(b"".join(req(1 + 2 * n) + rst(1 + 2 * n) for n in range(400)))
        calm(two, client, "reset_flood")
        assert two.asked == []
        assert two.records == []


def test_streams_that_are_reset_one_by_one_end_the_connection_and_leave_nothing_at_the_upstream(engine: str) -> None:
    with Two(engine, None, told=SMALL) as two:
        client, number, most = two.client(), 1, 0
        while not client.peer.closed and number < 2000:
            client.send(req(number))
            most = max(most, sum(asked.reset is None for asked in two.asked))
            client.send(rst(number))
            number += 2
        calm(two, client, "reset_flood")
        assert 40 < len(two.asked) < 60
        assert most == 1
        assert {asked.reset for asked in two.asked} == {CANCEL}
        assert two.statuses == [499] * (len(two.asked) - 1) + [400], "the last is the one that was too much"
        assert {record.who for record in two.records} == {"client"}


def test_resets_behind_answers_are_paid_for_by_them(engine: str) -> None:
    """Somebody who cancels as much as he uses is no attacker."""
    with Two(engine, told=SMALL) as two:
        client = two.client()
        two.origin.answers = tuple(ok if n % 2 else None for n in range(400))
        for number in range(1, 800, 4):
            client.send(req(number))
            client.send(rst(number), req(number + 2))
            assert client.seen(number + 2) == "answer 200", number
        assert two.counts("reset_flood") == 0
        assert two.statuses.count(499) == two.statuses.count(200) == 200


def test_resets_are_counted_by_the_minute(engine: str) -> None:
    """Who cancels a little, all day long, is not let go in the evening."""
    with Two(engine, None, told=SMALL) as two:
        client, number = two.client(), 1
        for _ in range(4):
            for _ in range(45):
                client.send(req(number))
                client.send(rst(number))
                number += 2
            two.advance(61)
        assert not client.peer.goaways
        client.send(b"".join(req(number + 2 * n) + rst(number + 2 * n) for n in range(100)))
        calm(two, client, "reset_flood")


def test_connections_to_an_upstream_are_not_more_than_its_pool_has_whatever_is_reset(engine: str) -> None:
    """Each reset ends a connection of HTTP/1; the next is made when that is gone, and not before."""
    with Two(engine, None, behind="http1", pool={"maxPerEndpoint": 3}) as two:
        client, most = two.client(), 0
        for number in range(1, 401, 4):
            client.send(req(number, b"/a"), req(number + 2, b"/b"))
            client.send(rst(number), rst(number + 2))
            most = max(most, sum(served.lost is None for served in two.origin.connections))
        assert most <= 3
        assert all(served.lost is not None for served in two.origin.connections)
        assert two.statuses == [499] * 200


FAULTS = {
    "more than content-length says": lambda n: (
        req(n, b"/", b"POST", [(b"content-length", b"1")], end=False) + data(n, b"xx")
    ),
    "trailers that are none": lambda n: req(n, b"/", b"POST", end=False) + headers(n, fields([(b":path", b"/")])),
    "a head that is none": lambda n: req(n, more=[(b"X-Upper", b"1")]),
    "a field of the connection": lambda n: req(n, more=[(b"connection", b"close")]),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_faults_that_make_us_reset_streams_are_counted_like_resets(engine: str, fault: str) -> None:
    """CVE-2025-8671, MadeYouReset: work is begun, then given up by ourselves."""
    with Two(engine, None, told=SMALL, early=True) as two:
        client, number = two.client(), 1
        while not client.peer.closed and number < 400:
            client.send(FAULTS[fault](number))
            number += 2
        calm(two, client, "reset_flood")
        assert 40 < len(two.records) < 60
        assert set(two.statuses) == {400}
        assert all(asked.reset is not None for asked in two.asked)


# -- who resets what


def test_a_download_that_is_reset_is_cancelled_upstream_and_others_go_on(engine: str) -> None:
    with Two(engine, None) as two:
        client = two.client()
        client.send(req(1, b"/a"), req(3, b"/b"))
        two.reply(res(1, end=False), data(1, b"half"), which=0)
        client.send(rst(1))
        first, second = two.asked
        assert (first.reset, second.reset) == (CANCEL, None)
        two.reply(ok(second))
        assert client.seen(3) == "answer 200"
        assert [(record.target, record.status, record.error != "") for record in two.records] == [
            ("/a", 200, True),
            ("/b", 200, False),
        ]


def test_an_upload_that_is_reset_is_no_whole_request_upstream(engine: str) -> None:
    with Two(engine, None, early=True) as two:
        client = two.client()
        client.send(req(1, b"/", b"POST", end=False), data(1, b"half"))
        client.send(rst(1))
        (asked,) = two.asked
        assert asked.message.content == b"half"
        assert not asked.message.ended
        assert asked.reset == CANCEL


def test_a_reset_of_an_answered_stream_changes_nothing(engine: str) -> None:
    with Two(engine) as two:
        client = two.client()
        client.send(req(1))
        client.send(rst(1, NO_ERROR), rst(1, 0xBADC0DE))
        client.send(req(3))
        assert client.seen(3) == "answer 200"
        assert two.statuses == [200, 200]
        assert {record.error for record in two.records} == {""}


# -- C9: what comes for a stream that is gone still takes, and gives back, the window of the connection


def refuse(asked: Asked) -> bytes:
    """An answer that waits for nothing."""
    return res(asked.stream, b"413")


def level_of_upstream(two: Two, client: Client, number: int) -> int:
    """As L{Client.level}, of the one connection to the origin: by answers of one frame."""
    (served,) = two.origin.connections
    two.origin.answers = (lambda asked: res(asked.stream, end=False) + data(asked.stream, bytes(1000), True),)
    found = room(served)
    for n in range(number, number + 600, 2):
        client.send(req(n), window(0, 1000))
        found = max(found, room(served))
    return found


WHOLE = 64 << 10
"""The window of a connection as it was at the start; nothing less will do."""


@pytest.mark.parametrize("pad", [None, 0, 200])
def test_content_of_streams_that_were_answered_early_is_credited_to_the_connection(
    engine: str, pad: int | None
) -> None:
    with Two(engine, refuse, told=TIGHT, early=True) as two:
        client = two.client()
        for number in range(1, 41, 2):
            client.send(req(number, b"/", b"POST", end=False))
            assert client.message(number).status == 413
            assert client.resets[number] == NO_ERROR
            pieces = min(client.room() // 5300, 5)  # what was on its way when it heard of that
            client.send(*[data(number, bytes(5000), pad=pad) for _ in range(pieces)])
        assert sum(client.peer.spent.values()) > 5 * WHOLE
        two.origin.answers, two.origin.early = (ok,), False
        assert client.level(101) == WHOLE


FAULTY = {
    "more than content-length says": lambda n: [data(n, bytes(5000), pad=99), data(n, bytes(5000), True, 99)],
    "trailers that are none": lambda n: [data(n, bytes(5), pad=99), headers(n, fields([(b":path", b"/")]))],
    "and more behind it": lambda n: [data(n, bytes(6)), data(n, bytes(5000), pad=0), data(n, b"", pad=255)],
}


@pytest.mark.parametrize("fault", FAULTY)
def test_content_of_streams_that_were_reset_for_a_fault_is_credited_to_the_connection(engine: str, fault: str) -> None:
    with Two(engine, None, told={"connectionWindow": "1MiB", "streams": 4}, early=True) as two:
        client = two.client()
        for number in range(1, 31, 2):
            client.send(req(number, b"/", b"POST", [(b"content-length", b"5")], end=False), *FAULTY[fault](number))
            assert client.resets[number] == PROTOCOL_ERROR
        two.origin.answers, two.origin.early = (ok,), False
        assert client.level(501, 600) == 1 << 20


def test_a_connection_that_an_engine_takes_credit_from_is_left_before_that_stops_anybody(engine: str) -> None:
    """ngh2 drops, uncredited, the last frame of content that is shorter than it said."""
    with Two(engine, None, told=TIGHT | {"connectionWindow": "256KiB"}, early=True) as two:
        client, number = two.client(), 1
        while not client.peer.goaways and number < 400:
            head = req(number, b"/", b"POST", [(b"content-length", b"9999")], end=False)
            client.send(head, data(number, bytes(9000), True))
            assert client.resets[number] == PROTOCOL_ERROR
            assert client.room() > 128 << 10
            number += 2
        if engine == "ngh2":
            assert client.peer.goaways[-1][1] == NO_ERROR
        else:
            assert not client.peer.goaways
            two.origin.answers, two.origin.early = (ok,), False
            assert client.level(501) == 256 << 10


def test_a_stream_that_is_reset_within_a_frame_keeps_nothing_of_the_connection_s_window(engine: str) -> None:
    """That of the client, which uploads, and that of the upstream, whose answer its client gives up."""
    with Two(engine, None, told=TIGHT, early=True) as two:
        client = two.client()
        frame = data(0, bytes(9000), pad=100)
        for number in range(1, 121, 2):
            client.send(req(number, b"/", b"POST", end=False))
            asked = two.asked[-1]
            up, down = (frame[:5] + n.to_bytes(4, "big") + frame[9:] for n in (number, asked.stream))
            two.reply(res(asked.stream, end=False))
            # Half a frame each way; then the origin is done, and the client gives up.
            client.peer.said(up)
            client.transport.write(up[:4000])
            asked.end.peer.said(down)
            asked.end.transport.write(down[:4000])
            two.run()
            client.transport.write(up[4000:] if number % 4 == 1 else up[4000:8000])
            two.run()
            client.transport.write(b"" if number % 4 == 1 else up[8000:])
            client.send(rst(number))
            asked.end.transport.write(down[4000:])
            two.run()
            assert asked.reset == CANCEL
            assert two.counts("malformed_frame") == 0
        two.origin.answers, two.origin.early = (ok,), False
        assert client.level(501) == WHOLE
        assert level_of_upstream(two, client, 1501) == WHOLE


def test_answers_that_nobody_wants_any_more_are_credited_to_the_upstream(engine: str) -> None:
    """The origin goes on for a while, since it has not heard yet that its answer is cancelled."""
    with Two(engine, None, told=TIGHT) as two:
        client = two.client()
        for number in range(1, 81, 2):
            client.send(req(number))
            asked = two.asked[-1]
            asked.end.write(res(asked.stream, end=False) + data(asked.stream, bytes(5000)))
            client.write(rst(number))
            two.run()
            assert asked.reset == CANCEL
            two.reply(data(asked.stream, bytes(10_000)), data(asked.stream, b"", pad=255))
        (served,) = two.origin.connections
        assert sum(served.peer.spent.values()) > 5 * WHOLE
        assert level_of_upstream(two, client, 501) == WHOLE


# -- C11: what a reset stream had queued is dropped


def test_what_a_reset_stream_had_queued_is_dropped_and_the_window_is_for_others(engine: str) -> None:
    def large(asked: Asked) -> bytes:
        body = bytes([64 + len(two.asked)]) * 60_000
        return res(asked.stream, end=False) + b"".join(
            data(asked.stream, body[at : at + 15_000], at == 45_000) for at in range(0, 60_000, 15_000)
        )

    with Two(engine, large) as two:
        client = two.client()
        client.send(req(1), req(3), req(5))
        got = {number: len(client.message(number).content) for number in (1, 3, 5)}
        assert sum(got.values()) == 65535, "the window of the connection"
        client.send(rst(1), rst(3))
        before = len(client.message(5).content)
        client.send(window(0, 1000))
        assert len(client.message(5).content) == before + min(1000, 60_000 - before)
        client.send(window(0, 100_000))
        assert client.seen(5) == "answer 200"
        assert client.message(5).content == b"C" * 60_000
        client.send(req(7))
        assert client.message(7).status == 200, "nothing is stuck"
        client.send(rst(7))


def test_a_stream_that_waits_for_its_window_is_dropped_and_the_next_is_answered(engine: str) -> None:
    def answer(asked: Asked) -> bytes:
        return res(asked.stream, end=False) + b"".join(data(asked.stream, bytes(15_000), n == 3) for n in range(4))

    with Two(engine, answer, ok) as two:
        client = two.client({4: 0})
        client.send(req(1))
        assert client.message(1).content == b""
        client.send(rst(1))
        client.send(req(3), window(3, 10))
        assert client.seen(3) == "answer 200"
        assert client.message(3).content == b"ok"
        (link,) = two.links("Server")
        assert not link.streams
        assert not link.blocked


# -- C27: resets and GOAWAY in one read leave nothing behind


def test_an_upstream_that_resets_and_leaves_in_one_read_leaves_nothing_behind(engine: str) -> None:
    """CVE-2023-35945."""

    def leave(asked: Asked) -> bytes:
        return (
            headers(asked.stream, fields([(b":status", b"200")]), end=False)
            + rst(asked.stream, 2)
            + goaway(asked.stream)
        )

    with Two(engine, leave) as two:
        for number in range(1, 21, 2):
            client = two.client()
            client.send(req(number))
            assert client.message(number).status == 502 or client.resets[number] != NO_ERROR
            client.transport.loseConnection()
            two.run()
        assert len(two.origin.connections) == 10
        assert all(served.lost is not None for served in two.origin.connections)
        assert two.links() == []
        assert {record.who for record in two.records} == {"upstream"}
