"""
The workers of a supervisor: who serves, who comes, who leaves.

Rules
- Each slot has one worker, and the sockets that go with the slot.  One that ends without being asked to is replaced at
  once; if that happens again and again, after a while (L{protogate.process.backoff}).  One that was told to go by
  somebody else is replaced while it ends what it has begun.
- All agree on one configuration.  It is prepared by all who serve, and then taken by all, or by none.  Who comes while
  that goes on prepares the one in force when it is done, and serves nothing before.
- New workers beside old ones (L{Crew.renew}): the old are told to go when all the new ones serve, and not otherwise.
- Who says nothing for C{Order.hang} seconds is killed; but not when it was this process that did not get to run.
- Whoever may have changed who can lead (L{protogate.process.keeper}) says so: C{lead}.

Must not know: how a process is started, what a socket is.
"""

from __future__ import annotations

import signal
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

from twisted.internet.defer import Deferred, DeferredList, succeed
from twisted.logger import Logger
from twisted.python.failure import Failure

from protogate.process.backoff import Backoff
from protogate.process.channel import Lost, Refused
from protogate.process.child import Child, Order

BEAT: Final = 2.0
"""Seconds between two questions to each worker: how it is, and what it counted."""
START: Final = 120.0
"""Seconds that a worker may take until it serves."""
SILENT: Final = 2 * BEAT
"""Seconds without a sign of life after which one is not to lead the others."""
GRACE: Final = 5.0
"""Seconds beyond C{Order.drain} that a worker has for its end."""

_log = Logger()

Given = Callable[[int], Mapping[str, Sequence[int]]]
"""The sockets for a slot, by listener."""


