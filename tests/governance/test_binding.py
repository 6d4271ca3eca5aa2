"""Binding: from configuration entries to what a pipeline runs."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from zope.interface.verify import verifyObject

from protogate import cohort
from protogate.config.faults import ConfigFaults
from protogate.config.model import Module, Seconds
from protogate.context import uncounted
from protogate.errors import ConfigError
from protogate.exchange.pipeline import run
from protogate.expression.template import Template
from protogate.governance import stages
from protogate.governance.binding import bind
from protogate.interfaces import IModuleFactory
from protogate.message import Response
from protogate.plugins import find as installed

FAKE = "fake"


@pytest.fixture
def find(fakes):
    return fakes.finder(fakes.Factory())


def entry(**fields):
    return Module(**({"name": FAKE} | fields))


def faults(modules, find):
    """What bind complains about, as (path, message)."""
    with pytest.raises(ConfigFaults) as caught:
        bind(modules, find)
    return [(fault.path, fault.message) for fault in caught.value.faults]


def only(modules, find):
    """The one bound module."""
    (bound,) = [bound for stage in bind(modules, find).values() for bound in stage]
    return bound


# -- where and in which order


def test_fakes_are_true_factories(fakes):
    verifyObject(IModuleFactory, fakes.Factory())


def test_every_stage_is_there_even_without_modules(find):
    assert bind((), find) == dict.fromkeys(stages.STAGES, ())


def test_rule_order_sorts_within_a_stage_and_the_file_where_it_is_equal(find, exchange):
    modules = [
        entry(rule_order=order, action_param={"as": name})
        for order, name in ((5, "e"), (0, "b"), (-1, "a"), (0, "c"), (3, "d"))
    ]
    run(bind(modules, find)["PRE_REQUEST"], exchange)
    assert exchange.notes["ran"] == ["a", "b", "c", "d", "e"]


def test_stage_defaults_to_the_first_one_of_the_factory(find):
    assert only([entry()], find).stage == "PRE_REQUEST"


@pytest.mark.parametrize(("alias", "stage"), stages.ALIASES.items())
def test_aliases(fakes, alias, stage):
    find = fakes.finder(fakes.Factory(stages=stages.STAGES))
    assert [bound.stage for bound in bind([entry(stage=alias)], find)[stage]] == [stage]


def test_what_the_entry_says_is_on_the_bound(find):
    bound = only([entry(rule_order=7, timeout=Seconds(0.5))], find)
    assert (bound.name, bound.order, bound.timeout, bound.count) == (FAKE, 7, 0.5, uncounted)
    assert repr(bound) == "<Bound fake PRE_REQUEST 7>"


@pytest.mark.parametrize("guards", [False, True])
@pytest.mark.parametrize(("handle", "opens"), [("", None), ("continue", True), ("return", False)])
def test_timeout_handle_defaults_to_what_the_module_wants(fakes, guards, handle, opens):
    find = fakes.finder(fakes.Factory(guards=guards))
    assert only([entry(timeout_handle=handle)], find).opens == (not guards if opens is None else opens)


@pytest.mark.parametrize(("handle", "proceeds"), [("return", False), ("continue", True)])
def test_exception_handle(find, handle, proceeds):
    assert only([entry(exception_handle=handle)], find).proceeds is proceeds


def test_last_stage_outlives_the_client(fakes):
    find = fakes.finder(fakes.Factory(stages=stages.STAGES))
    bound = bind([entry(stage=stage) for stage in stages.STAGES], find)
    assert [stage for stage in stages.STAGES if bound[stage][0].outlives] == ["POST_RESPONSE"]


# -- for whom


def test_module_for_everybody_has_nothing_to_ask(find):
    assert only([entry()], find).applies is None
    assert only([entry(condition=" 1 == 1 ", gray_ratio=100.0)], find).applies is None


def test_condition_decides(find, fakes):
    bound = only([entry(condition="request.method == 'POST'")], find)
    assert bound.applies(fakes.Exchange(b"POST")) is True
    assert bound.applies(fakes.Exchange(b"GET")) is False


def test_condition_may_name_the_response_from_pre_response_on(find, exchange):
    bound = only([entry(stage="PRE_RESPONSE", condition="response.status >= 500")], find)
    exchange.response = Response(502)
    assert bound.applies(exchange) is True
    assert faults([entry(condition="response.status >= 500")], find)[0][0] == ("modules", 0, "condition")


def test_template_may_name_the_response_from_pre_response_on(find, exchange):
    params = {"as": "${response.status}"}
    exchange.response = Response(502)
    assert only([entry(stage="PRE_RESPONSE", action_param=params)], find).module.params["as"](exchange) == "502"
    assert faults([entry(action_param=params)], find)[0][0] == ("modules", 0, "actionParam", "as")


@pytest.mark.parametrize("never", [{"gray_ratio": 0.0}, {"condition": "false"}, {"condition": "1 > 2"}])
def test_ratio_zero_and_a_false_condition_apply_to_nobody_without_hashing(find, exchange, monkeypatch, never):
    monkeypatch.setattr(cohort, "position", None)
    assert only([entry(**never)], find).applies(exchange) is False


def test_ratio_hundred_hashes_nothing(find, exchange, monkeypatch):
    monkeypatch.setattr(cohort, "position", None)
    assert only([entry(condition="request.method == 'GET'", gray_ratio=100.0)], find).applies(exchange) is True


def test_a_larger_ratio_keeps_who_was_gray(find, fakes):
    @given(st.ip_addresses(v=4).map(str), st.floats(0.1, 99), st.floats(0.1, 99))
    def check(ip, one, other):
        small, large = sorted((one, other))
        exchange = fakes.Exchange(ip=ip)
        applies = [only([entry(gray_ratio=ratio)], find).applies(exchange) for ratio in (small, large)]
        assert applies != [True, False]
        assert applies[0] == (cohort.position(ip) < small)

    check()


def test_gray_key_decides_who_is_the_same(find, fakes):
    bound = only([entry(gray_ratio=50.0, gray_key="request.headers['x-user']")], find)
    users = [b"user-%d" % number for number in range(400)]
    gray = [bound.applies(fakes.Exchange(headers=[(b"x-user", user)], ip="10.0.0.1")) for user in users]
    again = [bound.applies(fakes.Exchange(headers=[(b"x-user", user)], ip="10.0.0.2")) for user in users]
    assert gray == again
    assert 150 < sum(gray) < 250


def test_condition_and_ratio_must_both_agree(find, fakes):
    bound = only([entry(gray_ratio=99.9, condition="request.method == 'POST'")], find)
    assert bound.applies(fakes.Exchange(b"POST")) is True
    assert bound.applies(fakes.Exchange(b"GET")) is False


# -- parameters


def test_each_string_that_holds_a_template_is_compiled_wherever_it_stands(find, exchange):
    bound = only([entry(action_param={"a": "plain", "b": {"c": ["${func.requestId}", 3]}, "d": None})], find)
    params = bound.module.params
    assert (params["a"], params["b"]["c"][1], params["d"]) == ("plain", 3, None)
    assert isinstance(params["b"]["c"][0], Template)
    assert params["b"]["c"][0](exchange) == exchange.id


def test_constant_template_is_a_plain_text(find):
    assert only([entry(action_param={"a": "$${x}"})], find).module.params == {"a": "${x}"}


# -- faults


def test_unknown_module_says_what_is_installed(find):
    ((path, message),) = faults([entry(), entry(name="fkae")], find)
    assert path == ("modules", 1, "name")
    assert message == "no module named 'fkae'; installed: fake"


def test_stage_that_the_module_does_not_know_names_those_it_does(find):
    ((path, message),) = faults([entry(stage="LOG")], find)
    assert path == ("modules", 0, "stage")
    assert message == "fake does not run in POST_RESPONSE; allowed: PRE_REQUEST, PRE_RESPONSE"


def test_stage_that_does_not_exist_names_the_nearest(find):
    ((_, message),) = faults([entry(stage="pre_reqest")], find)
    assert message == ('unknown stage "pre_reqest"; did you mean "PRE_REQUEST"? fake allows PRE_REQUEST, PRE_RESPONSE')
    ((_, message),) = faults([entry(stage="x")], find)
    assert "known: PRE_REQUEST, PRE_UPSTREAM, PRE_RESPONSE, ERROR, POST_RESPONSE" in message


def test_all_faults_of_all_entries_come_together(find, fakes):
    def make(params):
        raise ConfigFaults([ConfigError("bad a", ("a",)), ConfigError("bad b", ("b", 0))])

    def one(params):
        raise ConfigError("bad c", ("c",))

    find = fakes.finder(fakes.Factory(), fakes.Factory("many", make=make), fakes.Factory("one", make=one))
    found = faults(
        [
            entry(
                condition="request.methd == 'GET'",
                gray_key="source.",
                stage="NEVER",
                action_param={"allow": ["10.0.0.0/8", "a", "b", "${"]},
            ),
            entry(name="many"),
            entry(name="gone", stage="LATER", condition="1"),
            entry(name="one"),
        ],
        find,
    )
    assert [path for path, _ in found] == [
        ("modules", 0, "stage"),
        ("modules", 0, "condition"),
        ("modules", 0, "grayKey"),
        ("modules", 0, "actionParam", "allow", 3),
        ("modules", 1, "actionParam", "a"),
        ("modules", 1, "actionParam", "b", 0),
        ("modules", 2, "name"),
        ("modules", 2, "stage"),
        ("modules", 2, "condition"),
        ("modules", 3, "actionParam", "c"),
    ]


def test_stage_of_an_unknown_module_is_checked_as_far_as_can_be(find):
    for stage in ("", "OUTBOUND"):
        assert [path for path, _ in faults([entry(name="gone", stage=stage)], find)] == [("modules", 0, "name")]
    # That response is not there yet in PRE_REQUEST is known without the module.
    found = faults([entry(name="gone", stage="INBOUND", condition="response.status == 200")], find)
    assert [path[2] for path, _ in found] == ["name", "condition"]


def test_what_follows_from_a_broken_template_is_not_reported_again(fakes):
    def make(params):
        raise ConfigFaults([ConfigError("cannot be", ("a", 0)), ConfigError("bad b", ("b",))])

    found = faults([entry(action_param={"a": ["${"], "b": 1})], fakes.finder(fakes.Factory(make=make)))
    assert [path[3:] for path, _ in found] == [("a", 0), ("b",)]
    assert "never closed" in found[0][1]


def test_factory_that_breaks_is_a_fault_and_no_traceback(fakes):
    def make(params):
        raise ZeroDivisionError("division by zero")

    assert faults([entry()], fakes.finder(fakes.Factory(make=make))) == [
        (("modules", 0, "actionParam"), "module 'fake' cannot be built: ZeroDivisionError: division by zero")
    ]


def test_what_is_no_module_is_a_fault(fakes):
    ((path, message),) = faults([entry()], fakes.finder(fakes.Factory(make=lambda params: object())))
    assert path == ("modules", 0, "actionParam")
    assert "no IModule" in message


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (ImportError("no module named x"), "module 'fake' cannot be loaded: ImportError: no module named x"),
        (LookupError(), "no module named 'fake'"),
    ],
)
def test_part_that_cannot_be_loaded_is_a_fault(error, message):
    def find(interface, name):
        raise error

    assert faults([entry()], find) == [(("modules", 0, "name"), message)]


def test_warnings_of_a_module_tell_their_place(fakes):
    def make(params):
        module = fakes.Module(params)
        module.warnings = [ConfigError("is odd", ("a", 1))]
        return module

    find = fakes.finder(fakes.Factory(), fakes.Factory("odd", make=make))
    bound = bind([entry(), entry(name="odd")], find)["PRE_REQUEST"]
    told = [[(warning.path, warning.message) for warning in module.warnings] for module in bound]
    assert told == [[], [(("modules", 1, "actionParam", "a", 1), "is odd")]]


@pytest.mark.parametrize(
    ("name", "param", "seconds", "timeout"),
    [
        ("rateLimit", {"limit": "1/s", "name": "a", "redis": {"url": "redis://a", "timeout": "50ms"}}, 0.05, 0.05),
        ("quota", {"limit": 1, "per": "day", "name": "a", "redis": {"url": "redis://a", "timeout": "3s"}}, 3, 2),
        ("keyAuth", {"redis": {"url": "redis://a", "timeout": "3s"}}, 3, 2),
        ("loginCheck", {"redis": {"url": "redis://a", "timeout": "3s"}}, 3, 2),
        ("forwardAuth", {"ask": {"upstream": "auth"}, "timeout": "3s"}, 3, 2),
        ("concurrencyLimit", {"limit": 1, "queue": 1, "wait": "3s"}, 3, 2),
        ("cache", {"wait": "3s"}, 3, 2),
        ("faultInject", {"delay": "3s"}, 3, 2),
    ],
)
def test_an_entry_that_gives_up_before_its_module_does_is_warned_of(name, param, seconds, timeout):
    def warnings(**more):
        bound = bind([Module(name=name, action_param=param, **more)], installed, ("auth",))
        return [warning for stage in bound.values() for each in stage for warning in each.warnings]

    (warning,) = warnings(timeout=timeout)
    assert warning.path[:3] == ("modules", 0, "actionParam")
    given = param
    for step in warning.path[3:]:
        given = given[step]
    assert given in ("3s", "50ms"), "it names the parameter"
    assert warning.message.startswith(f"it may take {seconds:g}s, and the timeout of the entry is {timeout:g}s")
    assert warnings(timeout=seconds + 0.001) == warnings(timeout=0) == []


RBAC = {"rules": [{"name": "staff", "users": "alice", "then": "allow"}]}
KEYS = {"redis": {"url": "redis://a"}}


def orders(*entries):
    """The warnings of entries that run before the upstream: name, params, ruleOrder, condition, shadow."""
    made = [
        Module(
            name=name, stage="PRE_UPSTREAM", action_param=params, rule_order=order, condition=condition, shadow=shadow
        )
        for name, params, order, condition, shadow in entries
    ]
    bound = bind(made, installed)["PRE_UPSTREAM"]
    return [(warning.path, warning.message) for each in bound for warning in each.warnings]


@pytest.mark.parametrize(
    ("name", "params"), [("rbac", RBAC), ("accessList", {"deny": ["10.0.0.0/8"]}), ("keyAuth", KEYS)]
)
def test_who_lets_in_behind_a_cache_is_warned_of(name, params):
    text = "modules[1], cache, answers what it keeps before this one is asked who may have it: "
    (warning,) = orders((name, params, 5, "true", False), ("cache", {}, 0, "request.path == '/a'", False))
    assert warning == (("modules", 0, "ruleOrder"), text + "give this one a lower ruleOrder")
    assert orders((name, params, 0, "true", False), ("cache", {}, 0, "true", False)) == [], "as in the file"


def test_what_is_fine_behind_a_cache_is_not():
    cache = ("cache", {}, 0, "request.path == '/a'", False)
    other, same = "request.path == '/b'", "request.path == '/a'"
    assert orders(cache, ("rateLimit", {"limit": "1/s"}, 1, "true", False)) == [], "it decides nothing about who"
    assert orders(cache, ("rbac", RBAC, 1, other, False)) == [], "it is for other requests, for all one knows"
    assert orders(cache, ("rbac", RBAC, 1, "true", True)) == [], "it is in the shadow"
    assert orders(("cache", {}, 0, "true", True), ("rbac", RBAC, 1, "true", False)) == []
    assert len(orders(cache, ("rbac", RBAC, 1, same, False))) == 1


CORS = {"origins": ["https://a.test"]}


def preflights(*entries):
    """The warnings of entries: name, params, stage, condition, shadow."""
    made = [
        Module(name=name, stage=stage, action_param=params, condition=condition, shadow=shadow)
        for name, params, stage, condition, shadow in entries
    ]
    stages = bind(made, installed)
    return [(warning.path, warning.message) for bound in stages.values() for each in bound for warning in each.warnings]


@pytest.mark.parametrize("stage", ["PRE_REQUEST", "PRE_UPSTREAM"])
def test_who_answers_preflights_behind_who_asks_for_credentials_is_warned_of(stage):
    (warning,) = preflights(("keyAuth", KEYS, "", "true", False), ("cors", CORS, stage, "true", False))
    text = (
        "modules[0], keyAuth, refuses preflights before, for they carry no credentials: give this one a lower ruleOrder"
    )
    assert warning == (("modules", 1, "ruleOrder"), text)


@pytest.mark.parametrize(
    "entries",
    [
        [("cors", CORS, "", "true", False), ("keyAuth", KEYS, "", "true", False)],
        [("keyAuth", {**KEYS, "optional": True}, "", "true", False), ("cors", CORS, "", "true", False)],
        [("keyAuth", KEYS, "", "request.method != 'OPTIONS'", False), ("cors", CORS, "", "true", False)],
        [("keyAuth", KEYS, "", "request.path == '/a'", False), ("cors", CORS, "", "request.path == '/b'", False)],
        [("keyAuth", KEYS, "", "true", True), ("cors", CORS, "", "true", False)],
        [("accessList", {"deny": ["10.0.0.0/8"]}, "", "true", False), ("cors", CORS, "", "true", False)],
    ],
)
def test_where_preflights_come_through_nothing_is_said(entries):
    assert preflights(*entries) == []


# -- explain


def test_explain_a_module_for_everybody(find, exchange):
    told = only([entry(rule_order=3)], find).explain(exchange)
    assert (told.name, told.stage, told.order, told.condition) == (FAKE, "PRE_REQUEST", 3, "true")
    assert (told.holds, told.gray, told.ratio, told.position, told.error) == (True, True, 100.0, None, "")
    assert told.applies


def test_explain_who_is_gray_and_what_the_condition_gives(find, exchange):
    told = only([entry(gray_ratio=99.99, condition="request.method == 'POST'")], find).explain(exchange)
    assert (told.holds, told.gray, told.applies) == (False, True, False)
    assert told.position == cohort.position("192.0.2.1")
    told = only([entry(gray_ratio=0.0)], find).explain(exchange)
    assert (told.holds, told.gray, told.position, told.applies) == (True, False, None, False)


def test_explain_says_what_cannot_be_evaluated(find):
    bound = only([entry(gray_ratio=50.0, condition="request.method == 'GET'")], find)
    told = bound.explain(SimpleNamespace())
    assert (told.holds, told.gray, told.applies) == (None, None, False)
    assert told.error.startswith("condition: ")
    assert "; grayKey: " in told.error
