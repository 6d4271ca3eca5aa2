"""The asking side of HTTP/1: one client connection, one raw upstream, no sockets."""

from __future__ import annotations

import gc
import weakref

import pytest
from ends import HIGH, Caller, Giver, Slow, Taker
from twisted.internet.defer import CancelledError
from zope.interface.verify import verifyObject

from protogate.context import Limits
from protogate.errors import ALWAYS, CLIENT, GATEWAY, IDEMPOTENT, NEVER, UPSTREAM, Abort, Phase
from protogate.exchange.ledger import Ledger
from protogate.interfaces import IClientConnection
from protogate.message import CONNECT, Request, Response
from protogate_http.semantics import accept

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
EMPTY = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"


def body_of(caller):
    """Status and content of the one response so far."""
    (response,) = caller.results
    if response.body is None:
        return response.status, None, ("finish", None)
    taker = Taker(response.body)
    return response.status, taker.data, taker.end


def test_interface_and_readiness():
    caller = Caller()
    assert verifyObject(IClientConnection, caller.client)
    assert caller.ready == [caller.client]
    assert (caller.client.capacity, caller.client.busy) == (1, 0)
    caller.ask()
    assert (caller.client.capacity, caller.client.busy) == (0, 1)
    caller.feed(EMPTY)
    assert (caller.client.capacity, caller.client.busy, len(caller.ready)) == (1, 0, 2)


# -- what is sent


def test_a_request_on_the_wire():
    caller = Caller()
    caller.ask(b"GET", b"/x?y", [(b"accept", b"*/*"), (b"x-empty", b"")])
    assert caller.wire.writes == [b"GET /x?y HTTP/1.1\r\nhost: u.test\r\naccept: */*\r\nx-empty: \r\n\r\n"]


def test_a_request_that_cannot_be_written_ends_its_connection(flush_errors):
    caller = Caller()
    giver = Giver(b"x", length=1)
    caller.ask(headers=[(b"x-of-a-faulty-module", "text")], body=giver.body)
    assert (caller.errors[0].who, caller.errors[0].status) == (GATEWAY, 500)
    assert caller.wire.rst
    assert not caller.wire.data
    assert (caller.client.capacity, caller.client.busy) == (0, 0)
    assert not giver.body.attached, "it stays with the caller"
    assert len(flush_errors(TypeError)) == 1


@pytest.mark.parametrize("method", [b"POST", b"PUT", b"PATCH"])
def test_methods_with_content_say_that_there_is_none(method):
    caller = Caller()
    caller.ask(method)
    assert caller.wire.data == method + b" / HTTP/1.1\r\nhost: u.test\r\ncontent-length: 0\r\n\r\n"


def test_bodies_leave_with_their_head_framed_by_their_length():
    caller = Caller()
    caller.ask(b"POST", body=Giver(b"he", b"llo", length=5).body)
    assert caller.wire.writes == [b"POST / HTTP/1.1\r\nhost: u.test\r\ncontent-length: 5\r\n\r\nhello"]
    caller = Caller()
    caller.ask(b"GET", body=Giver(b"he", b"llo", trailers=[(b"x-sum", b"7"), (b"host", b"x")]).body)
    assert caller.wire.writes == [
        (
            b"GET / HTTP/1.1\r\nhost: u.test\r\ntransfer-encoding: chunked\r\n\r\n"
            b"2\r\nhe\r\n3\r\nllo\r\n0\r\nx-sum: 7\r\n\r\n"
        )
    ]


def test_modules_cannot_write_framing_or_lines():
    caller = Caller()
    caller.ask(
        headers=[
            (b"host", b"evil"),
            (b"content-length", b"9"),
            (b"x", b"1\r\n\r\nGET /2"),
            (b"keep-alive", b"1"),
            (b"ok", b"1"),
        ]
    )
    assert caller.wire.data == b"GET / HTTP/1.1\r\nhost: u.test\r\nok: 1\r\n\r\n"
    assert caller.counts == {"invalid_field_dropped": 1}


