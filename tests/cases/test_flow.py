"""Bodies on their way: what is cut off is never completed, who is slow costs little memory, the last word is heard."""

from __future__ import annotations

import pytest
from scene import CHUNKED, CONFIG, GET, NEXT, POST, READ, Scene, ok, splits
from wire import answers

CHUNKS = CHUNKED + b"5\r\nhello\r\n6;a\r\n world\r\n0\r\nX: y\r\n\r\n"
COUNTED = POST + b"Content-Length: 11\r\n\r\nhello world"
MOST = 1 << 20
"""Bytes that may be underway inside a gateway for one stream, all buffers together."""


# -- uploads


@pytest.mark.parametrize("how", ["close", "reset", "finish"])
@pytest.mark.parametrize("data", [CHUNKS, COUNTED])
def test_an_upload_that_is_cut_off_is_never_completed(data, how):
    """The client goes, or half-closes, at any offset: the upstream must not take what it got for the whole."""
    with Scene() as scene:
        for at in range(1, len(data)):
            asked = len(scene.origin.requests)
            seen = scene.open()
            seen.client.send(data[:at])
            scene.gateway.run()
            getattr(seen.client, how)()
            scene.gateway.run()
            seen.client.close()
            scene.gateway.run()
            assert scene.origin.requests[asked:] == [], at
            for served in scene.origin.connections:
                assert served.lost is not None
                assert not served.clean, "it ends by a reset, which nobody takes for the end of a body"
            begun = at >= data.index(b"\r\n\r\n") + 4
            records = scene.records
            if begun:
                assert [record.status for record in records] == [499], at
                assert records[0].who == "client"
            else:
                assert [record.status for record in records] in ([], [400]), at
            records.clear()
            scene.origin.connections.clear()


@pytest.mark.parametrize("data", [CHUNKS, COUNTED])
def test_a_client_that_goes_when_all_was_sent_cancels_the_exchange(data):
    """Nobody is there for the answer: the upstream is told, in the one way there is."""
    with Scene(None) as scene:
        seen = scene.open()
        seen.client.send(data)
        scene.gateway.run()
        assert len(scene.origin.requests) == 1
        seen.client.close()
        scene.gateway.run()
        assert scene.origin.last.lost is not None
        assert [(record.status, record.who) for record in scene.records] == [(499, "client")]


@pytest.mark.parametrize("how", ["close", "reset"])
def test_a_client_that_goes_within_a_download_stops_the_upstream(how):
    """At any moment of it."""
    data = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"
    for at in range(len(data)):
        with Scene(None) as scene:
            seen = scene.reply(*([data[:at]] if at else []))
            getattr(seen.client, how)()
            scene.gateway.run()
            assert scene.origin.last.lost is not None, at
            (record,) = scene.records
            assert record.status == (200 if at >= data.index(b"\r\n\r\n") + 4 else 499)
            assert record.who == "client"


@pytest.mark.parametrize("status", [b"200", b"413", b"500"])
@pytest.mark.parametrize("sent", [0, 1000, 200_000])
def test_an_early_answer_reaches_a_client_that_still_sends(status, sent):
    """The upstream answers before it has read it all, and goes: the client gets that answer, not a reset."""
    size = 1 << 20
    with Scene() as scene:
        scene.gateway.reactor.net.most = READ
        seen = scene.open()
        seen.client.send(POST + b"Content-Length: %d\r\n\r\n" % size + b"x" * sent)
        scene.gateway.run()
        served = scene.origin.last
        served.send(b"HTTP/1.1 " + status + b" x\r\nConnection: close\r\nContent-Length: 2\r\n\r\nno")
        served.close()
        scene.gateway.run()
        assert seen.statuses == [int(status)]
        assert seen.answers[0].get(b"connection") == b"close"
        seen.client.send(b"x" * 300_000)
        scene.gateway.run()
        assert not seen.reset
        assert seen.answers[0].body == b"no"
        seen.client.close()
        scene.gateway.run()
        assert [record.status for record in scene.records] == [int(status)]


