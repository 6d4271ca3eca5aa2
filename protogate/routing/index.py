"""
Finds the first candidate for a text without looking at all of them.

Every rule is entered once for each of its hosts and values, as a L{Candidate}; C{rank} is its place in the one order in
which candidates decide, and all that is ever compared.  So every look-up is handed the best rank so far and gives a
better one, or the same; whole indexes are skipped whose first candidate ranks behind it.

- exact: a dict.
- prefix and template of a uri: a trie of segments each.
- prefix of other texts, regex: by its literal head, one dict for each length of a head.
- range: by blocks of numbers, one dict for each size of a block.
- hosts: by name, and by each suffix of labels.

With C{missed}, a look-up also collects those that miss by their methods alone (what C{Allow} is made of).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final

from protogate.routing.matchers import Kind, Matcher, Part, blocks

if TYPE_CHECKING:
    from protogate.message import Request
    from protogate.routing.rules import Rule

Missed = list["Candidate"]

DIGITS: Final = 10
"""Of the highest number of a service."""
HEAD: Final = 64
"""Characters of a literal head that are looked up; bounds how many dicts there are."""


class Candidate:
    """
    @ivar rank: its place among all candidates.
    @ivar rule: what it stands for.
    @ivar matcher: the rule's, or one of several.
    @ivar host: the one host or C{*.suffix} it is for; C{""} = any.
    @ivar methods: what it is narrowed to, or None.
    @ivar check: looks at the text once more, where the index did not say all; or None.
    """

    __slots__ = ("check", "host", "matcher", "methods", "rank", "rule")

    def __init__(self, rank: int, rule: Rule, matcher: Matcher, host: str) -> None:
        self.rank, self.rule, self.matcher, self.host = rank, rule, matcher, host
        self.methods = frozenset(rule.methods) or None
        self.check: Callable[[str], object] | None = matcher.matches if matcher.kind is Kind.REGEX else None


class Bucket:
    """Candidates that the same text leads to.  Filled in the order of ranks, so the first is the best."""

    __slots__ = ("any", "exact", "first", "wild")

    def __init__(self) -> None:
        self.first = -1
        self.any: list[Candidate] = []
        self.exact: dict[str, list[Candidate]] | None = None
        """By host.  None, as the next one, as long as nobody needs to ask for the host."""
        self.wild: dict[str, list[Candidate]] | None = None

    def add(self, candidate: Candidate) -> None:
        """One more; it ranks behind those that are here."""
        if self.first < 0:
            self.first = candidate.rank
        host = candidate.host
        if not host:
            self.any.append(candidate)
            return
        if self.exact is None or self.wild is None:
            self.exact, self.wild = {}, {}
        if host.startswith("*."):
            self.wild.setdefault(host[1:], []).append(candidate)
        else:
            self.exact.setdefault(host, []).append(candidate)

    def find(self, text: str, request: Request, best: int, missed: Missed | None) -> int:
        """The rank of the first candidate that fits, if it is better than C{best}; else C{best}."""
        if self.exact is not None:
            host = request.host
            exact = self.exact.get(host)
            if exact is not None:
                best = _first(exact, text, request, best, missed)
            if self.wild:
                dot = host.find(".", 1)
                while dot >= 0:
                    wild = self.wild.get(host[dot:])
                    if wild is not None:
                        best = _first(wild, text, request, best, missed)
                    dot = host.find(".", dot + 1)
        return _first(self.any, text, request, best, missed)


def _first(candidates: list[Candidate], text: str, request: Request, best: int, missed: Missed | None) -> int:
    for candidate in candidates:
        if candidate.rank >= best:
            break
        check = candidate.check
        if check is not None and not check(text):
            continue
        if candidate.methods is None or request.method in candidate.methods:
            return candidate.rank
        if missed is not None:
            missed.append(candidate)
    return best


class Heads:
    """By what a text starts with."""

    __slots__ = ("first", "tables")

    def __init__(self) -> None:
        self.first = -1
        self.tables: dict[int, dict[str, Bucket]] = {}

    def add(self, candidate: Candidate, head: str) -> None:
        """One more, for texts that start with head."""
        if self.first < 0:
            self.first = candidate.rank
        self.tables.setdefault(len(head), {}).setdefault(head, Bucket()).add(candidate)

    def find(self, text: str, request: Request, best: int, missed: Missed | None) -> int:
        """See L{Bucket.find}."""
        for length, table in self.tables.items():
            bucket = table.get(text[:length])
            if bucket is not None and bucket.first < best:
                best = bucket.find(text, request, best, missed)
        return best


class Numbers:
    """By the ranges that a number is in."""

    __slots__ = ("first", "tables")

    def __init__(self) -> None:
        self.first = -1
        self.tables: dict[int, dict[int, Bucket]] = {}

    def add(self, candidate: Candidate) -> None:
        """One more."""
        if self.first < 0:
            self.first = candidate.rank
        for bits, block in blocks(*candidate.matcher.span):
            self.tables.setdefault(bits, {}).setdefault(block, Bucket()).add(candidate)

    def find(self, text: str, request: Request, best: int, missed: Missed | None) -> int:
        """See L{Bucket.find}."""
        if len(text) > DIGITS or not (text.isascii() and text.isdigit()) or text[0] == "0":
            return best
        number = int(text)
        for bits, table in self.tables.items():
            bucket = table.get(number >> bits)
            if bucket is not None and bucket.first < best:
                best = bucket.find(text, request, best, missed)
        return best


class Texts:
    """Index over one kind of text that is no path: hosts, methods, the values of one header …"""

    __slots__ = ("exact", "first", "heads", "loose", "numbers")

    def __init__(self) -> None:
        self.first = -1
        self.exact: dict[str, Bucket] = {}
        self.numbers = Numbers()
        self.heads = Heads()
        self.loose = Bucket()
        """Any text; also the hosts of host rules, which a bucket can tell apart."""

    def add(self, candidate: Candidate) -> None:
        """One more."""
        if self.first < 0:
            self.first = candidate.rank
        matcher = candidate.matcher
        if matcher.kind is Kind.EXACT and candidate.rule.type != "host":
            self.exact.setdefault(matcher.text, Bucket()).add(candidate)
        elif matcher.kind is Kind.RANGE:
            self.numbers.add(candidate)
        elif matcher.kind is Kind.PREFIX and len(matcher.text) <= HEAD:
            self.heads.add(candidate, matcher.text)
        elif matcher.kind is Kind.PREFIX:
            candidate.check = matcher.matches
            self.heads.add(candidate, matcher.text[:HEAD])
        elif matcher.kind is Kind.REGEX:
            self.heads.add(candidate, matcher.head[:HEAD])
        else:
            self.loose.add(candidate)

    def find(self, text: str, request: Request, best: int, missed: Missed | None) -> int:
        """See L{Bucket.find}."""
        bucket = self.exact.get(text)
        if bucket is not None and bucket.first < best:
            best = bucket.find(text, request, best, missed)
        if 0 <= self.numbers.first < best:
            best = self.numbers.find(text, request, best, missed)
        if 0 <= self.heads.first < best:
            best = self.heads.find(text, request, best, missed)
        if 0 <= self.loose.first < best:
            best = self.loose.find(text, request, best, missed)
        return best


class Node:
    """
    A place in a trie of segments.

    @ivar children: by the next segment.
    @ivar one: what follows any next segment that is not empty.
    @ivar here: what ends here.
    @ivar below: what is for everything behind the slash that follows.
    """

    __slots__ = ("below", "children", "here", "one")

    def __init__(self) -> None:
        self.children: dict[str, Node] = {}
        self.one: Node | None = None
        self.here: Bucket | None = None
        self.below: Bucket | None = None

    def grow(self, parts: Iterable[str | Part]) -> Node:
        """The node that these parts lead to."""
        node = self
        for part in parts:
            if isinstance(part, str):
                node = node.children.setdefault(part, Node())
            else:
                if node.one is None:
                    node.one = Node()
                node = node.one
        return node

    def enter(self, candidate: Candidate, below: bool) -> None:
        """One more."""
        if below:
            self.below = self.below or Bucket()
            self.below.add(candidate)
        else:
            self.here = self.here or Bucket()
            self.here.add(candidate)


class Paths:
    """Index over canonical paths."""

    __slots__ = ("exact", "first", "heads", "prefixes", "prefixes_first", "templates", "templates_first")

    def __init__(self) -> None:
        self.first = self.prefixes_first = self.templates_first = -1
        self.exact: dict[str, Bucket] = {}
        self.prefixes = Node()
        self.templates = Node()
        self.heads = Heads()

    def add(self, candidate: Candidate) -> None:
        """One more."""
        if self.first < 0:
            self.first = candidate.rank
        matcher = candidate.matcher
        if matcher.kind is Kind.EXACT:
            self.exact.setdefault(matcher.text, Bucket()).add(candidate)
        elif matcher.kind is Kind.PREFIX:
            if self.prefixes_first < 0:
                self.prefixes_first = candidate.rank
            below = matcher.text.endswith("/")
            self.prefixes.grow(matcher.text.removesuffix("/").split("/")[1:]).enter(candidate, below)
        elif matcher.kind is Kind.TEMPLATE:
            if self.templates_first < 0:
                self.templates_first = candidate.rank
            below = matcher.parts[-1] is Part.REST
            self.templates.grow(matcher.parts[:-1] if below else matcher.parts).enter(candidate, below)
        else:
            self.heads.add(candidate, matcher.head[:HEAD])

    def find(self, path: str, request: Request, best: int, missed: Missed | None) -> int:
        """See L{Bucket.find}."""
        bucket = self.exact.get(path)
        if bucket is not None and bucket.first < best:
            best = bucket.find(path, request, best, missed)
        if path[:1] == "/":
            segments: list[str] | None = None
            if 0 <= self.templates_first < best:
                segments = path.split("/")
                best = _template(self.templates, segments, 1, path, request, best, missed)
            if 0 <= self.prefixes_first < best:
                best = self._prefix(path.split("/") if segments is None else segments, path, request, best, missed)
        if 0 <= self.heads.first < best:
            best = self.heads.find(path, request, best, missed)
        return best

    def _prefix(self, segments: list[str], path: str, request: Request, best: int, missed: Missed | None) -> int:
        node = self.prefixes
        for index in range(1, len(segments)):
            bucket = node.below
            if bucket is not None and bucket.first < best:
                best = bucket.find(path, request, best, missed)
            child = node.children.get(segments[index])
            if child is None:
                break
            bucket = child.here
            if bucket is not None and bucket.first < best:
                best = bucket.find(path, request, best, missed)
            node = child
        return best


def _template(
    node: Node, segments: list[str], index: int, path: str, request: Request, best: int, missed: Missed | None
) -> int:
    """Every node is reached once at most: the trie is a tree."""
    if index == len(segments):
        bucket = node.here
        return best if bucket is None or bucket.first >= best else bucket.find(path, request, best, missed)
    bucket = node.below
    if bucket is not None and bucket.first < best:
        best = bucket.find(path, request, best, missed)
    segment = segments[index]
    child = node.children.get(segment)
    if child is not None:
        best = _template(child, segments, index + 1, path, request, best, missed)
    if node.one is not None and segment:
        best = _template(node.one, segments, index + 1, path, request, best, missed)
    return best
