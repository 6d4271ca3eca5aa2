"""Targets that are asked something else than what came: what the origin gets, what the client, and the record."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest
from scene import CONFIG, Scene


def config(value: str, rewrite: Mapping[str, Any], **more: Any) -> dict[str, Any]:
    """One template rule whose target has this rewrite."""
    target = {"upstream": "origin", "rewrite": rewrite}
    made: dict[str, Any] = json.loads(json.dumps(CONFIG))
    made["routes"] = [{"name": "all", "value": value, "matcherType": "template", "routes": [{"targets": [target]}]}]
    return {**made, **more}


def test_the_origin_is_asked_what_the_template_says() -> None:
    rewrite = {"method": "GET", "path": "/v2/${path.id}", "query": {"by": "${request.headers['x-by']}", "full": "1"}}
    with Scene(config=config("/orders/{id}/get", rewrite)) as scene:
        head = b"POST /orders/a%%2Fb/get?x=1 HTTP/1.1\r\nHost: a.test\r\nX-By: %b\r\nContent-Length: 2\r\n\r\nhi"
        seen = scene.play(head % b"me&you")
        (request,) = seen.requests
        assert request.start[:2] == (b"GET", b"/v2/a%2Fb?by=me%26you&full=1")
        assert request.body == b"hi"
        assert seen.statuses == [200]
        (record,) = seen.records
        assert (record.method, record.target) == ("POST", "/orders/a%2Fb/get?x=1")


def test_a_client_that_asked_with_head_gets_no_content() -> None:
    with Scene(config=config("/a", {"method": "GET"})) as scene:
        seen = scene.play(b"HEAD /a HTTP/1.1\r\nHost: a.test\r\n\r\n", methods=(b"HEAD",))
        (request,) = seen.requests
        assert (request.method, seen.statuses) == (b"GET", [200])
        assert seen.received.endswith(b"\r\n\r\n")


@pytest.mark.parametrize("value", [b"..", b"%2e%2e", b"a/../..", b"..%2f..%2fetc", b""])
def test_a_value_cannot_leave_its_place(value: bytes) -> None:
    rewrite = {"path": "/files/${request.query['name']}", "query": {}}
    with Scene(config=config("/get", rewrite)) as scene:
        seen = scene.play(b"GET /get?name=%b HTTP/1.1\r\nHost: a.test\r\n\r\n" % value)
        assert (seen.statuses, seen.requests) == ([400], [])
        (record,) = seen.records
        assert (record.status, record.phase, record.who) == (400, "routing", "client")
        assert record.error.startswith("rewrite: ")


def test_what_another_method_makes_idempotent_is_sent_again_when_a_kept_connection_was_lost() -> None:
    post = b"POST /a HTTP/1.1\r\nHost: a.test\r\nContent-Length: 0\r\n\r\n"
    for rewrite, asked, status in (({"method": "PUT"}, 3, 204), ({"path": "/b"}, 2, 502)):
        with Scene(None, config=config("/a", rewrite)) as scene:
            scene.reply(b"HTTP/1.1 204 No Content\r\n\r\n", request=post)
            seen = scene.open()
            seen.client.send(post)
            scene.gateway.run()
            scene.origin.last.reset()
            scene.gateway.run()
            assert len(scene.origin.requests) == asked
            scene.origin.last.send(b"HTTP/1.1 204 No Content\r\n\r\n")
            scene.gateway.run()
            assert seen.statuses == [status]


def test_trailers_interim_answers_and_a_client_that_leaves_are_as_ever() -> None:
    with Scene(None, config=config("/a/{id}", {"path": "/b/${path.id}", "method": "PUT"})) as scene:
        head = b"POST /a/1 HTTP/1.1\r\nHost: a.test\r\nTE: trailers\r\nTransfer-Encoding: chunked\r\n\r\n"
        parts = (
            b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n",
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: x-sum\r\n\r\n2\r\nok\r\n0\r\nX-Sum: 7\r\n\r\n",
        )
        seen = scene.reply(*parts, request=head + b"2\r\nhi\r\n0\r\nX-A: 1\r\n\r\n")
        (request,) = seen.requests
        assert (request.start[:2], request.body, request.trailers) == ((b"PUT", b"/b/1"), b"hi", [(b"x-a", b"1")])
        assert [each.status for each in seen.interims] == [103]
        assert seen.answers[0].trailers == [(b"x-sum", b"7")]
        gone = scene.open()
        gone.client.send(head)
        scene.gateway.run()
        served = scene.origin.last
        gone.client.close()
        scene.gateway.advance(0.1)
        assert served.lost is not None
