"""
What idle connections cost, in each candidate: memory of all its processes, for each of 10,000 that asked once.

What the kernel keeps for a socket is nobody's, and not counted.
"""

from __future__ import annotations

import time
from typing import Final

import candidates
from idle import held, room
from others.plan import Plan
from processes import MIB, stage
from report import Table
from rows import Options, chosen

WARM: Final = 200
"""Connections that come and go before anything is measured."""
SETTLE: Final = 1.0
"""Seconds until what a candidate does a little later is done."""


def measure(options: Options, count: int = 10_000) -> Table:
    """So many connections, in one candidate after the other."""
    room(count)
    rows: list[tuple[object, ...]] = [("", "memory before", "per connection", "CPU while idle")]
    for name in chosen(options):
        with stage() as (folder, processes):
            processes.append(up := candidates.upstream(folder))
            processes.append(process := candidates.available()[name](folder, Plan(up.port)))
            candidates.check(name, process, Plan(up.port))
            with held(process.port, WARM, True):
                pass
            time.sleep(SETTLE)
            before = process.resident()
            with held(process.port, count, True):
                time.sleep(SETTLE)
                each = (process.resident() - before) / count
                spent, begun = process.cpu(), time.monotonic()
                time.sleep(options.seconds)
                idle = (process.cpu() - spent) / (time.monotonic() - begun)
        rows.append((name, f"{before / MIB:.1f} MiB", f"{each / 1024:.1f} KiB", f"{idle:.2%}"))
    note = "CPU is of one core. What the kernel keeps for each socket comes on top, and is the same for all."
    return Table("memory", f"{count:,} idle connections that asked once", rows, note)
