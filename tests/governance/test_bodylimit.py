"""bodyLimit: how much content some requests may have, and the answers to them."""

from __future__ import annotations

import pytest
from twisted.trial.unittest import SynchronousTestCase

from protogate.errors import CLIENT, UPSTREAM, Abort
from protogate.governance.bodylimit import BodyLimitFactory
from protogate.message import Response
from protogate.testing.bodies import Giver, Taker
from protogate.testing.exchange import exchange
from protogate.testing.gateway import MemoryGateway
from protogate.testing.module import ModuleContract
from protogate.testing.upstream import Expect


class BodyLimitContract(ModuleContract, SynchronousTestCase):
    factory = BodyLimitFactory
    good = ({"request": "1KiB"}, {"response": "1MB"}, {"request": 0, "response": "10B"})
    bad = (({}, ""), ({"request": 1024}, "request"), ({"response": "much"}, "response"), ({"size": "1B"}, "size"))


def limited(params, **made):
    one = exchange(**made)
    assert BodyLimitFactory().build(params).process(one) is None
    return one


def seen(one, response):
    """What becomes of an answer."""
    one.response = response
    for see in one.promised()[1]:
        assert see(one) is None
    return response


@pytest.mark.parametrize(("size", "fits"), [(0, True), (10, True), (11, False)])
def test_a_length_that_is_known_is_judged_at_once(size, fits):
    if fits:
        one = limited({"request": "10B"}, method=b"POST", body=b"x" * size)
        assert Taker(one.request.body).data == b"x" * size
        return
    with pytest.raises(Abort) as caught:
        limited({"request": "10B"}, method=b"POST", body=b"x" * size)
    assert (caught.value.status, caught.value.who) == (413, CLIENT)
    assert caught.value.detail == "the request has more than 10 bytes of content"


def test_each_refusal_is_one_of_its_own():
    """An exception that is raised again and again would keep a traceback of all of them."""
    module, raised = BodyLimitFactory().build({"request": 0}), []
    for _ in range(2):
        with pytest.raises(Abort) as caught:
            module.process(exchange(method=b"POST", body=b"x"))
        raised.append(caught.value)
    assert raised[0] is not raised[1]


def test_what_goes_beyond_ends_the_transfer():
    one = exchange(method=b"POST")
    giver = Giver([b"x" * 6, b"x" * 6], None)
    one.request.body = giver.body
    BodyLimitFactory().build({"request": "10B"}).process(one)
    taker = Taker(one.request.body)
    assert (taker.data, taker.reason.status, giver.stopped) == (b"x" * 6, 413, True)


def test_a_tunnel_has_no_content():
    one = exchange()
    one.request.upgrade, giver = b"websocket", Giver([b"x" * 100], None)
    one.request.body = giver.body
    BodyLimitFactory().build({"request": 0, "response": 0}).process(one)
    assert one.request.body is giver.body
    body = Giver([b"x" * 100], None).body
    assert seen(one, Response(101, body=body)).body is body


def test_answers_are_held_to_it():
    one = limited({"response": "10B"})
    with pytest.raises(Abort) as caught:
        seen(one, Response(200, body=Giver([b"x" * 11], 11).body))
    assert (caught.value.status, caught.value.who, caught.value.detail) == (502, UPSTREAM, "")
    giver = Giver([b"x" * 6, b"x" * 6], None)
    taker = Taker(seen(one, Response(200, body=giver.body)).body)
    assert (taker.data, taker.reason.status, giver.stopped) == (b"x" * 6, 502, True)
    assert seen(one, Response(204)).body is None


CONFIG = """
listeners: [{name: web, address: "127.0.0.1:8080"}]
upstreams: [{name: shop, endpoints: [{url: "http://192.0.2.7:80"}]}]
routes: [{value: /, matcherType: prefix, routes: [{targets: [{upstream: shop}]}]}]
modules: [{name: bodyLimit, actionParam: {request: 10B, response: 20B}}]
"""


@pytest.mark.parametrize(
    ("request_", "answer", "status"),
    [
        (b"Content-Length: 11\r\n\r\n" + b"x" * 11, b"", b"413"),
        (b"Transfer-Encoding: chunked\r\n\r\nb\r\n" + b"x" * 11 + b"\r\n0\r\n\r\n", b"", b"413"),
        (b"\r\n", b"Content-Length: 21\r\n\r\n" + b"x" * 21, b"502"),
        (b"\r\n", b"Content-Length: 20\r\n\r\n" + b"x" * 20, b"200"),
        (b"Content-Length: 10\r\n\r\n" + b"x" * 10, b"Content-Length: 0\r\n\r\n", b"200"),
    ],
)
def test_in_a_gateway(request_, answer, status):
    with MemoryGateway(CONFIG) as gateway:
        gateway.upstream("192.0.2.7", 80, [Expect(b"\r\n\r\n"), b"HTTP/1.1 200 OK\r\n" + answer] if answer else [])
        got = gateway.ask(b"POST / HTTP/1.1\r\nHost: a.test\r\n" + request_)
        assert got.startswith(b"HTTP/1.1 " + status), got
        assert [record.status for record in gateway.records] == [int(status)]


def test_an_answer_that_gets_too_long_is_seen_to_be_cut_off():
    with MemoryGateway(CONFIG) as gateway:
        long = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n15\r\n" + b"x" * 21 + b"\r\n0\r\n\r\n"
        gateway.upstream("192.0.2.7", 80, [Expect(b"\r\n\r\n"), long])
        client = gateway.client()
        client.send(b"GET / HTTP/1.1\r\nHost: a.test\r\n\r\n")
        gateway.run()
        assert not client.received.endswith(b"0\r\n\r\n")
        assert client.eof or client.lost is not None
        (record,) = gateway.records
        assert record.who == "upstream"
