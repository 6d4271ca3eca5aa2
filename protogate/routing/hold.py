"""
Takes targets back by itself that do worse than those beside them in their entry, for all processes of the gateway.

Rules
- What counts is how the upstream of a target answers, as the exchange sees it: after all attempts, before any module
  has changed the answer.  What a client does, and what is the gateway's own fault, counts for nobody.
- Every process counts; about once in C{PAUSE} what was counted goes to the one that leads, which compares and decides.
  What it decides stands on the board, for all, for who comes later, and for the next one to lead.
- A target that is taken back stays so until its entry is another one, or its time is over.  An entry is the same after
  a reload when nothing in it has changed, and nothing of which requests its rule is for.
- What began before the last change of this kind does not count any more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Protocol

from mypy_extensions import mypyc_attr
from twisted.internet.defer import CancelledError
from twisted.logger import Logger
from twisted.python.failure import Failure

from protogate.errors import CLIENT, UPSTREAM, Abort
from protogate.message import Response, tunnels
from protogate.observe.snapshot import Number
from protogate.promise import waits
from protogate.routing.comparison import Comparison, Counts
from protogate.routing.release import OTHERS
from protogate.upstream.outcome import ERROR, FAILURES, answered
from protogate.wheel import Timer, Wheel

if TYPE_CHECKING:
    from protogate.exchange.exchange import Answer, Ask, Exchange
    from protogate.routing.release import Release
    from protogate.upstream.board import Board

PAUSE: Final = 1.0
"""Seconds."""
Posted = tuple[str, float, str]
"""What stands on the board of a target that is taken back: why, until when (0 = no end), and its title."""
TOPIC: Final = "release/holds"
OURS: Final = "proxy_internal_error"
"""The error type of what is the gateway's own fault."""
_NOTHING: Final[Posted] = ("", 0.0, "")
_log: Final = Logger()


@mypyc_attr(native_class=False)
class Office(Protocol):
    """What a L{Hold} works with."""

    wheel: Wheel
    count: Callable[[str], None]

    def noted(self) -> None:
        """Something was counted."""


