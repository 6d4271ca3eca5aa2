"""protogate.routing.matchers: what the value of a rule means."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protogate.routing.matchers import MOST, Kind, blocks, build, host, literal_head, method


@pytest.mark.parametrize(
    ("kind", "value", "yes", "no"),
    [
        ("exact", "/a", ["/a"], ["/a/", "/b", "/A", "/", "*"]),
        ("exact", "/", ["/"], ["/a"]),
        ("exact", "*", ["*"], ["/", "/*"]),
        ("exact", "/caf%c3%a9", ["/caf%C3%A9"], []),
        ("exact", "/café", ["/caf%C3%A9"], []),
        ("exact", "//a", ["/a"], []),
        ("prefix", "/hotel/order", ["/hotel/order", "/hotel/order/", "/hotel/order/1"], ["/hotel/orders", "/hotel"]),
        ("prefix", "/hotel/", ["/hotel/", "/hotel/1"], ["/hotel", "/hotels"]),
        ("prefix", "/", ["/", "/a", "/a/b"], ["*", ""]),
        ("template", "/u/{id}", ["/u/1", "/u/%2F"], ["/u/", "/u", "/u/1/", "/u/1/2"]),
        ("template", "/u/{id}/o/{rest*}", ["/u/1/o/", "/u/1/o/2", "/u/1/o/2/3/"], ["/u/1/o", "/u//o/2", "/u/1/p/2"]),
        ("template", "/{rest*}", ["/", "/a", "/a/b"], ["*", ""]),
        ("template", "/{a}/{b}/", ["/x/y/"], ["/x/y", "/x//", "//y/"]),
        ("template", "/plain", ["/plain"], ["/plain/"]),
        ("template", "/", ["/"], ["/a"]),
        ("template", "/é/{x}", ["/%C3%A9/1"], []),
        ("regex", "/a[0-9]+", ["/a1", "/a12"], ["/a", "/a1/", "x/a1", "/a1\n"]),
        ("regex", ".*", ["", "*", "/x"], []),
    ],
)
def test_uri_values(kind: str, value: str, yes: list[str], no: list[str]) -> None:
    matches = build("uri", kind, value).matches
    assert [text for text in yes if not matches(text)] == []
    assert [text for text in no if matches(text)] == []


@pytest.mark.parametrize(
    ("type_", "kind", "value", "field", "yes", "no"),
    [
        ("header", "exact", "X-Canary=1", "x-canary", ["1"], ["", "11"]),
        ("header", "exact", "x-empty=", "x-empty", [""], ["1"]),
        ("header", "exact", "x-any", "x-any", ["", "1"], []),
        ("header", "prefix", "user-agent=curl/", "user-agent", ["curl/8"], ["wget"]),
        ("query", "regex", "page=[0-9]+", "page", ["12"], ["", "x1"]),
        ("query", "exact", "a=b=c", "a", ["b=c"], ["b"]),
        ("query", "exact", "城市=上海", "城市", ["上海"], []),
        ("cookie", "prefix", "Sid=v1.", "Sid", ["v1.x"], ["v2.x"]),
        ("method", "exact", "GET", "", ["GET"], ["get"]),
        ("method", "regex", "GET|HEAD", "", ["GET", "HEAD"], ["GETHEAD"]),
        ("protocol", "prefix", "HTTP/", "", ["HTTP/1.1"], ["SOTP/1"]),
        ("service", "exact", "4711", "", ["4711"], ["47110"]),
        ("host", "exact", "A.Test", "", ["a.test"], ["b.a.test"]),
        ("host", "exact", "*.A.test", "", ["b.a.test", "c.b.a.test"], ["a.test", "ba.test"]),
        ("host", "exact", "[2001:DB8::0]", "", ["2001:db8::"], []),
        ("host", "prefix", "Api.", "", ["api.test"], ["a.test"]),
        ("host", "regex", r"[a-z]+\.test", "", ["a.test"], ["a.test.x"]),
    ],
)
def test_other_values(type_: str, kind: str, value: str, field: str, yes: list[str], no: list[str]) -> None:
    matcher = build(type_, kind, value)
    assert matcher.field == field
    assert [text for text in yes if not matcher.matches(text)] == []
    assert [text for text in no if matcher.matches(text)] == []


def test_a_name_alone_asks_whether_it_is_there() -> None:
    assert build("cookie", "regex", "sid").kind is Kind.PRESENT
    assert build("cookie", "exact", "sid=").kind is Kind.EXACT


@pytest.mark.parametrize(
    ("type_", "kind", "value", "why"),
    [
        ("uri", "exact", "", "does not start with a slash"),
        ("uri", "prefix", "*", "does not start with a slash"),
        ("uri", "prefix", "hotel", "does not start with a slash"),
        ("uri", "exact", "/a/../b", 'holds dot segments: write "/b"'),
        ("uri", "exact", "/a%zz", "without two hex digits"),
        ("uri", "exact", "/a?b", "must be percent-encoded"),
        ("uri", "prefix", "/a%2f..", "parsers do not agree"),
        ("uri", "template", "users/{id}", "does not start with a slash"),
        ("uri", "template", "/v{n}/x", "a placeholder is a whole segment"),
        ("uri", "template", "/{}", "a placeholder is a whole segment"),
        ("uri", "template", "/{a-b}", "a placeholder is a whole segment"),
        ("uri", "template", "/a}", "a placeholder is a whole segment"),
        ("uri", "template", "/{a}/{a}", '"a" names two placeholders'),
        ("uri", "template", "/{a*}/b", "stands at the end only"),
        ("uri", "template", "/{a}//b", "an empty segment"),
        ("uri", "template", "/{a}/..", "climbs above the root"),
        ("uri", "regex", "/a(", "never closed"),
        ("uri", "regex", "(?=x)", "lookaround"),
        ("header", "template", "a={b}", "template is for uri rules, this is a header rule"),
        ("header", "exact", "=x", "expected name=value"),
        ("header", "exact", "a b=x", "expected name=value"),
        ("header", "exact", "", "expected name=value"),
        ("cookie", "exact", "a;b=x", "expected name=value"),
        ("query", "exact", "=x", "expected name=value"),
        ("method", "exact", "", "needs a value"),
        ("method", "exact", "get", "upper case: GET"),
        ("method", "exact", "GET POST", "no method"),
        ("service", "prefix", "", "needs a value"),
        ("service", "exact", "", "needs a value"),
        ("service", "exact", "1,,2", "with commas between them"),
        ("service", "exact", "a b", "with commas between them"),
        ("service", "exact", "1, 1", "has 1 twice"),
        ("service", "exact", "0", "0 is no number of a service"),
        ("service", "exact", "007", "007 is no number of a service"),
        ("service", "exact", "1-4294967296", "4294967296 is no number of a service: those are 1 to 4294967295"),
        ("service", "exact", "9-5", "9-5 is no range: the lower number comes first"),
        ("service", "exact", "5-5", "5-5 is no range"),
        ("host", "exact", "*", "every host"),
        ("host", "exact", "a.test:80", "without a port"),
        ("host", "exact", "bücher.test", "ASCII form: xn--bcher-kva.test"),
        ("host", "exact", "*.[::1]", "no labels"),
        ("host", "exact", "a b", "a host name or an address"),
        ("host", "exact", "*.", "a host name or an address"),
    ],
)
def test_values_that_are_refused(type_: str, kind: str, value: str, why: str) -> None:
    with pytest.raises(ValueError, match=re.escape(why)):
        build(type_, kind, value)


@given(st.integers(1, 2000), st.integers(1, 2000))
def test_the_blocks_of_a_range_are_the_range(one: int, two: int) -> None:
    low, high = min(one, two), max(one, two)
    numbers = [number for bits, block in blocks(low, high) for number in range(block << bits, (block + 1) << bits)]
    assert numbers == list(range(low, high + 1))


@given(st.integers(1, MOST), st.integers(1, MOST))
def test_the_blocks_of_a_range_are_few(one: int, two: int) -> None:
    assert len(list(blocks(min(one, two), max(one, two)))) <= 62


def test_several_services_match_each() -> None:
    made = build("service", "exact", "7, 10-12 , orders")
    texts = ("7", "10", "11", "12", "orders", "13", "9", "011", "", "7, 10-12 , orders")
    assert [bool(made.matches(text)) for text in texts] == [True] * 5 + [False] * 5
    assert [one.text for one in made.each] == ["7", "10-12", "orders"]


def test_narrowings() -> None:
    assert host("*.Ctrip.com") == "*.ctrip.com"
    assert host("Ctrip.com.") == "ctrip.com"
    assert method("PURGE") == b"PURGE"


@pytest.mark.parametrize(
    ("pattern", "head"),
    [
        ("/a/b", "/a/b"),
        ("^/a", "/a"),
        ("/a.*", "/a"),
        (r"/a\.b\-c/[0-9]", "/a.b-c/"),
        ("/ab*", "/a"),
        ("/ab?", "/a"),
        ("/ab{2}", "/a"),
        ("/ab+", "/ab"),
        ("/a(b|c)", "/a"),
        ("/a[(]b", "/a"),
        ("/a|/b", ""),
        ("[(]a|b", ""),
        (r"\(a|b", ""),
        ("[^]|(]|b", ""),
        ("(a|b)c", ""),
        (r"\Q(\E|b", ""),
        (r"\d", ""),
        (r"/a\d", "/a"),
        ("(?i)/a", ""),
        ("/a$", "/a"),
        (".*", ""),
        ("", ""),
    ],
)
def test_literal_head(pattern: str, head: str) -> None:
    assert literal_head(pattern) == head


@given(
    st.lists(
        st.sampled_from(["a", "b", "/", ".", "*", "+", "?", "|", "(", ")", "[ab]", "[(]", r"\.", r"\(", "^", "{2}"]),
        max_size=8,
    ).map("".join),
    st.text(alphabet="ab/.(", max_size=6),
)
def test_whatever_a_regex_matches_starts_with_its_head(pattern: str, text: str) -> None:
    try:
        matcher = build("uri", "regex", pattern)
    except ValueError:
        return
    if matcher.matches(text):
        assert text.startswith(matcher.head)
