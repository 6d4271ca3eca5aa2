"""
Rules that can never match, because an earlier one matches whatever they would; and those of another type that come
after a rule for every path, which nearly all requests have.

Conditions and C{published} do not matter: a rule that matches is final.  Nothing is reported that could match after
all; not everything is found that cannot (a regex is only compared by its text, and by C{literal.*}).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Final

from protogate.errors import ConfigError
from protogate.routing.matchers import Kind, Matcher, Part, blocks, literal_head

if TYPE_CHECKING:
    from protogate.routing.index import Candidate

Key = tuple[object, ...]


def shadowed(candidates: Iterable[Candidate]) -> list[ConfigError]:
    """
    A warning for each rule that can never match; its path is the rule's.

    @param candidates: in the order in which they decide.
    """
    earlier = _Earlier()
    total: dict[int, int] = {}
    hidden: dict[int, list[tuple[Candidate, Candidate]]] = {}
    for candidate in candidates:
        index = candidate.rule.index
        total[index] = total.get(index, 0) + 1
        cover = earlier.cover(candidate)
        if cover is None:
            earlier.add(candidate)
        else:
            hidden.setdefault(index, []).append((candidate, cover))
    warnings = []
    for index, pairs in sorted(hidden.items()):
        if len(pairs) == total[index]:
            rule, cover = pairs[0][0].rule, pairs[0][1]
            warnings.append(
                ConfigError(
                    f'rule "{rule.name}" can never match: rule "{cover.rule.name}" (routes[{cover.rule.index}]) '
                    "comes first and matches all that it would",
                    ("routes", index),
                )
            )
    return warnings


def behind_every_path(candidates: Iterable[Candidate]) -> list[ConfigError]:
    """
    A warning for each rule that looks at something else than the path, where a rule for every path comes first: what
    has no path, CONNECT and C{OPTIONS *}, is all that is left to it.  Rules by method or protocol may mean just these.

    @param candidates: in the order in which they decide.
    """
    every: list[Candidate] = []
    left: dict[int, Candidate | None] = {}  # rule -> what comes first; None = it can match
    for candidate in candidates:
        rule = candidate.rule
        if rule.type == "uri":
            if _every_path(candidate.matcher):
                every.append(candidate)
        elif rule.type not in ("method", "protocol") and not (candidate.methods and candidate.methods <= PATHLESS):
            hosts = set(_hosts(candidate.host))
            first = next((wide for wide in every if wide.host in hosts and _methods(wide, candidate)), None)
            if first is None or left.setdefault(rule.index, first) is None:
                left[rule.index] = None
    return [
        ConfigError(
            f'a request with a path never comes to this rule: rule "{first.rule.name}" (routes[{first.rule.index}]) '
            "matches every path, and the path is looked at first; give this one a higher priority",
            ("routes", index),
        )
        for index, first in sorted(left.items())
        if first is not None
    ]


PATHLESS: Final = frozenset((b"CONNECT", b"OPTIONS"))
"""Methods of requests that may have no path."""


def _every_path(matcher: Matcher) -> bool:
    if matcher.kind is Kind.TEMPLATE:
        return matcher.parts == (Part.REST,)
    if matcher.kind is Kind.REGEX:
        return open_head(matcher.text) in {"", "/"}
    return matcher.kind is Kind.PREFIX and matcher.text == "/"


class _Earlier:
    """Candidates so far, by what they match and by their host, so that none is compared with all."""

    def __init__(self) -> None:
        self.by_key: dict[Key, list[Candidate]] = {}
        self.heads: set[int] = set()
        """Lengths of the literals of C{literal.*}."""
        self.prefixes: set[int] = set()
        """Lengths of prefixes."""
        self.blocks: set[int] = set()
        """Sizes of the blocks of ranges."""

    def add(self, candidate: Candidate) -> None:
        matcher = candidate.matcher
        keys: list[Key] = [(matcher.kind, _text(candidate))]
        if matcher.kind is Kind.PREFIX:
            self.prefixes.add(len(matcher.text))
        elif matcher.kind is Kind.TEMPLATE:
            keys = [(matcher.kind, matcher.parts), ("general", matcher.parts[0])]
        elif matcher.kind is Kind.RANGE:
            keys = [("block", *block) for block in blocks(*matcher.span)]
            self.blocks.update(bits for bits, _ in blocks(*matcher.span))
        elif matcher.kind is Kind.REGEX and candidate.rule.type != "query":  # whose values may hold line feeds
            head = open_head(matcher.text)
            if head is not None:
                keys.append(("head", head))
                self.heads.add(len(head))
        for key in keys:
            self.by_key.setdefault((*_place(candidate), candidate.host, *key), []).append(candidate)

    def cover(self, candidate: Candidate) -> Candidate | None:
        """The first that matches whatever this one does."""
        place = _place(candidate)
        found: list[Candidate] = []
        for key in self._keys(candidate):
            for host in _hosts(candidate.host):
                for other in self.by_key.get((*place, host, *key), ()):
                    if (
                        _methods(other, candidate)
                        and (key[0] != "general" or _general(other.matcher.parts, candidate.matcher))
                        and (key[0] != "block" or _within(candidate.matcher, other.matcher))
                    ):
                        found.append(other)
                        break
        return min(found, key=lambda other: other.rank, default=None)

    def _keys(self, candidate: Candidate) -> Iterator[Key]:
        matcher = candidate.matcher
        kind = matcher.kind
        yield kind, matcher.parts if kind is Kind.TEMPLATE else _text(candidate)
        head = _head(candidate)
        # What follows the head of a regex may be anything, of the others it is nothing or a new segment.
        for length in self.prefixes:
            prefix = head[:length]
            if len(prefix) == length and (
                candidate.rule.type != "uri"
                or prefix.endswith("/")
                or head[length : length + 1] == "/"
                or (len(head) == length and kind is not Kind.REGEX)
            ):
                yield Kind.PREFIX, prefix
        for length in self.heads:
            if len(head) >= length:
                yield "head", head[:length]
        if kind is not Kind.PRESENT and candidate.matcher.field:
            yield Kind.PRESENT, ""
        low = matcher.span[0] if kind is Kind.RANGE else _number(candidate)
        if low:
            for bits in self.blocks:
                yield "block", bits, low >> bits
        if candidate.rule.type == "uri" and kind in (Kind.EXACT, Kind.TEMPLATE, Kind.PREFIX):
            first = matcher.parts[0] if matcher.parts else matcher.text.split("/", 2)[1:2]
            for part in (*(first if isinstance(first, list) else [first]), Part.ONE, Part.REST):
                yield "general", part


def _place(candidate: Candidate) -> Key:
    return candidate.rule.type, candidate.matcher.field


def _hosts(host: str) -> Iterator[str]:
    """The host, and every narrowing that is wider."""
    if host:
        yield host
        dot = host.find(".", 2 if host.startswith("*.") else 1)
        while dot >= 0:
            yield f"*{host[dot:]}"
            dot = host.find(".", dot + 1)
    yield ""


def _methods(wide: Candidate, narrow: Candidate) -> bool:
    return wide.methods is None or (narrow.methods is not None and narrow.methods <= wide.methods)


def _text(candidate: Candidate) -> str:
    """What it matches, as a key; what an exact host rule matches is its host alone."""
    matcher = candidate.matcher
    return "" if candidate.rule.type == "host" and matcher.kind is Kind.EXACT else matcher.text


def _head(candidate: Candidate) -> str:
    """What each text starts with that matches."""
    matcher = candidate.matcher
    if matcher.kind is Kind.RANGE:
        return ""
    if matcher.kind is Kind.REGEX:
        return matcher.head
    if matcher.kind is not Kind.TEMPLATE:
        return "" if candidate.host.startswith("*.") and candidate.rule.type == "host" else matcher.text
    head = ""
    for part in matcher.parts:
        if isinstance(part, Part):
            return head + "/"
        head += "/" + part
    return head


def _number(candidate: Candidate) -> int:
    """The number of the one service that it matches, or 0."""
    matcher = candidate.matcher
    one = candidate.rule.type == "service" and matcher.kind is Kind.EXACT and matcher.text.isdigit()
    return int(matcher.text) if one else 0


def _within(narrow: Matcher, wide: Matcher) -> bool:
    """Are all numbers of the one, a number or a range, in the other, a range?"""
    low, high = narrow.span if narrow.kind is Kind.RANGE else (int(narrow.text), int(narrow.text))
    return wide.span[0] <= low and high <= wide.span[1]


def _general(wide: tuple[str | Part, ...], matcher: Matcher) -> bool:
    """Does a template match whatever the other matcher, for uri and no regex, does?"""
    parts = matcher.parts or tuple(matcher.text.split("/")[1:])
    for place, part in enumerate(wide):
        if part is Part.REST:
            return len(parts) > place
        if place == len(parts) or parts[place] is Part.REST:
            return False
        if part is Part.ONE:
            if not parts[place]:
                return False
        elif part != parts[place]:
            return False
    return len(parts) == len(wide) and matcher.kind is not Kind.PREFIX


def open_head(pattern: str) -> str | None:
    """The literal of C{literal.*}, which matches every text (without line feeds) that starts so; None for others."""
    rest = pattern.removeprefix("^").removesuffix("$")
    if not rest.endswith(".*"):
        return None
    rest = rest.removesuffix(".*")
    plain = re.sub(r"\\([^A-Za-z0-9])", r"\1", rest)
    return plain if literal_head(rest) == plain else None
