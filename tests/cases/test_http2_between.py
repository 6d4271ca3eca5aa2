"""HTTP/2 on one side and HTTP/1 on the other: what one says must not be something else to the other."""

from __future__ import annotations

from typing import Any

import pytest
from scene import Answer as Answer1
from two import BOTH, CANCEL, NO_ERROR, PROTOCOL_ERROR, Two, ok
from wire import answers

from h2frames import Field, continuation, data, fields, headers, literal, many, req, request, res, rst

pytestmark = pytest.mark.parametrize("engine", BOTH)
GET = b"GET /a HTTP/1.1\r\nHost: a.test\r\n"


def asks(two: Two, request: bytes = GET + b"\r\n") -> Any:
    """A client of HTTP/1 that has asked."""
    raw = two.gateway.client()
    raw.send(request)
    two.run()
    return raw


# -- an upstream of HTTP/2, a client of HTTP/1

FIELDS: dict[str, Field] = {
    "a line end": (b"x-a", b"v\r\nset-cookie: evil=1"),
    "a line feed": (b"x-a", b"v\nset-cookie: evil=1"),
    "nul": (b"x-a", b"v\0"),
    "a line end in a name": (b"x-a: v\r\nset-cookie", b"evil=1"),
    "a colon in a name": (b"set-cookie: evil=1\r\nx", b"v"),
    "framing": (b"transfer-encoding", b"chunked"),
    "the connection": (b"connection", b"close"),
    "an upgrade": (b"upgrade", b"h2c"),
    "a status in a field": (b":status", b"200"),
    "an upper case name": (b"Set-Cookie", b"evil=1"),
}


@pytest.mark.parametrize("what", FIELDS)
def test_fields_that_would_split_an_answer_of_http_1_are_a_502(engine: str, what: str) -> None:
    with Two(engine, None) as two:
        raw = asks(two)
        two.reply(res(1, more=[FIELDS[what]], end=False), data(1, b"ok", True))
        (answer,) = answers(raw.received)
        assert answer.status == 502
        assert b"evil" not in raw.received
        (record,) = two.records
        assert (record.status, record.who) == (502, "upstream")
        raw.close()


@pytest.mark.parametrize("text", [b"200 OK\r\nx: y", b"2000", b"20", b"099", b"abc", b"", b"+200"])
def test_a_status_that_is_none_is_a_502(engine: str, text: bytes) -> None:
    with Two(engine, None) as two:
        raw = asks(two)
        two.reply(res(1, text))
        assert answers(raw.received)[0].status == 502
        raw.close()


def test_trailers_that_would_split_an_answer_end_it_without_its_last_chunk(engine: str) -> None:
    with Two(engine, None) as two:
        raw = asks(two)
        two.reply(res(1, end=False), data(1, b"hello"))
        two.reply(headers(1, fields([(b"x-sum", b"1\r\n\r\nHTTP/1.1 200 OK")])))
        assert raw.lost is not None
        assert raw.received.endswith(b"hello\r\n"), "and no 0"
        assert b"x-sum" not in raw.received
        assert two.records[0].who == "upstream"


def test_trailers_that_mean_something_elsewhere_stay_behind(engine: str) -> None:
    with Two(engine, None) as two:
        raw = asks(two, GET + b"TE: trailers\r\n\r\n")
        two.reply(
            res(1, end=False),
            data(1, b"hello"),
            headers(
                1, fields([(b"x-sum", b"1"), (b"set-cookie", b"a=1"), (b"authorization", b"b"), (b"trailer", b"x")])
            ),
        )
        (answer,) = answers(raw.received)
        assert (answer.status, answer.body, answer.trailers) == (200, b"hello", [(b"x-sum", b"1")])
        raw.close()


def test_interim_answers_are_passed_on_and_bounded(engine: str) -> None:
    with Two(engine, None) as two:
        raw = asks(two)
        two.reply(res(1, b"103", [(b"link", b"</a.css>")], end=False), res(1, b"200"))
        assert [answer.status for answer in answers(raw.received)] == [103, 200]
        raw.close()
        raw = asks(two)
        two.reply(*[res(3, b"103", end=False)] * 20)
        assert [answer.status for answer in answers(raw.received)][-1] == 502
        assert two.counts("too_many_interims") == 1
        raw.close()


def test_an_upgrade_that_nobody_asked_for_is_a_502(engine: str) -> None:
    with Two(engine, None) as two:
        raw = asks(two)
        two.reply(res(1, b"101", end=False))
        assert answers(raw.received)[0].status == 502
        raw.close()


def test_cookies_of_http_1_arrive_as_they_were(engine: str) -> None:
    with Two(engine) as two:
        raw = asks(two, GET + b"Cookie: a=1; b=2\r\nCookie: c=3\r\n\r\n")
        crumbs = b"; ".join(two.asked[0].all(b"cookie"))
        assert crumbs == b"a=1; b=2; c=3"
        raw.close()


def test_a_client_of_http_1_that_leaves_cancels_its_stream_alone(engine: str) -> None:
    with Two(engine, None) as two:
        first, second = asks(two), asks(two)
        first.reset()
        two.run()
        assert [asked.reset for asked in two.asked] == [CANCEL, None]
        assert len(two.origin.connections) == 1
        two.reply(ok(two.asked[1]))
        assert answers(second.received)[0].body == b"ok"
        second.close()


