"""protogate.routing.shadow: rules that can never match.  That a warning is never wrong: see test_table."""

from __future__ import annotations

from typing import Any

import pytest
from asking import entry, router, rule

from protogate.config import model
from protogate.routing.shadow import open_head

FIRST: Any = {"priority": 1}


def warned(*rules: model.Rule) -> list[tuple[str | int, ...]]:
    return [fault.path for fault in router(*rules).warnings]


@pytest.mark.parametrize(
    ("wide", "narrow"),
    [
        # The same again.
        (rule("/a"), rule("/a")),
        (rule("/a"), rule("/%61")),
        (rule("/a"), rule("/a", priority=-1)),
        (rule("/a/{x}", "template"), rule("/a/{y}", "template")),
        (rule("/a[0-9]", "regex"), rule("/a[0-9]", "regex")),
        (rule("h=1", "exact", "header"), rule("H=1", "exact", "header")),
        (rule("h", "exact", "header"), rule("h", "exact", "header")),
        (rule("a.test", "exact", "host"), rule("A.test", "exact", "host")),
        (rule("*.a.test", "exact", "host"), rule("*.a.test", "exact", "host")),
        # A wider prefix, template, regex with a higher priority.
        (rule("/a", "prefix", **FIRST), rule("/a")),
        (rule("/a", "prefix", **FIRST), rule("/a/b", "prefix")),
        (rule("/a", "prefix", **FIRST), rule("/a/", "prefix")),
        (rule("/a/", "prefix", **FIRST), rule("/a/{x}", "template")),
        (rule("/", "prefix", **FIRST), rule("/a/[0-9]+", "regex")),
        (rule("/a", "prefix", **FIRST), rule("/a/[0-9]+", "regex")),
        (rule("/a", "prefix"), rule("/a/[0-9]+", "regex")),
        (rule("/{x}", "template", **FIRST), rule("/a")),
        (rule("/a/{x*}", "template", **FIRST), rule("/a/b", "prefix")),
        (rule("/a/{x*}", "template", **FIRST), rule("/a/{x}/c", "template")),
        (rule("/a/{x}", "template", **FIRST), rule("/a/b", "template")),
        (rule(".*", "regex", **FIRST), rule("/a", "prefix")),
        (rule("^/.*$", "regex", **FIRST), rule("/a/{x}", "template")),
        (rule(r"/a\.b.*", "regex", **FIRST), rule(r"/a\.bc/[x]", "regex")),
        (rule(".*", "regex"), rule("/a.*", "regex")),
        (rule("h", "exact", "header", **FIRST), rule("h=1", "exact", "header")),
        (rule("h=1", "prefix", "header", **FIRST), rule("h=12", "exact", "header")),
        (rule("h=.*", "regex", "header"), rule("h", "exact", "header")),
        (rule("*.test", "exact", "host", **FIRST), rule("a.test", "exact", "host")),
        (rule("*.test", "exact", "host", **FIRST), rule("*.a.test", "exact", "host")),
        (rule(".*", "regex", "host", **FIRST), rule("*.a.test", "exact", "host")),
        # A range.
        (rule("10-99", "exact", "service"), rule("10-99", "exact", "service")),
        (rule("10-99", "exact", "service", **FIRST), rule("10-98", "exact", "service")),
        (rule("10-99", "exact", "service", **FIRST), rule("11-99", "exact", "service")),
        (rule("10-99", "exact", "service", **FIRST), rule("99", "exact", "service")),
        (rule("7, 10-99", "exact", "service", **FIRST), rule("20-30, 7, 99", "exact", "service")),
        (rule(".*", "regex", "service", **FIRST), rule("20-30, 7", "exact", "service")),
        # Narrowed, but not more than the other.
        (rule("/a", hosts=("*.test",), **FIRST), rule("/a", hosts=("a.test", "*.b.test"))),
        (rule("/a", methods=("GET", "PUT"), **FIRST), rule("/a", methods=("PUT",))),
        (rule("/a", hosts=("a.test", "b.test")), rule("/a", hosts=("b.test", "a.test"))),
        # Final all the same.
        (rule("/a", published=False), rule("/a")),
        (rule("/a", "exact", "uri", entry(condition="source.tls")), rule("/a")),
    ],
)
def test_a_rule_that_can_never_match_is_reported(wide: model.Rule, narrow: model.Rule) -> None:
    assert warned(wide, narrow) == [("routes", 1)]
    if wide.priority > narrow.priority:
        assert warned(narrow, wide) == [("routes", 0)]


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (rule("/a"), rule("/b")),
        (rule("/a"), rule("/a", "prefix")),
        (rule("/a", "prefix", **FIRST), rule("/ab", "prefix")),
        (rule("/a", "prefix", **FIRST), rule("/ab")),
        (rule("/a", "prefix", **FIRST), rule("/a[0-9]+", "regex")),
        (rule("/a/", "prefix", **FIRST), rule("/a", "prefix")),
        (rule("/a/", "prefix", **FIRST), rule("/a")),
        (rule("/a/b", "prefix", **FIRST), rule("/a/{x}", "template")),
        (rule("/{x}", "template", **FIRST), rule("/a", "prefix")),
        (rule("/{x}", "template", **FIRST), rule("/{x*}", "template")),
        (rule("/{x}", "template", **FIRST), rule("/a/b")),
        (rule("/{x}/{y}", "template", **FIRST), rule("/a/")),
        (rule("/{x}/b", "template", **FIRST), rule("/a/c")),
        (rule("/a/{x}", "template", **FIRST), rule("/b/{x}", "template")),
        (rule("/.*", "regex", **FIRST), rule("*")),
        (rule("/a|/.*", "regex", **FIRST), rule("/b")),
        (rule("/a+.*", "regex", **FIRST), rule("/aab")),
        (rule("q=.*", "regex", "query", **FIRST), rule("q=1", "exact", "query")),  # a value may hold a line feed
        (rule("h=1", "exact", "header", **FIRST), rule("g=1", "exact", "header")),
        (rule("h=1", "exact", "header", **FIRST), rule("h=1", "exact", "query")),
        (rule(r"\*\..*", "regex", "host", **FIRST), rule("*.a.test", "exact", "host")),
        (rule("*.a.test", "exact", "host", **FIRST), rule("a.test", "exact", "host")),
        (rule("/a", hosts=("a.test",), **FIRST), rule("/a")),
        (rule("/a", hosts=("a.test",), **FIRST), rule("/a", hosts=("a.test", "b.test"))),
        (rule("/a", hosts=("*.a.test",), **FIRST), rule("/a", hosts=("*.test",))),
        (rule("/a", methods=("GET",), **FIRST), rule("/a")),
        (rule("/a", methods=("GET",), **FIRST), rule("/a", methods=("GET", "PUT"))),
        (rule("/a", "prefix", **FIRST), rule("a.test", "exact", "host")),
        (rule("10-99", "exact", "service", **FIRST), rule("10-100", "exact", "service")),
        (rule("10-99", "exact", "service", **FIRST), rule("9-99", "exact", "service")),
        (rule("10-99", "exact", "service", **FIRST), rule("50, 100", "exact", "service")),
        (rule("10-99", "exact", "service", **FIRST), rule("50x", "exact", "service")),
        (rule("1", "prefix", "service", **FIRST), rule("10-20", "exact", "service")),
        (rule("1.*", "regex", "service", **FIRST), rule("10-20", "exact", "service")),
        (rule("10-99", "exact", "service", **FIRST), rule("1", "prefix", "service")),
        (rule("10-99", "exact", "service", methods=("PUT",), **FIRST), rule("20", "exact", "service")),
    ],
)
def test_a_rule_that_can_match_is_not(first: model.Rule, second: model.Rule) -> None:
    assert warned(first, second) == []


