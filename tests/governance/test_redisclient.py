"""The connection to a Redis: what it answers, and how soon it says that it cannot."""

from __future__ import annotations

from collections import Counter

import pytest
from twisted.logger import capturedLogs, formatEvent

from protogate.governance import redis as subject
from protogate.governance.redis import Redis, Redises, RedisGone, RedisRefused, Script
from protogate.governance.redissettings import RedisSettings
from protogate.testing.reactor import MemoryReactor
from protogate.testing.redis import RedisServer, encoded
from protogate.testing.upstream import Do, Expect, Upstream
from protogate.wheel import Wheel

HOST = "192.0.2.9"
ADD = Script("add", "return redis.call('INCRBY', KEYS[1], ARGV[1])")


def add(server, keys, args):
    value = int(server.get(keys[0]) or 0) + int(args[0])
    server.put(keys[0], b"%d" % value)
    return value


class Stand:
    """A Redis, and one who asks it."""

    def __init__(self, server=True, secret=b"", **settings):
        self.reactor = MemoryReactor()
        self.wheel = Wheel(self.reactor)
        self.server = RedisServer(self.reactor.seconds, {ADD: add})
        self.server.password = secret
        self.counts = Counter()
        self.port = self.listen() if server else None
        self.redises = Redises(self.reactor, self.wheel, lambda event: self.counts.update([event]))
        self.redis = self.redises.take(RedisSettings(host=HOST, **settings))
        self.reactor.run()

    def listen(self):
        return self.reactor.listenTCP(6379, self.server, interface=HOST)

    def ask(self, *command):
        return self.seen(self.redis.call(*command))

    def seen(self, answer):
        """What a Deferred came to, or []."""
        found = []
        answer.addBoth(found.append)
        self.reactor.run()
        return found

    def close(self):
        self.redises.stop()
        self.reactor.run()
        self.wheel.stop()
        assert self.reactor.getDelayedCalls() == []
        assert self.server.connections == []

    def why(self, found, kind=RedisGone):
        (failure,) = found
        assert failure.check(kind), failure
        return str(failure.value)


@pytest.fixture
def stand():
    made = Stand()
    yield made
    made.close()


def test_commands_are_answered_in_bytes_and_numbers(stand):
    assert stand.ask("SET", "a", b"\xff\x00") == [b"OK"]
    assert stand.ask("GET", b"a") == [b"\xff\x00"]
    assert stand.ask("GET", "nobody") == [None]
    assert stand.ask("SET", "n", 17) == [b"OK"]
    assert stand.ask("GET", "n") == [b"17"], "a number is not guessed"
    assert stand.counts["redis_ok"] == 5


def test_many_commands_go_out_before_the_first_answer(stand):
    answers = [stand.redis.call("SET", f"k{n}", n) for n in range(500)]
    answers += [stand.redis.call("GET", f"k{n}") for n in range(500)]
    found = []
    for answer in answers:
        answer.addCallback(found.append)
    stand.reactor.run()
    assert found[500:] == [b"%d" % n for n in range(500)]


def test_what_is_asked_in_one_turn_goes_out_as_one_piece(stand):
    ((_, wire), _) = stand.reactor.links[-1].ends
    before = wire.writes
    answers = [stand.redis.call("SET", "a", n) for n in range(100)]
    stand.reactor.run()
    assert wire.writes == before + 1
    assert all(answer.called for answer in answers)


def test_a_script_is_sent_once_and_again_when_redis_has_forgotten_it(stand):
    for total in (1, 2, 3):
        assert stand.seen(stand.redis.script(ADD, ["n"], [1])) == [total]
    assert [command[0] for command in stand.server.asked] == [b"PING", b"EVALSHA", b"EVAL", b"EVALSHA", b"EVALSHA"]
    stand.server.known.clear()
    assert stand.seen(stand.redis.script(ADD, ["n"], [1])) == [4]
    assert stand.counts["redis_failed"] == 0, "not knowing a script is no failure"


def test_an_error_is_told_and_the_connection_goes_on(stand):
    stand.server.refusal = "OOM command not allowed when used memory > 'maxmemory'."
    assert stand.why(stand.ask("SET", "a", 1), RedisRefused) == stand.server.refusal
    stand.server.refusal = ""
    assert stand.ask("GET", "a") == [None]
    assert stand.counts["redis_failed"] == 1


