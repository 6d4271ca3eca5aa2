"""
Sets of networks, and tables of them: a look-up is one bisection, whether there are ten or 100,000.

Rules
- Networks become ranges that do not touch or overlap, sorted.
- An IPv4 address in its IPv6 form is the IPv4 address, in the lists as in requests.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable
from typing import Final

from protogate.expression import cidr

Range = tuple[int, int]
"""First and last address."""
Network = tuple[int, Range]
"""IP version and range."""
VERSIONS: Final = (4, 6)

_network = re.compile(r"([0-9A-Fa-f.:]{2,45})(?:/(0|[1-9][0-9]{0,2}))?").fullmatch


def network(text: str) -> Network | None:
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

    __slots__ = ("_edges",)

    def __init__(self, networks: Iterable[Network]) -> None:
        each = list(networks)
        ranges = {version: merged([r for v, r in each if v == version]) for version in VERSIONS}
        # Where each range begins, and where it is over: what has an odd number of these behind it is inside.
        self._edges = {
            version: [edge for first, last in found for edge in (first, last + 1)] for version, found in ranges.items()
        }

    def __contains__(self, address: tuple[int, int]) -> bool:
        """@param address: version and number, see L{cidr.number}."""
        version, number = address
        return bisect_right(self._edges[version], number) & 1 == 1


class Tags:
    """A table of networks with a tag each.  Of networks within each other the narrowest counts."""

    __slots__ = ("_starts", "_tags")

    def __init__(self, tagged: Iterable[tuple[Network, str]]) -> None:
        each = list(tagged)
        found = {version: _boundaries([(r, tag) for (v, r), tag in each if v == version]) for version in VERSIONS}
        self._starts = {version: [start for start, _ in boundaries] for version, boundaries in found.items()}
        self._tags = {version: [tag for _, tag in boundaries] for version, boundaries in found.items()}

    def find(self, address: tuple[int, int]) -> str:
        """
        The tag of an address; empty when it has none.

        @param address: version and number, see L{cidr.number}.
        """
        version, number = address
        index = bisect_right(self._starts[version], number) - 1
        return self._tags[version][index] if index >= 0 else ""


def _boundaries(tagged: list[tuple[Range, str]]) -> list[tuple[int, str]]:
    """Where each tag begins to count; empty where none does.  Networks lie within each other, or apart."""
    found: dict[int, str] = {}
    inside: list[tuple[int, str]] = []  # last address and tag, the narrowest at the end

    def leave(before: int | None) -> None:
        while inside and (before is None or inside[-1][0] < before):
            last, _ = inside.pop()
            found[last + 1] = inside[-1][1] if inside else ""

    for (first, last), tag in sorted(tagged, key=lambda one: (one[0][0], -one[0][1])):
        leave(first)
        found[first] = tag
        inside.append((last, tag))
    leave(None)
    return sorted(found.items())
