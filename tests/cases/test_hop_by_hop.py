"""Fields of one connection stay on it, nobody can name away what a module adds, credentials are seen line by line."""

from __future__ import annotations

import pytest
from edge import GET, HOST, PORT, SCRIPT, answer, config, fetch, fields, heads, installed, module

from protogate.testing.gateway import MemoryGateway
from protogate.testing.upstream import Expect

HOP = [
    b"Keep-Alive: timeout=5",
    b"Proxy-Connection: keep-alive",
    b"Proxy-Authorization: Basic dG9rOg==",
    b"TE: trailers, deflate",
    b"Trailer: X-Sum",
    b"Upgrade: foo/2",
    b"HTTP2-Settings: AAMAAABkAAQAAP__",
    b"Connection: x-mine, keep-alive, X-Theirs",
    b"X-Mine: secret",
    b"x-theirs: secret",
]
BACK = [
    b"Keep-Alive: timeout=5",
    b"Proxy-Connection: keep-alive",
    b"Proxy-Authenticate: Basic realm=inside",
    b"TE: trailers",
    b"Trailer: X-Sum",
    b"Upgrade: h2c",
    b"Connection: x-mine",
    b"X-Mine: secret",
]
GONE = (
    *("keep-alive", "proxy-connection", "proxy-authorization", "proxy-authenticate", "trailer", "upgrade"),
    *("http2-settings", "x-mine", "x-theirs", "transfer-encoding"),
)


def reply(lines, body=b"ok"):
    return b"\r\n".join([b"HTTP/1.1 200 OK", *lines, b"Content-Length: %d" % len(body), b"", body])


def test_requests_lose_what_was_for_the_gateway():
    with MemoryGateway(config()) as gateway:
        origin = gateway.upstream(HOST, PORT, SCRIPT)
        assert fetch(gateway, "/", *HOP, b"X-Other: stays").status == 200
        got = fields(heads(origin.connections[0])[0])
        assert not set(got) & set(GONE)
        assert got["te"] == ["trailers"], "the one thing that is passed on, and said to be of this hop"
        assert got["connection"] == ["te"]
        assert got["x-other"] == ["stays"]


def test_responses_lose_it_as_well():
    with MemoryGateway(config()) as gateway:
        gateway.upstream(HOST, PORT, [Expect(b"\r\n\r\n"), reply([*BACK, b"X-Other: stays"])])
        client = gateway.client()
        client.send(GET % b"/")
        gateway.run()
        got = answer(client.received)
        names = {name for name, _ in got.headers}
        assert not names & set(GONE)
        assert "connection" not in names
        assert "te" not in names
        assert got["x-other"] == "stays"
        client.close()
        gateway.run()


def test_error_answers_and_interim_responses_carry_none_either():
    early = b"HTTP/1.1 103 Early Hints\r\nConnection: link2\r\nLink: </a>\r\nLink2: x\r\nKeep-Alive: 5\r\n\r\n"
    with MemoryGateway(config()) as gateway:
        gateway.upstream(HOST, PORT, [Expect(b"\r\n\r\n"), early + reply([])])
        client = gateway.client()
        client.send(GET % b"/")
        gateway.run()
        first, _, rest = client.received.partition(b"\r\n\r\n")
        assert first == b"HTTP/1.1 103 Early Hints\r\nlink: </a>"
        assert answer(rest).body == b"ok"
        client.close()
        gateway.run()


@pytest.mark.parametrize("nominated", [b"x-added", b"X-ADDED, close", b"close, x-added, x-forwarded-for, via, host"])
def test_nobody_can_take_away_what_a_module_or_the_gateway_adds(nominated):
    modules = [
        module("setRequestHeader", **{"x-added": "by us", "authorization": "Bearer ours"}),
        module("addResponseHeader", **{"x-added": "by us", "x-frame-options": "DENY"}),
    ]
    hostile = [b"Connection: " + nominated + b", x-frame-options", b"X-Added: theirs"]
    with MemoryGateway(config(modules=modules)) as gateway:
        origin = gateway.upstream(HOST, PORT, [Expect(b"\r\n\r\n"), reply(hostile)])
        found = fetch(
            gateway,
            "/",
            b"Connection: " + nominated + b", authorization",
            b"X-Added: theirs",
            b"Authorization: Bearer x",
        )
        got = fields(heads(origin.connections[0])[0])
        assert got["x-added"] == ["by us"]
        assert got["authorization"] == ["Bearer ours"]
        assert got["x-forwarded-for"] == ["127.0.0.1"]
        assert got["host"] == ["a.test"]
        assert len(got["via"]) == 1
        assert (found["x-added"], found["x-frame-options"]) == ("by us", "DENY")


