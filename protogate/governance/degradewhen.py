"""
When something is degraded: by an operator's switch, by load, or since the upstream fails.

A list of switches has a line for each that is on:

    recommendations        # since Monday, the service is being moved
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from protogate.config.scalar import shown
from protogate.errors import CLIENT, Abort, ConfigError
from protogate.exchange import problem
from protogate.expression import condition
from protogate.governance.params import Params
from protogate.message import Response

if TYPE_CHECKING:
    from protogate.exchange.exchange import Exchange

MOST: Final = 1000
"""Lines of a list of switches."""
NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}", re.ASCII).fullmatch
STATUSES: Final = frozenset((502, 503, 504))
"""Answers of an upstream that tell of a failure, unless said otherwise."""
_STATUS: Final = re.compile(r"[1-5](?:xx|[0-9]{2})", re.ASCII).fullmatch
_ERROR: Final = re.compile(r"[a-z]+(?:_[a-z]+)*", re.ASCII).fullmatch
_LONGEST: Final = 200
"""Characters of a reason."""

Switches = frozenset[str]
Condition = Callable[["Exchange"], bool]


def named(line: str) -> str:
    """What a line names; empty = nothing."""
    return line.partition("#")[0].strip(" \t\r")


def switches(data: bytes) -> Switches:
    """
    Those that are on.

    @raise ConfigError: what is wrong with the list; its message names the line.
    """
    found: set[str] = set()
    for number, line in enumerate(data.decode("utf-8").split("\n"), 1):
        name = named(line)
        if not name:
            continue
        if not NAME(name):
            raise ConfigError(f"line {number}: expected the name of a switch, got {shown(name)}")
        found.add(name)
        if len(found) > MOST:
            raise ConfigError(f"more than {MOST} switches")
    return frozenset(found)


@dataclass(frozen=True, slots=True)
class When:
    """
    @ivar always: each request: the entry's condition decides.
    @ivar switch: name of one; empty = there is none.
    @ivar load: percent from which on; 0 = whatever the load is.
    @ivar statuses: of the upstream's answers.
    @ivar errors: types of RFC 9209, for where there is no answer; None = all.
    @ivar response: what is true of answers that are none to give; None = they are not looked at.
    """

    always: bool = False
    switch: str = ""
    load: int = 0
    statuses: frozenset[int] = STATUSES
    errors: frozenset[str] | None = None
    response: Condition | None = None

    def before(self, on: Switches, load: Callable[[], float]) -> str:
        """Why a request is not to be asked upstream, in words; empty = it is."""
        if self.always:
            return "condition"
        if self.switch and self.switch in on:
            return f"switch {self.switch}"
        if self.load:
            now = load()
            if now >= self.load:
                return f"load {now:.0f} %"
        return ""

    def answered(self, exchange: Exchange, response: Response) -> str:
        """Why an answer is none to give, in words; empty = it is."""
        if response.status in self.statuses:
            return f"status {response.status}"
        if self.response is None:
            return ""
        before, exchange.response = exchange.response, response
        try:
            return f"response {response.status}" if self.response(exchange) else ""
        finally:
            exchange.response = before

    def failed(self, reason: BaseException | None) -> str:
        """Why there is no answer, in words; empty = it is not for us to do something about it."""
        if not isinstance(reason, Abort) or reason.who is CLIENT:
            return ""
        if self.errors is not None and problem.kind(reason) not in self.errors:
            return ""
        return f"error {reason.reason}"[:_LONGEST]


def read(reader: Params, name: str) -> When:
    """The parameter of that name."""
    given = reader.given(name)
    if name not in reader:
        return When()
    if not isinstance(given, Mapping) or not given:
        reader.fault("expected a mapping: switch, load, statuses, errors, response, or always", name)
        return When()
    inner = Params(given, "always", "switch", "load", "statuses", "errors", "response")
    switch = inner.literal("switch", "")
    if switch and not NAME(switch):
        inner.fault(f"expected a name of letters, digits and _ . -, 64 at most, got {shown(switch)}", "switch")
    when = When(
        inner.flag("always"),
        switch,
        inner.integer("load", 0, 1, 1000) if "load" in inner else 0,
        frozenset(_statuses(inner)),
        _errors(inner),
        _response(inner),
    )
    reader.faults += [ConfigError(fault.message, (name, *fault.path)) for fault in inner.faults]
    return when


def _statuses(reader: Params) -> set[int]:
    found: set[int] = set()
    for at, status in enumerate(reader.items("statuses")):
        text = str(status)
        if isinstance(status, bool) or not isinstance(status, (int, str)) or not _STATUS(text):
            reader.fault(f"expected a status such as 503, or 5xx, got {shown(status)}", "statuses", at)
        elif text.endswith("xx"):
            found.update(range(int(text[0]) * 100, int(text[0]) * 100 + 100))
        else:
            found.add(int(text))
    return found


def _errors(reader: Params) -> frozenset[str] | None:
    """True = all; nothing = none."""
    given = reader.given("errors")
    if isinstance(given, bool):
        return None if given else frozenset()
    words = reader.words("errors")
    for word in words:
        if not _ERROR(word):
            reader.fault(f"expected true, or types of errors such as connection_refused, got {shown(word)}", "errors")
    return frozenset(words)


def _response(reader: Params) -> Condition | None:
    if "response" not in reader:
        return None
    try:
        return condition.compile(reader.literal("response"), response=True)
    except ConfigError as error:
        reader.fault(error.message, "response", *error.path)
    return None
