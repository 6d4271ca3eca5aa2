"""
Servers behind a gateway are killed, stand still and are started anew, under load: what do clients see of it?

    python bench/stories.py [--rate 2000] [--workers 0 2] [--judge healthCheck outliers all] [--calm 2]

Three servers, two of nginx and one of Node, get GETs at a fixed rate, through one process or several, and are judged by
health checks, by how requests go, or by both, with retries.  One after the other

- a server is killed (SIGKILL), and started again,
- a server stands still (SIGSTOP), and goes on,
- all are stopped as their makers want it, and started again, one after the other.

Told is what failed: in all, and of what was due after the gateway had found out, by its metrics, until the server was
back; and how long it took to find out.

Exit status 1 where a promise does not hold: after it was found out nothing fails; by a kill no more fails than the
gateway had connections to that server; by a restart in order nothing fails; with retries nothing fails at all; a server
that is back gets requests.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import signal
import sys
import time
import urllib.request
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

from diary import Diary, Page
from processes import PATIENCE, Process, binary, cells, free_port, settings, stage, until

GONE: Final = 0.5
"""Seconds that a server that was killed stays away after it was found out."""
AWAY: Final = 1.5
"""And one that stands still: longer than any answer is waited for."""
MARGIN: Final = 0.3
"""Seconds in which what one process has found out is known to all of them, and to us."""
CHECK: Final = {"interval": "500ms", "timeout": "400ms", "rise": 1, "fall": 2}
OUTLIERS: Final = {"consecutive": 3, "ejection": "2s", "maxEjection": "2s", "ramp": "500ms", "minRequests": 100000}
ALL: Final = "all"
JUDGES: Final[dict[str, dict[str, Any]]] = {
    "healthCheck": {"healthCheck": CHECK, "timeouts": {"connect": "500ms", "responseHead": "1s"}},
    "outliers": {"outliers": OUTLIERS, "timeouts": {"connect": "500ms", "responseHead": "500ms"}},
    ALL: {
        "healthCheck": CHECK,
        "outliers": OUTLIERS,
        "retry": {"on": ["reset", "timeout"], "perTry": "400ms"},
        "timeouts": {"connect": "500ms", "responseHead": "1s"},
    },
}
"""What is said of the upstream."""
PLAYS: Final = (
    ("killed", 0),
    ("killed", 1),
    ("frozen", 2),
    ("frozen", 1),
    ("restarted", 0),
    ("restarted", 1),
)
"""What is done to which server."""
NGINX: Final = """
master_process off; daemon off; pid {home}/pid; error_log stderr crit;
{user}events {{ worker_connections 4096; }}
http {{
  access_log off; keepalive_requests 1000000;
  client_body_temp_path {home}/b; proxy_temp_path {home}/p; fastcgi_temp_path {home}/f; uwsgi_temp_path {home}/u;
  scgi_temp_path {home}/s;
  server {{ listen 127.0.0.1:{port} backlog=4096; location / {{ return 200 "fine"; }} }}
}}
"""
NODE: Final = """
let leaves = false;
const server = require('node:http').createServer((request, response) => {
  setTimeout(() => {
    if (leaves) response.setHeader('connection', 'close');
    response.end('fine');
  }, 2);
});
server.keepAliveTimeout = 600000;
server.listen({port: %d, host: '127.0.0.1', backlog: 4096});
process.on('SIGTERM', () => {
  leaves = true;
  // Whom the kernel has accepted is taken first, in a turn of the loop: a port that closes resets him.
  setImmediate(() => setImmediate(() => server.close(() => process.exit(0))));
  setInterval(() => server.closeIdleConnections(), 50);
  // One that never had a request is not idle to Node; whoever has it finds out that nobody listens long before.
  setTimeout(() => server.closeAllConnections(), 5000);
});
"""


class Server:
    """
    One of those behind the gateway.

    @ivar port: where it listens, each time.
    """

    def __init__(self, folder: Path, name: str, processes: list[Process]) -> None:
        self.name, self.port = name, free_port()
        self._home = folder / f"{name}-{self.port}"
        self._home.mkdir()
        self._processes = processes
        if name == "nginx":
            self._polite = signal.SIGQUIT
            file = self._home / "nginx.conf"
            user = "user root;\n" if os.geteuid() == 0 else ""
            file.write_text(NGINX.format(home=self._home, port=self.port, user=user))
            program = _need("nginx")
            self._words = [program, "-p", str(self._home), "-e", "stderr", "-c", str(file)]
        else:
            self._polite = signal.SIGTERM
            file = self._home / "server.js"
            file.write_text(NODE % self.port)
            self._words = [_need("node"), str(file)]
        self.start()

    def start(self) -> None:
        """Begin, or begin again."""
        self._process = Process(self._words, "", self.port, self._home / "log")
        self._processes.append(self._process)

    def signal(self, number: int) -> None:
        """Send it one."""
        self._process.child.send_signal(number)

    def kill(self) -> None:
        """At once, and wait until it is gone."""
        self.signal(signal.SIGKILL)
        self._gone()

    def quit(self) -> None:
        """As its makers want it stopped."""
        self.signal(self._polite)
        self._gone()

    def _gone(self) -> None:
        self._process.child.wait(PATIENCE)
        self._processes.remove(self._process)

    def connections(self) -> int:
        """That others have to it."""
        wanted = f"0100007F:{self.port:04X}"
        lines = Path("/proc/net/tcp").read_text().splitlines()[1:]
        return sum(1 for line in lines if line.split()[2:4] == [wanted, "01"])


def _need(name: str) -> str:
    found = binary(name) or shutil.which(name)
    if found is None:
        raise SystemExit(f"{name} is not installed")
    return found


@dataclass(frozen=True)
class Scene:
    """
    What was done to a server, and when; seconds since the epoch.

    @ivar begun: when it was begun; C{done}: it was done; C{found}: the gateway had found out; C{back}: the server was
        there again; C{over}: it gets requests again.
    @ivar held: connections that the gateway had to it when it was begun.
    """

    name: str
    begun: float
    done: float
    found: float
    back: float
    over: float
    held: int


@dataclass(frozen=True)
class Figure:
    """
    What clients saw of a scene.

    @ivar failed: @ivar late: of C{asked}: those that failed, in all, and of what was due after it was found out.
    @ivar meanwhile: of C{asked}: those that were due while it was done, and may have a connection that nobody counted.
    @ivar slow: seconds in which 99 of 100 were answered, of those answered.
    """

    way: str
    scene: Scene
    asked: int
    failed: int
    late: int
    meanwhile: int
    slow: float
    what: Counter[str]

    def row(self) -> tuple[str, ...]:
        """Of the table."""
        scene = self.scene
        found = f"{scene.found - scene.begun:.1f} s" if scene.found else "—"
        what = ", ".join(f"{number} × {what}" for what, number in sorted(self.what.items())) or "—"
        counts = (f"{self.asked:,}", f"{scene.held}", found, f"{self.failed}", f"{self.late}")
        return (self.way, scene.name, *counts, what, f"{self.slow * 1e3:,.0f} ms")

    def faults(self) -> list[str]:
        """Promises that do not hold."""
        scene = self.scene
        found = []
        if self.late:
            found.append(f"{self.way}, {scene.name}: {self.late} failed that were due after it was found out")
        bounds = {"killed": scene.held + self.meanwhile, "restarted in order": 0}
        bound = bounds.get(scene.name.partition(":")[2].strip())
        if self.way.startswith(ALL):
            bound = 0
        if bound is not None and self.failed > bound:
            found.append(f"{self.way}, {scene.name}: {self.failed} failed, {bound} may")
        return found


HEADINGS: Final = (
    "judged by",
    "what happened",
    "requests",
    "connections to it",
    "found out after",
    "failed",
    "of them later",
    "how",
    "99 of 100 within",
)


class Stage:
    """
    A gateway before three servers, and what it says of them.

    @param workers: processes; 0 = one, without a supervisor.
    @param judge: one of L{JUDGES}.
    """

    def __init__(self, folder: Path, processes: list[Process], workers: int, judge: str) -> None:
        self.servers = [Server(folder, name, processes) for name in ("nginx", "node", "nginx")]
        self._admin, self.way = free_port(), f"{judge}, {workers or 'no'} workers"
        configuration = settings(0, workers=workers)
        configuration["admin"] = {"address": f"127.0.0.1:{self._admin}"}
        endpoints = [{"url": f"http://127.0.0.1:{server.port}"} for server in self.servers]
        configuration["upstreams"] = [{"name": "up", "endpoints": endpoints, **JUDGES[judge]}]
        self.port = int(configuration["listeners"][0]["address"].rpartition(":")[2])
        file = folder / f"gateway-{self.port}.json"
        file.write_text(json.dumps(configuration))
        self._log = file.with_suffix(".log")
        words = [sys.executable, "-m", "protogate", "run", "-c", str(file)]
        processes.append(Process(words, "", self.port, self._log))
        until("the gateway serves", lambda: all(self.share(server) == 1 for server in self.servers))
        if workers:
            until("all workers serve", lambda: f"{workers} workers serve" in self._log.read_text())

    def share(self, server: Server) -> float:
        """What is left to it, by the gateway's own word; -1 = that cannot be had."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self._admin}/metrics", timeout=5) as page:
                text = page.read().decode()
        except OSError:
            return -1.0
        found = re.search(rf'^protogate_endpoint_share{{.*127\.0\.0\.1:{server.port}".*}} (\S+)$', text, re.MULTILINE)
        return float(found[1]) if found else -1.0

    def _when(self, what: str, holds: Callable[[], bool]) -> float:
        until(f"{what}; the gateway says\n{self._log.read_text()[-3000:]}", holds)
        return time.time()

    def sudden(
        self, name: str, server: Server, do: Callable[[], object], undo: Callable[[], object], away: float
    ) -> Scene:
        """Something that the gateway has to find out."""
        begun = time.time()
        held = server.connections()
        do()
        done = time.time()
        found = self._when(f"{name} is found out", lambda: self.share(server) == 0)
        time.sleep(away)
        undo()
        back = time.time()
        over = self._when(f"{name}: it is back", lambda: self.share(server) == 1)
        return Scene(f"{server.name}: {name}", begun, done, found, back, over, held)

    def killed(self, server: Server) -> Scene:
        """SIGKILL."""
        return self.sudden("killed", server, server.kill, server.start, GONE)

    def frozen(self, server: Server) -> Scene:
        """SIGSTOP."""
        stop, go = (partial(server.signal, number) for number in (signal.SIGSTOP, signal.SIGCONT))
        return self.sudden("stands still", server, stop, go, AWAY)

    def restarted(self, server: Server) -> Scene:
        """Stopped as it wants to be, and started again; whether that is found out does not matter."""
        held, begun = server.connections(), time.time()
        server.quit()
        done = time.time()
        server.start()
        back = time.time()
        time.sleep(0.7)
        over = self._when("it is back", lambda: self.share(server) == 1)
        return Scene(f"{server.name}: restarted in order", begun, done, 0.0, back, over, held)


