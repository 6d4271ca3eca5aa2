"""
A hundred thousand streams of HTTP/2, of which 30 in a hundred are reset, in every state that a stream can be in; and a
thousand that stand still.

    python bench/streams.py [--streams 100000] [--paused 1000] [--engine auto]

A client and an upstream that speak frames (C{streaming.py}) keep account of every window on their side; the gateway
reports its own.  It is a fault when
- a stream ended otherwise than it should, or a connection ended at all;
- a connection's window is not, to the byte, what it was at the start, in any of the four directions;
- the gateway holds a stream that is over, or more objects or memory than before;
- a stream that is paused holds more than its bound.
Exit status 1: one of these.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import sys
from collections import Counter
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any, Final

from kinds import KINDS
from processes import MIB, Gateway, cells, free_port, settings, stage, until
from streaming import FIRST, Client, Upstream

TOTAL: Final = MIB
"""The gateway's window of a connection."""
CLIENTS: Final = 4
AT_ONCE: Final = 50
WARM: Final = 0.1
"""Of the streams: before the first account."""
OBJECTS: Final = 500
"""By how many objects the gateway may grow: caches that are not full, and chance."""
MEMORY: Final = 6 * MIB
"""By how much its memory may grow: what an allocator cannot give back."""
HELD: Final = 192 * 1024
"""Bytes of a stream that is paused: its window, what the engine holds, what was read ahead, and the stream itself."""
STILL: Final = 12
"""Quarters of a second in which nothing moves, until all stands still."""
EACH: Final = 125
"""Of these on one connection."""


@dataclass
class Outcome:
    """
    @ivar rows: what there is to show.
    @ivar faults: one line each.
    """

    rows: list[tuple[str, ...]] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)

    def expect(self, what: str, found: object, wanted: object) -> None:
        """One account."""
        if found != wanted:
            self.faults.append(f"{what}: {found}, where {wanted} should be")


HEADINGS: Final = ("streams", "reset by", "windows", "objects", "memory", "CPU µs/stream", "in bounds")
PAUSED: Final = ("paused", "streams", "bytes that came", "memory each", "again", "in bounds")


def configuration(port: int, engine: str, **told: Any) -> dict[str, Any]:
    """HTTP/2 on both sides."""
    made = settings(port, timeouts={"clientStall": "0", "responseStall": "0", "upstreamStall": "0", "clientIdle": "1h"})
    made["listeners"][0]["protocols"] = ["http2"]
    made["upstreams"][0]["protocol"] = "http2"
    made["codecs"] = {"http2": {"engine": engine, "ping": "0", **told}}
    return made


