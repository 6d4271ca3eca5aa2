"""Fields that no table of HPACK may have are passed on as such (RFC 7541, 6.2.3), whichever engine has read them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from ends import Giver, Wire, World
from hpack import Decoder, Encoder, NeverIndexedHeaderTuple

from h2frames import PREFACE, settings
from protogate.exchange.forwarding import Forwarding
from protogate.message import Headers, Request, Response
from protogate_http.fields2 import compose, without_key
from protogate_http.frames2 import END_HEADERS, END_STREAM, HEADERS, frame
from protogate_http.http2 import Http2
from protogate_http.secret2 import Unindexed
from protogate_http.semantics import admissible

ENGINES = ("ngh2", "h2")
GET = [(":method", "GET"), (":scheme", "http"), (":path", "/"), (":authority", "a.test")]
SECRETS = [("x-api-key", "k1"), ("accept", "*/*")]
Fields = list[tuple[str, str]]


def secret(fields: Fields) -> list[Any]:
    return [NeverIndexedHeaderTuple(*field) for field in fields]


def head(*fields: Any) -> bytes:
    """HEADERS of the first stream."""
    return frame(HEADERS, END_HEADERS | END_STREAM, 1, Encoder().encode(fields))


def heads(data: bytes) -> list[list[Any]]:
    """The fields of all HEADERS."""
    decoder, at, found = Decoder(), 0, []
    while at < len(data):
        end = at + 9 + int.from_bytes(data[at : at + 3], "big")
        if data[at + 3] == HEADERS:
            found.append(list(decoder.decode(data[at + 9 : end])))
        at = end
    return found


def hidden(fields: list[Any]) -> dict[str, str]:
    """Those that nobody may put into a table; of engines' own accord, C{authorization} and short cookies are."""
    return dict(field for field in fields if isinstance(field, NeverIndexedHeaderTuple))


def read(engine: str, data: bytes) -> Request:
    """The request that a server reads."""
    world, found = World(), list[Request]()

    class Service:
        def handle(self, request: Request) -> Response:
            found.append(request)
            return Response(204)

    server = Http2(engine).server(Service(), world.context)  # type: ignore[arg-type]
    server.makeConnection(Wire())
    server.dataReceived(PREFACE + settings() + data)
    server.abort()
    return found[0]


@pytest.mark.parametrize("writes", ENGINES)
@pytest.mark.parametrize("reads", ENGINES)
def test_those_of_a_request(reads: str, writes: str) -> None:
    request = read(reads, head(*GET, *secret(SECRETS), ("accept-language", "de"), ("x-open", "1")))
    assert request.headers.get(b"x-api-key") == b"k1"
    assert sent(writes, request) == dict(SECRETS)
    request.headers.set(b"x-api-key", b"k2")
    assert sent(writes, request) == dict(SECRETS[1:]), "another field is another field"


def sent(engine: str, request: Request) -> dict[str, str]:
    """What a client hides of it."""
    world, wire = World(), Wire()
    client = Http2(engine).client(lambda connection: None, world.context)
    client.makeConnection(wire)
    client.dataReceived(settings())
    client.handle(request).addErrback(lambda _: None)
    world.clock.advance(0)
    (fields,) = heads(wire.data[len(PREFACE) :])
    assert dict(fields).items() >= {"x-open": "1", "accept": "*/*"}.items()
    client.abort()
    return hidden(fields)


@pytest.mark.parametrize("engine", ENGINES)
def test_all_cookies_where_one_of_them_is_such(engine: str) -> None:
    long = "a" * 30
    for crumbs, hides in (
        ([("cookie", long), ("cookie", "b=2")], False),
        ([("cookie", long), *secret([("cookie", "b=2")])], True),
    ):
        request = read(engine, head(*GET, ("x-open", "1"), ("accept", "*/*"), *crumbs))
        assert request.headers.get(b"cookie") == f"{long}; b=2".encode()
        assert sent(engine, request) == ({"cookie": f"{long}; b=2"} if hides else {})


@pytest.mark.parametrize("writes", ENGINES)
@pytest.mark.parametrize("reads", ENGINES)
def test_those_of_an_answer_and_its_trailers(reads: str, writes: str) -> None:
    world, answers = World(), list[Response]()
    client = Http2(reads).client(lambda connection: None, world.context)
    client.makeConnection(Wire())
    client.dataReceived(settings())
    client.handle(Request(b"GET", b"/", authority=b"a.test")).addCallback(answers.append)
    world.clock.advance(0)
    client.dataReceived(head((":status", "200"), *secret([("x-token", "t")]), ("x-open", "1")))
    (answer,) = answers
    trailers = [Unindexed(b"x-sum", b"s"), (b"x-end", b"1")]
    answer.body = Giver(b"x", trailers=trailers).body

    class Service:
        def handle(self, request: Request) -> Response:
            return answer

    wire = Wire()
    server = Http2(writes).server(Service(), world.context)  # type: ignore[arg-type]
    server.makeConnection(wire)
    server.dataReceived(PREFACE + settings() + head(*GET))
    world.clock.advance(0)
    assert [hidden(fields) for fields in heads(wire.data)] == [{"x-token": "t"}, {"x-sum": "s"}]
    server.abort()
    client.abort()


def test_one_is_not_known_for_one_that_is_none() -> None:
    out: list[Any] = []
    for field in ((b"accept", b"*/*"), Unindexed(b"accept", b"*/*"), (b"accept", b"*/*"), Unindexed(b"X-A", b" b ")):
        compose(out, [field], lambda event: None)
    assert [type(field) is Unindexed for field in out] == [False, True, False, True]
    assert out[3] == (b"x-a", b"b")


def _rewritten(request: Request) -> None:
    request.headers.set(b"x-a", b"3")


def _forwarded(request: Request) -> None:
    Forwarding("edge").write(request, request.peer)


@pytest.mark.parametrize(
    "change",
    [
        _rewritten,
        _forwarded,
        lambda request: request.headers.remove(b"x-a"),
        lambda request: request.headers.without({b"x-a"}),
        lambda request: request.headers.extend(without_key(request.headers)),
        lambda request: request.headers.extend(admissible(request.headers)),
    ],
)
def test_who_changes_some_fields_leaves_the_others_as_they_are(change: Callable[[Request], None]) -> None:
    told = [(b"x-a", b"1"), (b"x-forwarded-for", b"192.0.2.7"), (b"x-a", b"2"), (b"x-forwarded-client-cert", b"c")]
    request = Request(b"GET", b"/", headers=Headers([*told, Unindexed(b"x-api-key", b"k1")]))
    change(request)
    found = [field for field in request.headers if field[0] == b"x-api-key"]
    assert found
    assert [type(field) for field in found] == [Unindexed] * len(found)
