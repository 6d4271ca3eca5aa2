"""removeHeader."""

from __future__ import annotations

import pytest

from protogate.config.faults import ConfigFaults
from protogate.errors import ConfigError
from protogate.governance.removeheader import RemoveHeaderFactory
from protogate.message import Response

FIELDS = [(b"x-a", b"1"), (b"server", b"u"), (b"x-a", b"2"), (b"x-internal-id", b"3"), (b"x-internal", b"4")]


def build(*names):
    return RemoveHeaderFactory().build({"names": list(names)})


def test_every_line_of_a_name_goes(fakes):
    exchange = fakes.Exchange(headers=FIELDS)
    build("X-A").process(exchange)
    assert exchange.request.headers == [FIELDS[1], FIELDS[3], FIELDS[4]]


def test_star_takes_all_that_begin_so(fakes):
    exchange = fakes.Exchange(headers=FIELDS)
    build("X-Internal-*", "server").process(exchange)
    assert exchange.request.headers == [FIELDS[0], FIELDS[2], FIELDS[4]]


def test_response_is_meant_once_it_is_there(fakes):
    exchange = fakes.Exchange(headers=FIELDS)
    exchange.response = Response(200, FIELDS)
    build("server", "x-a").process(exchange)
    assert exchange.response.headers == FIELDS[3:]
    assert exchange.request.headers == FIELDS


def test_headers_stay_the_same_object(fakes):
    exchange = fakes.Exchange(headers=FIELDS)
    before = exchange.request.headers
    build("x-a").process(exchange)
    assert exchange.request.headers is before
    build("not-there").process(exchange)
    assert before == [FIELDS[1], FIELDS[3], FIELDS[4]]


def test_cookies_are_parsed_again(fakes):
    exchange = fakes.Exchange(headers=[(b"cookie", b"a=1")])
    assert exchange.request.cookies == {"a": "1"}
    build("cookie").process(exchange)
    assert exchange.request.cookies == {}


def test_faults_name_their_entry():
    with pytest.raises(ConfigFaults) as caught:
        build("ok", "a b", "*", "content-length", "Connection", "host", 3)
    assert [fault.path for fault in caught.value.faults] == [("names", index) for index in range(1, 7)]


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({}, "at least one field name"),
        ({"names": []}, "at least one field name"),
        ({"names": "server"}, "expected a list"),
        ({"names": ["a"], "name": ["b"]}, 'did you mean "names"'),
    ],
)
def test_what_cannot_be_built(params, message):
    with pytest.raises(ConfigError, match=message):
        RemoveHeaderFactory().build(params)