@pytest.mark.parametrize("data", [CHUNKS, COUNTED])
def test_an_early_answer_to_a_short_upload_costs_no_connection(data):
    """The rest, cut at any offset, is read and thrown away; what follows it is the next request."""
    with Scene(ok) as scene:
        for at in range(data.index(b"\r\n\r\n") + 4, len(data)):
            seen = scene.open()
            seen.client.send(data[:at])
            scene.gateway.run()
            served = scene.origin.last
            served.send(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nearly")
            scene.gateway.run()
            assert [answer.body for answer in seen.answers] == [b"early"]
            assert served.lost is not None, "half a request was sent there"
            seen.client.send(data[at:] + NEXT)
            scene.gateway.run()
            assert [answer.body for answer in seen.answers] == [b"early", b"ok"], at
            assert not seen.eof
            seen.client.close()
            scene.origin.last.close()
            scene.gateway.run()
        assert {request.target for request in scene.origin.requests} == {b"/next"}
        assert len(scene.records) == 2 * len(scene.origin.requests)


# -- the last word


LIMITED = CONFIG | {"gateway": {"name": "edge", "limits": {"body": "64KiB"}}}


@pytest.mark.parametrize("chunked", [False, True])
def test_a_refused_upload_is_read_on_for_a_while_so_that_the_answer_is_heard(chunked):
    """A close with unread bytes would be a reset, and destroy the 413 on its way: half-close, read on, then end."""
    with Scene(config=LIMITED) as scene:
        scene.gateway.reactor.net.most = READ
        piece = b"x" * 1000
        framing = b"Transfer-Encoding: chunked\r\n\r\n" if chunked else b"Content-Length: 10000000\r\n\r\n"
        piece = b"3e8\r\n" + piece + b"\r\n" if chunked else piece
        seen = scene.open()
        seen.client.send(POST + framing + piece)
        for _ in range(500):
            seen.client.send(piece)
        scene.gateway.run()
        assert seen.statuses == [413]
        assert seen.answers[0].whole
        assert seen.eof
        assert not seen.reset, "it goes on reading"
        for _ in range(20):
            seen.client.send(piece)
            scene.gateway.advance(0.2)
            assert not seen.reset
        scene.gateway.advance(6)
        seen.client.send(piece)
        scene.gateway.run()
        assert seen.reset or seen.client.lost is not None, "but not for ever"
        assert [(record.status, record.who) for record in scene.records] == [(413, "client")]
        assert scene.origin.requests == []


def test_nobody_is_listened_to_for_ever_after_the_last_word():
    """Who goes on at full speed is cut off after so many bytes, who drips on after so many seconds."""
    with Scene(config=LIMITED) as scene:
        scene.gateway.reactor.net.most = READ
        fast, slow = scene.open(), scene.open()
        for seen in (fast, slow):
            seen.client.send(POST + b"Content-Length: 100000000\r\n\r\n")
        for _ in range(64):
            fast.client.send(b"x" * (1 << 20))
            scene.gateway.run()
        for _ in range(40):
            slow.client.send(b"x")
            scene.gateway.advance(1)
        for seen in (fast, slow):
            assert answers(seen.received)[0].status == 413
            assert seen.client.lost is not None
        assert scene.counts("body_too_large") == 2


@pytest.mark.parametrize("size", [1, 60_000, 65_536])
def test_a_short_body_that_nobody_wants_costs_no_connection(size):
    """What an answer leaves unread is read and thrown away up to a cap."""
    respond = {
        "name": "respond",
        "stage": "PRE_REQUEST",
        "condition": 'request.path == "/a"',
        "actionParam": {"status": 403},
    }
    with Scene(config=CONFIG | {"modules": [respond]}) as scene:
        data = POST + b"Content-Length: %d\r\n\r\n" % size + b"x" * size
        for pieces in ((data + NEXT,), (data[:90], data[90:] + NEXT)):
            seen = scene.play(*pieces)
            assert seen.statuses == [403, 200]
            assert not seen.eof_before
            assert [request.target for request in seen.requests] == [b"/next"]


# -- who is slow


class Flood:
    """Sends for as long as it may; registered with a wire as its producer."""

    def __init__(self, wire, total):
        self.wire, self.left, self.sent, self.go = wire, total, 0, True
        wire.registerProducer(self, True)
        self.resumeProducing()

    def pauseProducing(self):
        self.go = False

    def resumeProducing(self):
        self.go = True
        while self.go and self.left:
            size = min(self.left, READ)
            self.left -= size
            self.sent += size
            self.wire.write(b"x" * size)
        if not self.left:
            self.wire.unregisterProducer()

    def stopProducing(self):
        self.go = False


@pytest.mark.parametrize("framing", [b"Content-Length: 209715200", b"Transfer-Encoding: chunked", b"Connection: close"])
def test_a_client_that_reads_nothing_stops_the_upstream(framing):
    """200 MB for who does not read: no more than the buffers of one stream is taken from the upstream."""
    with Scene(None) as scene:
        scene.gateway.reactor.net.most = READ
        seen = scene.open()
        seen.client.send(GET % b"/a")
        seen.client.transport.pauseProducing()
        scene.gateway.run()
        served = scene.origin.last
        head = b"HTTP/1.1 200 OK\r\n" + framing + b"\r\n\r\n"
        served.send(head + (b"c800000\r\n" if b"chunked" in framing else b""))
        flood = Flood(served.transport, 200 << 20)
        scene.gateway.run()
        assert flood.sent < MOST
        near = scene.gateway.link(seen.client).ends[1][1]
        assert near.peak + served.transport.peak < MOST
        # It goes on when the client does, and nothing is lost on the way.
        flood.left = min(flood.left, 3 << 20)
        seen.client.transport.resumeProducing()
        scene.gateway.run()
        delivered = seen.received.count(b"x")
        assert delivered >= flood.sent > 3 << 20
        assert near.peak < MOST
        seen.client.reset()
        scene.gateway.run()
        assert served.lost is not None


@pytest.mark.parametrize("framing", [b"Content-Length: 209715200", b"Transfer-Encoding: chunked"])
def test_an_upstream_that_reads_nothing_stops_the_client(framing):
    """The same the other way round."""
    with Scene(None) as scene:
        scene.gateway.reactor.net.most = READ
        scene.origin.paused = True
        seen = scene.open()
        seen.client.send(POST + framing + b"\r\n\r\n" + (b"c800000\r\n" if b"chunked" in framing else b""))
        flood = Flood(seen.client.transport, 200 << 20)
        scene.gateway.run()
        assert flood.sent < MOST
        served = scene.origin.last
        far = scene.gateway.link(served).ends[0][1]
        assert far.peak < MOST
        flood.left = min(flood.left, 3 << 20)
        served.dataReceived = lambda data: got.append(data.count(b"x"))
        got: list[int] = []
        served.transport.resumeProducing()
        scene.gateway.run()
        assert sum(got) >= flood.sent > 3 << 20
        assert far.peak < MOST
        seen.client.reset()
        scene.gateway.run()
        assert served.lost is not None


def test_who_reads_slowly_gets_it_all_and_in_order():
    """A megabyte in small bites, with other requests in between."""
    content = bytes(range(256)) * 4096
    with Scene(None, ok) as scene:
        seen = scene.open()
        seen.client.send(GET % b"/a")
        scene.gateway.run()
        served = scene.origin.last
        served.send(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(content) + content)
        scene.gateway.reactor.net.most = 5000
        reader = seen.client.transport
        for turn in range(100):
            (reader.pauseProducing if turn % 3 else reader.resumeProducing)()
            scene.gateway.reactor.run(rounds=2)
        assert scene.play(GET % b"/b").statuses == [200]
        reader.resumeProducing()
        scene.gateway.run()
        assert seen.answers[0].body == content
        assert not seen.eof


def test_many_answers_wait_for_a_client_that_does_not_read():
    """Pipelined requests whose answers nobody takes: no more of them are asked for than fit."""
    big = b"HTTP/1.1 200 OK\r\nContent-Length: 50000\r\n\r\n" + b"x" * 50_000
    with Scene(big) as scene:
        seen = scene.open()
        seen.client.transport.pauseProducing()
        seen.client.send(b"".join(GET % b"/%d" % number for number in range(200)))
        scene.gateway.run()
        assert len(scene.origin.requests) < 20
        seen.client.transport.resumeProducing()
        scene.gateway.run()
        assert seen.statuses == [200] * 200
        assert [request.target for request in scene.origin.requests] == [b"/%d" % number for number in range(200)]
        seen.client.close()
        scene.gateway.run()
        assert len(scene.records) == 200


def test_pipelined_requests_are_answered_in_their_order():
    """At every cut; also where the first takes longest."""
    data = GET % b"/1" + COUNTED + GET % b"/3" + CHUNKS + GET % b"/5"
    for pieces in splits(data, 5):
        with Scene() as scene:
            scene.origin.answers = (lambda request: ok(request)[:-2] + request.target[-2:].rjust(2, b"0"),)
            seen = scene.play(*pieces)
            assert [answer.body for answer in seen.answers] == [b"/1", b"/a", b"/3", b"/a", b"/5"]
            assert [request.body for request in seen.requests] == [b"", b"hello world", b"", b"hello world", b""]
            assert len(seen.records) == 5


@pytest.mark.parametrize(
    "bad",
    [b"GET /\x00 HTTP/1.1\r\nHost: a\r\n\r\n", b"X\r\n\r\n", POST + b"Content-Length: 1\r\nContent-Length: 2\r\n\r\n"],
)
def test_a_bad_request_behind_good_ones_does_not_take_their_answers(bad):
    """Each good one is answered first, then the bad one, then nothing."""
    data = GET % b"/1" + COUNTED + bad + NEXT
    for pieces in splits(data, 3):
        with Scene() as scene:
            seen = scene.play(*pieces)
            assert seen.statuses == [200, 200, 400], pieces
            assert seen.eof_before
            assert [request.target for request in seen.requests] == [b"/1", b"/a"]
            assert [record.status for record in seen.records] == [200, 200, 400]
