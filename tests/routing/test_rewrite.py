"""What a target is asked instead of what came."""

from __future__ import annotations

import re
from contextlib import suppress
from typing import Any, cast

import pytest
from asking import ask
from hypothesis import given
from hypothesis import strategies as st

from protogate.config import model
from protogate.config.faults import ConfigFaults
from protogate.errors import CLIENT, GATEWAY, Abort
from protogate.exchange.exchange import Exchange
from protogate.routing import matchers
from protogate.routing.rewrite import build
from protogate.uri import canonical


def asked(
    target: str,
    template: str = "",
    *,
    came: str = "GET",
    of: str = "",
    headers: dict[str, str] | None = None,
    upgrade: bytes | None = None,
    **rewrite: Any,
) -> tuple[bytes, bytes]:
    """Method and target that a request becomes, by a rule with this template or for all paths."""
    matcher = matchers.build("uri", "template" if template else "prefix", template or "/")
    exchange = ask(target, came, service=of, headers=headers)
    exchange.request.upgrade = upgrade
    return build(model.Rewrite(**rewrite), matcher)(exchange, target.encode())


def faults(template: str = "", **rewrite: Any) -> list[tuple[tuple[Any, ...], str]]:
    with pytest.raises(ConfigFaults) as caught:
        build(model.Rewrite(**rewrite), matchers.build("uri", "template" if template else "prefix", template or "/"))
    return [(fault.path, fault.message) for fault in caught.value.faults]


@pytest.mark.parametrize(
    ("target", "rewrite", "expected"),
    [
        ("/a?b=1", {"method": "PUT"}, (b"PUT", b"/a?b=1")),
        ("/a?b=1", {"path": "/x/y"}, (b"GET", b"/x/y?b=1")),
        ("/a?b=1", {"query": {}}, (b"GET", b"/a")),
        ("/a?b=1", {"query": {"c d": "e&f", "g": ""}}, (b"GET", b"/a?c%20d=e%26f")),
        ("/a?b=1", {"path": "/x", "query": {"c": "${request.query['b']}"}}, (b"GET", b"/x?c=1")),
        ("/a", {"path": "/x", "query": {"c": "${request.query['b']}"}}, (b"GET", b"/x")),
        ("/a/b", {"path": "/v2${request.path}"}, (b"GET", b"/v2/a/b")),
        ("/a%2Fb/c", {"path": "${request.path}/d"}, (b"GET", b"/a%2Fb/c/d")),
        ("/a?b=x%2Fy%20z", {"path": "/x/${request.query['b']}", "query": {}}, (b"GET", b"/x/x%2Fy%20z")),
        ("/a?b=x;y?%23", {"path": "/x-${request.query['b']}", "query": {}}, (b"GET", b"/x-x%3By%3F%23")),
        ("/a?b=%C3%A9", {"path": "/${request.query['b']}", "query": {}}, (b"GET", b"/%C3%A9")),
        ("/a?b=1", {"service": "1001", "operation": "order.get"}, (b"POST", b"/1001/order.get")),
        ("/a?b=get", {"service": "shop.Orders", "operation": "${request.query['b']}"}, (b"POST", b"/shop.Orders/get")),
        ("*", {"path": "/x", "method": "PUT"}, (b"GET", b"*")),
    ],
)
def test_each_part_replaces_what_it_names(target: str, rewrite: dict[str, Any], expected: tuple[bytes, bytes]) -> None:
    assert asked(target, **rewrite) == expected


