"""gRPC to SOTP and back, each by itself: grpcio on one side of a gateway, SOTP in JavaScript on the other."""

from __future__ import annotations

import json
import queue
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest

from gateways import WITHIN, Gateway, config, eventually, origin, start, upstream
from neighbours import Neighbours, need, run

PEER = str(Path(__file__).parent.parent / "protogate_sotp" / "peer.js")
SERVICE = "shop.Orders"
ROUTES = [{"type": "service", "value": SERVICE, "routes": [{"targets": [{"upstream": "behind"}]}]}]


def gateway(company: Neighbours, front: str, behind: dict[str, Any]) -> Gateway:
    """One between them."""
    listeners = [{"name": "web", "address": "127.0.0.1:0", "protocols": [front]}]
    settings = config(0, listeners=listeners, upstreams=[{**behind, "name": "behind"}], routes=ROUTES)
    return start(company, settings | {"accessLog": {"file": "access.log"}})


# -- grpcio asks


@pytest.fixture(scope="module")
def onto_sotp(company: Neighbours) -> Iterator[tuple[Gateway, grpc.Channel]]:
    """A client of gRPC, and a service of SOTP."""
    serving = company.start([need("node"), PEER, "server"], ready=lambda output: "listening" in output)
    found = re.search(r"listening (\d+)\n", serving.output())
    assert found
    made = gateway(company, "http2", {"protocol": "sotp", "endpoints": [{"url": f"sotp://127.0.0.1:{found[1]}"}]})
    with grpc.insecure_channel(f"127.0.0.1:{made.port}", [("grpc.enable_retries", 0)]) as channel:
        yield made, channel
    made.healthy()


Asked = tuple[Gateway, grpc.Channel]


def test_a_service_of_sotp_answers_a_call(onto_sotp: Asked) -> None:
    gateway, channel = onto_sotp
    metadata = [("app-a", "one"), ("app-b-bin", b"\0\xff")]
    for message in (b"an order", b"", bytes(range(256)) * 4000):
        call = channel.unary_unary(f"/{SERVICE}/Place")
        answer, ended = call.with_call(message, metadata=metadata, timeout=WITHIN)
        assert answer == message
        assert [each for each in ended.initial_metadata() if each.key.startswith("app-")] == metadata
        assert ("end-b-bin", b"\0\xff") in ended.trailing_metadata()

    def recorded() -> list[dict[str, Any]]:
        return [each for each in gateway.records() if each["target"] == f"/{SERVICE}/Place"]

    (record, *_) = eventually(recorded, "the record")
    assert (record["protocol"], record["rpcStatus"], record["service"]) == ("HTTP/2", 0, SERVICE)


def test_messages_of_a_stream_pass_one_by_one(onto_sotp: Asked) -> None:
    _, channel = onto_sotp
    said: queue.Queue[bytes | None] = queue.Queue()
    answers = channel.stream_stream(f"/{SERVICE}/Place")(iter(said.get, None), timeout=WITHIN)
    for word in (b"one", b"two", b"three"):
        said.put(word)
        assert next(answers) == word
    said.put(None)
    assert list(answers) == []
    assert answers.code() is grpc.StatusCode.OK


@pytest.mark.parametrize(
    ("operation", "code", "messages"),
    [
        ("Fail", grpc.StatusCode.FAILED_PRECONDITION, []),
        ("aborted", grpc.StatusCode.ABORTED, []),
        ("nothing", grpc.StatusCode.UNIMPLEMENTED, []),
        ("Half", grpc.StatusCode.DATA_LOSS, [b"half"]),
    ],
)
def test_statuses_of_a_service_of_sotp_are_those_of_the_call(
    onto_sotp: Asked, operation: str, code: grpc.StatusCode, messages: list[bytes]
) -> None:
    _, channel = onto_sotp
    answers = channel.unary_stream(f"/{SERVICE}/{operation}")(b"", timeout=WITHIN)
    assert [next(answers) for _ in messages] == messages
    with pytest.raises(grpc.RpcError):
        next(answers)
    assert answers.code() is code


def test_a_service_of_sotp_that_breaks_off_is_no_end_of_a_call(onto_sotp: Asked) -> None:
    _, channel = onto_sotp
    answers = channel.unary_stream(f"/{SERVICE}/Break")(b"", timeout=WITHIN)
    assert next(answers) == b"some"
    with pytest.raises(grpc.RpcError):
        next(answers)
    assert answers.code() is not grpc.StatusCode.OK


def test_a_service_of_sotp_is_told_what_is_left_and_when_a_call_is_given_up(onto_sotp: Asked) -> None:
    _, channel = onto_sotp
    left = int(channel.unary_unary(f"/{SERVICE}/Left")(b"", timeout=20))
    assert 10_000 < left < 21_000  # grpcio rounds up
    with pytest.raises(grpc.RpcError) as caught:
        channel.unary_unary(f"/{SERVICE}/Wait")(b"", timeout=0.5)
    assert caught.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED


# -- grpcio answers


@pytest.fixture(scope="module")
def onto_grpc(company: Neighbours) -> Iterator[tuple[Gateway, int]]:
    """A client of SOTP, and a service of gRPC."""
    server = origin(company, "grpc_server.py")
    made = gateway(company, "sotp", upstream("behind", server.port, protocol="http2"))
    yield made, server.port
    made.healthy()


def test_a_client_of_sotp_calls_a_service_of_grpc(onto_grpc: tuple[Gateway, int]) -> None:
    gateway, port = onto_grpc
    done = run([need("node"), PEER, "client", str(gateway.port), "grpc"], timeout=WITHIN)
    assert done.returncode == 0, done.stderr.decode()
    found = json.loads(done.stdout)
    assert found["place"] == {
        "http": 200,
        "status": 0,
        "messages": ["an order"],
        "ends": [["grpc-status", "0"], ["end-a", "one"]],
    }
    assert found["chat"] == [len("you said one"), len("you said ") + 100_000]
    assert 10 < found["left"] < 21
    assert (found["fail"]["status"], found["fail"]["messages"]) == (9, [])
    assert ["grpc-status", "9"] in found["fail"]["ends"]
    assert (found["lost"]["messages"], found["lost"]["ends"]) == (["0 "], [["grpc-status", "15"]])
    assert found["waits"]["messages"] == ["first"]
    assert found["waits"]["cancelled"] == 3 or ["grpc-status", "4"] in found["waits"]["ends"], "DEADLINE, either way"

    def told() -> Any:
        with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
            return json.loads(channel.unary_unary(f"/{SERVICE}/Told")(b"", timeout=WITHIN))["cancelled"]

    assert eventually(told, "the service learns that nobody waits any longer")