class World:
    """
    Both ends, and the gateway between them.

    @ivar clients: connected.
    @ivar upstreams: every connection that the gateway has made.
    """

    def __init__(self, gateway: Gateway, port: int) -> None:
        self.gateway, self._port = gateway, port
        self.clients: list[Client] = []
        self.upstreams: list[Upstream] = []
        self.asked: Counter[str] = Counter()

    async def begin(self, clients: int, at_once: int) -> asyncio.Server:
        """Listen, and connect."""
        loop = asyncio.get_running_loop()
        server = await loop.create_server(self._upstream, "127.0.0.1", self._port)
        for _ in range(clients):
            _, client = await loop.create_connection(lambda: Client(at_once), "127.0.0.1", self.gateway.port)
            self.clients.append(client)
        return server

    def _upstream(self) -> Upstream:
        self.upstreams.append(Upstream(self.asked))
        return self.upstreams[-1]

    async def play(self, streams: int) -> None:
        """So many, in an order of chance."""
        names = random.choices(list(KINDS), [kind.share for kind in KINDS.values()], k=streams)
        at = len(self.clients)
        await asyncio.gather(*(client.play(names[n::at]) for n, client in enumerate(self.clients)))

    async def level(self) -> None:
        """
        Use the windows until what is owed has been given back: an engine says WINDOW_UPDATE when that is half a window.
        """
        for client in self.clients:
            await self._until(lambda client=client: client.room == TOTAL, client, "piece")
        for upstream in self.upstreams:
            await self._until(lambda upstream=upstream: upstream.room == TOTAL, self.clients[0], "bite")

    @staticmethod
    async def _until(whole: Callable[[], bool], client: Client, name: str) -> None:
        for _ in range(3 * TOTAL // 8_000):  # three times as often as must do: what is given back may be late
            if whole():
                return
            await client.play([name])
            await asyncio.sleep(0.005)

    async def stands(self, still: int) -> int:
        """Wait until nothing moves, for so many quarters of a second; the bytes that have moved until then."""
        moved, since = -1, 0
        while since < still:
            await asyncio.sleep(0.25)
            before, moved = moved, sum(end.spent for end in (*self.clients, *self.upstreams))
            since = since + 1 if moved == before else 0
        return moved

    async def report(self) -> dict[str, Any]:
        """The gateway's, while this loop goes on."""
        return await asyncio.to_thread(self.gateway.report)

    def unexpected(self) -> Counter[str]:
        """Of all clients."""
        return sum((client.unexpected for client in self.clients), Counter())

    def close(self) -> None:
        """All connections."""
        for end in (*self.clients, *self.upstreams):
            end.transport.abort()


def accounts(world: World, report: dict[str, Any], outcome: Outcome) -> None:
    """Every window, on both sides and in both directions, and every stream."""
    for end in (*world.clients, *world.upstreams):
        outcome.expect(f"{type(end).__name__}: fault", end.fault, "")
        outcome.expect(f"{type(end).__name__}: the gateway's window of the connection", end.room, TOTAL)
    sides = Counter(link["side"] for link in report["links"])
    outcome.expect("connections", sides, Counter(server=len(world.clients), client=len(world.upstreams)))
    for link in report["links"]:
        for name, wanted in {"streams": 0, "come": TOTAL, "leave": FIRST}.items():
            outcome.expect(f"the gateway's {link['side']}: {name}", link[name], wanted)
    for name, count in world.unexpected().items():
        outcome.faults.append(f"{count} ended otherwise: {name}")


async def streams(gateway: Gateway, port: int, number: int) -> Outcome:
    """Resets in every state."""
    outcome, world = Outcome(), World(gateway, port)
    server = await world.begin(CLIENTS, AT_ONCE)
    await world.play(max(int(number * WARM), 1000))
    await world.level()
    first, before = await world.report(), gateway.memory()
    spent = gateway.cpu()
    await world.play(number)
    cpu = (gateway.cpu() - spent) / number
    await asyncio.sleep(0.2)
    await world.level()
    last, after = await world.report(), gateway.memory()
    accounts(world, last, outcome)
    grown, objects = after - before, last["objects"] - first["objects"]
    outcome.expect("objects that wait for the garbage collector", last["garbage"], 0)
    if objects > OBJECTS:
        outcome.faults.append(f"{objects} objects more than before")
    if grown > MEMORY:
        outcome.faults.append(f"{grown / MIB:.1f} MiB more than before")
    for event, count in last["counts"].items():
        if event.endswith(("_flood", "_timeout")) or event == "malformed_frame":
            outcome.faults.append(f"{event}: {count}")
    by_client = sum(client.done[name] for client in world.clients for name, kind in KINDS.items() if kind.reset)
    by_gateway = sum((client.resets for client in world.clients), Counter())
    outcome.rows.append((
        f"{number:,}",
        f"client {by_client:,}, gateway {by_gateway.total():,}",
        "exact" if not outcome.faults else "see below",
        f"{objects:+,}",
        f"{grown / MIB:+.1f} MiB",
        f"{cpu * 1e6:.0f}",
        "NO" if outcome.faults else "yes",
    ))  # fmt: skip
    world.close()
    server.close()
    return outcome


async def paused(gateway: Gateway, port: int, number: int, name: str, still: int) -> Outcome:
    """Streams that stand still, because who should read does not."""
    outcome, world = Outcome(), World(gateway, port)
    server = await world.begin(-(-number // EACH), EACH)
    await asyncio.gather(*(client.play(["small", "post"] * 200) for client in world.clients))
    before = gateway.memory()
    first, moved, each = 0, 0, 0.0
    for again in (False, True):
        plays = [asyncio.ensure_future(client.play([name] * EACH)) for client in world.clients]
        moved = await world.stands(still)
        held = await world.report()
        under_way = sum(link["streams"] for link in held["links"] if link["side"] == "server")
        outcome.expect("streams under way", under_way, len(world.clients) * EACH)
        if not again:
            first = gateway.memory()
            each = (first - before) / under_way
        for client in world.clients:
            client.release()
        await asyncio.gather(*plays)
        await asyncio.sleep(0.5)
    last = await world.report()
    outcome.expect("streams afterwards", sum(link["streams"] for link in last["links"]), 0)
    outcome.expect("what ended otherwise", dict(world.unexpected()), {})
    grown = gateway.peak() - first
    if grown > MEMORY:
        outcome.faults.append(f"{grown / MIB:.1f} MiB more when the same stands still again")
    if each > HELD:
        outcome.faults.append(f"a paused stream holds {each / 1024:.0f} KiB")
    outcome.rows.append((
        name,
        f"{len(world.clients) * EACH:,}",
        f"{moved / MIB:.0f} MiB",
        f"{each / 1024:.1f} KiB",
        f"{grown / MIB:+.1f} MiB",
        "NO" if outcome.faults else "yes",
    ))  # fmt: skip
    world.close()
    server.close()
    return outcome


def run(
    what: Callable[[Gateway, int], Coroutine[Any, Any, Outcome]], engine: str = "auto", one: bool = False, **told: Any
) -> Outcome:
    """
    A gateway of its own for it.

    @param one: connection to the upstream, rather than as many as it takes.
    """
    random.seed(1)
    with stage() as (folder, processes):
        port = free_port()
        made = configuration(port, engine, **told)
        if one:
            made["upstreams"][0]["pool"] = {"maxPerEndpoint": 1}
        gateway = Gateway(folder, made)
        processes.append(gateway)
        until("the gateway", lambda: gateway.files() > 0)
        outcome = asyncio.run(what(gateway, port))
        log = gateway.log.read_text()
        if "Traceback" in log or "Unhandled" in log:
            outcome.faults.append(f"the gateway's log:\n{log[-2000:]}")
    return outcome


def resets(number: int, engine: str = "auto") -> Outcome:
    """See L{streams}."""
    told = {"connectionWindow": "1MiB", "streams": 2 * CLIENTS * AT_ONCE}
    return run(lambda gateway, port: streams(gateway, port, number), engine, True, **told)


def still(number: int, name: str, engine: str = "auto", still: int = STILL) -> Outcome:
    """See L{paused}."""
    return run(lambda gateway, port: paused(gateway, port, number, name, still), engine)


def main() -> int:
    """Run it and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--streams", type=int, default=100_000, help="that come and go (default: 100000)")
    parser.add_argument("--paused", type=int, default=1_000, help="that stand still at once (default: 1000)")
    parser.add_argument("--engine", default="auto", help="of HTTP/2: auto, ngh2 or h2")
    options = parser.parse_args()
    found = resets(options.streams, options.engine)
    print(cells(HEADINGS, *found.rows))
    held = [still(options.paused, name, options.engine) for name in ("held-down", "held-up")]
    print(cells(PAUSED, *(row for each in held for row in each.rows)))
    faults = [fault for each in (found, *held) for fault in each.faults]
    print("\n".join(faults), file=sys.stderr, end="\n" if faults else "")
    return 1 if faults else 0


if __name__ == "__main__":
    raise SystemExit(main())
