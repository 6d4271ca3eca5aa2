"""What is sent again, asked twice, copied or answered otherwise, where content, pools and connections have an end."""

from __future__ import annotations

import pytest
from edge import GET, OK, answer, config, heads
from mixture import ONE, held, mixture
from several import Several

from protogate.testing.bodies import Giver
from protogate.testing.gateway import MemoryGateway
from protogate.testing.upstream import Expect

CODECS = ["http1", "http2", "sotp"]
front = pytest.mark.parametrize("front", CODECS)
behind = pytest.mark.parametrize("behind", CODECS)
AGAIN = {"statuses": "503", "methods": ["GET", "POST"]}


# -- B3: content


@front
@behind
def test_an_answer_that_comes_within_the_content_has_it_sent_again_whole(front, behind):
    with Several(front, behind, retry=AGAIN) as town:
        upload = Giver([b"a" * 4096], 20480, close=False)
        got = town.ask(b"POST", upload.body)
        first = town.at(0)
        assert first.content.data == b"a" * 4096
        first.give(503)
        town.pass_by(0.4)
        upload.write(b"b" * 16384)
        upload.finish()
        town.run()
        second = town.at(1)
        assert second.origin != first.origin
        assert (second.content.data, second.content.finished) == (b"a" * 4096 + b"b" * 16384, True)
        assert not first.content.finished
        second.give(200, b"ok")
        assert (got.status, got.content.data, town.record.attempts) == (200, b"ok", 2)


@front
@behind
def test_an_answer_that_comes_when_a_part_of_the_content_is_gone_is_passed_on(front, behind):
    with Several(front, behind, pool=ONE, retry={**AGAIN, "buffer": "1KiB"}) as town:
        upload = Giver([b"a" * 4096], 20480, close=False)
        got = town.ask(b"POST", upload.body)
        first = town.at(0)
        assert first.content.size == 4096
        first.give(503, b"no")
        town.pass_by(0.4)
        assert (got.status, got.content.data) == (503, b"no")
        if not upload.stopped:
            upload.write(b"b" * 16384)
            upload.finish()
            town.run()
        assert len(town.asked) == 1
        assert town.record.attempts == 1
        got = town.ask()
        town.at(1).give(204)
        assert got.status == 204


@front
@behind
@pytest.mark.parametrize("status", [413, 200])
def test_an_answer_within_kept_content_that_is_no_reason_ends_the_upload(front, behind, status):
    """Case B17: the answer is heard, and what was kept for another attempt is not waited for."""
    with Several(front, behind, pool=ONE, retry=AGAIN) as town:
        upload = Giver([b"a" * 4096], 20480, close=False)
        got = town.ask(b"POST", upload.body)
        town.at(0).give(status, b"no")
        assert (got.status, got.content.data) == (status, b"no")
        if not upload.stopped:
            upload.write(b"b" * 16384)
            upload.finish()
        town.pass_by(0.4)
        assert town.record.attempts == 1
        for turn in (1, 2):
            got = town.ask()
            town.at(turn).give(204)
            assert got.status == 204


# -- B15: an upload that is cut off


@front
@behind
@pytest.mark.parametrize("when", ["in the pause", "in the second attempt"])
def test_content_that_is_cut_off_is_never_completed_by_another_attempt(front, behind, when):
    with Several(front, behind, pool=ONE, retry=AGAIN) as town:
        upload = Giver([b"a" * 4096], 20480, close=False)
        got = town.ask(b"POST", upload.body)
        town.at(0).give(503)
        if when == "in the second attempt":
            town.pass_by(0.4)
            assert town.at(1).content.data == b"a" * 4096
        got.leave()
        town.pass_by(1)
        assert len(town.asked) == (1 if when == "in the pause" else 2)
        assert not any(each.content.finished for each in town.asked)
        assert (town.record.status, town.record.attempts) == (499, len(town.asked))
        assert held(town) == {}


# -- B5: bytes that nobody has asked for


def two(**origin):
    urls = [{"url": f"http://192.0.2.{each}"} for each in (1, 2)]
    return MemoryGateway(config(origin={"endpoints": urls, **origin}))


def asks(gateway):
    client = gateway.client()
    client.send(GET % b"/")
    gateway.run()
    return client


def ends(gateway, *clients):
    for client in clients:
        client.close()
    gateway.run()


@pytest.mark.parametrize("winner", [0, 1])
def test_the_answer_of_who_was_not_quicker_is_nobodys(winner):
    """It crosses the end of its attempt; who asks that endpoint next gets an answer of its own."""
    with two(hedge={"after": "100ms", "budget": 100}) as gateway:
        origins = [gateway.upstream(f"192.0.2.{each}", 80, [Expect(b"\r\n\r\n")]) for each in (1, 2)]
        first = asks(gateway)
        if not origins[0].connections:
            origins.reverse()
        gateway.advance(0.2)
        quick, slow = origins[winner], origins[1 - winner]
        slow.connections[0].send(OK.replace(b"\r\n\r\nok", b"\r\n\r\nno")[:-1])
        quick.connections[0].send(OK)
        gateway.run()
        assert answer(first.received).status == 200
        lost = [each for each in (*quick.connections, *slow.connections) if each.eof or each.lost]
        assert len(lost) == 1
        more = [asks(gateway) for _ in range(2)]
        for origin in origins:
            for each in origin.connections:
                if each not in lost and each.received.count(b"GET") > (each is quick.connections[0]):
                    each.send(OK)
        gateway.run()
        assert [answer(each.received).body for each in more] == [b"ok"] * 2
        ends(gateway, first, *more)


