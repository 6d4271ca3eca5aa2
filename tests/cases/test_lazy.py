"""What is not asked for is not done: no parsing of queries and cookies, no Deferred where nobody waits."""

from __future__ import annotations

import pytest
from edge import EVERYBODY, HOST, PORT, SCRIPT, answer, answers, config, installed, module, rule, to
from twisted.internet.defer import Deferred

from protogate import message
from protogate.testing.gateway import MemoryGateway

REQUEST = b"GET /x?a=1&b=%%32 HTTP/1.1\r\nHost: a.test\r\nCookie: sid=%d; t=2\r\n\r\n"
QUERY, COOKIES = "request.query['a'] == '1'", "request.cookies['t'] == '2'"


@pytest.fixture
def parsed(monkeypatch):
    """Names of what was parsed, once for each time."""
    calls = []
    for name in ("query_of", "cookies_of"):
        function = getattr(message, name)

        def counting(value, name=name, function=function):
            calls.append(name)
            return function(value)

        monkeypatch.setattr(message, name, counting)
    return calls


@pytest.mark.interpreted(reason="replaces functions of a compiled module")
@pytest.mark.parametrize(
    ("settings", "each"),
    [
        ({}, []),
        ({"modules": [module("accessList", deny=["192.0.2.0/24"], condition_="request.path != '/y'")]}, []),
        ({"modules": [module("addResponseHeader", **{"x-h": "${request.host}", "x-p": "${request.path}"})]}, []),
        ({"routes": [rule(routes=to("origin", condition=QUERY))]}, ["query_of"]),
        ({"routes": [rule(routes=to("origin", condition=f"{QUERY} && request.query['b'] == '2'"))]}, ["query_of"]),
        ({"routes": [{**rule("a=1", "exact"), "type": "query"}]}, ["query_of"]),
        (
            {
                "routes": [rule(routes=to("origin", sticky={"key": "request.cookies['sid']"}))],
                "modules": [module("addResponseHeader", condition_=COOKIES, **{"x-c": "${request.cookies['sid']}"})],
            },
            ["cookies_of"],
        ),
        (
            {
                "routes": [rule("/other"), rule(routes=to("origin", condition=f"{COOKIES} && {QUERY}"))],
                "modules": [
                    module("setRequestHeader", **{"x-q": "${request.query['a']}"}),
                    module("accessList", deny=EVERYBODY, condition_="request.query['a'] == '2'"),
                ],
            },
            ["query_of", "cookies_of"],
        ),
        ({"routes": [rule("/other", routes=to("origin", condition=QUERY)), rule()]}, []),
        ({"routes": [rule(routes=to("origin", condition=f"request.path == '/y' && {COOKIES}")), rule("/x")]}, []),
    ],
)
def test_query_and_cookies_are_parsed_when_first_asked_for_and_once(parsed, settings, each):
    with MemoryGateway(config(**settings)) as gateway:
        gateway.upstream(HOST, PORT, SCRIPT)
        client = gateway.client()
        for number in range(3):
            client.send(REQUEST % number)
            gateway.run()
            assert answer(client.take()).status == 200
            assert sorted(parsed) == sorted(each)
            parsed.clear()
        client.close()
        gateway.run()


@pytest.mark.interpreted(reason="replaces functions of a compiled module")
def test_what_a_module_changed_is_parsed_anew(parsed):
    def change(exchange):
        assert exchange.request.query == {"a": "1", "b": "2"}
        exchange.request.target = b"/x?a=3"
        exchange.request.forget()

    settings = config(
        [rule(routes=to("origin", condition="request.query['a'] == '3'"))], [module("change", "PRE_REQUEST")]
    )
    with installed(change=change), MemoryGateway(settings) as gateway:
        gateway.upstream(HOST, PORT, SCRIPT)
        assert answer(gateway.ask(REQUEST % 1)).status == 200
        assert parsed == ["query_of", "query_of"]


@pytest.fixture
def deferreds(monkeypatch):
    """Every Deferred that was made."""
    made = []
    init = Deferred.__init__

    def counting(self, *args, **named):
        made.append(self)
        init(self, *args, **named)

    monkeypatch.setattr(Deferred, "__init__", counting)
    return made


def test_an_answer_that_nobody_waits_for_makes_no_deferred(deferreds):
    modules = [
        module("spy", "PRE_REQUEST"),
        module("accessList", deny=["192.0.2.0/24"]),
        module("respond", "PRE_UPSTREAM", status=200, body="pong"),
        module("addResponseHeader", **{"x-id": "${func.requestId}"}),
        module("spy", "POST_RESPONSE"),
    ]
    with (
        installed(spy=lambda exchange: None),
        MemoryGateway(config(modules=modules, timeouts={"total": "10s"})) as gateway,
    ):
        client = gateway.client()
        client.send(REQUEST % 0)
        gateway.run()
        deferreds.clear()
        for number in range(20):
            client.send(REQUEST % number)
            gateway.run()
        client.send(b"GET /nowhere/%zz HTTP/1.1\r\nHost: a\r\n\r\n")  # a failure needs none either
        gateway.run()
        assert [each.status for each in answers(client.received)] == [200] * 21 + [400]
        assert not deferreds
        client.close()
        gateway.run()


def test_one_deferred_for_an_answer_of_an_upstream(deferreds):
    with MemoryGateway(config(modules=[module("addResponseHeader", **{"x-a": "b"})])) as gateway:
        gateway.upstream(HOST, PORT, SCRIPT)
        client = gateway.client()
        client.send(REQUEST % 0)
        gateway.run()
        deferreds.clear()
        for number in range(20):
            client.send(REQUEST % number)
            gateway.run()
        assert len(answers(client.received)) == 21
        assert len(deferreds) == 20, "the one that the codec's answer comes by"
        client.close()
        gateway.run()
