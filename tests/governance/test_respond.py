"""respond: an answer of its own."""

from __future__ import annotations

import pytest

from protogate.config.faults import ConfigFaults
from protogate.config.model import Module
from protogate.errors import CLIENT_GONE, Abort, ConfigError
from protogate.exchange.pipeline import run
from protogate.governance.binding import bind
from protogate.governance.respond import RespondFactory
from protogate.message import Response


class Sink:
    """Takes a whole body."""

    def __init__(self):
        self.data, self.ended = b"", False

    def write(self, data):
        self.data += data

    def finish(self, trailers=None):
        self.ended = True

    def abort(self, reason):
        raise AssertionError(reason)


def content(response):
    if response.body is None:
        return None
    sink = Sink()
    assert response.body.length is not None
    response.body.attach(sink)
    assert sink.ended
    assert response.body.length == len(sink.data)
    return sink.data


@pytest.fixture
def answer(fakes, exchange):
    """C{answer(**params)}: the Response for the exchange."""

    def answer(stage="PRE_REQUEST", **params):
        entry = Module(name="respond", stage=stage, action_param=params)
        return run(bind([entry], fakes.finder(RespondFactory()))[stage], exchange)

    return answer


def test_nothing_asked_for_is_an_empty_200(answer):
    response = answer()
    assert (response.status, response.headers, response.body) == (200, [], None)


def test_status_fields_and_body(answer):
    response = answer(status=503, headers={"Retry-After": "60"}, body="späté\n")
    assert response.status == 503
    assert response.headers == [(b"content-type", b"text/plain; charset=utf-8"), (b"retry-after", b"60")]
    assert content(response) == "späté\n".encode()


def test_content_type(answer):
    response = answer(body="{}", contentType="application/json")
    assert response.headers == [(b"content-type", b"application/json")]
    response = answer(body="{}", headers={"Content-Type": "application/json"})
    assert response.headers == [(b"content-type", b"application/json")]


def test_templates(answer, exchange):
    response = answer(body="id ${func.requestId}", headers={"x-id": "${func.requestId}"})
    assert content(response) == f"id {exchange.id}".encode()
    assert response.headers.get(b"x-id") == exchange.id.encode()


def test_each_answer_has_a_body_of_its_own(answer):
    assert [content(answer(body="x")) for _ in range(2)] == [b"x", b"x"]


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (None, 200),
        (Abort("x", status=502), 502),
        (CLIENT_GONE, 500),
        (Abort("x", status=200), 500),
        (ValueError("x"), 500),
    ],
)
def test_page_for_a_failure_has_its_status(answer, exchange, error, status):
    exchange.error = error
    assert answer("ERROR", body="sorry").status == status
    assert answer("ERROR", body="sorry", status=418).status == 418


def test_page_for_a_response_has_its_status(answer, exchange):
    exchange.response = Response(404)
    assert answer("PRE_RESPONSE", body="sorry").status == 404


def test_what_has_no_content_gets_none(answer, exchange):
    exchange.response = Response(304)
    response = answer("PRE_RESPONSE", body="sorry")
    assert (response.status, response.body) == (304, None)


@pytest.mark.parametrize(
    ("params", "path"),
    [
        ({"status": 100}, ("status",)),
        ({"status": "200"}, ("status",)),
        ({"status": 204, "body": "x"}, ("body",)),
        ({"body": 5}, ("body",)),
        ({"headers": ["x"]}, ("headers",)),
        ({"headers": {"content-length": "1"}}, ("headers", "content-length")),
        ({"contentType": "a\nb"}, ("contentType",)),
        ({"contentType": "a", "headers": {"content-type": "b"}}, ("contentType",)),
        ({"contenttype": "a"}, ("contenttype",)),
    ],
)
def test_what_cannot_be_built(params, path):
    with pytest.raises(ConfigError) as caught:
        RespondFactory().build(params)
    assert caught.value.path == path


def test_all_faults_together():
    with pytest.raises(ConfigFaults) as caught:
        RespondFactory().build({"status": 1, "body": None, "x": 1})
    assert [fault.path for fault in caught.value.faults] == [("x",), ("status",), ("body",)]
