"""Requests that are sent again, whatever clients and upstreams speak: when, with what content, and how it may end."""

from __future__ import annotations

import pytest
from several import Several
from two import BOTH

from protogate.testing.bodies import Giver

BEHIND = [
    pytest.param("http1", "auto", id="http1"),
    *(pytest.param("http2", *each.values, id=f"http2-{each.values[0]}", marks=each.marks) for each in BOTH),
    pytest.param("sotp", "auto", id="sotp"),
]
"""What upstreams speak, and the engine of HTTP/2."""
FRONT = ["http1", "http2", "sotp"]
behind = pytest.mark.parametrize(("behind", "engine"), BEHIND)
front = pytest.mark.parametrize("front", FRONT)
LATE = {"timeouts": {"responseHead": "1s"}}
LONG = {"backoff": "60s", "maxBackoff": "60s"}
"""Pauses that are surely not over soon."""


def earlier(town):
    return [(each.address, each.status, each.error) for each in town.record.earlier or ()]


def address(asked):
    return f"192.0.2.{asked.origin + 1}:80"


# -- reasons


@behind
def test_a_connection_that_is_lost(behind, engine):
    with Several("http1", behind, engine=engine, retry={"on": ["reset"]}) as town:
        answer = town.ask()
        first = town.at(0)
        town.origins[first.origin].abort()
        town.pass_by(0.4)
        second = town.at(1)
        assert second.origin != first.origin
        second.give(200, b"ok")
        assert (answer.status, answer.content.data) == (200, b"ok")
        assert (town.record.attempts, town.record.address) == (2, address(second))
        ((where, status, error),) = earlier(town)
        assert (where, status, bool(error)) == (address(first), 0, True)
        assert town.counts("retry_sent") == 1


@behind
def test_it_is_passed_on_where_nobody_said_so(behind, engine):
    with Several("http1", behind, engine=engine) as town:
        answer = town.ask()
        town.origins[town.at(0).origin].abort()
        town.pass_by(0.4)
        assert answer.status == 502
        assert (town.record.attempts, town.record.earlier) == (1, None)
        assert len(town.asked) == 1


@front
@behind
def test_an_answer_of_which_no_more_is_wanted(front, behind, engine):
    """Half of its content was there: the rest is stopped, and nothing of it reaches the client."""
    with Several(front, behind, engine=engine, retry={"statuses": "502-504"}) as town:
        answer = town.ask()
        first = town.at(0)
        refused = first.give(503, b"sorry", close=False)
        assert refused.stopped or first.ends
        town.pass_by(0.4)
        town.at(1).give(200, b"ok")
        assert (answer.status, answer.content.data) == (200, b"ok")
        assert earlier(town) == [(address(first), 503, "")]


@behind
@pytest.mark.parametrize("how", [LATE, {}], ids=["responseHead", "perTry"])
def test_an_answer_that_does_not_come(behind, engine, how):
    """Whoever was asked first is told that nobody waits."""
    retry = {"on": ["timeout"], **({} if how else {"perTry": "1s"})}
    with Several("http1", behind, engine=engine, retry=retry, **how) as town:
        answer = town.ask()
        first = town.at(0)
        town.pass_by(1.6)
        assert first.left
        town.at(1).give(200, b"ok")
        assert answer.status == 200
        assert earlier(town) == [(address(first), 0, "responseHead timeout: upstream took more than 1 s")]


@behind
def test_the_failure_of_the_last_attempt_is_told_and_those_of_the_others_stand_in_the_record(behind, engine):
    retry = {"on": ["reset", "timeout"], "statuses": "503", "perTry": "1s"}
    with Several("http1", behind, engine=engine, retry=retry) as town:
        answer = town.ask()
        town.at(0).give(503)
        town.pass_by(0.3)
        town.origins[town.at(1).origin].abort()
        town.pass_by(0.6)
        town.at(2)
        town.pass_by(1.5)
        assert answer.status == 504
        record = town.record
        assert (record.attempts, record.phase, record.who) == (3, "responseHead", "upstream")
        assert [(each.address, each.status) for each in record.earlier] == [
            (address(town.asked[0]), 503),
            (address(town.asked[1]), 0),
        ]
        assert record.earlier[1].error
        # Whatever came before is not of the gateway's making.
        assert record.ms.gateway == 0
        assert record.ms.earlier > 0


@behind
def test_an_old_connection_that_dies_is_not_the_end_of_the_request(behind, engine):
    """Case B1: it is made anew, once, for what may be repeated."""
    with Several("http1", behind, engine=engine, origins=1) as town:
        town.ask()
        town.at(0).give(204)
        for method, again in ((b"GET", True), (b"POST", False)):
            before = len(town.asked)
            answer = town.ask(method)
            town.at(before)
            town.origins[0].abort()
            if again:
                town.at(before + 1).give(204)
            assert answer.status == (204 if again else 502)
            assert town.records[-1].attempts == 1 + again


