"""
Hold the event loop of a process up in ways that are asked for, and print what L{protogate.observe.blocked} says.

    python held_up.py REACTOR WAY…

One line of JSON for each C{way}: C{counts}, what was counted, C{modules}, what of it for modules, and C{told}, each
event with its C{place} and its C{text}.
"""

from __future__ import annotations

import gc
import json
import linecache
import os
import re
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from twisted.application.reactors import installReactor

REST = 0.15
"""Seconds before and after each."""
NAP = 0.6
"""Seconds: far more than what counts, since a busy machine may let us stand still meanwhile, which is left out."""
MODULE = """
import time

def fetch(seconds):
    time.sleep(seconds)

def process(exchange):
    fetch(%s)
"""
CONFIG = """
listeners: [{name: web, address: "127.0.0.1:8080"}]
routes: [{value: /, matcherType: prefix, routes: [{targets: [{url: "http://192.0.2.7:80"}]}]}]
modules: [{name: slow, stage: PRE_REQUEST}]
"""


def asleep() -> None:
    """As a module does that uses a blocking client."""
    time.sleep(NAP)


def again() -> None:
    """The same once more."""
    asleep()


def at_work() -> None:
    """Python code that computes: lets other threads run, but not the loop."""
    end = time.thread_time() + 0.2
    while time.thread_time() < end:
        pass


def in_c() -> None:
    """A C function that lets nobody run."""
    again = "a" * 22 + "b"
    end = time.thread_time() + 0.2
    while time.thread_time() < end:
        began = time.thread_time()
        re.fullmatch(r"(a+)+", again)
        again = again if time.thread_time() - began > 0.15 else "a" + again


def child() -> None:
    """Waits for another process, by a selector of its own."""
    subprocess.run([sys.executable, "-S", "-c", f"import time; time.sleep({NAP})"], capture_output=True, check=True)


def collect() -> None:
    """The garbage collector, on a heap that takes it long."""
    heap = [[each] for each in range(1_500_000)]
    began = time.thread_time()
    gc.collect()
    while time.thread_time() - began < 0.2:
        gc.collect()
    del heap


def stopped() -> None:
    """The whole process stands still while it waits: nobody's fault."""
    words = f"kill -STOP {os.getpid()}; sleep 0.5; kill -CONT {os.getpid()}"
    subprocess.Popen(["sh", "-c", f"sleep 0.1; {words}"], start_new_session=True)


def stopped_at_work() -> None:
    """The whole process stands still while a call blocks."""
    stopped()
    time.sleep(0.7)


def busy() -> None:
    """A long turn with many exchanges: each of them is quick."""
    for _ in range(40):
        time.sleep(0.008)
        counters.count("exchanges")


def one_of_many() -> None:
    """A long turn with many exchanges: one of them blocks."""
    asleep()
    busy()


def stuck() -> None:
    """So long that it is told meanwhile."""
    time.sleep(2.5)
    print(json.dumps({"way": "meanwhile", "told": len(told)}), flush=True)


def module() -> None:
    """A module of a gateway that serves a request."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "acme_slow.py").write_text(MODULE % NAP)
        sys.path.insert(0, folder)
        import acme_slow  # type: ignore[import-not-found]

        with installed(slow=acme_slow.process), MemoryGateway(CONFIG) as gateway:
            gateway.ask(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        linecache.checkcache()
        linecache.getlines(acme_slow.__file__)  # while it is still there


told: list[dict[str, Any]] = []
counters: Any = None


def main() -> None:
    """Run them, one after the other."""
    from twisted.internet.defer import inlineCallbacks
    from twisted.internet.task import deferLater
    from twisted.logger import LogEvent, formatEvent, globalLogPublisher

    from protogate.observe.blocked import Blocked
    from protogate.observe.counters import Counters

    def observe(event: LogEvent) -> None:
        if event["log_namespace"] == "protogate.observe.blocked":
            told.append({"place": event.get("place"), "text": formatEvent(event)})

    globalLogPublisher.addObserver(observe)
    global counters
    counters = Counters()
    blocked = Blocked(reactor, counters, modules=lambda: {"acme_slow": "slow"})
    gc.collect()
    gc.freeze()

    @inlineCallbacks
    def run() -> Any:
        for name in sys.argv[2:]:
            way: Callable[[], None] = globals()[name]
            yield deferLater(reactor, REST, lambda: None)
            counters.counts.clear()
            told.clear()
            yield deferLater(reactor, 0.0, way)
            yield deferLater(reactor, REST + (0.7 if name.startswith("stopped") else 0.0), lambda: None)
            modules = counters.snapshot()["counts"].get("module")
            print(json.dumps({"way": name, "counts": counters.counts, "modules": modules, "told": told}), flush=True)
        blocked.stop()
        yield deferLater(reactor, REST, lambda: None)
        left = [thread.name for thread in threading.enumerate() if "watch" in thread.name]
        print(json.dumps({"way": "end", "left": left}), flush=True)
        reactor.stop()

    def begin() -> None:
        blocked.start()
        run()

    reactor.callWhenRunning(begin)
    reactor.run()


if __name__ == "__main__":
    installReactor(sys.argv[1])
    if "module" in sys.argv:  # not meanwhile: it takes its time, too
        from edge import installed

        from protogate.testing.gateway import MemoryGateway
    from twisted.internet import reactor as _installed

    reactor: Any = _installed
    main()
