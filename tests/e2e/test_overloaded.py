"""More work than a process can do: the important is answered, the rest is refused at once, nobody is turned away."""

from __future__ import annotations

import re
import resource
import threading
import time
from collections import Counter
from contextlib import ExitStack
from pathlib import Path

import pytest

from gateways import config, eventually, start, wire
from neighbours import Neighbours

PLUGIN = """
from protogate.interfaces import IModuleFactory
from protogate.plugins import Plugin
labour = Plugin(IModuleFactory, "labour", "labour.Factory")
"""
MODULE = """
import time
from zope.interface import implementer
from protogate.interfaces import IModule, IModuleFactory

@implementer(IModule)
class Labour:
    warnings = ()

    def process(self, exchange):
        end = time.thread_time() + 0.005
        while time.thread_time() < end:
            pass

@implementer(IModuleFactory)
class Factory:
    name = "labour"
    stages = ("PRE_UPSTREAM",)
    guards = False

    def build(self, params, stage=None):
        return Labour()
"""
OVERLOAD = {
    "priorities": [{"name": "important"}, {"name": "bulk", "when": "request.query['bulk'] == '1'"}],
    "lag": {"begin": "20ms", "full": "400ms"},
}
CLIENTS = 24


def test_a_loop_that_is_late_sheds_what_is_less_important(
    neighbours: Neighbours, node: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plugins = tmp_path / "twisted" / "plugins"
    plugins.mkdir(parents=True)
    (plugins / "labour_plugin.py").write_text(PLUGIN)
    (tmp_path / "labour.py").write_text(MODULE)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    settings = config(
        node, gateway={"overload": OVERLOAD}, modules=[{"name": "labour"}], accessLog={"file": "access.log"}
    )
    gateway = start(neighbours, settings)
    statuses: dict[str, Counter[int]] = {"0": Counter(), "1": Counter()}
    told: set[bytes] = set()
    over = threading.Event()

    def ask(bulk: str) -> None:
        with wire(gateway.port) as client:
            while not over.is_set():
                client.send(f"GET /hello?bulk={bulk} HTTP/1.1\r\nHost: a\r\n\r\n".encode())
                head, _ = client.answer()
                statuses[bulk][int(head[9:12])] += 1
                told.update(re.findall(rb"(?i)\r\nretry-after: (\d+)\r\n", head))

    threads = [threading.Thread(target=ask, args=(str(number % 2),)) for number in range(CLIENTS)]
    for thread in threads:
        thread.start()
    try:
        eventually(lambda: statuses["1"][503] > 20, "bulk is shed")
    finally:
        over.set()
        for thread in threads:
            thread.join()
    served = [each[200] / each.total() for each in statuses.values()]
    assert served[0] > served[1], statuses
    assert set(statuses["0"]) | set(statuses["1"]) <= {200, 503}
    assert told <= {b"1", b"2", b"3"}
    gateway.says("overloaded (lag)")
    assert {"important", "bulk"} >= {record["notes"]["shed"] for record in gateway.records() if record["status"] == 503}
    gateway.healthy()


def test_a_client_too_many_waits_and_is_not_turned_away(neighbours: Neighbours, node: int) -> None:
    overload = {"connections": {"begin": 48, "full": 50}, "lag": {"full": "0"}}
    settings = config(node, gateway={"limits": {"connections": 320}, "overload": overload})
    gateway = start(neighbours, settings)
    with ExitStack() as stack:
        clients = [stack.enter_context(wire(gateway.port)) for _ in range(240)]
        for client in clients:
            client.send(b"GET /hello HTTP/1.1\r\nHost: a\r\n\r\n")
        answers = Counter(client.answer()[1] for client in clients)  # those that were served are let go: others come
    served = answers.pop(b"hello\n")
    # While more than enough are busy at once some are refused, in words; on a quick machine nobody is.
    assert all(b'"detail":"overloaded"' in each for each in answers)
    assert served >= 120
    gateway.says("listener web: nothing is accepted for now")
    gateway.healthy()


def test_a_process_that_runs_out_of_descriptors_accepts_nothing_until_it_has_some(
    neighbours: Neighbours, node: int
) -> None:
    overload = {"descriptors": {"begin": 60, "full": 70}, "lag": {"full": "0"}}
    gateway = start(neighbours, config(node, gateway={"overload": overload}))
    resource.prlimit(gateway.running.pid, resource.RLIMIT_NOFILE, (200, 200))
    with ExitStack() as stack:
        clients = []
        while "nothing is accepted for now" not in gateway.log:
            clients.append(stack.enter_context(wire(gateway.port)))
            assert len(clients) < 200, "it took more than it can have"
            time.sleep(0.005)
        late = stack.enter_context(wire(gateway.port))
        late.send(b"GET /hello HTTP/1.1\r\nHost: a\r\n\r\n")
        for client in clients[len(clients) // 2 :]:
            client.socket.close()
        assert late.answer()[0].startswith((b"HTTP/1.1 200", b"HTTP/1.1 503"))
    gateway.healthy()
