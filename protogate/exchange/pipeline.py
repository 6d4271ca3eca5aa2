"""
One stage of an exchange: its modules, in order, until one answers.

Rules
- Modules that answer at once cost a loop: no Deferred, no timer, no frame per module.
- At the first result that really waits a L{_Chain} takes over: one Deferred for the caller, one timer for all modules
  that follow.  What has fired already goes on in the same loop.
- A module fails (raises, fails, returns what it must not): C{exceptionHandle} decides.  It takes too long: it is
  cancelled, C{timeoutHandle} decides, and whatever it says later is dropped.
- An Abort that blames the client is no failure of the module but its verdict: it always reaches the caller.
  C{exceptionHandle: continue} lets nobody in whom a module denied.
- Cancelling what L{run} returned cancels the module that is waited for, and nothing of this chain runs after that.
  CancelledError of an exchange whose client left passes through untouched, whatever exceptionHandle says.
- This file knows neither stages nor configuration: what it must know of them is in the L{IBound} it is given.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from enum import Enum
from inspect import iscoroutine
from typing import TYPE_CHECKING, Any, Final, Protocol

from mypy_extensions import mypyc_attr
from twisted.internet.defer import CancelledError, Deferred
from twisted.logger import Logger, LogLevel
from twisted.python.failure import Failure

from protogate.errors import CLIENT, GATEWAY, Abort, Phase
from protogate.message import Response

if TYPE_CHECKING:
    from protogate.exchange.exchange import Exchange
    from protogate.wheel import Timer

_log = Logger()


class _Waiting(Enum):
    PENDING = 0


_PENDING: Final = _Waiting.PENDING
_NONE_WAITS: Final = -1


@mypyc_attr(native_class=False)
class IBound(Protocol):
    """
    A module as a pipeline wants it; L{protogate.governance.binding.Bound} is one.

    @ivar name: for messages.
    @ivar stage: for messages.
    @ivar process: L{protogate.interfaces.IModule.process}; typed loosely, for what it returns is checked.
    @ivar applies: C{applies(exchange)}: is the module for this exchange?  None = it always is.  What it raises counts
        as raised by the module.
    @ivar timeout: seconds it may take; 0 = off.
    @ivar opens: after a timeout the chain goes on; False = it ends with an error.
    @ivar proceeds: after a failure the chain goes on; False = it ends with an error.
    @ivar outlives: it runs whether or not the client is still there, so a CancelledError is its own.
    @ivar count: C{count(event)}: C{answered}, C{refused} (it blamed the client), C{failed}, C{timed_out}.
    """

    name: str
    stage: str
    process: Callable[[Exchange], Any]
    applies: Callable[[Exchange], bool] | None
    timeout: float
    opens: bool
    proceeds: bool
    outlives: bool
    count: Callable[[str], None]


def run(bound: Sequence[IBound], exchange: Exchange) -> Response | Deferred[Response | None] | None:
    """
    Run the modules of one stage until one answers.

    @return: the first Response, or None when no module gave one; a Deferred of the same only when a module really
        waits.  Cancel it to abandon the stage.
    @raise Abort: (or the Deferred fails with it) a module failed or took too long, and its binding says C{return}.  An
        Abort that a module raised comes as it is; any other exception is the C{__cause__} of a 500 that names the
        module.
    @raise CancelledError: the client left.
    """
    for module in bound:  # as _next, but for what only a chain needs: each exchange comes through here
        try:
            applies = module.applies
            if applies is not None and not applies(exchange):
                continue
            process = module.process
            result = process(exchange)
        except Exception as error:
            _failed(module, exchange, error)
            continue
        if result is not None:
            if isinstance(result, Response):
                module.count("answered")
                return result
            return _Chain(bound, exchange).begin(bound.index(module), result)
    return None


def _next(bound: Sequence[IBound], exchange: Exchange, index: int, chain: _Chain) -> tuple[int, object]:
    """The next module, from index on, that returns something else than None, and what it returned."""
    for at in range(index, len(bound)):
        if chain.over:
            break  # a module made the client leave: nobody waits for the rest
        module = bound[at]
        try:
            applies = module.applies
            if applies is not None and not applies(exchange):
                continue
            result = module.process(exchange)
        except Exception as error:
            _failed(module, exchange, error)
            continue
        if result is not None:
            return at, result
    return len(bound), None


class _Chain:
    """
    The rest of a stage, once a module returned something that may have to be waited for.

    @ivar over: nothing more must run: it was cancelled, or the result is known.
    """

    __slots__ = ("_at", "_bound", "_deferred", "_exchange", "_inside", "_outer", "_result", "_timer", "over")

    def __init__(self, bound: Sequence[IBound], exchange: Exchange) -> None:
        self._bound, self._exchange = bound, exchange
        self.over = False
        self._at = _NONE_WAITS  # index of the module that is waited for: what any other says is too late
        self._deferred: Deferred[Any] | None = None  # of that module
        self._inside = False  # in addBoth: what fires now has fired already
        self._result: object = _PENDING  # what fired in there
        self._timer: Timer | None = None
        self._outer: Deferred[Response | None] | None = None

    def begin(self, index: int, result: object) -> Response | Deferred[Response | None] | None:
        """Module C{index} returned C{result}: neither None nor a Response."""
        outcome = self._go(index, result)
        if isinstance(outcome, _Waiting):
            self._outer = Deferred(self._cancel)
            return self._outer
        self._end()
        return outcome

    def _go(self, index: int, result: object) -> Response | _Waiting | None:
        """Go on from what a module returned, to the outcome of the stage or to a module that really waits."""
        bound, exchange = self._bound, self._exchange
        over = self.over
        while not over:
            if result is None:
                return None
            module = bound[index]
            if isinstance(result, Response):
                module.count("answered")
                return result
            try:
                deferred = _deferred(module, result)
                self._listen(index, deferred)
                result = self._result
                if result is _PENDING:
                    self._wait(module, deferred)
                    return _PENDING
                self._result, self._at = _PENDING, _NONE_WAITS
                result = _settled(module, result)
            except Exception as error:
                result = None  # a Failure has frames, this one among them
                _failed(module, exchange, error)
            if result is None:
                index, result = _next(bound, exchange, index + 1, self)
            over = self.over
        _discard(result)
        return _PENDING

    def _listen(self, index: int, deferred: Deferred[Any]) -> None:
        """Hear what module C{index} gives: at once in C{_result}, when it has fired already."""
        self._at, self._result, self._inside = index, _PENDING, True
        try:
            deferred.addBoth(self._fired, index)
        finally:
            self._inside = False

    def _wait(self, module: IBound, deferred: Deferred[Any]) -> None:
        self._deferred = deferred
        if module.timeout:
            if self._timer is None:
                self._timer = self._exchange.wheel.timer(self._late)
            self._timer.set(module.timeout)

    def _fired(self, result: object, index: int) -> None:
        if index != self._at:
            _drop(result)
        elif self._inside:
            self._result = result
        else:
            self._at, self._deferred = _NONE_WAITS, None
            if self._timer is not None:
                self._timer.clear()
            self._resume(index, result)

    def _late(self) -> None:
        """The module that is waited for took too long."""
        index, deferred = self._at, self._deferred
        self._at, self._deferred = _NONE_WAITS, None
        assert deferred is not None
        _cancel(deferred)
        module = self._bound[index]
        module.count("timed_out")
        _log.warn(
            "module {module} ({stage}) took more than {seconds:g} s in exchange {exchange}: {handle}",
            module=module.name,
            stage=module.stage,
            seconds=module.timeout,
            exchange=self._exchange.id,
            handle="continue" if module.opens else "return",
        )
        self._resume(index, None if module.opens else Failure(_timeout(module)), judge=False)

    def _resume(self, index: int, result: object, judge: bool = True) -> None:
        """
        Module C{index}, which was waited for, gave C{result}.

        @param judge: whether a failure is the module's, for exceptionHandle to decide on.
        """
        if self.over:
            _drop(result)
            return
        try:
            if judge:
                try:
                    result = _settled(self._bound[index], result)
                except Exception as error:
                    result = None
                    _failed(self._bound[index], self._exchange, error)
            elif isinstance(result, Failure):
                result.raiseException()
            if result is None:
                index, result = _next(self._bound, self._exchange, index + 1, self)
            outcome = self._go(index, result)
        except BaseException:
            # BaseException: nothing may be lost in the Deferred of a module, the caller is told.
            self._finish(Failure())
        else:
            if not isinstance(outcome, _Waiting):
                self._finish(outcome)

    def _finish(self, outcome: Response | Failure | None) -> None:
        outer = self._outer
        if self.over:
            _drop(outcome)
            return
        self._end()
        assert outer is not None
        if isinstance(outcome, Failure):
            outer.errback(outcome)
        else:
            outer.callback(outcome)

    def _cancel(self, outer: Deferred[Response | None]) -> None:
        """The caller abandons the stage.  Its Deferred then fails with CancelledError by itself."""
        deferred = self._deferred
        self._end()
        if deferred is not None:
            _cancel(deferred)

    def _end(self) -> None:
        self.over = True
        self._at, self._deferred, self._outer = _NONE_WAITS, None, None
        timer, self._timer = self._timer, None
        if timer is not None:
            timer.close()


def _deferred(module: IBound, result: object) -> Deferred[Any]:
    """What a module returned, as a Deferred."""
    if isinstance(result, Deferred):
        return result
    if iscoroutine(result):
        return Deferred.fromCoroutine(result)
    if isinstance(result, Awaitable):
        return Deferred.fromCoroutine(_awaited(result))
    raise _unfit(module, result)


async def _awaited(awaitable: Awaitable[Any]) -> Any:
    return await awaitable


def _settled(module: IBound, result: object) -> Response | None:
    """What the Deferred of a module fired with, if it is allowed."""
    if isinstance(result, Failure):
        result.raiseException()
    if result is None or isinstance(result, Response):
        return result
    raise _unfit(module, result)


def _unfit(module: IBound, result: object) -> Abort:
    kind = type(result)
    name = kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
    return _abort(f"module {module.name} ({module.stage}) gave a {name}: expected None, a Response or an awaitable")


def _abort(reason: str) -> Abort:
    return Abort(reason, GATEWAY, 500, error="proxy_internal_error", phase=Phase.MODULE)


def _timeout(module: IBound) -> Abort:
    return _abort(f"module {module.name} ({module.stage}) took more than {module.timeout:g} s")


def _failed(module: IBound, exchange: Exchange, error: Exception) -> None:
    """
    A module failed: return to go on behind it.

    An exception that is no Abort is a bug somewhere: its traceback is logged, whatever becomes of the chain.

    @raise Exception: what the caller is told.
    """
    if isinstance(error, CancelledError) and exchange.request.gone is not None and not module.outlives:
        raise error
    if isinstance(error, Abort) and error.who is CLIENT:
        module.count("refused")
        raise error
    module.count("failed")
    told = {"module": module.name, "stage": module.stage, "exchange": exchange.id}
    if not isinstance(error, Abort):
        _log.failure(
            "module {module} ({stage}) failed in exchange {exchange}: {handle}",
            failure=Failure(error, type(error), error.__traceback__),
            level=LogLevel.error,
            handle="continue" if module.proceeds else "return",
            **told,
        )
    elif module.proceeds:
        _log.warn("module {module} ({stage}) failed in exchange {exchange}: continue: {reason}", reason=error, **told)
    if module.proceeds:
        return
    if isinstance(error, Abort):
        raise error
    raise _abort(f"module {module.name} ({module.stage}): {type(error).__name__}: {error}") from error


def _cancel(deferred: Deferred[Any]) -> None:
    try:
        deferred.cancel()
    except Exception:
        _log.failure("a module failed while it was cancelled", level=LogLevel.error)


def _drop(result: object) -> None:
    """An answer that nobody waits for any more: its body must not keep a connection busy."""
    if isinstance(result, Response) and result.body is not None:
        result.body.stopProducing()


def _discard(result: object) -> None:
    """Something a module returned when the stage was already over."""
    if isinstance(result, Deferred):
        result.addBoth(_drop)
        _cancel(result)
    elif iscoroutine(result):
        result.close()
    else:
        _drop(result)
