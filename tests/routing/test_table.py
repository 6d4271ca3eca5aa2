"""protogate.routing.table: which rule a request gets."""

from __future__ import annotations

from typing import Any, cast

import pytest
from asking import ask, chosen, entry, router, rule
from hypothesis import given, settings
from hypothesis import strategies as st
from zope.interface.verify import verifyObject

from protogate.config import model
from protogate.config.faults import ConfigFaults
from protogate.errors import Abort
from protogate.exchange.exchange import NO_ROUTE
from protogate.interfaces import IRouter
from protogate.routing.table import TYPES, Router, miss


def test_it_is_a_router() -> None:
    assert verifyObject(IRouter, router())
    assert router().route(ask("/")) is None
    assert router().clusters == {}


@pytest.mark.parametrize(
    ("rules", "target", "index"),
    [
        # Exact beats template beats prefix beats regex.
        ([rule("/a/.*", "regex"), rule("/a", "prefix"), rule("/a/{x}", "template"), rule("/a/b")], "/a/b", 3),
        ([rule("/a/.*", "regex"), rule("/a", "prefix"), rule("/a/{x}", "template"), rule("/a/b")], "/a/c", 2),
        ([rule("/a/.*", "regex"), rule("/a", "prefix"), rule("/a/{x}", "template"), rule("/a/b")], "/a/c/d", 1),
        ([rule("/a/.*", "regex"), rule("/b", "prefix")], "/a/c/d", 0),
        # The longer prefix, whatever the order of the file.
        ([rule("/", "prefix"), rule("/a/b", "prefix"), rule("/a", "prefix")], "/a/b/c", 1),
        ([rule("/", "prefix"), rule("/a/b", "prefix"), rule("/a", "prefix")], "/a/c", 2),
        ([rule("/", "prefix"), rule("/a/b", "prefix"), rule("/a", "prefix")], "/x", 0),
        ([rule("/a", "prefix"), rule("/a/", "prefix")], "/a", 0),
        ([rule("/a", "prefix"), rule("/a/", "prefix")], "/a/", 1),
        # The more literal template.
        ([rule("/{r*}", "template"), rule("/u/{i}", "template"), rule("/{a}/me", "template")], "/u/me", 1),
        ([rule("/{r*}", "template"), rule("/u/{i}", "template"), rule("/{a}/me", "template")], "/v/me", 2),
        ([rule("/{r*}", "template"), rule("/u/{i}", "template"), rule("/{a}/me", "template")], "/v/x", 0),
        ([rule("/u/{r*}", "template"), rule("/u/{i}/{r*}", "template")], "/u/1/2/3", 1),
        # Regexes in the order of the file.
        ([rule("/a.*", "regex"), rule("/ab.*", "regex")], "/abc", 0),
        ([rule("/ab.*", "regex"), rule(".*", "regex")], "/abc", 0),
        # Priority overrides.
        ([rule("/a"), rule("/.*", "regex", priority=1)], "/a", 1),
        ([rule("/a", priority=-1), rule("/", "prefix")], "/a", 1),
        ([rule("/a"), rule("x=1", "exact", "query", priority=1)], "/a?x=1", 1),
        ([rule("/a"), rule("x=1", "exact", "query")], "/a?x=1", 0),
        # Nothing.
        ([rule("/a")], "/b", None),
        ([rule("/a", "prefix")], "/ab", None),
        # What is compared is the canonical form.
        ([rule("/admin", "prefix")], "/x/%2e%2e/%61dmin//x", 0),
        ([rule("/admin", "prefix")], "/public%2fadmin", None),
        ([rule("/a%2fb")], "/a%2Fb", 0),
        # OPTIONS * and CONNECT have no path.
        ([rule("/", "prefix"), rule("/{r*}", "template"), rule("*")], "*", 2),
        ([rule("/", "prefix"), rule(".*", "regex")], "", 1),
        ([rule("/", "prefix")], "*", None),
    ],
)
def test_order_of_uri_rules(rules: list[model.Rule], target: str, index: int | None) -> None:
    assert chosen(router(*rules), ask(target)) == index


