"""Clients of HTTP/2, in cleartext and over TLS: curl, nghttp, h2load, Node; upstreams of both versions behind."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
from multiplexed import ENGINES, World, fields, told, world

from gateways import eventually, heads, origin
from neighbours import Neighbours, need, run

pytestmark = pytest.mark.unwatched

SIDES = [(prefix, tls) for prefix in ("/one", "/two", "/tls") for tls in (False, True)]
"""Where a request goes, and whether it comes over TLS."""


@pytest.fixture(scope="module", params=ENGINES)
def there(request: pytest.FixtureRequest, company: Neighbours, node: int) -> Iterator[World]:
    made = world(company, node, request.param)
    yield made
    made.gateway.healthy()


def curl(there: World, *arguments: str, tls: bool, path: str) -> bytes:
    """What C{curl -i} prints."""
    base = there.url if tls else there.gateway.url
    how = ["--cacert", str(there.authority.file), "--http2"] if tls else ["--http2-prior-knowledge"]
    done = run([need("curl"), "-si", *how, *arguments, base + path])
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize(("prefix", "tls"), SIDES)
def test_curl_gets_what_there_is(there: World, prefix: str, tls: bool) -> None:
    answer = curl(there, "-d", "body", "-H", "Host: shop.test", tls=tls, path=f"{prefix}/echo?a=b")
    (first, got), *_ = heads(answer)
    assert first.startswith("HTTP/2 200")
    assert answer.endswith(b"\r\n\r\nbody")
    seen = fields(got)
    assert seen.get("host", seen.get(":authority")) == "shop.test"
    assert seen["x-forwarded-proto"] == ("https" if tls else "http")
    assert "2.0 protogate" in seen["via"] or "2 protogate" in seen["via"]


@pytest.mark.parametrize("tls", [False, True])
def test_curl_still_gets_http1_where_it_wants_that(there: World, tls: bool) -> None:
    base = there.url if tls else there.gateway.url
    done = run([need("curl"), "-si", "--http1.1", "--cacert", str(there.authority.file), f"{base}/two/echo"])
    assert done.stdout.startswith(b"HTTP/1.1 200")


def test_nghttp_gets_many_on_one_connection(there: World) -> None:
    urls = [f"{there.gateway.url}{prefix}/bytes/100000?{index}" for index in range(5) for prefix in ("/one", "/two")]
    done = run([need("nghttp"), "-nsv", *urls])
    said = re.sub(r"\x1b\[[0-9;]*m", "", done.stdout.decode())
    assert done.returncode == 0
    assert said.count(":status: 200") == 10
    assert "RST_STREAM" not in said
    assert not re.search(r"error_code=(?!NO_ERROR)", said)


@pytest.mark.parametrize("prefix", ["/one", "/two"])
def test_h2load_is_answered_every_time(there: World, prefix: str) -> None:
    done = run([need("h2load"), "-n", "500", "-c", "5", "-m", "20", f"{there.gateway.url}{prefix}/bytes/1000"])
    said = done.stdout.decode()
    assert "500 succeeded, 0 failed, 0 errored, 0 timeout" in said, said


@pytest.mark.parametrize(("prefix", "tls"), SIDES)
def test_node_has_many_streams_under_way(there: World, prefix: str, tls: bool) -> None:
    assert there.ask("many", prefix, tls=tls) == {"right": 100}


@pytest.mark.parametrize(("prefix", "tls"), SIDES)
def test_node_sends_and_gets_large_bodies(there: World, prefix: str, tls: bool) -> None:
    assert there.ask("large", prefix, tls=tls) == {"status": 200, "same": True, "down": 5_000_000}


@pytest.mark.parametrize("prefix", ["/one", "/two"])
def test_trailers_pass_both_ways(there: World, prefix: str) -> None:
    answer = there.ask("trailers", prefix)
    assert '"x-check":"abc"' in answer["up"]["trailers"]["x-trailers"]
    assert (answer["down"]["body"], answer["down"]["trailers"]["x-sum"]) == ("onetwo", "42")


@pytest.mark.parametrize("prefix", ["/one", "/two"])
def test_interim_answers_pass(there: World, prefix: str) -> None:
    answer = there.ask("hints", prefix)
    (interim,) = answer["interim"]
    assert interim[":status"] == 103
    assert "</a.css>; rel=preload" in interim["link"]
    assert answer["body"] == "hinted"


@pytest.mark.parametrize("prefix", ["/one", "/two"])
def test_an_early_answer_ends_the_upload_without_an_error(there: World, prefix: str) -> None:
    answer = there.ask("refuse", prefix)
    assert (answer["status"], answer["body"], answer["code"]) == (413, "too much\n", 0)


@pytest.mark.parametrize("scenario", ["reset", "lost"])
def test_an_answer_that_breaks_off_is_reset_and_the_connection_goes_on(there: World, scenario: str) -> None:
    answer = there.ask(scenario, "/two")
    assert (answer["by"]["status"], answer["by"]["body"]) == (200, "first")
    assert answer["by"]["code"] != 0
    assert answer["after"]["status"] == 200


@pytest.mark.parametrize("prefix", ["/one", "/two"])
def test_a_stream_that_the_client_resets_is_given_up_upstream(there: World, prefix: str) -> None:
    assert there.ask("leave", prefix)["body"] not in ("never", "0", "[]")


def test_nothing_is_pushed(there: World) -> None:
    answer = there.ask("push", "/two")
    assert (answer["body"], answer["pushed"]) == ("false", 0)


def test_pings_are_answered(there: World) -> None:
    assert there.ask("ping", "/one") == {"error": None}


def test_records_say_what_was_spoken(there: World) -> None:
    assert there.ask("get", "/two")["status"] == 200
    curl(there, tls=True, path="/one/hello?record")

    def spoken() -> set[Any]:
        return {record["protocol"] for record in there.gateway.records() if "record" in record["target"]}

    assert eventually(spoken, "a record") == {"HTTP/2"}


@pytest.mark.parametrize("prefix", ["/one", "/two", "/tls"])
@pytest.mark.parametrize("tls", [False, True])
def test_tunnels_pass_with_their_half_closes(there: World, prefix: str, tls: bool) -> None:
    answer = there.ask("tunnel", prefix, tls=tls)
    assert answer == {"status": 200, "body": "welcome bye", "length": 100_011, "code": 0}


def test_the_scenarios_are_right_without_a_gateway(company: Neighbours) -> None:
    url = f"http://127.0.0.1:{origin(company, 'origin2.js').port}"
    assert told("many", url, "") == {"right": 100}
    assert told("push", url, "")["body"] == "true"
    assert told("tunnel", url, "")["body"] == "welcome bye"
