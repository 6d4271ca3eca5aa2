"""Modules in the shadow: asked like any other, counted and noted, and nothing of it happens."""

from __future__ import annotations

from collections import Counter

import pytest
from twisted.internet.defer import Deferred

from protogate.body import Limit, Whole
from protogate.errors import CLIENT, GATEWAY, Abort
from protogate.governance.shadow import Shadow
from protogate.identity.identity import Identity
from protogate.message import Response
from protogate.testing.bodies import Taker
from protogate.testing.exchange import exchange
from protogate.testing.gateway import MemoryGateway
from protogate.testing.upstream import Expect


class Shadowed:
    """A module that does what a function says, in the shadow, on an exchange."""

    def __init__(self, process, stage="PRE_UPSTREAM", **made):
        self.counted = Counter()
        self.exchange = exchange(stage, **made)
        self.shadow = Shadow("mine", process, self._count)

    def _count(self, event):
        self.counted[event] += 1

    def run(self):
        self.result = self.shadow.process(self.exchange)
        return self.exchange.noted


def test_what_it_would_let_pass_is_counted():
    shadowed = Shadowed(lambda exchange: None)
    assert shadowed.run() is None
    assert shadowed.result is None
    assert shadowed.counted == {"shadow_passed": 1}


def test_what_it_refuses_comes_in():
    def process(exchange):
        raise Abort("not on the list", CLIENT, 403)

    shadowed = Shadowed(process)
    assert shadowed.run() == {"shadow": ["mine: refuse with 403: not on the list"]}
    assert shadowed.result is None
    assert shadowed.counted == {"shadow_refused": 1}


@pytest.mark.parametrize("error", [RuntimeError("oh"), Abort("oh", GATEWAY, 500)])
def test_what_breaks_it_breaks_nothing(error):
    def process(exchange):
        raise error

    shadowed = Shadowed(process)
    assert shadowed.run() == {"shadow": [f"mine: fail: {type(error).__name__}: oh"]}
    assert shadowed.counted == {"shadow_failed": 1}


def test_its_answer_is_dropped_with_its_body():
    body = Whole(b"no")
    shadowed = Shadowed(lambda exchange: Response(403, body=body))
    assert shadowed.run() == {"shadow": ["mine: answer 403"]}
    assert shadowed.result is None
    assert body.attached, "nobody will read it"
    assert shadowed.counted == {"shadow_answered": 1}


def test_what_it_changes_of_the_request_is_put_back():
    def process(exchange):
        request = exchange.request
        request.headers.set(b"x-a", b"2")
        request.method, request.target, request.authority = b"PUT", b"/other?q=2", b"b.test"
        request.path = "/other"
        request.forget()
        request.body = Limit(request.body, 10, Abort("", CLIENT, 413))
        assert (request.host, request.query) == ("b.test", {"q": "2"})

    shadowed = Shadowed(process, method=b"POST", headers=[(b"x-a", b"1")], body=b"content")
    request = shadowed.exchange.request
    before, headers = request.body, request.headers
    (note,) = shadowed.run()["shadow"]
    assert note.startswith("mine: change the request's method, ")
    assert (request.method, request.target, request.authority) == (b"POST", b"/path?q=1", b"a.test")
    assert (request.path, request.host, request.query) == ("/path", "a.test", {"q": "1"})
    assert request.headers is headers
    assert headers == [(b"x-a", b"1")]
    assert request.body is before
    assert Taker(before).data == b"content"
    assert shadowed.counted == {"shadow_changed": 1}


def test_what_it_changes_of_the_answer_is_put_back():
    def process(exchange):
        response = exchange.response
        response.status = 500
        response.headers.append((b"x-b", b"3"))
        response.body = Limit(response.body, 1, Abort("", GATEWAY, 502))

    shadowed = Shadowed(process, "PRE_RESPONSE", response_headers=[(b"x-b", b"2")], response_body=b"content")
    response = shadowed.exchange.response
    (note,) = shadowed.run()["shadow"]
    assert note == "mine: change the response's status, the response's body, the response's headers"
    assert (response.status, response.headers) == (200, [(b"x-b", b"2")])
    assert Taker(response.body).data == b"content"


def test_whom_it_knows_nobody_else_knows():
    def process(exchange):
        exchange.identity = Identity("me", "basic")

    shadowed = Shadowed(process)
    assert shadowed.run() == {"shadow": ["mine: change the identity"]}
    assert shadowed.exchange.identity is None


def test_what_it_promises_of_the_answer_is_not_kept():
    def process(exchange):
        exchange.fields.append((b"x-a", b"1"))
        exchange.upon(lambda exchange: Response(500))

    shadowed = Shadowed(process)
    before = shadowed.exchange.promised()
    assert shadowed.run() == {"shadow": ["mine: change the answer's headers"]}
    assert shadowed.exchange.promised() == before == ((), (), ())


def test_what_it_would_decide_later_is_not_known():
    for process in (lambda exchange: exchange.upon(print), lambda exchange: exchange.through(print)):
        shadowed = Shadowed(process)
        assert shadowed.run() == {"shadow": ["mine: decide later, which nobody does"]}
        assert shadowed.counted == {"shadow_later": 1}


