"""
What modules take where they work: in a whole gateway, under load, by a watch that stands before the first of them and
behind the last.

Between two exchanges lies all that a request needs besides, so code and data are as near, or as far, as they are under
load: a bench of nothing but modules cannot know.

    python bench/chain.py [--rounds 499]        what the chain of ten takes of a request, in µs

Rules
- The watch is a module itself, at both ends of each stage, and of what is done to the answer between stages.
- What the watch takes is measured in a gateway with nothing but the watch, and taken off.
- It reads a clock that needs no system call, and so shows what others do to the machine, too: hence medians.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final

from zope.interface import implementer

import configuration
import credentials
from atwork import CHAIN, entry, files
from inproc import WARM, settle
from inside import LISTEN, ORIGIN, Row, whole
from protogate import build
from protogate.exchange.exchange import Exchange
from protogate.governance.stages import PRE_REQUEST, PRE_RESPONSE, PRE_UPSTREAM
from protogate.interfaces import IModule, IModuleFactory

CONNECTIONS: Final = 16
"""That ask in each turn."""
REQUEST: Final = (
    b"GET /path?q=1 HTTP/1.1\r\nHost: a.test\r\nUser-Agent: curl/8.5.0\r\nAccept: */*\r\nOrigin: https://shop.example\r\n"
    b"Authorization: %b\r\nX-App: 100041\r\nX-Drop: 1\r\n\r\n"
) % credentials.PASSWORD
WATCHED: Final = (PRE_REQUEST, PRE_UPSTREAM, PRE_RESPONSE)
EARLY, LATE = -1_000_000, 1_000_000
clock: Final = time.perf_counter


class Watch:
    """
    One clock for all exchanges.

    @ivar spent: seconds between its ends, all together.
    """

    def __init__(self) -> None:
        self.spent = self._begun = 0.0

    def begin(self, exchange: Exchange) -> None:
        """From now on."""
        self._begun = clock()

    def end(self, exchange: Exchange) -> None:
        """Up to now."""
        self.spent += clock() - self._begun


@implementer(IModule)
class End:
    """@param upon: what to do before, and after, all that is done to the answer; the last to ask is the first."""

    def __init__(self, does: Any, upon: Any) -> None:
        self._does, self._upon = does, upon

    def process(self, exchange: Exchange) -> None:
        """Look at the clock."""
        if self._upon is None:
            self._does(exchange)
            return
        if self._does is not None:
            self._does(exchange)
        exchange.upon(self._upon)


@implementer(IModuleFactory)
class Ends:
    """Makes both ends of a watch."""

    name = "bench-watch"
    stages = WATCHED
    guards = False

    def __init__(self, watch: Watch) -> None:
        self._watch = watch

    def build(self, params: Mapping[str, Any]) -> End:
        """One of them: C{ends} says which."""
        watch = self._watch
        ends, answer = params["ends"], params["answer"]
        return End(watch.end if ends else watch.begin, (watch.begin if ends else watch.end) if answer else None)


def watched(modules: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Modules with the watch around them."""
    made: list[dict[str, Any]] = [dict(each) for each in modules]
    for stage in WATCHED:
        # The answer is watched by the first and the last of all who see the request.
        first, last = stage == PRE_REQUEST, stage == PRE_UPSTREAM
        for order, ends, answer in ((EARLY, False, first), (LATE, True, last)):
            params = {"ends": ends, "answer": answer}
            made.append({"name": Ends.name, "stage": stage, "ruleOrder": order, "actionParam": params})
    return made


@contextmanager
def findable(watch: Watch) -> Iterator[None]:
    """What is built meanwhile finds the ends of this watch."""
    find: Any = build.find
    factory = Ends(watch)
    build.find = lambda kind, name: factory if name == Ends.name else find(kind, name)
    try:
        yield
    finally:
        build.find = find


class Asked(Row):
    """Asks what modules look at; made without modules, or with them."""

    def __init__(self, name: str, modules: Sequence[Mapping[str, Any]]) -> None:
        super().__init__(name)
        self._request, self._watch = REQUEST, Watch()
        self.spent: list[float] = []
        settings = configuration.plain(LISTEN, ORIGIN, modules=watched(modules))
        with findable(self._watch):
            whole(self, CONNECTIONS, time.monotonic, settings)
        self.turns(WARM)

    def told(self) -> tuple[bytes, bytes]:
        """One more turn: what the upstream is asked, and what a client is answered."""
        for ask, _ in self._clients:
            ask(self._request)
        asked = answered = b""
        for answer, sent in self._origins:
            asked, sent[:] = b"".join(sent), []
            for piece in self._pieces:
                answer(piece)
        for _, sent in self._clients:
            answered, sent[:] = b"".join(sent), []
        return asked.lower(), answered.lower()

    def round(self) -> None:
        """One turn: µs that were watched, for each request."""
        self._watch.spent = 0.0
        self.turns(1)
        self.spent.append(self._watch.spent / self.together * 1e6)


def cost(modules: Sequence[Mapping[str, Any]], rounds: int) -> float:
    """
    What modules take of a request, in µs.

    @raise SystemExit: they do not do what they are measured for.
    """
    nothing, row = Asked("nothing", ()), Asked("modules", modules)
    asked, answered = row.told()
    if b"authorization" in asked or b"x-client: " not in asked or b"x-cost: " not in answered:
        raise SystemExit(f"not what modules were to make of it: {asked!r} {answered!r}")
    settle()
    for _ in range(rounds):
        nothing.round()
        row.round()
    return quick(row.spent) - quick(nothing.spent)


def quick(rounds: Sequence[float]) -> float:
    """Of the quicker half of all rounds the middle: what others did to the machine is left out."""
    return statistics.median(sorted(rounds)[: len(rounds) // 2 + 1])


def main() -> None:
    """Run it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=499, help="of one turn each (default: 499)")
    options = parser.parse_args()
    with files() as folder:
        print(f"{cost([entry(each, folder) for each in CHAIN], options.rounds):.2f}")


if __name__ == "__main__":
    main()
