"""
The gateway, as C{protogate run} runs it, with a hook: at its start and on SIGUSR2 it writes a report about itself.

    python bench/watched.py -c gateway.yaml --report report.json [--without-collector] [--ticker]

The report, as JSON
    objects      what the garbage collector knows, frozen or not, after a collection (without the collector, as it is)
    types        the hundred commonest types of those that are not frozen
    garbage      what the collection before found unreachable: work that reference counts left to it
    armed        functions of the armed timers on the wheel
    timers       timers that the wheel holds, armed or not
    connections  of each listener
    counts       of the gateway's counters
    reloads      how often a configuration was taken over
    links        of each connection of HTTP/2: side, streams, and both windows: what may still come, and what may leave
    gap          longest time between two turns of a ticker that runs every millisecond, since the last report
    busy         the most time on a CPU between two of them: what it is whatever else the machine does
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import signal
import time
from collections import Counter
from typing import Any

from protogate.cli import run
from protogate.service import GatewayService

TICK = 0.001
SIDES = {"protogate_http.server2": "server", "protogate_http.client2": "client"}


def windows(link: Any) -> dict[str, Any]:
    """Of a connection of HTTP/2, whichever engine keeps them."""
    engine = getattr(link.engine, "_connection", link.engine)
    if engine is link.engine:
        come, leave = engine.local_window_size, engine.remote_window_size
    else:
        come, leave = engine.inbound_flow_control_window, engine.outbound_flow_control_window
    return {"side": SIDES[type(link).__module__], "streams": len(link.streams), "come": come, "leave": leave}


class Hook:
    """Reports about a service."""

    def __init__(self, service: Any, path: str, ticker: bool, collector: bool) -> None:
        self._service, self._path, self._collector = service, path, collector
        self._gap, self._last = 0.0, time.perf_counter()
        self._busy, self._used = 0.0, time.thread_time()
        self._reactor = service._reactor
        signal.signal(signal.SIGUSR2, lambda *_: self._reactor.callFromThread(self.report))
        if ticker:
            self._tick()
        self._reactor.callLater(0, self.report)  # it is ready

    def _tick(self) -> None:
        now = time.perf_counter()
        self._gap, self._last = max(self._gap, now - self._last), now
        used = time.thread_time()
        self._busy, self._used = max(self._busy, used - self._used), used
        self._reactor.callLater(TICK, self._tick)

    def report(self) -> None:
        """Write it; not while a thread reads a configuration: nobody else may hold a tuple that is being made there."""
        if self._service.loading.busy:
            self._reactor.callLater(TICK, self.report)
            return
        gap, busy = self._gap, self._busy
        garbage = gc.collect() if self._collector else 0
        objects = gc.get_objects()
        service: GatewayService = self._service
        timers = [timer for slot in service.wheel._slots.values() for timer in slot]
        armed = [timer._function for timer in timers if timer.active]
        types = Counter(f"{type(one).__module__}.{type(one).__qualname__}" for one in objects)
        found = {
            "objects": len(objects) + gc.get_freeze_count(),
            "types": dict(types.most_common(100)),
            "garbage": garbage,
            "armed": sorted(str(getattr(one, "__qualname__", one)) for one in armed),
            "timers": len(timers),
            "connections": {one.listener.name: len(one.listener.connections) for one in service.ports.opened.values()},
            "counts": dict(service.counters.counts),
            "reloads": service.reloads,
            "links": [windows(one) for one in objects if type(one).__module__ in SIDES and hasattr(one, "engine")],
            "gap": gap,
            "busy": busy,
        }
        new = f"{self._path}.new"
        with open(new, "w", encoding="utf-8") as file:
            file.write(json.dumps(found))  # not dump(): that leaves garbage behind
        os.replace(new, self._path)
        self._gap, self._last = 0.0, time.perf_counter()
        self._busy, self._used = 0.0, time.thread_time()


def main() -> int:
    """Run it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-c", "--config", required=True)
    parser.add_argument("--report", required=True, help="where to write")
    parser.add_argument("--without-collector", action="store_true", help="turn the garbage collector off")
    parser.add_argument("--ticker", action="store_true", help="measure how long the event loop is away")
    options = parser.parse_args()

    start = GatewayService.startService

    def hooked(self: GatewayService) -> None:
        start(self)
        if options.without_collector:
            gc.disable()
        Hook(self, options.report, options.ticker, not options.without_collector)

    GatewayService.startService = hooked  # type: ignore[method-assign]
    return run(options.config, None)


if __name__ == "__main__":
    raise SystemExit(main())
