"""
The same expressions, evaluated by another implementation of CEL (in Rust): the results are the same.

Documented differences are spelled out for it: a key that is not in a map is the empty string here, so it is given
C{(key in map ? map[key] : '')}.  It counts the UTF-8 bytes of a string where CEL says characters, so texts are ASCII.
"""

from __future__ import annotations

from ipaddress import ip_address, ip_network
from typing import Any

import cel
import pytest
from exchanges import exchange, route
from hypothesis import given, settings
from hypothesis import strategies as st

from protogate.expression import condition
from protogate.message import Headers, Peer, Response

WORDS = ["", "a", "b", "ab", "GET", "/a", "/a/b", "10.1.2.3", "x y", "1"]
KEYS = ["a", "b", "x-c"]
METHODS = ["GET", "PUT"]
MAPS = ["request.headers", "request.query", "request.cookies", "route.properties", "response.headers"]
NETWORKS = ["10.0.0.0/8", "192.0.2.0/24", "10.1.2.3", "2001:db8::/32"]
PATTERNS = ["a", "^a", "b$", "^/a/.*", "[0-9]+", "(?i)get", r"^\w+$", "^$"]

Pair = tuple[str, str]
"""An expression as we write it, and as the other one needs it."""


def same(text: str) -> Pair:
    return text, text


def item(name: str, key: str) -> Pair:
    return f"{name}['{key}']", f"('{key}' in {name} ? {name}['{key}'] : '')"


def is_name(pair: Pair) -> bool:
    """Not a constant that can never be the name of a header: that is a fault."""
    return pair[0] not in ("''", "'/a'", "'/a/b'", "'x y'")


def call(form: str, *parts: Pair) -> Pair:
    return form.format(*(part[0] for part in parts)), form.format(*(part[1] for part in parts))


def expressions() -> st.SearchStrategy[Pair]:
    """Boolean ones."""
    words = st.sampled_from(WORDS).map(lambda word: same(repr(word)))
    strings = st.one_of(
        words,
        st.sampled_from(
            ["request.method", "request.path", "request.host", "request.protocol", "request.service", "source.ip",
             "route.name"]
        ).map(same),
        st.builds(item, st.sampled_from(MAPS), st.sampled_from(KEYS)),
    )  # fmt: skip
    numbers = st.one_of(
        st.integers(-10, 1000).map(lambda number: same(str(number))),
        st.integers(0, 1000).map(lambda number: same(f"{number}u")),
        st.floats(-10, 1000, width=16).map(lambda number: same(repr(number))),
        st.sampled_from(["source.port", "response.status", "-source.port", "--7", "- 7"]).map(same),
        strings.map(lambda text: call("size({})", text)),
        strings.map(lambda text: call("{}.size()", text)),
        st.sampled_from(["size(request.query)", "route.tags.size()", "response.headers.size()"]).map(same),
    )
    keys = st.sampled_from(KEYS).map(lambda key: same(repr(key)))
    order = st.sampled_from(["==", "!=", "<", "<=", ">", ">="])

    def relation(kind: st.SearchStrategy[Pair]) -> st.SearchStrategy[Pair]:
        return st.builds(lambda left, sign, right: call("{} " + sign + " {}", left, right), kind, order, kind)

    def among(kind: st.SearchStrategy[Pair]) -> st.SearchStrategy[Pair]:
        def join(left: Pair, items: list[Pair]) -> Pair:
            return call("{} in [" + ", ".join(["{}"] * len(items)) + "]", left, *items)

        return st.builds(join, kind, st.lists(kind, max_size=3))

    leaves = st.one_of(
        st.sampled_from(["true", "false", "source.tls", "request.malformed"]).map(same),
        relation(strings),
        relation(numbers),
        among(strings),
        among(numbers),
        st.builds(
            lambda key, name: call("{} in " + name, key),
            st.one_of(strings, keys).filter(is_name),
            st.sampled_from(MAPS),
        ),
        strings.map(lambda text: call("{} in route.tags", text)),
        st.sampled_from(["route.tags == ['a']", "['a', 'b'] != route.tags", "[] == []"]).map(same),
        st.builds(
            lambda text, name, part: call("{}." + name + "({})", text, part),
            strings,
            st.sampled_from(["startsWith", "endsWith", "contains"]),
            strings,
        ),
        st.builds(
            lambda text, pattern: call("{}.matches(r'" + pattern + "')", text), strings, st.sampled_from(PATTERNS)
        ),
        st.builds(lambda network: same(f"inCidr(source.ip, '{network}')"), st.sampled_from(NETWORKS)),
        st.builds(lambda test, one, other: call("({} ? {} : {}) == 'a'", same(test), one, other),
                  st.sampled_from(["source.tls", "true", "false"]), strings, strings),
    )  # fmt: skip
    return st.recursive(
        leaves,
        lambda inner: st.one_of(
            inner.map(lambda one: call("!({})", one)),
            st.builds(lambda one, two: call("({}) && ({})", one, two), inner, inner),
            st.builds(lambda one, two: call("{} || {}", one, two), inner, inner),
            st.builds(lambda one, two, three: call("{} && {} || {}", one, two, three), inner, inner, inner),
            st.builds(lambda one, two, three: call("({}) ? ({}) : ({})", one, two, three), inner, inner, inner),
            st.builds(lambda one, two: call("({}) == ({})", one, two), inner, inner),
            st.builds(lambda one, two: call("({}) < ({})", one, two), inner, inner),
        ),
        max_leaves=6,
    )


