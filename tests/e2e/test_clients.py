"""wrk, Node's http client and Python's http.client, through the gateway, to Node."""

from __future__ import annotations

import http.client
import json
import re
from contextlib import closing
from typing import Any

from gateways import WITHIN, Gateway, script
from neighbours import need, run


def node_client(edge: Gateway, way: str) -> dict[str, Any]:
    """What C{client.js} printed."""
    done = run([*script("client.js"), str(edge.port), way], timeout=WITHIN)
    assert done.returncode == 0, done.stderr.decode()
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_wrk_sees_no_error(edge: Gateway) -> None:
    done = run([need("wrk"), "-t1", "-c32", "-d2s", "--timeout", "20s", f"{edge.url}/hello"])
    told = done.stdout.decode()
    assert done.returncode == 0, told
    requests = re.search(r"(\d+) requests in", told)
    assert requests, told
    assert int(requests[1]) > 32, told
    assert "Non-2xx" not in told
    assert "Socket errors" not in told


def test_node_with_a_keep_alive_agent(edge: Gateway) -> None:
    assert node_client(edge, "agent") == {"right": 200, "sockets": 4}


def test_node_pipelines_and_is_answered_in_order(edge: Gateway) -> None:
    assert node_client(edge, "pipeline") == {"answers": 30, "inOrder": True}


def test_node_waits_for_the_100(edge: Gateway) -> None:
    assert node_client(edge, "continue") == {"continued": True, "text": "after"}


def test_python_reuses_its_connection(edge: Gateway) -> None:
    with closing(http.client.HTTPConnection("127.0.0.1", edge.port, timeout=WITHIN)) as connection:
        connection.connect()
        used = connection.sock
        for index in range(50):
            connection.request("POST", f"/echo?{index}", body=b"b" * index)
            with connection.getresponse() as response:
                assert response.status == 200
                assert json.loads(response.headers["x-seen"])["target"] == f"/echo?{index}"
                assert response.read() == b"b" * index
            assert connection.sock is used
        # http.client sends what it can iterate in chunks.
        connection.request("PUT", "/echo", body=iter([b"one ", b"two"]))
        with connection.getresponse() as response:
            assert response.read() == b"one two"
        assert connection.sock is used


def test_python_reads_a_large_body_that_it_takes_slowly(edge: Gateway) -> None:
    size = 20 * 1024 * 1024
    with closing(http.client.HTTPConnection("127.0.0.1", edge.port, timeout=WITHIN)) as connection:
        connection.request("GET", f"/bytes/{size}")
        with connection.getresponse() as response:
            taken = 0
            while piece := response.read(4096 if taken < 65536 else 1024 * 1024):
                taken += len(piece)
    assert taken == size
