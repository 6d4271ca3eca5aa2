"""Connections to upstreams that are used again: closed under our hands, and what may be sent a second time."""

from __future__ import annotations

import pytest
from scene import CONFIG, GET, HOST, READ, Scene, ok

POST = b"POST /a HTTP/1.1\r\nHost: a.test\r\nContent-Length: 5\r\n\r\nhello"
TWO = CONFIG | {
    "upstreams": [{"name": "origin", "endpoints": [{"url": "http://192.0.2.6:80"}, {"url": f"http://{HOST}:80"}]}]
}


class Closing(Scene):
    """
    An origin that answers until C{end(how)}, then ends its connections instead, and answers on new ones.

    @ivar first: its first connection, which has served a request.
    """

    def __init__(self, **named):
        super().__init__(self.answer, **named)
        self.old = []
        assert self.play(GET % b"/first").statuses == [200]
        self.first = self.origin.last
        self.gateway.run()

    def answer(self, request):
        return None if self.origin.last in self.old else ok(request)

    def end(self, how):
        self.old = list(self.origin.connections)
        getattr(self.first, how)()


METHODS = [b"GET", b"HEAD", b"OPTIONS", b"TRACE", b"PUT", b"DELETE", b"POST", b"PATCH", b"SEARCH"]
SAFE = METHODS[:6]


@pytest.mark.parametrize("how", ["close", "reset"])
@pytest.mark.parametrize("method", METHODS)
def test_an_idle_connection_ends_at_any_moment_of_its_reuse(method, how):
    """
    FIN, RST, or an error of the write race with the next request, turn by turn: what is idempotent is sent again, once,
    on a fresh connection; anything else reaches the upstream once at most; no status is invented.
    """
    data = method + b" /a HTTP/1.1\r\nHost: a.test\r\n\r\n"
    retried = 0
    for turn in range(-2, 8):
        with Closing() as scene:
            seen = scene.open(method)
            if turn < 0:
                scene.end(how)
                scene.gateway.reactor.run(rounds=turn + 2)
                seen.client.send(data)
            else:
                seen.client.send(data)
                scene.gateway.reactor.run(rounds=turn)
                if scene.origin.requests[-1].target == b"/first":
                    scene.end(how)
            scene.gateway.run()
            scene.look(seen, 1, 1)
            (record,) = seen.records
            assert seen.statuses == [record.status]
            assert not seen.eof
            if method in SAFE:
                assert record.status == 200, (turn, seen.received)
                retried += record.attempts == 2
            else:
                assert record.status in (200, 502), turn
                assert record.attempts == 1
                assert len(seen.requests) == (record.status == 200)
                if record.status == 502:
                    assert (record.who, record.proxy_error) == ("upstream", "connection_terminated")
    assert retried or method not in SAFE, "the race never happened"


@pytest.mark.parametrize("method", METHODS)
def test_a_connection_whose_other_end_has_vanished_is_noticed_by_the_write(method):
    """Nothing was heard of it while it was idle: the write itself fails."""
    with Closing() as scene:
        scene.gateway.link(scene.first).cut(1)
        seen = scene.play(method + b" /a HTTP/1.1\r\nHost: a.test\r\n\r\n", methods=[method])
        assert seen.statuses == [200 if method in SAFE else 502]
        assert len(seen.requests) == (method in SAFE)
        assert [record.attempts for record in seen.records] == [1 + (method in SAFE)]


@pytest.mark.parametrize("how", ["close", "reset"])
@pytest.mark.parametrize(("data", "again"), [(GET % b"/a", True), (POST, False), (POST.replace(b"POST", b"PUT"), True)])
def test_a_connection_that_ends_when_it_has_read_the_request(data, again, how):
    """It was read, perhaps processed: only what may be repeated is."""
    with Closing() as scene:
        scene.old = [scene.first]
        seen = scene.open()
        seen.client.send(data)
        scene.gateway.run()
        assert seen.received == b""
        getattr(scene.first, how)()
        scene.gateway.run()
        scene.look(seen, 1, 1)
        assert seen.statuses == [200 if again else 502]
        assert len(seen.requests) == 1 + again
        assert [record.attempts for record in seen.records] == [1 + again]
        assert not seen.eof


