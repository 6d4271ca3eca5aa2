"""protogate.routing.rules: rules are checked at load, and what a target is sent."""

from __future__ import annotations

import json
from collections import Counter
from random import Random
from typing import Any

import msgspec
import pytest
from asking import ask, entry, router, rule
from hypothesis import given
from hypothesis import strategies as st

from protogate.config import model
from protogate.config.faults import ConfigFaults
from protogate.errors import Abort
from protogate.exchange.exchange import Exchange
from protogate.routing.rules import Route, forwarded
from protogate.routing.table import Router

CTRIP = """{
  "type": "uri",
  "value": "/hotel/order",
  "matcherType": "prefix",
  "tags": ["owner_admin", "org_framework", "appId_123456"],
  "properties": {"core": "true"},
  "routes": [{
    "condition": "true",
    "zone": "PRO",
    "targets": [{"url": "http://test.ctrip.com/hotel", "weight": 100}]
  }]
}"""


def found(table: Router, exchange: Exchange) -> Route:
    route = table.route(exchange)
    assert route is not None
    return route


def sent(table: Router, target: str, **more: Any) -> bytes:
    exchange = ask(target, **more)
    route = found(table, exchange)
    return forwarded(exchange.request, route, route.pick(exchange))


def faults(*rules: model.Rule, **more: Any) -> dict[str, str]:
    with pytest.raises(ConfigFaults) as caught:
        router(*rules, **more)
    return dict(line.split(": ", 1) for line in caught.value.lines)


def test_the_sample_of_ctrip() -> None:
    table = router(msgspec.convert(json.loads(CTRIP), model.Rule), zone="PRO")
    exchange = ask("/hotel/order/1")
    route = found(table, exchange)
    assert (route.name, route.tags) == ("uri /hotel/order", ("owner_admin", "org_framework", "appId_123456"))
    assert dict(route.properties) == {"core": "true"}
    target = route.pick(exchange)
    assert (target.upstream, target.path, target.weight) == ("http://test.ctrip.com:80", b"/hotel", 100)
    assert forwarded(exchange.request, route, target) == b"/hotel/1"
    assert sent(table, "/hotel/order?a=%2f..&&b") == b"/hotel?a=%2f..&&b"
    assert table.route(ask("/hotel/orders")) is None
    assert list(table.clusters) == ["http://test.ctrip.com:80"]
    assert table.warnings == []


@pytest.mark.parametrize(
    ("prefix", "base", "target", "expected"),
    [
        # Exactly one slash between, whatever ends or begins with one.
        ("/a", "/b", "/a", b"/b"),
        ("/a", "/b", "/a/", b"/b/"),
        ("/a", "/b", "/a/c", b"/b/c"),
        ("/a", "/b/", "/a/c", b"/b/c"),
        ("/a", "/b/", "/a", b"/b/"),
        ("/a", "/", "/a", b"/"),
        ("/a", "/", "/a/c", b"/c"),
        ("/a/", "/b", "/a/", b"/b/"),
        ("/a/", "/b", "/a/c", b"/b/c"),
        ("/a/", "/b/", "/a/c/", b"/b/c/"),
        ("/a/", "/", "/a/", b"/"),
        ("/", "/b", "/", b"/b/"),
        ("/", "/b", "/c/d", b"/b/c/d"),
        ("/", "/", "/c", b"/c"),
        # The query is kept byte for byte.
        ("/a", "/b", "/a?", b"/b?"),
        ("/a", "/b", "/a/c?x=/../%zz&&", b"/b/c?x=/../%zz&&"),
        # The prefix is cut off however it is spelled; what follows is forwarded as it came.
        ("/a/b", "/x", "/%61//b/c%7e//d", b"/x/c%7e//d"),
        ("/a/b", "/x", "//a/%62//", b"/x//"),
        ("/a", "/x", "/a//c", b"/x//c"),
        ("/", "/x", "//c", b"/x//c"),
        ("/@s%2Fn", "/x", "/@s%2fn/1", b"/x/1"),
        ("/é", "/x", "/é/1", b"/x/1"),
        # Dot segments: the canonical form.
        ("/a", "/x", "/b/../a/%7e//c", b"/x/~/c"),
        ("/a", "/x", "/a/b/..", b"/x/"),
    ],
)
def test_the_prefix_is_replaced(prefix: str, base: str, target: str, expected: bytes) -> None:
    assert sent(router(rule(prefix, "prefix", "uri", entry(f"http://up.test{base}"))), target) == expected


