"""Where the body of an answer ends: what is cut short is seen to be, and what belongs to no answer is lost."""

from __future__ import annotations

import pytest
from scene import GET, NEXT, Scene, good, ok, splits

HEAD = b"HEAD /a HTTP/1.1\r\nHost: a.test\r\n\r\n"
OK = b"HTTP/1.1 200 OK\r\n"
GOOD = OK + b"Content-Length: 2\r\n\r\nok"


BROKEN = {
    "size that is none": b"2\r\nok\r\nxyz\r\nno\r\n0\r\n\r\n",
    "empty size": b"2\r\nok\r\n\r\n",
    "too many digits": b"2\r\nok\r\n" + b"0" * 15 + b"2\r\nno\r\n0\r\n\r\n",
    "spill": b"2\r\nokXX0\r\n\r\n",
    "line feed behind the data": b"2\r\nok\n0\r\n\r\n",
    "carriage returns behind the data": b"2\r\nok\r\r\n0\r\n\r\n",
    "control in an extension": b"2\r\nok\r\n2;a=\x01\r\nno\r\n0\r\n\r\n",
    "line feed in an extension": b"2\r\nok\r\n2;\na\r\nno\r\n0\r\n\r\n",
    "bad trailer": b"2\r\nok\r\n0\r\nX : y\r\n\r\n",
    "folded trailer": b"2\r\nok\r\n0\r\nX: y\r\n z\r\n\r\n",
}


@pytest.mark.parametrize("body", BROKEN.values(), ids=BROKEN)
def test_a_bad_chunk_breaks_the_answer_where_the_client_sees_it(body):
    """The head may be out by then: no last chunk follows, and no clean end; else it is a 502."""
    data = OK + b"Transfer-Encoding: chunked\r\n\r\n"
    with Scene(None) as scene:
        for pieces in splits(data + body):
            seen = scene.reply(*pieces)
            if seen.received.startswith(b"HTTP/1.1 502 "):
                assert seen.answers[0].whole
                assert seen.records[0].status == 502
            else:
                assert not seen.received.endswith(b"0\r\n\r\n"), pieces
                if seen.answers:
                    assert not seen.answers[0].whole
                assert seen.reset, pieces
                assert seen.records[0].status == 200
            assert [record.who for record in seen.records] == ["upstream"], pieces
            assert seen.served.lost is not None
            seen.client.close()
            scene.gateway.run()


SHORT = {
    "length": OK + b"Content-Length: 5\r\n\r\nhell",
    "chunk": OK + b"Transfer-Encoding: chunked\r\n\r\n5\r\nhell",
    "chunks": OK + b"Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n",
    "last chunk": OK + b"Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n",
    "trailers": OK + b"Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\nX: y\r\n",
}


@pytest.mark.parametrize("data", SHORT.values(), ids=SHORT)
@pytest.mark.parametrize("reset", [False, True])
def test_a_truncated_answer_is_seen_to_be_truncated(data, reset):
    """The upstream goes in the middle: to no client may this look like the end."""
    start = data.index(b"\r\n\r\n") + 4
    with Scene(None) as scene:
        for at in range(1, len(data) + 1):
            seen = scene.reply(data[:at])
            if reset:
                seen.served.reset()
            else:
                seen.served.close()
            scene.gateway.run()
            scene.look(seen)
            record = scene.records[-1]
            if at < start:
                assert seen.statuses == [502], at
                assert record.status == 502
                assert not seen.eof
            else:
                assert seen.reset, at
                assert not seen.answers[0].whole
                assert record.status == 200
            assert (record.who, record.proxy_error) == ("upstream", "http_response_incomplete"), at
            seen.client.close()
            scene.gateway.run()
        assert len(scene.records) == len(scene.origin.requests)


