from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protogate.config.checks import check
from protogate.config.faults import line


def faults(**value: Any) -> list[str]:
    return [line(fault) for fault in check(value)[0]]


def warnings(**value: Any) -> list[str]:
    found, warned = check(value)
    assert not found
    return [line(warning) for warning in warned]


def route(*targets: Any) -> list[Any]:
    return [{"value": "/", "routes": [{"targets": list(targets)}]}]


A = {"name": "a", "endpoints": [{"url": "http://10.0.0.1"}]}


def test_names_are_given_once() -> None:
    assert faults(listeners=[{"name": "a"}, {"name": "b"}, {"name": "a"}]) == [
        'listeners[2].name: "a" is the name of listeners[0] already'
    ]
    assert faults(upstreams=[A, A]) == ['upstreams[1].name: "a" is the name of upstreams[0] already']


def test_each_listener_in_the_way_of_another_is_told_once() -> None:
    addresses = ["127.0.0.1:1", "localhost:1", "0.0.0.0:1", "[::1]:1", "127.0.0.1:0", "127.0.0.1:0", "nonsense"]
    assert faults(listeners=[{"address": address} for address in addresses]) == [
        'listeners[1].address: "localhost:1" cannot be open beside "127.0.0.1:1" of listeners[0]',
        'listeners[2].address: "0.0.0.0:1" cannot be open beside "127.0.0.1:1" of listeners[0]',
    ]


def test_a_codec_is_named_once_per_listener() -> None:
    assert faults(listeners=[{"protocols": ["a", "b", "a", 5, 5]}]) == ['listeners[0].protocols[2]: "a" is given twice']


def test_limits_that_would_refuse_everything() -> None:
    limits = {"requestLine": "127B", "headerLine": "128B", "headers": 0, "responseHeaders": "many", "body": 0}
    assert faults(gateway={"limits": limits}) == [
        'gateway.limits.requestLine: expected at least 128B, got "127B": every message would be refused',
        "gateway.limits.headers: expected at least 128B, got 0: every message would be refused",
    ]


def test_an_upstream_needs_a_way_to_its_endpoints() -> None:
    message = "an upstream needs endpoints or discovery"
    assert faults(upstreams=[{"name": "a"}]) == [f"upstreams[0]: {message}"]
    assert faults(upstreams=[{"name": "a", "endpoints": []}]) == [f"upstreams[0].endpoints: {message}"]
    assert faults(upstreams=[{"name": "a", "discovery": {"dns": "a:1"}}]) == []
    assert faults(upstreams=[{"name": "a", "endpoint": []}]) == []  # an unknown key, told elsewhere
    assert faults(upstreams=[{"name": "a", "endpoints": "none"}]) == []  # a wrong type, told elsewhere


SCHEMES = "http://, https://, ws://, wss://, h2c://, h2://, grpc://, grpcs://, tls://"


def test_endpoints_are_hosts_and_ports_and_each_is_given_once() -> None:
    endpoints = [
        {"url": "http://a"},
        {"url": "http://A:80/"},
        {"url": "http://a:81"},
        {"url": "htps://a"},
        {"url": 5},
        5,
    ]
    assert faults(upstreams=[{"name": "x", "endpoints": endpoints}]) == [
        'upstreams[0].endpoints[1].url: "http://A:80/" is endpoints[0] already; give that one the weight of both',
        f'upstreams[0].endpoints[3].url: expected a URL that begins with {SCHEMES}, got "htps://a"; did you mean https://?',
    ]


def test_the_scheme_of_an_endpoint_may_be_the_codec_of_its_upstream() -> None:
    endpoints = [{"url": "mini://a:7"}]
    assert faults(upstreams=[{"name": "x", "protocol": "mini", "endpoints": endpoints}]) == []
    assert len(faults(upstreams=[{"name": "x", "protocol": 5, "endpoints": endpoints}])) == 1


def test_a_target_is_an_upstream_or_a_url() -> None:
    assert faults(
        upstreams=[A], routes=route({}, {"upstream": "a", "url": "http://b"}, {"weight": 1}, {"upstrem": "a"}, 5)
    ) == [
        "routes[0].routes[0].targets[0]: a target needs an upstream or a url",
        "routes[0].routes[0].targets[1]: a target has an upstream or a url, not both",
        "routes[0].routes[0].targets[2]: a target needs an upstream or a url",
    ]


def test_upstreams_are_looked_up_by_name() -> None:
    assert faults(
        upstreams=[{**A, "name": "orders"}], routes=route({"upstream": "order"}, {"upstream": "xyz"}, {"upstream": 5})
    ) == [
        'routes[0].routes[0].targets[0].upstream: there is no upstream "order"; did you mean "orders"?',
        'routes[0].routes[0].targets[1].upstream: there is no upstream "xyz"; known: orders',
    ]
    assert faults(routes=route({"upstream": "a"})) == [
        'routes[0].routes[0].targets[0].upstream: there is no upstream "a"; none is known'
    ]


def test_what_is_never_used_is_a_warning() -> None:
    used = route({"upstream": "a"})
    assert warnings(upstreams=[A, {**A, "name": "b"}], routes=used) == [
        'upstreams[1].name: no route sends anything to the upstream "b", and no module asks it'
    ]
    module = {"name": "m", "actionParam": {"keys": [{"url": {"upstream": "b", "path": "/"}}]}}
    assert warnings(upstreams=[A, {**A, "name": "b"}], routes=used, modules=[module]) == []
    module = {"name": "m", "actionParam": {"upstream": ["b"], "b": "b"}}
    assert len(warnings(upstreams=[A, {**A, "name": "b"}], routes=used, modules=[module, {"name": "n"}, 7])) == 1


