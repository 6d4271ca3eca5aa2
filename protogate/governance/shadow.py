"""
A module in the shadow of the others (C{shadow: true}): it is asked, what it says is counted and noted, nothing is done.

Rules
- Whatever it changes of the exchange is put back; what it answers is dropped; what it refuses is let in.
- It cannot break anything: what it raises is counted, and the chain goes on.
- It works like any other otherwise: it is asked for the same exchanges, its own state (tokens of a limit, say) is its
  own, and who waits for it waits no longer than its timeout.
- What it would have done stands in the record, under C{shadow}.
"""

from __future__ import annotations

from collections.abc import Callable
from inspect import isawaitable
from typing import TYPE_CHECKING, Any

from twisted.internet.defer import CancelledError, Deferred

from protogate.errors import CLIENT, Abort
from protogate.message import Request, Response

if TYPE_CHECKING:
    from protogate.exchange.exchange import Exchange

NOTE = "shadow"
"""Under which a record has what modules in the shadow would have done: a list of texts, C{module: what}."""

_REQUEST = ("method", "authority", "scheme", "target", "_path", "body", "upgrade", "deadline", "service")
_RESPONSE = ("status", "body")


class Shadow:
    """
    Stands in for the C{process} of a module.

    @ivar count: told C{shadow_passed}, C{shadow_changed}, C{shadow_answered}, C{shadow_refused} or C{shadow_failed}.
    """

    __slots__ = ("_name", "_process", "count")

    def __init__(self, name: str, process: Callable[[Exchange], Any], count: Callable[[str], None]) -> None:
        self._name, self._process, self.count = name, process, count

    def process(self, exchange: Exchange) -> Deferred[None] | None:
        """See L{protogate.interfaces.IModule.process}; never answers, never raises."""
        before = _Kept(exchange)
        try:
            result = self._process(exchange)
        except Exception as error:
            self._judge(exchange, before, error)
            return None
        if isawaitable(result):
            return Deferred.fromCoroutine(self._await(exchange, before, result))
        self._judge(exchange, before, result)
        return None

    async def _await(self, exchange: Exchange, before: _Kept, result: Any) -> None:
        outcome: Any
        try:
            outcome = await result
        except CancelledError:
            before.restore()
            raise
        except Exception as error:
            outcome = error
        self._judge(exchange, before, outcome)

    def _judge(self, exchange: Exchange, before: _Kept, outcome: Any) -> None:
        """Put all back, and note what it would have come to."""
        changed = before.restore()
        if isinstance(outcome, Response):
            if outcome.body is not None and outcome.body is not before.body:
                outcome.body.stopProducing()
            verdict, told = "answered", f"answer {outcome.status}"
        elif isinstance(outcome, Abort) and outcome.who is CLIENT:
            verdict, told = "refused", f"refuse with {outcome.status}: {outcome.reason}"
        elif isinstance(outcome, Exception):
            verdict, told = "failed", f"fail: {type(outcome).__name__}: {outcome}"
        elif changed:
            verdict, told = "changed", f"change {', '.join(changed)}"
        else:
            self.count("shadow_passed")
            return
        self.count(f"shadow_{verdict}")
        exchange.notes.setdefault(NOTE, []).append(f"{self._name}: {told}")


class _Kept:
    """
    What a module may change of an exchange, as it was before.

    @ivar body: of the response; None where there is none.
    """

    __slots__ = ("_exchange", "_identity", "_messages", "_promised", "body")

    def __init__(self, exchange: Exchange) -> None:
        self._exchange, self._identity = exchange, exchange.identity
        self._promised = exchange.promised()
        response = exchange.response
        self.body = None if response is None else response.body
        self._messages: list[tuple[Request | Response, tuple[str, ...], list[Any], Any, Any]] = []
        for message, names in ((exchange.request, _REQUEST), (response, _RESPONSE)):
            if message is not None:
                values = [getattr(message, name) for name in names]
                self._messages.append((message, names, values, message.headers, list(message.headers)))

    def restore(self) -> list[str]:
        """
        Put it back.

        @return: what had been changed, in words.
        """
        changed: list[str] = []
        if self._exchange.identity is not self._identity:
            changed.append("the identity")
            self._exchange.identity = self._identity
        if self._exchange.promised() != self._promised:
            changed.append("the answer")
            self._exchange.promise(self._promised)
        for message, names, values, headers, lines in self._messages:
            what = "the request's" if isinstance(message, Request) else "the response's"
            for name, value in zip(names, values, strict=True):
                now = getattr(message, name)
                if now is value or now == value:
                    continue
                changed.append(f"{what} {name.removeprefix('_')}")
                # A body that somebody reads already cannot be given back.
                if name != "body" or value is None or not value.attached:
                    setattr(message, name, value)
            if message.headers is not headers or headers != lines:
                changed.append(f"{what} headers")
                headers[:] = lines
                message.headers = headers
            if isinstance(message, Request) and changed:
                message.forget()
        return changed
