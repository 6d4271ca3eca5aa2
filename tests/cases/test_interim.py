"""Interim answers, 100 Continue, and answers of modules that claim a body where there can be none."""

from __future__ import annotations

import pytest
from edge import installed
from scene import CONFIG, GET, NEXT, Scene, good, ok, splits

from protogate.body import Whole
from protogate.message import Response

FINAL = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
HINT = b"HTTP/1.1 103 Early Hints\r\nLink: </a.css>; rel=preload\r\n\r\n"
PROCESSING = b"HTTP/1.1 102 Processing\r\n\r\n"
UPLOAD = b"POST /a HTTP/1.1\r\nHost: a.test\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\n"


@pytest.mark.parametrize(
    ("data", "statuses"),
    [
        (HINT + PROCESSING + FINAL, [103, 102]),
        (HINT + HINT + FINAL, [103, 103]),
        (b"HTTP/1.1 199 x\r\nX: y\r\n\r\n" + FINAL, [199]),
        (b"HTTP/1.1 100 Continue\r\n\r\n" + FINAL, []),
        (b"HTTP/1.1 100 Continue\r\n\r\n" + HINT + FINAL, [103]),
        (HINT * 16 + FINAL, [103] * 16),
        (b"HTTP/1.1 103 x\r\nContent-Length: 5\r\nKeep-Alive: 1\r\nLink: x\r\n\r\n" + FINAL, [103]),
        (b"HTTP/1.1 103 x\r\nTransfer-Encoding: chunked\r\nLink: x\r\n\r\n" + FINAL, [103]),
        (HINT + b"HTTP/1.1 204 No Content\r\n\r\n", [103]),
        (HINT + b"HTTP/1.1 304 Not Modified\r\nContent-Length: 9\r\n\r\n", [103]),
    ],
)
def test_interim_answers_are_passed_on_and_none_is_taken_for_the_final_one(data, statuses):
    """Any number before the final answer; a 100 only for who waits for one; none with framing of its own."""

    def check(seen):
        assert [each.status for each in seen.interims] == statuses
        assert all(each.get(b"link") for each in seen.interims if each.status == 103)
        assert len(seen.statuses) == 1

    good(data, check, step=1 if len(data) < 300 else 41)


def test_an_interim_answer_with_two_readings_is_a_bad_answer():
    """Its head obeys the rules of every head."""
    with Scene(None) as scene:
        lines = b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n"
        seen = scene.reply(b"HTTP/1.1 103 x\r\n" + lines + FINAL)
        assert (seen.interims, seen.statuses) == ([], [502])
        assert seen.served.lost is not None


@pytest.mark.parametrize("line", [b"GET /a HTTP/1.0\r\n", b"GET /a HTTP/1.0\r\nConnection: keep-alive\r\n"])
def test_http_1_0_knows_no_interim_answers(line):
    """It would take one for the answer."""
    with Scene(None) as scene:
        for pieces in splits(HINT + FINAL):
            seen = scene.reply(*pieces, request=line + b"Host: a.test\r\n\r\n")
            assert (seen.interims, seen.statuses) == ([], [200])
            seen.client.close()
            scene.gateway.run()


def test_interim_answers_without_end_are_a_bad_answer():
    """An upstream that only ever hints keeps nobody waiting for ever."""
    with Scene(None) as scene:
        seen = scene.reply(*[HINT] * 17)
        assert [each.status for each in seen.interims] == [103] * 16
        assert seen.statuses == [502]
        assert seen.served.lost is not None
        assert scene.counts("too_many_interims") == 1
        assert not seen.eof
    with Scene(None) as scene:
        assert scene.reply(HINT * 17 + FINAL).statuses == [502]


@pytest.mark.parametrize("how", ["close", "reset"])
def test_interim_answers_are_no_answer_when_nothing_follows(how):
    """The upstream ends behind them: 502, and nothing is sent again."""
    with Scene(None) as scene:
        seen = scene.reply(HINT)
        getattr(seen.served, how)()
        scene.gateway.run()
        scene.look(seen)
        assert ([each.status for each in seen.interims], seen.statuses) == ([103], [502])
        assert [(record.who, record.attempts) for record in seen.records] == [("upstream", 1)]
        assert not seen.eof


# -- 100 Continue


def test_the_body_is_sent_when_the_upstream_says_so():
    """100 goes from end to end, at every cut; the body follows, and the connections live on."""
    for pieces in splits(b"HTTP/1.1 100 Continue\r\n\r\n"):
        with Scene(ok) as scene:
            seen = scene.open()
            seen.client.send(UPLOAD)
            scene.gateway.run()
            assert (seen.received, scene.origin.requests) == (b"", [])
            assert scene.origin.last.rest.get(b"expect") == b"100-continue"
            for piece in pieces:
                scene.origin.last.send(piece)
                scene.gateway.run()
            assert [each.status for each in seen.interims] == [100]
            assert scene.origin.last.rest.body == b""
            seen.client.send(b"hello" + NEXT)
            scene.gateway.run()
            scene.look(seen)
            assert [each.status for each in seen.interims] == [100], "once"
            assert seen.statuses == [200, 200]
            assert [request.body for request in seen.requests] == [b"hello", b""]
            assert not seen.eof


@pytest.mark.parametrize("status", [b"401 x", b"413 x", b"417 x", b"200 x"])
def test_a_final_answer_instead_of_100_means_that_no_body_is_wanted(status):
    """The client may send it or not, so that connection cannot go on; the upstream's neither."""
    with Scene(ok) as scene:
        seen = scene.open()
        seen.client.send(UPLOAD)
        scene.gateway.run()
        upstream = scene.origin.last
        upstream.send(b"HTTP/1.1 " + status + b"\r\nContent-Length: 2\r\n\r\nno")
        scene.gateway.run()
        assert (seen.interims, seen.statuses) == ([], [int(status[:3])])
        assert seen.answers[0].get(b"connection") == b"close"
        assert seen.eof
        assert upstream.lost is not None
        seen.client.send(b"hello" + NEXT)
        scene.gateway.run()
        assert len(seen.answers) == 1
        assert scene.origin.requests == []