def test_order_of_types() -> None:
    given_ = {
        "protocol": rule("HTTP/1.1", "exact", "protocol"),
        "method": rule("GET", "exact", "method"),
        "host": rule("a.test", "exact", "host"),
        "cookie": rule("c=1", "exact", "cookie"),
        "query": rule("q=1", "exact", "query"),
        "header": rule("h=1", "exact", "header"),
        "service": rule("7", "exact", "service"),
        "uri": rule("/", "prefix"),
    }
    exchange = ask("/?q=1", headers={"h": "1", "cookie": "c=1"}, service="7")
    for type_ in TYPES:
        table = router(*given_.values())
        assert table.rules[0].type == type_
        route = table.route(exchange)
        assert route is not None
        assert route.rule.type == type_
        del given_[type_]


@pytest.mark.parametrize(
    ("host", "index"),
    [
        ("a.test", 3),
        ("A.TEST.:8080", 3),
        ("b.test", 1),
        ("x.b.test", 1),
        ("x.y.test", 2),
        ("test", 0),
        ("", 0),
        ("a:b:c", 0),
        ("[2001:db8:0::1]:80", 4),
    ],
)
def test_narrower_hosts_first(host: str, index: int) -> None:
    table = router(
        rule("/", "prefix"),
        rule("/", "prefix", hosts=("*.b.test", "b.test")),
        rule("/", "prefix", hosts=("*.test",)),
        rule("/", "prefix", hosts=("*.test", "a.test", "a.test")),
        rule("/", "prefix", hosts=("[2001:db8::1]",)),
    )
    assert chosen(table, ask("/x", host=host)) == index


def test_a_rule_with_several_hosts_has_a_place_for_each() -> None:
    table = router(rule("/a", hosts=("*.test", "z.test")), rule("/a", hosts=("y.test", "*.z.test")))
    assert chosen(table, ask("/a", host="y.test")) == 1
    assert chosen(table, ask("/a", host="z.test")) == 0
    assert chosen(table, ask("/a", host="x.z.test")) == 1
    assert len(table.rules) == 2


def test_narrower_methods_first_and_405_names_what_is_allowed() -> None:
    table = router(
        rule("/a", "prefix", methods=("POST", "PUT")),
        rule("/a/.*", "regex", methods=("DELETE",)),
        rule("/a/{x}", "template", methods=("PATCH",), published=False),
        rule("/b", methods=("GET",), hosts=("b.test",)),
        rule("/c"),
        rule("/c", methods=("GET",)),
    )
    assert chosen(table, ask("/a/1", "PUT")) == 0
    assert chosen(table, ask("/a/1", "DELETE")) == 1
    assert chosen(table, ask("/c")) == 5
    assert chosen(table, ask("/c", "HEAD")) == 4
    with pytest.raises(Abort, match="only for DELETE, POST, PUT") as caught:
        table.route(ask("/a/1", "GET"))
    assert (caught.value.status, caught.value.headers) == (405, ((b"allow", b"DELETE, POST, PUT"),))
    with pytest.raises(Abort) as caught:
        table.route(ask("/a", "get"))
    assert caught.value.headers == ((b"allow", b"POST, PUT"),)
    # Another host is not "but for the method".
    assert table.route(ask("/b", "POST")) is None
    assert table.route(ask("/x", "GET")) is None


def test_an_unpublished_rule_is_404_and_final() -> None:
    table = router(rule("/a", published=False, name="orders"), rule("/", "prefix"))
    with pytest.raises(Abort, match='rule "orders" is not published') as caught:
        table.route(ask("/a"))
    # A client cannot tell it from one that is not there.
    assert (caught.value.status, caught.value.detail, caught.value.title) == (
        NO_ROUTE.status,
        NO_ROUTE.detail,
        NO_ROUTE.title,
    )
    assert chosen(table, ask("/b")) == 1


def test_the_first_entry_whose_condition_holds() -> None:
    table = router(
        rule(
            "/a",
            "prefix",
            "uri",
            entry("canary", condition="request.headers['x-canary'] == '1'"),
            entry("inside", condition="source.ip == '192.0.2.1' && request.query['in'] == '1'"),
        ),
        rule("/", "prefix"),
    )
    for target, headers, upstream in (("/a?in=1", {"x-canary": "1"}, "canary"), ("/a?in=1", {}, "inside")):
        exchange = ask(target, headers=headers)
        route = table.route(exchange)
        assert route is not None
        assert route.pick(exchange).upstream == upstream
    with pytest.raises(Abort, match="no entry has a condition that holds") as caught:
        table.route(ask("/a"))
    assert caught.value.status == 404


