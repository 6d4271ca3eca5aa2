"""Messages with random faults: however they are cut, their fate is the same, and nothing ambiguous gets through."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import example, given, settings
from hypothesis import strategies as st
from scene import CHUNKED, GET, NEXT, POST, Scene

SEEDS = [
    GET % b"/a?b=c",
    b"GET http://b.test:80/a HTTP/1.1\r\nHost: a.test\r\nConnection: keep-alive, x\r\nX: y\r\n\r\n",
    b"HEAD /a HTTP/1.1\r\nHost: [::1]:80\r\nTE: trailers\r\nConnection: TE\r\n\r\n",
    b"OPTIONS * HTTP/1.1\r\nHost: a.test\r\nVia: 1.0 x\r\nForwarded: for=1.2.3.4\r\n\r\n",
    b"GET /a HTTP/1.0\r\nConnection: keep-alive\r\nHost: a.test\r\n\r\n",
    POST + b"Content-Length: 5\r\n\r\nhello",
    POST + b"Content-Length: 5\r\nExpect: 100-continue\r\n\r\nhello",
    CHUNKED + b"5\r\nhello\r\n6;a=b\r\n world\r\n0\r\n\r\n",
    CHUNKED + b"0\r\nX-Sum: 1\r\n\r\n",
    b"GET /a HTTP/1.1\r\nHost: a.test\r\nConnection: Upgrade\r\nUpgrade: h2c\r\nContent-Length: 0\r\n\r\n",
]
ANSWERS = [
    b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello",
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n1;a=b\r\n!\r\n0\r\nX: y\r\n\r\n",
    b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\nHTTP/1.1 204 No Content\r\nX: y\r\n\r\n",
    b"HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\nETag: x\r\n\r\n",
    b"HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nContent-Length: 5\r\n\r\nhello",
    b"HTTP/1.1 200 OK\r\nX: a\r\n b\r\nConnection: close\r\nContent-Length: 5\r\n\r\nhello",
]
PARTS = [
    b"\r",
    b"\n",
    b"\r\n",
    b"\r\n\r\n",
    b" ",
    b"\t",
    b"\x00",
    b"\x0b",
    b"\x7f",
    b"\x85",
    b"\xa0",
    b"\xff",
    b":",
    b";",
    b",",
    b'"',
]
PARTS += [
    b"0",
    b"5",
    b"10",
    b"F",
    b"x",
    b"-",
    b"+",
    b"/",
    b"%",
    b"%2e",
    b"..",
    b"@",
    b"[",
    b"]",
    b"#",
    b"?",
    b"\\",
    b"*",
    b"HTTP/1.0",
]
PARTS += [
    b"Content-Length: 5\r\n",
    b"Content-Length: 7\r\n",
    b"Transfer-Encoding: chunked\r\n",
    b"Transfer-Encoding: x\r\n",
    b"chunked",
]
PARTS += [
    b"Host: b.test\r\n",
    b"Connection: close\r\n",
    b"Connection: content-length\r\n",
    b"Upgrade: websocket\r\n",
    b"Expect: x\r\n",
]
PARTS += [b" X: y\r\n", b"0\r\n\r\n", NEXT, b"GET", b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"]


@st.composite
def faulty(draw, seeds):
    """A message with up to three faults, and where it is cut."""
    data = draw(st.sampled_from(seeds))
    for _ in range(draw(st.integers(1, 3))):
        at = draw(st.integers(0, len(data)))
        gone = draw(st.integers(0, 3))
        data = data[:at] + draw(st.sampled_from([b"", *PARTS])) + data[at + gone :]
    cuts = sorted(draw(st.sets(st.integers(1, max(len(data) - 1, 1)), max_size=4)))
    return data, cuts


def pieces_of(data, cuts):
    edges = [0, *[cut for cut in cuts if cut < len(data)], len(data)]
    return [data[a:b] for a, b in pairwise(edges)]


def fate(scene, pieces):
    """Statuses, what went upstream, whether the connection ended."""
    seen = scene.play(*pieces)
    seen.methods = [record.method.encode() for record in seen.records]
    statuses = [record.status for record in seen.records]
    unanswered = [499] * (len(statuses) - len(seen.answers))
    assert len(unanswered) < 2
    assert statuses == seen.statuses + unanswered, "one record for each"
    for number, status in enumerate(seen.statuses):
        if status in {400, 413, 414, 431, 501, 505, 417}:
            assert seen.eof_before
            assert number == len(seen.answers) - 1, "nothing is answered after a fault"
    forwarded = [(request.method, request.target, request.body, request.trailers) for request in seen.requests]
    return seen.statuses, forwarded, seen.eof_before


@settings(max_examples=250)
@given(faulty(SEEDS))
@example((SEEDS[7] + NEXT, [3, 60, 70]))
def test_a_faulty_request_has_one_fate_however_it_is_cut(message):
    """The same answers, the same requests upstream (each well-formed for two strict readers), and one record each."""
    data, cuts = message
    data += NEXT
    with Scene() as scene:
        whole = fate(scene, [data])
        assert fate(scene, pieces_of(data, cuts)) == whole
        with scene.bytewise():
            assert fate(scene, [data]) == whole


@settings(max_examples=150)
@given(faulty(ANSWERS))
def test_a_faulty_answer_never_reaches_the_next_client(message):
    """Well-formed or not, whole or visibly broken: and the next request gets the answer that is its own."""
    data, cuts = message
    with Scene(None) as scene:
        for pieces in ([data], pieces_of(data, cuts)):
            seen = scene.reply(*pieces)
            final = seen.answers[:1]
            seen.client.close()
            scene.gateway.run()
            assert len(scene.records) == 1
            assert all(answer.status >= 200 for answer in final)
            assert len(seen.answers) <= 1
            after = scene.open()
            after.client.send(NEXT)
            scene.gateway.run()
            asked = next(served for served in reversed(scene.origin.connections) if served.lost is None)
            asked.send(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nmine")
            scene.gateway.run()
            assert [answer.body for answer in after.answers] == [b"mine"]
            after.client.close()
            asked.close()
            scene.gateway.run()
            scene.records.clear()