def test_an_upstream_that_does_not_know_100_gets_the_body_after_a_while():
    """RFC 9110, 10.1.1: nobody waits for ever; the client is told to send."""
    with Scene(ok) as scene:
        seen = scene.open()
        seen.client.send(UPLOAD)
        scene.gateway.advance(2)
        assert [each.status for each in seen.interims] == [100]
        seen.client.send(b"hello")
        scene.gateway.run()
        scene.look(seen)
        assert seen.statuses == [200]
        assert [request.body for request in seen.requests] == [b"hello"]


@pytest.mark.parametrize("value", [b"100-Continue", b"100-continue", b"100-CONTINUE"])
@pytest.mark.parametrize("sent", [0, 2, 5])
def test_a_client_that_does_not_wait_for_100_is_served_all_the_same(value, sent):
    """Its body may come at once, or in part."""
    with Scene(ok) as scene:
        data = UPLOAD.replace(b"100-continue", value)
        seen = scene.play(data + b"hello"[:sent], leave=False)
        scene.gateway.advance(2)
        seen.client.send(b"hello"[sent:])
        scene.gateway.run()
        scene.look(seen)
        assert seen.statuses == [200]
        assert [request.body for request in seen.requests] == [b"hello"]


@pytest.mark.parametrize("value", [b"", b"100-continue, x", b"200-ok", b"100", b"101-continue", b"100-continue;q=1"])
def test_other_expectations_cannot_be_met(value):
    """RFC 9110, 10.1.1: 417."""
    with Scene() as scene:
        seen = scene.play(UPLOAD.replace(b"100-continue", value) + b"hello")
        assert (seen.statuses, seen.eof_before, seen.requests) == ([417], True, [])
        assert [(record.status, record.malformed) for record in seen.records] == [(417, True)]


@pytest.mark.parametrize("head", [GET % b"/a", b"POST /a HTTP/1.1\r\nHost: a.test\r\nContent-Length: 0\r\n\r\n"])
def test_an_expectation_without_a_body_is_dropped(head):
    """There is nothing to wait with."""
    with Scene() as scene:
        seen = scene.play(head[:-2] + b"Expect: 100-continue\r\n\r\n" + NEXT)
        assert (seen.interims, seen.statuses) == ([], [200, 200])
        assert seen.requests[0].get(b"expect") is None


# -- answers of modules


def answering(make):
    """A gateway whose module C{answer} answers C{/a} with what C{make()} makes."""
    modules = [{"name": "answer", "stage": "PRE_REQUEST", "condition": 'request.path == "/a"'}]
    with installed(answer=lambda exchange: make()):
        return Scene(config=CONFIG | {"modules": modules})


@pytest.mark.parametrize("method", [b"GET", b"HEAD"])
@pytest.mark.parametrize("status", [200, 204, 205, 304, 404])
@pytest.mark.parametrize("data", [b"", b"text", NEXT])
def test_the_serializer_decides_whether_there_is_a_body(method, status, data):
    """A module gives content to 204, 304 or HEAD: the next answer still begins where the client looks for it."""
    with answering(lambda: Response(status, [], Whole(data))) as scene:
        seen = scene.play(GET.replace(b"GET", method) % b"/a" + NEXT, methods=[method])
        assert seen.statuses == [status, 200]
        assert seen.answers[0].body == (data if method == b"GET" and status in (200, 404) else b"")
        assert seen.answers[1].body == b"ok"
        assert not seen.eof_before
        assert [record.status for record in seen.records] == [status, 200]
        if method == b"HEAD" and status == 200 and data:
            assert seen.answers[0].get(b"content-length") == b"%d" % len(data)
        if status == 204:
            assert seen.answers[0].get(b"content-length") is None


@pytest.mark.parametrize("status", [0, 1, 99, 100, 101, 103, 199, 600, 999, -1])
def test_a_module_cannot_answer_with_a_status_that_is_none(status):
    """Nor with an interim one: the client would wait for another answer."""
    with answering(lambda: Response(status, [], Whole(b"text"))) as scene:
        seen = scene.play(GET % b"/a" + NEXT)
        assert seen.interims == []
        assert seen.statuses == [502, 200]
        assert scene.counts("invalid_status") == 1


FIELDS = [
    (b"content-length", b"0"),
    (b"transfer-encoding", b"chunked"),
    (b"connection", b"x"),
    (b"keep-alive", b"1"),
    (b"upgrade", b"h2c"),
    (b"x", b"a\r\nContent-Length: 0\r\n\r\nHTTP/1.1 200 OK"),
    (b"x", b"a\nb"),
    (b"x\r\ny", b"z"),
    (b"x y", b"z"),
    (b"", b"z"),
    (b"x", b"\x00"),
]


@pytest.mark.parametrize("field", FIELDS)
def test_a_module_cannot_change_how_its_answer_is_framed(field):
    """Fields of framing and connection, lines within a value: they do not reach the wire."""
    with answering(lambda: Response(200, [field, (b"x-good", b"1")], Whole(b"text"))) as scene:
        seen = scene.play(GET % b"/a" + NEXT)
        assert [answer.body for answer in seen.answers] == [b"text", b"ok"]
        assert seen.answers[0].get(b"x-good") == b"1"
        assert seen.answers[0].get(b"content-length") == b"4"
        assert not seen.answers[0].all(b"x")
