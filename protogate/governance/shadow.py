"""
A module in the shadow of the others (C{shadow: true}): it is asked, what it says is counted and noted, nothing is done.

Rules
- Whatever it changes of the exchange is put back; what it answers is dropped; what it refuses is let in.
- It cannot break anything: what it raises is counted, and the chain goes on.
- It works like any other otherwise: it is asked for the same exchanges, its own state (tokens of a limit, say) is its
  own, and who waits for it waits no longer than its timeout.
- What it would have done stands in the record, under C{shadow}; so does what it notes itself.
- What it would do only when the upstream is asked, or has answered, is not known: it is told that there is something.
- One whose C{process} does what cannot be taken back, such as to keep somebody waiting, has C{rehearse} for that.
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

    @ivar count: told C{shadow_passed}, C{shadow_changed}, C{shadow_later}, C{shadow_answered}, C{shadow_refused} or
        C{shadow_failed}.
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
        changed, later, noted = before.restore()
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
        elif later:
            verdict, told = "later", "decide later, which nobody does"
        else:
            verdict, told = "passed", "pass" if noted else ""
        self.count(f"shadow_{verdict}")
        if told:
            exchange.notes.setdefault(NOTE, []).append("; ".join([f"{self._name}: {told}", *noted]))


class _Kept:
    """
    What a module may change of an exchange, as it was before.

    @ivar body: of the response; None where there is none.
    """

    __slots__ = ("_exchange", "_identity", "_messages", "_notes", "_promised", "body")

    def __init__(self, exchange: Exchange) -> None:
        self._exchange, self._identity = exchange, exchange.identity
        self._promised, self._notes = exchange.promised(), dict(exchange.noted or {})
        response = exchange.response
        self.body = None if response is None else response.body
        self._messages: list[tuple[Request | Response, tuple[str, ...], list[Any], Any, Any]] = []
        for message, names in ((exchange.request, _REQUEST), (response, _RESPONSE)):
            if message is not None:
                values = [getattr(message, name) for name in names]
                self._messages.append((message, names, values, message.headers, list(message.headers)))

    def restore(self) -> tuple[list[str], bool, list[str]]:
        """
        Put it back.

        @return: what had been changed, in words; whether something was to be done later; and what was noted.
        """
        changed: list[str] = []
        later = False
        notes, known = self._exchange.noted or {}, self._notes
        noted = [f"{name}: {value}" for name, value in notes.items() if name != NOTE and known.get(name) != value]
        if noted:
            said = notes.get(NOTE)
            notes.clear()
            notes.update(known)
            if said is not None:
                notes[NOTE] = said
        if self._exchange.identity is not self._identity:
            changed.append("the identity")
            self._exchange.identity = self._identity
        promised = self._exchange.promised()
        if promised != self._promised:
            if promised[0] != self._promised[0]:
                changed.append("the answer's headers")
            later = promised[1:] != self._promised[1:]
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
        return changed, later, noted