class Crew:
    """
    @param clock: whose C{callLater} is used.
    @param now: seconds on a clock that only goes forward.
    @param hire: starts a worker for a slot; it calls L{ended} once, when that is gone.
    @param count: told of each C{worker_restarted}.
    @param lead: told who serves, stays and answers, in the order of the slots, each time that may have changed.
    @ivar order: the configuration in force; None before the first.
    @ivar slots: who serves, or is to serve, in each slot.
    @ivar others: who leaves, and who is not in a slot yet.
    """

    def __init__(
        self,
        clock: Any,
        hire: Callable[[int, Order], Child],
        count: Callable[[str], None] = lambda event: None,
        now: Callable[[], float] = time.monotonic,
        lead: Callable[[Sequence[Child]], None] = lambda able: None,
    ) -> None:
        self._clock, self._hire, self._count, self._now, self._lead = clock, hire, count, now, lead
        self.order: Order | None = None
        self._given: Given = lambda slot: {}
        self.slots: dict[int, Child] = {}
        self.others: set[Child] = set()
        self._took: dict[Child, Order] = {}
        self._backoff: defaultdict[int, Backoff] = defaultdict(Backoff)
        self._later: dict[int, Any] = {}  # when a slot is filled again
        self._ready: list[Deferred[None]] = []
        self._left: list[Deferred[None]] = []
        self._stopping = False
        self._beats: Any = None
        self._beaten = 0.0

    @property
    def serving(self) -> list[Child]:
        """Who serves, in the order of the slots."""
        return [child for _, child in sorted(self.slots.items()) if child.serving]

    @property
    def all(self) -> list[Child]:
        """Everybody who is not gone."""
        return [*self.slots.values(), *self.others]

    def led(self) -> None:
        """Say who can lead."""
        if self._stopping:
            return
        now = self._now()
        able = [child for child in self.serving if not child.leaving]
        self._lead([child for child in able if child.silent is None or now - child.silent < SILENT])

    # -- begin

    def start(self, order: Order, given: Given, found: Iterable[Child] = ()) -> None:
        """
        Fill the slots.

        @param found: who is there already, and serves or leaves.
        """
        self.order, self._given = order, given
        for child in found:
            if child.gone:  # it ended while nobody looked
                continue
            self._took[child] = order
            if child.leaving:
                self._dismiss(child)
            else:
                self.slots[child.slot] = child
        for slot in range(order.workers):
            if slot not in self.slots:
                self._fill(slot)
        self.led()
        self._beaten = self._now()
        self._beats = self._clock.callLater(BEAT, self._beat)

    def ready(self) -> Deferred[None]:
        """Fires when all slots serve."""
        waiting: Deferred[None] = Deferred()
        self._ready.append(waiting)
        self._look()
        return waiting

    def _look(self) -> None:
        if self.order is not None and len(self.serving) == self.order.workers:
            waiting, self._ready = self._ready, []
            for each in waiting:
                each.callback(None)

    def _fill(self, slot: int) -> None:
        self._later.pop(slot, None)
        order = self.order
        if self._stopping or order is None or slot >= order.workers or slot in self.slots:
            return
        try:
            child = self.slots[slot] = self._begin(slot, order)
        except OSError as error:
            _log.error("worker {slot} cannot be started: {why}", slot=slot, why=error)
            self._later[slot] = self._clock.callLater(self._backoff[slot].ended(0.0) or BEAT, self._fill, slot)
            return
        Deferred.fromCoroutine(self._settle(child)).addErrback(self._unsettled, child)

    def _begin(self, slot: int, order: Order) -> Child:
        child = self._hire(slot, order)
        limit = self._clock.callLater(START, self._slow, child)
        child.limit = limit
        return child

    def _slow(self, child: Child) -> None:
        _log.error("{worker} does not serve after {seconds:g} s, it is killed", worker=child, seconds=START)
        child.kill(signal.SIGABRT)

    async def _settle(self, child: Child) -> None:
        """Have it serve under the configuration in force, whichever that is by then."""
        while True:
            order = self.order
            assert order is not None
            await child.prepare(order, self._given(child.slot))
            if order is self.order:
                break
        await child.commit()
        self._serves(child, order)

    def _serves(self, child: Child, order: Order) -> None:
        self._took[child] = order
        if not child.serving and not child.gone:
            child.serving = True
            if child.limit.active():
                child.limit.cancel()
            _log.info("{worker} serves", worker=child)
        self.led()
        self._look()

    def _unsettled(self, failure: Failure, child: Child) -> None:
        if failure.check(Refused):
            _log.error("{worker} cannot serve: {why}", worker=child, why=failure.getErrorMessage())
        elif not failure.check(Lost):  # its end is told when it is gone
            _log.failure("{worker} cannot serve", failure, worker=child)
        if child.serving and self.slots.get(child.slot) is child:
            del self.slots[child.slot]
            self._count("worker_restarted")
            self._dismiss(child)
            self._fill(child.slot)
        else:
            child.kill(signal.SIGTERM)

    # -- another configuration

    async def reload(self, order: Order, given: Given) -> None:
        """
        Have all take a configuration.

        @raise Refused: one of them cannot; it is in force nowhere.
        """
        asked = [child for child in self.serving if child.slot < order.workers]
        answers: Any = await DeferredList(
            [child.prepare(order, given(child.slot)) for child in asked], consumeErrors=True
        )
        able = [child for child, (done, _) in zip(asked, answers, strict=True) if done]
        refusals = [
            f"{child}: {answer.getErrorMessage()}"
            for child, (done, answer) in zip(asked, answers, strict=True)
            if not done and answer.check(Refused)
        ]
        if refusals or self._stopping:
            for child in able:
                child.forget()
            raise Refused(refusals[0] if refusals else "the gateway stops")
        self.order, self._given = order, given
        await self._commit(able, order)
        for child in self.serving:
            if child.slot < order.workers and self._took[child] is not order:  # it began to serve in the meantime
                Deferred.fromCoroutine(self._settle(child)).addErrback(self._unsettled, child)
        for slot, child in list(self.slots.items()):
            if slot >= order.workers:
                del self.slots[slot]
                self._dismiss(child)
        for slot in range(order.workers):
            if slot not in self._later:
                self._fill(slot)

    async def _commit(self, children: Sequence[Child], order: Order) -> None:
        answers: Any = await DeferredList([child.commit() for child in children], consumeErrors=True)
        for child, (done, answer) in zip(children, answers, strict=True):
            if done:
                self._serves(child, order)
            else:
                self._unsettled(answer, child)

    # -- others in their place

    async def renew(self, order: Order, given: Given) -> None:
        """
        Have new workers serve, under a configuration that may be another one, in the place of all there are.

        @raise Refused: one of the new ones cannot; those there are go on as they were.
        """
        fresh: list[Child] = []
        try:
            for slot in range(order.workers):
                fresh.append(self._begin(slot, order))
        except OSError as error:
            self._withdraw(fresh)
            raise Refused(f"no worker can be started: {error}") from None
        self.others.update(fresh)
        answers: Any = await DeferredList(
            [child.prepare(order, given(child.slot)) for child in fresh], consumeErrors=True
        )
        failures = [
            f"{child}: {'it ended' if done else answer.getErrorMessage() or 'it ended'}"
            for child, (done, answer) in zip(fresh, answers, strict=True)
            if child.gone or not done
        ]
        if failures or self._stopping:
            self._withdraw(fresh)
            raise Refused("the gateway stops" if self._stopping else failures[0])
        before, self.order, self._given = self.slots, order, given
        for child in before.values():
            child.leaving = True
        self.slots = {child.slot: child for child in fresh}
        self.others.difference_update(fresh)
        self.others.update(before.values())
        await self._commit(fresh, order)
        for child in before.values():
            self.others.discard(child)
            self._dismiss(child)

    def _withdraw(self, children: Iterable[Child]) -> None:
        """These are not wanted after all."""
        for child in children:
            if not child.gone:  # else nobody would ever say so again
                self.others.add(child)
                child.leaving = True
                child.kill(signal.SIGTERM)

    def _dismiss(self, child: Child) -> Deferred[Any]:
        """Have one leave, as soon as its requests have ended; fires when it accepts nothing any more."""
        if child.gone:
            return succeed(None)
        self.others.add(child)
        child.leaving = True
        if not child.serving:
            child.kill(signal.SIGTERM)
            return succeed(None)
        self.led()
        _log.info("{worker} is to leave", worker=child)
        order = self._took.get(child) or self.order
        if not child.limit or not child.limit.active():
            child.limit = self._clock.callLater((order.drain if order else 0.0) + GRACE, child.kill)
        return child.drain()

    # -- ends

    def leaves(self, child: Child) -> None:
        """One was told to go by somebody else: another one comes at once, for its sockets are open all the time."""
        if self.slots.get(child.slot) is child and child.serving and not self._stopping:
            del self.slots[child.slot]
            self._dismiss(child)
            self._fill(child.slot)

    def ended(self, child: Child, why: str) -> None:
        """One is gone."""
        self._took.pop(child, None)
        if child.limit and child.limit.active():
            child.limit.cancel()
        mine = self.slots.get(child.slot) is child
        if mine:
            del self.slots[child.slot]
        self.others.discard(child)
        self.led()
        if child.leaving or self._stopping:
            _log.info("{worker} has left: {why}", worker=child, why=why)
        elif not mine:
            _log.error("{worker} has ended before it served: {why}", worker=child, why=why)
        else:
            self._replace(child, why)
        if self._stopping and not self.all:
            self._gone()

    def _replace(self, child: Child, why: str) -> None:
        delay = self._backoff[child.slot].ended(self._now() - child.born)
        self._count("worker_restarted")
        _log.error(
            "{worker} has ended unasked: {why}\nIt is replaced {when}.",
            worker=child,
            why=why,
            when=f"in {delay:g} s" if delay else "at once",
        )
        self._later[child.slot] = self._clock.callLater(delay, self._fill, child.slot)

    def stop(self) -> Deferred[None]:
        """
        Have all leave.

        @return: fires when nobody is left.
        """
        self._halt()
        self._withdraw([child for child in self.others if not child.leaving])
        for child in list(self.slots.values()):
            self._dismiss(child)
        self.slots.clear()
        ended: Deferred[None] = Deferred()
        self._left.append(ended)
        if not self.all:
            self._gone()
        return ended

    def _halt(self) -> None:
        """Nobody is started or asked any more."""
        self._stopping = True
        for call in (*self._later.values(), *([self._beats] if self._beats else ())):
            if call.active():
                call.cancel()
        self._later.clear()

    def _gone(self) -> None:
        waiting, self._left = self._left, []
        for each in waiting:
            each.callback(None)

    def hurry(self) -> None:
        """Wait for nothing that is still under way."""
        for child in self.all:
            child.hurry()

    def release(self) -> list[Child]:
        """Look after nobody any more; gives everybody there is.  Who does not serve yet has to leave."""
        self._halt()
        for child in self.all:
            if child.limit and child.limit.active():
                child.limit.cancel()
            if not child.serving:
                child.leaving = True
        return self.all

    # -- signs of life

    def counted(self) -> Deferred[Any]:
        """Ask all who serve, or did, what they counted; fires when they have told, or are gone."""
        return DeferredList([self._ask(child) for child in self.all if child.serving])

    def _ask(self, child: Child) -> Deferred[Any]:
        if child.silent is None:
            child.silent = self._now()
        return child.count()

    def _beat(self) -> None:
        now = self._now()
        late, self._beaten = now - self._beaten > 3 * BEAT, now
        hang = self.order.hang if self.order else 0.0
        for child in self.all:
            if not child.serving:
                continue
            if late:
                child.silent = None  # nobody listened
            if hang and child.silent is not None and now - child.silent >= hang:
                _log.error("{worker} has said nothing for {seconds:g} s, it is killed", worker=child, seconds=hang)
                child.kill(signal.SIGABRT)
            elif child.silent is None:
                self._ask(child)
        self.led()
        self._beats = self._clock.callLater(BEAT, self._beat)
