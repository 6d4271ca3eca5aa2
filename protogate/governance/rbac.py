"""
C{rbac}: who may do what, by rules over who was authenticated and what is asked.

Rules
- In order; the first rule that holds decides.  Where none does C{default} does, which is to deny.
- A rule holds when all that it says does: C{users}, C{claims}, C{when}.  It says something: one that always holds is
  written C{when: "true"}.
- Which rule decided stands in the record.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Final

from zope.interface import classImplements, implementer

from protogate.errors import CLIENT, Abort, ConfigError
from protogate.expression import condition
from protogate.expression.operators import all_of
from protogate.expression.template import Template
from protogate.governance.params import Params, shown
from protogate.governance.stages import PRE_REQUEST, PRE_UPSTREAM
from protogate.interfaces import IModule, IModuleFactory

if TYPE_CHECKING:
    from protogate.exchange.exchange import Exchange

Holds = Callable[[Any], bool]
_challenge: Final = re.compile(r"[A-Za-z][A-Za-z0-9-]*(?: [\x20-\x7e]+)?").fullmatch


class Rule:
    """
    @ivar name: for the record.
    @ivar holds: does it, for an exchange?
    @ivar allows: what follows then.
    @ivar note: what the record says then.
    """

    __slots__ = ("allows", "holds", "name", "note")

    def __init__(self, name: str, holds: Holds, allows: bool) -> None:
        self.name, self.holds, self.allows = name, holds, allows
        self.note = f"{'allow' if allows else 'deny'}: {name}"


class Rbac:
    """
    @param rules: in order.
    @param allows: what follows when none holds.
    @param challenge: C{WWW-Authenticate} for whoever is denied and was not authenticated; empty = none, and 403.
    """

    __slots__ = ("_challenge", "_default", "_rules", "warnings")
    admits: ClassVar[bool] = True

    def __init__(self, rules: list[Rule], allows: bool, challenge: bytes, warnings: list[ConfigError]) -> None:
        self._rules, self._challenge, self.warnings = tuple(rules), challenge, warnings
        self._default = Rule("default", condition.ALWAYS_TRUE, allows)

    def process(self, exchange: Exchange) -> None:
        """Let it pass, or raise the Abort that denies it."""
        if exchange.request.malformed is not None:
            return
        for rule in self._rules:
            if rule.holds(exchange):
                break
        else:
            rule = self._default
        exchange.notes["rbac"] = rule.note
        if rule.allows:
            return
        identity = exchange.identity
        known = identity is not None
        raise Abort(
            f"rbac: {rule.name} denies {identity.user or 'somebody without a name' if identity else 'a stranger'}",
            CLIENT,
            403 if known or not self._challenge else 401,
            error="http_request_denied",
            detail="access denied" if known or not self._challenge else "authentication is required",
            headers=[] if known or not self._challenge else [(b"www-authenticate", self._challenge)],
        )


classImplements(Rbac, IModule)


@implementer(IModuleFactory)
class RbacFactory:
    """Makes L{Rbac}."""

    name = "rbac"
    stages = (PRE_REQUEST, PRE_UPSTREAM)
    guards = True

    def build(self, params: Mapping[str, object]) -> Rbac:
        """See L{IModuleFactory.build}."""
        reader = Params(params, "rules", "default", "challenge")
        entries = reader.items("rules")
        if not entries and not reader.faults:
            reader.fault("expected at least one rule: {name: …, when: …, then: allow}", "rules")
        rules: list[Rule] = []
        open_end = ""
        for index, entry in enumerate(entries):
            if open_end:
                reader.warn(f"it is never asked: {open_end} always holds", "rules", index)
            rule = _rule(reader, entry, index)
            rules.append(rule)
            if condition.always(rule.holds):
                open_end = rule.name
        names = [rule.name for rule in rules]
        for index, name in enumerate(names):
            if name in names[:index] and not reader.faults:
                reader.fault(f"{name} is the name of another rule already", "rules", index, "name")
        challenge = reader.literal("challenge", "")
        if challenge and not _challenge(challenge):
            reader.fault('expected a scheme and its parameters, such as Bearer realm="x"', "challenge")
        allows = reader.choice("default", "deny", "allow", "deny") == "allow"
        reader.done()
        return Rbac(rules, allows, challenge.encode("ascii"), reader.warnings)


def _rule(reader: Params, entry: object, index: int) -> Rule:
    if not isinstance(entry, Mapping):
        reader.fault(f"expected {{name: …, when: …, then: allow}}, got {shown(entry)}", "rules", index)
        return Rule("", condition.ALWAYS_FALSE, False)
    inner = Params(entry, "name", "users", "claims", "when", "then")
    name = inner.literal("name")
    tests: list[Holds] = []
    if "users" in inner:
        tests.append(_user(frozenset(inner.words("users"))))
    if "claims" in inner:
        tests += _claims(inner)
    if "when" in inner:
        tests.append(_when(inner))
    if not {"users", "claims", "when"} & set(entry):
        inner.fault('for whom, or when? Expected users, claims or when; always is when: "true"')
    if "then" not in inner:
        inner.fault("expected then: allow, or then: deny")
    allows = inner.choice("then", "deny", "allow", "deny") == "allow"
    for fault in inner.faults:
        reader.fault(fault.message, "rules", index, *fault.path)
    return Rule(name, all_of(tuple(tests)) if tests else condition.ALWAYS_FALSE, allows)


def _when(inner: Params) -> Holds:
    text = inner.given("when")
    if isinstance(text, Template):
        inner.fault("it is an expression already: write it without ${…}", "when")
    elif not isinstance(text, str):
        inner.fault(f"expected an expression, got {shown(text)}", "when")
    else:
        try:
            return condition.compile(text)
        except ConfigError as error:
            inner.fault(error.message, "when")
    return condition.ALWAYS_FALSE


def _claims(inner: Params) -> list[Holds]:
    claims = inner.given("claims")
    if not isinstance(claims, Mapping) or not claims:
        inner.fault(f"expected claims and what they may be: {{groups: [admin]}}, got {shown(claims)}", "claims")
        return []
    of = Params(claims)
    tests = [_claim(name, frozenset(of.words(name))) for name in claims]
    for fault in of.faults:
        inner.fault(fault.message, "claims", *fault.path)
    return tests


def _user(names: frozenset[str]) -> Holds:
    def holds(exchange: Any) -> bool:
        identity = exchange.identity
        return identity is not None and identity.user in names

    return holds


def _claim(name: str, values: frozenset[str]) -> Holds:
    """Whether it is one of them, or a list with one of them in it."""

    def holds(exchange: Any) -> bool:
        identity = exchange.identity
        return identity is not None and not values.isdisjoint(identity.texts(name))

    return holds
