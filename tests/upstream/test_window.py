"""What was seen of attempts: what each says, sums of them, and what is within the last seconds."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from twisted.internet.defer import CancelledError

from protogate.body import Whole
from protogate.errors import (
    ALWAYS,
    CLIENT_GONE,
    CUT_OFF,
    GATEWAY,
    IDEMPOTENT,
    UPSTREAM,
    Abort,
    Phase,
    departed,
    overdue,
    timeout,
)
from protogate.exchange.ledger import Ledger
from protogate.message import Response
from protogate.observe.histogram import BOUNDS
from protogate.testing.bodies import Giver
from protogate.upstream.outcome import ERROR, FAILED, NOTHING, WELL, Outcome, answered, ended, failed
from protogate.upstream.refusal import full, gone, queued
from protogate.upstream.seen import Seen, one
from protogate.upstream.window import SLICES, Window

REFUSED = Abort("refused", UPSTREAM, 502, ALWAYS, error="connection_refused", phase=Phase.CONNECT)
UNREAD = Abort("REFUSED_STREAM", UPSTREAM, 502, ALWAYS, error="destination_unavailable")
DRAINS = Abort("the upstream drains, and has not looked at it", UPSTREAM, 502, ALWAYS)


@pytest.mark.parametrize(("status", "outcome"), [(101, WELL), (204, WELL), (404, WELL), (499, WELL), (500, ERROR)])
def test_what_an_answer_says(status: int, outcome: Outcome) -> None:
    assert answered(Response(status)) is outcome


@pytest.mark.parametrize(
    ("status", "outcome"), [(0, WELL), (4, WELL), (12, WELL), (2, ERROR), (13, ERROR), (14, ERROR)]
)
def test_what_a_call_says(status: int, outcome: Outcome) -> None:
    fields = [(b"content-type", b"application/grpc"), (b"grpc-status", b"%d" % status)]
    assert answered(Response(200, fields)) is outcome
    assert answered(Response(200, fields, Whole(b"a message"))) is WELL
    trailers = [(b"x-more", b"14"), (b"grpc-status", b"%d" % status)]
    giver = Giver([b"a message"])
    assert answered(Response(200, fields[:1], giver.body)) is WELL, "for now"
    giver.finish(trailers)
    assert answered(Response(200, fields[:1], giver.body)) is outcome


def test_what_the_rest_of_an_answer_says_beside_its_head() -> None:
    ledger, response = Ledger(), Response(200, protocol="HTTP/2")
    assert ended(ledger, response, None) is NOTHING, "it was no call"
    ledger.rpc = 0
    assert ended(ledger, response, None) is NOTHING
    ledger.rpc = 14
    assert ended(ledger, response, None) is ERROR
    assert ended(ledger, Response(200), None) is NOTHING, "it is of our own making"
    assert ended(ledger, None, None) is NOTHING
    assert ended(ledger, Response(404, protocol="HTTP/1.1"), None) is NOTHING, "nobody said anything of a call"
    assert ended(ledger, response, departed(True)) is FAILED
    assert ended(ledger, response, CLIENT_GONE) is NOTHING


@pytest.mark.parametrize(
    ("error", "outcome"),
    [
        (REFUSED, FAILED),
        (UNREAD, FAILED),
        (departed(False), FAILED),
        (departed(True), FAILED),
        (timeout(Phase.RESPONSE_HEAD, UPSTREAM, 1.0), FAILED),
        (timeout(Phase.CONNECT, UPSTREAM, 1.0, ALWAYS), FAILED),
        (DRAINS, NOTHING),
        (gone("was taken out of use"), NOTHING),
        (full("a", 3), NOTHING),
        (queued("a", 1.0), NOTHING),
        (overdue(UPSTREAM), NOTHING),
        (CLIENT_GONE, NOTHING),
        (CUT_OFF, NOTHING),
        (Abort("no descriptors", GATEWAY, 503), NOTHING),
        (CancelledError(), NOTHING),
        (ValueError(), NOTHING),
        (None, NOTHING),
    ],
    ids=repr,
)
def test_only_what_the_endpoint_did_counts(error: BaseException | None, outcome: Outcome) -> None:
    """envoy#25487: local overflow, and clients that leave, are not its fault."""
    assert failed(error) is outcome