def test_a_condition_may_ask_for_the_rule_that_it_belongs_to() -> None:
    holds = "route.name == 'mine' && 'x' in route.tags && route.properties['core'] == 'true'"
    table = router(
        rule("/a", "exact", "uri", entry(condition=holds), name="mine", tags=("x",), properties={"core": "true"}),
        rule("/b", "exact", "uri", entry(condition=holds), tags=("x",)),
    )
    assert chosen(table, ask("/a")) == 0
    exchange = ask("/b")
    with pytest.raises(Abort, match="no entry has a condition that holds"):
        table.route(exchange)
    assert exchange.route is None


def test_zones() -> None:
    rules = [
        rule("/a", "prefix", "uri", entry("pro", zone="PRO"), entry("any")),
        rule("/a/b", "prefix", "uri", entry("uat", zone="UAT")),
    ]
    for zone, upstreams in (("PRO", ["pro", "pro"]), ("UAT", ["any", "uat"]), ("", ["any", "any"])):
        table = router(*rules, zone=zone)
        got = []
        for target in ("/a", "/a/b"):
            exchange = ask(target)
            route = table.route(exchange)
            assert route is not None
            got.append(route.pick(exchange).upstream)
        assert got == upstreams
        warned = [(fault.path, "gateway.zone is not set" in fault.message) for fault in table.warnings]
        assert warned == (
            [(("routes", 1), True)] if zone == "" else [(("routes", 0, "routes", 1), False)] * (zone == "PRO")
        )
    assert router(*rules, zone="PRO").clusters == {
        "pro": ("routes", 0, "routes", 0, "targets", 0, "upstream"),
        "any": ("routes", 0, "routes", 1, "targets", 0, "upstream"),
    }


@pytest.mark.parametrize(
    ("type_", "kind", "value", "yes", "no"),
    [
        ("header", "exact", "X-Canary=1", {"headers": {"x-canary": "1"}}, {"headers": {"x-canary": "2"}}),
        ("header", "exact", "x-canary", {"headers": {"x-canary": ""}}, {"headers": {"x-other": "1"}}),
        ("header", "exact", "x-city=上海", {"headers": {"x-city": "上海"}}, {"headers": {"x-city": "?"}}),
        ("header", "prefix", "ua=curl", {"headers": {"ua": "curl/8"}}, {"headers": {"ua": "x curl"}}),
        ("header", "prefix", "ua=" + "x" * 70, {"headers": {"ua": "x" * 71}}, {"headers": {"ua": "x" * 69 + "y"}}),
        ("header", "regex", "ua=(?i)CURL.*", {"headers": {"ua": "curl/8"}}, {"headers": {"ua": "x curl"}}),
        ("cookie", "exact", "sid=1", {"headers": {"cookie": "a=b; sid=1"}}, {"headers": {"cookie": "SID=1"}}),
        ("cookie", "exact", "c=上", {"headers": {"cookie": "c=上"}}, {}),
        ("cookie", "exact", "sid", {"headers": {"cookie": "sid="}}, {"headers": {"cookie": "x=sid"}}),
        ("query", "regex", "p=[0-9]+", {"target": "/?x&p=12"}, {"target": "/?p=1x&p=1"}),
        ("query", "exact", "p", {"target": "/?p"}, {"target": "/?q=p"}),
        ("service", "prefix", "47", {"service": "4711"}, {"service": "11"}),
        ("service", "exact", "4711", {"service": "4711"}, {"service": ""}),
        ("service", "exact", "7, shop.Orders", {"service": "shop.Orders"}, {"service": "7, shop.Orders"}),
        ("service", "exact", "a-b", {"service": "a-b"}, {"service": "a"}),
        ("protocol", "exact", "HTTP/2", {"protocol": "HTTP/2"}, {"protocol": "HTTP/1.1"}),
        ("method", "exact", "PURGE", {"method": "PURGE"}, {"method": "GET"}),
        ("host", "exact", "*.a.test", {"host": "b.a.test"}, {"host": "a.test"}),
        ("host", "exact", "a.test", {"host": "a.test:80"}, {"host": "b.a.test"}),
        ("host", "prefix", "api.", {"host": "api.x"}, {"host": "x.api."}),
        ("host", "regex", ".*", {"host": ""}, None),
    ],
)
def test_other_types(type_: str, kind: str, value: str, yes: dict[str, Any], no: dict[str, Any] | None) -> None:
    table = router(rule(value, kind, type_))
    assert chosen(table, ask(**yes)) == 0
    if no is not None:
        assert table.route(ask(**no)) is None


