"""Names whose addresses come, go and do not answer."""

from __future__ import annotations

from collections import Counter

from edge import GET, OK, SCRIPT, answer, config, fetch
from twisted.internet.defer import Deferred

from protogate.testing.gateway import MemoryGateway
from protogate.testing.upstream import Expect

FOUND = {"endpoints": [], "discovery": {"dns": "up.test:80"}}
NAMED = {"endpoints": [{"url": "http://up.test"}]}
SIZED = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n"


def at(last: int) -> str:
    return f"192.0.2.{last}"


def start(origin, *addresses, ttl=60):
    """A gateway whose origin is found under a name that is known from the beginning."""
    gateway = MemoryGateway(config())
    gateway.names.hosts["up.test"] = [at(each) for each in addresses]
    gateway.names.ttl = ttl
    assert gateway.reload(config(origin=origin))
    return gateway


def ask(gateway, number):
    """Statuses of so many requests, each on a connection of its own."""
    return Counter(fetch(gateway).status for _ in range(number))


def test_a_ttl_of_zero_is_not_one_query_a_request():
    for origin in (FOUND, NAMED):
        with start(origin, 1, ttl=0) as gateway:
            gateway.upstream(at(1), 80, [Expect(b"\r\n\r\n"), OK.replace(b"OK\r\n", b"OK\r\nConnection: close\r\n")])
            asked = gateway.names.asked
            fetch(gateway)
            asked.clear()
            for _ in range(20):
                assert ask(gateway, 5) == {200: 5}
                gateway.advance(0.05)
            assert len(asked) <= 2 * 2, "A and AAAA, once a second at most"


def test_flapping_answers_leave_connections_and_choice_alone():
    with start(FOUND, 1, 2, ttl=0) as gateway:
        one, two = (gateway.upstream(at(each), 80, SCRIPT) for each in (1, 2))
        for turn in range(30):
            gateway.names.ttl = (0, 30)[turn % 2]
            gateway.names.hosts["up.test"].reverse()
            assert ask(gateway, 2) == {200: 2}
            gateway.advance(1.1)
        for each in (one, two):
            assert len(each.connections) == 1, "the same connection all along"
            assert each.received[0].count(b"GET / HTTP/1.1\r\n") == 30, "and its fair share"


def test_an_endpoint_that_goes_gets_nothing_new_and_finishes_what_it_has():
    with start(FOUND, 1, 2, ttl=5) as gateway:
        gateway.upstream(at(1), 80, SCRIPT)
        two = gateway.upstream(at(2), 80, [Expect(b"\r\n\r\n")])
        clients = [gateway.client() for _ in range(4)]
        for each in clients:
            each.send(GET % b"/")
        gateway.run()
        assert len(two.connections) == 2
        two.connections[1].send(OK)
        two.connections[0].send(SIZED % 10 + b"12345")
        gateway.run()
        gateway.names.hosts["up.test"] = [at(1), at(3)]
        three = gateway.upstream(at(3), 80, SCRIPT)
        gateway.advance(5.3)
        assert [each.eof for each in two.connections] == [False, True]
        assert ask(gateway, 6) == {200: 6}
        assert len(two.connections) == 2
        assert three.received[0].count(b"GET / HTTP/1.1\r\n") == 3
        two.connections[0].send(b"67890")
        gateway.run()
        assert two.connections[0].eof
        assert sorted(len(answer(each.received).body) for each in clients) == [2, 2, 2, 10]
        for each in clients:
            each.close()
        gateway.run()


def test_all_addresses_gone_is_503_in_the_end_and_their_coming_back_is_noticed():
    with start(FOUND, 1, ttl=2) as gateway:
        gateway.upstream(at(1), 80, SCRIPT)
        assert ask(gateway, 2) == {200: 2}
        del gateway.names.hosts["up.test"]
        gateway.advance(2.5)
        assert ask(gateway, 2) == {200: 2}, "it may be a mistake"
        gateway.advance(61)
        assert ask(gateway, 2) == {503: 2}
        gateway.names.hosts["up.test"] = [at(1)]
        gateway.advance(65)
        assert ask(gateway, 2) == {200: 2}


def test_a_server_that_does_not_answer_any_more_changes_nothing():
    for origin in (FOUND, NAMED):
        with start(origin, 1, ttl=2) as gateway:
            gateway.upstream(at(1), 80, [Expect(b"\r\n\r\n"), OK.replace(b"OK\r\n", b"OK\r\nConnection: close\r\n")])
            assert ask(gateway, 1) == {200: 1}
            gateway.names._lookup = lambda *_: Deferred()
            for _ in range(10):
                gateway.advance(30)
                assert ask(gateway, 1) == {200: 1}


def test_a_name_is_asked_again_when_its_address_does_not_answer():
    with start(NAMED, 1, ttl=3600) as gateway:
        gateway.upstream(at(1), 80, [Expect(b"\r\n\r\n"), OK.replace(b"OK\r\n", b"OK\r\nConnection: close\r\n")])
        assert ask(gateway, 1) == {200: 1}
        gateway.advance(10)
        gateway.reactor.ports[at(1), 80].stopListening()
        gateway.names.hosts["up.test"] = [at(2)]
        gateway.upstream(at(2), 80, SCRIPT)
        assert ask(gateway, 1) == {502: 1}
        assert ask(gateway, 3) == {200: 3}, "long before its TTL was over"


def test_several_addresses_of_one_name_stand_in_for_each_other():
    with start(NAMED, 1, 2, 3) as gateway:
        up = gateway.upstream(at(3), 80, [Expect(b"\r\n\r\n"), OK.replace(b"OK\r\n", b"OK\r\nConnection: close\r\n")])
        assert ask(gateway, 9) == {200: 9}
        assert len(up.connections) == 9


def test_no_such_name_is_told_and_remembered_for_a_moment_only():
    with start(NAMED) as gateway:
        del gateway.names.hosts["up.test"]
        assert ask(gateway, 5) == {502: 5}
        assert {each.phase for each in gateway.records} == {"dns"}
        assert len(gateway.names.asked) <= 2
        gateway.names.hosts["up.test"] = [at(1)]
        gateway.upstream(at(1), 80, SCRIPT)
        gateway.advance(2)
        assert ask(gateway, 1) == {200: 1}