BODYLESS = {
    "204 with a length": (GET % b"/a", b"HTTP/1.1 204 x\r\nContent-Length: 24\r\n\r\n", 204, None),
    "204 chunked": (GET % b"/a", b"HTTP/1.1 204 x\r\nTransfer-Encoding: chunked\r\n\r\n", 204, None),
    "304 with a length": (GET % b"/a", b"HTTP/1.1 304 x\r\nContent-Length: 9\r\nETag: x\r\n\r\n", 304, b"9"),
    "304 chunked": (GET % b"/a", b"HTTP/1.1 304 x\r\nTransfer-Encoding: chunked\r\n\r\n", 304, None),
    "HEAD with a length": (HEAD, OK + b"Content-Length: 1234\r\n\r\n", 200, b"1234"),
    "HEAD chunked": (HEAD, OK + b"Transfer-Encoding: chunked\r\n\r\n", 200, None),
    "HEAD with nothing": (HEAD, OK + b"\r\n", 200, None),
    "HEAD 404": (HEAD, b"HTTP/1.1 404 x\r\nContent-Length: 7\r\n\r\n", 404, b"7"),
    "HEAD 204": (HEAD, b"HTTP/1.1 204 x\r\n\r\n", 204, None),
    "205": (GET % b"/a", b"HTTP/1.1 205 x\r\nContent-Length: 0\r\n\r\n", 205, b"0"),
    "200 of no bytes": (GET % b"/a", OK + b"Content-Length: 0\r\n\r\n", 200, b"0"),
}


@pytest.mark.parametrize(("request_", "data", "status", "length"), BODYLESS.values(), ids=BODYLESS)
def test_method_and_status_decide_first_whether_there_is_a_body(request_, data, status, length):
    """Nobody waits for a body that cannot come, and the connection is used again at once."""

    def check(seen):
        assert (seen.statuses, seen.answers[0].get(b"content-length")) == ([status], length)
        assert seen.received.endswith(b"\r\n\r\n")

    good(data, check, request_, [request_.split()[0]])


EXTRA = {
    "204 with a body": (GET % b"/a", b"HTTP/1.1 204 x\r\nContent-Length: 24\r\n\r\nCORS: nope"),
    "304 with a body": (GET % b"/a", b"HTTP/1.1 304 x\r\nContent-Length: 2\r\n\r\nok"),
    "HEAD with a body": (HEAD, GOOD),
    "beyond the length": (GET % b"/a", GOOD + b"ay"),
    "line end behind the body": (GET % b"/a", GOOD + b"\r\n"),
    "a whole further answer": (GET % b"/a", GOOD + OK + b"Content-Length: 6\r\n\r\npoison"),
    "behind the last chunk": (GET % b"/a", OK + b"Transfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n0\r\n\r\n"),
    "a further interim answer": (GET % b"/a", GOOD + b"HTTP/1.1 103 x\r\n\r\n"),
}


@pytest.mark.parametrize(("request_", "data"), EXTRA.values(), ids=EXTRA)
def test_what_belongs_to_no_answer_is_given_to_nobody(request_, data):
    """Bytes beyond an answer, in its segment or later: that connection is never used again, or they would be read as
    the answer to the next request."""
    method = request_.split()[0]
    with Scene(None) as scene:
        for pieces in splits(data):
            seen = scene.reply(*pieces, request=request_, methods=[method])
            assert len(seen.answers) == 1, pieces
            assert seen.answers[0].whole
            assert not seen.received.endswith((b"nope", b"poison", b"okay"))
            assert not seen.eof
            assert seen.served.lost is not None, pieces
            seen.client.take()
            seen.methods = ()
            seen.client.send(NEXT)
            scene.gateway.run()
            scene.origin.last.send(GOOD)
            scene.gateway.run()
            assert [answer.body for answer in seen.answers] == [b"ok"], pieces
            scene.origin.last.close()
            seen.client.close()
            scene.gateway.run()