# -- content


@behind
@pytest.mark.parametrize("said", [False, True])
def test_content_is_sent_again_whole_or_not_at_all(behind, engine, said):
    """Case B3: the upstream goes when it has read a part; never is the tail sent alone."""
    retry = {"on": ["reset"], "methods": ["GET", "POST"] if said else ["GET"]}
    with Several("http2", behind, engine=engine, retry=retry) as town:
        upload = Giver([b"a" * 4096], 20480, close=False)
        answer = town.ask(b"POST", upload.body)
        first = town.at(0)
        assert first.content.data == b"a" * 4096
        town.origins[first.origin].abort()
        town.pass_by(0.4)
        if said:
            upload.write(b"b" * 16384)
            upload.finish()
            town.run()
            second = town.at(1)
            assert second.content.data == b"a" * 4096 + b"b" * 16384
            assert second.content.finished
            second.give(204)
        assert answer.status == (204 if said else 502)
        assert not first.content.finished
        assert len(town.asked) == 1 + said


@front
def test_content_is_sent_again_from_any_client(front):
    with Several(front, retry={"statuses": "503", "methods": ["POST"]}) as town:
        answer = town.ask(b"POST", Giver([b"one", b"two"], 6).body)
        town.at(0).give(503)
        town.pass_by(0.4)
        second = town.at(1)
        assert (second.content.data, second.content.finished) == (b"onetwo", True)
        second.give(200, b"ok")
        assert answer.status == 200


@behind
def test_more_content_than_is_kept_is_sent_once(behind, engine):
    """It is passed on as it comes, and the failure with it."""
    with Several(
        "http1", behind, engine=engine, retry={"on": ["reset"], "methods": ["POST"], "buffer": "1KiB"}
    ) as town:
        upload = Giver([b"a" * 2048], None, close=False)
        answer = town.ask(b"POST", upload.body)
        town.origins[town.at(0).origin].abort()
        town.pass_by(0.4)
        assert answer.status == 502
        assert len(town.asked) == 1


def test_a_copy_is_made_once_of_all_that_was_asked_first():
    """Where a module copies requests to another upstream, what is sent again is not copied again."""
    copy = {"name": "trafficCopy", "actionParam": {"upstream": "copies"}}
    retry = {"statuses": "503", "methods": ["POST"]}
    with Several(modules=[copy], upstreams=["copies"], retry=retry) as town:
        answer = town.ask(b"POST", Giver([b"one", b"two"], 6).body)
        first, copied = town.asked
        assert copied.origin == 2
        first.give(503)
        town.pass_by(0.4)
        second = town.at(2)
        assert second.origin < 2
        assert [each.content.data for each in town.asked] == [b"onetwo"] * 3
        second.give(200, b"ok")
        copied.give(204)
        assert answer.status == 200
        assert town.record.attempts == 2


def test_another_upstream_is_given_all_of_it_when_attempts_are_used_up():
    """Where a module asks another upstream instead, its record tells of both."""
    instead = {"name": "degrade", "actionParam": {"when": {"statuses": ["503"]}, "give": [{"upstream": "reserve"}]}}
    retry = {"statuses": "503", "methods": ["POST", "PUT"], "attempts": 2}
    with Several(modules=[instead], upstreams=["reserve"], retry=retry) as town:
        answer = town.ask(b"PUT", Giver([b"one", b"two"], 6).body)
        town.at(0).give(503)
        town.pass_by(0.4)
        town.at(1).give(503)
        reserve = town.at(2)
        assert reserve.origin == 2
        assert [each.content.data for each in town.asked] == [b"onetwo"] * 3
        reserve.give(200, b"ok")
        assert (answer.status, answer.content.data) == (200, b"ok")
        assert (town.record.attempts, town.record.address) == (3, address(reserve))
        made = earlier(town)
        assert [where for where, _, _ in made] == [address(each) for each in town.asked[:2]]
        assert made[0][1:] == (503, "")
        assert "503" in made[1][2]


# -- calls


CALL = [(b"content-type", b"application/grpc"), (b"te", b"trailers")]
MESSAGE = b"\0\0\0\0\2hi"


