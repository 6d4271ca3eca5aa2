"""An upstream with room for one connection: whatever becomes of a request, the next one finds that room again."""

from __future__ import annotations

import pytest
from edge import installed
from scene import CONFIG, GET, HOST, POST, Scene, ok

UPGRADE = (
    b"GET /a HTTP/1.1\r\nHost: a.test\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
    b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n"
)
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
HALF = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhe"
UPLOAD = POST + b"Content-Length: 5\r\n\r\nhe"


class Slot(Scene):
    """
    One connection to its origin, which answers C{/a} only by hand.

    @param used: that connection has served a request before.
    """

    def __init__(self, used=False, **settings):
        gateway = {"name": "edge", **settings.pop("gateway", {})}
        upstream = {**CONFIG["upstreams"][0], "pool": {"maxPerEndpoint": 1}, **settings.pop("upstream", {})}
        super().__init__(self.answer, config=CONFIG | {"gateway": gateway, "upstreams": [upstream], **settings})
        if used:
            assert self.play(GET % b"/first").statuses == [200]
        self.used = used

    @staticmethod
    def answer(request):
        return None if request.target == b"/a" else ok(request)

    def ask(self, data=GET % b"/a"):
        seen = self.open()
        seen.client.send(data)
        self.gateway.run()
        return seen

    def free(self, seen, status=None, records=1):
        """One record was made, nothing is in use, and a request is served at once."""
        made = self.records[int(self.used) :]
        assert len(made) == records
        if status is not None:
            assert made[-1].status == status
        stats = self.gateway.service.plan.clusters["origin"].stats()[f"{HOST}:80"]
        assert (stats.waiting, stats.connecting, stats.open - stats.idle) == (0, 0, 0)
        now = self.gateway.reactor.seconds()
        assert self.play(GET % b"/b").statuses == [200]
        assert self.gateway.reactor.seconds() - now < 0.1, "at once"
        if seen is not None and seen.client.lost is None:
            seen.client.close()
            self.gateway.run()


@pytest.fixture(params=[False, True], ids=["new", "used"])
def used(request):
    """Whether the connection has served a request before."""
    return request.param


def broken(exchange):
    raise KeyError("a bug")


def coroutine(exchange):
    async def late():
        raise KeyError("a bug, later")

    return late()


@pytest.mark.parametrize("stage", ["PRE_REQUEST", "PRE_UPSTREAM", "PRE_RESPONSE", "POST_RESPONSE"])
@pytest.mark.parametrize("function", [broken, coroutine])
def test_a_module_raises(stage, function, used, flush_errors):
    """Before the upstream is asked, when its head is there, when all is over."""
    modules = [{"name": "bug", "stage": stage, "condition": 'request.path == "/a"'}]
    with installed(bug=function), Slot(used, modules=modules) as scene:
        seen = scene.ask()
        if stage in ("PRE_RESPONSE", "POST_RESPONSE"):
            scene.origin.last.send(HALF)
            scene.gateway.run()
            scene.origin.last.send(b"llo")
            scene.gateway.run()
        status = 200 if stage == "POST_RESPONSE" else 500
        assert seen.statuses == [status]
        assert flush_errors()
        scene.free(seen, status)


@pytest.mark.parametrize("body", [b"ok", b"o"])
def test_a_module_drops_the_answer_of_the_upstream(body, used):
    """An answer of its own: that of the upstream is stopped, whole or not."""
    drop = {"name": "respond", "stage": "PRE_RESPONSE", "condition": 'request.path == "/a"'}
    drop["actionParam"] = {"status": 418}
    with Slot(used, modules=[drop]) as scene:
        seen = scene.ask()
        scene.origin.last.send(OK[:-2] + body)
        scene.gateway.run()
        assert seen.statuses == [418]
        scene.free(seen, 418)


@pytest.mark.parametrize(
    ("timeouts", "status", "phase"),
    [({"responseHead": "1s"}, 504, "responseHead"), ({"total": "1s"}, 500, "total")],
)
def test_a_deadline_passes_before_the_head(timeouts, status, phase, used):
    """The connection waits for an answer that may still come: it is dropped."""
    with Slot(used, gateway={"timeouts": timeouts}) as scene:
        seen = scene.ask()
        scene.gateway.advance(2)
        assert seen.statuses == [status]
        assert scene.records[-1].phase == phase
        scene.free(seen, status)


