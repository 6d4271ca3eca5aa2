"""The pipeline: what modules may return, how they fail, how long they may take, and what all that costs."""

from __future__ import annotations

import sys
from collections import Counter
from contextlib import contextmanager
from types import SimpleNamespace

import pytest
from twisted.internet import defer
from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.task import Clock
from twisted.logger import globalLogPublisher
from twisted.python.failure import Failure

from protogate.errors import CLIENT, CLIENT_GONE, Abort, Phase
from protogate.exchange import pipeline
from protogate.exchange.pipeline import run
from protogate.message import Request, Response
from protogate.wheel import Wheel

MANY = 10_000


class CountingWheel(Wheel):
    """Counts the timers that are made."""

    made = 0

    def timer(self, function):
        self.made += 1
        return super().timer(function)


class FakeExchange:
    def __init__(self):
        self.clock = Clock()
        self.wheel = CountingWheel(self.clock)
        self.request = Request(b"GET", b"/")
        self.id = "0" * 32
        self.seen = []


class FakeBound:
    """A module that does what a function says."""

    stage = "PRE_REQUEST"

    def __init__(self, process, name="m", timeout=2.0, opens=True, proceeds=False, applies=None, outlives=False):
        self.process, self.name, self.timeout, self.opens = process, name, timeout, opens
        self.proceeds, self.applies, self.outlives = proceeds, applies, outlives
        self.counted = Counter()

    def count(self, event):
        self.counted[event] += 1


class FakeBody:
    stopped = 0

    def stopProducing(self):
        self.stopped += 1


def noting(name, result=None):
    def process(exchange):
        exchange.seen.append(name)
        return result

    return FakeBound(process, name)


def raising(error):
    def process(exchange):
        raise error

    return process


def outcomes(deferred):
    """The list that what a Deferred fires with will stand in."""
    results = []
    deferred.addBoth(results.append)
    return results


@pytest.fixture
def exchange():
    return FakeExchange()


@pytest.fixture
def events():
    """What is logged."""
    seen = []
    globalLogPublisher.addObserver(seen.append)
    yield seen
    globalLogPublisher.removeObserver(seen.append)


@contextmanager
def counted_deferreds():
    """The list of every Deferred that is made inside."""
    made = []
    original = Deferred.__init__

    def counting(self, *args, **kwargs):
        made.append(self)
        original(self, *args, **kwargs)

    Deferred.__init__ = counting
    try:
        yield made
    finally:
        Deferred.__init__ = original


# -- at once


def test_no_modules_give_none(exchange):
    assert run((), exchange) is None


def test_modules_run_in_order_and_none_goes_on(exchange):
    assert run([noting("a"), noting("b"), noting("c")], exchange) is None
    assert exchange.seen == ["a", "b", "c"]


def test_first_response_ends_the_stage(exchange):
    answer = Response(204)
    assert run([noting("a"), noting("b", answer), noting("c")], exchange) is answer
    assert exchange.seen == ["a", "b"]


def test_module_that_does_not_apply_is_left_out(exchange):
    no = noting("no")
    no.applies = lambda exchange: False
    yes = noting("yes")
    yes.applies = lambda exchange: exchange.request.method == b"GET"
    assert run([no, yes], exchange) is None
    assert exchange.seen == ["yes"]


def test_ten_thousand_synchronous_modules_cost_no_deferred_no_timer_and_no_stack(exchange):
    depths = set()

    def process(exchange):
        depths.add(len(inspect_stack()))

    with counted_deferreds() as deferreds:
        assert run([FakeBound(process)] * MANY, exchange) is None
    assert len(depths) == 1
    assert deferreds == []
    assert exchange.wheel.made == 0
    assert exchange.clock.getDelayedCalls() == []


def inspect_stack():
    frame, frames = sys._getframe(1), []
    while frame is not None:
        frames.append(frame.f_code)
        frame = frame.f_back
    return frames


# -- fired already


def test_fired_deferred_goes_on_in_the_same_call(exchange):
    answer = Response(200)
    bound = [noting("a", defer.succeed(None)), noting("b", defer.succeed(answer)), noting("c")]
    assert run(bound, exchange) is answer
    assert exchange.seen == ["a", "b"]
    assert exchange.wheel.made == 0


def test_coroutine_that_does_not_wait_goes_on_in_the_same_call(exchange):
    async def process(exchange):
        exchange.seen.append("async")

    assert run([FakeBound(process), noting("b")], exchange) is None
    assert exchange.seen == ["async", "b"]
    assert exchange.wheel.made == 0


