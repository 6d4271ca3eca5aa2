"""When something is degraded: switches, and failures."""

from __future__ import annotations

import pytest

from protogate.errors import CLIENT, CLIENT_GONE, GATEWAY, UPSTREAM, Abort, ConfigError
from protogate.expression import condition
from protogate.governance.degradewhen import STATUSES, When, read, switches
from protogate.governance.params import Params
from protogate.message import Response
from protogate.testing.exchange import FAILURE, exchange


def test_a_list_of_switches_has_those_that_are_on():
    assert switches(b"") == switches(b"# none\n\n") == frozenset()
    assert switches(b"a\n b.c # since Monday\r\n#d\na\n") == {"a", "b.c"}


@pytest.mark.parametrize("text", [b"a b", b"-a", b"a: on", b"\xff", b"a" * 65, "ä".encode()])
def test_what_is_no_list_says_where(text):
    with pytest.raises(ValueError, match=r"line 2|codec"):
        switches(b"good\n" + text)


def test_there_is_an_end_to_a_list():
    with pytest.raises(ConfigError, match="1000"):
        switches(b"\n".join(b"s%d" % at for at in range(1001)))


def test_before_an_upstream_is_asked():
    assert When().before(frozenset({"a"}), lambda: 200.0) == ""
    assert When(always=True).before(frozenset(), lambda: 0.0) == "condition"
    assert When(switch="a").before(frozenset({"a"}), lambda: 0.0) == "switch a"
    assert When(switch="a").before(frozenset({"b"}), lambda: 0.0) == ""
    assert When(load=80).before(frozenset(), lambda: 79.9) == ""
    assert When(load=80).before(frozenset(), lambda: 80.2) == "load 80 %"


def test_answers_that_are_none_to_give():
    made = exchange("PRE_UPSTREAM")
    assert When().answered(made, Response(503)) == "status 503"
    assert When().answered(made, Response(500)) == ""
    holds = condition.compile("response.status == 200 && response.headers['x-partial'] == 'yes'", response=True)
    when = When(response=holds)
    assert when.answered(made, Response(200, [(b"x-partial", b"yes")])) == "response 200"
    assert when.answered(made, Response(200)) == ""
    assert made.response is None


def test_failures():
    assert When().failed(FAILURE).startswith("error the upstream refused")
    assert When(errors=frozenset({"connection_refused"})).failed(FAILURE)
    assert When(errors=frozenset({"dns_error"})).failed(FAILURE) == ""
    assert When(errors=frozenset()).failed(FAILURE) == ""
    assert When().failed(CLIENT_GONE) == ""
    assert When().failed(Abort("too much", CLIENT, 413)) == ""
    assert When().failed(Abort("full", GATEWAY, 503))
    assert When().failed(ValueError()) == ""
    assert len(When().failed(Abort("x" * 500, UPSTREAM, 502))) == 200


def when(given):
    reader = Params({"when": given})
    return read(reader, "when"), [(fault.path, fault.message) for fault in reader.faults]


def test_what_is_not_said_is_a_failure_of_the_upstream():
    reader = Params({})
    made = read(reader, "when")
    assert (made.statuses, made.errors, made.response, made.always, made.switch) == (STATUSES, None, None, False, "")


def test_what_is_said_is_all():
    made, faults = when({"statuses": ["5xx", 429, "404"]})
    assert (made.statuses, made.errors, faults) == (frozenset({*range(500, 600), 429, 404}), frozenset(), [])
    assert when({"errors": True})[0].errors is None
    assert when({"errors": ["dns_error", "dns_timeout"]})[0].errors == {"dns_error", "dns_timeout"}
    assert when({"load": 80})[0].load == 80
    assert when({"response": "response.status == 418"})[0].response is not None


@pytest.mark.parametrize(
    ("given", "path"),
    [
        (None, ("when",)),
        ({}, ("when",)),
        (["5xx"], ("when",)),
        ({"status": [503]}, ("when", "status")),
        ({"statuses": [600]}, ("when", "statuses", 0)),
        ({"statuses": [True]}, ("when", "statuses", 0)),
        ({"statuses": 503}, ("when", "statuses")),
        ({"errors": ["Connection refused"]}, ("when", "errors")),
        ({"errors": 7}, ("when", "errors")),
        ({"load": 0}, ("when", "load")),
        ({"switch": "a b"}, ("when", "switch")),
        ({"response": "request.size > 1"}, ("when", "response")),
        ({"always": 1}, ("when", "always")),
    ],
)
def test_what_is_wrong_is_named(given, path):
    assert [found[: len(path)] for found, _ in when(given)[1]] == [path]
