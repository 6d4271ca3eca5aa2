"""
How long the event loop of a real gateway stands still while a large configuration is loaded anew.

    python tests/cases/loop_gap.py RULES RELOADS

Every third reload finds a file with faults.  Prints JSON: for each whether it was taken (C{done}), its C{seconds},
C{gap}, the longest time between two turns of a ticker on that loop, and C{cpu}, the most CPU time that this process
used between two of its turns: on a machine that does other things too, it is the share of the gap that is ours.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections.abc import Generator
from pathlib import Path
from typing import Any

from twisted.internet import reactor as installed
from twisted.internet.defer import Deferred, inlineCallbacks
from twisted.internet.task import deferLater

from protogate.build import build
from protogate.service import GatewayService

TICK = 0.0005
reactor: Any = installed


def text(rules: int, turn: int) -> str:
    """A configuration as sites have them: prefixes, exact paths, templates, conditions, canaries."""
    lines = [
        "gateway: {name: gap, watch: false}",
        'listeners: [{name: web, address: "127.0.0.1:0"}]',
        "upstreams:",
        *(f'  - {{name: up{at}, endpoints: [{{url: "http://127.0.0.1:{20000 + at}"}}]}}' for at in range(50)),
        "routes:",
    ]
    for at in range(rules):
        kind = ("prefix", "exact", "template", "prefix")[at % 4]
        value = f"/team{at % 97}/service{at}/v{turn}" + ("/{id}" if kind == "template" else "")
        lines += [
            f"  - name: r{at}",
            f"    value: {value}",
            f"    matcherType: {kind}",
            f"    tags: [owner_{at % 13}, appId_{at}]",
            "    routes:",
            "      - condition: \"request.headers['x-canary'] == '1' && inCidr(source.ip, '10.0.0.0/8')\"",
            f"        targets: [{{upstream: up{at % 50}}}]",
            f"      - targets: [{{upstream: up{at % 50}, weight: 95}}, {{upstream: up{(at + 1) % 50}, weight: 5}}]",
        ]
    return "\n".join(lines) + "\n"


class Ticker:
    """
    @ivar gap: the longest time between two turns since C{reset}.
    @ivar cpu: the most CPU time.
    """

    def __init__(self) -> None:
        self.reset()
        self._turn()

    def reset(self) -> None:
        self.gap = self.cpu = 0.0
        self._last = time.perf_counter(), time.process_time()

    def _turn(self) -> None:
        now, used = time.perf_counter(), time.process_time()
        self.gap, self.cpu = max(self.gap, now - self._last[0] - TICK), max(self.cpu, used - self._last[1])
        self._last = now, used
        reactor.callLater(TICK, self._turn)


@inlineCallbacks
def measure(rules: int, reloads: int) -> Generator[Deferred[Any], Any, list[dict[str, float]]]:
    """One entry for each reload."""
    found = []
    with tempfile.TemporaryDirectory(prefix="protogate-gap-") as folder:
        path = Path(folder, "gateway.yaml")
        path.write_text(text(rules, 0), encoding="utf-8")
        service = GatewayService(str(path), build(str(path)), signals=False)
        service.startService()
        ticker = Ticker()
        for turn in range(1, reloads + 1):
            written = text(rules, turn)
            if turn % 3 == 0:
                written = written.replace("upstream: up7}", "upstream: nobody}")
            path.write_text(written, encoding="utf-8")
            yield deferLater(reactor, 0.1, lambda: None)
            ticker.reset()
            began = time.perf_counter()
            done = yield service.reload()
            seconds = time.perf_counter() - began
            yield deferLater(reactor, 0.1, lambda: None)  # while what was replaced is let go
            found.append({"done": done, "seconds": seconds, "gap": ticker.gap, "cpu": ticker.cpu})
        yield service.stopService()
    return found


def main() -> None:
    """Measure and print."""
    measured = measure(int(sys.argv[1]), int(sys.argv[2]))
    results: list[Any] = []
    measured.addBoth(results.append)
    measured.addBoth(lambda _: reactor.callLater(0, reactor.stop))
    reactor.run()
    print(json.dumps(results[0]))


if __name__ == "__main__":
    main()