def test_it_is_sent_again_once():
    """Two connections that die alike are the upstream's fault, not bad luck."""
    with Scene(ok, None) as scene:
        scene.play(GET % b"/first")
        seen = scene.open()
        seen.client.send(GET % b"/a")
        scene.gateway.run()
        for number in (1, 2):
            assert len(scene.origin.connections) == number
            scene.origin.last.close()
            scene.gateway.run()
        scene.look(seen, 1, 1)
        assert seen.statuses == [502]
        assert [(record.attempts, record.who) for record in seen.records] == [(2, "upstream")]
        assert len(scene.origin.connections) == 2


@pytest.mark.parametrize("how", ["close", "reset"])
def test_a_fresh_connection_that_ends_without_an_answer_is_no_race(how):
    """It was not closed for being idle: nothing is sent again to an upstream that crashes on it."""
    with Scene(None) as scene:
        seen = scene.open()
        seen.client.send(GET % b"/a")
        scene.gateway.run()
        getattr(scene.origin.last, how)()
        scene.gateway.run()
        scene.look(seen)
        assert (seen.statuses, len(scene.origin.connections)) == ([502], 1)
        assert b"error=connection_terminated" in seen.answers[0].get(b"proxy-status")


@pytest.mark.parametrize("how", ["close", "reset"])
def test_after_the_first_byte_of_an_answer_nothing_is_sent_again(how):
    """Whatever that byte was: somebody has begun to answer."""
    answer = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n"
    for at in range(1, len(answer)):
        with Closing() as scene:
            scene.old = [scene.first]
            seen = scene.open()
            seen.client.send(GET % b"/a")
            scene.gateway.run()
            scene.first.send(answer[:at])
            scene.gateway.run()
            getattr(scene.first, how)()
            scene.gateway.run()
            scene.look(seen, 1, 1)
            assert (seen.statuses, len(scene.origin.connections)) == ([502], 1), at
            assert [record.proxy_error for record in seen.records] == ["http_response_incomplete"]


def test_an_upstream_that_closes_after_a_few_requests_costs_nobody_anything():
    """Some servers close after every so many requests, with or without saying so before."""
    for close in (b"Connection: close\r\n", b""):
        with Scene() as scene:

            def answer(request, scene=scene, close=close):
                served = scene.origin.last
                if len(scene.origin.requests) % 3:
                    return ok(request)
                served.send(b"HTTP/1.1 200 OK\r\n" + close + b"Content-Length: 2\r\n\r\nok")
                served.close()
                return None

            scene.origin.answers = (answer,)
            seen = scene.play(*(GET % b"/%d" % number for number in range(20)), leave=False)
            assert (seen.statuses, seen.eof) == ([200] * 20, False)
            assert [record.attempts for record in seen.records] == [1] * 20
            assert len(seen.requests) == 20


def test_the_pool_gives_up_connections_before_the_upstream_does():
    """Its idle time is its own; what is closed by us is never raced for."""
    upstream = CONFIG["upstreams"][0] | {"pool": {"idle": "5s"}}
    with Scene(config=CONFIG | {"upstreams": [upstream]}) as scene:
        scene.play(GET % b"/a")
        scene.gateway.advance(4)
        assert scene.origin.last.lost is None
        scene.gateway.advance(2)
        assert scene.origin.last.lost is not None
        assert scene.origin.last.clean
        scene.play(GET % b"/b")
        assert len(scene.origin.connections) == 2


# -- bodies


def upload(size: int, chunked: bool, method: bytes = b"POST") -> tuple[bytes, bytes, bytes]:
    """Head, body as content, body as bytes on the wire."""
    content = bytes(range(256)) * (size // 256) + b"x" * (size % 256)
    head = method + b" /a HTTP/1.1\r\nHost: a.test\r\n"
    if not chunked:
        return head + b"Content-Length: %d\r\n\r\n" % size, content, content
    wire = b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in cut(content, 1000)) + b"0\r\n\r\n"
    return head + b"Transfer-Encoding: chunked\r\n\r\n", content, wire


def cut(data: bytes, size: int) -> list[bytes]:
    return [data[at : at + size] for at in range(0, len(data), size)]


