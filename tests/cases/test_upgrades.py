"""Protocols that are switched to: only those that were asked for and are known, and their bytes from the first on."""

from __future__ import annotations

import pytest
from scene import CONFIG, NEXT, Scene, passed, refused, splits

KEY = b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n"
ASK = b"GET /ws HTTP/1.1\r\nHost: a.test\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n" + KEY + b"\r\n"
YES = (
    b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n"
)


def beyond(data: bytes) -> bytes:
    """What follows the head."""
    return data.partition(b"\r\n\r\n")[2]


def tunnel(scene, asked=ASK, early=b"", answer=YES, first=b""):
    """A tunnel, with bytes that come along with the request and with the 101."""
    seen = scene.open()
    seen.client.send(asked + early)
    scene.gateway.run()
    scene.origin.last.send(answer + first)
    scene.gateway.run()
    return seen, scene.origin.last


def talk(scene, seen, served, early=b"", first=b""):
    """Both ends say something, and hear it; then both half-close."""
    assert seen.statuses == [101]
    assert seen.answers[0].get(b"upgrade") == b"websocket"
    assert seen.answers[0].get(b"sec-websocket-accept") == b"s3pPLMBiTxaQ9kYGzzhZRbK+xOo="
    seen.client.send(b"\x00ping\r\n\r\n")
    scene.gateway.run()
    served.send(b"\xffpong" + NEXT)
    scene.gateway.run()
    assert beyond(served.received) == early + b"\x00ping\r\n\r\n"
    assert beyond(seen.received) == first + b"\xffpong" + NEXT


@pytest.mark.parametrize("early", [b"", b"\x81\x00", b"0\r\n\r\n", NEXT, b"GET"])
@pytest.mark.parametrize("first", [b"", b"\x82\x00", b"HTTP/1.1 200 OK\r\n\r\n", b"\r\n"])
def test_bytes_that_come_along_belong_to_the_tunnel(early, first):
    """Whether they come with the request, with the 101, or behind them: nothing is lost, nothing is taken for HTTP."""
    with Scene(None) as scene:
        seen, served = tunnel(scene, early=early, first=first)
        talk(scene, seen, served, early, first)
        served.close()
        scene.gateway.run()
        assert seen.eof
        seen.client.close()
        scene.gateway.run()
        assert [(record.status, record.error) for record in scene.records] == [(101, "")]
        assert len(scene.origin.requests) == 1


def test_the_kernel_is_asked_who_vanished_from_a_tunnel():
    """Silence ends no tunnel, so nobody else would ever find out."""
    with Scene(None) as scene:
        seen = scene.open()
        seen.client.send(ASK)
        scene.gateway.run()
        (_, wire), served = scene.gateway.reactor.links[0].ends[1], scene.origin.last
        assert not wire.getTcpKeepAlive(), "a request has clocks"
        served.send(YES)
        scene.gateway.run()
        assert wire.getTcpKeepAlive()
        talk(scene, seen, served)
        served.close()
        seen.client.close()
        scene.gateway.run()


@pytest.mark.parametrize("length", [b"", b"Content-Length: 0\r\n"])
def test_the_end_of_an_empty_request_body_is_no_end_of_the_tunnel(length):
    """The 101 may come before or after the end of a request without content was seen: at every cut of both."""
    asked = ASK[:-2] + length + b"\r\n"
    for pieces in splits(asked):
        with Scene(None) as scene:
            seen = scene.open()
            for piece in pieces:
                seen.client.send(piece)
                scene.gateway.run()
            scene.origin.last.send(YES)
            scene.gateway.run()
            talk(scene, seen, scene.origin.last)
            seen.client.close()
            scene.gateway.run()
    for pieces in splits(YES + b"hello", 3):
        with Scene(None) as scene:
            seen = scene.open()
            seen.client.send(asked)
            # The fast answer: it is on its way before the gateway has had a turn since it asked.
            scene.gateway.reactor.run(until=lambda scene=scene: bool(scene.origin.requests))
            for piece in pieces:
                scene.origin.last.send(piece)
                scene.gateway.run()
            talk(scene, seen, scene.origin.last, first=b"hello")
            seen.client.close()
            scene.gateway.run()


