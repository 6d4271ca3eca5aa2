"""
Where the gateway's time goes, under load: kernel, interpreter and Python functions.

    python bench/hotspots.py [--row governed] [--reactor epoll] [--seconds 5] [--folded FILE]

Two looks at the same load, one after the other.  perf (samples of the CPU clock; there may be no hardware counters)
tells kernel, interpreter and libraries apart.  py-spy tells which Python functions are running: self = the function
itself and what C code it calls, within = and whatever it calls.  It reads the process from outside and does not stop
it.  A second figure stands beside each share: microseconds of the CPU time of a request, as wrk counts requests.

C{--folded} writes the stacks for flamegraph.pl or speedscope.
For one path without noise: C{python bench/inproc.py --instructions --only get --keep FILE; callgrind_annotate FILE}.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import tempfile
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Final

import candidates
import configuration
import growth
import load
from candidates import SMALL
from idle import room
from others.plan import Plan
from processes import Process, binary, cells, free_port, stage

RATE: Final = 499
"""Samples per second: no divisor of what else runs at regular times."""
WAITING: Final = {"Condition.wait (threading.py)", "Blocked._watch (protogate/observe/blocked.py)"}
"""Where threads sleep, which py-spy mostly takes for work."""
ROOT: Final = str(Path(__file__).parent.parent)


def during(process: Process, seconds: float, connections: int, look: Callable[[], str]) -> tuple[load.Figure, str]:
    """A look at a gateway while it is asked."""
    found: list[str] = []
    looking = threading.Thread(target=lambda: found.append(look()))
    settle = 0.5 + connections / 1_000  # until all are open
    timer = threading.Timer(settle, looking.start)
    timer.start()
    try:
        figure = load.ask(process, SMALL, seconds + settle + 2, connections)
    finally:
        timer.join()
        looking.join()
    if not found:
        raise SystemExit("nothing was seen")
    return figure, found[0]


def perf(pid: int, seconds: float) -> str:
    """Samples, one a line: shared object and symbol."""
    program = binary("perf")
    if program is None:
        return ""
    with tempfile.NamedTemporaryFile(prefix="protogate-perf-") as data:
        record = [program, "record", "-q", "-e", "cpu-clock", "-F", "1999", "-p", str(pid), "-o", data.name]
        run([*record, "--", "sleep", f"{seconds:g}"], seconds)
        return run([program, "script", "-i", data.name, "-F", "ip,sym,dso"], seconds)


def pyspy(pid: int, seconds: float) -> str:
    """Stacks of Python functions, one a line, with how often each was seen."""
    program = binary("py-spy")
    if program is None:
        return ""
    with tempfile.NamedTemporaryFile(prefix="protogate-pyspy-") as data:
        options = ["--format", "raw", "--nonblocking", "--rate", str(RATE), "--duration", f"{max(round(seconds), 1)}"]
        run([program, "record", *options, "--pid", str(pid), "--output", data.name], seconds)
        return Path(data.name).read_text()


def run(arguments: list[str], seconds: float) -> str:
    """Run a profiler; returns what it says."""
    done = subprocess.run(arguments, capture_output=True, text=True, check=False, timeout=seconds * 4 + 120)
    if done.returncode:
        raise SystemExit(f"{' '.join(arguments)}\n{done.stdout[-1000:]}{done.stderr[-1000:]}")
    return done.stdout


def objects(samples: str) -> tuple[Counter[str], Counter[str]]:
    """How often each part, and each symbol, was seen by perf."""
    parts: Counter[str] = Counter()
    symbols: Counter[str] = Counter()
    for line in samples.splitlines():
        match = re.match(r"\s*[0-9a-f]+ (.+) \(([^()]*(?:\([^()]*\))?[^()]*)\)$", line)
        if match is None:
            continue
        symbol, file = match[1].partition("+0x")[0], match[2]
        kernel = "kernel" in file or file.endswith(".ko]")
        name = "kernel" if kernel else Path(file).name
        parts[name] += 1
        symbols[f"{symbol} ({name})"] += 1
    return parts, symbols


def functions(stacks: str) -> tuple[Counter[str], Counter[str], Counter[str]]:
    """How often each function was seen itself, and with what it calls; and how often each file was seen itself."""
    own: Counter[str] = Counter()
    within: Counter[str] = Counter()
    files: Counter[str] = Counter()
    for line in stacks.splitlines():
        stack, _, count = line.rpartition(" ")
        frames = [short(frame) for frame in stack.split(";")]
        if frames[-1] in WAITING:
            continue
        own[frames[-1]] += int(count)
        files[frames[-1].partition("(")[2].partition(":")[0].rstrip(")")] += int(count)
        for frame in set(frames):
            within[frame] += int(count)
    return own, within, files


def short(frame: str) -> str:
    """Without the line number, and with a path that begins where the package does."""
    name, _, place = frame.strip().rpartition(" (")
    file = place.rstrip(")").rpartition(":")[0] or place.rstrip(")")
    for prefix in (f"{ROOT}/codecs/", f"{ROOT}/"):
        file = file.removeprefix(prefix)
    return f"{name} ({file.rpartition('site-packages/')[2]})"


def table(heading: str, found: Counter[str], total: int, most: int, each: float) -> str:
    """The commonest, with their share of all samples, and their microseconds of C{each} seconds per request."""
    total = total or 1
    rows = [
        (name, f"{count / total:.1%}", f"{count / total * each * 1e6:.1f}") for name, count in found.most_common(most)
    ]
    return cells((heading, "share", "µs/request"), *rows)


def main() -> None:
    """Run it and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--row", choices=("plain", "governed"), default="plain", help="what it does (default: plain)")
    parser.add_argument("--reactor", default="", help="default: what `protogate run` chooses")
    parser.add_argument("--seconds", type=float, default=5, help="of each look (default: 5)")
    parser.add_argument("--connections", type=int, default=64)
    parser.add_argument("--most", type=int, default=40, help="functions that are named (default: 40)")
    parser.add_argument("--folded", default="", metavar="FILE", help="where the stacks go")
    options = parser.parse_args()
    room(options.connections + configuration.POOL)
    with stage() as (folder, processes):
        processes.append(up := candidates.upstream(folder))
        plan = Plan(up.port, options.row == "governed")
        settings = candidates.settings(folder, "gateway", free_port(), plan)
        build = candidates.Build("gateway", candidates.OURS, options.reactor)
        gateway = candidates.protogate(folder, "gateway", settings, build)
        processes.append(gateway)
        load.ask(gateway, SMALL, 1 + options.connections / 1_000, options.connections)  # warm up
        plain = growth.window(gateway, up, options.seconds, options.connections)
        print(f"{plain.each * 1e6:.1f} µs/request, {plain.rate:,.0f} requests/s, {plain.errors} errors\n")
        pid = gateway.child.pid
        _, samples = during(gateway, options.seconds, options.connections, lambda: perf(pid, options.seconds))
        _, stacks = during(gateway, options.seconds, options.connections, lambda: pyspy(pid, options.seconds))
    parts, symbols = objects(samples)
    print(table("part (perf)", parts, parts.total(), 12, plain.each))
    print(table("symbol (perf)", symbols, parts.total(), options.most, plain.each))
    own, within, files = functions(stacks)
    print(table("file (py-spy, self)", files, files.total(), 25, plain.each))
    print(table("function (py-spy, self)", own, own.total(), options.most, plain.each))
    print(table("function (py-spy, within)", within, own.total(), options.most, plain.each))
    if options.folded:
        Path(options.folded).write_text(stacks)


if __name__ == "__main__":
    main()
