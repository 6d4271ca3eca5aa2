"""rbac: who may do what."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from protogate.config.faults import ConfigFaults
from protogate.errors import Abort, ConfigError
from protogate.governance.rbac import RbacFactory
from protogate.identity.identity import Identity
from protogate.testing.exchange import exchange
from protogate.testing.module import ModuleContract

ALICE = Identity("alice", "jwt", {"groups": ["admin", "ops"], "scope": "read write", "iss": "https://id.test"})
BOB = Identity("bob", "jwt", {"groups": ["staff"], "level": 3})
ADMIN = {"name": "admins", "claims": {"groups": ["admin", "root"]}, "then": "allow"}
ALWAYS = {"name": "all", "when": "true", "then": "allow"}


def build(*rules, **more):
    return RbacFactory().build({"rules": list(rules), **more})


def asked(module, identity=None, **what):
    """The exchange, or the Abort that denied it."""
    made = exchange(**what)
    made.identity = identity
    try:
        module.process(made)
    except Abort as abort:
        abort.note = made.notes["rbac"]
        return abort
    return made


class Contract(ModuleContract, SynchronousTestCase):
    factory = RbacFactory
    good = ({"rules": [ADMIN]}, {"rules": [ALWAYS], "default": "allow", "challenge": "Basic"})
    bad = (
        ({}, "rules"),
        ({"rules": []}, "rules"),
        ({"rules": {}}, "rules"),
        ({"rules": ["x"]}, "rules"),
        ({"rules": [{"name": "a", "when": "true"}]}, "rules"),
        ({"rules": [{"name": "a", "then": "allow"}]}, "rules"),
        ({"rules": [{"when": "true", "then": "allow"}]}, "name"),
        ({"rules": [{"name": "a", "when": "true", "then": "pass"}]}, "then"),
        ({"rules": [{"name": "a", "when": "identity.usr == 'a'", "then": "allow"}]}, "when"),
        ({"rules": [{"name": "a", "when": "${identity.user}", "then": "allow"}]}, "when"),
        ({"rules": [{"name": "a", "when": "response.status == 200", "then": "allow"}]}, "when"),
        ({"rules": [{"name": "a", "when": True, "then": "allow"}]}, "when"),
        ({"rules": [{"name": "a", "users": [], "then": "allow"}]}, "users"),
        ({"rules": [{"name": "a", "users": [7], "then": "allow"}]}, "users"),
        ({"rules": [{"name": "a", "claims": ["groups"], "then": "allow"}]}, "claims"),
        ({"rules": [{"name": "a", "claims": {}, "then": "allow"}]}, "claims"),
        ({"rules": [{"name": "a", "claims": {"groups": []}, "then": "allow"}]}, "groups"),
        ({"rules": [{"name": "a", "claims": {"groups": [""]}, "then": "allow"}]}, "groups"),
        ({"rules": [{"name": "a", "user": "x", "when": "true", "then": "allow"}]}, "user"),
        ({"rules": [ALWAYS, ALWAYS]}, "name"),
        ({"rules": [ALWAYS], "default": "maybe"}, "default"),
        ({"rules": [ALWAYS], "challenge": "é"}, "challenge"),
        ({"rules": [ALWAYS], "challenge": "x\r\ny: 1"}, "challenge"),
    )


@pytest.mark.parametrize(
    ("rule", "allowed"),
    [
        ({"claims": {"groups": "admin"}}, {"alice"}),
        ({"claims": {"groups": ["admin", "staff"]}}, {"alice", "bob"}),
        ({"claims": {"groups": ["admin"], "iss": "https://id.test"}}, {"alice"}),
        ({"claims": {"groups": ["admin"], "iss": "https://other.test"}}, set()),
        ({"claims": {"scope": "write"}}, {"alice"}),
        ({"claims": {"scope": "read write"}}, set()),
        ({"claims": {"level": "3"}}, set()),  # a number is no text
        ({"claims": {"missing": "x"}}, set()),
        ({"users": "alice"}, {"alice"}),
        ({"users": ["alice", "bob"]}, {"alice", "bob"}),
        ({"users": ["alice", "bob"], "claims": {"groups": "staff"}}, {"bob"}),
        ({"users": "alice", "when": "request.method == 'POST'"}, set()),
        ({"when": "identity.claims['level'] == '3'"}, {"bob"}),
        ({"when": "identity.user == ''"}, {""}),
        ({"when": "true"}, {"alice", "bob", ""}),
        ({"when": "false"}, set()),
    ],
)
def test_all_that_a_rule_says_must_hold(rule, allowed):
    module = build({"name": "a", "then": "allow", **rule})
    found = {
        identity.user if identity else ""
        for identity in (ALICE, BOB, None)
        if not isinstance(asked(module, identity), Abort)
    }
    assert found == allowed


def test_the_first_rule_that_holds_decides():
    deny = {"name": "no admins", "claims": {"groups": "admin"}, "then": "deny"}
    assert asked(build(deny, ALWAYS), ALICE).note == "deny: no admins"
    assert asked(build(deny, ALWAYS), BOB).notes == {"rbac": "allow: all"}
    assert asked(build(ADMIN, {**deny, "name": "later"}), ALICE).notes == {"rbac": "allow: admins"}


def test_where_none_holds_the_default_decides():
    assert asked(build(ADMIN), BOB).note == "deny: default"
    assert asked(build(ADMIN, default="allow"), BOB).notes == {"rbac": "allow: default"}


def test_a_denial_tells_operators_who_and_why_and_strangers_little():
    abort = asked(build(ADMIN), BOB)
    assert (abort.status, abort.who, abort.error, abort.detail, abort.headers) == (
        403,
        "client",
        "http_request_denied",
        "access denied",
        [],
    )
    assert abort.reason == "rbac: default denies bob"
    assert asked(build(ADMIN)).reason == "rbac: default denies a stranger"
    assert asked(build(ADMIN), Identity("", "jwt")).reason == "rbac: default denies somebody without a name"


def test_whoever_was_not_authenticated_is_challenged_where_there_is_a_challenge():
    module = build(ADMIN, challenge='Bearer realm="x"')
    abort = asked(module)
    assert (abort.status, abort.headers) == (401, [(b"www-authenticate", b'Bearer realm="x"')])
    assert (asked(module, BOB).status, asked(module, BOB).headers) == (403, [])
    assert asked(build(ADMIN)).status == 403


def test_a_request_that_is_none_is_left_to_who_refuses_it():
    made = exchange()
    made.request.malformed = Abort("no request", "client", 400)
    assert build(ADMIN).process(made) is None
    assert made.notes == {}


def test_rules_that_are_never_asked_are_warned_of():
    assert [warning.path for warning in build(ALWAYS, ADMIN).warnings] == [("rules", 1)]
    assert build(ADMIN, ALWAYS).warnings == []


def test_faults_of_all_rules_are_told_together():
    with pytest.raises(ConfigFaults) as caught:
        build({"name": "a", "when": "1", "then": "allow"}, {"name": "b", "then": "x", "users": 1})
    assert [fault.path for fault in caught.value.faults] == [
        ("rules", 0, "when"),
        ("rules", 1, "users"),
        ("rules", 1, "then"),
    ]
    with pytest.raises(ConfigError, match='column 10: identity has no member "usr"'):
        build({"name": "a", "when": "identity.usr == ''", "then": "allow"})


WORDS = st.sampled_from(["a", "b", "c", "d"])
RULES = st.lists(st.tuples(st.frozensets(WORDS, min_size=1), st.booleans()), min_size=1, max_size=5)


@given(RULES, st.booleans(), st.lists(WORDS, max_size=3))
def test_it_decides_as_a_model_does(rules, default, groups):
    entries = [
        {"name": f"r{number}", "claims": {"groups": sorted(words)}, "then": "allow" if allows else "deny"}
        for number, (words, allows) in enumerate(rules)
    ]
    module = build(*entries, default="allow" if default else "deny")
    expected = next((allows for words, allows in rules if words & set(groups)), default)
    assert isinstance(asked(module, Identity("x", "jwt", {"groups": groups})), Abort) is not expected
