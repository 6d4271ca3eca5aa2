"""cors: which pages of other origins may read what is answered."""

from __future__ import annotations

import pytest
from twisted.trial.unittest import SynchronousTestCase

from protogate.errors import ConfigError
from protogate.governance.cors import CorsFactory
from protogate.testing.exchange import exchange
from protogate.testing.gateway import MemoryGateway
from protogate.testing.module import ModuleContract
from protogate.testing.upstream import Expect

SHOP = "https://shop.example"


class CorsContract(ModuleContract, SynchronousTestCase):
    factory = CorsFactory
    good = (
        {"origins": ["*"]},
        {
            "origins": [SHOP, "https://*.shop.example", "http://localhost:3000", "http://[::1]:8080"],
            "credentials": True,
        },
        {"originPatterns": ["https://[a-z]+\\.example"], "maxAge": "10m", "headers": ["*"], "privateNetwork": True},
    )
    bad = (
        ({}, ""),
        ({"origins": []}, ""),
        ({"origins": ["*", SHOP]}, "origins"),
        ({"origins": ["*"], "credentials": True}, "origins"),
        ({"origins": [SHOP], "credentials": True, "exposeHeaders": ["*"]}, "exposeHeaders"),
        ({"origins": ["null"]}, "origins"),
        ({"origins": [7]}, "origins"),
        ({"origins": [SHOP], "methods": ["GET POST"]}, "methods"),
        ({"origins": [SHOP], "headers": ["x a"]}, "headers"),
        ({"originPatterns": ["("]}, "originPatterns"),
        ({"originPatterns": [7]}, "originPatterns"),
        ({"origins": [SHOP], "maxAge": "long"}, "maxAge"),
        ({"origins": [SHOP], "credentials": "yes"}, "credentials"),
    )


@pytest.mark.parametrize(
    ("origin", "why"),
    [
        ("shop.example", "is no origin"),
        ("https://shop.example/", 'browsers write this origin as "https://shop.example"'),
        ("https://Shop.example", 'browsers write this origin as "https://shop.example"'),
        ("https://shop.example:443", 'browsers write this origin as "https://shop.example"'),
        ("https://u@shop.example", "browsers write"),
        ("https://shop.example:x", "is no origin"),
        ("https://*", "only the first label"),
        ("https://*.example", "only the first label"),
        ("https://shop.*.example", "only the first label"),
        ("https://", "is no origin"),
        ("https://shöp.example", "is no origin"),
    ],
)
def test_what_is_no_origin_is_told(origin, why):
    with pytest.raises(ConfigError, match=why) as caught:
        CorsFactory().build({"origins": [origin]})
    assert caught.value.path == ("origins", 0)


class Asked:
    """A request to a module, and what is said about it."""

    def __init__(self, params, origin=None, method=b"GET", preflight=(), **headers):
        lines = (
            []
            if origin is None
            else [(b"origin", each.encode()) for each in ([origin] if isinstance(origin, str) else origin)]
        )
        lines += [(b"access-control-request-" + name, value) for name, value in preflight]
        self.exchange = exchange(method=method, headers=lines)
        self.answer = CorsFactory().build(params).process(self.exchange)
        fields = self.exchange.fields if self.answer is None else self.answer.headers
        self.fields = {name.decode().removeprefix("access-control-"): value.decode() for name, value in fields}


@pytest.mark.parametrize(
    ("params", "origin", "allowed"),
    [
        ({"origins": [SHOP]}, SHOP, True),
        ({"origins": [SHOP]}, "http://shop.example", False),
        ({"origins": [SHOP]}, "https://shop.example:8443", False),
        ({"origins": [SHOP]}, "https://shop.example.evil", False),
        ({"origins": [SHOP]}, "null", False),
        ({"origins": [SHOP]}, "", False),
        ({"origins": [SHOP]}, [SHOP, SHOP], False),
        ({"origins": ["https://*.shop.example"]}, "https://a.shop.example", True),
        ({"origins": ["https://*.shop.example"]}, "https://a.b.shop.example", True),
        ({"origins": ["https://*.shop.example"]}, "https://shop.example", False),
        ({"origins": ["https://*.shop.example"]}, "https://.shop.example", False),
        ({"origins": ["https://*.shop.example"]}, "https://evil/a.shop.example", False),
        ({"origins": ["https://*.shop.example"]}, "https://evil#.shop.example", False),
        ({"origins": ["https://*.shop.example"]}, "https://A.shop.example", False),
        ({"originPatterns": ["https://[a-z]+\\.example"]}, "https://any.example", True),
        ({"originPatterns": ["https://[a-z]+\\.example"]}, "https://any.example.evil", False),
        ({"originPatterns": ["https://.*"]}, "https://" + "a" * 600, False),
    ],
)
def test_whose_origin_is_allowed(params, origin, allowed):
    asked = Asked(params, origin)
    assert asked.answer is None
    assert asked.fields == {"vary": "origin"} | ({"allow-origin": origin} if allowed else {})
    preflight = Asked(params, origin, b"OPTIONS", [(b"method", b"PUT")])
    assert preflight.answer.status == 204
    assert ("allow-origin" in preflight.fields) is allowed
    if not allowed:
        assert set(preflight.fields) == {"vary"}