def told(way: str, scenes: Sequence[Scene], pages: Sequence[Page]) -> list[Figure]:
    """What clients saw of each scene: of what was under way, or began, from its begin to the next one's."""
    figures = []
    ends = [scene.begun for scene in scenes[1:]] + [float("inf")]
    for scene, end in zip(scenes, ends, strict=True):
        of = [page for page in pages if scene.begun <= page.due + page.took < end]
        failed = [page for page in of if not page.well]
        late = [page for page in failed if scene.found and scene.found + MARGIN <= page.due < scene.back]
        meanwhile = sum(scene.begun <= page.due <= scene.done for page in of)
        well = sorted(page.took for page in of if page.well)
        slow = well[int(len(well) * 0.99)] if well else 0.0
        what = Counter(page.what for page in failed)
        figures.append(Figure(way, scene, len(of), len(failed), len(late), meanwhile, slow, what))
    return figures


def tell(
    workers: int, judge: str, rate: float, calm: float, plays: Sequence[tuple[str, int]] = PLAYS
) -> tuple[list[Figure], list[str]]:
    """
    The stories of one gateway, and what is wrong with them.

    @param plays: methods of L{Stage}, and whom they are about.
    """
    with stage() as (folder, processes):
        gateway = Stage(folder, processes, workers, judge)
        diary = Diary(gateway.port, rate)
        try:
            time.sleep(calm)
            scenes = []
            for play, at in plays:
                scenes.append(getattr(gateway, play)(gateway.servers[at]))
                time.sleep(calm)
            served = [server.connections() for server in gateway.servers]
            pages = diary.close()
        finally:
            diary.stop()
    before = [page for page in pages if page.due + page.took < scenes[0].begun]
    figures = told(gateway.way, scenes, pages)
    faults = [fault for figure in figures for fault in figure.faults()]
    strange = sum(not page.well for page in before)
    if strange or not before:
        faults.append(f"{gateway.way}: {strange} of {len(before)} failed before anything had happened")
    faults += [f"{gateway.way}: nobody is connected to server {at}" for at, number in enumerate(served) if not number]
    return figures, faults


def main() -> None:
    """Tell them."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n", 1)[0])
    parser.add_argument("--rate", type=float, default=2000.0, help="requests a second (2000)")
    parser.add_argument("--workers", type=int, nargs="*", default=[0, 2], help="of the gateway; 0 = one process (0 2)")
    parser.add_argument("--judge", choices=sorted(JUDGES), nargs="*", default=list(JUDGES), help="who finds out (all)")
    parser.add_argument("--calm", type=float, default=2.0, help="seconds between two stories (2)")
    options = parser.parse_args()
    figures, faults = [], []
    for judge in options.judge:
        for workers in options.workers:
            more, wrong = tell(workers, judge, options.rate, options.calm)
            figures += more
            faults += wrong
    print(cells(HEADINGS, *(figure.row() for figure in figures)))
    for fault in faults:
        print(fault)
    raise SystemExit(bool(faults))


if __name__ == "__main__":
    main()