@pytest.mark.parametrize("who", ["client", "upstream"])
def test_one_half_of_a_tunnel_may_close_before_the_other(who):
    """FIN is passed on, and the other direction goes on."""
    with Scene(None) as scene:
        seen, served = tunnel(scene)
        served.readConnectionLost = lambda: setattr(served, "eof", True)
        if who == "client":
            seen.client.finish()
            scene.gateway.run()
            assert served.eof
            assert not seen.eof
            served.send(b"the rest")
            scene.gateway.run()
            assert beyond(seen.received) == b"the rest"
            served.close()
        else:
            served.transport.loseWriteConnection()
            scene.gateway.run()
            assert seen.eof
            assert not served.eof
            seen.client.send(b"the rest")
            scene.gateway.run()
            assert beyond(served.received) == b"the rest"
            seen.client.close()
        scene.gateway.run()
        assert [(record.status, record.error) for record in scene.records] == [(101, "")]
        seen.client.close()
        served.close()
        scene.gateway.run()


@pytest.mark.parametrize("who", ["client", "upstream"])
def test_a_reset_of_one_side_of_a_tunnel_resets_the_other(who):
    """Nobody may take what is broken for complete."""
    with Scene(None) as scene:
        seen, served = tunnel(scene)
        if who == "client":
            seen.client.reset()
        else:
            served.reset()
        scene.gateway.run()
        assert served.lost is not None
        assert not served.clean or who == "client"
        assert seen.client.lost is not None
        assert [(record.status, record.who) for record in scene.records] == [(101, who)]


