"""The serving side of HTTP/1: one raw client, one service, no sockets."""

from __future__ import annotations

import gc
import weakref

import pytest
from ends import HIGH, App, Giver, Slow, Taker, Wire, never, reading
from twisted.internet.address import IPv4Address, IPv6Address, UNIXAddress
from twisted.internet.defer import Deferred, fail, succeed
from twisted.internet.interfaces import ISSLTransport, ITCPTransport
from zope.interface import directlyProvides
from zope.interface.verify import verifyObject

from protogate.body import Whole
from protogate.connection import LINGER_BYTES
from protogate.context import Limits
from protogate.errors import CLIENT, CLIENT_GONE, CUT_OFF, GATEWAY, UPSTREAM, Abort, Phase
from protogate.interfaces import IConnection, IStreamCodec
from protogate.message import CONNECT, Response, peer_at
from protogate_http.http1 import Http1
from protogate_http.server1 import DRAIN

GET = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"
POST = b"POST / HTTP/1.1\r\nHost: a\r\n"
OK = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n"
CHUNKED = b"Transfer-Encoding: chunked\r\n"
SOCKET = (
    b"GET /ws HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
    b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
)


def echo(request, data):
    return Response(200, [(b"x-target", request.target)], Giver(data, length=len(data)).body if data else None)


def test_interfaces():
    assert verifyObject(IStreamCodec, Http1())
    assert verifyObject(IConnection, App().server)


# -- what is refused: section A of the public bug reports