@pytest.mark.parametrize(
    ("method", "target", "authority"),
    [
        (b"GET", b"/ HTTP/1.1\r\nx: y\r\n\r\nGET /", b"a"),
        (b"GET", b"/a b", b"a"),
        (b"GET", b"", b"a"),
        (b"GET", b"/\xff", b"a"),
        (b"G T", b"/", b"a"),
        (b"", b"/", b"a"),
        (b"GET", b"/", b"a\r\nx: y"),
        (b"GET", b"/", b"a b"),
        (b"CONNECT", b"", b"a b"),
        (b"CONNECT", b"", b""),
    ],
)
def test_a_request_that_would_be_read_otherwise_is_not_written(method, target, authority):
    caller = Caller()
    caller.ask(method, target, authority=authority)
    assert caller.wire.data == b""
    assert (caller.errors[0].status, caller.errors[0].who) == (500, GATEWAY)
    assert caller.client.capacity == 1
    assert caller.counts == {"invalid_request_refused": 1}


def test_te_trailers_is_named_by_connection():
    caller = Caller()
    caller.ask(headers=[(b"te", b"trailers")])
    assert caller.wire.data == b"GET / HTTP/1.1\r\nhost: u.test\r\nte: trailers\r\nconnection: te\r\n\r\n"


def test_a_body_that_is_not_as_long_as_it_said_drops_the_connection():
    for chunks in ([b"ab"], [b"abcd"], [b"ab", b"cd"]):
        caller = Caller()
        giver = Giver(*chunks, length=3)
        caller.ask(b"POST", body=giver.body)
        assert caller.wire.rst
        assert caller.errors[0].status == 500
        assert b"cd" not in caller.wire.data


# -- what is read


@pytest.mark.parametrize(
    ("data", "body", "reusable"),
    [
        (OK, b"ok", True),
        (EMPTY, None, True),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2;x\r\nok\r\n0\r\n\r\n", b"ok", True),
        (b"HTTP/1.1 200 OK\r\nConnection: x, close\r\nContent-Length: 2\r\n\r\nok", b"ok", False),
        (b"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nok", b"ok", False),
        (b"HTTP/1.0 200 OK\r\nContent-Length: 2\r\nConnection: keep-alive\r\n\r\nok", b"ok", True),
        (b"HTTP/1.1 204 x\r\nTransfer-Encoding: chunked\r\n\r\n", None, True),
        (b"HTTP/1.1 304 x\r\nContent-Length: 9\r\n\r\n", None, True),
    ],
)
def test_responses_however_they_come(data, body, reusable):
    for size in range(1, len(data) + 1):
        caller = Caller()
        request = caller.ask()
        caller.feed(data, size)
        assert body_of(caller) == (int(data[9:12]), body, ("finish", None))
        assert caller.client.capacity == (1 if reusable else 0)
        assert caller.wire.ended is not reusable
        assert request.body is None
        if reusable:
            caller.results.clear()
            caller.ask()
            caller.feed(OK)
            assert body_of(caller)[1] == b"ok"