@pytest.mark.parametrize(
    "stray",
    [
        b"x",
        b"\r\n",
        b"HTTP/1.1 408 Request Timeout\r\nContent-Length: 0\r\n\r\n",
        OK + b"Content-Length: 6\r\n\r\npoison",
    ],
)
@pytest.mark.parametrize("after", [0.0, 1.0, 20.0])
def test_bytes_on_an_idle_connection_end_it(stray, after):
    """A second answer that nobody asked for, however late it comes."""
    with Scene(None, ok) as scene:
        seen = scene.reply(GOOD)
        assert seen.statuses == [200]
        scene.gateway.advance(after)
        seen.served.send(stray)
        scene.gateway.run()
        assert seen.served.lost is not None
        assert scene.counts("unsolicited_bytes") == 1
        again = scene.play(NEXT)
        assert ([answer.body for answer in again.answers], len(scene.origin.connections)) == ([b"ok"], 2)
        assert len(scene.records) == 2


def test_bytes_that_cross_the_next_request_are_its_answer_at_worst_once():
    """They came when the connection was in use again: nobody can tell them from an answer, but they end the connection
    as soon as they do not look like one."""
    with Scene(None) as scene:
        seen = scene.reply(GOOD)
        seen.client.take()
        seen.served.send(b"stray bytes\r\n\r\n")
        seen.client.send(NEXT)
        scene.gateway.run()
        assert seen.served.lost is not None
        assert all(answer.status in (200, 502) for answer in seen.answers)
        scene.gateway.run()
        if scene.origin.last is not seen.served:
            scene.origin.last.send(GOOD)
            scene.gateway.run()
        assert len(seen.answers) == 1


VERSIONS = {
    "1.1": b"GET /a HTTP/1.1\r\nHost: a.test\r\n\r\n",
    "1.1 that closes": b"GET /a HTTP/1.1\r\nHost: a.test\r\nConnection: close\r\n\r\n",
    "1.0": b"GET /a HTTP/1.0\r\nHost: a.test\r\n\r\n",
    "1.0 that keeps": b"GET /a HTTP/1.0\r\nHost: a.test\r\nConnection: keep-alive\r\n\r\n",
}
BODIES = {
    "length": (b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\n\r\n0\r", False),
    "chunked": (
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2;a=b\r\n\r\n\r\n02\r\n0\r\r\n00\r\nX-Sum: 1\r\n\r\n",
        False,
    ),
    "until close": (b"HTTP/1.1 200 OK\r\n\r\n\r\n0\r", True),
    "until close, 1.0": (b"HTTP/1.0 200 OK\r\n\r\n\r\n0\r", True),
    "length, 1.0": (b"HTTP/1.0 200 OK\r\nContent-Length: 4\r\n\r\n\r\n0\r", True),
    "length, then close": (b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 4\r\n\r\n\r\n0\r", True),
}


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(("data", "closes"), BODIES.values(), ids=BODIES)
def test_an_answer_is_framed_for_who_reads_it(version, data, closes):
    """By the client's version and by what is known of the length, whatever framed it upstream: a body that looks like
    chunks is still a body."""
    with Scene(None) as scene:
        for pieces in splits(data):
            seen = scene.reply(*pieces, request=VERSIONS[version])
            if closes:
                seen.served.close()
                scene.gateway.run()
                scene.look(seen)
            answer = seen.answers[0]
            assert (answer.status, answer.body, answer.whole) == (200, b"\r\n0\r", True), pieces
            length, coding = answer.get(b"content-length"), answer.get(b"transfer-encoding")
            if b"Content-Length" in data:
                assert (length, coding) == (b"4", None)
            elif length is None:  # a short answer that came whole may well be given its length
                assert coding == (b"chunked" if version.startswith("1.1") else None)
            keeps = version == "1.1" or (version == "1.0 that keeps" and length is not None)
            assert seen.eof is not keeps
            assert answer.get(b"connection") == (None if version == "1.1" else b"keep-alive" if keeps else b"close")
            if coding and b"X-Sum" in data:
                assert answer.trailers == [(b"x-sum", b"1")]
            seen.client.close()
            seen.served.close()
            scene.gateway.run()
            assert scene.records[-1].status == 200
            assert scene.records[-1].error == ""