RANGES = [
    rule("1000-1999, 7, orders", "exact", "service"),
    rule("1500-1509", "exact", "service"),
    rule("1505, 2000-4294967295", "exact", "service"),
    rule("1-9", "exact", "service", priority=1),
    rule("1", "prefix", "service"),
]


@pytest.mark.parametrize(
    ("service", "index"),
    [
        ("1000", 0), ("1999", 0), ("1499", 0), ("1510", 0), ("7", 3), ("orders", 0), ("Orders", None),
        ("1500", 1), ("1509", 1), ("1505", 2), ("2000", 2), ("4294967295", 2), ("4294967296", None),
        ("1", 3), ("9", 3), ("10", 4), ("999", None), ("01000", None), ("2000x", None), ("², 2000", None),
        ("٣٠٠٠", None), ("", None), ("99999999999", None), ("0", None), ("-5", None),
    ],
)  # fmt: skip
def test_numbers_ranges_and_names_of_services(service: str, index: int | None) -> None:
    table = router(*RANGES)
    assert table.warnings == []
    exchange = ask("/", service=service)
    if index is None:
        assert table.route(exchange) is None
    else:
        assert chosen(table, exchange) == index


def test_ranges_are_narrowed_as_other_rules_are() -> None:
    table = router(
        rule("1-100", "exact", "service", methods=("PUT",)),
        rule("1-100", "exact", "service", hosts=("a.test",)),
        rule("1-1000", "exact", "service"),
    )
    assert chosen(table, ask("/", method="PUT", host="b.test", service="50")) == 0
    assert chosen(table, ask("/", host="a.test", service="50")) == 1
    assert chosen(table, ask("/", host="b.test", service="50")) == 2
    with pytest.raises(Abort) as caught:
        router(rule("1-100", "exact", "service", methods=("PUT",))).route(ask("/", service="50"))
    assert caught.value.status == 405


@given(st.lists(st.tuples(st.integers(1, 300), st.integers(1, 300)), max_size=12), st.integers(1, 310))
def test_of_the_ranges_that_a_number_is_in_the_narrowest_decides(pairs: list[tuple[int, int]], number: int) -> None:
    spans = list(dict.fromkeys((min(pair), max(pair) + 1) for pair in pairs))
    table = router(*(rule(f"{low}-{high}", "exact", "service") for low, high in spans))
    fits = [(high - low, index) for index, (low, high) in enumerate(spans) if low <= number <= high]
    exchange = ask("/", service=str(number))
    if fits:
        assert chosen(table, exchange) == min(fits)[1]
    else:
        assert table.route(exchange) is None


def test_any_line_of_a_header_may_match() -> None:
    table = router(rule("x=1", "exact", "header"), rule("x", "exact", "header"))
    exchange = ask("/", headers={"x": "2"})
    assert chosen(table, exchange) == 1
    exchange.request.headers.append((b"x", b"1"))
    assert chosen(table, exchange) == 0


def test_names_are_looked_up_from_the_shorter_side() -> None:
    table = router(*(rule(f"n{number}=1", "exact", "query") for number in range(5)))
    assert chosen(table, ask("/?n3=1")) == 3
    assert chosen(table, ask("/?n3=1&a&b&c&d&e&f")) == 3
    assert table.route(ask("/?a&b&c&d&e&f")) is None