def test_a_connection_that_was_closed_while_it_was_idle_is_no_failure() -> None:
    ledger = Ledger()
    assert failed(departed(False), ledger) is FAILED
    ledger.reused = True
    assert failed(departed(False), ledger) is NOTHING
    assert failed(departed(True), ledger) is FAILED
    assert departed(False).retry is IDEMPOTENT


attempts = st.lists(st.tuples(st.sampled_from([WELL, ERROR, FAILED]), st.floats(0, 200)), max_size=30)


@settings(max_examples=60, deadline=None)
@given(attempts, attempts)
def test_parts_add_up_to_the_whole_also_when_they_are_told(first: object, second: object) -> None:
    whole, parts = Seen(), [Seen(), Seen()]
    for part, each in zip(parts, (first, second), strict=True):
        for outcome, seconds in each:  # type: ignore[attr-defined]
            whole.add(outcome, seconds)
            part.add(outcome, seconds)
    joined = Seen.told(parts[0].plain())
    joined.merge(Seen.told(parts[1].plain()))
    assert sorted(joined.plain()) == sorted(whole.plain())
    assert (joined.row, joined.bad, joined.bins) == (whole.row, whole.bad, whole.bins)
    assert sum(whole.bins.values()) == whole.well


@pytest.mark.parametrize(
    "plain", [[], [1, 2, 3], [1, 0, 0, 0, 5], [1, 0, 0, -1], [1.5, 0, 0, 0], [1, 0, 0, 0, 900, 1], [True, 0, 0, 0]]
)
def test_what_is_no_sight_is_refused(plain: list[int]) -> None:
    with pytest.raises(ValueError, match="no "):
        Seen.told(plain)


def test_how_many_were_slow() -> None:
    seen = Seen()
    for seconds in (0.01, 0.45, 0.55, 0.65, 3.0, 1000.0):
        seen.add(WELL, seconds)
    seen.add(FAILED, 5.0)
    assert seen.slow(0.5) == 4
    assert seen.slow(100.0) == 1


def test_a_window_forgets() -> None:
    window = Window(10.0)
    for second in range(30):
        window.add(one(ERROR if second < 15 else WELL, 0.01), second + 0.5)
    assert (window.total, window.bad, window.ratio) == (10, 0, 0.0)
    window.add(one(FAILED, 0.0), 30.5)
    assert (window.well, window.errors, window.failed) == (9, 0, 1)
    window.turn(100.0)
    assert (window.total, window.ratio, window.quantile(0.5)) == (0, 0.0, 0.0)
    window.add(one(FAILED, 0.0), 100.0)
    window.clear()
    assert window.total == 0


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.sampled_from([WELL, ERROR]), st.floats(0, 3)), max_size=60))
def test_it_has_what_is_within_and_nothing_older(steps: list[tuple[Outcome, float]]) -> None:
    window, now, seen = Window(5.0, latencies=True), 50.0, []
    for outcome, wait in steps:
        now += wait
        window.add(one(outcome, wait), now)
        seen.append(now)
    window.turn(now)
    surely = sum(1 for at in seen if at > now - 5.0 * (SLICES - 1) / SLICES)
    perhaps = sum(1 for at in seen if at > now - 5.0)
    assert surely <= window.total <= perhaps
    assert sum(window._bins) == window.well


def test_quantiles_are_as_exact_as_bins() -> None:
    window = Window(10.0, latencies=True)
    for number in range(1, 1001):
        window.add(one(WELL, number / 1000), 5.0)
        window.add(one(FAILED, 0.0), 5.0)
    for share in (0.1, 0.5, 0.9, 0.95, 0.99):
        assert window.quantile(share) == pytest.approx(share, rel=0.02)
    window.clear()
    window.add(one(WELL, 1000.0), 5.0)
    assert window.quantile(0.5) == BOUNDS[-1]