@pytest.mark.parametrize("when", ["at once", "in the pause"])
def test_what_comes_behind_an_answer_that_is_not_passed_on_is_no_answer_to_the_next_attempt(when):
    retry = {"statuses": "503", "backoff": "1s", "maxBackoff": "1s"}
    with MemoryGateway(config(origin={"retry": retry})) as gateway:
        origin = gateway.upstream("192.0.2.7", 80, [Expect(b"\r\n\r\n")])
        client = asks(gateway)
        stray = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nstray"
        refusal = b"HTTP/1.1 503 x\r\nContent-Length: 0\r\n\r\n"
        if when == "at once":
            origin.connections[0].send(refusal + stray)
        else:
            origin.connections[0].send(refusal)
            gateway.run()
            origin.connections[0].send(stray)
        gateway.run()
        gateway.advance(1.1)
        assert client.received == b""
        assert len(origin.connections) == 2
        assert len(heads(origin.connections[0])) == 1
        origin.connections[1].send(OK)
        gateway.run()
        assert answer(client.received).body == b"ok"
        assert gateway.records[0].attempts == 2
        ends(gateway, client)


# -- B27: a pool of one, everything configured, and whatever becomes of a request


def last(town, number):
    """The last one that this origin was asked and has not answered."""
    found = [each for each in town.asked if each.origin == number and not each.answer.called and not each.ends]
    return found[-1]


def fails(town, status=503):
    """Every attempt at C{several}."""
    for _ in range(3):
        for each in list(town.asked):
            if each.origin < 2 and not each.answer.called and not each.ends:
                each.give(status, b"no")
        town.pass_by(0.3)


def is_answered(town, got):
    town.asked[0].give(200, b"ok")
    last(town, 3).give(200, b"ok")


def is_answered_without_its_copy(town, got):
    """Which is given up in the end."""
    town.asked[0].give(200, b"ok")


def leaves_its_copy(town, got):
    got.leave()


def breaks_off(town, got):
    town.asked[0].give(200, b"par", close=False)
    town.origins[town.asked[0].origin].abort()


def breaks_off_both(town, got):
    town.pass_by(0.5)
    for origin in town.origins[:2]:
        origin.abort()
    town.pass_by(0.3)
    fails(town)
    last(town, 4).give(200, b"spare")


def is_helped(town, got):
    fails(town)
    last(town, 4).give(200, b"spare")
    assert got.content.data == b"spare"


def leaves_its_help(town, got):
    fails(town)
    last(town, 4)
    got.leave()


def finds_no_help(town, got):
    fails(town)
    town.origins[4].abort()
    assert got.content.data == b"later"


def is_helped_by_who_breaks_off(town, got):
    fails(town)
    last(town, 4).give(200, b"spa", close=False)
    town.origins[4].abort()


def leaves_in_a_pause(town, got):
    town.asked[0].give(503)
    got.leave()


def is_waited_for_behind_another_one(town, got):
    """Both endpoints are busy, somebody waits, and leaves."""
    second, third = town.ask(fields=USER), town.ask(fields=USER)
    third.leave()
    for each in [each for each in town.asked if each.origin < 2 and not each.ends]:
        each.give(204)
    assert (got.status, second.status) == (204, 204)


def takes_all_its_time(town, got):
    town.pass_by(8)
    last(town, 4).give(200, b"spare")


WAYS = [
    is_answered,
    is_answered_without_its_copy,
    leaves_its_copy,
    breaks_off,
    breaks_off_both,
    is_helped,
    leaves_its_help,
    finds_no_help,
    is_helped_by_who_breaks_off,
    leaves_in_a_pause,
    is_waited_for_behind_another_one,
    takes_all_its_time,
]
USER = [(b"x-user", b"7")]


@pytest.mark.parametrize(("front", "behind"), [("http1", "http1"), ("http2", "sotp"), ("sotp", "http2")])
@pytest.mark.parametrize("way", WAYS)
def test_whatever_becomes_of_it_all_that_it_had_is_free_again(front, behind, way):
    with mixture(front, behind, gray=0) as town:
        got = town.ask(fields=USER)
        assert [each.origin > 1 for each in town.asked] == [False, True], "it, and its copy"
        way(town, got)
        town.pass_by(20)
        assert held(town) == {}
        town.check()
        assert len(town.records) == (3 if way is is_waited_for_behind_another_one else 1)
        for _ in range(2):
            town.asked.clear()
            got = town.ask(fields=USER)
            original, copy = sorted(town.asked, key=lambda asked: asked.origin)
            assert copy.origin == 3
            original.give(200, b"ok")
            copy.give(200, b"ok")
            assert got.status == 200