@pytest.mark.parametrize(
    ("timeouts", "phase"), [({"responseStall": "1s"}, "responseStall"), ({"total": "1s"}, "total")]
)
def test_a_deadline_passes_within_the_body(timeouts, phase, used):
    """The client sees that it was cut off."""
    with Slot(used, gateway={"timeouts": timeouts}) as scene:
        seen = scene.ask()
        scene.origin.last.send(HALF)
        scene.gateway.advance(2)
        assert seen.reset
        assert scene.records[-1].phase == phase
        scene.free(seen, 200)


@pytest.mark.parametrize("how", ["close", "reset"])
@pytest.mark.parametrize("when", ["waiting", "uploading", "hinted", "downloading", "downloaded"])
def test_the_client_leaves(when, how, used):
    """In an upload, before the head, behind an interim answer, in a download."""
    with Slot(used) as scene:
        seen = scene.ask(UPLOAD if when == "uploading" else GET % b"/a")
        if when == "hinted":
            scene.origin.last.send(b"HTTP/1.1 103 x\r\n\r\n")
        if when in ("downloading", "downloaded"):
            scene.origin.last.send(HALF)
        scene.gateway.run()
        if when == "downloaded":
            scene.origin.last.send(b"llo")
            scene.gateway.run()
        getattr(seen.client, how)()
        scene.gateway.run()
        scene.free(seen, 200 if when.startswith("downloa") else 499)


@pytest.mark.parametrize("how", ["close", "reset"])
def test_the_client_leaves_while_it_waits_for_the_connection(how, used):
    """It leaves the queue; whoever is behind it is next."""
    with Slot(used) as scene:
        first, second, third = scene.ask(), scene.ask(GET % b"/b"), scene.ask(GET % b"/c")
        getattr(second.client, how)()
        scene.gateway.run()
        assert len(scene.origin.connections) == 1
        scene.origin.last.send(OK)
        scene.gateway.run()
        assert (first.statuses, second.received, third.statuses) == ([200], b"", [200])
        assert [request.target for request in scene.origin.requests][-2:] == [b"/a", b"/c"]
        first.client.close()
        scene.gateway.run()
        scene.free(third, records=3)


@pytest.mark.parametrize("how", ["close", "reset"])
def test_the_client_leaves_while_its_connection_is_being_made(how):
    """The connection serves the next one."""
    with Slot() as scene:
        scene.gateway.reactor.silent.add((HOST, 80))
        seen = scene.ask()
        getattr(seen.client, how)()
        scene.gateway.run()
        scene.gateway.reactor.silent.clear()
        scene.gateway.advance(4)
        scene.free(seen, 499)


def test_the_queue_clock_runs_out(used):
    """503; the one that is served is not disturbed."""
    with Slot(used, gateway={"timeouts": {"queue": "1s"}}) as scene:
        first, second = scene.ask(), scene.ask(GET % b"/b")
        scene.gateway.advance(2)
        assert (first.received, second.statuses) == (b"", [503])
        assert second.answers[0].get(b"retry-after")
        scene.origin.last.send(OK)
        scene.gateway.run()
        assert first.statuses == [200]
        second.client.close()
        scene.gateway.run()
        scene.free(first, records=2)


def test_the_queue_is_full(used):
    """One waits, the next is refused at once."""
    with Slot(used, upstream={"pool": {"maxPerEndpoint": 1, "queue": 1}}) as scene:
        first, second, third = scene.ask(), scene.ask(GET % b"/b"), scene.ask(GET % b"/c")
        assert third.statuses == [503]
        scene.origin.last.send(OK)
        scene.gateway.run()
        assert (first.statuses, second.statuses) == ([200], [200])
        for seen in (first, second):
            seen.client.close()
        scene.gateway.run()
        scene.free(third, records=3)


def test_a_request_is_sent_again():
    """The reused connection dies, the fresh one serves; and the same when that dies as well."""
    for dies in (False, True):
        with Slot(True) as scene:
            seen = scene.ask()
            scene.origin.last.close()
            scene.gateway.run()
            assert len(scene.origin.connections) == 2
            if dies:
                scene.origin.last.reset()
            else:
                scene.origin.last.send(OK)
            scene.gateway.run()
            assert seen.statuses == [502 if dies else 200]
            assert scene.records[-1].attempts == 2
            scene.free(seen, 502 if dies else 200)


