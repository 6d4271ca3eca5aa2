"""The examples of RFC 7541, appendix C, through a server and a client, on both engines."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from h2ends import Wired, client_of, server_of

from h2frames import PREFACE, Field, headers, settings
from h2peer import Peer
from protogate.message import Request, Response
from protogate_http.engine2 import ENGINES

CUSTOM = (b"custom-key", b"custom-value")
REQUESTS = {
    "C.3 without Huffman's code": [
        "828684410f7777772e6578616d706c652e636f6d",
        "828684be58086e6f2d6361636865",
        "828785bf400a637573746f6d2d6b65790c637573746f6d2d76616c7565",
    ],
    "C.4 with it": [
        "828684418cf1e3c2e5f23a6ba0ab90f4ff",
        "828684be5886a8eb10649cbf",
        "828785bf408825a849e95ba97d7f8925a849e95bb8e8b4bf",
    ],
}
ASKED = [(b"/", []), (b"/", [(b"cache-control", b"no-cache")]), (b"/index.html", [CUSTOM])]

SMALL = "3fe101"
"""The table of these examples has 256 bytes, so that entries are pushed out."""
RESPONSES = {
    "C.5 without Huffman's code": [
        SMALL + "4803333032580770726976617465611d4d6f6e2c203231204f637420323031332032303a31333a323120474d54"
        "6e1768747470733a2f2f7777772e6578616d706c652e636f6d",
        "4803333037c1c0bf",
        (
            "88c1611d4d6f6e2c203231204f637420323031332032303a31333a323220474d54c05a04677a69707738666f6f3d"
            "4153444a4b48514b425a584f5157454f50495541585157454f49553b206d61782d6167653d333630303b2076657273696f6e3d31"
        ),
    ],
    "C.6 with it": [
        SMALL + "488264025885aec3771a4b6196d07abe941054d444a8200595040b8166e082a62d1bff6e919d29ad171863c78f0b97c8"
        "e9ae82ae43d3",
        "4883640effc1c0bf",
        (
            "88c16196d07abe941054d444a8200595040b8166e084a62d1bffc05a839bd9ab77ad94e7821dd7f2e6c7b335dfdfcd5b3960"
            "d5af27087f3672c1ab270fb5291f9587316065c003ed4ee5b1063d5007"
        ),
    ],
}
CACHED = (b"cache-control", b"private")
PLACE = (b"location", b"https://www.example.com")
DATE = b"Mon, 21 Oct 2013 20:13:%d GMT"
TOLD = [
    (302, [CACHED, (b"date", DATE % 21), PLACE]),
    (307, [CACHED, (b"date", DATE % 21), PLACE]),
    (
        200,
        [
            CACHED,
            (b"date", DATE % 22),
            PLACE,
            (b"content-encoding", b"gzip"),
            (b"set-cookie", b"foo=ASDJKHQKBZXOQWEOPIUAXQWEOIU; max-age=3600; version=1"),
        ],
    ),
]


@pytest.fixture(params=["ngh2", "h2"])
def engine(request: pytest.FixtureRequest) -> str:
    if request.param not in ENGINES:
        pytest.skip("not installed")
    return str(request.param)


@pytest.mark.parametrize("blocks", REQUESTS.values(), ids=REQUESTS)
def test_requests(blocks: Sequence[str], engine: str) -> None:
    got: list[Request] = []

    class Service:
        def handle(self, request: Request) -> Response:
            got.append(request)
            return Response(204)

    peer = Peer(True)
    end, net = server_of(engine, Service(), Wired(peer, PREFACE + settings()))
    for n, block in enumerate(blocks):
        peer.send(headers(2 * n + 1, bytes.fromhex(block)))
        net()
    assert [request.malformed for request in got] == [None] * 3
    assert [(request.target, list(request.headers)) for request in got] == ASKED
    assert {request.authority for request in got} == {b"www.example.com"}
    assert peer.faults == []
    end.abort()
    net()


@pytest.mark.parametrize("blocks", RESPONSES.values(), ids=RESPONSES)
def test_responses(blocks: Sequence[str], engine: str) -> None:
    got: list[Response] = []
    peer = Peer(False)
    end, net = client_of(engine, Wired(peer, settings()))
    for n, block in enumerate(blocks):
        end.handle(Request(b"GET", b"/", [], None, b"a.test")).addBoth(got.append)
        net()
        peer.send(headers(2 * n + 1, bytes.fromhex(block)))
        net()
    assert [(response.status, list(response.headers)) for response in got] == TOLD
    assert peer.faults == []
    end.abort()
    net()


@pytest.mark.parametrize(
    ("block", "field"),
    [
        ("400a637573746f6d2d6b65790d637573746f6d2d686561646572", (b"custom-key", b"custom-header")),
        ("100870617373776f726406736563726574", (b"password", b"secret")),
    ],
    ids=["C.2.1", "C.2.3"],
)
def test_literals(block: str, field: Field, engine: str) -> None:
    got: list[Request] = []

    class Service:
        def handle(self, request: Request) -> Response:
            got.append(request)
            return Response(204)

    peer = Peer(True)
    end, net = server_of(engine, Service(), Wired(peer, PREFACE + settings()))
    peer.send(headers(1, bytes.fromhex("828684418cf1e3c2e5f23a6ba0ab90f4ff" + block)))
    net()
    assert [list(request.headers) for request in got] == [[field]]
    end.abort()
    net()


def test_path_and_index(engine: str) -> None:
    """C.2.2 and C.2.4: a literal of a known name that is not put into the table, and an entry of the static one."""
    got: list[bytes] = []

    class Service:
        def handle(self, request: Request) -> Response:
            got.append(request.target)
            return Response(204)

    peer = Peer(True)
    end, net = server_of(engine, Service(), Wired(peer, PREFACE + settings()))
    peer.send(headers(1, bytes.fromhex("8286040c2f73616d706c652f70617468418cf1e3c2e5f23a6ba0ab90f4ff")))
    net()
    assert got == [b"/sample/path"]
    end.abort()
    net()