def test_everybody_is_told_the_same():
    params = {"origins": ["*"], "exposeHeaders": ["X-Id", "x-other"]}
    told = {"allow-origin": "*", "expose-headers": "x-id, x-other"}
    assert Asked(params).fields == Asked(params, SHOP).fields == told
    assert Asked(params, SHOP, b"OPTIONS", [(b"method", b"GET")]).fields["allow-origin"] == "*"


def test_a_request_without_an_origin_says_that_it_matters():
    assert Asked({"origins": [SHOP]}).fields == {"vary": "origin"}


def test_a_preflight_gets_all_that_it_asks_for():
    params = {
        "origins": [SHOP],
        "methods": ["GET", "PUT"],
        "headers": ["Content-Type", "x-a"],
        "exposeHeaders": ["x-id"],
        "credentials": True,
        "privateNetwork": True,
        "maxAge": "10m",
    }
    asked = [(b"method", b"PUT"), (b"headers", b"x-b"), (b"private-network", b"true")]
    assert Asked(params, SHOP, b"OPTIONS", asked).fields == {
        "vary": "origin, access-control-request-method, access-control-request-headers, "
        "access-control-request-private-network",
        "allow-origin": SHOP,
        "allow-credentials": "true",
        "allow-methods": "GET, PUT",
        "allow-headers": "content-type, x-a",
        "allow-private-network": "true",
        "max-age": "600",
    }


def test_fields_are_what_was_asked_for_where_all_are_allowed():
    asked = [(b"method", b"PUT"), (b"headers", b"x-a,x-b")]
    assert Asked({"origins": [SHOP], "headers": ["*"]}, SHOP, b"OPTIONS", asked).fields["allow-headers"] == "x-a,x-b"
    assert "allow-headers" not in Asked({"origins": [SHOP], "headers": ["*"]}, SHOP, b"OPTIONS", asked[:1]).fields


def test_other_requests_with_options_go_to_the_upstream():
    assert Asked({"origins": [SHOP]}, SHOP, b"OPTIONS").answer is None
    assert Asked({"origins": [SHOP]}, None, b"OPTIONS", [(b"method", b"PUT")]).answer is None
    assert Asked({"origins": [SHOP]}, SHOP, b"GET", [(b"method", b"PUT")]).answer is None


CONFIG = """
listeners: [{name: web, address: "127.0.0.1:8080"}]
upstreams: [{name: shop, endpoints: [{url: "http://192.0.2.7:80"}]}]
routes: [{value: /api, matcherType: prefix, routes: [{targets: [{upstream: shop}]}]}]
modules:
  - {name: cors, actionParam: {origins: ["https://shop.example"], credentials: true}}
"""
UPSTREAM = (
    b"HTTP/1.1 200 OK\r\nAccess-Control-Allow-Origin: *\r\nAccess-Control-Allow-Methods: X\r\nVary: accept\r\n"
    b"Content-Length: 0\r\n\r\n"
)


def test_in_a_gateway_what_the_upstream_says_is_replaced_and_errors_can_be_read():
    with MemoryGateway(CONFIG) as gateway:
        origin = gateway.upstream("192.0.2.7", 80, [Expect(b"\r\n\r\n"), UPSTREAM])
        answer = gateway.ask(b"GET /api HTTP/1.1\r\nHost: a.test\r\nOrigin: https://shop.example\r\n\r\n")
        assert answer.count(b"access-control-allow-origin: ") == 1
        assert b"access-control-allow-origin: https://shop.example\r\n" in answer
        assert b"access-control-allow-credentials: true\r\n" in answer
        assert b"access-control-allow-methods" not in answer
        assert [line for line in answer.split(b"\r\n") if line.startswith(b"vary")] == [
            b"vary: accept",
            b"vary: origin",
        ]
        answer = gateway.ask(b"GET /else HTTP/1.1\r\nHost: a.test\r\nOrigin: https://shop.example\r\n\r\n")
        assert answer.startswith(b"HTTP/1.1 404 ")
        assert b"access-control-allow-origin: https://shop.example\r\n" in answer
        preflight = (
            b"OPTIONS /api HTTP/1.1\r\nHost: a.test\r\nOrigin: https://shop.example\r\n"
            b"Access-Control-Request-Method: POST\r\n\r\n"
        )
        answer = gateway.ask(preflight)
        assert answer.startswith(b"HTTP/1.1 204 ")
        assert b"access-control-allow-methods: GET, HEAD, POST\r\n" in answer
        assert len(origin.received) == 1
