"""
The answer of an upstream, before it is there: a Deferred that costs little where all goes well.

Rules
- It keeps its callbacks itself, and goes through them itself for as long as each of them gives a Response.  Whatever
  else happens (a failure, another Deferred, a second call) is left to Twisted.
- It behaves as any Deferred, but that one to which another was chained (C{return promise} in a callback) takes no
  callbacks of its own any more, and that none of its own callbacks can pause it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from mypy_extensions import mypyc_attr
from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from protogate.message import Response

if TYPE_CHECKING:
    from typing_extensions import TypeIs

_NONE: Final[dict[str, Any]] = {}
KINDS: Final = 64
"""Types that are remembered to be no Deferred's: those of all that the gateway's own parts give."""
_others: Final[set[type]] = set()


def _same(result: Any) -> Any:
    """What a step without a callback does with a result."""
    return result


def _instead(_: None, other: Deferred[Any]) -> Deferred[Any]:
    """What a Deferred that is chained to another one begins with."""
    return other


@mypyc_attr(native_class=False)
class Promise(Deferred[Response]):
    """See above."""

    def __init__(self, canceller: Callable[[Deferred[Any]], None]) -> None:
        Deferred.__init__(self, canceller)  # super() would be one more object
        self._steps: list[tuple[Any, ...]] | None = []  # see _add(); None = Twisted has them

    def addCallbacks(
        self,
        callback: Callable[..., Any],
        errback: Callable[..., Any] | None = None,
        callbackArgs: tuple[Any, ...] = (),
        callbackKeywords: Mapping[str, Any] = _NONE,
        errbackArgs: tuple[Any, ...] = (),
        errbackKeywords: Mapping[str, Any] = _NONE,
    ) -> Deferred[Any]:
        return _add(self, (callback, errback, callbackArgs, callbackKeywords, errbackArgs, errbackKeywords))

    def addCallback(self, callback: Callable[..., Any], *args: Any, **named: Any) -> Deferred[Any]:
        return _add(self, (callback, None, args, named, (), _NONE))

    def addErrback(self, errback: Callable[..., Any], *args: Any, **named: Any) -> Deferred[Any]:
        return _add(self, (None, errback, (), _NONE, args, named))

    def addBoth(self, callback: Callable[..., Any], *args: Any, **named: Any) -> Deferred[Any]:
        return _add(self, (callback, callback, args, named, args, named))

    def callback(self, result: Any) -> None:
        steps = self._steps
        if steps is not None and not self.called:
            self.called = True
            while steps and type(result) is Response:
                function, _, args, named, _, _ = steps.pop(0)
                if function is not None:
                    self.result = result  # a coroutine that waits for it looks there
                    try:
                        result = function(result, *args, **named) if args or named else function(result)
                    except BaseException:
                        result = Failure()
            if not steps and (result is None or type(result) is Response) and not getattr(self, "_callbacks", True):
                self._steps, self.result = None, result
                return  # there is nothing that Twisted could do: no Deferred is chained to this one
            self.called = False
            if waits(result):
                steps.insert(0, (_instead, None, (result,), _NONE, (), _NONE))
                result = None
            self._leave()
        Deferred.callback(self, result)

    def errback(self, fail: Failure | BaseException | None = None) -> None:
        if not self.called:
            self._leave()
        Deferred.errback(self, fail)

    def pause(self) -> None:
        if not self.called:
            self._leave()
        Deferred.pause(self)

    def _leave(self) -> None:
        """
        Leave all that is still to be called to Twisted; before it goes on with a Deferred that is chained to this one,
        which it may have been told of already.
        """
        steps, self._steps = self._steps, None
        if not steps:
            return
        told = self._callbacks
        chained = told[:]
        told.clear()
        for callback, *rest in steps:
            Deferred.addCallbacks(self, callback or _same, *rest)
        told += chained


def _add(promise: Promise, step: tuple[Any, ...]) -> Promise:
    """
    One more step.

    @param step: as L{Deferred.addCallbacks} is told it, but that None may stand for a callback.
    """
    steps = promise._steps
    if steps is None:
        Deferred.addCallbacks(promise, step[0] or _same, *step[1:])
    else:
        steps.append(step)
    return promise


def waits(result: object) -> TypeIs[Deferred[Any]]:
    """Whether that is a Deferred.  C{isinstance()} says the same, at many times the cost: its class is an ABC."""
    kind = type(result)
    if kind is Promise:
        return True
    if kind in _others:
        return False
    if isinstance(result, Deferred):
        return True
    if len(_others) < KINDS:
        _others.add(kind)
    return False
