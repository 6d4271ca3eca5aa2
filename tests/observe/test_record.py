from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from twisted.internet.task import Clock

from protogate.errors import CLIENT_GONE, UPSTREAM, Abort, Phase, Who, timeout
from protogate.exchange.exchange import Exchange
from protogate.exchange.forwarding import Forwarding
from protogate.exchange.ledger import Ledger
from protogate.exchange.plan import Plan
from protogate.message import Peer, Request, Response
from protogate.observe.record import CUT, KNOWN, LINE, REASON, SHORT, TARGET, _known, durations, encode, record, stamp
from protogate.observe.schema import Record
from protogate.testing import exchange as testing
from protogate.wheel import Wheel


def plan() -> Plan:
    nothing: Any = None
    return Plan(
        name="edge-1",
        zone="PRO",
        wheel=Wheel(Clock()),
        router=nothing,
        rewrite=nothing,
        clusters={},
        forwarding=Forwarding("edge-1"),
        record=nothing,
        count=nothing,
    )


def exchange(method: bytes = b"GET", raw: bytes = b"/a?b=1", authority: bytes = b"a.test", **values: Any) -> Exchange:
    request = Request(
        method,
        raw,
        values.pop("headers", ()),
        authority=authority,
        protocol="HTTP/1.1",
        peer=Peer("192.0.2.1", 4711),
    )
    made = Exchange(request, plan(), "web")
    for name, value in values.items():
        setattr(made, name, value)
    return made


def line(made: Record) -> dict[str, Any]:
    text = encode(made)
    assert text.endswith(b"\n")
    assert all(0x20 <= byte < 0x7F for byte in text[:-1])
    told: dict[str, Any] = json.loads(text)
    return told


def marks(**values: Any) -> Ledger:
    ledger = Ledger()
    for name, value in values.items():
        setattr(ledger, name, value)
    return ledger


def test_a_plain_exchange_is_told_whole() -> None:
    ledger = marks(
        first=10.0, head=10.001, uploaded=10.001, chosen=10.002, connected=10.004, sent=10.005, answered=10.105,
        end=10.2, received=0, delivered=1234, attempts=1, address="10.0.0.11:8080",
    )  # fmt: skip
    routed = testing.exchange(testing.PRE_UPSTREAM)
    made = exchange(
        headers=[(b"user-agent", b"curl/8")],
        ledger=ledger,
        response=Response(200),
        route=routed.route,
        target=routed.target,
    )
    made.trace  # noqa: B018 - made on first access
    assert line(record(made, wall=1_700_000_000.5)) == {
        "time": "2023-11-14T22:13:20.301Z",
        "id": made.id,
        "trace": made.trace,
        "gateway": "edge-1",
        "listener": "web",
        "protocol": "HTTP/1.1",
        "client": "192.0.2.1",
        "clientPort": 4711,
        "method": "GET",
        "host": "a.test",
        "target": "/a?b=1",
        "status": 200,
        "received": 0,
        "delivered": 1234,
        "ms": {
            "total": 200.0,
            "clientHeader": 1.0,
            "gateway": 1.0,
            "queue": 2.0,
            "send": 1.0,
            "responseHead": 100.0,
            "response": 95.0,
        },
        "agent": "curl/8",
        "route": "everything",
        "upstream": "origin",
        "address": "10.0.0.11:8080",
        "attempts": 1,
    }


def asked_thrice() -> Ledger:
    """An answer with a status, one that took no end, and one beside that which was quicker."""
    ledger = marks(first=10.0, head=10.0, chosen=10.001, connected=10.002, answered=10.101, address="10.0.0.1:80")
    ledger.given_up(10.101, "", 503)
    ledger.given_up(11.0, "said twice")
    ledger.again()
    ledger.chosen, ledger.connected, ledger.address = 10.201, 10.202, "10.0.0.2:80"
    twin = marks(chosen=10.701, connected=10.702, sent=10.703, answered=10.903, address="10.0.0.3:80")
    ledger.given_up(10.901, "\u00e9" + "x" * 2 * SHORT)
    ledger.adopt(twin)
    assert ledger.past is not None
    ledger.past.hedged = True
    ledger.end, ledger.attempts = 11.0, 3
    return ledger


def test_what_came_of_earlier_attempts_is_told_and_bounded() -> None:
    told = line(record(exchange(ledger=asked_thrice(), response=Response(200))))
    assert told["address"] == "10.0.0.3:80"
    assert (told["attempts"], told["hedge"]) == (3, True)
    one, two = told["earlier"]
    assert one == {"address": "10.0.0.1:80", "status": 503, "ms": 100.0}
    assert (two["address"], two["ms"]) == ("10.0.0.2:80", 700.0)
    assert two["error"] == "\u00e9" + "x" * (SHORT - 1) + CUT
    assert told["ms"] == {
        "total": 1000.0,
        "gateway": 1.0,
        "earlier": 700.0,
        "queue": 1.0,
        "send": 1.0,
        "responseHead": 200.0,
        "response": 97.0,
    }


