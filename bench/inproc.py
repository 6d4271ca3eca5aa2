r"""
What a request costs in the gateway's own code: no kernel, no network, no other process.

    python bench/inproc.py [--only get,governed] [--requests 20000] [--rounds 5] [--connections 16]
    python bench/inproc.py --instructions [--keep callgrind.out]        (needs valgrind)
    python bench/inproc.py --allocations                                (needs valgrind)

The real service on a reactor of memory: bytes of requests go into the server codec, what comes out of the client codec
is answered with bytes, and what comes out of the server codec is looked at.  All connections ask in each turn, as they
do under load.

Rows
    codecs     server codec and client codec, one handed to the other: no exchange, no pool, no record
    pool       the same, and the pool between them
    get        the whole gateway: exchange, rule, forwarding, pool, ledger, record and its line of the access log
    governed   the same with 3,000 rules, an accessList of 10,000 networks and two header modules (configuration.py)
    post       an upload of 10 KiB
    download   an answer of 100 KiB, in two reads

Figures
    µs             CPU time of the process per request: the least of all rounds, which are interleaved
    --instructions instructions per request, as valgrind counts them: the same on each run within half a per cent,
                   whatever else the machine does, so that small changes show
    --allocations  blocks and bytes that a request takes from malloc (what the interpreter keeps in free lists is none)
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from itertools import repeat
from pathlib import Path
from typing import Any, Final

from twisted.internet.defer import Deferred, succeed
from twisted.internet.protocol import ClientFactory, Protocol

import configuration
from processes import binary, cells
from protogate.build import build
from protogate.config.model import PoolSettings
from protogate.context import Context
from protogate.exchange.exchange import Exchange
from protogate.interfaces import IService, IStreamCodec
from protogate.observe.record import encode, record
from protogate.plugins import find
from protogate.service import GatewayService
from protogate.testing.names import Names
from protogate.testing.reactor import MemoryReactor
from protogate.testing.transport import Link, Wire
from protogate.upstream.pool import Pool
from protogate.wheel import Wheel

LISTEN, ORIGIN, ADMIN = 8080, 8081, 8082
READ: Final = 65536
"""Bytes that a transport reads at once."""
LINE: Final = b" /api/v1/orders/4711?verbose=1 HTTP/1.1\r\n"
FIELDS: Final = b"Host: shop.example:8080\r\nUser-Agent: inproc/1.0\r\nAccept: */*\r\n"
ANSWER: Final = (
    b"HTTP/1.1 200 OK\r\nServer: nginx/1.22.1\r\nDate: Mon, 30 Nov 2026 01:00:00 GMT\r\n"
    b"Content-Type: application/json\r\nContent-Length: %d\r\nConnection: keep-alive\r\n\r\n"
)
SMALL: Final = 200
WARM: Final = 50
"""Turns before anything is measured: caches fill, bytecode adapts."""


class Quick(Wire):
    """A transport that costs next to nothing: what is written stands in C{sent}, and nobody ever pauses."""

    def __init__(self, *args: Any, **named: Any) -> None:
        super().__init__(*args, **named)
        self.sent: list[bytes] = []
        self.write = self.sent.append


class Reactor(MemoryReactor):
    """Joins protocols by L{Quick} wires, and carries nothing."""

    def join(self, a: Any, b: Any, here: Any, there: Any) -> Link:
        """See L{MemoryReactor.join}."""
        link = Link(a, b, client=here, server=there, wire=Quick)
        self.links.append(link)
        return link


class Silent(Protocol):
    """The far end of a connection: the bench speaks for it."""

    def dataReceived(self, data: bytes) -> None:
        """Never called: nothing is carried."""
        raise AssertionError("nothing is carried")


class Recording(GatewayService):
    """Makes the line of every record at once, where the access log's thread would; nothing is written."""

    lines = 0

    def _record(self, exchange: Exchange) -> None:
        super()._record(exchange)
        encode(record(exchange))
        self.lines += 1