def test_many_rules_cost_what_few_do(monkeypatch: pytest.MonkeyPatch) -> None:
    """Counted, not timed: how many candidates a request is compared with."""
    rules = []
    for number in range(0, 1000, 5):
        rules += [
            rule(f"/svc{number}/order", "prefix"),
            rule(f"/svc{number}/item"),
            rule(f"/svc{number}/u/{{id}}", "template"),
            rule(f"/svc{number}-[0-9]+", "regex"),
            rule("/shop", "prefix", hosts=(f"shop{number}.test", f"*.shop{number}.test")),
        ]
    table = router(*rules)
    compared = 0

    class Counting:
        def __init__(self, candidate: Any) -> None:
            self.candidate = candidate

        def __getattr__(self, name: str) -> Any:
            nonlocal compared
            compared += name == "check"
            return getattr(self.candidate, name)

    from protogate.routing import index

    original = index._first

    def counting(candidates: Any, *rest: Any) -> int:
        return original(cast("Any", [Counting(candidate) for candidate in candidates]), *rest)

    monkeypatch.setattr(index, "_first", counting)
    for target, host, expected in (
        ("/svc990/order/1", "x", 990),
        ("/svc990/item", "x", 991),
        ("/svc990/u/1", "x", 992),
        ("/svc990-12", "x", 993),
        ("/shop/1", "shop990.test", 994),
        ("/shop/1", "a.b.shop990.test", 994),
        ("/nothing", "x", None),
    ):
        compared = 0
        assert chosen(table, ask(target, host=host)) == expected
        assert compared <= 2


# Against a plain search

SEGMENTS = st.sampled_from(["a", "b", "c", ""])
PATHS = st.lists(SEGMENTS, min_size=1, max_size=4).map(lambda parts: "/" + "/".join(parts))
TEMPLATES = st.lists(st.sampled_from(["a", "b", "{x}", "{y}", "{z*}"]), min_size=1, max_size=4).map(
    lambda parts: "/" + "/".join(parts)
)
REGEXES = st.sampled_from(["/a.*", ".*", "/.*", "/a/[ab]", "/(a|b)/c", "/b|/a", "/a", "^/ab?"])
HOSTS = st.sampled_from(["a.test", "b.test", "x.a.test", "*.test", "*.a.test"])
VALUES = {
    "uri": {"exact": PATHS, "prefix": PATHS, "template": TEMPLATES, "regex": REGEXES},
    "host": {"exact": HOSTS, "prefix": st.sampled_from(["a", "x."]), "regex": st.sampled_from(["a.*", ".*"])},
    "header": {
        "exact": st.sampled_from(["h", "h=1", "h=", "g=1"]),
        "prefix": st.sampled_from(["h=", "h=1", "h=12"]),
        "regex": st.sampled_from(["h=.*", "h=1.*", "g=[12]"]),
    },
    "query": {"exact": st.sampled_from(["q=1", "q"]), "regex": st.sampled_from(["q=.*", "q=1.*"])},
    "method": {"exact": st.sampled_from(["GET", "POST"]), "regex": st.just("GET|PUT")},
}


@st.composite
def rulesets(draw: st.DrawFn) -> list[model.Rule]:
    rules = []
    for _ in range(draw(st.integers(1, 9))):
        type_ = draw(st.sampled_from(["uri", "uri", "uri", *VALUES]))
        kind = draw(st.sampled_from(list(VALUES[type_])))
        hosts = () if type_ == "host" else tuple(draw(st.lists(HOSTS, max_size=2)))
        methods = () if type_ == "method" else tuple(draw(st.lists(st.sampled_from(["GET", "PUT"]), max_size=2)))
        value = draw(VALUES[type_][kind])
        rules.append(rule(value, kind, type_, hosts=hosts, methods=methods, priority=draw(st.integers(0, 1))))
    return rules


def built(rules: list[model.Rule]) -> Router | None:
    try:
        return router(*rules)
    except ConfigFaults:
        return None


EXCHANGES = st.builds(
    ask,
    target=st.builds(str.__add__, st.one_of(PATHS, st.just("*")), st.sampled_from(["", "?q=1", "?q=12&q=1"])),
    method=st.sampled_from(["GET", "PUT", "POST"]),
    host=st.sampled_from(["a.test", "b.test", "x.a.test", "y.x.a.test", "test", ""]),
    headers=st.dictionaries(st.sampled_from(["h", "g"]), st.sampled_from(["1", "12", "", "2"])),
)