@pytest.mark.parametrize("engine", BOTH)
@pytest.mark.parametrize(
    ("told", "again"),
    [
        ([(b"grpc-status", b"14")], True),
        ([(b"grpc-status", b"14"), (b"grpc-retry-pushback-ms", b"100")], True),
        ([(b"grpc-status", b"14"), (b"grpc-retry-pushback-ms", b"-1")], False),
        ([(b"grpc-status", b"14"), (b"grpc-retry-pushback-ms", b"60000")], False),
        ([(b"grpc-status", b"8")], False),
    ],
)
def test_a_call_that_finds_nobody_available(engine, told, again):
    retry = {"on": ["unavailable"], "methods": ["POST"]}
    with Several("http2", "http2", engine=engine, retry=retry) as town:
        answer = town.ask(b"POST", Giver([MESSAGE]).body, CALL)
        first = town.at(0)
        first.give(200, fields=[*CALL[:1], *told])
        town.pass_by(0.4)
        if again:
            second = town.at(1)
            assert second.content.data == MESSAGE
            second.give(200, fields=[*CALL[:1], (b"grpc-status", b"0")])
            assert earlier(town) == [(address(first), 200, "grpc-status 14")]
        assert len(town.asked) == 1 + again
        assert dict(answer.response.headers)[b"grpc-status"] == (b"0" if again else dict(told)[b"grpc-status"])


# -- it ends in between


@front
def test_a_client_leaves_in_a_pause(front):
    with Several(front, retry={"statuses": "503", **LONG}) as town:
        answer = town.ask()
        first = town.at(0)
        first.give(503)
        answer.leave()
        town.pass_by(61)
        assert len(town.asked) == 1
        assert (town.record.status, town.record.attempts) == (499, 1)
        assert earlier(town) == [(address(first), 503, "")]


@behind
def test_a_client_leaves_in_a_second_attempt(behind, engine):
    with Several("http2", behind, engine=engine, retry={"statuses": "503"}) as town:
        answer = town.ask()
        town.at(0).give(503)
        town.pass_by(0.4)
        second = town.at(1)
        answer.leave()
        assert second.left
        assert (town.record.status, town.record.attempts) == (499, 2)


@front
@pytest.mark.parametrize("whose", ["total", "deadline"])
def test_the_time_is_over_in_a_pause(front, whose):
    settings = {"timeouts": {"total": "1s"}} if whose == "total" else {}
    listener = {"deadlineHeader": "x-left-ms"}
    with Several(front, gateway=settings, listener=listener, retry={"statuses": "503", **LONG}) as town:
        answer = town.ask(fields=[(b"x-left-ms", b"1000")] if whose == "deadline" else ())
        town.pass_by(0.95)
        town.at(0).give(503)
        town.pass_by(0.5)
        assert answer.status == (500 if whose == "total" else 504)
        assert town.record.phase == whose
        town.pass_by(61)
        assert len(town.asked) == 1


# -- whatever becomes of it, the next one finds room


def fails(town, answer):
    town.origins[town.at(0).origin].abort()
    town.pass_by(0.4)
    town.at(1).give(204)


def answers(town, answer):
    town.at(0).give(503, b"x", close=False)
    town.pass_by(0.4)
    town.at(1).give(204)


def takes_long(town, answer):
    town.pass_by(1.6)
    town.asked[-1].give(204)


def leaves(town, answer):
    answer.leave()


def leaves_in_a_pause(town, answer):
    town.at(0).give(503)
    answer.leave()


def leaves_both(town, answer):
    town.pass_by(0.6)
    town.at(1)
    answer.leave()


def second_wins(town, answer):
    town.pass_by(0.6)
    town.at(1).give(204)


def first_wins(town, answer):
    town.pass_by(0.6)
    town.at(1)
    town.asked[0].give(200, b"ok")


def neither_wins(town, answer):
    town.pass_by(0.6)
    for origin in town.origins:
        origin.abort()
    town.pass_by(1)
    town.asked[-1].give(204)


WAYS = [fails, answers, takes_long, leaves, leaves_in_a_pause, leaves_both, second_wins, first_wins, neither_wins]


@behind
@pytest.mark.parametrize("way", WAYS)
def test_one_connection_is_free_again(behind, engine, way):
    """Case B27: a pool of one, an exit of every kind, and a request at once."""
    retry = {"on": ["reset", "timeout"], "statuses": "503", "perTry": "1s"}
    hedge = {"after": "500ms"} if way in (leaves_both, second_wins, first_wins, neither_wins) else None
    with Several(
        "http2", behind, engine=engine, pool={"maxPerEndpoint": 1}, retry=retry, **({"hedge": hedge} if hedge else {})
    ) as town:
        answer = town.ask()
        way(town, answer)
        assert len(town.records) == 1
        town.check()
        for _ in town.origins:
            before = len(town.asked)
            answer = town.ask()
            town.at(before).give(200, b"ok")
            assert answer.status == 200
