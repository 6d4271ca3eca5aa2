"""Who attacks us: what is left of a malformed request passes the modules and the record before it is refused."""

from __future__ import annotations

import pytest
from edge import installed
from scene import CHUNKED, CONFIG, NEXT, POST, Scene

from protogate.body import Whole
from protogate.message import Response

GET = b"GET /a?b HTTP/1.1\r\n"
KINDS = {
    "field name": (GET + b"Host: a.test\r\nX Y: z\r\nUser-Agent: probe\r\n\r\n", 400, "malformed_head"),
    "no host": (GET + b"User-Agent: probe\r\n\r\n", 400, "bad_host"),
    "host that is none": (GET + b"Host: a..test\r\nUser-Agent: probe\r\n\r\n", 400, ""),
    "path that is none": (
        b"GET /a?b HTTP/1.1\r\nHost: a.test\r\nUser-Agent: probe\r\n\r\n".replace(b"/a", b"/a%"),
        400,
        "",
    ),
    "framing": (
        GET + b"Host: a.test\r\nUser-Agent: probe\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
        400,
        "bad_framing",
    ),
    "coding": (
        GET + b"Host: a.test\r\nUser-Agent: probe\r\nTransfer-Encoding: x, chunked\r\n\r\n",
        501,
        "unknown_transfer_coding",
    ),
    "version": (
        GET.replace(b"1.1", b"3.0") + b"Host: a.test\r\nUser-Agent: probe\r\n\r\n",
        505,
        "http_version_not_supported",
    ),
    "expectation": (GET + b"Host: a.test\r\nUser-Agent: probe\r\nExpect: x\r\n\r\n", 417, "unknown_expectation"),
    "too many lines": (
        GET + b"Host: a.test\r\nUser-Agent: probe\r\n" + b"X: y\r\n" * 200 + b"\r\n",
        431,
        "too_many_headers",
    ),
    "too long a line": (
        GET + b"Host: a.test\r\nUser-Agent: probe\r\nX: " + b"y" * 9000 + b"\r\n\r\n",
        431,
        "header_line_too_long",
    ),
    "chunk": (CHUNKED[:-2].replace(b"/a", b"/a?b") + b"User-Agent: probe\r\n\r\nnonsense\r\n", 400, "malformed_body"),
}


def watching(function):
    """A gateway whose first module is C{function}."""
    with installed(watch=function):
        return Scene(config=CONFIG | {"modules": [{"name": "watch", "stage": "PRE_REQUEST"}]})


@pytest.mark.parametrize(("data", "status", "event"), KINDS.values(), ids=KINDS)
def test_modules_and_the_record_see_what_was_malformed(data, status, event):
    """As much of it as made sense."""
    looked = []

    def look(exchange):
        request = exchange.request
        looked.append((request.malformed.status, request.method, request.target, request.headers.get(b"user-agent")))

    with watching(look) as scene:
        seen = scene.play(data + NEXT)
        assert (seen.statuses, seen.eof_before, seen.requests) == ([status], True, [])
        ((told, method, target, agent),) = looked
        assert (told, agent) == (status, b"probe")
        assert target in (b"/a?b", b"/a%?b")
        (record,) = seen.records
        assert (record.method, record.target, record.agent) == (method.decode(), target.decode(), "probe")
        assert (record.status, record.who, record.malformed, record.client) == (status, "client", True, "127.0.0.1")
        assert record.error
        if event:
            assert scene.counts(event) == 1


@pytest.mark.parametrize(("data", "status", "event"), KINDS.values(), ids=KINDS)
def test_a_module_may_answer_for_it_but_not_save_the_connection(data, status, event):
    """Nothing behind it is taken for a request, whoever answers and however."""
    with watching(lambda exchange: Response(200, [], Whole(b"mine")) if exchange.request.malformed else None) as scene:
        seen = scene.play(data + NEXT)
        assert [answer.body for answer in seen.answers] == [b"mine"]
        assert seen.answers[0].get(b"connection") == b"close"
        assert (seen.eof_before, seen.requests) == (True, [])
        assert [(record.status, record.malformed) for record in seen.records] == [(200, True)]


def test_what_becomes_malformed_later_is_told_to_the_body_alone():
    """The head was good and is on its way: the record blames the client all the same."""
    looked = []
    with watching(lambda exchange: looked.append(exchange.request.malformed)) as scene:
        seen = scene.play(POST + b"Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n", b"nonsense\r\n" + NEXT)
        assert looked == [None]
        assert (seen.statuses, seen.eof_before, seen.requests) == ([400], True, [])
        assert [(record.status, record.who, record.malformed) for record in seen.records] == [(400, "client", False)]