class Hold:
    """
    The targets of one entry that are judged.

    @ivar held: index of a target that is taken back → why.
    @ivar counted: what came of requests since it was last told: by the index of the target, or L{OTHERS}.
    @ivar comparisons: of each target that is judged with the others; used by the process that leads.
    @ivar names: index → the target, for people.
    """

    __slots__ = ("_office", "comparisons", "counted", "held", "name", "names", "since")

    def __init__(self, release: Release, office: Office) -> None:
        self._office, self.name = office, release.name
        self.held: dict[int, str] = {}
        self.counted: dict[int, Counts] = {}
        self.comparisons = {each.index: Comparison(each.hold) for each in release.judged if each.hold is not None}
        self.names = {each.index: each.name for each in release.judged}
        self.since = 0.0

    def title(self, index: int) -> str:
        """A target that is judged, for people and for metrics."""
        return f"{self.name}: {self.names[index]}"

    def passed(self) -> None:
        """One request went elsewhere, because its target is taken back."""
        self._office.count("release_passed")

    def watch(self, side: int, exchange: Exchange, ask: Ask) -> Answer:
        """See how one request goes: for L{Exchange.through}."""
        began = self._office.wheel.now()
        answer = ask()
        if waits(answer):
            more = (side, began, exchange)
            return answer.addCallbacks(self._answered, self._failed, more, {}, more, {})
        return self._answered(answer, side, began, exchange)

    def _answered(self, response: Response, side: int, began: float, exchange: Exchange) -> Response:
        if not response.protocol or began < self.since:  # of a module, or of another time
            return response
        if answered(response) is ERROR:
            self._counts(side).failed()
            return response
        # Until the content of the request was there, it was the client that took its time.
        self._counts(side).well(self._office.wheel.now() - max(began, exchange.ledger.uploaded))
        if response.body is not None and not tunnels(exchange.request, response):
            exchange.after(partial(self._over, side, began, exchange))
        return response

    def _failed(self, failure: Failure, side: int, began: float, exchange: Exchange) -> Failure:
        error = failure.value
        if began < self.since:
            return failure
        if exchange.request.gone is not None or isinstance(error, CancelledError):
            self._counts(side).gone(self._office.wheel.now() - max(began, exchange.ledger.uploaded))
        elif isinstance(error, Abort) and error.who is not CLIENT and error.error != OURS:
            self._counts(side).failed()
        return failure

    def _over(self, side: int, began: float, exchange: Exchange) -> None:
        """The rest of an answer has come, or not."""
        reason = exchange.reason
        broke = reason is not None and reason.who is UPSTREAM and exchange.error is None
        if (broke or b"%d" % exchange.ledger.rpc in FAILURES) and began >= self.since:
            self._counts(side).broke()

    def _counts(self, side: int) -> Counts:
        counts = self.counted.get(side)
        if counts is None:
            counts = self.counted[side] = Counts()
            self._office.noted()
        return counts

    # -- in the process that leads

    def see(self, side: int, counts: Counts) -> None:
        """Something was counted, here or elsewhere."""
        now = self._office.wheel.now()
        for index, comparison in self.comparisons.items():
            if index not in self.held and side in (OTHERS, index):
                comparison.see(side == index, counts, now)

    def look(self) -> Iterable[tuple[int, str]]:
        """Who should be taken back, and why."""
        now = self._office.wheel.now()
        for index, comparison in self.comparisons.items():
            if index not in self.held:
                why = comparison.look(now)
                if why:
                    yield index, why

    # -- in all

    def change(self, index: int, why: str) -> bool:
        """
        A target is taken back; or, where there is no reason, it is not any more.

        @return: whether that is news.
        """
        if index not in self.comparisons or self.held.get(index, "") == why:
            return False
        if why:
            self.held[index] = why
        else:
            del self.held[index]
        self.comparisons[index].clear()
        self.counted.clear()
        self.since = self._office.wheel.now()
        return True