dictionaries = st.dictionaries(st.sampled_from(KEYS), st.sampled_from(WORDS))
contexts = st.fixed_dictionaries(
    {
        "request": st.fixed_dictionaries(
            {
                "method": st.sampled_from(METHODS),
                "path": st.sampled_from(["/", "/a", "/a/b"]),
                "host": st.sampled_from(["", "a", "ab"]),
                "headers": dictionaries,
                "query": dictionaries,
                "cookies": dictionaries,
                "protocol": st.just("HTTP/1.1"),
                "service": st.sampled_from(["", "1"]),
                "malformed": st.just(False),
            }
        ),
        "source": st.fixed_dictionaries(
            {
                "ip": st.sampled_from(["10.1.2.3", "192.0.2.9", "2001:db8::1", ""]),
                "port": st.integers(0, 65535),
                "tls": st.booleans(),
            }
        ),
        "route": st.fixed_dictionaries(
            {
                "name": st.sampled_from(WORDS),
                "tags": st.lists(st.sampled_from(WORDS), max_size=2),
                "properties": dictionaries,
            }
        ),
        "response": st.fixed_dictionaries({"status": st.integers(100, 599), "headers": dictionaries}),
    }
)


def lines(values: dict[str, str]) -> Headers:
    return Headers([(name.encode(), value.encode()) for name, value in values.items()])


def ours(context: dict[str, dict[str, object]]) -> Any:
    request, source, ways, response = (context[name] for name in ("request", "source", "route", "response"))
    made = exchange(
        method=str(request["method"]).encode(),
        headers=lines(request["headers"]),  # type: ignore[arg-type]
        protocol=str(request["protocol"]),
        service=str(request["service"]),
        source=Peer(source["ip"], source["port"], source["tls"]),  # type: ignore[arg-type]
        route=route(ways["name"], tuple(ways["tags"]), ways["properties"]),  # type: ignore[arg-type]
        response=Response(response["status"], lines(response["headers"])),  # type: ignore[arg-type]
    )
    made.request.path = request["path"]
    made.request._host, made.request._query, made.request._cookies = (
        request[name] for name in ("host", "query", "cookies")
    )
    return made


def in_cidr(address: str, network: str) -> bool:
    return bool(address) and ip_address(address) in ip_network(network)


@pytest.mark.unwatched
@settings(max_examples=300)
@given(expressions(), contexts)
def test_evaluates_as_another_implementation_does(pair: Pair, context: dict[str, dict[str, object]]) -> None:
    text, theirs = pair
    other = cel.Context(variables=context, functions={"inCidr": in_cidr})
    assert condition.compile(text, response=True)(ours(context)) is cel.evaluate(theirs, other)