def test_the_warning_names_both() -> None:
    (warning,) = router(rule("/x"), rule("/a", name="old"), rule("/a", name="new")).warnings
    assert warning.message == (
        'rule "new" can never match: rule "old" (routes[1]) comes first and matches all that it would'
    )


@pytest.mark.parametrize(
    "narrow",
    [
        rule("1001", "exact", "service"),
        rule("shop.example", "exact", "host"),
        rule("x-version=next", "exact", "header", hosts=("a.test",)),
        rule("sid", "exact", "cookie", methods=("GET",)),
        rule("beta", "exact", "query", priority=-1),
    ],
)
@pytest.mark.parametrize("every", [rule("/", "prefix"), rule("/{rest*}", "template"), rule("/.*", "regex")])
def test_a_rule_behind_one_for_every_path_is_reported(every: model.Rule, narrow: model.Rule) -> None:
    (fault,) = router(narrow, every).warnings
    assert fault.path == ("routes", 0)
    assert "(routes[1]) matches every path" in fault.message
    assert fault.message.endswith("give this one a higher priority")


@pytest.mark.parametrize(
    ("every", "narrow"),
    [
        (rule("/", "prefix"), rule("1001", "exact", "service", **FIRST)),
        (rule("/", "prefix", hosts=("a.test",)), rule("1001", "exact", "service")),
        (rule("/", "prefix", hosts=("a.test",)), rule("b.test", "exact", "host")),
        (rule("/", "prefix", methods=("GET",)), rule("1001", "exact", "service")),
        (rule("/", "prefix", methods=("GET",)), rule("sid", "exact", "cookie", methods=("GET", "PUT"))),
        (rule("/a", "prefix"), rule("1001", "exact", "service")),
        (rule("/{one}", "template"), rule("1001", "exact", "service")),
        # What has no path may be what is meant.
        (rule("/", "prefix"), rule("CONNECT", "exact", "method")),
        (rule("/", "prefix"), rule("sid", "exact", "cookie", methods=("OPTIONS",))),
        (rule("/", "prefix"), rule("HTTP/1.0", "exact", "protocol")),
    ],
)
def test_a_rule_that_something_with_a_path_may_come_to_is_not(every: model.Rule, narrow: model.Rule) -> None:
    assert warned(narrow, every) == []


def test_a_rule_of_another_zone_hides_nothing() -> None:
    table = router(rule("/a", "exact", "uri", entry(zone="X")), rule("/a"), zone="PRO")
    assert table.warnings == []


def test_an_entry_behind_one_that_always_holds_is_reported() -> None:
    table = router(rule("/a", "exact", "uri", entry(condition="source.tls"), entry(), entry(condition="true"), entry()))
    assert [fault.path for fault in table.warnings] == [("routes", 0, "routes", 2), ("routes", 0, "routes", 3)]
    assert "entry 1 always holds" in table.warnings[0].message


@pytest.mark.parametrize(
    ("pattern", "head"),
    [(".*", ""), ("^.*$", ""), ("/a.*", "/a"), (r"/a\..*", "/a."), ("/a+.*", None), ("/a", None), (r"/\d.*", None)],
)
def test_open_head(pattern: str, head: str | None) -> None:
    assert open_head(pattern) == head
