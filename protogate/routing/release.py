"""
Which of the targets of an entry gets a request where some are for a part of them only: by what the request says
(C{when}), by who asks (C{gray}), and not while a target is taken back (C{hold}).

Rules
- A target with C{when} or C{gray} is for these requests alone.  The first whose C{when} holds is chosen, then the one
  with C{gray} by the place of the request in its cohort (L{protogate.cohort}), else one of the rest: by the sticky key,
  or in turn by weight.
- So who is gray stays so when the percentage grows, 0 is nobody and 100 is everybody; nothing is hashed for these.
- Who comes to a target that is taken back gets one of those that others are judged by; everybody else stays where they
  are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Final

from protogate import cohort
from protogate.routing.balance import Smooth, Sticky

if TYPE_CHECKING:
    from protogate.exchange.exchange import Exchange
    from protogate.routing.hold import Hold
    from protogate.routing.rules import Target

Condition = Callable[["Exchange"], bool]
Key = Callable[["Exchange"], str]

NOTE: Final = "release"
"""Under which the record says that a target was passed over, and why."""
OTHERS: Final = -1
"""What stands for all targets that others are judged by."""


class Among:
    """
    Some targets, by a sticky key or in turn.

    @param targets: those of weight 0 are never chosen.
    """

    __slots__ = ("_key", "_only", "_smooth", "_sticky")

    def __init__(self, targets: Sequence[Target], key: Key | None, random: Random) -> None:
        weighed = [target for target in targets if target.weight > 0]
        self._only = weighed[0] if len(weighed) == 1 else None
        self._key = None if self._only is not None else key
        self._smooth = Smooth([(target, target.weight) for target in targets], random)
        self._sticky = Sticky([(target, target.name, target.weight) for target in targets])

    def sure(self, exchange: Exchange) -> Target | None:
        """The one that the request itself decides for; None = one in turn, and nobody knows yet which."""
        if self._key is not None:
            key = self._key(exchange)
            if key:
                chosen: Target | None = self._sticky.pick(key)
                return chosen
        return self._only

    def turn(self) -> Target | None:
        """The next one in turn; None = none has a weight."""
        chosen: Target | None = self._smooth.pick()
        return chosen


class Release:
    """
    @ivar name: of the entry, for people.
    @ivar identity: equal for entries that are written alike in rules that are for the same requests.
    @ivar text: the expression whose value decides who is gray; C{key}: what gives it, empty for who has none.
    @ivar gray: the target for a part of the cohort, or None; C{percent}: for how many of it.
    @ivar hold: who judges its targets, as soon as the gateway runs.
    """

    __slots__ = ("_rest", "_stable", "_when", "gray", "hold", "identity", "key", "name", "percent", "targets", "text")

    def __init__(
        self,
        name: str,
        identity: str,
        targets: Sequence[Target],
        when: Iterable[tuple[Condition, Target]],
        text: str,
        key: Key,
        sticky: Key | None,
        random: Random,
    ) -> None:
        """
        @param when: the targets with a condition.
        @param key: C{text}, compiled.
        @param sticky: decides among those that are for everybody.
        """
        self.name, self.identity, self.text, self.key = name, identity, text, key
        self.targets = tuple(targets)
        self._when = tuple(when)
        self.gray = next((target for target in targets if target.gray is not None), None)
        self.percent = 0.0 if self.gray is None or self.gray.gray is None else float(self.gray.gray)
        rest = [target for target in targets if target.open]
        stable = [target for target in rest if target.hold is None]
        self._rest = Among(rest, sticky, random)
        self._stable = self._rest if len(stable) == len(rest) else Among(stable, sticky, random)
        self.hold: Hold | None = None

    @property
    def judged(self) -> tuple[Target, ...]:
        """The targets that may be taken back."""
        return tuple(target for target in self.targets if target.hold is not None)

    def place(self, exchange: Exchange) -> float:
        """Where an exchange stands in the cohort, in [0, 100)."""
        return cohort.place(exchange, self.key(exchange))

    def sure(self, exchange: Exchange) -> Target | None:
        """The target that the request itself decides for; None = one in turn, and nobody knows yet which."""
        target = self._claimed(exchange)
        if target is None:
            target = self._rest.sure(exchange)
        if target is not None and self.hold is not None and target.index in self.hold.held:
            return self._stable.sure(exchange)
        return target

    def pick(self, exchange: Exchange) -> Target | None:
        """The target that is asked; None = none has a weight.  Where targets are judged, this attempt counts."""
        target = self._claimed(exchange) or self._rest.sure(exchange) or self._rest.turn()
        hold = self.hold
        if hold is None or target is None:
            return target
        if target.index in hold.held:
            exchange.notes[NOTE] = f"{target.name} is taken back: {hold.held[target.index]}"
            hold.passed()
            target = self._stable.sure(exchange) or self._stable.turn()
            if target is None:
                return None
        if target.hold is not None:
            exchange.through(partial(hold.watch, target.index))
        elif target.open:  # who asks for something special is not what others are measured by
            exchange.through(partial(hold.watch, OTHERS))
        return target

    def odds(self) -> list[tuple[Target, float]]:
        """Each target with its share of all requests, from 0 to 1, as far as C{when} decides nothing."""
        left = 1.0 - self.percent / 100
        total = sum([target.weight for target in self.targets if target.open])
        return [(target, self._share(target, left, total)) for target in self.targets]

    def _share(self, target: Target, left: float, total: int) -> float:
        if target is self.gray:
            return self.percent / 100
        return left * target.weight / total if target.open and total else 0.0

    def _claimed(self, exchange: Exchange) -> Target | None:
        """Whom the request is for by what it says, or by who asks."""
        for holds, target in self._when:
            if holds(exchange):
                return target
        percent = self.percent
        if percent <= 0.0 or (percent < 100.0 and cohort.place(exchange, self.key(exchange)) >= percent):
            return None
        return self.gray


def explained(target: Target, mine: bool = False) -> str:
    """
    For people: for whom a target is and what takes it back; empty = for everybody, and nothing.

    @param mine: whether the request that it is about gets this one.
    """
    parts = ["this one"] if mine else []
    if target.when:
        parts.append(f"when {target.when}")
    if target.gray is not None:
        parts.append(f"gray: {target.gray:g} %")
    if target.hold is not None:
        duration = float(target.hold.duration)
        parts.append(f"taken back{f' for {duration:g} s' if duration else ''} when it does worse")
    return f"   ({'; '.join(parts)})" if parts else ""
