"""A client's deadline that stands in a field: who is believed, what goes on, and what its end looks like."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from scene import CONFIG, Scene

GET = b"GET /a HTTP/1.1\r\nHost: a.test\r\nX-Wait: %b\r\nX-Left: 77\r\n\r\n"


def config(reads: str = "X-Wait", writes: str = "x-left", **pool: Any) -> dict[str, Any]:
    """The listener reads one field, the upstream is told in another; with nothing, they do not."""
    made: Mapping[str, Any] = json.loads(json.dumps(CONFIG))
    made["listeners"][0].update({"deadlineHeader": reads} if reads else {})
    made["upstreams"][0].update({"deadlineHeader": writes} if writes else {}, pool=pool)
    return dict(made)


def test_what_is_left_goes_on_in_the_field_of_the_upstream() -> None:
    with Scene(config=config()) as scene:
        seen = scene.play(GET % b"1500")
        (request,) = seen.requests
        assert request.all(b"x-left") == [b"1500"]
        assert request.all(b"x-wait") == []
        (record,) = seen.records
        assert (record.status, record.deadline) == (200, 1500.0)


def test_what_waited_for_a_connection_has_less_left() -> None:
    with Scene(None, config=config(maxPerEndpoint=1)) as scene:
        first, second = scene.open(), scene.open()
        first.client.send(GET % b"9000")
        scene.gateway.run()
        second.client.send(GET % b"9000")
        scene.gateway.advance(2)
        scene.origin.last.send(b"HTTP/1.1 204 No Content\r\n\r\n")
        scene.gateway.run()
        one, two = scene.origin.requests
        assert (one.all(b"x-left"), two.all(b"x-left")) == ([b"9000"], [b"7000"])
        scene.origin.last.send(b"HTTP/1.1 204 No Content\r\n\r\n")
        scene.gateway.run()


def test_without_a_deadline_the_upstream_is_told_none_whatever_a_client_wrote() -> None:
    with Scene(config=config()) as scene:
        for value in (b"0", b"soon", b"1500 ", b"99999999999"):
            (request,) = scene.play(GET % value).requests
            assert request.all(b"x-wait") == []
            assert request.all(b"x-left") == ([b"1500"] if value == b"1500 " else [])
        assert scene.counts("invalid_deadline") == 3


def test_a_field_that_the_listener_does_not_read_is_a_field() -> None:
    with Scene(config=config(reads="", writes="")) as scene:
        (request,) = scene.play(GET % b"1").requests
        assert (request.all(b"x-wait"), request.all(b"x-left")) == ([b"1"], [b"77"])


def test_a_deadline_that_is_over_ends_the_upstreams_part_too() -> None:
    with Scene(None, config=config()) as scene:
        seen = scene.open()
        seen.client.send(GET % b"1500")
        scene.gateway.run()
        assert len(scene.origin.requests) == 1
        scene.gateway.advance(1.4)
        assert seen.received == b""
        assert scene.origin.last.lost is None
        scene.gateway.advance(0.2)
        assert seen.statuses == [504]
        assert seen.answers[0].get(b"proxy-status") == b'edge; error=http_response_timeout; details="upstream deadline"'
        assert scene.origin.last.lost is not None
        (record,) = scene.records
        assert (record.status, record.phase, record.who, record.deadline) == (504, "deadline", "upstream", 1500.0)
        assert scene.counts("deadline_exceeded") == 1


def test_a_deadline_breaks_off_an_answer_that_has_begun() -> None:
    with Scene(None, config=config()) as scene:
        seen = scene.reply(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf", request=GET % b"1000")
        assert seen.received.endswith(b"half")
        scene.gateway.advance(1.2)
        assert seen.reset or (seen.eof and not seen.answers[0].whole)
        (record,) = scene.records
        assert (record.status, record.phase) == (200, "deadline")


def test_a_reload_changes_both_fields() -> None:
    with Scene(config=config(reads="", writes="")) as scene:
        assert scene.play(GET % b"1500").requests[0].all(b"x-left") == [b"77"]
        assert scene.gateway.reload(config())
        assert scene.play(GET % b"1500").requests[0].all(b"x-left") == [b"1500"]
        assert scene.gateway.reload(config(reads="x-left", writes="x-budget"))
        request = scene.play(GET % b"1500").requests[0]
        assert (request.all(b"x-left"), request.all(b"x-budget"), request.all(b"x-wait")) == ([], [b"77"], [b"1500"])