def test_what_it_notes_is_told_as_what_it_would_note():
    def process(exchange):
        exchange.notes["mine"] = "allow: admins"
        exchange.notes["other"] = "2"

    shadowed = Shadowed(process)
    shadowed.exchange.notes.update(other="1", shadow=["before: pass"])
    assert shadowed.run() == {
        "other": "1",
        "shadow": ["before: pass", "mine: pass; other: 2; mine: allow: admins"],
    }
    assert shadowed.counted == {"shadow_passed": 1}


def test_a_response_that_it_hands_on_is_not_stopped():
    shadowed = Shadowed(lambda exchange: exchange.response, "PRE_RESPONSE", response_body=b"content")
    shadowed.run()
    assert Taker(shadowed.exchange.response.body).data == b"content"


def test_a_body_that_it_reads_stays_with_who_reads_it():
    def process(exchange):
        taker = Taker(exchange.request.body)
        exchange.request.body = Whole(taker.data)

    shadowed = Shadowed(process, method=b"POST", body=b"content")
    shadowed.run()
    assert Taker(shadowed.exchange.request.body).data == b"content"


def test_who_waits_is_judged_when_it_has_what_it_waits_for():
    waiting = Deferred()

    async def process(exchange):
        await waiting
        exchange.request.headers.append((b"x-user", b"me"))
        raise Abort("no such user", CLIENT, 401)

    shadowed = Shadowed(process)
    shadowed.run()
    assert shadowed.counted == {}
    waiting.callback(None)
    assert shadowed.counted == {"shadow_refused": 1}
    assert shadowed.exchange.request.headers == []
    assert shadowed.result.result is None


def test_who_is_given_up_leaves_nothing():
    async def process(exchange):
        exchange.request.headers.append((b"x-user", b"me"))
        await Deferred()

    shadowed = Shadowed(process)
    shadowed.run()
    shadowed.result.addErrback(lambda failure: None)
    shadowed.result.cancel()
    assert shadowed.exchange.request.headers == []


WAITING = """
listeners: [{name: web, address: "127.0.0.1:8080"}]
upstreams: [{name: shop, endpoints: [{url: "http://192.0.2.7:80"}]}]
routes: [{value: /, matcherType: prefix, routes: [{targets: [{upstream: shop}]}]}]
modules:
  - {name: faultInject, shadow: true, actionParam: {delay: 1s, abort: 503}}
  - {name: faultInject, shadow: true, actionParam: {delay: 1s, truncate: 1B}}
  - {name: cache, shadow: true}
"""


def test_nobody_is_kept_waiting_on_purpose():
    get = b"GET / HTTP/1.1\r\nHost: a.test\r\n\r\n"
    answer = b"HTTP/1.1 200 OK\r\nCache-Control: max-age=60\r\nContent-Length: 2\r\n\r\nok"
    with MemoryGateway(WAITING) as gateway:
        origin = gateway.upstream("192.0.2.7", 80, [Expect(b"\r\n\r\n"), Expect(b"\r\n\r\n")])
        clients = [gateway.client() for _ in range(2)]
        for client in clients:
            client.send(get)
        gateway.run()
        assert len(origin.connections) == 2, "the second one does not wait for the answer to the first"
        for connection in origin.connections:
            connection.send(answer)
        gateway.run()
        assert [client.received.endswith(b"ok") for client in clients] == [True, True]
        assert gateway.records[0].notes["shadow"] == [
            "faultInject: answer 503; fault: 1 s late, 503",
            "faultInject: decide later, which nobody does; fault: 1 s late, cut off after 1 bytes",
            "cache: decide later, which nobody does",
        ]


CONFIG = """
listeners: [{name: web, address: "127.0.0.1:8080"}]
upstreams: [{name: shop, endpoints: [{url: "http://192.0.2.7:80"}]}]
routes: [{value: /, matcherType: prefix, routes: [{targets: [{upstream: shop}]}]}]
modules:
  - {name: accessList, shadow: true, actionParam: {deny: [0.0.0.0/0]}}
  - {name: setRequestHeader, shadow: true, actionParam: {x-tried: "yes"}}
  - {name: respond, shadow: true, stage: PRE_REQUEST, actionParam: {status: 418}}
"""


def test_in_a_gateway_everybody_comes_through_and_the_record_tells():
    with MemoryGateway(CONFIG) as gateway:
        origin = gateway.upstream("192.0.2.7", 80, [Expect(b"\r\n\r\n"), b"HTTP/1.1 204 No Content\r\n\r\n"])
        answer = gateway.ask(b"GET / HTTP/1.1\r\nHost: a.test\r\n\r\n")
        assert answer.startswith(b"HTTP/1.1 204 ")
        assert b"x-tried" not in origin.received
        (record,) = gateway.records
        names = [note.partition(":")[0] for note in record.notes["shadow"]]
        assert names == ["accessList", "respond", "setRequestHeader"]
        counts = gateway.service.counters.snapshot()["counts"]["module"]
        assert counts == {
            "accessList": {"shadow_refused": 1},
            "respond": {"shadow_answered": 1},
            "setRequestHeader": {"shadow_changed": 1},
        }