@pytest.mark.unwatched
@settings(max_examples=250)
@given(rulesets(), st.lists(EXCHANGES, min_size=1, max_size=8))
def test_the_index_finds_what_a_plain_search_finds(rules: list[model.Rule], exchanges: list[Any]) -> None:
    table = built(rules)
    if table is None:
        return
    for exchange in exchanges:
        plain = next((item.rule for item in table._candidates if not miss(item, exchange.request)), None)
        trace = table.trace(exchange)
        if plain is None:
            assert trace.route is None
            if trace.abort is not None:
                assert trace.abort.status == 405
                allowed = trace.abort.headers[0][1].split(b", ")
                exchange.request.method = allowed[0]
                assert table.route(exchange) is not None
            else:
                assert table.route(exchange) is None
        else:
            assert trace.route is not None
            assert (trace.route.rule.index, trace.route.rule.name) == (plain.index, plain.name)
            assert trace.steps[-1].rule is plain
            # A warning is never wrong: what is said never to match is never what matches.
            path = ("routes", plain.index)
            assert path not in [fault.path for fault in table.warnings if "can never match" in fault.message]
            if exchange.request.path.startswith("/"):
                assert path not in [fault.path for fault in table.warnings if "never comes to" in fault.message]


# Trace


def test_a_trace_tells_why_each_rule_missed() -> None:
    table = router(
        rule("/a", methods=("POST",)),
        rule("/a", hosts=("b.test",)),
        rule("/a", hosts=("*.c.test",)),
        rule("/b", "prefix"),
        rule("x=1", "exact", "header"),
        rule("y=1", "exact", "query"),
        rule("/z", "exact", "uri", entry(zone="OTHER")),
        rule(
            "GET", "exact", "method", entry(model.Target(upstream="u", weight=3), model.Target(upstream="v", weight=1))
        ),
        rule("HTTP/1.1", "exact", "protocol"),
        zone="PRO",
    )
    trace = table.trace(ask("/a?y=2"))
    assert [(step.rule.index, step.matched, step.why) for step in trace.steps] == [
        (6, False, "no entry is for this zone"),
        (1, False, 'host "a.test" is not b.test'),
        (2, False, 'host "a.test" is not *.c.test'),
        (0, False, "method GET is not among POST"),
        (3, False, 'uri "/a" does not match prefix /b'),
        (4, False, "no header x"),
        (5, False, 'query "2" does not match exact y=1'),
        (7, True, "entry 0"),
    ]
    assert trace.route is not None
    assert [(target.upstream, share) for target, share in trace.odds] == [("u", 0.75), ("v", 0.25)]
    assert trace.abort is None


def test_a_trace_tells_once_why_a_rule_with_several_hosts_missed() -> None:
    table = router(rule("/b", hosts=("a.test", "*.b.test")), rule("/", "prefix"))
    assert [step.why for step in table.trace(ask("/a")).steps] == ['uri "/a" does not match exact /b', "entry 0"]
    assert len(table.trace(ask("/b", host="c.test")).steps) == 3  # each host for a reason of its own


def test_a_trace_tells_which_entries_were_passed_by() -> None:
    table = router(rule("/a", "exact", "uri", entry(condition="source.tls"), entry(zone="X"), entry()))
    trace = table.trace(ask("/a"))
    assert [step.why for step in trace.steps] == ["entry 0: its condition is false; entry 2"]


def test_a_trace_tells_what_the_router_answers() -> None:
    table = router(rule("/a", published=False), rule("/b", methods=("PUT",)))
    trace = table.trace(ask("/a"))
    assert trace.abort is not None
    assert (trace.abort.status, trace.route, trace.odds) == (404, None, ())
    assert trace.steps[-1].why == 'rule "uri /a" is not published'
    trace = table.trace(ask("/b"))
    assert trace.abort is not None
    assert trace.abort.status == 405
    trace = table.trace(ask("/c"))
    assert (trace.abort, trace.route, [step.matched for step in trace.steps]) == (None, None, [False, False])