def test_trailers_of_a_response():
    caller = Caller()
    caller.ask()
    caller.feed(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: X\r\n\r\n0\r\nX: y\r\n\r\n", 1)
    assert caller.results[0].headers == []
    assert body_of(caller)[2] == ("finish", [(b"x", b"y")])


@pytest.mark.parametrize("how", ["fin", "both"])
@pytest.mark.parametrize("head", [b"HTTP/1.1 200 OK\r\n\r\n", b"HTTP/1.0 200 OK\r\n\r\n"])
def test_a_body_may_end_with_the_connection(head, how):
    caller = Caller()
    caller.ask()
    caller.feed(head + b"some ").feed(b"more")
    taker = Taker(caller.results[0].body)
    assert (taker.data, taker.end) == (b"some more", None)
    if how == "fin":
        caller.client.readConnectionLost()
        assert caller.wire.closing
    else:
        caller.lose(clean=True)
    assert taker.end == ("finish", None)
    assert caller.client.capacity == 0


def test_a_reset_is_no_end_of_a_body():
    caller = Caller()
    caller.ask()
    caller.feed(b"HTTP/1.1 200 OK\r\n\r\nsome")
    taker = Taker(caller.results[0].body)
    caller.lose()
    assert taker.end[1].error == "http_response_incomplete"


def test_head_and_304_keep_what_describes():
    caller = Caller()
    caller.ask(b"HEAD")
    caller.feed(b"HTTP/1.1 200 OK\r\nContent-Length: 1234\r\n\r\n")
    assert caller.results[0].headers.get(b"content-length") == b"1234"
    assert caller.client.capacity == 1
    caller.ask(b"HEAD")
    caller.feed(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
    assert caller.results[1].headers == []
    caller.ask()
    caller.feed(b"HTTP/1.1 204 OK\r\nContent-Length: 5\r\n\r\n")
    assert caller.results[2].headers == []
    assert caller.client.capacity == 1


def test_fields_of_the_connection_are_taken_out():
    caller = Caller()
    caller.ask()
    caller.feed(
        b"HTTP/1.1 200 OK\r\nKeep-Alive: timeout=5\r\nProxy-Connection: x\r\nProxy-Authenticate: Basic\r\nTE: x\r\n"
        b"Trailer: X\r\nUpgrade: foo\r\nConnection: X-Hop, keep-alive\r\nX-Hop: 1\r\nX-End: 2\r\n"
        b"Content-Length: 0\r\n\r\n"
    )
    assert caller.results[0].headers == [(b"x-end", b"2")]
    assert caller.client.capacity == 1


BAD = {
    "CL abc5": (b"HTTP/1.1 200 OK\r\nContent-Length: abc5\r\n\r\nhello", "bad_framing"),
    "two CL": (b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello", "bad_framing"),
    "CL and TE": (
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        "bad_framing",
    ),
    "TE gzip": (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n", "unknown_transfer_coding"),
    "TE in 1.0": (b"HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", "malformed_response"),
    "name": (b"HTTP/1.1 200 OK\r\nX : y\r\n\r\n", "malformed_response"),
    "NUL": (b"HTTP/1.1 200 OK\r\nX: \x00\r\n\r\n", "malformed_response"),
    "status": (b"HTTP/1.1 700 OK\r\n\r\n", "malformed_response"),
    "101": (b"HTTP/1.1 101 OK\r\n\r\n", "malformed_response"),
    "101 with upgrade": (b"HTTP/1.1 101 OK\r\nConnection: upgrade\r\nUpgrade: h2c\r\n\r\n", "malformed_response"),
    "no HTTP": (b"SSH-2.0-OpenSSH\r\n\r\n", "malformed_response"),
    "chunk": (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n", "malformed_body"),
    "many 1xx": (b"HTTP/1.1 103 x\r\n\r\n" * 20, "too_many_interims"),
}


@pytest.mark.parametrize("name", BAD)
@pytest.mark.parametrize("size", [0, 1])
def test_bad_responses_become_502_and_drop_the_connection(name, size):
    data, event = BAD[name]
    caller = Caller()
    caller.ask()
    for at in range(0, len(data), size or len(data)):
        if not caller.client.dead:
            caller.feed(data[at : at + (size or len(data))])
    assert caller.wire.rst
    assert caller.client.capacity == 0
    assert caller.counts == {event: 1}
    if caller.results:  # the head was good, and handed on before the fault came
        reason = Taker(caller.results[0].body).end[1]
    else:
        (reason,) = caller.errors
    assert (reason.status, reason.who, reason.retry, reason.error) == (502, UPSTREAM, NEVER, "http_protocol_error")
    assert len(caller.ready) == 1


def test_a_large_response_head_has_an_error_of_its_own():
    caller = Caller(limits=Limits(response_headers=1000))
    caller.ask()
    caller.feed(b"HTTP/1.1 200 OK\r\nX: " + b"y" * 1001)
    assert caller.errors[0].error == "http_response_header_section_size"
    assert caller.counts == {"response_headers_too_large": 1}
    assert caller.wire.rst


def test_obs_fold_is_replaced():
    caller = Caller()
    caller.ask()
    caller.feed(b"HTTP/1.1 200 OK\r\nX: a\r\n  b\r\nContent-Length: 0\r\n\r\n")
    assert caller.results[0].headers == [(b"x", b"a b")]


def test_a_chunk_that_is_broken_later_breaks_the_body():
    caller = Caller()
    caller.ask()
    caller.feed(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n")
    taker = Taker(caller.results[0].body)
    caller.feed(b"zz\r\n")
    assert (taker.data, taker.end[1].error) == (b"ok", "http_protocol_error")
    assert caller.wire.rst


# -- interim responses


def test_interim_responses_are_passed_on():
    caller, seen = Caller(), []
    caller.ask(interim=seen.append)
    caller.feed(b"HTTP/1.1 100 x\r\n\r\nHTTP/1.1 103 x\r\nLink: </a>\r\n\r\nHTTP/1.1 102 x\r\n\r\n" + OK, 1)
    assert [(response.status, response.headers) for response in seen] == [(103, [(b"link", b"</a>")]), (102, [])]
    assert body_of(caller)[:2] == (200, b"ok")


def test_interim_responses_are_no_responses():
    caller = Caller()
    caller.ask()
    caller.feed(b"HTTP/1.1 103 x\r\n\r\n")
    caller.lose(clean=True)
    assert caller.errors[0].retry is NEVER


# -- Expect


def test_the_body_waits_for_100():
    caller = Caller()
    giver = Giver(b"body", length=4)
    caller.ask(b"POST", headers=[(b"expect", b"100-continue")], body=giver.body)
    assert caller.wire.data.endswith(b"expect: 100-continue\r\ncontent-length: 4\r\n\r\n")
    assert not giver.body.attached
    caller.feed(b"HTTP/1.1 100 Continue\r\n\r\n")
    assert caller.wire.data.endswith(b"\r\n\r\nbody")
    caller.feed(b"HTTP/1.1 100 Continue\r\n\r\n" + OK)
    assert body_of(caller)[:2] == (200, b"ok")
    assert caller.client.capacity == 1


def test_the_body_is_sent_without_100_after_a_while():
    caller = Caller()
    caller.ask(b"POST", headers=[(b"expect", b"100-continue")], body=Giver(b"body", length=4).body)
    caller.advance(0.9, 0.1)
    assert not caller.wire.data.endswith(b"body")
    caller.advance(0.3, 0.1)
    assert caller.wire.data.endswith(b"\r\n\r\nbody")
    caller.feed(OK)
    assert caller.client.capacity == 1


def test_a_final_response_instead_of_100_saves_the_body():
    caller = Caller()
    giver = Giver(b"body", length=4)
    caller.ask(b"POST", headers=[(b"expect", b"100-continue")], body=giver.body)
    caller.feed(b"HTTP/1.1 417 No\r\nContent-Length: 0\r\n\r\n")
    assert caller.results[0].status == 417
    assert not giver.body.attached
    assert caller.wire.closing, "nobody knows whether the upstream still waits for it"
    caller.advance(2)
    assert not giver.body.attached


# -- early responses


def test_an_early_response_stops_the_upload():
    caller = Caller()
    giver = Giver(b"part", length=1000, ends=False)
    caller.ask(b"POST", body=giver.body)
    caller.feed(b"HTTP/1.1 413 x\r\nContent-Length: 2\r\n\r\nno")
    assert body_of(caller)[:2] == (413, b"no")
    assert giver.stopped
    assert caller.wire.closing
    assert caller.client.capacity == 0


def test_responses_may_begin_before_the_upload_has_ended():
    caller = Caller()
    giver = Giver(ends=False)
    caller.ask(b"POST", body=giver.body)
    caller.feed(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
    taker = Taker(caller.results[0].body)
    giver.body.write(b"one")
    caller.feed(b"3\r\none\r\n")
    giver.body.finish()
    caller.feed(b"0\r\n\r\n")
    assert (taker.data, taker.end) == (b"one", ("finish", None))
    assert caller.client.capacity == 1


# -- bytes that belong to nobody


@pytest.mark.parametrize("extra", [b"x", OK, b"\r\n", b"HTTP/1.1 408 Timeout\r\n\r\n"])
def test_unsolicited_bytes_discard_the_connection(extra):
    caller = Caller()
    caller.ask()
    caller.feed(OK + extra)
    assert body_of(caller)[1] == b"ok"
    assert caller.client.capacity == 0
    assert caller.wire.ended
    caller = Caller()
    caller.ask()
    caller.feed(OK)
    caller.feed(extra)
    assert caller.client.capacity == 0
    assert caller.wire.rst
    assert caller.counts == {"unsolicited_bytes": 1}
    assert len(caller.ready) == 2


def test_a_body_behind_204_or_head_is_never_the_next_response():
    for method, head in ((b"GET", b"204 x"), (b"HEAD", b"200 OK")):
        caller = Caller()
        caller.ask(method)
        caller.feed(b"HTTP/1.1 " + head + b"\r\nContent-Length: 24\r\n\r\nHTTP/1.1 200 OK\r\nCORS: no")
        assert caller.results[0].body is None
        assert caller.client.capacity == 0


def test_an_idle_connection_that_ends_is_not_used_again():
    caller = Caller()
    caller.client.readConnectionLost()
    assert caller.client.capacity == 0
    assert caller.wire.closing
    caller.ask()
    assert caller.errors[0].retry is ALWAYS
    caller = Caller()
    caller.lose()
    assert caller.client.capacity == 0
    done = []
    caller.client.closed.addCallback(done.append)
    assert done == [None]


# -- lost


@pytest.mark.parametrize("how", ["fin", "reset", "both"])
@pytest.mark.parametrize(
    ("data", "error", "retry"),
    [
        (b"", "connection_terminated", IDEMPOTENT),
        (b"HTTP/1.1 200", "http_response_incomplete", NEVER),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n", "http_response_incomplete", NEVER),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nab", "http_response_incomplete", NEVER),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n", "http_response_incomplete", NEVER),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n", "http_response_incomplete", NEVER),
    ],
)
def test_lost_connections_say_whether_another_attempt_is_safe(data, error, retry, how):
    caller = Caller()
    caller.ask()
    if data:
        caller.feed(data)
    if how == "fin":
        caller.client.readConnectionLost()
    else:
        caller.lose(clean=how == "both")
    if caller.results:
        reason = Taker(caller.results[0].body).end[1]
    else:
        (reason,) = caller.errors
    assert (reason.error, reason.retry, reason.who, reason.status) == (error, retry, UPSTREAM, 502)


def test_what_was_read_before_the_reset_counts():
    for clean in (True, False):
        caller = Caller()
        caller.ask()
        caller.feed(b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nab")
        taker = Slow(caller.results[0].body)
        caller.feed(b"cd").feed(b"ef")
        caller.lose(clean)
        for _ in range(3):
            taker.body.resumeProducing()
        assert (taker.data, taker.end) == (b"abcdef", ("finish", None))


def test_what_was_read_before_fin_counts_too():
    caller = Caller()
    caller.ask()
    caller.feed(b"HTTP/1.1 200 OK\r\n\r\nab")
    taker = Slow(caller.results[0].body)
    for data in (b"cd", b"ef", b"gh"):
        caller.feed(data)
    caller.client.readConnectionLost()
    while taker.end is None:
        taker.body.resumeProducing()
    assert (taker.data, taker.end) == (b"abcdefgh", ("finish", None))


def test_cancelling_drops_the_connection_and_stops_the_upload():
    caller = Caller()
    giver = Giver(b"part", ends=False)
    caller.ask(b"POST", body=giver.body)
    caller.answer.cancel()
    assert giver.stopped
    assert caller.wire.rst
    assert caller.client.busy == 0
    assert isinstance(caller.errors[0], CancelledError)
    caller = Caller()
    giver = Giver(b"part", length=4)
    caller.ask(b"POST", headers=[(b"expect", b"100-continue")], body=giver.body)
    caller.answer.cancel()
    assert not giver.stopped, "a body that was never attached stays with the caller"


def test_a_response_nobody_wants_drops_the_connection():
    caller = Caller()
    caller.ask()
    caller.feed(b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\na")
    caller.results[0].body.stopProducing()
    assert caller.wire.rst
    assert caller.client.busy == 0
    caller = Caller()
    caller.ask()
    caller.feed(OK)
    caller.results[0].body.stopProducing()
    assert caller.client.capacity == 1, "it was complete: no reason to drop anything"


def test_an_aborted_upload_is_the_answer_and_never_ends_cleanly():
    caller = Caller()
    giver = Giver(b"part", ends=False)
    caller.ask(b"POST", body=giver.body)
    reason = Abort("too much", CLIENT, 413)
    giver.body.abort(reason)
    assert caller.errors == [reason]
    assert caller.wire.rst
    assert not caller.wire.data.endswith(b"0\r\n\r\n")


def test_abort_ends_the_request():
    caller = Caller()
    caller.ask()
    caller.client.abort()
    assert caller.errors[0].retry is IDEMPOTENT
    assert caller.wire.rst


def test_drain_finishes_the_current_request():
    caller = Caller()
    caller.ask()
    caller.client.drain()
    assert not caller.wire.ended
    caller.feed(OK)
    assert body_of(caller)[1] == b"ok"
    assert caller.wire.closing
    caller = Caller()
    caller.client.drain()
    caller.client.drain()
    assert (caller.wire.closing, caller.client.capacity) == (True, 0)


def test_the_connection_is_free_before_the_answer_is_known():
    caller = Caller()
    order = []
    caller.client.ready = lambda connection: order.append("ready")
    caller.ask()
    caller.answer.addCallback(lambda _: order.append("answer"))
    caller.feed(OK)
    assert order == ["ready", "answer"]


def test_requests_may_start_inside_ready():
    caller = Caller()
    answers = []

    def ready(connection):
        if len(answers) < 3:
            answers.append(None)
            caller.ask(target=b"/%d" % len(answers))

    caller.client.ready = ready
    caller.ask()
    for _ in range(4):
        caller.feed(OK)
    assert len(caller.results) == 4
    assert caller.wire.data.count(b"GET /") == 4


# -- tunnels


ACCEPTED = b"HTTP/1.1 101 x\r\nConnection: upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Accept: %b\r\n\r\n"


@pytest.mark.parametrize("size", [0, 1])
def test_websocket(size):
    caller = Caller()
    giver = Giver(b"early ", ends=False)
    caller.ask(headers=[(b"sec-websocket-key", b"k")], body=giver.body, upgrade=b"websocket")
    assert caller.wire.data == (
        b"GET / HTTP/1.1\r\nhost: u.test\r\nsec-websocket-key: k\r\nupgrade: websocket\r\nconnection: upgrade\r\n\r\n"
    )
    assert not giver.body.attached
    caller.feed(ACCEPTED % b"whatever the client checks" + b"welcome", size)
    assert caller.results[0].status == 101
    assert caller.wire.data.endswith(b"early ")
    taker = Taker(caller.results[0].body)
    assert taker.data == b"welcome"
    giver.body.write(b"hello")
    assert caller.wire.data.endswith(b"early hello")
    giver.body.finish()
    assert caller.wire.fin
    caller.feed(b" bye")
    caller.client.readConnectionLost()
    assert (taker.data, taker.end) == (b"welcome bye", ("finish", None))
    assert caller.wire.closing


def test_a_websocket_version_that_is_there_is_not_said_again():
    caller = Caller()
    caller.ask(headers=[(b"sec-websocket-version", b"13")], body=Giver(ends=False).body, upgrade=b"websocket")
    assert caller.wire.data.count(b"sec-websocket-version") == 1
    assert caller.wire.data.count(b"sec-websocket-key") == 1


@pytest.mark.parametrize("right", [True, False])
def test_websocket_with_a_key_of_our_own(right):
    caller = Caller()
    caller.ask(body=Giver(ends=False).body, upgrade=b"websocket")
    key = caller.wire.data.partition(b"sec-websocket-key: ")[2].partition(b"\r\n")[0]
    assert b"sec-websocket-version: 13\r\n" in caller.wire.data
    caller.feed(ACCEPTED % (accept(key) if right else b"wrong"))
    if right:
        assert (caller.results[0].status, caller.results[0].headers) == (101, [])
    else:
        assert caller.errors[0].error == "http_protocol_error"


def test_connect():
    caller = Caller()
    caller.ask(b"CONNECT", b"", body=Giver(ends=False).body, upgrade=CONNECT, authority=b"b.test:443")
    assert caller.wire.data == b"CONNECT b.test:443 HTTP/1.1\r\nhost: b.test:443\r\n\r\n"
    caller.feed(b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nraw bytes")
    assert Taker(caller.results[0].body).data == b"raw bytes"


def test_a_refused_upgrade_is_a_plain_response():
    caller = Caller()
    giver = Giver(b"early", ends=False)
    caller.ask(body=giver.body, upgrade=b"websocket")
    caller.feed(b"HTTP/1.1 403 x\r\nContent-Length: 2\r\n\r\nno")
    assert body_of(caller)[:2] == (403, b"no")
    assert not giver.body.attached


def test_a_tunnel_that_is_reset():
    caller = Caller()
    giver = Giver(ends=False)
    caller.ask(body=giver.body, upgrade=b"websocket", headers=[(b"sec-websocket-key", b"k")])
    caller.feed(ACCEPTED % b"x")
    taker = Taker(caller.results[0].body)
    caller.lose()
    assert giver.stopped
    assert taker.end[0] == "abort"


def test_the_end_of_an_empty_body_is_no_end_of_the_tunnel():
    """An upstream that answers 101 at once, before or after the tunnel's first bytes."""
    for pieces in ([ACCEPTED % b"x", b"now"], [ACCEPTED % b"x" + b"now"]):
        caller = Caller()
        giver = Giver(ends=False)
        caller.ask(body=giver.body, upgrade=b"websocket", headers=[(b"sec-websocket-key", b"k")])
        for piece in pieces:
            caller.feed(piece)
        taker = Taker(caller.results[0].body)
        assert (taker.data, taker.end) == (b"now", None)
        assert not caller.wire.ended


# -- back-pressure


def test_a_slow_reader_pauses_the_upstream():
    caller = Caller()
    caller.ask()
    caller.feed(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n")
    taker = Slow(caller.results[0].body)
    fed = 0
    while caller.wire.reading:
        caller.feed(b"x" * 10000)
        fed += 10000
    assert fed <= 100000
    while not caller.wire.reading:
        taker.body.resumeProducing()
    assert caller.wire.reading


def test_a_full_transport_pauses_the_upload():
    caller = Caller(flushing=False)
    giver = Giver(*[b"x" * 10000] * 100)
    caller.ask(b"POST", body=giver.body)
    assert caller.wire.waiting < 3 * HIGH
    while giver.chunks:
        caller.wire.flush()
    caller.wire.flush()
    assert caller.wire.data.endswith(b"0\r\n\r\n")


# -- clocks


def test_the_response_head_clock_starts_at_the_last_flushed_byte():
    caller = Caller(flushing=False, response_head=30, upstream_stall=100)
    request = caller.ask()
    caller.advance(40)
    assert caller.errors == []
    caller.wire.flush()
    caller.advance(29)
    assert caller.errors == []
    caller.advance(15)
    (reason,) = caller.errors
    assert (reason.phase, reason.status, reason.who) == (Phase.RESPONSE_HEAD, 504, UPSTREAM)
    assert reason.error == "http_response_timeout"
    assert caller.wire.rst
    assert request.body is None
    assert caller.counts == {"response_head_timeout": 1}


def test_the_response_head_clock_is_exact_when_all_is_flushed_at_once():
    caller = Caller(response_head=3)
    caller.ask(b"POST", body=Giver(b"x", length=1).body)
    caller.advance(2.9, 0.1)
    assert caller.errors == []
    caller.advance(0.3, 0.1)
    assert caller.errors[0].phase is Phase.RESPONSE_HEAD


def test_the_response_head_clock_waits_for_the_upload():
    caller = Caller(response_head=3)
    giver = Giver(b"x", ends=False)
    caller.ask(b"POST", body=giver.body)
    caller.advance(100, 1)
    assert caller.errors == []
    giver.body.finish()
    caller.advance(4, 0.1)
    assert caller.errors[0].phase is Phase.RESPONSE_HEAD


def test_an_upstream_that_takes_nothing_is_given_up():
    for size in (10, 300000):
        caller = Caller(flushing=False, upstream_stall=30)
        giver = Giver(b"x" * size, ends=False)
        caller.ask(b"POST", body=giver.body)
        caller.advance(28)
        assert caller.errors == []
        caller.advance(12)
        assert caller.errors[0].phase is Phase.UPSTREAM_STALL
        assert caller.errors[0].error == "connection_write_timeout"
        assert giver.stopped
        assert caller.counts == {"upstream_stall_timeout": 1}


def test_an_upstream_that_takes_little_is_not_given_up():
    caller = Caller(flushing=False, upstream_stall=30)
    caller.ask(b"POST", body=Giver(b"x" * 300000, ends=False).body)
    for _ in range(20):
        caller.advance(20)
        caller.wire.flush(10)
    assert caller.errors == []


def test_an_upload_that_waits_for_its_client_is_not_the_upstreams_fault():
    caller = Caller(upstream_stall=30, response_head=30, response_stall=30)
    caller.ask(b"POST", body=Giver(b"x", ends=False).body)
    caller.advance(300, 5)
    assert caller.errors == []
    caller.feed(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n")
    taker = Taker(caller.results[0].body)
    caller.advance(300, 5)
    assert taker.end is None


def test_a_response_that_stalls_is_broken():
    caller = Caller(response_stall=60)
    caller.ask()
    caller.feed(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\na")
    taker = Taker(caller.results[0].body)
    caller.advance(59)
    caller.feed(b"b")
    caller.advance(59)
    assert taker.end is None
    caller.advance(2)
    assert taker.end[1].phase is Phase.RESPONSE_STALL
    assert taker.end[1].error == "connection_read_timeout"
    assert caller.wire.rst


def test_a_response_that_is_held_back_does_not_stall():
    caller = Caller(response_stall=60)
    caller.ask()
    caller.feed(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\na")
    taker = Slow(caller.results[0].body)
    caller.feed(b"b")
    caller.advance(300, 5)
    assert taker.end is None
    taker.body.resumeProducing()
    taker.body.resumeProducing()
    caller.advance(55)
    assert taker.end is None
    caller.advance(70)
    assert taker.end[1].phase is Phase.RESPONSE_STALL


def test_clocks_that_are_off():
    caller = Caller(flushing=False, upstream_stall=0, response_head=0, response_stall=0)
    caller.ask(b"POST", body=Giver(b"x" * 300000).body)
    caller.advance(1000, 10)
    caller.wire.flush()
    caller.advance(1000, 10)
    caller.feed(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n")
    caller.advance(1000, 10)
    assert caller.errors == []
    assert not caller.wire.ended


def test_tunnels_may_be_silent_but_not_stuck():
    caller = Caller(flushing=False, upstream_stall=30, response_head=30, response_stall=30)
    giver = Giver(ends=False)
    caller.ask(body=giver.body, upgrade=b"websocket", headers=[(b"sec-websocket-key", b"k")])
    caller.wire.flush()
    caller.feed(ACCEPTED % b"x")
    taker = Taker(caller.results[0].body)
    caller.advance(300, 5)
    assert taker.end is None
    giver.body.write(b"x")
    caller.advance(50)
    assert taker.end[1].phase is Phase.UPSTREAM_STALL


def test_a_closing_connection_is_aborted_in_the_end():
    caller = Caller(flushing=False, upstream_stall=30)
    caller.ask(b"POST", body=Giver(b"x" * 1000, ends=False).body)
    caller.feed(b"HTTP/1.1 413 x\r\nContent-Length: 0\r\n\r\n")
    assert caller.wire.closing
    caller.advance(60)
    assert caller.wire.rst


# -- the ledger


def asked(caller):
    request = Request(b"GET", b"/", (), None, b"u.test")
    ledger = request.ledger = Ledger(caller.clock.seconds())
    caller.client.handle(request).addBoth(caller.results.append)
    return ledger


def test_sent_and_answered():
    caller = Caller()
    ledger = asked(caller)
    assert ledger.sent == 1000
    caller.clock.advance(1)
    caller.feed(b"HTTP/1.1 103 x\r\n\r\n")
    assert ledger.answered == 0
    caller.clock.advance(1)
    caller.feed(OK)
    assert ledger.answered == 1002


def test_sent_is_when_the_last_byte_was_flushed():
    caller = Caller(flushing=False)
    ledger = asked(caller)
    caller.advance(3, 0.05)
    assert ledger.sent == 0
    caller.wire.flush()
    caller.advance(3, 0.05)
    assert 1003 <= ledger.sent <= 1004


def test_sent_is_found_out_where_the_transport_says_only_that_it_was_not():
    """As TLS on protogate's reactor does, when the socket was full."""
    caller = Caller(flushing=False)
    caller.client._hears = True
    ledger = asked(caller)
    caller.client.flushed(False)
    caller.clock.advance(0.01)
    caller.wire.waiting = 0
    caller.advance(0.2, 0.05)
    assert 1000 <= ledger.sent <= 1000.2


def test_an_answer_shows_that_the_request_was_sent():
    caller = Caller(flushing=False)
    ledger = asked(caller)
    caller.clock.advance(0.01)
    caller.feed(OK)
    assert ledger.sent == 1000
    assert caller.results[0].status == 200


def test_sent_when_the_request_starts_inside_a_read():
    caller = Caller()
    ledgers = []
    caller.client.ready = lambda connection: ledgers or ledgers.append(asked(caller))
    caller.ask()
    caller.feed(OK)
    caller.advance(0.2, 0.05)
    assert ledgers[0].sent == 1000


# -- garbage


class Token:
    """Something that a request refers to."""

    def interim(self, response):
        raise AssertionError


def test_nothing_is_left_of_a_request_that_is_over():
    gc.collect()
    gc.disable()
    try:
        caller = Caller()
        for finish in (OK, b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\n\r\n"):
            token = Token()
            seen = weakref.ref(token)
            caller.ask(b"POST", body=Giver(b"abc", length=3).body, interim=token.interim)
            del token
            caller.feed(finish)
            Taker(caller.results.pop().body)
            del caller.answer
            assert seen() is None
        assert gc.collect() == 0
    finally:
        gc.enable()


def test_responses_are_responses():
    caller = Caller()
    caller.ask()
    caller.feed(OK)
    assert type(caller.results[0]) is Response
