"""A SOTP peer that shares no code with us, on both sides of a gateway, beside HTTP, and with the client for Twisted."""

from __future__ import annotations

import http.client
import json
import re
import signal
import subprocess
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import pytest_twisted
from twisted.internet import reactor
from twisted.internet.endpoints import TCP4ClientEndpoint
from twisted.internet.task import deferLater

from gateways import ROOT, WITHIN, Gateway, config, eventually, start
from neighbours import Neighbours, need, run
from protogate.context import Context, Timeouts
from protogate.wheel import Wheel
from protogate_sotp.client import SotpClient
from protogate_sotp.options import Options

PEER = str(Path(__file__).parent.parent / "protogate_sotp" / "peer.js")


def peer(neighbours: Neighbours) -> int:
    """The port of the peer as a server."""
    running = neighbours.start([need("node"), PEER, "server"], ready=lambda output: "listening" in output)
    found = re.search(r"listening (\d+)\n", running.output())
    assert found
    return int(found[1])


def played(port: int, way: str) -> dict[str, Any]:
    """What the peer found as a client."""
    done = run([need("node"), PEER, "client", str(port), way], timeout=WITHIN)
    assert done.returncode == 0, done.stderr.decode()
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def settings(sotp: int, node: int) -> dict[str, Any]:
    """Both protocols in front; behind, SOTP, and HTTP for what begins with /http."""
    front = {"address": "127.0.0.1:0", "protocols": ["http1", "sotp"], "deadlineHeader": "x-deadline-ms"}
    return config(
        node,
        listeners=[{"name": "web", **front}],
        upstreams=[
            {"name": "peer", "protocol": "sotp", "endpoints": [{"url": f"sotp://127.0.0.1:{sotp}"}]},
            {"name": "node", "endpoints": [{"url": f"http://127.0.0.1:{node}"}]},
        ],
        routes=[
            {"type": "service", "value": "1001", "routes": [{"targets": [{"upstream": "peer"}]}]},
            {"type": "service", "value": "orders", "routes": [{"targets": [{"upstream": "peer"}]}]},
            {"value": "/", "matcherType": "prefix", "routes": [{"targets": [{"upstream": "peer"}]}]},
        ],
        accessLog={"file": "access.log"},
    )


@pytest.fixture(scope="module")
def both(company: Neighbours, node: int) -> Iterator[Gateway]:
    """SOTP (and HTTP) in front of SOTP."""
    gateway = start(company, settings(peer(company), node))
    yield gateway
    gateway.healthy()


@pytest.fixture(scope="module")
def onto_http(company: Neighbours, node: int) -> Iterator[Gateway]:
    """SOTP in front of HTTP: the operation is what the origin knows."""
    routes = [
        {
            "value": "/1001",
            "matcherType": "prefix",
            "routes": [{"targets": [{"url": f"http://127.0.0.1:{node}/"}]}],
        },
        {
            "value": "/orders",
            "matcherType": "prefix",
            "routes": [{"targets": [{"url": f"http://127.0.0.1:{node}/"}]}],
        },
    ]
    listeners = [{"name": "web", "address": "127.0.0.1:0", "protocols": ["http1", "sotp"]}]
    gateway = start(company, config(node, listeners=listeners, routes=routes, accessLog={"file": "access.log"}))
    yield gateway
    gateway.healthy()


def test_the_peer_agrees_with_every_vector() -> None:
    file = ROOT / "codecs" / "protogate_sotp" / "vectors.json"
    done = run([need("node"), PEER, "vectors", str(file)])
    found = json.loads(done.stdout)
    assert found["wrong"] == []
    groups = json.loads(file.read_text())
    assert found["checked"] == sum(len(group) for key, group in groups.items() if key != "version")


EVERYWHERE = {
    "plain": {"http": [200, 200], "text": ["hello\n", "hello\n"], "greeted": True},
    "echo": {"right": 60, "ids": [1, 119]},
    "heartbeat": {"pongs": True, "closed": False},
    "fault": {"goaways": [{"last": 0, "code": 16, "text": "not a frame"}]},
}
"""What the peer finds as a client, whatever is behind the gateway."""
ONTO_SOTP = {
    "trailers": {"text": "one", "trailers": [["x-sum", "42"]]},
    "upload": {"text": "one two three", "trailers": [["x-sum", "7"]]},
    "hints": {"interims": [[103, ["link", "</a>"]]], "text": "hinted"},
    "status": {"found": [[10, 409], [3, 418], [12, 501]]},
    "cancel": {"waiting": 1, "told": 1, "answered": None},
    "packed": {"coding": "gzip", "text": 9000},
    "broken": {"size": 4, "ended": False, "cancelled": 4},
}


@pytest.mark.parametrize("way", [*EVERYWHERE, *ONTO_SOTP])
def test_sotp_to_sotp(both: Gateway, way: str) -> None:
    assert played(both.port, way) == (EVERYWHERE | ONTO_SOTP)[way]