@pytest.mark.parametrize("size", [0, 1, 4096, 20_000, 65_536, 65_537, 300_000])
@pytest.mark.parametrize("chunked", [False, True])
@pytest.mark.parametrize("first", [0, 1, 4096, 1 << 30])
def test_a_refused_connection_costs_no_byte_of_a_body(size, chunked, first):
    """The first endpoint refuses when part of the upload was read already: the next one gets all of it."""
    head, content, wire = upload(size, chunked)
    with Scene(config=TWO) as scene:
        for _ in range(2):  # one of them is sent to the endpoint that refuses
            asked = len(scene.origin.requests)
            seen = scene.open()
            seen.client.send(head + wire[:first])
            scene.gateway.reactor.run(rounds=1)
            seen.client.send(wire[first:])
            scene.gateway.run()
            scene.look(seen, asked)
            assert seen.statuses == [200]
            assert [request.body == content for request in seen.requests] == [True]
        assert max(record.attempts for record in scene.records) == 2


@pytest.mark.parametrize("size", [1, 20_000, 65_536])
@pytest.mark.parametrize("chunked", [False, True])
@pytest.mark.parametrize("method", [b"PUT", b"DELETE", b"POST"])
def test_a_body_is_sent_again_whole_or_not_at_all(size, chunked, method):
    """The reused connection dies when it has read some or all of a body: never the tail alone, never a body of none."""
    head, content, wire = upload(size, chunked, method)
    for sent in {0, size // 2, size}:
        with Closing() as scene:
            scene.old = [scene.first]
            seen = scene.open()
            seen.client.send(head + wire[:sent])
            scene.gateway.run()
            scene.first.reset()
            scene.gateway.run()
            seen.client.send(wire[sent:])
            scene.gateway.run()
            scene.look(seen, 1, 1)
            if method == b"POST":
                assert seen.statuses == [502]
                assert len(scene.origin.connections) == 1
            else:
                assert seen.statuses == [200], (size, chunked, sent)
                assert scene.origin.last.requests[-1].body == content
                assert [record.attempts for record in seen.records] == [2]


@pytest.mark.parametrize("chunked", [False, True])
def test_a_body_too_long_to_keep_is_not_sent_again(chunked):
    """What was let go cannot be sent a second time: 502, and nothing of it anywhere else."""
    head, _, wire = upload(300_000, chunked, b"PUT")
    with Closing() as scene:
        scene.old = [scene.first]
        seen = scene.open()
        seen.client.send(head + wire[:200_000])
        scene.gateway.run()
        scene.first.reset()
        scene.gateway.run()
        scene.look(seen, 1, 1)
        assert (seen.statuses, len(scene.origin.connections)) == ([502], 1)
        assert [record.attempts for record in seen.records] == [1]


def test_a_body_is_not_read_before_there_is_somebody_to_give_it_to():
    """While a connection is being made an upload waits with its sender, but for what was read with the head."""
    with Scene() as scene:
        scene.gateway.reactor.silent.add((HOST, 80))
        scene.gateway.reactor.net.most = READ
        head, _, wire = upload(4 << 20, False)
        seen = scene.open()
        seen.client.send(head + wire)
        scene.gateway.run()
        assert len(wire) - seen.client.transport.unsent() < 4 * READ
        scene.gateway.advance(4)
        scene.look(seen)
        assert seen.statuses == [504]
        assert [record.phase for record in seen.records] == ["connect"]
        seen.client.reset()
        scene.gateway.run()


@pytest.mark.parametrize("method", [b"PUT", b"POST"])
def test_who_waits_for_100_can_be_sent_again_until_it_comes(method):
    """Nothing of the body was asked for yet; afterwards part of an answer has come, and that is that."""
    head = method + b" /a HTTP/1.1\r\nHost: a.test\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\n"
    go = b"HTTP/1.1 100 Continue\r\n\r\n"
    for told in (False, True):
        with Closing() as scene:
            scene.old = [scene.first]
            seen = scene.open()
            seen.client.send(head)
            scene.gateway.run()
            if told:
                scene.first.send(go)
                scene.gateway.run()
            scene.first.close()
            scene.gateway.run()
            again = method == b"PUT" and not told
            assert len(scene.origin.connections) == 1 + again
            if again:
                scene.origin.last.send(go)
                scene.gateway.run()
                seen.client.send(b"hello")
                scene.gateway.run()
                assert scene.origin.last.requests[-1].body == b"hello"
            assert [each.status for each in seen.interims] == [100] * (told or again)
            assert seen.statuses == [200 if again else 502]
            assert scene.records[-1].attempts == 1 + again