def test_an_outlier_among_none_is_a_warning() -> None:
    alone = {"name": "a", "endpoints": [{"url": "http://a"}], "outliers": {}}
    used = route({"upstream": "a"})
    (told,) = warnings(upstreams=[alone], routes=used)
    assert told.startswith("upstreams[0].outliers: there is one endpoint")
    assert warnings(upstreams=[{**alone, "discovery": {"dns": "a:80"}}], routes=used) == []
    assert warnings(upstreams=[{**alone, "endpoints": [{"url": "http://a"}, {"url": "http://b"}]}], routes=used) == []


@pytest.mark.parametrize(
    ("rule", "told"),
    [
        ({"value": "/api/*"}, 'for every path below it write "/api" with matcherType: prefix'),
        ({"value": "/*", "matcherType": "prefix"}, 'for every path below it write "/" with matcherType: prefix'),
        ({"value": "/orders/{id}"}, "for a placeholder write {name}, and matcherType: template"),
        ({"value": "/orders/*/lines", "matcherType": "prefix"}, "and matcherType: template"),
    ],
)
def test_a_path_that_only_looks_like_a_pattern_is_a_warning(rule: dict[str, Any], told: str) -> None:
    (warned,) = warnings(routes=[{**rule, "routes": [{"targets": [{"url": "http://a"}]}]}])
    assert warned.startswith("routes[0].value: ")
    assert warned.endswith(told)


@pytest.mark.parametrize(
    "rule",
    [
        {"value": "/api/*", "matcherType": "regex"},
        {"value": "/orders/{id}", "matcherType": "template"},
        {"value": "/*", "type": "header"},
        {"value": "/2*3"},
        {"value": "/a{b}c"},
        {"value": 7},
    ],
)
def test_a_pattern_and_what_is_none_are_not(rule: dict[str, Any]) -> None:
    assert warnings(routes=[{**rule, "routes": [{"targets": [{"url": "http://a"}]}]}]) == []


@pytest.mark.parametrize("other", [{"gray": 5}, {"when": "request.path == '/'"}])
def test_a_weight_that_counts_for_nothing_is_a_warning(other: dict[str, Any]) -> None:
    told = warnings(routes=route({"url": "http://a"}, {"url": "http://b", "weight": 5, **other}))
    message = "a target with gray or when is for these requests alone: its weight counts for nothing"
    assert told == [f"routes[0].routes[0].targets[1].weight: {message}"]
    assert warnings(routes=route({"url": "http://a", "weight": 5}, {"url": "http://b", **other})) == []


@pytest.mark.parametrize("network", ["0.0.0.0/0", "::/0"])
def test_who_believes_everybody_is_warned(network: str) -> None:
    (told,) = warnings(gateway={"trustedProxies": ["10.0.0.0/8", network, 7]})
    assert told.startswith("gateway.trustedProxies[1]: whoever connects is believed")
    assert warnings(gateway={"trustedProxies": network}) == warnings(gateway=7) == []


@pytest.mark.parametrize(("weights", "count"), [([0, 0], 1), ([0], 1), ([0, 1], 0), ([None], 0), ([False], 0), ([], 0)])
def test_weights_that_are_all_nought_are_a_warning(weights: list[Any], count: int) -> None:
    targets = [{"url": "http://a", **({} if weight is None else {"weight": weight})} for weight in weights]
    assert len(warnings(routes=route(*targets))) == count
    endpoints = [{**target, "url": f"http://a:{index + 1}"} for index, target in enumerate(targets)]
    upstream = {"name": "a", "endpoints": endpoints or [{"url": "http://a"}]}
    assert len(warnings(upstreams=[upstream], routes=route({"upstream": "a"}))) == count
    assert warnings(upstreams=[{**upstream, "discovery": {"dns": "a:1"}}], routes=route({"upstream": "a"})) == []


def test_a_network_zone_that_nobody_knows_is_no_fault() -> None:
    assert warnings(routes=[{"value": "/", "routes": [{"zone": "MOON", "targets": [{"url": "http://a"}]}]}]) == []


_ANY = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                [
                    "gateway",
                    "limits",
                    "headers",
                    "listeners",
                    "upstreams",
                    "routes",
                    "targets",
                    "endpoints",
                    "url",
                    "name",
                    "upstream",
                ]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=20,
)


@given(_ANY)
def test_values_of_any_type_are_passed_over(value: Any) -> None:
    found, warned = check(value)
    assert isinstance(found, list)
    assert isinstance(warned, list)


def test_an_upstream_whose_name_cannot_be_read_may_be_the_one_that_is_meant() -> None:
    for broken in ([{"nmae": "a"}], [{"name": 5}], ["a"], {"name": "a"}, None):
        told = faults(upstreams=broken, routes=route({"upstream": "a"}))
        assert not any("there is no upstream" in fault for fault in told), told


def test_who_speaks_for_clients_on_a_port_has_a_network() -> None:
    def told(address: str, **given: Any) -> list[str]:
        return faults(listeners=[{"name": "a", "address": address, "proxyProtocol": given}])

    fault = "nobody is trusted here: write the networks of your proxies, e.g. 10.0.0.0/8"
    assert told("127.0.0.1:1") == [f"listeners[0].proxyProtocol: {fault}"]
    assert told("[::1]:1", trusted=[], mode="optional") == [f"listeners[0].proxyProtocol.trusted: {fault}"]
    assert told("127.0.0.1:1", trusted=["10.0.0.0/8"]) == told("unix:/run/a") == []
    assert told("127.0.0.1:1", trustd=["10.0.0.0/8"]) == [], "that is told as an unknown key"
    assert faults(listeners=[{"name": "a", "address": "127.0.0.1:1", "proxyProtocol": "v1"}]) == []
