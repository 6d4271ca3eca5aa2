from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from protogate.config import convert as convert_module
from protogate.config.convert import convert
from protogate.config.faults import line
from protogate.config.model import Config, Rule, Seconds

LISTENERS = [{"name": "web", "address": "127.0.0.1:0"}]
TARGETS = [{"url": "http://a"}]
SCHEMES = "http://, https://, ws://, wss://, h2c://, h2://, grpc://, grpcs://, tls://"


def config(**more: Any) -> Config:
    made, faults = convert({"listeners": LISTENERS, **more})
    assert not faults
    assert made is not None
    return made


def faults(value: Any) -> list[str]:
    made, found = convert(value)
    assert made is None
    return [line(fault) for fault in found]


def test_defaults_fill_what_is_left_out() -> None:
    made = config()
    assert made.gateway.timeouts.connect == 3
    assert made.gateway.limits.request_line == 8192
    assert made.access_log is None
    assert made.listeners[0].protocols == ("http1",)


def test_keys_are_camel_case_and_units_become_numbers() -> None:
    made = config(
        gateway={"pathPolicy": "raw", "timeouts": {"clientHeader": "250ms"}, "limits": {"requestLine": "1KiB"}}
    )
    assert made.gateway.path_policy == "raw"
    assert made.gateway.timeouts.frozen().client_header == 0.25
    assert type(made.gateway.timeouts.client_header) is Seconds
    assert made.gateway.limits.frozen().request_line == 1024


def test_none_is_as_good_as_leaving_an_optional_value_out() -> None:
    upstream = {"name": "a", "discovery": None, "timeouts": {"connect": None, "dns": "1s"}}
    made = config(upstreams=[upstream])
    assert made.upstreams[0].discovery is None
    assert made.upstreams[0].timeouts.connect is None
    assert made.upstreams[0].timeouts.dns == 1


def test_parameters_of_modules_are_theirs() -> None:
    params = {"a": [1, {"b": None}], "c": "${x}"}
    assert config(modules=[{"name": "m", "actionParam": params}]).modules[0].action_param == params


def test_whole_numbers_are_good_enough_for_fractions() -> None:
    assert config(modules=[{"name": "m", "grayRatio": 5}]).modules[0].gray_ratio == 5.0


def test_one_bad_entry_does_not_hide_the_faults_of_others() -> None:
    assert faults(
        {
            "listeners": [
                {"name": 5, "address": "nowhere"},
                7,
                {"name": "b", "address": "127.0.0.1:1", "protocols": []},
            ],
            "gateway": {"watch": "yes", "drain": 5, "pathPolicy": "cannonical", "workers": 257, "name": None},
            "routes": [
                {"value": "/", "routes": [{"targets": [{"url": "ftp://x", "weight": 1.5}]}], "hosts": ["a", 3, "b:1"]},
                {"routes": {}, "properties": []},
            ],
            "modules": None,
            "accessLog": {"file": "-", "sample": True},
        }
    ) == [
        "listeners[0].name: expected a string that is not empty, got 5; put it in quotes",
        'listeners[0].address: expected host:port, [v6]:port or unix:/path, got "nowhere": the port is missing',
        "listeners[1]: expected a mapping with keys such as name, address, got 7",
        "listeners[2].protocols: expected a list of at least one entry, got an empty list",
        'gateway.watch: expected true or false, got "yes"; write true',
        "gateway.drain: expected a duration such as 250ms, 10s, 5m or 1h, got 5 without a unit",
        'gateway.pathPolicy: expected one of canonical, raw, reject, got "cannonical"; did you mean canonical?',
        "gateway.workers: expected auto or a whole number from 0 to 256, got 257",
        "gateway.name: expected a string, got nothing",
        f'routes[0].routes[0].targets[0].url: expected a URL that begins with {SCHEMES}, got "ftp://x"',
        "routes[0].routes[0].targets[0].weight: expected a whole number from 0 to 1000, got 1.5",
        "routes[0].hosts[1]: expected a string, got 3; put it in quotes",
        'routes[0].hosts[2]: expected a host without a port, got "b:1": hosts are compared without it',
        'routes[1].routes: expected a list, got an empty mapping; each entry begins with "- "',
        "routes[1].properties: expected a mapping, got an empty list",
        'routes[1]: the key "value" is missing',
        "modules: expected a list, got nothing; remove the key, or write []",
        "accessLog.sample: expected a number from 0 to 1, got true",
    ]