ENDS = {
    "before the answer": b"",
    "within the head": b"HTTP/1.1 200 OK\r\nX: y\r\n",
    "behind an interim answer": b"HTTP/1.1 103 x\r\n\r\n",
    "behind 100": b"HTTP/1.1 100 Continue\r\n\r\n",
    "within the body": HALF,
    "within a chunk": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhe",
    "behind the answer": OK,
    "at the end that it is": b"HTTP/1.1 200 OK\r\n\r\nhello",
}


@pytest.mark.parametrize("how", ["close", "reset"])
@pytest.mark.parametrize("data", ENDS.values(), ids=ENDS)
@pytest.mark.parametrize("request_", [GET % b"/a", UPLOAD, UPGRADE])
def test_the_upstream_goes(request_, data, how):
    """Wherever it is."""
    with Slot() as scene:
        seen = scene.ask(request_)
        if data:
            scene.origin.last.send(data)
            scene.gateway.run()
        getattr(scene.origin.last, how)()
        scene.gateway.run()
        assert len(scene.records) == 1
        if not seen.client.lost:
            seen.client.close()
            scene.gateway.run()
        scene.free(seen)


BAD = [
    b"nonsense\r\n\r\n",
    b"HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n",
    b"HTTP/1.1 103 x\r\n\r\n" * 20,
    OK + b"more",
    UPGRADE,
]
BAD += [
    b"HTTP/1.1 101 x\r\nConnection: upgrade\r\nUpgrade: h2c\r\n\r\n",
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nx\r\n",
]


@pytest.mark.parametrize("data", BAD)
@pytest.mark.parametrize("request_", [GET % b"/a", UPLOAD, UPGRADE])
def test_the_upstream_talks_nonsense(request_, data, used):
    """Or too much."""
    with Slot(used) as scene:
        seen = scene.ask(request_)
        scene.origin.last.send(data)
        scene.gateway.run()
        if not seen.client.lost:
            seen.client.close()
            scene.gateway.run()
        scene.free(seen)


@pytest.mark.parametrize("who", ["client", "upstream"])
@pytest.mark.parametrize("how", ["close", "reset"])
def test_a_tunnel_ends(who, how, used):
    """It had the connection for itself, for good."""
    with Slot(used) as scene:
        seen = scene.ask(UPGRADE)
        scene.origin.last.send(
            b"HTTP/1.1 101 x\r\nConnection: upgrade\r\nUpgrade: websocket\r\n"
            b"Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\nhello"
        )
        scene.gateway.run()
        assert seen.statuses == [101]
        getattr(seen.client if who == "client" else scene.origin.last, how)()
        scene.gateway.run()
        if who == "upstream":
            assert seen.eof
            seen.client.close()  # FIN is only half of the end
            scene.gateway.run()
        scene.free(seen, 101)


def test_an_answer_comes_before_the_end_of_the_upload(used):
    """The rest of that request cannot be sent any more, and the connection not used again."""
    with Slot(used) as scene:
        seen = scene.ask(UPLOAD)
        served = scene.origin.last
        served.send(OK)
        scene.gateway.run()
        assert seen.statuses == [200]
        assert served.lost is not None
        seen.client.send(b"llo")
        scene.gateway.run()
        scene.free(seen, 200)


def test_the_endpoint_refuses():
    """Nobody listens: 502 at once, and again when it is back."""
    with Slot() as scene:
        port = scene.gateway.reactor.ports.pop((HOST, 80))
        seen = scene.ask()
        assert seen.statuses == [502]
        scene.gateway.reactor.ports[HOST, 80] = port
        scene.free(seen, 502)


def test_a_bad_body_breaks_off_a_request_under_way(used):
    """The fault is the client's: 400, and a connection that is gone."""
    with Slot(used) as scene:
        seen = scene.ask(POST + b"Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n")
        served = scene.origin.last
        seen.client.send(b"nonsense\r\n")
        scene.gateway.run()
        assert seen.statuses == [400]
        assert served.lost is not None
        assert not served.clean
        scene.free(seen, 400)