def test_a_client_of_http_1_that_reads_nothing_stops_its_stream_alone(engine: str) -> None:
    """Its window is used up; that of the connection is for the others."""
    with Two(engine, None) as two:
        two.gateway.reactor.net.most = 65536
        slow = asks(two)
        slow.transport.pauseProducing()
        asked = two.asked[0]
        for _ in range(40):
            room = 65535 + asked.end.peer.credit[asked.stream] - asked.end.peer.spent[asked.stream]
            if room < 8000:
                break
            begun = asked.end.peer.spent[asked.stream]
            two.reply(*([] if begun else [res(1, end=False)]), data(1, bytes(8000)), which=0)
        assert asked.end.peer.spent[asked.stream] < 400_000
        two.origin.answers = (ok,)
        raw = asks(two)
        assert answers(raw.received)[0].body == b"ok"
        raw.close()
        slow.reset()
        two.run()
        assert asked.reset == CANCEL


# -- a client of HTTP/2, an upstream of HTTP/1


def test_trailers_of_a_request_are_bounded(engine: str) -> None:
    with Two(engine, behind="http1") as two:
        client = two.client()
        client.send(req(1, b"/a", b"POST", end=False), data(1, b"hello"))
        block = fields(many(68_000))
        pieces = [block[at : at + 16_000] for at in range(0, len(block), 16_000)]
        client.send(
            headers(1, pieces[0], last=False),
            *[continuation(1, piece, n == len(pieces) - 2) for n, piece in enumerate(pieces[1:])],
        )
        assert client.seen(1) in ("reset PROTOCOL_ERROR", "answer 431", "answer 400")
        assert two.counts("trailers_too_large") == 1
        (record,) = two.records
        assert (record.status in (400, 431), record.who) == (True, "client")
        assert two.origin.requests == []
        client.send(req(3))
        assert client.seen(3) == "answer 200"


def test_trailers_of_a_request_cannot_make_another(engine: str) -> None:
    with Two(engine, behind="http1") as two:
        client = two.client()
        client.send(req(1, b"/a", b"POST", end=False), data(1, b"hello"))
        client.send(headers(1, fields([(b"x-sum", b"1\r\n\r\nGET /evil HTTP/1.1")])))
        assert client.resets == {1: PROTOCOL_ERROR}
        assert two.origin.requests == []
        assert all(b"evil" not in served.received for served in two.origin.connections)
        assert all(served.lost is not None for served in two.origin.connections)


TARGETS: dict[str, dict[str, bytes | None]] = {
    "a line end in the path": {"path": b"/a HTTP/1.1\r\nHost: evil\r\n\r\nGET /evil"},
    "a space in the path": {"path": b"/a b"},
    "another scheme in the path": {"path": b"http://b.test/"},
    "a line end in the method": {"method": b"GET /evil HTTP/1.1\r\n\r\nGET"},
    "a space in the method": {"method": b"GET /evil"},
    "a line end in the authority": {"authority": b"a.test\r\nx: evil"},
    "a line end in the scheme": {"scheme": b"http\r\nx: evil"},
}


@pytest.mark.parametrize("what", TARGETS)
def test_a_request_line_of_http_1_is_made_of_nothing_else(engine: str, what: str) -> None:
    with Two(engine, behind="http1") as two:
        client = two.client()
        client.send(req(1, **TARGETS[what]))  # type: ignore[arg-type]
        assert client.seen(1) in ("reset PROTOCOL_ERROR", "answer 400")
        assert not two.origin.connections
        (record,) = two.records
        assert (record.status, record.who, record.malformed) == (400, "client", True)


def test_an_upload_that_its_upstream_does_not_read_stops_and_gives_all_back_when_it_is_reset(engine: str) -> None:
    """What was not passed on is owed to the connection all the same."""
    with Two(engine, None, behind="http1", told={"connectionWindow": "128KiB", "streams": 4}) as two:
        two.gateway.reactor.net.most, two.origin.paused = 65536, True
        client, size = two.client(), 0
        for number in range(1, 61, 2):
            client.send(req(number, b"/", b"POST", end=False))
            while (room := min(client.room(), 65535 + client.peer.credit[number] - client.peer.spent[number])) > 1000:
                client.send(data(number, bytes(min(room, 10_000))))
                size += min(room, 10_000)
            client.send(rst(number))
        assert size > 10 * (128 << 10)
        assert client.room() > 64_000
        assert {record.who for record in two.records} == {"client"}
        for served in two.origin.connections:
            served.transport.resumeProducing()
        two.run()
        assert all(served.lost is not None for served in two.origin.connections)
        assert two.origin.requests == []


def test_an_answer_that_ends_early_leaves_no_half_request_for_the_next(engine: str) -> None:
    early: Answer1 = b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n"
    with Two(engine, None, behind="http1") as two:
        client = two.client()
        client.send(req(1, b"/a", b"POST", [(b"content-length", b"100000")], end=False), data(1, bytes(1000)))
        served = two.origin.last
        served.send(early)
        two.run()
        assert client.message(1).status == 403
        assert client.resets.get(1, NO_ERROR) == NO_ERROR
        client.send(req(3, b"/next"))
        assert two.origin.last is not served, "that connection is in the middle of a request"
        two.origin.last.send(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
        two.run()
        assert client.seen(3) == "answer 200"


def test_a_head_with_a_never_indexed_secret_is_like_any_other(engine: str) -> None:
    with Two(engine, behind="http1") as two:
        client = two.client()
        client.send(
            headers(
                1,
                fields(request()) + literal(b"authorization", b"Basic c2VjcmV0", 0x10),
            )
        )
        assert client.seen(1) == "answer 200"
        assert two.origin.requests[0].all(b"authorization") == [b"Basic c2VjcmV0"]