class Holds:
    """
    Those of a gateway, over all its configurations.

    @ivar count: told C{release_held}, C{release_returned} where this process decides, and C{release_passed}.
    """

    def __init__(self, board: Board, wheel: Wheel, count: Callable[[str], None]) -> None:
        self.wheel, self.count, self._board = wheel, count, board
        self.holds: dict[str, Hold] = {}
        self._posted: dict[str, Posted] = {}
        self._ends: dict[str, Timer] = {}
        self._follows = False
        self._timer = wheel.timer(self._tell)

    def take(self, releases: Iterable[Release]) -> None:
        """From now on these are there.  What is the same as before keeps all that is known of it."""
        wanted = dict(_keyed(releases))
        if wanted and not self._follows:
            self._follows = True
            self._board.follow(TOPIC, self._told, self._heard, self._led)
        before, self.holds = self.holds, {}
        for key, release in wanted.items():
            hold = before.pop(key, None) or Hold(release, self)
            self.holds[key] = release.hold = hold
            for index in hold.comparisons:
                hold.change(index, self._posted.get(_key(key, index), _NOTHING)[0])
        for hold in before.values():
            for index in hold.held:
                self._say(hold, index, "its entry has changed")
        self._tidy()
        if not wanted:
            self.stop()

    def stop(self) -> None:
        """Judge no more."""
        self._timer.close()
        for end in self._ends.values():
            end.close()
        self._ends.clear()
        self._posted.clear()
        self.holds = {}
        if self._follows:
            self._follows = False
            self._board.leave(TOPIC)

    def gauges(self) -> dict[str, dict[str, Number]]:
        """Of each target that is judged: C{held}, 1 while it is taken back.  Only where this process leads."""
        if not self._board.leads:
            return {}
        found: dict[str, dict[str, Number]] = {}
        for hold in self.holds.values():
            for index in hold.names:
                numbers = found.setdefault(hold.title(index), {"held": 0})  # two rules may have one name
                numbers["held"] = max(numbers["held"], int(index in hold.held))
        return found

    def why(self) -> dict[str, str]:
        """Of each target that is taken back: the reason."""
        return {hold.title(index): why for hold in self.holds.values() for index, why in hold.held.items()}

    # -- counting

    def noted(self) -> None:
        """L{Office}."""
        if not self._timer.active:
            self._timer.set(PAUSE)

    def _tell(self) -> None:
        told = []
        for key, hold in self.holds.items():
            counted, hold.counted = hold.counted, {}
            if self._board.leads:
                for side, counts in counted.items():
                    hold.see(side, counts)
                self._look(key, hold)
            else:
                told += [[key, side, counts.plain()] for side, counts in counted.items()]
        if told:
            self._board.tell(TOPIC, told)

    def _heard(self, observed: Any) -> None:
        seen = {}
        for key, side, plain in observed:
            hold = self.holds.get(key)
            if hold is not None:  # else that process has another configuration
                hold.see(side, Counts.told(plain))
                seen[key] = hold
        for key, hold in seen.items():
            self._look(key, hold)

    # -- judging

    def _look(self, key: str, hold: Hold) -> None:
        for index, why in [*hold.look()]:
            comparison = hold.comparisons[index]
            duration = float(comparison.terms.duration)
            hold.change(index, why)
            self.count("release_held")
            _log.warn(
                "{title} gets no requests any more{how}: {why}",
                title=hold.title(index), how=f" for {duration:g} s" if duration else "", why=why,
            )  # fmt: skip
            self._post(_key(key, index), (why, self.wheel.now() + duration if duration else 0.0, hold.title(index)))
            self._arm(_key(key, index))

    def _return(self, at: str) -> None:
        """The time of one is over."""
        self._ends.pop(at, None)
        key, _, index = at.rpartition(" ")
        hold = self.holds.get(key)
        self._post(at, None)
        if hold is not None and hold.change(int(index), ""):
            self._say(hold, int(index), "its time is over")

    def _say(self, hold: Hold, index: int, why: str) -> None:
        if self._board.leads:
            self.count("release_returned")
            _log.info("{title} gets requests again: {why}", title=hold.title(index), why=why)

    def _arm(self, at: str) -> None:
        """See that one that is posted ends in time."""
        until = self._posted[at][1]
        if until and self._board.leads and at not in self._ends:
            self._ends[at] = self.wheel.after(until - self.wheel.now(), partial(self._return, at))

    def _post(self, at: str, value: Posted | None) -> None:
        if value is None:
            self._posted.pop(at, None)
        else:
            self._posted[at] = value
        self._board.post(TOPIC, at, None if value is None else list(value))

    def _tidy(self) -> None:
        """Who leads takes off what is about entries that are no longer there."""
        if self._board.leads:
            for at in [at for at in self._posted if at.rpartition(" ")[0] not in self.holds]:
                self._post(at, None)
                end = self._ends.pop(at, None)
                if end is not None:
                    end.close()

    # -- the board

    def _told(self, at: str, value: Any) -> None:
        key, _, index = at.rpartition(" ")
        if value is None:
            self._posted.pop(at, None)
        else:
            self._posted[at] = (str(value[0]), float(value[1]), str(value[2]))
        hold = self.holds.get(key)
        if hold is not None:
            hold.change(int(index), "" if value is None else str(value[0]))

    def _led(self, leads: bool) -> None:
        for end in self._ends.values():
            end.close()
        self._ends.clear()
        for hold in self.holds.values():
            for comparison in hold.comparisons.values():
                comparison.clear()
        if leads:
            for at in list(self._posted):
                self._arm(at)
            self._tidy()


def _keyed(releases: Iterable[Release]) -> Iterable[tuple[str, Release]]:
    """Each that is judged, by what it is known by in all processes; of those that are alike, by their order, too."""
    seen: dict[str, int] = {}
    for release in releases:
        if release.judged:
            number = seen[release.identity] = seen.get(release.identity, 0) + 1
            yield f"{release.identity}.{number}", release


def _key(key: str, index: int) -> str:
    return f"{key} {index}"