def test_a_module_may_name_credentials_for_the_next_hop():
    with MemoryGateway(
        config(modules=[module("setRequestHeader", **{"proxy-authorization": "Basic b3Vycw=="})])
    ) as gateway:
        origin = gateway.upstream(HOST, PORT, SCRIPT)
        assert fetch(gateway, "/", b"Proxy-Authorization: Basic dGhlaXJz").status == 200
        assert fields(heads(origin.connections[0])[0])["proxy-authorization"] == ["Basic b3Vycw=="]


def test_close_of_either_side_is_its_own():
    """An upstream that closes each time leaves the client's connection alone, and the other way round."""
    with MemoryGateway(config()) as gateway:
        origin = gateway.upstream(HOST, PORT, [Expect(b"\r\n\r\n"), reply([b"Connection: close"])])
        client = gateway.client()
        for _ in range(3):
            client.send(GET % b"/")
            gateway.run()
            got = answer(client.take())
            assert (got.status, got["connection"]) == (200, "")
        assert len(origin.connections) == 3
        origin.scripts = (SCRIPT,)
        for _ in range(3):
            assert fetch(gateway, "/", b"Connection: close")["connection"] == "close"
        assert len(origin.connections) == 4
        assert not any("connection" in fields(head) for each in origin.connections for head in heads(each))
        client.close()
        gateway.run()


# -- more than one line


@pytest.mark.parametrize("name", [b"Authorization", b"X-Api-Key"])
@pytest.mark.parametrize("order", [(b"good", b"bad"), (b"bad", b"good"), (b"good", b"other", b"bad")])
def test_modules_get_every_line_and_so_does_the_upstream(name, order):
    key = name.decode().lower()
    seen = []

    def spy(exchange):
        seen.append(exchange.request.headers.all(name.lower()))

    with installed(spy=spy), MemoryGateway(config(modules=[module("spy", "PRE_REQUEST")])) as gateway:
        origin = gateway.upstream(HOST, PORT, SCRIPT)
        assert fetch(gateway, "/", *(name + b": " + value for value in order)).status == 200
        assert seen == [list(order)]
        got = fields(heads(origin.connections[0])[0])
        assert got[key] == [value.decode() for value in order]


@pytest.mark.parametrize("order", [(b"good", b"bad"), (b"bad", b"good"), (b"good", b"bad", b"good")])
def test_conditions_see_every_line(order):
    """A rule that denies one value cannot be got round by a line before or behind it."""
    deny = module("respond", "PRE_REQUEST", status=403, condition_="request.headers['x-api-key'].contains('bad')")
    need = module(
        "respond", "PRE_REQUEST", status=401, condition_="request.headers['x-api-key'] != 'good'", ruleOrder_=1
    )
    with MemoryGateway(config(modules=[deny, need])) as gateway:
        origin = gateway.upstream(HOST, PORT, SCRIPT)
        assert fetch(gateway, "/", *(b"X-Api-Key: " + value for value in order)).status == 403
        assert fetch(gateway, "/", b"X-Api-Key: good", b"X-Api-Key: good").status == 401
        assert not origin.connections
        assert fetch(gateway, "/", b"X-Api-Key: good").status == 200


@pytest.mark.parametrize(
    "lines",
    [
        [b"Host: a.test", b"Host: a.test"],
        [b"Host: a.test", b"Host: b.test"],
        [b"Host: a.test", b"Content-Length: 0", b"Content-Length: 0"],
        [b"Host: a.test", b"Content-Length: 0, 0"],
        [b"Host: a.test", b"Transfer-Encoding: chunked", b"Transfer-Encoding: chunked"],
    ],
)
def test_what_there_can_be_only_one_of_is_refused_twice(lines):
    with MemoryGateway(config()) as gateway:
        origin = gateway.upstream(HOST, PORT, SCRIPT)
        client = gateway.client()
        client.send(b"\r\n".join([b"POST / HTTP/1.1", *lines, b"", b""]))
        gateway.run()
        assert answer(client.received).status == 400
        assert not origin.connections
        client.close()
        gateway.run()