def test_as_many_attempts_as_there_may_be_fit_into_a_line() -> None:
    ledger = marks(head=10.0, end=11.0)
    for _ in range(11):
        ledger.given_up(10.5, "\u20ac" * 10 * SHORT)
        ledger.again()
    made = exchange(ledger=ledger)
    made.notes["module"] = "x"
    told = encode(record(made))
    assert len(told) < LINE
    assert json.loads(told)["notes"] == {"module": "x"}


def test_the_deadline_of_a_client_is_told_from_its_head() -> None:
    made = exchange(ledger=marks(first=9.0, head=10.0, end=10.5))
    made.request.deadline = 12.5
    assert line(record(made))["deadline"] == 2500.0
    made.request.deadline = None
    assert "deadline" not in line(record(made))


def test_no_secret_is_in_it() -> None:
    secrets = [
        (b"authorization", b"Bearer s3cret"),
        (b"cookie", b"sid=s3cret"),
        (b"proxy-authorization", b"s3cret"),
        (b"x-api-key", b"s3cret"),
    ]
    made = exchange(headers=secrets, response=Response(200, [(b"set-cookie", b"sid=s3cret")]))
    assert b"s3cret" not in encode(record(made))


def test_the_request_is_told_as_the_client_sent_it_whatever_modules_made_of_it() -> None:
    made = exchange(b"GET", b"/public", b"a.test")
    made.request.method, made.request.target, made.request.authority = b"PUT", b"/internal", b"b.test"
    told = line(record(made))
    assert (told["method"], told["target"], told["host"]) == ("GET", "/public", "a.test")


def test_behind_a_trusted_proxy_both_addresses_are_told() -> None:
    told = line(record(exchange(source=Peer("203.0.113.9", 0, True))))
    assert (told["client"], told["peer"], told["tls"]) == ("203.0.113.9", "192.0.2.1", True)


def test_a_failure_is_told_with_phase_and_side() -> None:
    reason = timeout(Phase.RESPONSE_HEAD, UPSTREAM, 30.0)
    told = line(record(exchange(reason=reason, response=Response(504))))
    assert told["status"] == 504
    assert told["error"] == "responseHead timeout: upstream took more than 30 s"
    assert (told["who"], told["phase"], told["proxyError"]) == ("upstream", "responseHead", "http_response_timeout")


def test_a_client_that_left_before_the_answer_is_499() -> None:
    told = line(record(exchange(reason=CLIENT_GONE)))
    assert (told["status"], told["who"], told["error"]) == (499, "client", "the client left")
    assert "phase" not in told


def test_an_exchange_without_an_end_of_any_kind_still_has_its_record() -> None:
    assert line(record(exchange()))["status"] == 0


def test_what_is_no_request_is_marked() -> None:
    made = exchange(b"", b"", b"")
    made.request.malformed = Abort("bad request line", Who.CLIENT, 400)
    told = line(record(made))
    assert told["malformed"] is True
    assert (told["method"], told["target"], told["host"]) == ("", "", "")


def test_notes_of_modules_are_told() -> None:
    made = exchange()
    made.notes["user"] = {"id": 7, "name": "Zoë"}
    assert line(record(made))["notes"] == {"user": {"id": 7, "name": "Zoë"}}


def _cycle() -> dict[str, Any]:
    cycle: dict[str, Any] = {}
    cycle["self"] = cycle
    return cycle


@pytest.mark.parametrize("value", ["\ud800", _cycle()])
def test_notes_that_are_no_json_cost_only_the_notes(value: Any) -> None:
    made = exchange(response=Response(200))
    made.notes["x"] = value
    told = line(record(made))
    assert told["status"] == 200
    assert list(told["notes"]) == ["notes"]
    assert "cannot be written" in told["notes"]["notes"]


def test_notes_that_are_too_long_cost_only_the_notes() -> None:
    made = exchange(response=Response(200))
    made.notes["x"] = "y" * LINE
    text = encode(record(made))
    assert len(text) < 1000
    assert "too long" in json.loads(text)["notes"]["notes"]


def test_values_of_any_class_are_told_as_text() -> None:
    made = exchange()
    made.notes["side"] = Peer
    assert "Peer" in line(record(made))["notes"]["side"]


@pytest.mark.parametrize(
    ("field", "limit", "make"),
    [
        ("method", SHORT, lambda value: exchange(method=value)),
        ("host", SHORT, lambda value: exchange(authority=value)),
        ("target", TARGET, lambda value: exchange(raw=value)),
        ("agent", SHORT, lambda value: exchange(headers=[(b"user-agent", value)])),
    ],
)
def test_what_a_stranger_makes_long_is_cut(field: str, limit: int, make: Any) -> None:
    assert line(record(make(b"x" * limit)))[field] == "x" * limit
    assert line(record(make(b"x" * (limit + 1))))[field] == "x" * limit + CUT