def test_that_it_is_gone_is_told_though_something_else_just_was():
    with capturedLogs() as events:
        stand = Stand()
        stand.server.refusal = "WRONGTYPE Operation against a key holding the wrong kind of value"
        for _ in range(3):
            stand.why(stand.ask("GET", "a"), RedisRefused)
        stand.server.drop()
        stand.reactor.advance(1)
    told = [formatEvent(event) or "" for event in events]
    assert [sum(word in text for text in told) for word in ("WRONGTYPE", "no connection to Redis")] == [1, 1]
    stand.close()


def test_without_a_connection_calls_fail_at_once():
    stand = Stand(server=False)
    assert not stand.redis.ready
    assert stand.why(stand.ask("GET", "a")) == "no connection to Redis at 192.0.2.9:6379/0"
    assert stand.why(stand.seen(stand.redis.script(ADD, ["n"], [1]))).startswith("no connection")
    stand.close()


def test_the_connection_is_made_when_there_is_a_redis_at_last():
    stand = Stand(server=False)
    stand.reactor.advance(3)
    tries = stand.counts["redis_failed"]
    assert 4 <= tries <= 6, "each attempt waits twice as long as the one before"
    stand.listen()
    stand.reactor.advance(2 * subject.MOST)
    assert stand.redis.ready
    assert stand.ask("SET", "a", 1) == [b"OK"]
    stand.close()


def test_a_broken_connection_fails_its_calls_at_once_and_is_made_anew(stand):
    stand.server.silent = True
    lost = [stand.redis.call("GET", "a") for _ in range(3)]
    found = []
    for answer in lost:
        answer.addErrback(lambda failure: found.append(failure.type))
    stand.reactor.run()
    stand.server.drop()
    stand.server.silent = False
    stand.reactor.run()
    assert found == [RedisGone] * 3
    assert not stand.redis.ready
    stand.reactor.advance(2 * subject.FIRST)
    assert stand.redis.ready
    assert stand.ask("GET", "a") == [None]


def test_who_waits_in_vain_is_the_last_until_redis_says_something(stand):
    stand.server.silent = True
    found = []
    stand.redis.call("GET", "a").addErrback(lambda failure: found.append(failure.value))
    stand.reactor.advance(0.04)
    assert found == []
    stand.reactor.advance(0.02)
    assert isinstance(found[0], RedisGone)
    assert not stand.redis.ready
    asked = len(stand.server.asked)
    assert stand.why(stand.ask("GET", "b")) == "Redis at 192.0.2.9:6379/0 does not answer"
    assert len(stand.server.asked) == asked, "it is not sent"
    stand.server.speak()
    stand.reactor.run()
    assert stand.redis.ready, "the late answer shows that it is back"
    assert stand.ask("GET", "a") == [None]
    assert stand.counts["redis_timeout"] == 1


def test_a_timeout_holds_for_calls_after_a_slow_moment_too(stand):
    for _ in range(2):
        stand.server.silent = True
        found = []
        stand.redis.call("GET", "a").addErrback(lambda failure, found=found: found.append(failure.type))
        stand.reactor.advance(0.1)
        assert found == [RedisGone]
        stand.server.speak()
        stand.reactor.advance(0.2)
        assert stand.redis.ready


def test_a_silent_redis_is_left_for_a_new_connection(stand):
    stand.server.silent = True
    stand.redis.call("GET", "a").addErrback(lambda _: None)
    stand.reactor.run()
    (before,) = stand.server.connections
    stand.reactor.advance(subject.PATIENCE + 0.2)
    stand.server.silent = False
    stand.reactor.advance(1)
    (after,) = stand.server.connections
    assert after is not before
    assert stand.redis.ready
    assert stand.ask("GET", "a") == [None]


def test_a_cancelled_call_takes_no_other_calls_answer(stand):
    stand.ask("SET", "a", 1)
    stand.ask("SET", "b", 2)
    first, second = stand.redis.call("GET", "a"), stand.redis.call("GET", "b")
    first.addErrback(lambda _: None)
    first.cancel()
    assert stand.seen(second) == [b"2"]


def test_calls_under_way_are_bounded(stand, monkeypatch):
    monkeypatch.setattr(subject, "UNDER_WAY", 3)
    stand.server.silent = True
    waiting = [stand.redis.call("GET", "a") for _ in range(3)]
    assert "3 calls wait for Redis" in stand.why(stand.ask("GET", "a"))
    stand.server.speak()
    assert [stand.seen(each) for each in waiting] == [[None]] * 3