@pytest.mark.parametrize(
    ("target", "template", "rewrite", "expected"),
    [
        ("/orders/7/items", "/orders/{id}/items", {"path": "/v2/${path.id}"}, b"/v2/7"),
        ("/orders/a%2Fb/items", "/orders/{id}/items", {"path": "/v2/${path.id}"}, b"/v2/a%2Fb"),
        ("/orders/a%2Fb%20c/x", "/orders/{id}/{op}", {"query": {"q": "${path.id}", "o": "${path.op}"}},
         b"/orders/a%2Fb%20c/x?q=a%2Fb%20c&o=x"),
        ("/orders/%C3%A9", "/orders/{id}", {"query": {"q": "${path.id == 'é'}"}}, b"/orders/%C3%A9?q=true"),
        ("/orders/%FF", "/orders/{id}", {"path": "/x/${path.id}", "query": {"q": "${path.id}"}}, b"/x/%FF?q=%FF"),
        ("/files/a/b%2Fc/", "/files/{rest*}", {"path": "/f/${path.rest}"}, b"/f/a/b%2Fc/"),
        ("/files/", "/files/{rest*}", {"path": "/f/${path.rest}"}, b"/f/"),
        ("/files/a/b", "/files/{rest*}", {"query": {"name": "${path.rest}"}}, b"/files/a/b?name=a%2Fb"),
        ("/1001/get", "/{service}/{op}", {"service": "${path.service}", "operation": "do.${path.op}"}, b"/1001/do.get"),
    ],
)  # fmt: skip
def test_placeholders_are_named(target: str, template: str, rewrite: dict[str, Any], expected: bytes) -> None:
    assert asked(target, template, **rewrite)[1] == expected


def test_a_service_and_its_operation_make_a_path() -> None:
    rewrite = {"method": "GET", "path": "/stock/${request.service}/${request.operation}"}
    assert asked("/77/item.get", of="77", came="POST", **rewrite) == (b"GET", b"/stock/77/item.get")


@pytest.mark.parametrize(
    ("target", "rewrite"),
    [
        ("/a", {"path": "/x/${request.query['b']}"}),
        ("/a?b=", {"path": "/x/y-${request.query['b']}"}),
        ("/a?b=..", {"path": "/x/${request.query['b']}/y"}),
        ("/a?b=.", {"path": "/x/${request.query['b']}"}),
        ("/a?b=.", {"path": "/x/.${request.query['b']}"}),
        ("/a?b=..%2F..%2Fetc", {"path": "/x/${request.query['b']}"}),
        ("/a?b=..;x", {"path": "/x/${request.query['b']}"}),
        ("/a?b=%00", {"path": "/x/${request.query['b']}"}),
        ("/a?b=", {"service": "7", "operation": "${request.query['b']}"}),
        ("/a?b=x/y", {"service": "7", "operation": "${request.query['b']}"}),
        ("/a?b=.x", {"service": "7", "operation": "${request.query['b']}"}),
        ("/a?b=" + "x" * 256, {"service": "7", "operation": "${request.query['b']}"}),
        ("/a?b=0", {"service": "${request.query['b']}", "operation": "x"}),
        ("/a?b=4294967296", {"service": "${request.query['b']}", "operation": "x"}),
    ],
)
def test_what_does_not_fit_its_place_is_refused(target: str, rewrite: dict[str, Any]) -> None:
    with pytest.raises(Abort) as caught:
        asked(target, **rewrite)
    assert (caught.value.status, caught.value.who) == (400, CLIENT)


@given(st.binary(min_size=1, max_size=20))
def test_no_value_leaves_its_segment(value: bytes) -> None:
    target = "/a?b=" + "".join(f"%{byte:02X}" for byte in value)
    made = b""
    with suppress(Abort):  # what it is then is tried above
        _, made = asked(target, path="/x/${request.query['b']}/y", query={})
    if made:
        assert re.fullmatch(rb"/x/[^/?#]+/y", made)
        assert canonical(made) == (made.decode(), True)


@given(st.binary(max_size=20))
def test_no_value_leaves_its_parameter(value: bytes) -> None:
    target = "/a?b=" + "".join(f"%{byte:02X}" for byte in value)
    _, made = asked(target, query={"c": "1", "d": "${request.query['b']}", "e": "2"})
    assert re.fullmatch(rb"/a\?c=1(&d=[A-Za-z0-9._~%-]+)?&e=2", made)


def test_another_method_or_a_service_opens_no_tunnel_but_another_path_may() -> None:
    assert asked("/a", upgrade=b"websocket", path="/b") == (b"GET", b"/b")
    for rewrite in ({"method": "POST"}, {"service": "7", "operation": "x"}):
        with pytest.raises(Abort, match="no tunnels"):
            asked("/a", upgrade=b"websocket", **rewrite)