def test_agents_are_remembered_up_to_a_bound() -> None:
    for number in range(2 * KNOWN):
        told = exchange(headers=[(b"user-agent", b"a/%d\xff" % number)])
        assert [record(told).agent for _ in range(2)] == [f"a/{number}\\xff"] * 2
    assert 0 < len(_known) <= KNOWN
    record(exchange(headers=[(b"user-agent", b"a" * (SHORT + 1))]))
    assert max(map(len, _known)) <= SHORT


def test_a_reason_that_is_no_text_is_told_with_escapes() -> None:
    assert line(record(exchange(reason=Abort("bad \ud800 name"))))["error"] == "bad \\ud800 name"


def test_a_long_reason_is_cut() -> None:
    told = line(record(exchange(reason=Abort("x" * 2000))))
    assert told["error"] == "x" * REASON + CUT


@given(st.binary(max_size=60), st.binary(max_size=60), st.binary(max_size=60), st.text(max_size=60))
def test_no_byte_breaks_the_line(method: bytes, target: bytes, agent: bytes, reason: str) -> None:
    made = exchange(method, target, agent, headers=[(b"user-agent", agent)], reason=Abort(reason))
    told = line(record(made))
    assert told["error" if reason else "status"] == (reason or 502)


@pytest.mark.parametrize(
    ("raw", "told"),
    [
        (b"/\r\n{}", r"/\x0d\x0a{}"),
        (b"/\x1b[2J\x9b", r"/\x1b[2J\x9b"),
        (b'/"\\', '/"\\'),
        (b"/\xe2\x80\xa8\x7f", r"/\xe2\x80\xa8\x7f"),
    ],
)
def test_strange_bytes_stand_as_escapes(raw: bytes, told: str) -> None:
    assert line(record(exchange(raw=raw)))["target"] == told


@pytest.mark.parametrize(
    ("ledger", "expected"),
    [
        # answered by the gateway itself
        (marks(first=1.0, head=2.0, uploaded=2.0, end=5.0), {"total": 4000, "clientHeader": 1000, "gateway": 3000}),
        # broke off in the queue
        (marks(first=1.0, head=1.0, chosen=2.0, end=7.0), {"total": 6000, "gateway": 1000, "queue": 5000}),
        # while the request was written
        (
            marks(first=1.0, head=1.0, chosen=1.0, connected=2.0, end=5.0),
            {"total": 4000, "queue": 1000, "send": 3000},
        ),
        # while the upstream thought
        (
            marks(first=1.0, head=1.0, chosen=1.0, connected=1.0, sent=2.0, end=5.0),
            {"total": 4000, "send": 1000, "responseHead": 3000},
        ),
        # answered before the request was sent, which then never was
        (
            marks(first=1.0, head=1.0, chosen=1.0, connected=1.0, answered=2.0, end=4.0),
            {"total": 3000, "send": 1000, "response": 2000},
        ),
        # answered before the request was sent, which was later
        (
            marks(
                first=1.0,
                head=1.0,
                uploaded=3.0,
                received=9,
                chosen=1.0,
                connected=1.0,
                answered=2.0,
                sent=3.0,
                end=4.0,
            ),
            {"total": 3000, "upload": 2000, "send": 2000, "response": 2000},
        ),
        # the upload broke off
        (
            marks(first=1.0, head=1.0, received=9, chosen=1.0, connected=1.0, end=4.0),
            {"total": 3000, "upload": 3000, "send": 3000},
        ),
        # the head never came
        (marks(first=1.0, end=3.0), {"total": 2000, "clientHeader": 2000}),
        # a new connection
        (
            marks(
                first=1.0,
                head=1.0,
                chosen=1.0,
                connected=1.5,
                sent=1.5,
                answered=2,
                end=2,
                dns=0.1,
                connect=0.2,
                tls=0.15,
            ),
            {"total": 1000, "queue": 500, "dns": 100, "connect": 200, "tls": 150, "responseHead": 500},
        ),
    ],
)
def test_phases_add_up_also_of_what_broke_off(ledger: Ledger, expected: dict[str, float]) -> None:
    told = line(record(exchange(ledger=ledger)))["ms"]
    assert told == pytest.approx(expected)


def test_durations_are_microseconds_exact_and_never_negative() -> None:
    assert durations(marks(first=1.0, head=0.5, end=1.0123456)).total == 12.346
    assert durations(marks(first=2.0, head=2.0, end=1.0)).total == 0.0


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.0, "1970-01-01T00:00:00.000Z"),
        (1_700_000_000.0009, "2023-11-14T22:13:20.000Z"),
        (1_700_000_000.999, "2023-11-14T22:13:20.999Z"),
        (951_782_400.5, "2000-02-29T00:00:00.500Z"),
    ],
)
def test_times_are_rfc_3339_in_utc(seconds: float, text: str) -> None:
    assert stamp(seconds) == text
    assert stamp(seconds) == text