def test_any_awaitable_will_do(exchange):
    answer = Response(200)

    class Soon:
        def __await__(self):
            yield from defer.succeed(None).__await__()
            return answer

    assert run([FakeBound(lambda exchange: Soon())], exchange) is answer


def test_ten_thousand_fired_deferreds_do_not_deepen_the_stack(exchange):
    depths = set()

    def process(exchange):
        depths.add(len(inspect_stack()))
        return defer.succeed(None)

    assert run([FakeBound(process)] * MANY, exchange) is None
    assert len(depths) <= 2  # from run(), then from the chain
    assert exchange.wheel.made == 0


def test_ten_thousand_coroutines_do_not_deepen_the_stack(exchange):
    async def process(exchange):
        return None

    assert run([FakeBound(process)] * MANY, exchange) is None
    assert exchange.wheel.made == 0


# -- later


def test_deferred_that_fires_later_goes_on_behind_it(exchange):
    waits, answer = Deferred(), Response(200)
    results = outcomes(run([noting("a", waits), noting("b", answer), noting("c")], exchange))
    assert (results, exchange.seen) == ([], ["a"])
    waits.callback(None)
    assert (results, exchange.seen) == ([answer], ["a", "b"])


def test_deferred_that_fires_later_with_a_response_answers(exchange):
    waits, answer = Deferred(), Response(200)
    results = outcomes(run([noting("a", waits), noting("b")], exchange))
    waits.callback(answer)
    assert (results, exchange.seen) == ([answer], ["a"])


def test_stage_that_waited_may_end_with_none(exchange):
    waits = Deferred()
    results = outcomes(run([noting("a", waits), noting("b")], exchange))
    waits.callback(None)
    assert (results, exchange.seen) == ([None], ["a", "b"])


def test_coroutine_may_wait(exchange):
    waits, answer = Deferred(), Response(200)

    async def process(exchange):
        await waits
        return answer

    results = outcomes(run([FakeBound(process)], exchange))
    assert results == []
    waits.callback(None)
    assert results == [answer]


def test_ten_thousand_deferreds_that_fire_later_do_not_deepen_the_stack(exchange):
    waits, depths = [], set()

    def process(exchange):
        depths.add(len(inspect_stack()))
        waits.append(Deferred())
        return waits[-1]

    results = outcomes(run([FakeBound(process)] * MANY, exchange))
    while not results:
        waits[-1].callback(None)
    assert results == [None]
    assert len(waits) == MANY
    assert len(depths) == 2  # from run(), then from whoever fires
    assert exchange.wheel.made == 1


def test_ten_thousand_modules_that_wait_for_one_deferred_do_not_deepen_the_stack(exchange):
    waits = Deferred()
    results = outcomes(run([FakeBound(lambda exchange: waits)] * MANY, exchange))
    waits.callback(None)
    assert results == [None]


def test_nothing_is_armed_when_the_stage_is_over(exchange):
    waits = Deferred()
    results = outcomes(run([noting("a", waits)], exchange))
    assert exchange.wheel.made == 1
    waits.callback(None)
    assert results == [None]
    assert not any(exchange.wheel._slots.values())


# -- failures


def coroutine_raising(error):
    async def process(exchange):
        raise error

    return process


FAILURES = {
    "raised": raising,
    "raised by a coroutine": coroutine_raising,
    "failed already": lambda error: lambda exchange: defer.fail(error),
}


@pytest.mark.parametrize("fails", FAILURES.values(), ids=FAILURES)
def test_failure_ends_the_stage_with_an_abort_that_names_the_module(exchange, flush_errors, fails):
    bound = FakeBound(fails(ValueError("no luck")), "lucky")
    with pytest.raises(Abort) as caught:
        run([bound, noting("b")], exchange)
    abort = caught.value
    assert (abort.status, abort.phase, abort.who) == (500, Phase.MODULE, "gateway")
    assert abort.reason == "module lucky (PRE_REQUEST): ValueError: no luck"
    assert abort.detail == ""
    assert isinstance(abort.__cause__, ValueError)
    assert [failure.value for failure in flush_errors()] == [abort.__cause__]
    assert bound.counted == {"failed": 1}
    assert exchange.seen == []


@pytest.mark.parametrize("fails", FAILURES.values(), ids=FAILURES)
def test_abort_of_a_module_reaches_the_caller_as_it_is(exchange, fails):
    abort = Abort("not you", CLIENT, 403)
    with pytest.raises(Abort) as caught:
        run([FakeBound(fails(abort))], exchange)
    assert caught.value is abort


