"""Calls of gRPC through a whole gateway, frame by frame: what ends them, and that nothing else looks like an end."""

from __future__ import annotations

from typing import Any

import pytest
from two import BOTH, CANCEL, HOST, INTERNAL_ERROR, NO_ERROR, PORT, REFUSED_STREAM, Client, Two

from h2frames import Field, data, fields, goaway, headers, req, res, rst

pytestmark = pytest.mark.parametrize("engine", BOTH)
GRPC = (b"content-type", b"application/grpc")
CALL = [GRPC, (b"te", b"trailers")]
MESSAGE = b"\0\0\0\0\5hello"


def call(stream: int, end: bool = True, *more: Field) -> bytes:
    """The head of a call, and one message."""
    head = req(stream, b"/shop.Cart/Add", b"POST", [*CALL, *more], end=False)
    return head + data(stream, MESSAGE, end)


def status(client: Client, stream: int) -> tuple[int, str, bool]:
    """What a client makes of it: status, message, and whether these came with the head (trailers-only)."""
    message = client.message(stream)
    assert message.status == 200
    assert message.ended
    last = dict(message.heads[-1])
    return int(last[b"grpc-status"]), last.get(b"grpc-message", b"").decode(), len(message.heads) == 1


def begun(two: Two, client: Client) -> Any:
    """A call whose answer has begun, with one message."""
    client.send(call(1))
    asked = two.asked[0]
    two.reply(res(asked.stream, more=[GRPC], end=False), data(asked.stream, MESSAGE))
    return asked


def ended(client: Client, stream: int) -> None:
    """No client can take that for the end of an answer."""
    assert not client.message(stream).ended
    assert client.resets[stream] not in (NO_ERROR, CANCEL)


# -- C25


@pytest.mark.parametrize("code", [b"0", b"10", b"16"])
def test_trailers_are_passed_on_as_they_are(engine: str, code: bytes) -> None:
    with Two(engine, None) as two:
        client = two.client()
        asked = begun(two, client)
        trailers = [(b"grpc-status", code), (b"grpc-message", b"it%20broke"), (b"x-debug-bin", b"AAEC")]
        two.reply(data(asked.stream, MESSAGE), headers(asked.stream, fields(trailers)))
        message = client.message(1)
        assert message.content == MESSAGE * 2
        assert [pair for pair in message.heads[1] if pair[0] != b"date"] == trailers
        assert status(client, 1) == (int(code), "it%20broke", False)
        (record,) = two.records
        assert (record.status, record.rpc_status, record.error) == (200, int(code), "")


def test_an_answer_of_trailers_alone_stays_one_frame(engine: str) -> None:
    with Two(engine, None) as two:
        client = two.client()
        client.send(call(1))
        two.reply(res(two.asked[0].stream, more=[GRPC, (b"grpc-status", b"5"), (b"grpc-message", b"none")]))
        assert status(client, 1) == (5, "none", True)
        frames = [frame for frame in client.peer.frames if frame.stream_id == 1]
        assert [type(frame).__name__ for frame in frames] == ["HeadersFrame"]
        assert "END_STREAM" in frames[0].flags
        assert b"content-length" not in dict(client.message(1).heads[0]), "it would be metadata"
        assert two.records[0].rpc_status == 5


def test_a_call_keeps_what_it_needs_and_its_metadata(engine: str) -> None:
    metadata = [(b"x-id", b"1"), (b"x-id", b"2"), (b"x-data-bin", b"AAEC,BAUG"), (b"grpc-encoding", b"gzip")]
    with Two(engine, None) as two:
        client = two.client()
        client.send(call(1, True, *metadata))
        (asked,) = two.asked
        assert asked.all(b"te") == [b"trailers"]
        assert asked.all(b"content-type") == [b"application/grpc"]
        assert asked.all(b"x-id") == [b"1", b"2"]
        assert asked.all(b"x-data-bin") == [b"AAEC,BAUG"]
        assert asked.message.content == MESSAGE
        client.send(rst(1))


def test_messages_go_both_ways_before_either_side_has_ended(engine: str) -> None:
    with Two(engine, None, early=True) as two:
        client = two.client()
        client.send(call(1, False))
        (asked,) = two.asked
        for n in range(3):
            two.reply(*([res(asked.stream, more=[GRPC], end=False)] if not n else []), data(asked.stream, MESSAGE))
            assert client.message(1).content == MESSAGE * (n + 1)
            client.send(data(1, MESSAGE))
            assert asked.message.content == MESSAGE * (n + 2)
        client.send(data(1, b"", True))
        assert asked.message.ended
        two.reply(headers(asked.stream, fields([(b"grpc-status", b"0")])))
        assert status(client, 1) == (0, "", False)


