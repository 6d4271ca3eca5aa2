"""A Promise does what a Deferred does: each case goes through both."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from twisted.internet.defer import AlreadyCalledError, CancelledError, Deferred
from twisted.python.failure import Failure

from protogate.message import Response
from protogate.promise import Promise, waits

Make = Callable[[Callable[[Deferred[Any]], None]], Deferred[Any]]


@pytest.fixture(params=[Deferred, Promise])
def make(request: pytest.FixtureRequest) -> Any:
    return request.param


def nothing(_: Deferred[Any]) -> None:
    pass


def told(got: list[Any], name: str, gives: Any = None) -> Callable[..., Any]:
    """A callback that notes what it got, and gives that or something else."""

    def step(result: Any, *args: Any, **named: Any) -> Any:
        value = type(result.value).__name__ if isinstance(result, Failure) else result
        got.append((name, value, args, named))
        if isinstance(gives, Exception):
            raise gives
        return result if gives is None else gives

    return step


def test_a_coroutine_waits_for_it(make: Make) -> None:
    deferred, response, got = make(nothing), Response(200), []

    async def waits() -> None:
        got.append(await deferred)

    Deferred.fromCoroutine(waits())
    deferred.callback(response)
    assert got == [response]


def test_callbacks_run_in_order_with_their_arguments(make: Make) -> None:
    got: list[Any] = []
    first, second = Response(200), Response(404)
    deferred = make(nothing)
    deferred.addCallback(told(got, "a", second), 1, two=2)
    deferred.addErrback(told(got, "never"))
    deferred.addCallbacks(told(got, "b"), told(got, "never"), (3,), {"four": 4})
    deferred.addBoth(told(got, "c"), 5)
    deferred.callback(first)
    deferred.addCallback(told(got, "late"))
    assert got == [
        ("a", first, (1,), {"two": 2}),
        ("b", second, (3,), {"four": 4}),
        ("c", second, (5,), {}),
        ("late", second, (), {}),
    ]
    assert deferred.called
    assert deferred.result is second


def test_what_a_callback_raises_goes_to_the_next_errback(make: Make) -> None:
    got: list[Any] = []
    answer = Response(502)
    deferred = make(nothing)
    deferred.addCallback(told(got, "a", ValueError()))
    deferred.addCallback(told(got, "never"))
    deferred.addCallbacks(told(got, "never"), told(got, "b", answer), errbackArgs=(1,), errbackKeywords={"two": 2})
    deferred.addCallback(told(got, "c"))
    deferred.callback(Response(200))
    assert [name for name, *_ in got] == ["a", "b", "c"]
    assert got[1] == ("b", "ValueError", (1,), {"two": 2})
    assert got[2][1] is answer


def test_a_callback_that_gives_a_failure_or_no_response_is_heard(make: Make) -> None:
    got: list[Any] = []
    deferred = make(nothing)
    deferred.addCallback(told(got, "a", Failure(KeyError())))
    deferred.addErrback(told(got, "b", 7))
    deferred.addCallback(told(got, "c"))
    deferred.callback(Response(200))
    assert [entry[:2] for entry in got[1:]] == [("b", "KeyError"), ("c", 7)]


@pytest.mark.parametrize("fired", [True, False])
def test_the_rest_waits_for_a_deferred_that_a_callback_gave(make: Make, fired: bool) -> None:
    got: list[Any] = []
    answer = Response(200)
    other: Deferred[Any] = Deferred()
    if fired:
        other.callback(answer)
    deferred = make(nothing)
    deferred.addCallback(told(got, "a", other))
    deferred.addCallback(told(got, "b"))
    deferred.callback(Response(404))
    if not fired:
        assert [name for name, *_ in got] == ["a"]
        other.callback(answer)
    assert got[1:] == [("b", answer, (), {})]


def test_cancelling_then_reaches_the_deferred_that_is_waited_for(make: Make) -> None:
    cancelled: list[Any] = []
    other: Deferred[Any] = Deferred(cancelled.append)
    deferred = make(nothing)
    deferred.addCallback(lambda _: other)
    deferred.callback(Response(200))
    deferred.addErrback(lambda failure: failure.trap(CancelledError) and None)
    deferred.cancel()
    assert cancelled == [other]


def test_another_deferred_may_wait_for_it(make: Make) -> None:
    got: list[Any] = []
    answer = Response(200)
    inner = make(nothing)
    inner.addCallback(told(got, "inner"))
    outer: Deferred[Any] = Deferred()
    outer.addCallback(lambda _: inner)
    outer.addCallback(told(got, "outer"))
    outer.callback(None)
    assert got == []
    inner.callback(answer)
    assert got == [("inner", answer, (), {}), ("outer", answer, (), {})]


@pytest.mark.parametrize("fails", [True, False])
def test_another_deferred_that_waits_for_it_goes_on_behind_its_own_callbacks(make: Make, fails: bool) -> None:
    got: list[Any] = []
    waiting: Deferred[Any] = Deferred()
    deferred = make(nothing)
    deferred.addCallbacks(told(got, "own"), told(got, "own"))
    if not fails:
        deferred.addCallback(told(got, "no response", 7))
    deferred.addBoth(told(got, "own, too"))
    waiting.addCallback(lambda _: deferred)
    waiting.addBoth(told(got, "waiting", 0))
    waiting.callback(None)
    if fails:
        deferred.errback(ValueError())
        assert [(name, value) for name, value, _, _ in got] == [
            ("own", "ValueError"),
            ("own, too", "ValueError"),
            ("waiting", "ValueError"),
        ]
    else:
        deferred.callback(Response(200))
        assert [name for name, _, _, _ in got] == ["own", "no response", "own, too", "waiting"]
        assert [value for _, value, _, _ in got][2:] == [7, 7]


def test_an_errback_is_told_why(make: Make) -> None:
    got: list[Any] = []
    deferred = make(nothing)
    deferred.addCallback(told(got, "never"))
    deferred.addErrback(told(got, "a", Response(502)), 1)
    deferred.addCallback(told(got, "b"))
    deferred.errback(KeyError())
    assert got[0][:2] == ("a", "KeyError")
    assert [name for name, *_ in got] == ["a", "b"]


def test_cancelling_it_calls_its_canceller_and_fails_it(make: Make) -> None:
    cancelled: list[Any] = []
    got: list[Any] = []
    deferred = make(cancelled.append)
    deferred.addErrback(told(got, "a", Response(499)))
    deferred.cancel()
    assert cancelled == [deferred]
    assert got[0][1] == "CancelledError"


def test_one_that_has_fired_is_not_cancelled_even_by_its_own_callback(make: Make) -> None:
    cancelled: list[Any] = []
    got: list[Any] = []
    deferred = make(cancelled.append)
    deferred.addCallback(lambda response: (deferred.cancel(), response)[1])
    deferred.addCallback(told(got, "a"))
    deferred.callback(Response(200))
    deferred.cancel()
    assert [name for name, *_ in got] == ["a"]
    assert cancelled == []


def test_a_callback_that_is_added_by_a_callback_comes_last(make: Make) -> None:
    got: list[Any] = []
    deferred = make(nothing)

    def adds(response: Response) -> Response:
        deferred.addCallback(told(got, "added"))
        return response

    deferred.addCallback(adds)
    deferred.addCallback(told(got, "a"))
    deferred.callback(Response(200))
    assert [name for name, *_ in got] == ["a", "added"]


@pytest.mark.parametrize("again", ["callback", "errback"])
def test_it_fires_once(make: Make, again: str) -> None:
    deferred = make(nothing)
    refused: list[Any] = []

    def inside(response: Response) -> Response:
        with pytest.raises(AlreadyCalledError):
            getattr(deferred, again)(KeyError())
        refused.append(again)
        return response

    deferred.addCallback(inside)
    deferred.callback(Response(200))
    with pytest.raises(AlreadyCalledError):
        getattr(deferred, again)(KeyError())
    assert refused == [again]


def test_it_fires_no_more_after_it_has_failed(make: Make) -> None:
    deferred = make(nothing)
    deferred.addErrback(lambda _: None)
    deferred.errback(KeyError())
    with pytest.raises(AlreadyCalledError):
        deferred.callback(Response(200))
    with pytest.raises(AlreadyCalledError):
        deferred.errback(KeyError())


def test_an_errback_that_comes_late_hears_what_has_failed(make: Make) -> None:
    got: list[Any] = []
    deferred = make(nothing)
    deferred.addCallback(told(got, "a", ValueError()))
    deferred.callback(Response(200))
    assert isinstance(deferred.result, Failure)  # type: ignore[attr-defined]
    deferred.addErrback(told(got, "b", 1))
    assert got[1][1] == "ValueError"


def test_it_pauses_before_it_fires_and_goes_on_in_order(make: Make) -> None:
    got: list[Any] = []
    deferred = make(nothing)
    deferred.addCallback(told(got, "a"))
    deferred.pause()
    deferred.addCallback(told(got, "b"))
    deferred.callback(Response(200))
    deferred.addCallback(told(got, "c"))
    assert got == []
    deferred.unpause()
    assert [name for name, *_ in got] == ["a", "b", "c"]


def test_after_it_was_refused_to_fire_within_a_callback_the_rest_runs_in_order(make: Make) -> None:
    got: list[Any] = []
    deferred = make(nothing)

    def inside(response: Response) -> Response:
        with pytest.raises(AlreadyCalledError):
            deferred.errback(KeyError())
        deferred.addCallback(told(got, "added"))
        return response

    deferred.addCallback(inside)
    deferred.addCallback(told(got, "a"))
    deferred.callback(Response(200))
    assert [name for name, *_ in got] == ["a", "added"]


def test_what_waits_is_a_deferred_of_any_kind_and_nothing_else() -> None:
    class Own(Deferred[Any]):
        """Somebody else's."""

    assert all(waits(one) for one in (Deferred(), Own(), Promise(nothing)))
    assert not any(waits(one) for one in (None, Response(200), object(), Failure(KeyError())))