def message(method: bytes, body: int, answer: int) -> tuple[bytes, bytes]:
    """A request and its answer, with bodies of so many bytes."""
    length = b"Content-Length: %d\r\n" % body if body else b""
    return method + LINE + FIELDS + length + b"\r\n" + b"u" * body, ANSWER % answer + b"d" * answer


class Row:
    """
    One way through the code, with its connections open.

    @param body: bytes that the client sends.
    @param answer: bytes that the upstream sends.
    """

    def __init__(self, name: str, body: int = 0, answer: int = SMALL) -> None:
        self.name, self.took = name, float("inf")
        request, response = message(b"POST" if body else b"GET", body, answer)
        self._request, self._least = request, answer
        self._pieces = [response[at : at + READ] for at in range(0, len(response), READ)]
        self._clients: list[tuple[Callable[[bytes], None], list[bytes]]] = []
        self._origins: list[tuple[Callable[[bytes], None], list[bytes]]] = []
        self.lines: Callable[[], int | None] = lambda: None
        self.service: Any = None  # held, like all else that a process holds

    def client(self, protocol: Any) -> None:
        """A connection on which is asked."""
        self._clients.append((protocol.dataReceived, protocol.transport.sent))

    def origin(self, protocol: Any) -> None:
        """A connection on which is answered."""
        self._origins.append((protocol.dataReceived, protocol.transport.sent))

    def begin(self, dial: Callable[[], object]) -> None:
        """The first requests: C{dial} makes the connection that each of them waits for."""
        for ask, _ in self._clients:
            ask(self._request)
            dial()

    def turns(self, count: int) -> None:
        """Every connection asks so many times."""
        request, pieces, clients, origins = self._request, self._pieces, self._clients, self._origins
        for _ in range(count):
            for ask, _sent in clients:
                ask(request)
            for answer, sent in origins:
                if sent:
                    sent.clear()
                    for piece in pieces:
                        answer(piece)
            for _ask, sent in clients:
                if not sent:
                    raise SystemExit(f"{self.name}: a request was not answered")
                sent.clear()

    def check(self) -> None:
        """
        One more turn, looked at closely.

        @raise SystemExit: a request did not arrive as it should, or its answer did not.
        """
        for ask, _ in self._clients:
            ask(self._request)
        length = self._request.partition(b"\r\n\r\n")[2]
        asked = 0
        for answer, sent in self._origins:
            if sent:
                asked += 1
                told, sent[:] = b"".join(sent), []
                if LINE not in told or not told.endswith(b"\r\n\r\n" + length):
                    raise SystemExit(f"{self.name}: the upstream was asked {told[:200]!r}")
                for piece in self._pieces:
                    answer(piece)
        if asked != len(self._clients):
            raise SystemExit(f"{self.name}: {asked} of {len(self._clients)} requests reached the upstream")
        for _, sent in self._clients:
            told, sent[:] = b"".join(sent), []
            if not told.startswith(b"HTTP/1.1 200 ") or not told.endswith(b"\r\n\r\n" + b"d" * self._least):
                raise SystemExit(f"{self.name}: the client was answered {told[:200]!r}")

    def ask(self, requests: int) -> None:
        """One round; remembers the shortest."""
        turns = max(requests // len(self._clients), 1)
        before, begun = self.lines(), time.process_time()
        self.turns(turns)
        took = time.process_time() - begun
        after = self.lines()
        if before is not None and after is not None and after - before != turns * len(self._clients):
            raise SystemExit(f"{self.name}: {after - before} records of {turns * len(self._clients)} requests")
        self.took = min(self.took, took / turns / len(self._clients))


# -- what stands between the two codecs


def bare(name: str, connections: int, now: Callable[[], float], *, pooled: bool) -> Row:
    """Codec to codec; with a pool between them, or each connection with one of its own."""
    row, codec = Row(name), find(IStreamCodec, "http1")
    context = Context(Wheel(Reactor(), now=now))

    def dial(ready: Callable[[Any], None]) -> Any:
        protocol: Any = codec.client(ready, context)
        Link(protocol, Silent(), wire=Quick)
        row.origin(protocol)
        return protocol

    class Connector:
        def connect(self, ready: Callable[[Any], None], times: object) -> Deferred[None]:
            dial(ready)
            return succeed(None)

    pool = Pool(Connector(), context, PoolSettings(max_per_endpoint=connections))
    for _ in range(connections):
        service: IService = pool if pooled else dial(lambda connection: None)
        protocol: Any = codec.server(service, context)
        Link(Silent(), protocol, wire=Quick)
        row.client(protocol)
    return row


class Ends(ClientFactory[Silent]):
    """The far ends of the gateway's connections, on either side."""

    noisy = False
    protocol = Silent


def whole(name: str, connections: int, now: Callable[[], float], settings: dict[str, Any], **sizes: int) -> Row:
    """The service, with a configuration."""
    row, reactor, ends = Row(name, **sizes), Reactor(), Ends()
    with tempfile.TemporaryDirectory(prefix="protogate-inproc-") as folder:
        path = Path(folder, "gateway.json")
        path.write_text(json.dumps(settings))
        service = Recording(str(path), build(str(path)), reactor, now=now, signals=False, dns=Names({}))
    reactor.listenTCP(ORIGIN, ends, interface="127.0.0.1")
    service.startService()
    for _ in range(connections):
        reactor.connectTCP("127.0.0.1", LISTEN, ends)
        reactor.run()
        row.client(reactor.links[-1].ends[1][0])
    del reactor.links[:]
    row.begin(reactor.run)
    for link in reactor.links:
        row.origin(link.ends[0][0])
    row.lines = lambda: service.lines
    row.service = service
    return row


ROWS: Final[dict[str, Callable[..., Row]]] = {
    "codecs": lambda *how: bare("codecs", *how, pooled=False),
    "pool": lambda *how: bare("pool", *how, pooled=True),
    "get": lambda *how: whole("get", *how, configuration.plain(LISTEN, ORIGIN)),
    "governed": lambda *how: whole("governed", *how, configuration.governed(LISTEN, ORIGIN, ADMIN)),
    "post": lambda *how: whole("post", *how, configuration.plain(LISTEN, ORIGIN), body=10 * 1024),
    "download": lambda *how: whole("download", *how, configuration.plain(LISTEN, ORIGIN), answer=100 * 1024),
}


def ready(name: str, connections: int, now: Callable[[], float]) -> Row:
    """A row that has been looked at, and is warm."""
    row = ROWS[name](connections, now)
    row.turns(2)
    row.check()
    row.turns(WARM)
    return row


def settle() -> None:
    """What C{protogate run} does when all is made: the collector need not look at it again and again."""
    gc.collect()
    gc.freeze()


def times(names: Sequence[str], connections: int, requests: int, rounds: int) -> list[Row]:
    """Rows with their CPU time per request."""
    rows = [ready(name, connections, time.monotonic) for name in names]
    settle()
    for _ in range(rounds):
        for row in rows:
            row.ask(requests)
    for row in rows:
        row.check()
    return rows


# -- under valgrind

STILL: Final = 1000.0
"""What the clock says there: a real one would be a system call, and print other digits each time."""


def control(*arguments: str) -> None:
    """Tell the callgrind that runs us."""
    subprocess.run(["callgrind_control", *arguments, str(os.getpid())], check=True, capture_output=True, timeout=120)


def counted(name: str, connections: int, requests: int) -> None:
    """In a child: one profile of nothing, then one of so many requests; between them lies nothing else."""
    row = ready(name, connections, repeat(STILL).__next__)
    settle()
    gc.disable()  # it runs every 700 containers that stay, whatever request that falls into
    if os.environ[TOOL] != "callgrind":
        row.turns(max(requests // connections, 1))
        return
    control("--instr=on")
    control("--dump=start")
    control("--dump=nothing")
    row.turns(max(requests // connections, 1))
    control("--dump=requests")
    control("--instr=off")


TOOL: Final = "INPROC_VALGRIND"


def valgrind(tool: str, name: str, connections: int, requests: int, *options: str, **more: str) -> str:
    """Run ourselves under it; returns what it says at the end."""
    program = binary("valgrind")
    if program is None:
        raise SystemExit("valgrind is missing (Debian: apt-get install valgrind)")
    child = ["--child", name, f"--connections={connections}", f"--requests={requests}"]
    done = subprocess.run(
        [program, f"--tool={tool}", *options, sys.executable, __file__, *child],
        env={**os.environ, "PYTHONHASHSEED": "0", TOOL: tool, **more},
        capture_output=True,
        text=True,
        check=False,
        timeout=900,
    )
    if done.returncode:
        raise SystemExit(f"{name} under {tool}:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    return done.stderr


def instructions(name: str, connections: int, requests: int, keep: str = "") -> float:
    """
    Per request.

    @param keep: where the profile of the requests goes, for callgrind_annotate.
    """
    with tempfile.TemporaryDirectory(prefix="protogate-inproc-") as folder:
        out = Path(folder, "out")
        valgrind("callgrind", name, connections, requests, "--instr-atstart=no", f"--callgrind-out-file={out}")
        totals: dict[str, int] = {}
        for path in Path(folder).iterdir():
            text = path.read_text()
            trigger = re.search(r"^desc: Trigger: (.*)$", text, re.MULTILINE)
            total = re.search(r"^(?:summary|totals): (\d+)", text, re.MULTILINE)
            if trigger and total:
                label = trigger[1].rpartition(" ")[2]
                totals[label] = int(total[1])
                if keep and label == "requests":
                    Path(keep).write_text(text)
    each = max(requests // connections, 1) * connections
    return (totals["requests"] - totals["nothing"]) / each


HEAP: Final = re.compile(r"total heap usage: ([\d,]+) allocs, [\d,]+ frees, ([\d,]+) bytes allocated")


def allocations(name: str, connections: int, requests: int) -> tuple[float, float]:
    """Of blocks and of bytes, per request: the difference between two runs of different length."""
    found = []
    for many in (connections, connections + requests):
        told = valgrind("memcheck", name, connections, many, "--undef-value-errors=no", PYTHONMALLOC="malloc")
        match = HEAP.search(told)
        if match is None:
            raise SystemExit(f"memcheck does not tell of the heap:\n{told[-2000:]}")
        found.append([int(number.replace(",", "")) for number in match.groups()])
    each = max((connections + requests) // connections, 1) * connections - connections
    return (found[1][0] - found[0][0]) / each, (found[1][1] - found[0][1]) / each


def main() -> None:
    """Run it and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default=",".join(ROWS), help="rows, with commas (default: all)")
    parser.add_argument("--requests", type=int, help="of a round (default: 10000; 1600 under valgrind)")
    parser.add_argument("--rounds", type=int, default=7, help="of which the best counts (default: 7)")
    parser.add_argument("--connections", type=int, default=16, help="that ask in each turn (default: 16)")
    parser.add_argument("--instructions", action="store_true", help="count instructions, with callgrind")
    parser.add_argument("--keep", default="", metavar="FILE", help="with --instructions and one row: its profile")
    parser.add_argument("--allocations", action="store_true", help="count what is taken from malloc, with memcheck")
    parser.add_argument("--child", metavar="ROW", help=argparse.SUPPRESS)
    options = parser.parse_args()
    connections = options.connections
    if options.child:
        counted(options.child, connections, options.requests)
        return
    names = options.only.split(",")
    for name in names:
        if name not in ROWS:
            parser.error(f"no row {name!r}; there are {', '.join(ROWS)}")
    requests = options.requests or (1_600 if options.instructions or options.allocations else 10_000)
    rows: list[tuple[object, ...]] = []
    if options.instructions:
        rows = [("row", "instructions/request")]
        rows += [(name, f"{instructions(name, connections, requests, options.keep):,.0f}") for name in names]
    elif options.allocations:
        rows = [("row", "blocks/request", "bytes/request")]
        for name in names:
            blocks, size = allocations(name, connections, requests)
            rows.append((name, f"{blocks:,.1f}", f"{size:,.0f}"))
    else:
        rows = [("row", "µs/request")]
        rows += [(row.name, f"{row.took * 1e6:.2f}") for row in times(names, connections, requests, options.rounds)]
    print(cells(*rows), end="")


if __name__ == "__main__":
    main()