@pytest.mark.parametrize("fails", FAILURES.values(), ids=FAILURES)
@pytest.mark.parametrize("error", [ValueError("no luck"), Abort("no store", status=503)], ids=["bug", "abort"])
def test_failure_goes_on_when_the_binding_says_so(exchange, events, flush_errors, fails, error):
    bound = FakeBound(fails(error), "lucky", proceeds=True)
    assert run([bound, noting("b")], exchange) is None
    assert [failure.value for failure in flush_errors()] == [error] * isinstance(error, ValueError)
    assert exchange.seen == ["b"]
    assert bound.counted == {"failed": 1}
    (event,) = [event for event in events if event.get("module") == "lucky"]
    assert event["stage"] == "PRE_REQUEST"
    assert (event["log_level"].name == "error") == isinstance(error, ValueError)


@pytest.mark.parametrize("fails", FAILURES.values(), ids=FAILURES)
def test_abort_that_blames_the_client_is_a_verdict_that_nothing_overrides(exchange, fails):
    abort = Abort("not you", CLIENT, 403)
    bound = FakeBound(fails(abort), proceeds=True)
    with pytest.raises(Abort) as caught:
        run([bound, noting("b")], exchange)
    assert caught.value is abort
    assert (exchange.seen, bound.counted) == ([], {"refused": 1})


def test_later_failure_fails_the_deferred(exchange, flush_errors):
    waits = Deferred()
    results = outcomes(run([noting("a", waits), noting("b")], exchange))
    waits.errback(ValueError("no luck"))
    assert results[0].value.reason == "module a (PRE_REQUEST): ValueError: no luck"
    assert len(flush_errors(ValueError)) == 1
    assert exchange.seen == ["a"]


def test_later_failure_goes_on_when_the_binding_says_so(exchange):
    waits = Deferred()
    bound = FakeBound(lambda exchange: waits, proceeds=True)
    results = outcomes(run([bound, noting("b")], exchange))
    waits.errback(Abort("no store", status=503))
    assert (results, exchange.seen, bound.counted) == ([None], ["b"], {"failed": 1})


def test_failure_behind_one_that_waited_fails_the_deferred(exchange, flush_errors):
    waits = Deferred()
    results = outcomes(run([noting("a", waits), FakeBound(raising(ValueError("no luck")), "b")], exchange))
    waits.callback(None)
    assert results[0].value.reason == "module b (PRE_REQUEST): ValueError: no luck"
    assert len(flush_errors(ValueError)) == 1


def test_condition_that_raises_counts_as_the_module(exchange, flush_errors):
    bound = noting("a")
    bound.applies = raising(TypeError("size of what?"))
    with pytest.raises(Abort, match=r"module a .*size of what"):
        run([bound], exchange)
    bound.proceeds = True
    assert run([bound, noting("b")], exchange) is None
    assert exchange.seen == ["b"]
    assert len(flush_errors(TypeError)) == 2


def test_what_is_no_exception_is_nobodys_to_handle(exchange):
    with pytest.raises(KeyboardInterrupt):
        run([FakeBound(raising(KeyboardInterrupt()), proceeds=True)], exchange)
    with pytest.raises(KeyboardInterrupt):
        run([FakeBound(lambda exchange: defer.fail(Failure(KeyboardInterrupt())), proceeds=True)], exchange)


def test_what_is_no_exception_is_not_lost_in_a_modules_deferred(exchange):
    waits = Deferred()
    results = outcomes(run([FakeBound(lambda exchange: waits, proceeds=True)], exchange))
    waits.errback(Failure(SystemExit()))
    assert results[0].check(SystemExit)


@pytest.mark.parametrize(
    ("value", "kind"),
    [("text", "str"), (0, "int"), (False, "bool"), (Request(b"GET", b"/"), "protogate.message.Request")],
)
def test_values_that_are_not_allowed_are_failures(exchange, value, kind):
    expected = f"module m (PRE_REQUEST) gave a {kind}: expected None, a Response or an awaitable"
    with pytest.raises(Abort) as caught:
        run([FakeBound(lambda exchange: value)], exchange)
    assert (caught.value.reason, caught.value.status) == (expected, 500)
    with pytest.raises(Abort) as caught:
        run([FakeBound(lambda exchange: defer.succeed(value))], exchange)
    assert caught.value.reason == expected
    waits = Deferred()
    results = outcomes(run([FakeBound(lambda exchange: waits)], exchange))
    waits.callback(value)
    assert results[0].value.reason == expected
    assert run([FakeBound(lambda exchange: value, proceeds=True), noting("b")], exchange) is None


# -- timeouts


