"""
What a rule's value means: text of the configuration → L{Matcher}.

- exact: the same text.
- prefix: for uri on segment boundaries, so C{/hotel/order} matches itself and C{/hotel/order/1}, not C{/hotel/orders};
  one that ends in a slash matches only below it, C{/} everything.  For other types: text that starts so.
- template (uri only): C{/users/{id}/orders/{rest*}}.  C{{id}} is one segment, never empty; C{{rest*}}, at the end, is
  all that follows the slash before it, also nothing.
- regex: the whole text must match, from its first to its last character.
- exact, of a service: numbers, ranges of numbers and names, with commas between them: C{1001, 1100-1199, orders}.

A uri value is brought into the canonical form (L{protogate.uri.canonical}) that paths are compared in, so C{/café} and
C{/caf%c3%a9} are the same rule.  Whatever is wrong with a value is a ValueError.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from protogate.config import address
from protogate.expression import regex
from protogate.uri import canonical

FIELDS: Final = ("header", "query", "cookie")
"""Types whose value is C{name=value}, or C{name} alone."""


class Kind(IntEnum):
    """How a text is compared; the first decides before the second."""

    EXACT = 0
    RANGE = 1
    """Numbers from one to another."""
    TEMPLATE = 2
    PREFIX = 3
    REGEX = 4
    PRESENT = 5
    """Any text."""


class Part(IntEnum):
    """A placeholder of a template."""

    ONE = 1
    REST = 2


@dataclass(frozen=True, slots=True, eq=False)
class Matcher:
    """One value."""

    kind: Kind
    text: str
    """The literal, the prefix, the template or the pattern."""
    matches: Callable[[str], object]
    """Does this text match?  Gives something true or false."""
    field: str = ""
    """Name of the header, parameter or cookie."""
    parts: tuple[str | Part, ...] = ()
    """Segments of a template."""
    names: tuple[str, ...] = ()
    """Of its placeholders, in their order."""
    head: str = ""
    """What each text that a regex matches starts with."""
    span: tuple[int, int] = (0, 0)
    """First and last number of a range."""
    each: tuple[Matcher, ...] = ()
    """Of a value that is several: those, each one to be tried for itself."""

    @property
    def order(self) -> tuple[int, ...]:
        """Sorts matchers of one type: the more specific first."""
        if self.kind is Kind.TEMPLATE:
            return (self.kind, *(0 if isinstance(part, str) else part for part in self.parts))
        if self.kind is Kind.RANGE:
            return (self.kind, self.span[1] - self.span[0])
        return (self.kind, -len(self.text) if self.kind is Kind.PREFIX else 0)


def build(type_: str, kind: str, value: str) -> Matcher:
    """
    The matcher for a rule's type, matcherType and value.

    @raise ValueError: says what is wrong with the value.
    """
    if kind == "template" and type_ != "uri":
        raise ValueError(f"matcherType template is for uri rules, this is a {type_} rule")
    if type_ == "uri":
        return _URI[kind](value)
    if type_ in FIELDS:
        name, equals, rest = value.partition("=")
        if type_ == "header":
            name = name.lower()
        if not (_TOKEN.fullmatch(name) if type_ != "query" else name):
            raise ValueError(f'expected name=value, or name alone, got "{value}"')
        if not equals:
            return Matcher(Kind.PRESENT, "", lambda _: True, name)
        return _text(kind, rest, name)
    if not value:
        raise ValueError(f"a {type_} rule needs a value")
    if type_ == "service" and kind == "exact":
        return _services(value)
    if type_ == "method":
        method(value, kind)
    if type_ == "host" and kind != "regex":
        value = host(value, kind)
        if value.startswith("*.") and kind == "exact":
            return Matcher(Kind.EXACT, value, lambda text: text.endswith(value[1:]))
    return _text(kind, value, "")


_TOKEN: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_METHODS: Final = frozenset({"GET", "HEAD", "POST", "PUT", "DELETE", "CONNECT", "OPTIONS", "TRACE", "PATCH"})


def method(value: str, kind: str = "exact") -> bytes:
    """A method, as a request has it; case matters (RFC 9110, 9.1)."""
    if kind != "regex" and not _TOKEN.fullmatch(value):
        raise ValueError(f'"{value}" is no method')
    if value not in _METHODS and value.upper() in _METHODS:
        raise ValueError(f"methods are in upper case: {value.upper()}")
    return value.encode("utf-8")


def host(value: str, kind: str = "exact") -> str:
    """A host as L{protogate.uri.host_of} gives it, or C{*.} and such a host: any labels in front of it."""
    if kind == "prefix":
        return value.lower()
    return address.host_pattern(value)


def _text(kind: str, value: str, field: str) -> Matcher:
    if kind == "exact":
        return Matcher(Kind.EXACT, value, value.__eq__, field)
    if kind == "prefix":
        return Matcher(Kind.PREFIX, value, lambda text: text.startswith(value), field)
    return Matcher(Kind.REGEX, value, regex.compile(value, anchored=True).fullmatch, field, head=literal_head(value))


_NUMBER: Final = re.compile(r"[1-9][0-9]{0,9}").fullmatch
_RANGE: Final = re.compile(r"([0-9]+)-([0-9]+)").fullmatch
MOST: Final = (1 << 32) - 1
"""The highest number of a service."""


def _services(value: str) -> Matcher:
    """Numbers, ranges and names, with commas between them."""
    found: dict[str, Matcher] = {}
    for part in value.split(","):
        item = part.strip(" ")
        if not item or any(letter.isspace() for letter in item):
            raise ValueError(f'"{value}": expected numbers, ranges or names, with commas between them')
        if item in found:
            raise ValueError(f'"{value}" has {item} twice')
        ends = _RANGE(item)
        if ends is not None:
            found[item] = _range(_service(ends[1]), _service(ends[2]))
        elif item.isascii() and item.isdigit():
            found[item] = _text("exact", str(_service(item)), "")
        else:
            found[item] = _text("exact", item, "")
    each = tuple(found.values())
    if len(each) == 1:
        return each[0]
    return Matcher(Kind.EXACT, value, lambda text: any(one.matches(text) for one in each), each=each)


def _service(text: str) -> int:
    number = int(text) if _NUMBER(text) else 0
    if not 0 < number <= MOST:
        raise ValueError(f"{text} is no number of a service: those are 1 to {MOST}")
    return number


def _range(low: int, high: int) -> Matcher:
    if low >= high:
        raise ValueError(f"{low}-{high} is no range: the lower number comes first")

    def matches(text: str) -> bool:
        return _NUMBER(text) is not None and low <= int(text) <= high

    return Matcher(Kind.RANGE, f"{low}-{high}", matches, span=(low, high))


def blocks(low: int, high: int) -> Iterator[tuple[int, int]]:
    """
    A range as blocks of numbers that have their high bits in common, as networks have: (low bits that differ, the
    others).  There are 62 at most for numbers of 32 bits.
    """
    while low <= high:
        bits = (low & -low).bit_length() - 1
        while low + (1 << bits) - 1 > high:
            bits -= 1
        yield bits, low >> bits
        low += 1 << bits


def _path(value: str) -> str:
    """A path of the configuration in its canonical form."""
    path, plain = canonical(value.encode("utf-8"))
    if not plain:
        raise ValueError(f'"{value}" holds dot segments: write "{path}"')
    return path


def _uri_exact(value: str) -> Matcher:
    path = value if value == "*" else _path(value)
    return Matcher(Kind.EXACT, path, path.__eq__)


def _uri_prefix(value: str) -> Matcher:
    path = _path(value)
    if path.endswith("/"):
        return Matcher(Kind.PREFIX, path, lambda text: text.startswith(path))
    below = path + "/"
    return Matcher(Kind.PREFIX, path, lambda text: text == path or text.startswith(below))


def _uri_regex(value: str) -> Matcher:
    return _text("regex", value, "")


_PLACEHOLDER: Final = re.compile(r"\{([A-Za-z_][A-Za-z0-9_]*)(\*?)\}")


def _uri_template(value: str) -> Matcher:
    if not value.startswith("/"):
        raise ValueError("the path does not start with a slash")
    parts: list[str | Part] = []
    names: dict[str, None] = {}
    segments = value.split("/")[1:]
    for segment in segments:
        placeholder = _PLACEHOLDER.fullmatch(segment)
        if placeholder is None:
            if "{" in segment or "}" in segment:
                raise ValueError(f'"{segment}": a placeholder is a whole segment, {{name}} or, at the end, {{name*}}')
            if segment == "" and len(parts) + 1 < len(segments):
                raise ValueError(f'"{value}" holds an empty segment')
            parts.append(_path(f"/{segment}")[1:])
            continue
        if placeholder[1] in names:
            raise ValueError(f'"{placeholder[1]}" names two placeholders')
        names[placeholder[1]] = None
        parts.append(Part.REST if placeholder[2] else Part.ONE)
    if Part.REST in parts[:-1]:
        raise ValueError("{name*} stands at the end only: it takes all that follows")
    return Matcher(
        Kind.TEMPLATE,
        value,
        lambda path: _fits(parts, path.split("/")[1:]),
        parts=tuple(parts),
        names=tuple(names),
    )


def _fits(parts: list[str | Part], segments: list[str]) -> bool:
    if parts[-1] is Part.REST:
        if len(segments) < len(parts):
            return False
    elif len(segments) != len(parts):
        return False
    return all(
        part is Part.REST or (bool(segment) if part is Part.ONE else part == segment)
        for part, segment in zip(parts, segments, strict=False)
    )


_URI: Final[dict[str, Callable[[str], Matcher]]] = {
    "exact": _uri_exact,
    "prefix": _uri_prefix,
    "template": _uri_template,
    "regex": _uri_regex,
}

_ATOM: Final = re.compile(r"\\([^A-Za-z0-9])|([^\\.^$*+?{}\[\]|()])")
"""One character that stands for itself."""
_SKIP: Final = re.compile(r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]|[^\\\[]", re.DOTALL)
"""An escape, a set of characters, or one character."""


def literal_head(pattern: str) -> str:
    """The text that everything starts with that the pattern matches as a whole; at worst C{""}."""
    if "\\Q" in pattern:
        return ""
    depth = 0
    for token in _SKIP.findall(pattern):
        depth += (token == "(") - (token == ")")
        if token == "|" and depth == 0:
            return ""
    head = ""
    place = 1 if pattern.startswith("^") else 0
    while (atom := _ATOM.match(pattern, place)) is not None:
        place = atom.end()
        if pattern[place : place + 1] in ("*", "?", "{"):
            break
        head += atom[1] or atom[2]
        if pattern[place : place + 1] == "+":
            break
    return head
