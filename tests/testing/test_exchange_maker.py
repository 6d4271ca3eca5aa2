"""Exchanges for module tests are real ones."""

from __future__ import annotations

import pytest
from twisted.internet.task import Clock

from protogate.exchange.exchange import Exchange
from protogate.expression import condition, template
from protogate.governance.stages import STAGES
from protogate.testing.bodies import Taker
from protogate.testing.exchange import FAILURE, exchange


def test_what_each_stage_finds():
    made = {stage: exchange(stage) for stage in STAGES}
    assert all(type(each) is Exchange for each in made.values())
    assert [stage for stage, each in made.items() if each.route is None] == ["PRE_REQUEST"]
    assert [stage for stage, each in made.items() if each.response is not None] == ["PRE_RESPONSE", "POST_RESPONSE"]
    assert [stage for stage, each in made.items() if each.error is not None] == ["ERROR"]
    assert made["ERROR"].reason is FAILURE
    assert made["PRE_UPSTREAM"].route.name == "everything"
    assert made["PRE_UPSTREAM"].target.upstream == "origin"


def test_conditions_and_templates_see_what_was_asked_for():
    made = exchange(
        "PRE_RESPONSE",
        method=b"PUT",
        target=b"/a?b=c",
        headers=[(b"x-a", b"1")],
        body=b"up",
        ip="198.51.100.9",
        tls=True,
        status=404,
        response_headers=[(b"x-b", b"2")],
        response_body=b"",
        clock=Clock(),
    )
    text = "request.method == 'PUT' && source.ip == '198.51.100.9' && request.headers['x-a'] == '1'"
    assert condition.compile(text, response=True)(made)
    assert template.compile("${gateway.name} ${gateway.zone}")(made) == "testing zone-a"
    assert made.request.scheme == b"https"
    assert Taker(made.request.body).data == b"up"
    assert Taker(made.response.body).data == b""
    assert (made.response.status, made.response.headers.get(b"x-b")) == (404, b"2")


def test_another_error():
    error = ValueError("mine")
    made = exchange("ERROR", error=error)
    assert (made.error, made.reason) == (error, FAILURE)


def test_unknown_stage():
    with pytest.raises(ValueError, match="no stage 'LOG'; there are PRE_REQUEST, PRE_UPSTREAM"):
        exchange("LOG")