@pytest.mark.parametrize("text", ["/b/${path.id}", "/b/${path.id == '1' ? 'x' : 'y'}"])
def test_a_path_that_a_module_has_changed_has_no_placeholders(text: str) -> None:
    made = build(model.Rewrite(path=text), matchers.build("uri", "template", "/a/{id}"))
    exchange = ask("/a/1")
    exchange.request.path = "/c"
    with pytest.raises(Abort) as caught:
        made(exchange, b"/c")
    assert (caught.value.status, caught.value.who) == (500, GATEWAY)


def test_what_needs_no_placeholder_does_not_mind_a_changed_path() -> None:
    made = build(model.Rewrite(path="/v2${request.path}"), matchers.build("uri", "template", "/a/{id}"))
    exchange = ask("/a/1")
    exchange.request.path = "/c"
    assert made(exchange, b"/c") == (b"GET", b"/v2/c")


def test_the_query_that_came_can_still_be_asked_for() -> None:
    exchange = cast("Exchange", ask("/a?b=1"))
    made = build(model.Rewrite(query={"c": "2"}), matchers.build("uri", "prefix", "/"))
    exchange.request.method, exchange.request.target = made(exchange, b"/a?b=1")
    assert exchange.request.query == {"b": "1"}


@pytest.mark.parametrize(
    ("rewrite", "path", "message"),
    [
        ({}, (), "it changes nothing"),
        ({"method": "get"}, ("method",), "upper case: GET"),
        ({"method": "a b"}, ("method",), "is no method"),
        ({"method": "HEAD"}, ("method",), "changes what an answer is made of"),
        ({"path": "x"}, ("path",), "does not start with a slash"),
        ({"path": "${path.id}"}, ("path",), "path"),
        ({"path": "/${request.nme}"}, ("path",), "column 12"),
        ({"path": "/x?y=1"}, ("path",), "more than a path"),
        ({"path": "/a/../b"}, ("path",), "not in the canonical form"),
        ({"path": "/a b"}, ("path",), "is no path"),
        ({"path": "/é"}, ("path",), "not in the canonical form"),
        ({"path": "/a/${request.path}"}, ("path",), "not in the canonical form"),
        ({"query": {"a": "${b}"}}, ("query", "a"), "b"),
        ({"query": {"": "b"}}, ("query",), "needs a name"),
        ({"service": "7"}, (), "the operation is missing"),
        ({"operation": "x"}, (), "the service is missing"),
        ({"service": "07", "operation": "x"}, ("service",), "is no service"),
        ({"service": "a/b", "operation": "x"}, ("service",), "is no service"),
        ({"service": "7", "operation": "a b"}, ("operation",), "is no operation"),
        ({"service": "7", "operation": "x", "path": "/x"}, ("path",), "no room"),
        ({"service": "7", "operation": "x", "method": "GET"}, ("method",), "no room"),
        ({"service": "7", "operation": "x", "query": {}}, ("query",), "no room"),
    ],
)
def test_what_is_wrong_with_one_is_found_at_load(rewrite: Any, path: tuple[str, ...], message: str) -> None:
    found = faults(**rewrite)
    assert [(where, message in text) for where, text in found] == [(path, True)], found


def test_faults_are_told_together() -> None:
    found = faults("/a/{id}", method="get", path="/${path.no}", query={"a": "${x}"})
    assert [where for where, _ in found] == [("method",), ("path",), ("query", "a")]


@pytest.mark.parametrize(
    ("rewrite", "text"),
    [
        ({"method": "GET", "path": "/x/${path.id}", "query": {"a": "1", "b": "2"}}, "GET /x/${path.id}?a=1&b=2"),
        ({"method": "GET"}, "GET"),
        ({"query": {}}, "?"),
        ({"service": "7", "operation": "x"}, "service 7, operation x"),
    ],
)
def test_it_can_be_told_to_people(rewrite: Any, text: str) -> None:
    made = build(model.Rewrite(**rewrite), matchers.build("uri", "template", "/x/{id}"))
    assert made.text == text
    assert text in repr(made)