@pytest.mark.parametrize(
    ("policy", "target", "expected"),
    [
        ("canonical", "/a/b?c", b"/a/b?c"),
        ("canonical", "/%61//b/%7E?x", b"/%61//b/%7E?x"),
        ("canonical", "/a/./%7E//b?x=/../", b"/a/~/b?x=/../"),
        ("canonical", "/x/../a%2fb", b"/a%2Fb"),
        ("raw", "/a/./%7E//b?x", b"/a/./%7E//b?x"),
        ("raw", "/%61", b"/%61"),
        ("reject", "/a/b?x=%61//..", b"/a/b?x=%61//.."),
    ],
)
def test_without_a_path_the_request_target_is_forwarded(policy: str, target: str, expected: bytes) -> None:
    table = router(rule("/", "prefix", "uri", entry("http://up.test:81")), policy=policy)
    assert sent(table, target) == expected
    assert list(table.clusters) == ["http://up.test:81"]


@pytest.mark.parametrize("target", ["/%61", "//a", "/a/../b", "/a%2fb", "/a|b"])
def test_policy_reject(target: str) -> None:
    with pytest.raises(Abort, match="canonical") as caught:
        sent(router(rule("/", "prefix"), policy="reject"), target)
    assert caught.value.status == 400


def test_policy_raw_replaces_in_the_canonical_form_where_the_raw_one_cannot_be_cut() -> None:
    table = router(rule("/a", "prefix", "uri", entry("http://up.test/x")), policy="raw")
    assert sent(table, "/b/../a/%7e") == b"/x/~"
    assert sent(table, "/a/%7e") == b"/x/%7e"


def test_an_exact_rule_replaces_the_whole_path() -> None:
    table = router(rule("/a", "exact", "uri", entry("http://up.test/b/c")))
    assert sent(table, "/a?q") == b"/b/c?q"
    assert sent(table, "/%61") == b"/b/c"


@pytest.mark.parametrize("target", ["*", ""])
def test_what_is_no_path_is_forwarded_as_it_is(target: str) -> None:
    table = router(rule("GET", "exact", "method"))
    assert sent(table, target) == target.encode()


def test_a_path_that_a_module_rewrote_is_not_cut() -> None:
    table = router(rule("/a", "prefix", "uri", entry("http://up.test/x")))
    exchange = ask("/a/1")
    route = found(table, exchange)
    exchange.request.target = b"/other/%7e?q"
    assert forwarded(exchange.request, route, route.pick(exchange)) == b"/other/%7e?q"
    exchange.request.target = b"/a/2"
    assert forwarded(exchange.request, route, route.pick(exchange)) == b"/x/2"
    exchange.request.target = b"/../a"
    with pytest.raises(Abort, match="climbs") as caught:
        forwarded(exchange.request, route, route.pick(exchange))
    assert caught.value.status == 400


SEGMENT = st.sampled_from(["a", "b", "%61", "%2f", "c%7E", "..", ".", "%2e", ""])


@given(
    st.sampled_from(["/", "/a", "/a/", "/a/b", "/a/b/"]),
    st.sampled_from(["", "/", "/x", "/x/"]),
    st.lists(SEGMENT, min_size=1, max_size=7),
)
def test_what_is_forwarded_lies_where_it_should(prefix: str, base: str, segments: list[str]) -> None:
    from protogate.uri import canonical

    target = "/" + "/".join(segments)
    try:
        form = canonical(target.encode()).path
    except ValueError:
        return
    table = router(rule(prefix, "prefix", "uri", entry(f"http://up.test{base}")))
    if table.route(ask(target)) is None:
        return
    got = canonical(sent(table, target)).path
    expected = form
    if base:
        expected = base.rstrip("/") + form[len(prefix.rstrip("/")) :] if form != prefix.rstrip("/") else base
    assert got == canonical((expected or "/").encode()).path


# Loading