def test_the_password_and_the_database_come_first():
    stand = Stand(secret=b"s3cret", username="gateway", password=b"s3cret", database=3)
    assert stand.redis.ready
    assert stand.server.asked == [[b"AUTH", b"gateway", b"s3cret"], [b"SELECT", b"3"], [b"PING"]]
    stand.close()


def test_a_wrong_password_is_told_without_it_and_tried_again():
    with capturedLogs() as events:
        stand = Stand(secret=b"s3cret", password=b"wr0ng")
        stand.reactor.advance(2)
    assert not stand.redis.ready
    assert stand.counts["redis_failed"] > 1
    told = " ".join(formatEvent(event) or "" for event in events)
    assert "WRONGPASS" in told
    assert "wr0ng" not in told
    assert "wr0ng" not in repr(stand.redis.settings)
    stand.server.password = b"wr0ng"
    stand.reactor.advance(2 * subject.MOST)
    assert stand.redis.ready
    stand.close()


def test_a_redis_that_is_loading_its_data_is_none_yet():
    stand = Stand(server=False)
    stand.server.refusal = "LOADING Redis is loading the dataset in memory"
    stand.listen()
    stand.reactor.advance(2)
    assert not stand.redis.ready
    assert 3 <= stand.counts["redis_failed"] <= 7
    stand.server.refusal = ""
    stand.reactor.advance(2 * subject.MOST)
    assert stand.redis.ready
    stand.close()


def test_a_redis_that_hangs_is_not_taken_for_one_that_is_back(stand):
    stand.server.silent = True
    stand.redis.call("GET", "a").addErrback(lambda _: None)
    for _ in range(100):
        stand.reactor.advance(0.1)
        assert not stand.redis.ready, "it accepts connections, and says nothing"
    stand.server.silent = False
    stand.reactor.advance(3)
    assert stand.redis.ready


def test_one_that_may_not_write_any_more_is_left_for_who_is_at_its_name_now(stand):
    stand.server.refusal = "READONLY You can't write against a read only replica."
    (before,) = stand.server.connections
    assert stand.why(stand.ask("SET", "a", 1), RedisRefused).startswith("READONLY")
    stand.server.refusal = ""
    stand.reactor.advance(1)
    (after,) = stand.server.connections
    assert after is not before
    assert stand.ask("SET", "a", 1) == [b"OK"]


def test_a_redis_that_never_answers_the_password_is_no_connection():
    stand = Stand(server=False, password=b"s3cret")
    stand.server.silent = True
    stand.listen()
    stand.reactor.advance(subject.PATIENCE * 2)
    assert not stand.redis.ready
    assert stand.counts["redis_failed"] > 1
    stand.close()


@pytest.mark.parametrize(
    "said",
    [
        b"HTTP/1.1 400 Bad Request\r\n\r\n",
        b"+OK\r\n+OK\r\n",
        b"$-2\r\n",
        b"$2000000\r\n" + b"x" * 1_100_000,
        encoded([b"x" * 10]) + b"garbage\r\n",
    ],
    ids=["http", "too many answers", "no RESP", "too long", "then garbage"],
)
def test_what_no_redis_says_ends_the_connection(said):
    reactor = MemoryReactor()
    counts, wheel = Counter(), Wheel(reactor)
    redis = Redis(RedisSettings(host=HOST), reactor, wheel, lambda event: counts.update([event]))
    reactor.listenTCP(
        6379, Upstream([Expect(b"PING\r\n"), b"+PONG\r\n", Expect(b"PING\r\n"), said, Do.SILENCE]), interface=HOST
    )
    redis.connect()
    reactor.run()
    assert redis.ready
    redis.call("PING").addErrback(lambda _: None)
    reactor.run()
    assert not redis.ready
    assert counts["redis_failed"] == 1
    redis.stop()
    reactor.run()
    wheel.stop()
    assert reactor.getDelayedCalls() == []


def test_a_connection_is_shared_by_equal_settings_and_closed_by_the_last(stand):
    again = stand.redises.take(RedisSettings(host=HOST))
    other = stand.redises.take(RedisSettings(host=HOST, database=1))
    stand.reactor.run()
    assert again is stand.redis
    assert other is not again
    assert len(stand.server.connections) == 2
    again.release()
    stand.reactor.run()
    assert len(stand.server.connections) == 2
    stand.redis.release()
    other.release()
    other.release()
    stand.reactor.run()
    assert stand.server.connections == []
    assert stand.why(stand.ask("GET", "a")).startswith("no connection")
