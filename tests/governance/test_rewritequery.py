"""rewriteQuery, rewriteMethod and setResponseHeader: small changes of messages."""

from __future__ import annotations

from urllib.parse import parse_qsl, quote_plus

import pytest
from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from protogate.config.model import Module
from protogate.governance.binding import bind
from protogate.governance.rewritemethod import RewriteMethodFactory
from protogate.governance.rewritequery import RewriteQueryFactory, name_of
from protogate.governance.setresponseheader import SetResponseHeaderFactory
from protogate.testing.exchange import exchange
from protogate.testing.module import ModuleContract


class RewriteQueryContract(ModuleContract, SynchronousTestCase):
    factory = RewriteQueryFactory
    good = ({"keep": ["q"]}, {"remove": ["a"], "set": {"b": "1"}, "add": {"c": "${source.ip}"}})
    bad = (
        ({}, ""),
        ({"keep": "q"}, "keep"),
        ({"keep": [""]}, "keep"),
        ({"remove": [7]}, "remove"),
        ({"set": ["a"]}, "set"),
        ({"set": {"a": 7}}, "set"),
        ({"add": {"": "x"}}, "add"),
        ({"drop": ["a"]}, "drop"),
    )


class RewriteMethodContract(ModuleContract, SynchronousTestCase):
    factory = RewriteMethodFactory
    good = ({"method": "PATCH"}, {"method": "M-SEARCH"})
    bad = (
        ({}, "method"),
        ({"method": "patch"}, "method"),
        ({"method": "HEAD"}, "method"),
        ({"method": "CONNECT"}, "method"),
        ({"method": "A B"}, "method"),
        ({"method": "${request.method}"}, "method"),
        ({"method": 7}, "method"),
    )


class SetResponseHeaderContract(ModuleContract, SynchronousTestCase):
    factory = SetResponseHeaderFactory
    good = ({"x-a": "1"}, {"x-id": "${func.requestId}", "x-status": ["a", "b"]})
    bad = (({}, ""), ({"not a name": "1"}, "not a name"), ({"content-length": "1"}, "content-length"), ({"x": 7}, "x"))


def run(factory, params, stage="", **made):
    """An exchange behind the module, as a configuration binds it."""
    entry = Module(name=factory.name, stage=stage, action_param=params)
    bound = next(each for stage in bind([entry], lambda interface, name: factory()).values() for each in stage)
    one = exchange(bound.stage, **made)
    assert bound.process(one) is None
    return one


@pytest.mark.parametrize(
    ("params", "target", "wanted"),
    [
        ({"keep": ["q"]}, b"/a?q=1&r=2&q=3", b"/a?q=1&q=3"),
        ({"keep": []}, b"/a?q=1", b"/a"),
        ({"remove": ["q"]}, b"/a?q=1&r=%2f&%71=2&q&r", b"/a?r=%2f&r"),
        ({"remove": ["a b"]}, b"/a?a+b=1&a%20b=2&a=3", b"/a?a=3"),
        ({"remove": ["x"]}, b"/a?q=1", b"/a?q=1"),
        ({"remove": ["x"]}, b"/a?", b"/a"),
        ({"remove": ["q"]}, b"/a", b"/a"),
        ({"set": {"q": "2"}}, b"/a", b"/a?q=2"),
        ({"set": {"q": "2"}}, b"/a?q=1&r=1&q=3", b"/a?r=1&q=2"),
        ({"set": {"q": "a&b=c #%+é"}}, b"/a", b"/a?q=a%26b%3Dc%20%23%25%2B%C3%A9"),
        ({"set": {"a&b": "1"}}, b"/a", b"/a?a%26b=1"),
        ({"add": {"q": "2"}}, b"/a?q=1", b"/a?q=1&q=2"),
        ({"keep": ["q"], "remove": ["q"], "add": {"r": "1"}}, b"/a?q=1&s=2", b"/a?r=1"),
        ({"set": {"q": "1"}}, b"*", b"*"),
    ],
)
def test_the_query_becomes_another_one(params, target, wanted):
    assert run(RewriteQueryFactory, params, target=target).request.target == wanted


def test_what_was_parsed_of_it_is_parsed_again():
    made = run(RewriteQueryFactory, {"set": {"q": "2"}}, target=b"/a?q=1")
    assert made.request.query == {"q": "2"}


def test_what_a_template_gives_is_a_value():
    params = {"set": {"to": "${request.headers['x-to']}"}}
    made = run(RewriteQueryFactory, params, target=b"/a", headers=[(b"x-to", b"1&admin=1#x")])
    assert made.request.query == {"to": "1&admin=1#x"}


TEXT = st.text(st.characters(exclude_categories=["Cs"]))
NAME = st.text(st.characters(exclude_categories=["Cs"]), min_size=1)


@given(st.lists(st.tuples(NAME, TEXT)), NAME)
def test_what_is_removed_is_gone_and_what_is_not_stays(pairs, name):

    pairs = [
        (key.encode("utf-8", "replace").decode(), value.encode("utf-8", "replace").decode()) for key, value in pairs
    ]
    name = name.encode("utf-8", "replace").decode()
    query = "&".join(f"{quote_plus(key)}={quote_plus(value)}" for key, value in pairs)
    made = run(RewriteQueryFactory, {"remove": [name]}, target=b"/a?" + query.encode())
    left = made.request.target.partition(b"?")[2].decode()
    assert parse_qsl(left, keep_blank_values=True) == [pair for pair in pairs if pair[0] != name]


def test_names_are_what_is_meant():
    assert [name_of(part) for part in (b"a=1", b"%61", b"a+b=", b"=x", b"%ff=1")] == [b"a", b"a", b"a b", b"", b"\xff"]


@pytest.mark.parametrize(
    ("method", "wanted"), [(b"POST", b"PATCH"), (b"GET", b"PATCH"), (b"HEAD", b"HEAD"), (b"CONNECT", b"CONNECT")]
)
def test_the_method_becomes_another_one(method, wanted):
    made = run(RewriteMethodFactory, {"method": "PATCH"}, "PRE_REQUEST", method=method)
    assert (made.request.method, made.line[0]) == (wanted, method)


def test_what_opens_a_tunnel_stays():
    made = exchange()
    made.request.upgrade = b"websocket"
    RewriteMethodFactory().build({"method": "PATCH"}).process(made)
    assert made.request.method == b"GET"


def test_fields_of_the_answer_are_replaced():
    headers = [(b"server", b"nginx"), (b"x-a", b"1"), (b"x-a", b"2"), (b"x-b", b"3")]
    params = {"Server": "edge", "x-a": ["4", "${response.headers['x-b']}"]}
    made = run(SetResponseHeaderFactory, params, response_headers=headers)
    assert made.response.headers == [(b"x-b", b"3"), (b"server", b"edge"), (b"x-a", b"4"), (b"x-a", b"3")]
