"""
C{accessList}: who may come in, by address.

C{deny} wins; when C{allow} is there, everybody else is denied.  The address is C{exchange.source.ip}: what a trusted
proxy says counts as C{gateway.trustedProxies} has it.

Rules
- Networks become sorted ranges that do not touch, so a look-up is one bisection, whether they are ten or 100,000.
- An IPv4 address in its IPv6 form is the IPv4 address, in the lists as in requests.
- Somebody without an address (a UNIX socket) is in no network.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from zope.interface import implementer

from protogate.errors import CLIENT, Abort, ConfigError
from protogate.expression import cidr
from protogate.governance.params import Params, shown
from protogate.governance.stages import PRE_REQUEST, PRE_UPSTREAM
from protogate.interfaces import IModule, IModuleFactory

if TYPE_CHECKING:
    from protogate.exchange.exchange import Exchange

REPORTED: Final = 20
"""Bad networks of one list that are reported one by one."""

Range = tuple[int, int]
"""First and last address."""

_network = re.compile(r"([0-9A-Fa-f.:]{2,45})(?:/(0|[1-9][0-9]{0,2}))?").fullmatch


def network(text: str) -> tuple[int, Range] | None:
    """IP version and range of a network or a single address; None when it is not one, or has bits behind its prefix."""
    match = _network(text)
    found = None if match is None else cidr.number(match[1])
    if match is None or found is None:
        return None
    version, first = found
    width = 32 if version == 4 else 128
    prefix = width if match[2] is None else int(match[2])
    if version == 4 and ":" in text and match[2] is not None:
        prefix -= 96  # IPv4 in its IPv6 form
    if not 0 <= prefix <= width:
        return None
    hosts = (1 << (width - prefix)) - 1
    return None if first & hosts else (version, (first, first + hosts))


def merged(ranges: list[Range]) -> list[Range]:
    """The same addresses in as few ranges as can be, in order."""
    out: list[Range] = []
    first, last = 0, -2
    for begin, end in sorted(ranges):
        if begin > last + 1:
            if last >= 0:
                out.append((first, last))
            first, last = begin, end
        elif end > last:
            last = end
    if last >= 0:
        out.append((first, last))
    return out


class Networks:
    """A set of networks of both versions."""

    __slots__ = ("_firsts", "_lasts")

    def __init__(self, networks: list[tuple[int, Range]]) -> None:
        ranges = {version: merged([r for v, r in networks if v == version]) for version in (4, 6)}
        self._firsts = {version: [first for first, _ in found] for version, found in ranges.items()}
        self._lasts = {version: [last for _, last in found] for version, found in ranges.items()}

    def __contains__(self, address: tuple[int, int]) -> bool:
        """@param address: version and number, see L{cidr.number}."""
        version, number = address
        index = bisect_right(self._firsts[version], number) - 1
        return index >= 0 and number <= self._lasts[version][index]


@implementer(IModule)
class AccessList:
    """
    @param allow: who may come in; None = everybody.
    @param deny: who may not, even so.
    @param status: to answer.
    """

    __slots__ = ("_allow", "_deny", "_status", "warnings")

    def __init__(self, allow: Networks | None, deny: Networks, status: int, warnings: list[ConfigError]) -> None:
        self._allow, self._deny, self._status, self.warnings = allow, deny, status, warnings

    def process(self, exchange: Exchange) -> None:
        """Let it pass, or raise the Abort that denies it."""
        ip = exchange.source.ip
        address = cidr.number(ip)
        if address is None:
            if self._allow is None:
                return
            why = "is in no network"
        elif address in self._deny:
            why = "is on the deny list"
        elif self._allow is None or address in self._allow:
            return
        else:
            why = "is not on the allow list"
        raise Abort(
            f"accessList: {ip or 'a client without an address'} {why}",
            CLIENT,
            self._status,
            error="http_request_denied",
            detail="access denied",
        )


@implementer(IModuleFactory)
class AccessListFactory:
    """Makes L{AccessList}."""

    name = "accessList"
    stages = (PRE_REQUEST, PRE_UPSTREAM)
    guards = True

    def build(self, params: Mapping[str, object]) -> AccessList:
        """See L{IModuleFactory.build}."""
        reader = Params(params, "allow", "deny", "status")
        status = reader.integer("status", 403, 400, 599)
        deny, allow = _networks(reader, "deny"), _networks(reader, "allow")
        if deny is None and allow is None and not reader.faults:
            reader.fault("expected allow, deny, or both: lists of networks")
        if allow == [] and not reader.faults:
            reader.warn("the list is empty: everybody is denied", "allow")
        reader.done()
        return AccessList(None if allow is None else Networks(allow), Networks(deny or []), status, reader.warnings)


def _networks(reader: Params, name: str) -> list[tuple[int, Range]] | None:
    """None when there is no such list."""
    if name not in reader:
        return None
    networks, bad = [], 0
    for index, text in enumerate(reader.items(name)):
        found = network(text) if isinstance(text, str) else None
        if found is not None:
            networks.append(found)
            continue
        bad += 1
        if bad <= REPORTED:
            reader.fault(_why(text), name, index)
    if bad > REPORTED:
        reader.fault(f"and {bad - REPORTED} more that are no network", name)
    return networks


def _why(text: object) -> str:
    if isinstance(text, str):
        try:
            cidr.compile(text)
        except ConfigError as error:
            return error.message
    return f"{shown(text)} is no network; write e.g. 10.0.0.0/8 or 2001:db8::/32"