def test_timeout_cancels_the_module_and_goes_on(exchange, events):
    cancelled = []
    bound = FakeBound(lambda exchange: Deferred(cancelled.append), "slow")
    results = outcomes(run([bound, noting("b")], exchange))
    exchange.clock.pump([0.05] * 39)
    assert (results, cancelled) == ([], [])
    exchange.clock.pump([0.05] * 3)
    assert (results, len(cancelled), exchange.seen) == ([None], 1, ["b"])
    assert bound.counted == {"timed_out": 1}
    (event,) = [event for event in events if event.get("module") == "slow"]
    assert (event["seconds"], event["handle"]) == (2.0, "continue")
    assert not any(exchange.wheel._slots.values())


@pytest.mark.parametrize("proceeds", [False, True])
def test_timeout_of_what_fails_closed_ends_the_stage_whatever_exception_handle_says(exchange, events, proceeds):
    bound = FakeBound(lambda exchange: Deferred(), "guard", timeout=0.5, opens=False, proceeds=proceeds)
    results = outcomes(run([bound, noting("b")], exchange))
    exchange.clock.pump([0.05] * 12)
    abort = results[0].value
    assert (abort.status, abort.phase, abort.error) == (500, Phase.MODULE, "proxy_internal_error")
    assert abort.reason == "module guard (PRE_REQUEST) took more than 0.5 s"
    assert exchange.seen == []
    assert [event["handle"] for event in events if event.get("module") == "guard"] == ["return"]


def test_each_module_has_its_own_time(exchange):
    first, second = Deferred(), Deferred()
    results = outcomes(run([noting("a", first), noting("b", second), noting("c")], exchange))
    exchange.clock.pump([0.05] * 38)
    first.callback(None)
    exchange.clock.pump([0.05] * 39)
    assert results == []
    exchange.clock.pump([0.05] * 3)
    assert (results, exchange.seen) == ([None], ["a", "b", "c"])
    assert exchange.wheel.made == 1


def test_module_without_timeout_may_wait_for_ever(exchange):
    waits = Deferred()
    results = outcomes(run([FakeBound(lambda exchange: waits, timeout=0)], exchange))
    assert exchange.wheel.made == 0
    waits.callback(None)
    assert results == [None]


@pytest.mark.parametrize("opens", [False, True])
def test_answer_after_the_timeout_is_dropped_and_its_body_stopped(exchange, opens):
    body, waits = FakeBody(), Deferred()

    async def process(exchange):
        try:
            await Deferred()
        except CancelledError:
            await waits  # takes its time although nobody waits
        return Response(200, (), body)

    results = outcomes(run([FakeBound(process, opens=opens), noting("b")], exchange))
    exchange.clock.pump([0.05] * 42)
    assert len(results) == 1
    waits.callback(None)
    assert len(results) == 1
    assert body.stopped == 1


def test_answer_inside_the_cancel_of_a_timeout_is_dropped(exchange):
    body = FakeBody()
    waits = Deferred(lambda deferred: deferred.callback(Response(200, (), body)))
    results = outcomes(run([noting("a", waits)], exchange))
    exchange.clock.pump([0.05] * 42)
    assert (results, body.stopped) == ([None], 1)


def test_failure_after_the_timeout_is_nobodys(exchange):
    async def process(exchange):
        try:
            await Deferred()
        except CancelledError:
            raise ValueError("while cleaning up") from None

    results = outcomes(run([FakeBound(process)], exchange))
    exchange.clock.pump([0.05] * 42)
    assert results == [None]


def test_canceller_that_raises_is_logged_and_harms_nobody(exchange, flush_errors):
    results = outcomes(run([noting("a", Deferred(raising(ValueError("in the canceller"))))], exchange))
    exchange.clock.pump([0.05] * 42)
    assert results == [None]
    assert [str(failure.value) for failure in flush_errors()] == ["in the canceller"]


# -- the client leaves


def test_cancel_cancels_the_module_and_ends_the_chain(exchange):
    cancelled = []
    bound = FakeBound(lambda exchange: Deferred(cancelled.append), proceeds=True)
    deferred = run([bound, noting("b")], exchange)
    results = outcomes(deferred)
    deferred.cancel()
    assert results[0].check(CancelledError)
    assert (len(cancelled), exchange.seen, bound.counted) == (1, [], {})
    assert not any(exchange.wheel._slots.values())


def test_module_that_answers_a_cancel_revives_nothing(exchange):
    body = FakeBody()
    for answer in (None, Response(200, (), body)):
        waits = Deferred(lambda deferred, answer=answer: deferred.callback(answer))
        deferred = run([noting("a", waits), noting("b")], exchange)
        results = outcomes(deferred)
        deferred.cancel()
        assert results[0].check(CancelledError)
    assert body.stopped == 1
    assert "b" not in exchange.seen