@pytest.mark.parametrize("value", [None, [], "x", 5, True])
def test_the_whole_must_be_a_mapping(value: object) -> None:
    (only,) = faults(value)
    assert only.startswith("expected a mapping with keys such as listeners, got ")


@pytest.mark.parametrize("value", [False, 0.0, "0", "", "Auto", -1, None])
def test_a_number_of_workers_is_not_just_equal(value: object) -> None:
    (only,) = faults({"listeners": LISTENERS, "gateway": {"workers": value}})
    assert only.startswith("gateway.workers: expected auto or a whole number from 0 to 256, got ")
    assert only.endswith("; remove the quotes") is (value == "0")


@pytest.mark.parametrize(("value", "workers"), [("auto", -1), (0, 0), (1, 1), (256, 256)])
def test_workers_are_a_number_or_auto(value: object, workers: int) -> None:
    assert config(gateway={"workers": value}).gateway.workers == workers


def test_a_boolean_is_no_number() -> None:
    (only,) = faults({"listeners": LISTENERS, "gateway": {"limits": {"connections": True}}})
    assert only == "gateway.limits.connections: expected a number of at least 1, got true"


def test_a_number_without_bounds_has_none() -> None:
    rule = {"value": "/", "routes": [{"targets": TARGETS}]}
    assert config(routes=[{**rule, "priority": -5}]).routes[0].priority == -5
    assert faults({"listeners": LISTENERS, "routes": [{**rule, "priority": "-5"}, {**rule, "priority": "high"}]}) == [
        'routes[0].priority: expected a number, got "-5"; remove the quotes',
        'routes[1].priority: expected a number, got "high"',
    ]


def test_a_misspelt_key_is_one_fault_but_an_odd_one_leaves_its_place_empty() -> None:
    assert faults({"listeners": [{"name": "a", "adress": "x"}]}) == [
        'listeners[0].adress: unknown key; did you mean "address"?'
    ]
    assert faults({"listeners": [{"name": "a", "xyz": "x"}]}) == [
        "listeners[0].xyz: unknown key; known: name, address, protocols, tls, deadlineHeader, proxyProtocol",
        'listeners[0]: the key "address" is missing',
    ]


def test_every_check_that_the_model_names_is_known_and_made() -> None:
    values = {
        "gateway": {"trustedProxies": ["x"]},
        "upstreams": [{"name": "a", "discovery": {"dns": "x"}}],
        "routes": [{"value": "/", "hosts": ["*"], "routes": [{"targets": [{"url": "x"}]}]}],
    }
    found = faults({"listeners": [{"name": "a", "address": "x"}], **values})
    assert len(found) == 5


def test_unknown_types_are_not_guessed() -> None:
    with pytest.raises(NotImplementedError):
        convert_module._hook(complex, "1j")


_VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-5, 2000)
    | st.floats(-1, 1001, allow_nan=False)
    | st.sampled_from(["", "a", "10s", "8KiB", "127.0.0.1:1", "http://a", "true", "GET"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                [key for struct in (Config, Rule) for key in struct.__struct_encode_fields__]
                + [
                    "name",
                    "address",
                    "url",
                    "weight",
                    "targets",
                    "upstream",
                    "timeouts",
                    "limits",
                    "connect",
                    "dns",
                    "x",
                ]
            ),
            inner,
            max_size=5,
        )
    ),
    max_leaves=25,
)


@given(_VALUES)
def test_the_walk_and_msgspec_agree(value: Any) -> None:
    """What is refused has a fault that says so; what has none is what msgspec makes of it."""
    made, found = convert(value)
    if made is None:
        assert found
    else:
        assert not found
        assert made == msgspec.convert(value, Config, dec_hook=convert_module._hook)


@given(_VALUES)
def test_what_msgspec_refuses_has_a_fault(value: Any) -> None:
    whole = {"listeners": LISTENERS, "gateway": value}
    try:
        msgspec.convert(whole, Config, dec_hook=convert_module._hook)
    except msgspec.ValidationError:
        assert convert(whole)[1]


def test_a_version_without_quotes_is_told_to_have_some() -> None:
    tls = {"certificates": [{"cert": "a.pem", "key": "a.key"}], "minVersion": 1.2}
    assert faults({"listeners": [{"name": "a", "address": "127.0.0.1:1", "tls": tls}]}) == [
        "listeners[0].tls.minVersion: expected one of 1.2, 1.3, got 1.2; put it in quotes"
    ]