REFUSALS = [b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nno", b"HTTP/1.1 403 x\r\nContent-Length: 2\r\n\r\nno"]
REFUSALS += [b"HTTP/1.1 426 x\r\nUpgrade: websocket\r\nConnection: upgrade\r\nContent-Length: 2\r\n\r\nno"]


@pytest.mark.parametrize("answer", REFUSALS)
@pytest.mark.parametrize("early", [b"", b"\x81\x00", NEXT])
def test_bytes_for_a_tunnel_that_was_refused_are_not_a_request(answer, early):
    """The upgrade did not happen: what was sent for it goes nowhere."""
    with Scene(None) as scene:
        seen, served = tunnel(scene, early=early, answer=answer)
        assert [each.body for each in seen.answers] == [b"no"]
        assert beyond(served.received) == b""
        assert len(scene.origin.requests) == 1
        assert seen.eof is bool(early)
        if not early:
            seen.client.send(NEXT)
            scene.gateway.run()
            assert len(scene.origin.requests) == 2
        seen.client.close()
        scene.gateway.run()


FALSE = {
    "another protocol": YES.replace(b"Upgrade: websocket", b"Upgrade: h2c"),
    "no protocol": YES.replace(b"Upgrade: websocket\r\n", b""),
    "no Connection": YES.replace(b"Connection: Upgrade\r\n", b""),
    "with a length": YES.replace(b"\r\n\r\n", b"\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n"),
}


@pytest.mark.parametrize("answer", FALSE.values(), ids=FALSE)
def test_a_101_for_something_else_is_a_bad_answer(answer):
    """What was not asked for is not switched to."""
    with Scene(None) as scene:
        for pieces in splits(answer, 7):
            seen = scene.open()
            seen.client.send(ASK)
            scene.gateway.run()
            for piece in pieces:
                scene.origin.last.send(piece)
                scene.gateway.run()
            assert seen.statuses == [502]
            assert scene.origin.last.lost is not None
            assert scene.records[-1].who == "upstream"
            seen.client.close()
            scene.gateway.run()


IGNORED = {
    "h2c": b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQCAAAAAAIAAAAA\r\n",
    "h2c alone": b"Connection: Upgrade\r\nUpgrade: h2c\r\n",
    "h2c, twice": b"Connection: Upgrade\r\nUpgrade: h2c\r\nUpgrade: h2c\r\n",
    "h2": b"Connection: Upgrade\r\nUpgrade: h2\r\n",
    "TLS": b"Connection: Upgrade\r\nUpgrade: TLS/1.0\r\n",
    "unknown": b"Connection: upgrade\r\nUpgrade: foo/2\r\n",
    "not named in Connection": b"Upgrade: websocket\r\n" + KEY,
    "settings without upgrade": b"HTTP2-Settings: AAMAAABkAAQCAAAAAAIAAAAA\r\n",
    "settings hidden": b"Connection: close-not, HTTP2-Settings\r\nHTTP2-Settings: AAMA\r\n",
    "longer": b"Connection: Upgrade\r\nUpgrade: websockets\r\n" + KEY,
}


@pytest.mark.parametrize("lines", IGNORED.values(), ids=IGNORED)
def test_upgrades_that_nobody_polices_are_not_passed_on(lines):
    """An upstream that switches to HTTP/2 behind our back would take what follows without asking any rule."""

    def check(request):
        names = {name for name, _ in request.fields}
        assert not names & {b"upgrade", b"http2-settings", b"connection"}

    head = b"GET /a HTTP/1.1\r\nHost: a.test\r\n"
    with Scene() as scene:
        passed(scene, head + lines + b"\r\n", check)
    with Scene(None) as scene:
        seen = scene.reply(YES.replace(b"websocket", b"h2c"), request=head + lines + b"\r\n")
        assert (seen.statuses, seen.served.lost is not None) == ([502], True)


@pytest.mark.parametrize("method", [b"POST", b"PUT", b"OPTIONS", b"HEAD"])
def test_only_a_get_without_content_may_ask_for_an_upgrade(method):
    """With content, nobody could tell where it ends and the tunnel begins."""

    def check(request):
        assert not request.all(b"upgrade")

    with Scene() as scene:
        passed(scene, ASK.replace(b"GET", method), check, methods=[method], step=9)
        data = ASK[:-2].replace(b"GET", method) + b"Content-Length: 5\r\n\r\nhello"
        passed(scene, data, check, methods=[method], step=9)
    with Scene() as scene:
        passed(scene, ASK[:-2] + b"Content-Length: 5\r\n\r\nhello", check, step=9)


def test_of_several_protocols_the_known_one_is_asked_for():
    """h2c beside websocket is left out."""
    with Scene(None) as scene:
        seen, served = tunnel(scene, ASK.replace(b"Upgrade: websocket", b"Upgrade: h2c, WebSocket"))
        assert scene.origin.requests[0].get(b"upgrade") == b"websocket"
        talk(scene, seen, served)
        seen.client.close()
        scene.gateway.run()


def test_http_1_0_cannot_upgrade():
    """It knows no Upgrade (RFC 9110, 7.8)."""
    with Scene() as scene:
        seen = scene.play(ASK.replace(b"HTTP/1.1", b"HTTP/1.0"))
        assert (seen.statuses, seen.eof_before) == ([200], True)
        assert not seen.requests[0].all(b"upgrade")


def test_the_preface_of_http_2_is_no_request():
    """Prior knowledge, on a listener that speaks HTTP/1."""
    with Scene() as scene:
        refused(scene, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", (400, 505))


CONNECTING = CONFIG | {
    "routes": [{"type": "method", "value": "CONNECT", "name": "connect", "routes": CONFIG["routes"][0]["routes"]}]
    + CONFIG["routes"]
}
CONNECT = b"CONNECT b.test:443 HTTP/1.1\r\nHost: b.test:443\r\n\r\n"


@pytest.mark.parametrize("early", [b"", b"\x16\x03\x01", NEXT])
def test_connect_makes_a_tunnel_where_a_rule_says_so(early):
    """To the upstream of the rule, never to where the client would like."""
    with Scene(None, config=CONNECTING) as scene:
        seen = scene.open(b"CONNECT")
        seen.client.send(CONNECT + early)
        scene.gateway.run()
        (request,) = scene.origin.requests
        assert (request.target, request.get(b"host")) == (b"b.test:443", b"b.test:443")
        scene.origin.last.send(b"HTTP/1.1 200 OK\r\n\r\nfirst")
        scene.gateway.run()
        seen.client.send(b"more")
        scene.gateway.run()
        assert seen.received.partition(b"\r\n\r\n")[2] == b"first"
        assert b"content-length" not in seen.received
        assert b"transfer-encoding" not in seen.received
        assert beyond(scene.origin.last.received) == early + b"more"
        seen.client.close()
        scene.gateway.run()
        assert [record.status for record in scene.records] == [200]


BAD_CONNECTS = [
    b"b.test",
    b"/",
    b"*",
    b"http://b.test:443",
    b"b.test:443/x",
    b"b.test:x",
    b"[::1:443",
    b"u@b.test:443",
    b":443",
    b"b.test:",
]


@pytest.mark.parametrize("target", BAD_CONNECTS)
def test_connect_wants_host_and_port(target):
    """Nothing else is a target of it."""
    with Scene(config=CONNECTING) as scene:
        refused(scene, b"CONNECT " + target + b" HTTP/1.1\r\nHost: b.test:443\r\n\r\n", methods=[b"CONNECT"], step=5)


@pytest.mark.parametrize("lines", [b"Content-Length: 5\r\n", b"Transfer-Encoding: chunked\r\n"])
def test_connect_has_no_content(lines):
    """There is no meaning to it, and two readings of what follows."""
    with Scene(config=CONNECTING) as scene:
        refused(scene, CONNECT[:-2] + lines + b"\r\nhello", methods=[b"CONNECT"], step=5)


def test_connect_without_a_rule_leads_nowhere():
    """A gateway is no open proxy."""
    with Scene() as scene:
        seen = scene.play(CONNECT + NEXT, methods=[b"CONNECT"])
        assert (seen.statuses, seen.requests, seen.eof_before) == ([404], [], True)
