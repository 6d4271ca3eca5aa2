"""
CPU time per request at full speed, of all candidates, one table a kind of request.

A round asks each candidate once, so a machine that gets slower slows all of them; the first round is thrown away.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import candidates
import identity
import load
from candidates import GRPC, HUGE, LARGE, MESSAGE, SMALL
from others.plan import Plan
from processes import Process, stage
from report import Table, bases, ratios, spread


@dataclass(frozen=True, slots=True)
class Options:
    """
    @ivar only: names of candidates; empty = all there are.
    @ivar seconds: of each round.
    @ivar rounds: that count.
    @ivar connections: that ask at the same time, unless a row says otherwise.
    @ivar rate: requests per second, of rows with a fixed rate; 0 = what they choose.
    """

    only: tuple[str, ...] = ()
    seconds: float = 4.0
    rounds: int = 5
    connections: int = 64
    rate: float = 0.0


@dataclass(frozen=True, slots=True)
class Row:
    """
    @ivar path: what is asked for.
    @ivar upload: bytes that each request brings; 0 = a GET.
    @ivar size: bytes of a large answer, see L{load.counted}.
    @ivar connections: 0 = as the options say.
    @ivar secure: clients speak over TLS.
    @ivar front: what they speak, see L{Plan}; over HTTP/2 there are L{STREAMS} requests at once on each connection, and
        as many fewer connections.
    @ivar back: what the upstream speaks.
    @ivar anew: a connection for each request, with a C{full} handshake or a C{resumed} session.
    @ivar grpc: each request is a call.
    """

    title: str
    path: str = SMALL
    governed: bool = False
    upload: int = 0
    size: int = 0
    connections: int = 0
    secure: bool = False
    front: str = "http1"
    back: str = "http1"
    anew: str = ""
    grpc: bool = False
    note: str = ""

    def together(self, options: Options) -> tuple[int, int]:
        """Connections, and requests at once on each."""
        connections = self.connections or options.connections
        if self.anew:
            return min(connections, THREADS), 1
        return (max(connections // STREAMS, 1), STREAMS) if self.front == "http2" else (connections, 1)


GOVERNED: Final = (
    "On in each of them: 3,000 rules (exact and prefix), a list of 10,000 denied networks, a condition on method and "
    "path, two fields of the request and two of the answer that are made for each request, counters for operators. "
    "Before it is measured, each is asked whether it does all of that. Caddy goes through its rules and networks one "
    "by one; it has no other way."
)

STREAMS: Final = 8
THREADS: Final = 16
"""That make connections anew: more of them only wait for one another."""
TLS: Final = f"{identity.OFFER}."
ALONE: Final = (
    "The load is a program in Python, which is slower than some of the gateways: requests/s tell of it, CPU does not."
)
CLEAR: Final = "In cleartext, on both sides."
UP2: Final = "nginx has only the way for gRPC to speak HTTP/2 to an upstream: one request at a time on each connection."
WARM: Final = 1.0
"""Seconds of the round that does not count."""

ROWS: Final[dict[str, Row]] = {
    "get": Row("GET, answer of 200 bytes"),
    "governed": Row("GET, answer of 200 bytes, governed", governed=True, note=GOVERNED),
    "post": Row("POST of 10 KiB, answer of 200 bytes", upload=10 * 1024),
    "download": Row("GET, answer of 100 KiB", path=LARGE),
    "huge": Row("GET, answer of 10 MiB", path=HUGE, size=10 << 20, connections=8),
    "https": Row("HTTPS: GET, answer of 200 bytes", secure=True, note=TLS),
    "handshakes": Row(
        "HTTPS: a new connection for each GET, full handshake", secure=True, anew="full", note=f"{TLS} {ALONE}"
    ),
    "resumptions": Row(
        "HTTPS: a new connection for each GET, session resumed", secure=True, anew="resumed", note=f"{TLS} {ALONE}"
    ),
    "http2": Row("HTTP/2 over TLS to HTTP/1: GET, answer of 200 bytes", secure=True, front="http2", note=TLS),
    "http2both": Row(
        "HTTP/2 over TLS to HTTP/2: GET, answer of 200 bytes",
        secure=True,
        front="http2",
        back="http2",
        note=f"{TLS} {UP2}",
    ),
    "http2download": Row(
        "HTTP/2 over TLS to HTTP/1: GET, answer of 100 KiB", path=LARGE, secure=True, front="http2", note=TLS
    ),
    "grpc": Row(
        "gRPC: a unary call, messages of 100 bytes",
        path=GRPC,
        front="http2",
        back="http2",
        grpc=True,
        note=f"{CLEAR} {UP2}",
    ),
}


def chosen(options: Options) -> list[str]:
    """
    Names of the candidates that take part.

    @raise SystemExit: one is not there.
    """
    there = list(candidates.available())
    for name in options.only:
        if name not in there:
            raise SystemExit(f"no candidate {name!r}; there are {', '.join(there)}")
    return [name for name in there if not options.only or name in options.only]


def line_up(folder: Path, plan: Plan, options: Options, processes: list[Process]) -> dict[str, Process]:
    """Start the candidates that speak what is spoken, and see that each does what is measured."""
    started = {}
    for name in chosen(options):
        if not candidates.speaks(name, plan):
            secured = " over TLS" if plan.identity else ""
            print(f"{name} does not read {plan.front}{secured} and write {plan.back}", file=sys.stderr)
            continue
        processes.append(process := candidates.available()[name](folder, plan))
        candidates.check(name, process, plan)
        started[name] = process
    return started


def measure(name: str, options: Options) -> Table:
    """One row of L{ROWS}, as a table."""
    row = ROWS[name]
    with stage() as (folder, processes):
        processes.append(up := candidates.upstream(folder, row.back))
        who = identity.made(folder) if row.secure else None
        plan = Plan(up.port, row.governed, row.front, row.back, who)
        started = line_up(folder, plan, options, processes)
        asked = asking(row, options, folder, plan)
        found: dict[str, list[load.Figure]] = {each: [] for each in started}
        for number in range(options.rounds + 1):
            for each, process in started.items():
                figure = asked(process, options.seconds if number else min(options.seconds, WARM))
                if number:
                    found[each].append(figure)
    return table(name, row, options, found)


def asking(row: Row, options: Options, folder: Path, plan: Plan) -> Callable[[Process, float], load.Figure]:
    """What asks a process for so many seconds."""
    connections, streams = row.together(options)
    who = plan.identity
    if row.anew and who is not None:
        resume = row.anew == "resumed"
        return lambda process, seconds: load.anew(process, row.path, seconds, connections, resume, who)
    if row.front == "http2":
        message = folder / "message" if row.grpc else None
        if message is not None:
            message.write_bytes(MESSAGE)
        return lambda process, seconds: load.multiplexed(process, row.path, seconds, connections, streams, message, who)
    lua = load.script(folder, row.upload) if row.upload else None
    return lambda process, seconds: load.ask(process, row.path, seconds, connections, lua, row.size, who)


def table(name: str, row: Row, options: Options, found: dict[str, list[load.Figure]]) -> Table:
    """Of the figures of each candidate."""
    cpu = {each: [figure.each * 1e6 for figure in figures] for each, figures in found.items()}
    compared = bases(list(cpu))
    ratio = ratios(cpu, compared)
    heads = ("", "CPU µs/request", *(f"× {base}" for base in compared), "requests/s", "errors")
    rows: list[tuple[object, ...]] = [heads]
    for each, figures in found.items():
        rate = spread([figure.rate for figure in figures], ",.0f")
        rows.append((each, spread(cpu[each]), *ratio(each), rate, sum(figure.errors for figure in figures)))
    connections, streams = row.together(options)
    many = f"; {connections} connections" + (f" with {streams} requests each" if streams > 1 else "")
    return Table(name, row.title + many, rows, row.note)
