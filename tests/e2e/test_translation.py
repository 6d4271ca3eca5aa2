"""Requests that become others by templates, HTTP to SOTP and back: curl, Node's http, the peer of SOTP, sotp call."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gateways import WITHIN, Gateway, config, eventually, heads, program, start
from neighbours import Neighbours, need, run

PEER = str(Path(__file__).parent.parent / "protogate_sotp" / "peer.js")
WAIT = "x-request-timeout-ms"


@pytest.fixture(scope="module")
def translating(company: Neighbours, node: int) -> Iterator[Gateway]:
    """HTTP to services of SOTP, services of SOTP to HTTP; deadlines in a field on both sides."""
    serving = company.start([need("node"), PEER, "server"], ready=lambda output: "listening" in output)
    found = re.search(r"listening (\d+)\n", serving.output())
    assert found
    by_number = {"service": "${request.method == 'PUT' ? '1001' : 'orders'}", "operation": "${path.what}"}
    by_path = {
        "method": "PUT",
        "path": "/${request.operation}/${request.service}",
        "query": {"from": "${request.headers['x-from']}", "all": "1"},
    }
    settings = config(
        node,
        listeners=[
            {"name": "web", "address": "127.0.0.1:0", "protocols": ["http1", "sotp"], "deadlineHeader": WAIT},
        ],
        upstreams=[
            {"name": "peer", "protocol": "sotp", "endpoints": [{"url": f"sotp://127.0.0.1:{found[1]}"}]},
            {"name": "node", "endpoints": [{"url": f"http://127.0.0.1:{node}"}], "deadlineHeader": WAIT},
        ],
        routes=[
            {
                "name": "to sotp",
                "value": "/orders/{what}",
                "matcherType": "template",
                "routes": [{"targets": [{"upstream": "peer", "rewrite": by_number}]}],
            },
            {
                "name": "to http",
                "type": "service",
                "value": "2000-2999, stock",
                "routes": [{"targets": [{"upstream": "node", "rewrite": by_path}]}],
            },
        ],
        accessLog={"file": "access.log"},
    )
    gateway = start(company, settings)
    yield gateway
    gateway.healthy()


def curl(gateway: Gateway, path: str, *arguments: str, data: bytes | None = None) -> tuple[int, dict[str, str], bytes]:
    """Status, fields and content of the answer to curl."""
    argv = [need("curl"), "-sS", "-i", "--max-time", f"{WITHIN:g}", *arguments, f"{gateway.url}{path}"]
    done = run(argv, data=data, timeout=WITHIN + 5)
    assert done.returncode == 0, done.stderr.decode()
    text = done.stdout
    for _ in heads(text):
        text = text.partition(b"\r\n\r\n")[2]
    line, fields = heads(done.stdout)[-1]
    return int(line.split()[1]), fields, text


def call(gateway: Gateway, path: str, *arguments: str, data: bytes | None = None) -> tuple[int, str]:
    """Exit status and output of C{protogate sotp call}."""
    argv = [program("protogate"), "sotp", "call", f"sotp://127.0.0.1:{gateway.port}{path}", *arguments]
    done = run(argv, data=data, timeout=WITHIN + 5)
    return done.returncode, done.stdout.decode()


def test_http_asks_a_service_by_number(translating: Gateway) -> None:
    data = b"b" * 300_000
    status, fields, content = curl(
        translating, "/orders/echo?x=1", "-T", "-", "-H", f"{WAIT}: 20000", "-H", "x-a: 1", data=data
    )
    assert (status, content) == (200, data)
    seen = json.loads(fields["x-seen"])
    assert (seen["service"], seen["operation"]) == ("1001", "echo")
    assert 0 < seen["deadline"] <= 20000
    assert ["x-a", "1"] in seen["fields"]
    assert WAIT not in dict(seen["fields"])


def test_http_asks_a_service_by_name_and_is_told_its_status(translating: Gateway) -> None:
    assert curl(translating, "/orders/hello")[::2] == (200, b"hello\n")
    assert curl(translating, "/orders/aborted")[0] == 409
    assert curl(translating, "/orders/teapot")[0] == 418

    def recorded() -> list[dict[str, Any]]:
        return [each for each in translating.records() if each["target"] == "/orders/teapot"]

    (record,) = eventually(recorded, "the record")
    assert (record["method"], record["route"], record["upstream"]) == ("GET", "to sotp", "peer")


def test_interim_answers_and_trailers_pass(translating: Gateway) -> None:
    _, _, content = curl(translating, "/orders/hints")
    assert content == b"hinted"
    argv = [need("curl"), "-sS", "-i", "--raw", "-H", "te: trailers", f"{translating.url}/orders/hints"]
    assert b"HTTP/1.1 103" in run(argv, timeout=WITHIN).stdout
    argv[-1] = f"{translating.url}/orders/trailers"
    assert b"\r\nx-sum: 42\r\n" in run(argv, timeout=WITHIN).stdout


@pytest.mark.parametrize("path", ["/orders/a%2Fb", "/orders/a%20b", "/orders/%2ehidden"])
def test_what_is_no_operation_is_refused(translating: Gateway, path: str) -> None:
    assert curl(translating, path)[0] in (400, 404)


def test_a_deadline_over_http_ends_the_stream_behind(translating: Gateway) -> None:
    status, fields, _ = curl(translating, "/orders/wait", "-H", f"{WAIT}: 300")
    assert status == 504
    assert "http_response_timeout" in fields["proxy-status"]

    def given_up() -> Any:
        return json.loads(curl(translating, "/orders/gone")[2])["gone"]

    assert eventually(given_up, "the cancel at the peer")

    def recorded() -> list[dict[str, Any]]:
        return [each for each in translating.records() if each["target"] == "/orders/wait"]

    (record,) = eventually(recorded, "the record")
    assert (record["status"], record["phase"], record["deadline"]) == (504, "deadline", 300.0)


def test_a_service_is_asked_over_http(translating: Gateway) -> None:
    status, text = call(translating, "/2500/echo", "-i", "-m", "20", "-H", "x-from: a&b", "-d", "hello")
    assert status == 0, text
    head, _, content = text.partition("\n\n")
    assert (head.splitlines()[0], content) == ("SOTP/1 status 0 OK, HTTP 200", "hello")
    fields = dict(line.split(": ", 1) for line in head.splitlines()[1:])
    seen = json.loads(fields["x-seen"])
    assert (seen["method"], seen["target"]) == ("PUT", "/echo/2500?from=a%26b&all=1")
    told = dict(zip(map(str.lower, seen["fields"][::2]), seen["fields"][1::2], strict=True))
    assert 0 < int(told[WAIT]) <= 20000
    assert told["x-from"] == "a&b"


def test_a_named_service_streams_both_ways_over_http(translating: Gateway) -> None:
    data = bytes(range(256)) * 4000
    status, text = call(translating, "/stock/sum", "--stream", "-d", "@-", data=data)
    assert (status, len(text.strip())) == (0, 64)
    status, text = call(translating, "/stock/trailers", "-i")
    assert (status, "onetwo" in text, "x-sum: 42" in text) == (0, True, True)


def test_statuses_of_http_are_statuses_of_a_service(translating: Gateway) -> None:
    status, text = call(translating, "/stock/nothing.here", "-i")
    assert (status, text.splitlines()[0]) == (1, "SOTP/1 status 5 NOT_FOUND, HTTP 404")
    assert call(translating, "/3000/hello", "-i")[1].startswith("SOTP/1 status 5 NOT_FOUND, HTTP 404")


def test_a_deadline_of_a_service_ends_the_request_over_http(translating: Gateway, node: int) -> None:
    status, _ = call(translating, "/2042/wait", "-m", "0.3")
    assert status in (1, 3)  # who is first: the gateway's answer, or the client's own clock

    def given_up() -> bool:
        done = run([need("curl"), "-sS", f"http://127.0.0.1:{node}/gone"], timeout=WITHIN)
        return "2042" in json.loads(done.stdout)

    assert eventually(given_up, "the end of the request at the origin")