def test_module_that_answers_long_after_a_cancel_is_ignored(exchange):
    body, waits = FakeBody(), Deferred()

    async def process(exchange):
        try:
            await Deferred()
        except CancelledError:
            await waits
        return Response(200, (), body)

    deferred = run([FakeBound(process), noting("b")], exchange)
    results = outcomes(deferred)
    deferred.cancel()
    waits.callback(None)
    assert results[0].check(CancelledError)
    assert (len(results), body.stopped, exchange.seen) == (1, 1, [])


@pytest.mark.parametrize("fails", FAILURES.values(), ids=FAILURES)
def test_cancelled_error_of_a_client_that_left_passes_through(exchange, fails):
    exchange.request.gone = CLIENT_GONE
    bound = FakeBound(fails(CancelledError()), proceeds=True)
    with pytest.raises(CancelledError):
        run([bound, noting("b")], exchange)
    assert (exchange.seen, bound.counted) == ([], {})


def test_later_cancelled_error_of_a_client_that_left_passes_through(exchange):
    waits = Deferred()
    results = outcomes(run([FakeBound(lambda exchange: waits, proceeds=True), noting("b")], exchange))
    exchange.request.gone = CLIENT_GONE
    waits.cancel()
    assert results[0].check(CancelledError)
    assert exchange.seen == []


def test_cancelled_error_while_the_client_is_there_is_the_modules_own(exchange, flush_errors):
    assert run([FakeBound(raising(CancelledError()), proceeds=True), noting("b")], exchange) is None
    with pytest.raises(Abort, match="CancelledError"):
        run([FakeBound(raising(CancelledError()))], exchange)
    assert len(flush_errors(CancelledError)) == 2


def test_cancelled_error_in_the_last_stage_does_not_end_it(exchange, flush_errors):
    exchange.request.gone = CLIENT_GONE
    bound = FakeBound(raising(CancelledError()), proceeds=True, outlives=True)
    assert run([bound, noting("b")], exchange) is None
    assert exchange.seen == ["b"]
    assert len(flush_errors(CancelledError)) == 1


@pytest.mark.parametrize("kind", ["none", "response", "deferred", "late deferred", "coroutine", "raises"])
def test_module_that_makes_the_client_leave_is_the_last_one(exchange, flush_errors, kind):
    first, body, cancelled, started = Deferred(), FakeBody(), [], []

    async def coroutine():
        started.append(1)

    def process(exchange):
        deferred.cancel()
        if kind == "raises":
            raise ValueError
        return {
            "none": lambda: None,
            "response": lambda: Response(200, (), body),
            "deferred": lambda: defer.succeed(Response(200, (), body)),
            "late deferred": lambda: Deferred(cancelled.append),
            "coroutine": coroutine,
        }[kind]()

    deferred = run([noting("a", first), FakeBound(process), noting("c")], exchange)
    results = outcomes(deferred)
    first.callback(None)
    assert len(results) == 1
    assert results[0].check(CancelledError)
    assert exchange.seen == ["a"]
    assert body.stopped == (kind in ("response", "deferred"))
    assert len(cancelled) == (kind == "late deferred")
    assert started == []
    assert len(flush_errors(ValueError)) == (kind == "raises")


def test_client_that_leaves_inside_the_cancel_of_a_timeout_ends_the_chain(exchange):
    deferred = run([noting("a", Deferred(lambda waits: deferred.cancel())), noting("b")], exchange)
    results = outcomes(deferred)
    exchange.clock.pump([0.05] * 42)
    assert results[0].check(CancelledError)
    assert exchange.seen == ["a"]


def test_nothing_is_kept_of_a_stage_that_is_over(exchange):
    waits = Deferred()
    chains = []
    original = pipeline._Chain.begin

    def begin(self, index, result):
        chains.append(self)
        return original(self, index, result)

    pipeline._Chain.begin = begin
    try:
        results = outcomes(run([noting("a", waits)], exchange))
    finally:
        pipeline._Chain.begin = original
    waits.callback(None)
    (chain,) = chains
    assert results == [None]
    assert (chain.over, chain._outer, chain._deferred, chain._timer) == (True, None, None, None)


def test_exchange_is_only_asked_for_what_a_pipeline_needs():
    """A pipeline that does not wait needs no clock."""
    assert run([FakeBound(lambda exchange: None)], SimpleNamespace()) is None
