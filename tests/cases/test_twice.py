"""Requests that two endpoints are asked, whatever they speak: who answers, and what becomes of the other attempt."""

from __future__ import annotations

import pytest
from several import Several
from test_again import BEHIND, address, behind, earlier, front

from protogate.message import Response
from protogate.testing.bodies import Giver

AFTER = {"hedge": {"after": "500ms"}}


def both(town):
    """The second attempt is under way, too."""
    town.pass_by(0.6)
    first, second = town.asked
    assert first.origin != second.origin
    return first, second


@front
@behind
@pytest.mark.parametrize("winner", [0, 1])
def test_the_first_head_is_the_answer_and_the_other_attempt_is_ended_at_once(front, behind, engine, winner):
    """In the words of its protocol: a stream is reset, and its connection stays; HTTP/1 has only the end of that."""
    with Several(front, behind, engine=engine, **AFTER) as town:
        answer = town.ask()
        pair = both(town)
        loser = pair[1 - winner]
        pair[winner].give(200, b"ok")
        assert (answer.status, answer.content.data) == (200, b"ok")
        assert loser.left
        assert len(town.origins[loser.origin].connections) == (behind != "http1")
        record = town.record
        assert (record.attempts, record.address, record.hedge) == (2, address(pair[winner]), bool(winner))
        quicker = "the second attempt was quicker" if winner else "the first attempt was quicker"
        assert earlier(town) == [(address(loser), 0, quicker)]
        assert (town.counts("hedge_sent"), town.counts("hedge_won")) == (1, winner)
        assert record.ms.gateway == 0


@behind
def test_two_heads_in_the_same_turn(behind, engine):
    """One is passed on, of the other nothing is left."""
    with Several("http1", behind, engine=engine, **AFTER) as town:
        answer = town.ask()
        pair = both(town)
        givers = [Giver([b"%d" % each.origin], None, close=False) for each in pair]
        for each, giver in zip(pair, givers, strict=True):
            each.answer.callback(Response(200, [(b"x-origin", b"%d" % each.origin)], giver.body))
        town.run()
        assert answer.status == 200
        which = [each.origin for each in pair].index(int(dict(answer.response.headers)[b"x-origin"]))
        givers[which].finish()
        town.run()
        assert answer.content.finished
        assert answer.content.data == b"%d" % pair[which].origin
        assert givers[1 - which].stopped


@behind
@pytest.mark.parametrize("which", [0, 1])
def test_a_failure_leaves_it_to_the_other(behind, engine, which):
    with Several("http1", behind, engine=engine, **AFTER) as town:
        answer = town.ask()
        pair = both(town)
        town.origins[pair[which].origin].abort()
        assert answer.status == 0
        pair[1 - which].give(204)
        assert answer.status == 204
        assert town.record.hedge is (which == 0)
        ((where, status, error),) = earlier(town)
        assert (where, status) == (address(pair[which]), 0)
        assert "quicker" not in error


@behind
def test_a_failure_that_the_second_attempt_answers_is_no_answer_while_there_may_be_one(behind, engine):
    with Several("http1", behind, engine=engine, **AFTER) as town:
        answer = town.ask()
        first, second = both(town)
        given = second.give(503, b"no", close=False)
        assert given.stopped or second.ends
        assert answer.status == 0
        first.give(200, b"ok")
        assert (answer.status, answer.content.data) == (200, b"ok")
        assert (town.record.attempts, town.record.hedge) == (2, False)
        assert earlier(town) == [(address(second), 503, "")]


def test_it_is_one_when_the_first_has_failed_already():
    with Several(**AFTER) as town:
        answer = town.ask()
        first, second = both(town)
        town.origins[first.origin].abort()
        second.give(503)
        assert answer.status == 503
        assert town.record.hedge


@behind
def test_both_fail(behind, engine):
    with Several("http1", behind, engine=engine, **AFTER) as town:
        answer = town.ask()
        pair = both(town)
        for each in pair:
            town.origins[each.origin].abort()
        assert answer.status == 502
        assert (town.record.attempts, town.record.hedge, town.record.address) == (2, False, address(pair[0]))
        assert [where for where, _, _ in earlier(town)] == [address(pair[1])]
        assert town.record.error


@front
@pytest.mark.parametrize("behind", ["http1", "http2", "sotp"])
def test_a_client_leaves_two_attempts(front, behind):
    with Several(front, behind, **AFTER) as town:
        answer = town.ask()
        pair = both(town)
        answer.leave()
        assert [each.left for each in pair] == [True, True]
        assert (town.record.status, town.record.attempts) == (499, 2)
        assert earlier(town) == [(address(pair[1]), 0, "no answer either")]


@behind
def test_the_time_is_over_for_both(behind, engine):
    with Several("http1", behind, engine=engine, gateway={"timeouts": {"total": "1s"}}, **AFTER) as town:
        answer = town.ask()
        pair = both(town)
        town.pass_by(0.6)
        assert answer.status == 500
        assert [each.left for each in pair] == [True, True]


@behind
def test_a_second_attempt_takes_too_long_itself(behind, engine):
    """The first is asked elsewhere when its time is over, the second is not."""
    retry = {"on": ["timeout"], "perTry": "2s"}
    with Several("http1", behind, engine=engine, origins=3, retry=retry, **AFTER) as town:
        answer = town.ask()
        pair = both(town)
        town.pass_by(1.8)
        assert pair[0].left
        third = town.at(2)
        assert not pair[1].left
        town.pass_by(0.5)
        assert pair[1].left
        third.give(204)
        assert answer.status == 204
        assert (town.record.attempts, town.record.hedge, town.record.address) == (3, False, address(third))
        assert {where for where, _, _ in earlier(town)} == {address(pair[0]), address(pair[1])}


@pytest.mark.parametrize("front", ["http1", "http2"])
@pytest.mark.parametrize(("behind", "engine"), [each for each in BEHIND if each.id != "sotp"])
def test_hints_are_those_of_the_first_attempt(front, behind, engine):
    with Several(front, behind, engine=engine, **AFTER) as town:
        answer = town.ask()
        first, second = both(town)
        second.hint(b"</second>")
        first.hint(b"</first>")
        second.give(204)
        assert [dict(each.headers)[b"link"] for each in answer.hints] == [b"</first>"]
        assert answer.status == 204


def test_each_endpoint_is_asked_by_its_own_name():
    with Several(host="endpoint", **AFTER) as town:
        town.ask()
        first, second = both(town)
        for each in (first, second):
            assert each.request.authority == b"192.0.2.%d" % (each.origin + 1)
        second.give(204)


def test_a_second_attempt_does_not_go_where_the_first_one_is_by_now():
    """The first endpoint refused, and it is asked at the second: a third one is asked as well."""
    with Several(origins=3, retry={"statuses": "503"}, **AFTER) as town:
        answer = town.ask()
        town.at(0).give(503)
        town.pass_by(0.6)
        assert len({each.origin for each in town.asked}) == len(town.asked) == 3
        town.asked[2].give(204)
        assert answer.status == 204
        assert [status for _, status, _ in earlier(town)] == [503, 0]
        assert (town.record.attempts, town.record.hedge) == (3, True)