LONG = b"x" * 9000
REFUSED = {
    "CL and TE": (POST + b"Content-Length: 0\r\n" + CHUNKED + b"\r\n20\r\n", 400, "bad_framing"),
    "TE and CL": (POST + CHUNKED + b"Content-Length: 0\r\n\r\n20\r\n", 400, "bad_framing"),
    "TE twice": (POST + CHUNKED + CHUNKED + b"\r\n0\r\n\r\n", 400, "bad_framing"),
    "TE twice in one": (POST + b"Transfer-Encoding: chunked, chunked\r\n\r\n0\r\n\r\n", 400, "bad_framing"),
    "TE split": (
        POST + b"Transfer-Encoding: identity\r\n" + CHUNKED + b"\r\n0\r\n\r\n",
        501,
        "unknown_transfer_coding",
    ),
    "TE gzip, chunked": (POST + b"Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n", 501, "unknown_transfer_coding"),
    "TE chunked, gzip": (POST + b"Transfer-Encoding: chunked, gzip\r\n\r\n0\r\n\r\n", 400, "bad_framing"),
    "TE identity": (POST + b"Transfer-Encoding: identity\r\n\r\n", 400, "bad_framing"),
    "TE empty": (POST + b"Transfer-Encoding:\r\n\r\n", 400, "bad_framing"),
    "TE xchunked": (POST + b"Transfer-Encoding: xchunked\r\n\r\n", 400, "bad_framing"),
    "TE quoted": (POST + b'Transfer-Encoding: "chunked"\r\n\r\n', 400, "bad_framing"),
    "TE with a parameter": (POST + b"Transfer-Encoding: chunked;q=1\r\n\r\n", 400, "bad_framing"),
    "TE with a comma": (POST + b"Transfer-Encoding: ,chunked\r\n\r\n", 400, "bad_framing"),
    "TE in 1.0": (
        b"GET / HTTP/1.0\r\nContent-Length: 50\r\nConnection: keep-alive\r\n" + CHUNKED + b"\r\n3\r\nxxx\r\n0\r\n\r\n",
        400,
        "bad_framing",
    ),
    "only TE in 1.0": (b"POST / HTTP/1.0\r\n" + CHUNKED + b"\r\n3\r\nxxx\r\n0\r\n\r\n", 400, "bad_framing"),
    "two CL that differ": (POST + b"Content-Length: 0\r\nContent-Length: 38\r\n\r\n", 400, "bad_framing"),
    "two CL that agree": (POST + b"Content-Length: 5\r\nContent-Length: 5\r\n\r\nhello", 400, "bad_framing"),
    "CL as a list": (POST + b"Content-Length: 42, 42\r\n\r\n", 400, "bad_framing"),
    "CL +5": (POST + b"Content-Length: +5\r\n\r\nhello", 400, "bad_framing"),
    "CL -5": (POST + b"Content-Length: -5\r\n\r\nhello", 400, "bad_framing"),
    "CL 5_0": (POST + b"Content-Length: 5_0\r\n\r\nhello", 400, "bad_framing"),
    "CL 0x5": (POST + b"Content-Length: 0x5\r\n\r\nhello", 400, "bad_framing"),
    "CL 5.0": (POST + b"Content-Length: 5.0\r\n\r\nhello", 400, "bad_framing"),
    "CL empty": (POST + b"Content-Length:\r\n\r\nhello", 400, "bad_framing"),
    "CL with a space": (POST + b"Content-Length: 5 5\r\n\r\nhello", 400, "bad_framing"),
    "CL too long": (POST + b"Content-Length: 1000000000000000000\r\n\r\nhello", 400, "bad_framing"),
    "CL in other digits": (POST + "Content-Length: ５\r\n\r\nhello".encode(), 400, "bad_framing"),
    "space before the colon": (POST + b"Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n", 400, "malformed_head"),
    "folded TE": (POST + b"Transfer-Encoding:\r\n chunked\r\n\r\n0\r\n\r\n", 400, "malformed_head"),
    "no Host": (b"GET / HTTP/1.1\r\n\r\n", 400, "bad_host"),
    "two Hosts": (b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", 400, "bad_host"),
    "two Hosts in 1.0": (b"GET / HTTP/1.0\r\nHost: a\r\nHost: a\r\n\r\n", 400, "bad_host"),
    "no Host, absolute": (b"GET http://a/ HTTP/1.1\r\n\r\n", 400, "bad_host"),
    "NUL in Host": (b"GET / HTTP/1.1\r\nHost: good.test\x00.evil.test\r\n\r\n", 400, "malformed_head"),
    "bad target": (b"GET a HTTP/1.1\r\nHost: a\r\n\r\n", 400, "bad_target"),
    "bad scheme": (b"GET ftp://a/ HTTP/1.1\r\nHost: a\r\n\r\n", 400, "bad_target"),
    "no authority": (b"GET http:///x HTTP/1.1\r\nHost: a\r\n\r\n", 400, "bad_target"),
    "* with GET": (b"GET * HTTP/1.1\r\nHost: a\r\n\r\n", 400, "bad_target"),
    "CONNECT to a path": (b"CONNECT /x HTTP/1.1\r\nHost: a\r\n\r\n", 400, "bad_target"),
    "CONNECT to a URL": (b"CONNECT http://a/ HTTP/1.1\r\nHost: a\r\n\r\n", 400, "bad_target"),
    "CONNECT without a port": (b"CONNECT a HTTP/1.1\r\nHost: a\r\n\r\n", 400, "bad_target"),
    "CONNECT without a host": (b"CONNECT :443 HTTP/1.1\r\nHost: a\r\n\r\n", 400, "bad_target"),
    "CONNECT with content": (b"CONNECT a:1 HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello", 400, "bad_framing"),
    "version": (b"GET / HTTP/2.0\r\nHost: a\r\n\r\n", 505, "http_version_not_supported"),
    "preface of HTTP/2": (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 505, "http_version_not_supported"),
    "expectation": (POST + b"Content-Length: 3\r\nExpect: 200-ok\r\n\r\nabc", 417, "unknown_expectation"),
    "empty Host": (b"GET / HTTP/1.1\r\nHost:\r\n\r\n", 400, "bad_host"),
    "bad Host beside a target that wins": (b"GET http://b/ HTTP/1.1\r\nHost: a b\r\n\r\n", 400, "bad_host"),
    "empty Host beside a target that wins": (b"GET http://b/ HTTP/1.1\r\nHost:\r\n\r\n", 400, "bad_host"),
    "garbage": (b"\x16\x03\x01\x00\xa5\x01\r\n\r\n", 400, "malformed_head"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_bad_heads_get_one_answer_and_nothing_after_it(name):
    data, status, event = REFUSED[name]
    data += b"GET /next HTTP/1.1\r\nHost: a\r\n\r\n"
    cuts = [(data,), *((data[:at], data[at:]) for at in range(1, len(data)))]
    cuts.append(tuple(data[at : at + 1] for at in range(len(data))))
    for cut in cuts:
        app = App()
        for piece in cut:
            app.feed(piece)
        assert [request.malformed.status for request in app.requests] == [status], cut
        assert app.requests[0].malformed.who is CLIENT
        assert app.requests[0].target != b"/next"
        assert app.wire.data.startswith(b"HTTP/1.1 %d " % status)
        assert app.wire.data.endswith(b"content-length: 0\r\nconnection: close\r\n\r\n")
        assert app.wire.data.count(b"HTTP/1.1 ") == 1
        assert app.wire.fin, "lingering: our half is closed, theirs still read"
        assert app.closed == [None]
        assert app.counts == {event: 1}


LIMITED = {
    "request line": (b"GET /" + LONG + b" HTTP/1.1\r\nHost: a\r\n\r\n", 414, "request_line_too_long"),
    "header line": (b"GET / HTTP/1.1\r\nHost: a\r\nX: " + LONG + b"\r\n\r\n", 431, "header_line_too_long"),
    "all headers": (b"GET / HTTP/1.1\r\n" + b"X: %b\r\n" % (b"x" * 8000) * 9 + b"\r\n", 431, "headers_too_large"),
    "many headers": (b"GET / HTTP/1.1\r\n" + b"X: y\r\n" * 129 + b"\r\n", 431, "too_many_headers"),
    "endless line": (b"GET /" + LONG, 414, "request_line_too_long"),
    "endless header": (b"GET / HTTP/1.1\r\nX: " + LONG, 431, "header_line_too_long"),
}


@pytest.mark.parametrize("name", LIMITED)
def test_each_limit_has_its_own_answer(name):
    data, status, event = LIMITED[name]
    for size in (0, 1000):
        app = App().feed(data, size)
        assert [request.malformed.status for request in app.requests] == [status]
        assert app.requests[0].method == b"GET"
        assert app.counts == {event: 1}
        assert app.wire.data.startswith(b"HTTP/1.1 %d " % status)
        assert sum(len(name) + len(value) for name, value in app.requests[0].headers) < 65536


@pytest.mark.parametrize("body", [b"", b"Content-Length: 5\r\n\r\nhello", b"Content-Length: 5\r\n\r\nhe"])
def test_what_the_service_finds_malformed_ends_the_connection_too(body):
    def answer(request):
        request.malformed = Abort("bad host", CLIENT, 400)
        if request.body is not None:
            request.body.stopProducing()
        return Response(400)

    app = App(answer).feed(b"POST / HTTP/1.1\r\nHost: a..b\r\n" + (body or b"\r\n") + GET)
    assert len(app.requests) == 1
    assert app.wire.data == b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
    assert app.wire.ended


def test_malformed_requests_keep_what_is_sane_and_know_where_they_came_from():
    app = App().feed(b"POST /login HTTP/1.1\r\nHost: a.test\r\nContent-Length: x\r\nUser-Agent: evil\r\n\r\n")
    request = app.requests[0]
    assert (request.method, request.target, request.authority) == (b"POST", b"/login", b"a.test")
    assert request.headers == [(b"user-agent", b"evil")]
    assert request.peer.ip == "192.168.1.1"
    assert request.malformed.error == "http_request_error"
    assert request.ledger is not None


def test_a_good_answer_is_not_lost_when_the_next_request_is_bad():
    later = Deferred()
    app = App(lambda request: later).feed(GET + b"BAD\r\n\r\n" + GET)
    assert len(app.requests) == 1
    later.callback(Response(200))
    assert app.wire.data.startswith(OK + b"HTTP/1.1 400 ")
    assert len(app.requests) == 2


def test_body_limit_is_told_from_the_head():
    app = App(limits=Limits(body=10)).feed(POST + b"Content-Length: 11\r\n\r\n")
    assert app.requests[0].malformed.status == 413
    assert app.counts == {"body_too_large": 1}
    app = App(limits=Limits(body=10)).feed(POST + b"Content-Length: 10\r\n\r\n0123456789")
    assert app.requests[0].malformed is None


def test_body_limit_counts_chunks():
    app = App(reading(echo), limits=Limits(body=10)).feed(POST + CHUNKED + b"\r\n")
    app.feed(b"a\r\n0123456789\r\n")
    assert app.wire.data == b""
    app.feed(b"1\r\nx\r\n0\r\n\r\n")
    assert app.wire.data.startswith(b"HTTP/1.1 413 ")
    assert app.wire.fin
    assert app.counts == {"body_too_large": 1}


# -- framing of requests


@pytest.mark.parametrize(
    ("data", "body"),
    [
        (b"Content-Length: 010\r\n\r\n0123456789", b"0123456789"),
        (b"Content-Length: 0\r\n\r\n", b""),
        (b"\r\n", b""),
        (CHUNKED + b"\r\n5;x=y\r\nhello\r\n0\r\n\r\n", b"hello"),
        (b"TRANSFER-encoding: Chunked\r\n\r\n5\r\nhello\r\n0\r\nx: y\r\n\r\n", b"hello"),
        (CHUNKED + b"\r\n0\r\n\r\n", b""),
    ],
)
@pytest.mark.parametrize("method", [b"POST", b"GET", b"HEAD", b"OPTIONS", b"BREW"])
def test_requests_are_framed_by_their_fields_whatever_the_method(data, body, method):
    data = method + b" /1 HTTP/1.1\r\nHost: a\r\n" + data + b"GET /2 HTTP/1.1\r\nHost: a\r\n\r\n"
    for at in range(1, len(data)):
        seen = []
        app = App(reading(lambda request, data, seen=seen: seen.append((request.target, data)) or Response(204)))
        app.feed(data[:at]).feed(data[at:])
        assert seen == [(b"/1", body), (b"/2", b"")]
        assert app.wire.data == b"HTTP/1.1 204 No Content\r\n\r\n" * 2
        assert app.closed == [None, None]
    app.feed(data, 1)
    assert seen == [(b"/1", body), (b"/2", b"")] * 2


def test_small_requests_are_whole_when_they_are_handed_on():
    app = App(lambda request: Response(200, [], request.body)).feed(POST + b"Content-Length: 5\r\n\r\nhello")
    assert type(app.requests[0].body) is Whole
    assert app.wire.writes == [b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello"]
    assert app.requests[0].body.length == 5


def test_trailers_are_kept_apart_and_forbidden_ones_dropped():
    takers = []
    app = App(lambda request: takers.append(Taker(request.body)) or Response(200))
    app.feed(POST + CHUNKED + b"Trailer: x\r\n\r\n0\r\nX-Sum: 7\r\nContent-Length: 3\r\n\r\n")
    assert takers[0].end == ("finish", [(b"x-sum", b"7")])
    assert app.requests[0].headers == []
    app = App(
        lambda request: Response(
            200,
            [],
            Giver(b"a", trailers=[(b"x-sum", b"7"), (b"content-length", b"9"), (b"host", b"b"), (b"x", b"\r\n")]).body,
        )
    ).feed(GET)
    assert app.wire.data.endswith(b"\r\n\r\n1\r\na\r\n0\r\nx-sum: 7\r\n\r\n")


@pytest.mark.parametrize(
    ("line", "target", "authority"),
    [
        (b"GET /x?y HTTP/1.1", b"/x?y", b"a.test"),
        (b"GET http://b.test/x HTTP/1.1", b"/x", b"b.test"),
        (b"GET HTTPS://b.test:81 HTTP/1.1", b"/", b"b.test:81"),
        (b"GET http://b.test?x HTTP/1.1", b"/?x", b"b.test"),
        (b"OPTIONS * HTTP/1.1", b"*", b"a.test"),
        (b"OPTIONS http://b.test HTTP/1.1", b"*", b"b.test"),
        (b"GET // HTTP/1.1", b"//", b"a.test"),
        (b"CONNECT b.test:443 HTTP/1.1", b"", b"b.test:443"),
        (b"CONNECT [::1]:443 HTTP/1.1", b"", b"[::1]:443"),
    ],
)
def test_the_authority_of_the_target_wins_over_host(line, target, authority):
    app = App().feed(line + b"\r\nHost: a.test\r\n\r\n")
    request = app.requests[0]
    assert (request.target, request.authority, request.malformed) == (target, authority, None)
    assert request.headers == []


def test_http10_needs_no_host():
    app = App().feed(b"GET / HTTP/1.0\r\n\r\n")
    assert (app.requests[0].authority, app.requests[0].protocol) == (b"", "HTTP/1.0")
    assert app.wire.closing


HOPS = (
    b"Keep-Alive: timeout=5\r\nProxy-Connection: x\r\nProxy-Authorization: Basic tok\r\nTE: trailers, deflate\r\n"
    b"Trailer: X\r\nUpgrade: foo\r\nHTTP2-Settings: AAMA\r\nProxy-Authenticate: Basic\r\n"
    b"Connection: X-Hop, keep-alive, te\r\nX-Hop: 1\r\nX-End: 2\r\n"
)


def test_fields_of_the_connection_are_taken_out():
    app = App().feed(b"GET / HTTP/1.1\r\nHost: a\r\n" + HOPS + b"\r\n")
    assert app.requests[0].headers == [(b"x-end", b"2"), (b"te", b"trailers")]
    assert app.requests[0].upgrade is None


def test_what_connection_names_cannot_touch_framing_or_host():
    app = App(reading(echo)).feed(POST + b"Connection: content-length, host, x\r\nContent-Length: 3\r\n\r\nabc" + GET)
    assert [request.authority for request in app.requests] == [b"a", b"a"]
    assert app.wire.data.count(b"HTTP/1.1 200 OK") == 2


# -- keep-alive


@pytest.mark.parametrize(
    ("head", "keeps", "says"),
    [
        (b"GET / HTTP/1.1\r\nHost: a\r\n", True, None),
        (b"GET / HTTP/1.1\r\nHost: a\r\nConnection: keep-alive\r\n", True, None),
        (b"GET / HTTP/1.1\r\nHost: a\r\nConnection: x, CLOSE\r\n", False, b"close"),
        (b"GET / HTTP/1.1\r\nHost: a\r\nConnection: x\r\nConnection: close\r\n", False, b"close"),
        (b"GET / HTTP/1.0\r\n", False, b"close"),
        (b"GET / HTTP/1.0\r\nConnection: Keep-Alive\r\n", True, b"keep-alive"),
        (b"GET / HTTP/1.0\r\nConnection: keep-alive, close\r\n", False, b"close"),
    ],
)
def test_keep_alive_of_both_versions(head, keeps, says):
    app = App().feed(head + b"\r\n")
    assert app.wire.ended is not keeps
    assert (b"connection: %b\r\n" % (says or b"")) in app.wire.data if says else b"connection" not in app.wire.data


def test_nothing_is_read_after_close():
    app = App().feed(b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n" + GET)
    assert len(app.requests) == 1
    assert app.wire.fin
    app.feed(GET)
    assert len(app.requests) == 1


def test_an_unknown_length_is_chunked_or_ends_the_connection():
    app = App(lambda request: Response(200, [], Giver(b"abc").body)).feed(GET)
    assert app.wire.writes == [b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n"]
    assert not app.wire.ended
    app.wire.writes.clear()
    app.feed(b"GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n")
    assert app.wire.data == b"HTTP/1.1 200 OK\r\nconnection: close\r\n\r\nabc".replace(b"abc", b"abc")
    assert app.wire.closing


@pytest.mark.parametrize(("asks", "keeps"), [(b"close", False), (b"keep-alive", True), (b"Keep-Alive, x-y", True)])
def test_a_module_may_ask_for_connection_options(asks, keeps):
    app = App(lambda request: Response(200, [(b"connection", asks), (b"x-y", b"1")])).feed(GET)
    assert app.wire.ended is not keeps
    assert app.wire.data.endswith(
        b"x-y: 1\r\ncontent-length: 0\r\nconnection: %b\r\n\r\n" % (asks.lower().split(b",")[0])
    )
    app = App(lambda request: Response(200, [(b"connection", asks)])).feed(b"GET / HTTP/1.0\r\n\r\n")
    assert app.wire.data.endswith(b"connection: close\r\n\r\n")


def test_drain_finishes_what_is_under_way():
    later = Deferred()
    app = App(lambda request: later).feed(GET + GET)
    app.server.drain()
    assert not app.wire.ended
    later.callback(Response(200))
    assert app.wire.data == b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
    assert app.wire.fin, "the second request was read but will not be answered"
    app = App()
    app.server.drain()
    app.clock.advance(2.9)
    app.server.drain()
    assert not app.wire.closing, "a request may be on its way"
    app.advance(0.3, 0.1)
    assert app.wire.closing
    assert app.counts == {}
    app = App()
    app.server.drain()
    app.clock.advance(2.9)
    app.feed(GET)
    assert app.wire.closing
    assert app.wire.data.endswith(b"connection: close\r\n\r\n")
    app = App().feed(GET[:10])
    app.server.drain()
    assert not app.wire.ended, "a request that has begun is answered"
    app.feed(GET[10:])
    assert app.wire.closing
    assert app.wire.data.endswith(b"connection: close\r\n\r\n")


@pytest.mark.parametrize("drains", [True, False])
def test_a_request_that_a_loop_far_behind_has_not_read_yet_is_answered(drains):
    app = App(client_idle=75)
    if drains:
        app.server.drain()
    app.clock.advance(100)  # a single turn: clocks come first, then what can be read
    app.feed(GET)
    assert app.wire.data.startswith(b"HTTP/1.1 200 OK\r\n")
    assert app.wire.closing == drains
    assert app.counts == {}
    if drains:
        return
    app.clock.advance(100)
    app.feed(GET)
    assert app.wire.data == OK * 2, "and the next one, too"
    app.clock.advance(100)
    assert not app.wire.closing
    app.advance(0.2, 0.1)
    assert app.wire.closing
    assert app.counts == {"client_idle_timeout": 1}


# -- pipelining


def test_pipelined_answers_leave_in_order():
    data = b"GET /1 HTTP/1.1\r\nHost: a\r\n\r\n" + POST.replace(b"/", b"/2", 1) + b"Content-Length: 3\r\n\r\nabc"
    data += b"GET /3 HTTP/1.1\r\nHost: a\r\n\r\n"
    for size in (0, 1, 7):
        waiting = []
        app = App(lambda request, waiting=waiting: waiting.append(Deferred()) or waiting[-1]).feed(data, size)
        for n in (1, 2, 3):
            assert len(app.requests) == n
            waiting[-1].callback(Response(200, [(b"x", b"%d" % n)]))
        assert app.wire.data == b"".join(
            b"HTTP/1.1 200 OK\r\nx: %d\r\ncontent-length: 0\r\n\r\n" % n for n in (1, 2, 3)
        )


def test_a_client_that_reads_nothing_gets_one_buffer():
    app = App(lambda request: Response(200, [(b"x", b"y" * 1000)]), flushing=False).feed(GET * 1000)
    assert app.wire.waiting < 3 * HIGH
    first = len(app.requests)
    assert first < 1000
    app.wire.flush()
    assert len(app.requests) > first


def test_many_pipelined_requests_do_not_nest():
    app = App().feed(GET * 2000)
    assert len(app.requests) == 2000


# -- responses


@pytest.mark.parametrize("status", [204, 304, 205])
@pytest.mark.parametrize("method", [b"GET", b"HEAD"])
def test_bodyless_statuses_have_no_body_whatever_a_module_says(status, method):
    giver = Giver(b"text", length=4)
    app = App(lambda request: Response(status, [(b"content-length", b"4")], giver.body))
    app.feed(method + GET[3:])
    head = app.wire.data
    assert head.endswith(b"\r\n\r\n")
    assert b"text" not in head
    expected = {204: b"", 304: b"content-length: 4\r\n", 205: b"content-length: 0\r\n"}[status]
    if method == b"HEAD" and status == 205:
        expected = b"content-length: 4\r\n"
    assert head.partition(b"\r\n")[2] == expected + b"\r\n"
    assert giver.stopped
    app.answer = lambda request: Response(200)
    app.feed(GET)
    assert app.wire.data.endswith(OK)


def test_head_describes_what_get_would_give():
    app = App(lambda request: Response(200, [], Giver(b"12345", length=5).body)).feed(b"HEAD" + GET[3:])
    assert app.wire.data == b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\n"
    app = App(lambda request: Response(200, [(b"content-length", b"x")], Giver(b"12345").body)).feed(b"HEAD" + GET[3:])
    assert app.wire.data == b"HTTP/1.1 200 OK\r\n\r\n"


def test_modules_cannot_write_framing():
    fields = [
        (b"content-length", b"99"),
        (b"transfer-encoding", b"gzip"),
        (b"te", b"x"),
        (b"upgrade", b"h2c"),
        (b"ok", b"1"),
    ]
    app = App(lambda request: Response(200, fields, Giver(b"abc", length=3).body)).feed(GET)
    assert app.wire.data == b"HTTP/1.1 200 OK\r\nok: 1\r\ncontent-length: 3\r\n\r\nabc"


def test_invalid_fields_never_reach_the_wire():
    fields = [
        (b"x-a", b"1\r\nset-cookie: evil=1"),
        (b"x-b", b"\x00"),
        (b"x-c\r\nx-d", b"1"),
        (b"content-length: 5, x", b"1"),
        (b"", b"1"),
        (b"a b", b"1"),
        (b"x-\xff", b"1"),
        (b"X-Good", b"\xc3\xa9\t1"),
    ]
    app = App(lambda request: Response(200, fields)).feed(GET)
    assert app.wire.data == b"HTTP/1.1 200 OK\r\nx-good: \xc3\xa9\t1\r\ncontent-length: 0\r\n\r\n"
    assert app.counts == {"invalid_field_dropped": 7}


@pytest.mark.parametrize("status", [101, 100, 199, 600, 99])
def test_statuses_that_are_no_answer_become_502(status):
    giver = Giver(b"x")
    app = App(lambda request: Response(status, [(b"a", b"b")], giver.body)).feed(GET)
    assert app.wire.data == b"HTTP/1.1 502 Bad Gateway\r\ncontent-length: 0\r\n\r\n"
    assert giver.stopped
    assert app.counts == {"invalid_status": 1}


@pytest.mark.parametrize("chunks", [[b"ab"], [b"abcd"], [b"ab", b"cd"], []])
def test_a_body_that_is_not_as_long_as_it_said_breaks_the_connection(chunks):
    app = App(lambda request: Response(200, [], Giver(*chunks, length=3).body)).feed(GET + GET)
    assert app.wire.rst
    assert len(app.requests) == 1
    assert b"cd" not in app.wire.data
    assert app.counts == {"body_length_mismatch": 1}
    assert app.closed[0].status == 500


def test_interim_responses_pass_to_those_who_know_them():
    later = Deferred()
    app = App(lambda request: later).feed(GET)
    request = app.requests[0]
    request.interim(Response(103, [(b"link", b"</a>"), (b"content-length", b"1")]))
    request.interim(Response(100))
    request.interim(Response(101))
    request.interim(Response(200))
    assert app.wire.data == b"HTTP/1.1 103 Early Hints\r\nlink: </a>\r\n\r\n"
    later.callback(Response(200))
    request.interim(Response(103))
    assert app.wire.data.count(b"103") == 1
    later = Deferred()
    app = App(lambda request: later).feed(b"GET / HTTP/1.0\r\n\r\n")
    app.requests[0].interim(Response(103))
    assert app.wire.data == b""


# -- Expect


EXPECT = POST + b"Content-Length: 4\r\nExpect: 100-Continue\r\n\r\n"


def test_100_is_sent_when_somebody_wants_the_body():
    later, takers = Deferred(), []
    app = App(lambda request: later).feed(EXPECT)
    assert app.wire.data == b""
    assert (b"expect", b"100-continue") in app.requests[0].headers
    takers.append(Taker(app.requests[0].body))
    assert app.wire.data == b"HTTP/1.1 100 Continue\r\n\r\n"
    app.feed(b"body")
    assert takers[0].end == ("finish", None)
    later.callback(Response(200))
    assert app.wire.data == b"HTTP/1.1 100 Continue\r\n\r\n" + OK
    assert not app.wire.ended


def test_without_100_nobody_knows_whether_the_body_comes():
    app = App(lambda request: Response(401)).feed(EXPECT)
    assert app.wire.data == b"HTTP/1.1 401 Unauthorized\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
    assert app.wire.fin
    app.feed(b"body")
    assert len(app.requests) == 1


def test_expect_of_http10_or_without_a_body_is_ignored():
    app = App().feed(b"POST / HTTP/1.0\r\nContent-Length: 1\r\nExpect: 100-continue\r\n\r\na")
    assert app.requests[0].headers == []
    app = App().feed(POST + b"Expect: 100-continue\r\n\r\n")
    assert app.requests[0].headers == []
    assert app.wire.data == OK


# -- early responses, unread bodies, lingering close


def test_unread_bodies_are_drained_to_keep_the_connection():
    app = App(lambda request: Response(413) if request.body else Response(200))
    app.feed(POST + b"Content-Length: 3\r\n\r\na")
    assert app.wire.data == b"HTTP/1.1 413 Content Too Large\r\ncontent-length: 0\r\n\r\n"
    assert app.server.busy == 1
    app.feed(b"bc" + GET)
    assert app.wire.data.endswith(OK)
    assert app.server.busy == 0


def test_a_large_unread_body_is_announced_as_the_end():
    app = App(lambda request: Response(413)).feed(POST + b"Content-Length: 3000000\r\n\r\n")
    assert app.wire.data.endswith(b"connection: close\r\n\r\n")
    assert app.wire.fin
    for _ in range(9):
        app.feed(b"x" * 100000)
    assert not app.wire.rst, "it is read and thrown away, so that the answer survives"
    app.server.readConnectionLost()
    assert app.wire.closing


def test_lingering_ends_at_a_cap_and_after_some_time():
    app = App(lambda request: Response(413)).feed(POST + b"Content-Length: 3000000\r\n\r\n")
    app.feed(b"x" * LINGER_BYTES)
    assert not app.wire.rst
    app.feed(b"x")
    assert app.wire.rst
    app = App(lambda request: Response(413)).feed(POST + b"Content-Length: 3000000\r\n\r\n")
    app.advance(4)
    assert not app.wire.closing
    app.advance(2)
    assert app.wire.closing


def test_an_endless_chunked_body_ends_the_connection():
    app = App(lambda request: Response(413)).feed(POST + CHUNKED + b"\r\n")
    assert not app.wire.ended
    app.feed(b"%x\r\n%b\r\n" % (DRAIN, b"x" * DRAIN))
    assert not app.wire.ended
    app.feed(b"1\r\nx\r\n")
    assert app.wire.fin


def test_the_end_of_a_body_that_is_larger_than_what_is_drained_keeps_the_connection_when_it_is_there():
    """It came with the very read that went beyond: there is nothing left to end the connection for."""
    later, takers = Deferred(), []
    app = App(lambda request: Response(200) if request.body is None else takers.append(Taker(request.body)) or later)
    app.feed(POST + b"Content-Length: %d\r\n\r\nabc" % (3 + 2 * DRAIN))
    later.callback(Response(200, (), Whole(b"hi")))
    app.feed(b"x" * DRAIN)
    assert app.server.busy == 1
    app.feed(b"x" * DRAIN + GET)
    assert app.wire.data.count(b"HTTP/1.1 200 ") == 2
    assert not app.wire.fin
    assert app.server.busy == 0


def test_a_bad_chunk_in_a_body_nobody_wants_is_not_answered_again():
    app = App(lambda request: Response(413)).feed(POST + CHUNKED + b"\r\n")
    app.feed(b"INVALID\r\nGET /next HTTP/1.1\r\nHost: a\r\n\r\n")
    assert len(app.requests) == 1
    assert app.wire.data.count(b"HTTP/1.1") == 1
    assert app.wire.fin


def test_an_early_response_aborts_the_upload():
    later, takers = Deferred(), []
    app = App(lambda request: takers.append(Taker(request.body)) or later)
    app.feed(POST + b"Content-Length: 100\r\n\r\nabc")
    later.callback(Response(200))
    assert takers[0].end[0] == "abort"
    assert takers[0].end[1].who is GATEWAY
    assert app.closed == [None]
    app.answer = lambda request: Response(200)
    app.feed(b"x" * 97 + GET)
    assert len(app.requests) == 2


# -- broken uploads


@pytest.mark.parametrize("size", [0, 1])
def test_a_broken_chunk_reaches_the_service_as_an_aborted_body(size):
    app = App(reading(echo)).feed(POST + CHUNKED + b"\r\n")
    app.feed(b"5\r\nhello\r\nINVALID\r\nGET /x HTTP/1.1\r\nHost: a\r\n\r\n", size)
    assert app.wire.data == b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
    assert app.wire.fin
    assert len(app.requests) == 1
    assert app.counts == {"malformed_body": 1}
    assert app.closed == [None]


def test_a_chunk_that_is_broken_in_the_first_read_never_goes_upstream():
    app = App(reading(echo)).feed(POST + CHUNKED + b"\r\n5\r\nhelloXX" + GET)
    assert [request.malformed.status for request in app.requests] == [400]
    assert Taker(app.requests[0].body).end[1].status == 400
    assert app.wire.data.count(b"HTTP/1.1") == 1
    assert app.wire.fin


def test_a_broken_chunk_while_the_service_thinks():
    later = Deferred()
    app = App(lambda request: later).feed(POST + CHUNKED + b"\r\n").feed(b"zz\r\n")
    assert Taker(app.requests[0].body).end[1].status == 400
    app.feed(b"x" * 100)
    later.callback(Response(400))
    assert app.wire.fin
    assert app.wire.data.count(b"HTTP/1.1 400") == 1


def test_bytes_after_an_error_are_thrown_away_up_to_a_cap():
    later = Deferred()
    app = App(lambda request: later).feed(POST + CHUNKED + b"\r\n").feed(b"zz\r\n")
    app.feed(b"x" * LINGER_BYTES)
    assert app.wire.reading
    app.feed(b"x")
    assert not app.wire.reading
    later.callback(Response(400))
    assert app.wire.reading
    assert app.wire.fin


def test_a_broken_chunk_during_the_response_breaks_both():
    takers = []

    def answer(request):
        giver = Giver(b"part", ends=False)

        class Sink(Taker):
            def abort(self, reason):
                super().abort(reason)
                giver.body.abort(reason)

        takers.append(Sink(request.body))
        return Response(200, [], giver.body)

    app = App(answer).feed(POST + CHUNKED + b"\r\n")
    app.feed(b"zz\r\n")
    assert takers[0].end[0] == "abort"
    assert app.wire.rst


# -- the client leaves


def test_fin_before_the_answer_cancels():
    cancelled = []
    app = App(lambda request: never(cancelled)).feed(GET)
    app.server.readConnectionLost()
    assert len(cancelled) == 1
    assert app.requests[0].gone is CLIENT_GONE
    assert app.closed == [CLIENT_GONE]
    assert app.wire.rst


def test_a_client_that_is_cut_off_is_not_said_to_have_left():
    cancelled = []
    app = App(lambda request: never(cancelled)).feed(GET)
    app.server.abort()
    assert len(cancelled) == 1
    assert app.requests[0].gone is CUT_OFF
    giver = Giver(b"abc", ends=False)
    late = App(lambda request: Response(200, [], giver.body)).feed(GET)
    late.server.abort()
    late.server.abort()
    assert giver.stopped
    assert (app.closed, late.closed) == ([CUT_OFF], [CUT_OFF])
    assert app.wire.rst
    assert late.wire.rst


def test_gone_is_known_when_the_answer_is_cancelled_and_before_the_upload_breaks():
    seen = []

    def answer(request):
        class Sink(Taker):
            def abort(self, reason):
                seen.append("abort")

        Sink(request.body)
        return Deferred(lambda _: seen.append(("cancel", request.gone)))

    app = App(answer).feed(POST + b"Content-Length: 9\r\n\r\nab")
    app.lose()
    assert seen == [("cancel", CLIENT_GONE), "abort"]
    assert app.closed == [CLIENT_GONE]


def test_the_client_leaves_during_the_response():
    giver = Giver(b"abc", ends=False)
    app = App(lambda request: Response(200, [], giver.body)).feed(GET)
    app.lose()
    assert giver.stopped
    assert app.closed == [CLIENT_GONE]
    giver.body.write(b"late")
    giver.body.finish()


def test_an_answer_that_is_faster_than_the_cancel_is_stopped():
    giver = Giver(b"late", length=4)
    app = App(lambda request: Deferred(lambda held: held.callback(Response(200, [], giver.body)))).feed(GET)
    app.lose()
    assert giver.stopped
    assert app.closed == [CLIENT_GONE]


@pytest.mark.parametrize("kind", ["deferred", "response", "fired", "raises"])
def test_lost_inside_handle(kind, flush_errors):
    cancelled, giver = [], Giver(b"x", length=1)

    def answer(request):
        app.lose()
        assert app.closed == []
        if kind == "raises":
            raise RuntimeError("boom")
        if kind == "deferred":
            return never(cancelled)
        response = Response(200, [], giver.body)
        return succeed(response) if kind == "fired" else response

    app = App(answer)
    app.feed(GET)
    assert app.closed == [CLIENT_GONE]
    assert app.requests[0].gone is CLIENT_GONE
    assert (len(cancelled) == 1) is (kind == "deferred")
    assert giver.stopped is (kind in ("response", "fired"))
    if kind == "raises":
        assert len(flush_errors(RuntimeError)) == 1


def test_truncated_uploads_are_never_complete():
    takers = []
    for data in (b"Content-Length: 10\r\n\r\nabc", CHUNKED + b"\r\n3\r\nabc\r\n"):
        app = App(lambda request: takers.append(Taker(request.body)) or Deferred()).feed(POST + data)
        app.server.readConnectionLost()
        assert (takers[-1].data, takers[-1].end) == (b"abc", ("abort", CLIENT_GONE))


def test_eof_between_requests_or_within_a_head_is_silent():
    for data in (b"", GET, GET + GET[:10]):
        app = App().feed(data)
        before = app.wire.data
        app.server.readConnectionLost()
        assert app.wire.closing
        assert app.wire.data == before


def test_eof_does_not_harm_a_response_that_is_on_its_way():
    app = App(lambda request: Response(413), flushing=False).feed(POST + b"Content-Length: 9\r\n\r\nab")
    app.server.readConnectionLost()
    assert (app.wire.closing, app.wire.rst) == (True, False)
    assert app.closed == [None]


def test_failures_of_the_service_break_the_connection(flush_errors):
    app = App(lambda request: fail(Abort("no", UPSTREAM, 502))).feed(GET)
    assert app.wire.rst
    assert app.closed[0].reason == "no"
    later = Deferred()
    app = App(lambda request: later).feed(GET)
    later.cancel()
    assert app.wire.rst
    app = App(lambda request: fail(RuntimeError("bug"))).feed(GET)
    assert app.wire.rst
    assert app.closed[0].status == 500
    app = App(lambda request: 1 / 0).feed(GET)
    assert app.wire.rst
    assert app.closed[0].status == 500
    assert len(flush_errors(RuntimeError, ZeroDivisionError)) == 2


def test_truncated_responses_are_seen():
    giver = Giver(b"abc", ends=False)
    app = App(lambda request: Response(200, [], giver.body)).feed(GET)
    reason = Abort("upstream died", UPSTREAM)
    giver.body.abort(reason)
    assert app.wire.rst
    assert b"0\r\n\r\n" not in app.wire.data
    assert app.closed == [reason]


def test_abort_ends_every_request():
    cancelled = []
    app = App(lambda request: never(cancelled)).feed(GET)
    app.server.abort()
    assert (len(cancelled), app.server.busy, app.wire.rst) == (1, 0, True)
    app.lose()
    done = []
    app.server.closed.addCallback(done.append)
    assert done == [None]


# -- tunnels


def tunnel(app):
    origin = Giver(ends=False)
    takers = []
    app.answer = lambda request: takers.append(Taker(request.body)) or Response(101, [(b"x", b"y")], origin.body)
    return origin, takers


@pytest.mark.parametrize("tcp", [True, False])
def test_the_kernel_watches_over_a_tunnel_where_that_is_tcp(tcp):
    wire, told = Wire(), []
    wire.setTcpKeepAlive = told.append
    if tcp:
        directlyProvides(wire, ITCPTransport)
    app = App(wire=wire)
    tunnel(app)
    assert not told
    app.feed(SOCKET)
    assert told == [True] * tcp


@pytest.mark.parametrize("size", [0, 1])
def test_upgrade_to_websocket(size):
    app = App()
    origin, takers = tunnel(app)
    app.feed(SOCKET + b"early", size)
    assert app.requests[0].upgrade == b"websocket"
    assert app.wire.data == (
        b"HTTP/1.1 101 Switching Protocols\r\nx: y\r\nconnection: upgrade\r\nupgrade: websocket\r\n"
        b"sec-websocket-accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n"
    )
    assert takers[0].data == b"early"
    origin.body.write(b"hello")
    assert app.wire.data.endswith(b"\r\n\r\nhello")
    app.server.readConnectionLost()
    assert takers[0].end == ("finish", None)
    origin.body.write(b" more")
    assert app.wire.data.endswith(b"hello more")
    assert app.closed == []
    origin.body.finish()
    assert app.closed == [None]
    assert app.wire.closing


def test_half_close_from_the_other_side():
    app = App()
    origin, takers = tunnel(app)
    app.feed(SOCKET)
    origin.body.finish()
    assert app.wire.fin
    assert not app.wire.closing
    app.feed(b"bye")
    assert takers[0].data == b"bye"
    app.server.writeConnectionLost()
    app.server.readConnectionLost()
    assert takers[0].end == ("finish", None)
    assert app.closed == [None]
    assert app.wire.closing


def test_bytes_wait_for_the_101():
    later, origin = Deferred(), Giver(ends=False)
    app = App(lambda request: later).feed(SOCKET + b"early ").feed(b"bird")
    taker = Taker(app.requests[0].body)
    assert taker.data == b""
    later.callback(Response(101, [], origin.body))
    assert taker.data == b"early bird"


def test_a_paused_tunnel_keeps_what_came_before_fin():
    app = App()
    origin, _ = tunnel(app)
    takers = []
    app.answer = lambda request: takers.append(Slow(request.body)) or Response(101, [], origin.body)
    app.feed(SOCKET)
    for word in (b"a", b"b", b"c", b"d"):
        app.feed(word)
    app.server.readConnectionLost()
    assert takers[0].end is None
    while takers[0].end is None:
        takers[0].body.resumeProducing()
    assert (takers[0].data, takers[0].end) == (b"abcd", ("finish", None))


def test_connect():
    app = App()
    origin, takers = tunnel(app)
    app.answer = lambda request: (
        takers.append(Taker(request.body)) or Response(200, [(b"content-length", b"3")], origin.body)
    )
    app.feed(b"CONNECT b.test:443 HTTP/1.1\r\nHost: b.test:443\r\n\r\nraw")
    assert app.requests[0].upgrade == CONNECT
    assert app.wire.data == b"HTTP/1.1 200 OK\r\n\r\n"
    assert takers[0].data == b"raw"


@pytest.mark.parametrize("status", [403, 200])
def test_a_refused_upgrade_leaves_plain_http(status):
    app = App(lambda request: Response(status, [], Giver(b"no", length=2).body)).feed(SOCKET)
    assert app.wire.data.endswith(b"content-length: 2\r\n\r\nno")
    assert not app.wire.ended
    app.feed(GET)
    assert len(app.requests) == 2


def test_a_refused_tunnel_is_not_read_as_requests():
    app = App(lambda request: Response(403)).feed(SOCKET + GET)
    assert len(app.requests) == 1
    assert app.wire.fin
    app = App(lambda request: Response(403)).feed(b"CONNECT b:1 HTTP/1.1\r\nHost: b:1\r\n\r\n")
    assert app.wire.ended


@pytest.mark.parametrize(
    "head",
    [
        (
            b"GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\n"
            b"HTTP2-Settings: AAMA\r\n\r\n"
        ),
        b"GET / HTTP/1.1\r\nHost: a\r\nUpgrade: websocket\r\nSec-WebSocket-Key: k\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: xwebsocket\r\nSec-WebSocket-Key: k\r\n\r\n",
        b"GET / HTTP/1.0\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Key: k\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Key: k\r\n\r\n",
        (
            b"GET / HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Key: k\r\n"
            b"Content-Length: 1\r\n\r\nx"
        ),
    ],
)
def test_other_upgrades_are_stripped(head):
    app = App().feed(head)
    assert app.requests[0].upgrade is None
    assert not {b"upgrade", b"connection", b"http2-settings"} & {name for name, _ in app.requests[0].headers}
    assert app.wire.data.startswith(b"HTTP/1.1 200 OK")


def test_websocket_may_stand_in_a_list():
    app = App().feed(
        b"GET / HTTP/1.1\r\nHost: a\r\nConnection: keep-alive, Upgrade\r\nUpgrade: h2c, WebSocket\r\n"
        b"Sec-WebSocket-Key: k\r\n\r\n"
    )
    assert app.requests[0].upgrade == b"websocket"


def test_a_tunnel_that_breaks():
    app = App()
    origin, takers = tunnel(app)
    app.feed(SOCKET)
    app.lose()
    assert origin.stopped
    assert takers[0].end == ("abort", CLIENT_GONE)
    assert app.closed == [CLIENT_GONE]


def test_a_transport_without_half_close_is_closed():
    wire = Wire()
    wire.loseWriteConnection = None
    app = App(wire=wire)
    origin, _ = tunnel(app)
    app.feed(SOCKET)
    origin.body.finish()
    assert wire.closing


# -- back-pressure


def test_a_slow_reader_pauses_the_upload_and_keeps_little():
    takers = []
    app = App(lambda request: takers.append(Slow(request.body)) or Deferred())
    app.feed(POST + b"Content-Length: 1000000\r\n\r\n")
    fed = 0
    while app.wire.reading and fed < 1000000:
        app.feed(b"x" * 10000)
        fed += 10000
    assert fed <= 100000
    while not app.wire.reading:
        takers[0].body.resumeProducing()
    assert takers[0].data == b"x" * len(takers[0].data)


def test_a_client_that_leaves_while_its_upload_is_paused_is_noticed():
    cancelled = []
    app = App(lambda request: Slow(request.body) and never(cancelled)).feed(POST + b"Content-Length: 999\r\n\r\nab")
    app.feed(b"cd")
    assert app.wire.reading
    app.server.readConnectionLost()
    assert len(cancelled) == 1


def test_a_full_transport_pauses_the_response():
    giver = Giver(*[b"x" * 10000] * 100)
    app = App(lambda request: Response(200, [], giver.body), flushing=False).feed(GET)
    assert app.wire.waiting < 3 * HIGH
    while giver.chunks:
        app.wire.flush()
    app.wire.flush()
    assert app.wire.data.endswith(b"0\r\n\r\n")
    assert app.wire.data.count(b"x" * 10000) == 100


def test_a_response_on_a_connection_that_is_still_full():
    first = Giver(b"x" * 100000, length=100000)
    later = Deferred()
    app = App(lambda request: Response(200, [], first.body) if len(app.requests) == 1 else later, flushing=False)
    app.feed(GET + GET)
    assert len(app.requests) == 1, "nothing is started while the transport is full"
    app.wire.flush()
    assert len(app.requests) == 2


# -- clocks


def test_the_head_has_an_absolute_time():
    app = App(client_header=10)
    app.advance(5)
    app.feed(b"GET /slow HTTP/1.1\r\n")
    for _ in range(9):
        app.advance(1)
        app.feed(b"X: y\r\n")
    assert app.requests == []
    app.advance(1.5)
    assert app.wire.data == b"HTTP/1.1 408 Request Timeout\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
    assert app.requests[0].malformed.phase is Phase.CLIENT_HEADER
    assert app.requests[0].target == b"/slow"
    assert app.wire.fin
    assert app.counts == {"client_header_timeout": 1}


def test_the_clock_of_a_head_starts_when_it_is_this_sides_turn_to_read():
    giver = Giver(b"x", ends=False)
    app = App(lambda request: Response(200, [], giver.body), client_header=10, client_stall=8).feed(GET + GET[:10])
    app.advance(60)
    app.answer = lambda request: Response(200)
    giver.body.finish()
    app.advance(9)
    assert app.counts == {}
    app.feed(GET[10:])
    assert len(app.requests) == 2


def test_who_does_not_read_is_waited_for_by_the_clock_for_that_alone():
    body = lambda: Giver(b"x" * 40000, b"y" * 20000, length=60000).body  # noqa: E731
    app = App(lambda request: Response(200, [], body()), client_header=5, client_stall=20, flushing=False)
    app.feed(GET).feed(GET)  # and now too much waits for him
    app.feed(GET)
    app.advance(15)
    assert (app.counts, len(app.requests)) == ({}, 2)
    app.wire.flush()
    assert len(app.requests) == 3
    app.feed(GET)
    app.feed(GET)
    app.advance(25)
    assert (app.counts, app.wire.rst) == ({"client_stall_timeout": 1}, True)


def test_the_time_of_a_pipelined_head_starts_when_its_turn_comes():
    waiting = []
    app = App(lambda request: waiting.append(Deferred()) or waiting[-1], client_header=10, client_stall=0)
    app.feed(GET + GET[:20])
    app.advance(30)
    waiting[0].callback(Response(200))
    app.advance(9)
    app.feed(GET[20:])
    assert len(app.requests) == 2


def test_idle_connections_close_in_silence():
    app = App(client_idle=75)
    app.advance(70)
    app.feed(GET)
    app.advance(74)
    assert not app.wire.ended
    app.advance(2)
    assert app.wire.closing
    assert app.wire.data == OK
    app = App(client_idle=75)
    app.advance(76)
    assert app.wire.closing
    app = App(client_idle=0)
    app.advance(1000, 10)
    assert not app.wire.ended


def test_an_upload_that_stalls_is_answered():
    app = App(reading(echo), client_stall=30).feed(POST + b"Content-Length: 9\r\n\r\n")
    app.advance(29)
    app.feed(b"x")
    app.advance(29)
    assert app.wire.data == b""
    app.advance(2)
    assert app.wire.data.startswith(b"HTTP/1.1 408 ")
    assert app.wire.fin
    assert app.counts == {"client_stall_timeout": 1}


def test_an_upload_that_stalls_during_the_response_breaks_it():
    giver = Giver(b"x", ends=False)
    app = App(lambda request: Taker(request.body) and Response(200, [], giver.body), client_stall=30)
    app.feed(POST + b"Content-Length: 9\r\n\r\n")
    app.advance(31)
    assert app.wire.rst
    assert giver.stopped
    assert app.closed[0].phase is Phase.CLIENT_STALL


def test_the_stall_clock_stands_while_we_hold_the_body_back():
    app = App(lambda request: Deferred(), client_stall=30, client_min_rate=100)
    app.feed(POST + b"Content-Length: 9\r\n\r\nab")
    app.feed(b"cd")
    app.advance(100)
    assert app.wire.data == b""
    taker = Taker(app.requests[0].body)
    app.advance(9)
    assert taker.end is None
    app.advance(3)
    assert taker.end[1].phase is Phase.CLIENT_MIN_RATE


def test_a_client_that_waits_for_100_is_not_slow():
    app = App(lambda request: Deferred(), client_stall=30).feed(EXPECT)
    app.advance(100)
    taker = Taker(app.requests[0].body)
    app.advance(29)
    assert taker.end is None
    app.advance(2)
    assert taker.end[1].phase is Phase.CLIENT_STALL


def test_uploads_below_the_minimum_rate_are_ended():
    app = App(reading(echo), client_min_rate=100).feed(POST + b"Content-Length: 99999\r\n\r\n")
    for _ in range(30):
        app.advance(1)
        app.feed(b"x" * 110)
    assert app.wire.data == b""
    for _ in range(21):
        app.advance(1)
        app.feed(b"x")
    assert app.wire.data.startswith(b"HTTP/1.1 408 ")
    assert app.requests[0].malformed is None
    assert app.counts == {"client_min_rate_timeout": 1}


@pytest.mark.parametrize("size", [200, 300000])
def test_a_client_that_takes_nothing_is_given_up(size):
    giver = Giver(b"x" * size, ends=False)
    app = App(lambda request: Response(200, [], giver.body), flushing=False, client_stall=30).feed(GET)
    app.advance(28)
    assert not app.wire.rst
    app.advance(12)
    assert app.wire.rst
    assert app.closed[0].phase is Phase.CLIENT_STALL
    assert app.closed[0].who is CLIENT
    assert giver.stopped


def test_a_client_that_takes_little_is_not_given_up():
    giver = Giver(b"x" * 300000, ends=False)
    app = App(lambda request: Response(200, [], giver.body), flushing=False, client_stall=30).feed(GET)
    for _ in range(20):
        app.advance(20)
        app.wire.flush(10)
    assert not app.wire.ended


def test_a_response_that_is_written_but_not_taken_is_given_up_too():
    app = App(
        lambda request: Response(200, [], Giver(b"x" * 20000).body), flushing=False, client_stall=30, client_idle=5
    )
    app.feed(GET)
    assert app.server.busy == 0
    app.advance(25)
    assert not app.wire.ended
    app.advance(15)
    assert app.wire.rst


def test_every_close_ends_in_an_abort():
    app = App(flushing=False, client_stall=30).feed(b"GET / HTTP/1.0\r\n\r\n")
    assert app.wire.closing
    app.advance(25)
    app.wire.flush(5)
    app.advance(25)
    assert not app.wire.rst
    app.advance(15)
    assert app.wire.rst
    app.lose()
    assert app.context.wheel._slots == {} or not app.server.timer.active


def test_a_drained_upload_has_its_time():
    app = App(lambda request: Response(413), client_stall=30).feed(POST + b"Content-Length: 9\r\n\r\n")
    app.advance(29)
    app.feed(b"x")
    app.advance(2)
    assert app.wire.fin
    assert app.wire.data.count(b"HTTP/1.1") == 1


def test_waiting_for_the_service_is_nobodys_stall():
    later = Deferred()
    app = App(lambda request: later, client_stall=30, client_idle=10, client_header=10).feed(GET)
    app.advance(300, 5)
    later.callback(Response(200))
    assert app.wire.data == OK


def test_tunnels_may_be_silent():
    app = App(client_stall=30, client_idle=10, client_header=10)
    origin, _ = tunnel(app)
    app.feed(SOCKET)
    app.advance(300, 5)
    origin.body.write(b"still here")
    assert app.wire.data.endswith(b"still here")


def test_idle_connections_leave_no_timer_behind():
    app = App().feed(GET)
    app.lose()
    assert app.clock.getDelayedCalls() == [] or not any(app.context.wheel._slots.values())


# -- times and sizes


def test_the_ledger():
    later = Deferred()
    app = App(lambda request: Taker(request.body) and later)
    app.feed(POST)
    app.clock.advance(1)
    app.feed(b"Content-Length: 5\r\n\r\nhe")
    app.clock.advance(1)
    app.feed(b"llo")
    ledger = app.requests[0].ledger
    assert (ledger.first, ledger.head, ledger.uploaded) == (1000, 1001, 1002)
    assert ledger.received == 5
    later.callback(Response(200, [], Giver(b"abc", b"defg").body))
    assert ledger.delivered == 7
    app = App().feed(GET)
    ledger = app.requests[0].ledger
    assert ledger.first == ledger.head == ledger.uploaded == 1000


def test_nothing_is_left_of_a_request_that_is_over():
    class Token:
        pass

    def run(app, data, finish):
        tokens = []

        def answer(request):
            token = Token()
            tokens.append(weakref.ref(token))
            request.closed = lambda reason, token=token, request=request: None
            return finish(request)

        app.handle = answer
        app.feed(data)
        return tokens

    later = []

    def wait(request):
        later.append(Deferred())
        return later[-1]

    gc.collect()
    gc.disable()
    try:
        app = App()
        tokens = run(app, GET, lambda request: Response(200, [], Giver(b"x").body))
        assert tokens[0]() is None
        tokens = run(app, POST + b"Content-Length: 3\r\n\r\nabc", wait)
        assert tokens[0]() is not None
        later.pop().callback(Response(200))
        assert tokens[0]() is None
        tokens = run(app, b"BAD\r\n\r\n", lambda request: Response(400))
        assert tokens[0]() is None
        other = App()
        tokens = run(other, GET, lambda request: Response(200, [], Giver(b"x", ends=False).body))
        other.lose()
        assert tokens[0]() is None
        assert gc.collect() == 0
    finally:
        gc.enable()


def test_steady_requests_make_no_cycles():
    app = App(lambda request: Response(200, [(b"a", b"b")], request.body))
    app.closed = []
    app.feed(POST + b"Content-Length: 3\r\n\r\nabc")
    gc.collect()
    gc.disable()
    try:
        for _ in range(10):
            app.feed(POST + b"Content-Length: 3\r\n\r\nabc")
        app.requests.clear()
        assert gc.collect() == 0
    finally:
        gc.enable()


def test_closed_must_not_raise(flush_errors):
    app = App()

    def answer(request):
        request.closed = lambda reason: 1 / 0
        return Response(200)

    app.answer = answer
    app.feed(GET + GET)
    assert app.wire.data == OK + OK
    assert len(flush_errors(ZeroDivisionError)) == 2


def test_answers_that_are_no_responses_break_the_connection(flush_errors):
    giver = Giver(b"x")
    for answer in (None, "text", succeed(None), Response(200, [("text", "text")], giver.body)):
        app = App(lambda request, answer=answer: answer).feed(GET)
        assert app.wire.rst
        assert app.closed[0].status == 500
        assert len(flush_errors(TypeError)) == 1
    assert giver.stopped


# -- who is asking


@pytest.mark.parametrize(
    ("address", "ip", "port"),
    [
        (IPv4Address("TCP", "192.0.2.1", 5), "192.0.2.1", 5),
        (IPv6Address("TCP", "2001:DB8:0::1", 5), "2001:db8::1", 5),
        (IPv6Address("TCP", "::ffff:192.0.2.1", 5), "192.0.2.1", 5),
        (IPv6Address("TCP", "fe80::1%eth0", 5), "fe80::1", 5),
        (IPv4Address("TCP", "peer.invalid", 5), "peer.invalid", 5),
        (UNIXAddress("/x"), "", 0),
        (None, "", 0),
    ],
)
def test_peers_have_canonical_addresses(address, ip, port):
    peer = peer_at(address)
    assert (peer.ip, peer.port, peer.tls) == (ip, port, False)


def test_tls_shows_in_peer_and_scheme():
    wire = Wire()
    directlyProvides(wire, ISSLTransport)
    app = App(wire=wire).feed(GET)
    assert (app.requests[0].peer.tls, app.requests[0].scheme) == (True, b"https")
    app.feed(b"BAD\r\n\r\n")
    assert not wire.fin, "half-closing TLS would cut it off"
    app.advance(6)
    assert wire.closing


@pytest.mark.parametrize(
    ("prefix", "says"),
    [
        (b"", None),
        (b"G", None),
        (b"GET", None),
        (b"GET ", None),
        (b"GET /", True),
        (b"\r\nGET /", True),
        (b"\r", None),
        (b"\r\n", None),
        (b"get x", True),
        (b"PRI * HTTP/2.0", None),
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", False),
        (b"PRI * HTTP/1.1", True),
        (b"PROPFIND /", True),
        (b"\x16\x03\x01", False),
        (b"GET\r\n", False),
        (b"GET  /", False),
        (b"A" * 33, False),
        (b" GET /", False),
    ],
)
def test_sniffing(prefix, says):
    assert Http1().sniff(prefix) is says


def test_limits_of_a_reload_hold_from_the_next_head_on():
    app = App().feed(GET)
    app.context.limits = Limits(header_count=1)
    app.feed(b"GET / HTTP/1.1\r\nHost: a\r\nX: y\r\n\r\n")
    assert app.requests[1].malformed.status == 431
