"""setRequestHeader."""

from __future__ import annotations

import pytest

from protogate.config.faults import ConfigFaults
from protogate.config.model import Module
from protogate.errors import Abort, ConfigError, Phase
from protogate.exchange.pipeline import run
from protogate.governance.binding import bind
from protogate.governance.setrequestheader import SetRequestHeaderFactory


def build(**params):
    return SetRequestHeaderFactory().build(params)


def bound(fakes, **params):
    """Through the binding, for templates."""
    entry = Module(name="setRequestHeader", action_param=params)
    return bind([entry], fakes.finder(SetRequestHeaderFactory()))["PRE_UPSTREAM"]


def test_it_replaces_all_lines_of_that_name(fakes):
    exchange = fakes.Exchange(headers=[(b"x-a", b"1"), (b"b", b"2"), (b"x-a", b"3")])
    build(**{"X-A": "new", "c": "4"}).process(exchange)
    assert exchange.request.headers == [(b"x-a", b"new"), (b"b", b"2"), (b"c", b"4")]


def test_a_list_is_one_line_each(fakes):
    exchange = fakes.Exchange(headers=[(b"x-a", b"1"), (b"b", b"2")])
    build(**{"x-a": ["3", "4"], "b": "5"}).process(exchange)
    assert exchange.request.headers == [(b"x-a", b"3"), (b"x-a", b"4"), (b"b", b"5")]


def test_template_may_read_what_is_replaced(fakes):
    exchange = fakes.Exchange(headers=[(b"x-a", b"old")])
    run(bound(fakes, **{"x-a": "was ${request.headers['x-a']}", "x-b": "${request.headers['x-a']}"}), exchange)
    assert exchange.request.headers == [(b"x-a", b"was old"), (b"x-b", b"old")]


def test_host_sets_the_authority(fakes):
    exchange = fakes.Exchange()
    assert exchange.request.host == "shop.test"
    build(host="orders.internal:8080", x="1").process(exchange)
    assert (exchange.request.authority, exchange.request.host) == (b"orders.internal:8080", "orders.internal")
    assert exchange.request.headers == [(b"x", b"1")]


def test_host_from_a_template_is_checked_when_it_is_known(fakes):
    exchange = fakes.Exchange(headers=[(b"x-host", b"a.test")])
    modules = bound(fakes, Host="${request.headers['x-host']}")
    run(modules, exchange)
    assert exchange.request.authority == b"a.test"
    with pytest.raises(Abort, match="setRequestHeader: host: ") as caught:
        run(modules, fakes.Exchange(headers=[(b"x-host", b"a test")]))
    assert (caught.value.status, caught.value.phase) == (500, Phase.MODULE)


def test_cookies_are_parsed_again(fakes):
    exchange = fakes.Exchange(headers=[(b"cookie", b"a=1")])
    assert exchange.request.cookies == {"a": "1"}
    build(cookie="a=2").process(exchange)
    assert exchange.request.cookies == {"a": "2"}


def test_faults():
    with pytest.raises(ConfigFaults) as caught:
        build(**{"X-A": "1", "x-a": "2", "Host": ["a", "b"], "transfer-encoding": "chunked"})
    assert [fault.path for fault in caught.value.faults] == [("transfer-encoding",), ("x-a",), ("Host",)]
    assert "x-a is X-A again" in caught.value.faults[1].message
    with pytest.raises(ConfigError, match="user information"):
        build(host="me@a.test")


@pytest.mark.parametrize("name", ["X-Forwarded-For", "via", "forwarded", "x-real-ip", "upgrade"])
def test_what_does_not_arrive_as_written_is_a_warning(name):
    assert [warning.path for warning in build(**{name: "x", "ok": "x"}).warnings] == [(name,)]