def test_a_call_that_is_answered_before_it_has_ended_keeps_its_status(engine: str) -> None:
    """The server has enough: its status counts, and what the client still sends is thrown away."""
    with Two(engine, None, early=True) as two:
        client = two.client()
        client.send(call(1, False))
        (asked,) = two.asked
        two.reply(res(asked.stream, more=[GRPC, (b"grpc-status", b"9")]), rst(asked.stream, NO_ERROR))
        assert status(client, 1) == (9, "", True)
        assert client.resets.get(1, NO_ERROR) == NO_ERROR
        client.send(data(1, MESSAGE, True))
        client.send(call(3))
        assert len(two.asked) == 2
        client.send(rst(3))


@pytest.mark.parametrize("code", [NO_ERROR, INTERNAL_ERROR, CANCEL, REFUSED_STREAM, 11])
def test_an_answer_that_is_broken_off_is_no_end(engine: str, code: int) -> None:
    """Not even where the server says NO_ERROR."""
    with Two(engine, None) as two:
        client = two.client()
        asked = begun(two, client)
        two.reply(rst(asked.stream, code))
        ended(client, 1)
        assert client.message(1).content == MESSAGE
        (record,) = two.records
        assert (record.who, record.rpc_status) == ("upstream", -1)
        assert record.error
        assert len(two.asked) == 1, "it is not asked again"


@pytest.mark.parametrize("how", ["close", "reset", "goaway"])
def test_an_answer_whose_connection_ends_is_no_end(engine: str, how: str) -> None:
    with Two(engine, None) as two:
        client = two.client()
        asked = begun(two, client)
        if how == "goaway":
            asked.end.write(goaway(asked.stream, INTERNAL_ERROR))
        (asked.end.transport.abortConnection if how == "reset" else asked.end.transport.loseConnection)()
        two.run()
        ended(client, 1)
        assert two.records[0].who == "upstream"


def test_an_answer_without_trailers_gets_none(engine: str) -> None:
    """A client makes UNKNOWN of it: nobody knows better."""
    with Two(engine, None) as two:
        client = two.client()
        asked = begun(two, client)
        two.reply(data(asked.stream, MESSAGE, True))
        message = client.message(1)
        assert message.ended
        assert b"grpc-status" not in [name for head in message.heads for name, _ in head]
        assert two.records[0].rpc_status == -1


FAILING = {
    "nobody listens": 14,
    "it closes at once": 14,
    "it refuses": 14,
    "it resets": 14,
    "it answers nonsense": 14,
    "it takes too long": 4,
}


@pytest.mark.parametrize("what", FAILING)
def test_failures_of_the_gateway_have_a_status(engine: str, what: str) -> None:
    """One frame: a client of gRPC looks at nothing else."""
    replies = {
        "it closes at once": None,
        "it refuses": lambda asked: rst(asked.stream, REFUSED_STREAM),
        "it resets": lambda asked: rst(asked.stream, INTERNAL_ERROR),
        "it answers nonsense": lambda asked: headers(asked.stream, fields([(b"x-a", b"1")])),
    }
    with Two(engine, replies.get(what), timeouts={"responseHead": "2s"}) as two:
        if what == "nobody listens":
            del two.gateway.reactor.ports[HOST, PORT]
        client = two.client()
        client.send(call(1))
        if what == "it closes at once":
            two.asked[0].end.transport.loseConnection()
        two.advance(3)
        code, message, alone = status(client, 1)
        assert code == FAILING[what]
        assert message
        assert alone
        assert b"proxy-status" in dict(client.message(1).heads[0])
        assert client.message(1).content == b""
        (record,) = two.records
        assert record.who == "upstream"


def test_a_call_that_its_client_cancels_is_cancelled_behind(engine: str) -> None:
    with Two(engine, None, early=True) as two:
        client = two.client()
        client.send(call(1, False))
        (asked,) = two.asked
        two.reply(res(asked.stream, more=[GRPC], end=False), data(asked.stream, MESSAGE))
        client.send(rst(1, CANCEL))
        assert asked.reset == CANCEL
        assert not asked.message.ended
        (record,) = two.records
        assert (record.who, record.rpc_status) == ("client", -1)


def test_a_deadline_is_told_and_kept(engine: str) -> None:
    with Two(engine, None) as two:
        client = two.client()
        client.send(call(1, True, (b"grpc-timeout", b"2S")))
        (asked,) = two.asked
        (told,) = asked.all(b"grpc-timeout")
        assert 1900 <= int(told[:-1]) * {b"m": 1, b"S": 1000, b"u": 0.001, b"n": 0.000001}[told[-1:]] <= 2000
        two.advance(2.2)
        assert status(client, 1)[::2] == (4, True)
        assert asked.reset == CANCEL
        assert two.counts("deadline_exceeded") == 1


def test_a_malformed_call_has_a_status_or_a_reset(engine: str) -> None:
    with Two(engine, None) as two:
        client = two.client()
        client.send(req(1, b"/shop.Cart/Add", b"POST", [*CALL, (b"content-length", b"5"), (b"content-length", b"6")]))
        if client.resets.get(1) is None:
            assert status(client, 1)[0] in (3, 13)
        else:
            assert client.resets[1] == 1
        (record,) = two.records
        assert (record.status, record.who) == (400, "client")
        assert not two.asked
