"""
The answer of an upstream, before it is there: a Deferred that costs little where all goes well.

Rules
- It keeps its callbacks itself, and goes through them itself for as long as each of them gives a Response.  Whatever
  else happens (a failure, another Deferred, a second call) is left to Twisted.
- It behaves as any Deferred, but that one to which another was chained (C{return promise} in a callback) takes no
  callbacks of its own any more.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from mypy_extensions import mypyc_attr
from twisted.internet.defer import AlreadyCalledError, Deferred
from twisted.python.failure import Failure

from protogate.message import Response

_NONE: Final[dict[str, Any]] = {}


def _same(result: Any) -> Any:
    """What an errback leaves to a result that is none of its business, and a callback to a failure."""
    return result


def _instead(_: None, other: Deferred[Any]) -> Deferred[Any]:
    """What a Deferred that is chained to another one begins with."""
    return other


@mypyc_attr(native_class=False)
class Promise(Deferred[Response]):
    """See above."""

    def __init__(self, canceller: Callable[[Deferred[Any]], None]) -> None:
        super().__init__(canceller)
        self._steps: list[tuple[Any, ...]] | None = []  # as addCallbacks() is told them; None = Twisted has them
        self._runs = False

    def addCallbacks(
        self,
        callback: Callable[..., Any],
        errback: Callable[..., Any] | None = None,
        callbackArgs: tuple[Any, ...] = (),
        callbackKeywords: Mapping[str, Any] = _NONE,
        errbackArgs: tuple[Any, ...] = (),
        errbackKeywords: Mapping[str, Any] = _NONE,
    ) -> Deferred[Any]:
        steps = self._steps
        step = (callback, errback, callbackArgs, callbackKeywords, errbackArgs, errbackKeywords)
        if steps is None:
            super().addCallbacks(*step)
        else:
            steps.append(step)
        return self

    def addCallback(self, callback: Callable[..., Any], *args: Any, **named: Any) -> Deferred[Any]:
        return self.addCallbacks(callback, None, args, named)

    def addErrback(self, errback: Callable[..., Any], *args: Any, **named: Any) -> Deferred[Any]:
        return self.addCallbacks(_same, errback, (), _NONE, args, named)

    def addBoth(self, callback: Callable[..., Any], *args: Any, **named: Any) -> Deferred[Any]:
        return self.addCallbacks(callback, callback, args, named, args, named)

    def callback(self, result: Any) -> None:
        steps = self._steps
        if self._runs or steps is None:
            raise AlreadyCalledError
        self._runs = True
        while steps and type(result) is Response:
            function, _, args, named, _, _ = steps.pop(0)
            if function is not _same:
                self.called, self.result = True, result  # a coroutine that waits for it looks there
                try:
                    result = function(result, *args, **named) if args or named else function(result)
                except BaseException:
                    result = Failure()
        self._steps, self.called = None, False
        if isinstance(result, Deferred):
            super().addCallbacks(_instead, None, (result,))
            result = None
        for step in steps:
            super().addCallbacks(*step)
        super().callback(result)

    def errback(self, fail: Failure | BaseException | None = None) -> None:
        steps, self._steps = self._steps, None
        if self._runs or steps is None:
            raise AlreadyCalledError
        for step in steps:
            super().addCallbacks(*step)
        super().errback(fail)

    def cancel(self) -> None:
        if self.called or not self._runs:  # else it has fired, and waits for nothing
            super().cancel()