def test_every_fault_is_reported_with_its_place() -> None:
    bad = model.Target(upstream="a", url="http://b")
    assert faults(
        rule("a", "prefix", hosts=("ok.test", "a:1"), methods=("get", "GET")),
        rule("/ok"),
        rule(
            "/x",
            "prefix",
            "uri",
            entry(condition="request.nope == 1"),
            entry(bad, model.Target(), "ftp://x", sticky="("),
            entry("http://a?b", zone="other"),
        ),
        rule("a.test", "exact", "host", hosts=("b.test",)),
        rule("GET", "exact", "method", methods=("GET",)),
    ).keys() == {
        "routes[0].value",
        "routes[0].hosts[1]",
        "routes[0].methods[0]",
        "routes[2].routes[0].condition",
        "routes[2].routes[1].targets[0]",
        "routes[2].routes[1].targets[1]",
        "routes[2].routes[1].targets[2].url",
        "routes[2].routes[1].sticky.key",
        "routes[2].routes[2].targets[0].url",
        "routes[3].hosts",
        "routes[4].methods",
    }


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("up.test", "expected a URL such as"),
        ("ftp://up.test", "begins with http://"),
        ("http://up.test/a?b", "no query"),
        ("http://up.test/a/../b", 'write "/b"'),
    ],
)
def test_a_url_that_is_refused(url: str, why: str) -> None:
    assert why in faults(rule("/", "prefix", "uri", entry(model.Target(url=url))))["routes[0].routes[0].targets[0].url"]


@pytest.mark.parametrize(
    ("kind", "type_", "value"),
    [("regex", "uri", "/a.*"), ("template", "uri", "/{a}"), ("exact", "host", "a.test"), ("prefix", "header", "x=1")],
)
def test_a_path_needs_something_to_replace(kind: str, type_: str, value: str) -> None:
    assert "takes the place" in str(faults(rule(value, kind, type_, entry("http://up.test/"))))
    router(rule(value, kind, type_, entry("http://up.test")))


@pytest.mark.parametrize(
    ("url", "origin"),
    [
        ("HTTP://Up.Test", "http://up.test:80"),
        ("http://up.test:8080/", "http://up.test:8080"),
        ("http://[::1]:8080", "http://[::1]:8080"),
        ("http://192.0.2.1", "http://192.0.2.1:80"),
    ],
)
def test_origins(url: str, origin: str) -> None:
    assert router(rule("/", "prefix", "uri", entry(url))).clusters == {
        origin: ("routes", 0, "routes", 0, "targets", 0, "url")
    }


# Choosing


def test_targets_are_chosen_by_weight_in_turn() -> None:
    weighted = (
        model.Target(upstream="a", weight=95),
        model.Target(upstream="b", weight=5),
        model.Target(upstream="c", weight=0),
    )
    exchange = ask("/")
    route = found(router(rule("/", "prefix", "uri", entry(*weighted))), exchange)
    assert Counter(route.pick(exchange).upstream for _ in range(100)) == {"a": 95, "b": 5}
    assert [(target.upstream, share) for target, share in route.odds()] == [("a", 0.95), ("b", 0.05), ("c", 0.0)]


def test_all_weights_zero_is_503() -> None:
    exchange = ask("/")
    zero = model.Target(upstream="a", weight=0)
    for extra in ({}, {"sticky": "source.ip"}):
        route = found(router(rule("/", "prefix", "uri", entry(zero, **extra))), exchange)
        with pytest.raises(Abort, match="weight 0") as caught:
            route.pick(exchange)
        assert caught.value.status == 503
        assert [share for _, share in route.odds()] == [0.0]


def test_sticky_keeps_to_one_target_and_an_empty_key_takes_turns() -> None:
    table = router(rule("/", "prefix", "uri", entry("a", "b", sticky="request.cookies['sid']")))
    seen = set()
    for number in range(50):
        exchange = ask("/", headers={"cookie": f"sid={number}"})
        route = found(table, exchange)
        names = {route.pick(exchange).upstream for _ in range(5)}
        assert len(names) == 1
        seen |= names
    assert seen == {"a", "b"}
    exchange = ask("/")
    assert {found(table, exchange).pick(exchange).upstream for _ in range(2)} == {"a", "b"}
    other = Router(
        [rule("/", "prefix", "uri", entry("b", "a", sticky="request.cookies['sid']"))],
        model.Gateway(),
        random=Random(9),
    )
    exchange = ask("/", headers={"cookie": "sid=7"})
    assert found(other, exchange).pick(exchange).upstream == found(table, exchange).pick(exchange).upstream


def test_sticky_tells_paths_of_one_origin_apart() -> None:
    table = router(rule("/", "prefix", "uri", entry("http://u.test/a", "http://u.test/b", sticky="request.query['k']")))
    paths: Counter[bytes | None] = Counter()
    for number in range(60):
        exchange = ask(f"/?k={number}")
        paths[found(table, exchange).pick(exchange).path] += 1
    assert set(paths) == {b"/a", b"/b"}