@pytest.mark.parametrize("way", EVERYWHERE)
def test_sotp_to_http(onto_http: Gateway, way: str) -> None:
    assert played(onto_http.port, way) == EVERYWHERE[way]


def test_sotp_to_http_with_trailers_and_statuses(onto_http: Gateway) -> None:
    assert played(onto_http.port, "trailers") == {"text": "onetwo", "trailers": [["x-sum", "42"]]}
    assert played(onto_http.port, "status")["found"] == [[5, 404]] * 3


def test_a_reader_that_stands_still_stops_only_itself(both: Gateway) -> None:
    found = played(both.port, "stall")
    assert found["size"] == 3000000
    assert found["stood"] <= 100000  # the window that it announced
    assert found["other"] == "hello\n"


def test_a_deadline_is_kept(both: Gateway) -> None:
    found = played(both.port, "deadline")
    assert found in ({"head": None, "cancelled": 3}, {"head": 4, "cancelled": None})


def test_a_request_that_is_none_is_answered_and_recorded(both: Gateway) -> None:
    assert played(both.port, "bad") == {"status": 3, "problem": 400, "other": "hello\n"}

    def recorded() -> list[dict[str, Any]]:
        return [record for record in both.records() if record.get("malformed")]

    (record,) = eventually(recorded, "the record of a bad request")
    assert (record["protocol"], record["status"]) == ("SOTP/1", 400)


def test_records_name_service_and_protocol(both: Gateway) -> None:
    played(both.port, "plain")
    eventually(lambda: {"1001", "orders"} <= {record.get("service") for record in both.records()}, "records")
    found = [record for record in both.records() if record.get("service") == "orders"]
    assert {record["protocol"] for record in found} == {"SOTP/1"}


def test_a_drain_loses_nothing(neighbours: Neighbours, node: int) -> None:
    gateway = start(neighbours, settings(peer(neighbours), node))
    argv = [need("node"), PEER, "client", str(gateway.port), "drain"]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as client:
        assert client.stdout is not None
        assert client.stderr is not None
        assert client.stderr.readline() == b"ready\n"
        gateway.running.signal(signal.SIGTERM)
        found = json.loads(client.stdout.read())
        assert client.wait(WITHIN) == 0
    assert found == {"text": "last words", "goaways": [[0x7FFFFFFF, 0], [1, 0]], "pings": 1}
    assert gateway.running.wait() in (0, -signal.SIGTERM)


def test_http_to_sotp(both: Gateway) -> None:
    with closing(http.client.HTTPConnection("127.0.0.1", both.port, timeout=WITHIN)) as connection:
        fields = {"Content-Type": "application/json", "X-Deadline-Ms": "20000", "X-A": "1"}
        connection.request("POST", "/1001/echo", body=b"b" * 300000, headers=fields)
        with connection.getresponse() as response:
            assert response.status == 200
            assert response.read() == b"b" * 300000
            seen = json.loads(response.headers["x-seen"])
        assert (seen["service"], seen["operation"]) == ("1001", "echo")
        assert 0 < seen["deadline"] <= 20000
        assert ["content-type", "application/json"] in seen["fields"]
        assert ["x-a", "1"] in seen["fields"]
        for operation, status in (("aborted", 409), ("teapot", 418), ("nothing", 501)):
            connection.request("POST", f"/1001/{operation}")
            with connection.getresponse() as response:
                assert response.status == status
                response.read()
        connection.request("POST", "/1001/trailers", headers={"TE": "trailers"})
        with connection.getresponse() as response:
            assert response.read() == b"one"


@pytest_twisted.ensureDeferred
async def test_the_client_for_twisted(company: Neighbours) -> None:
    port = peer(company)
    wheel = Wheel(reactor)  # type: ignore[arg-type]
    context = Context(wheel, timeouts=Timeouts(queue=WITHIN))
    client = SotpClient(TCP4ClientEndpoint(reactor, "127.0.0.1", port), context, Options(heartbeat=1))
    began = wheel.now()
    try:
        reply = await client.request(1001, "echo", b"x" * 500000, metadata=[(b"x-a", b"1")], compression="gzip")
        assert (reply.status, reply.http, reply.data) == (0, 200, b"x" * 500000)
        seen = json.loads(dict(reply.fields)[b"x-seen"])
        assert ["x-a", "1"] in seen["fields"]
        assert (await client.request(1001, "packed")).data == b"unpacked " * 1000
        assert (await client.request("orders", "aborted")).status == 10
        assert (await client.request(1001, "trailers")).trailers == [(b"x-sum", b"42")]
        assert (await client.request(1001, "refuse")).data == b"second"
        await deferLater(reactor, 2.5, lambda: None)  # type: ignore[arg-type]
        ((_, _), (_, pings)) = (await client.request(1002, "trailers")).trailers
        assert 1 <= int(pings) <= wheel.now() - began, "one in each second without a word, at most"
        assert (await client.request(1001, "leave")).data == b"bye"
        assert (await client.request(1001, "hello", deadline=WITHIN)).data == b"hello\n"
    finally:
        await client.close()
        wheel.stop()
