"""addResponseHeader."""

from __future__ import annotations

import msgspec
import pytest

from protogate.config.faults import ConfigFaults
from protogate.config.model import Module
from protogate.errors import ConfigError
from protogate.exchange.pipeline import run
from protogate.governance.addresponseheader import AddResponseHeaderFactory
from protogate.governance.binding import bind
from protogate.message import Response

CTRIP = b"""
{
  "name": "addResponseHeader",
  "stage": "PRE_RESPONSE",
  "ruleOrder": 0,
  "grayRatio": 100,
  "condition": "true",
  "actionParam": {
    "connection": "keep-alive",
    "x-service-call": "${request.func.remoteCost}",
    "Access-Control-Expose-Headers": "x-service-call",
    "x-gate-root-id": "${func.catRootMessageId}"
  },
  "exceptionHandle": "return"
}
"""


def build(**params):
    return AddResponseHeaderFactory().build(params)


def test_ctrips_sample_works_unchanged(fakes, exchange):
    entry = msgspec.json.decode(CTRIP, type=Module)
    bound = bind([entry], fakes.finder(AddResponseHeaderFactory()))["PRE_RESPONSE"]
    exchange.response = Response(200, [(b"server", b"u")])
    exchange.ledger.chosen, exchange.ledger.answered = 2.0, 2.0345
    assert run(bound, exchange) is None
    assert exchange.response.headers == [
        (b"server", b"u"),
        (b"connection", b"keep-alive"),
        (b"x-service-call", b"34"),
        (b"access-control-expose-headers", b"x-service-call"),
        (b"x-gate-root-id", exchange.trace.encode()),
    ]
    assert [warning.path for warning in bound[0].warnings] == [("modules", 0, "actionParam", "connection")]


def test_it_adds_and_replaces_nothing(exchange):
    exchange.response = Response(200, [(b"vary", b"accept")])
    build(Vary="origin").process(exchange)
    assert exchange.response.headers.all(b"vary") == [b"accept", b"origin"]


def test_a_list_is_one_line_each(exchange):
    exchange.response = Response(200)
    build(**{"set-cookie": ["a=1", "b=2"]}).process(exchange)
    assert exchange.response.headers.all(b"set-cookie") == [b"a=1", b"b=2"]


def test_responses_do_not_share_what_is_added(exchange):
    module = build(**{"x-a": "1"})
    first, second = Response(200), Response(200)
    for response in (first, second):
        exchange.response = response
        module.process(exchange)
    first.headers.set(b"x-a", b"2")
    assert second.headers == [(b"x-a", b"1")]


def test_template_that_brings_control_characters_adds_no_line(fakes):
    find = fakes.finder(AddResponseHeaderFactory())
    entry = Module(name="addResponseHeader", action_param={"x-q": "${request.query['q']}"})
    exchange = fakes.Exchange(target=b"/?q=a%0d%0aset-cookie:%20evil=1%00")
    exchange.response = Response(200)
    run(bind([entry], find)["PRE_RESPONSE"], exchange)
    ((name, value),) = exchange.response.headers
    assert name == b"x-q"
    assert not set(value) & set(b"\r\n\x00")


def test_nothing_to_answer_is_nothing_to_do(exchange):
    assert build(**{"x-a": "1"}).process(exchange) is None


def test_all_faults_name_their_field():
    with pytest.raises(ConfigFaults) as caught:
        build(**{"a b": "x", "ok": "x", "content-length": "3", "x": ["fine", 5]})
    assert [fault.path for fault in caught.value.faults] == [("a b",), ("content-length",), ("x", 1)]
    with pytest.raises(ConfigError, match="at least one field"):
        build()
