"""Which patterns are refused because an attacker could make them take too long."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from protogate.errors import ConfigError
from protogate.expression import ambiguity, regex
from protogate.expression.ambiguity import Alternatives, Assertion, Characters, Node, Repeat, Sequence

EXPONENTIAL = "a repetition can read the same text in several ways, so the time can double with each character"
CUBIC = "three repetitions can share the same text, so the time can grow with its third power"
EMPTY = "a part that may be empty is repeated"


@pytest.mark.parametrize(
    ("pattern", "reason"),
    [
        ("(a+)+", EXPONENTIAL),
        ("(a|a)*", EXPONENTIAL),
        ("(a|ab|b)*$", EXPONENTIAL),
        ("(a|aa)+$", EXPONENTIAL),
        (r"^(\w+\s?)*$", EXPONENTIAL),
        (r"^([a-zA-Z0-9])(([\-.]|[_]+)?([a-zA-Z0-9]+))*$", EXPONENTIAL),
        (r"(x+x+)+y", EXPONENTIAL),
        (r"(.*,)*$", EXPONENTIAL),
        ("(?:[ab]+|[bc]+)*d", EXPONENTIAL),
        ("(?i)(a|A)*$", EXPONENTIAL),
        ("(a|aa){20}$", EXPONENTIAL),
        ("((a|aa){4}){4}$", EXPONENTIAL),
        ("(a{1,9}){1,9}$", EXPONENTIAL),
        ("(a?b?)*", EMPTY),
        ("(a*)*", EMPTY),
        ("(a*){2}", EMPTY),
        ("x(a|b*)+", EMPTY),
        ("(|a)+", EMPTY),
        (r"(\b|a)+", EMPTY),
        ("((^)|a)+", EMPTY),
        ("(a{0}){2}", EMPTY),
        (".*a.*b", CUBIC + "; begin it with ^, or test its parts one by one"),
        ("foo.*bar.*baz", CUBIC + "; begin it with ^, or test its parts one by one"),
        (".*a.*$", CUBIC + "; begin it with ^, or test its parts one by one"),
        (r"foo.*bar.*\A", CUBIC + "; begin it with ^, or test its parts one by one"),
        ("^.*a.*b.*c$", CUBIC + "; test its parts one by one"),
        ("^.*.*.*$", CUBIC + "; test its parts one by one"),
        ("a.{0,200}b.{0,200}c", CUBIC + "; begin it with ^, or test its parts one by one"),
        ("(?:" + "|".join("abcdefgh" * 140) + ")x", "it is too large to be checked"),
        ("^(?:" + "|".join(chr(0x4E00 + number) for number in range(500)) + ")*$", "it is too large to be checked"),
    ],
)  # fmt: skip
def test_refused(pattern: str, reason: str) -> None:
    with pytest.raises(ConfigError) as caught:
        regex.compile(pattern)
    assert caught.value.message == f'the pattern "{pattern}" can take too long: {reason}'


@pytest.mark.parametrize(
    "pattern",
    [
        "",
        "a+b",
        "(a|b)*c",
        "(a|ab)*c",
        "(ab*)+c",
        r"^(\d{1,3}\.){3}\d{1,3}$",
        r"^([a-z0-9-]+\.)+example\.com$",
        r"[a-z]+\.example\.com$",
        r"^[\w.+-]+@([\w-]+\.)+[a-z]{2,}$",
        "^/hotel/.*/order/.*$",
        "/api/.*/v[0-9]+/.*",
        "^/api/v[0-9]+/[^/]+/items/[^/]+/[^/]+$",
        ".*foo",
        "foo.*bar",
        "foo.*bar.*",
        "(?i)(bot|crawl|spider|slurp)",
        r"^\d{4}-\d{2}-\d{2}$",
        "^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$",
        "a.{0,50}b.{0,50}c",
        "^(a{2}){3}$",
        "^(?:a|b)?(?:c?d)?$",
        "(^a|^b).*c.*d",
        "(^a)+b.*c.*d",
        "^(?:^a)*b.*c",
        "^(?:" + "|".join(f"word{number}" for number in range(100)) + ")$",
    ],
)
def test_let_pass(pattern: str) -> None:
    assert regex.compile(pattern)


def test_a_match_from_the_begin_has_one_loop_less() -> None:
    assert regex.compile(".*a.*b", anchored=True).match("xaxb")
    with pytest.raises(ConfigError, match="third power; test its parts one by one"):
        regex.compile(".*a.*b.*c", anchored=True)


class Tries:
    """A backtracking engine that counts its steps, and gives up at a limit."""

    def __init__(self, limit: int) -> None:
        self.limit, self.steps = limit, 0

    def search(self, node: Node, text: str) -> None:
        for start in range(len(text) + 1):
            self.match(node, text, start, lambda at: False)

    def match(self, node: Node, text: str, at: int, then: Callable[[int], bool]) -> bool:
        self.steps += 1
        if self.steps > self.limit:
            raise OverflowError
        match node:
            case Characters():
                fits = at < len(text) and any(low <= ord(text[at]) <= high for low, high in node.ranges)
                return fits and then(at + 1)
            case Assertion():
                return (at == 0 or not node.begin) and then(at)
            case Sequence():
                if not node.items:
                    return then(at)
                rest = Sequence(node.items[1:])
                return self.match(node.items[0], text, at, lambda end: self.match(rest, text, end, then))
            case Alternatives():
                return any(self.match(item, text, at, then) for item in node.items)
            case Repeat():
                return self.repeat(node, text, at, then)

    def repeat(self, node: Repeat, text: str, at: int, then: Callable[[int], bool]) -> bool:
        if node.high != 0:
            rest = Repeat(node.item, max(0, node.low - 1), None if node.high is None else node.high - 1)
            if self.match(node.item, text, at, lambda end: self.match(rest, text, end, then)):
                return True
        return node.low == 0 and then(at)


def characters(letters: str) -> Node:
    return Characters(tuple((ord(letter), ord(letter)) for letter in letters))


NODES: st.SearchStrategy[Node] = st.recursive(
    st.sampled_from(["a", "b", "ab"]).map(characters),
    lambda inner: st.one_of(
        st.lists(inner, min_size=2, max_size=3).map(lambda items: Sequence(tuple(items))),
        st.lists(inner, min_size=2, max_size=2).map(lambda items: Alternatives(tuple(items))),
        st.builds(Repeat, inner, st.integers(0, 1), st.just(None)),
        st.builds(Repeat, inner, st.just(0), st.just(1)),
    ),
    max_leaves=5,
)
TEXTS = st.lists(st.tuples(st.sampled_from(["a", "b", "ab", "aab", "abb"]), st.integers(1, 16)), min_size=1, max_size=3)


@settings(max_examples=200)
@given(NODES, TEXTS)
@example(Sequence((Repeat(characters("a"), 1, None), characters("b"))), [("a", 30)])
def test_what_is_let_pass_takes_a_square_at_most(node: Node, parts: list[tuple[str, int]]) -> None:
    """A failing search over n characters is the worst case; 32 characters would be 2^32 ways for an exponential one."""
    text = "".join(word * times for word, times in parts)[:32]
    # With an end that cannot match, no loop is harmless.
    assume(not ambiguity.reason(Sequence((node, Assertion())), searched=True))
    tries = Tries(limit=64 * 34 * 34 * 4)
    tries.search(node, text)
    assert tries.steps <= tries.limit


def test_the_engine_that_counts_does_find_the_bad_ones() -> None:
    bad = Repeat(Repeat(characters("a"), 1, None), 1, None)
    assert ambiguity.reason(bad, searched=True)
    with pytest.raises(OverflowError):
        Tries(limit=200_000).search(bad, "a" * 32)
