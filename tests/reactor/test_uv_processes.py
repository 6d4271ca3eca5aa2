"""What belongs to the whole process: children, signals, threads, and how the reactor is chosen.  Each in a process."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytest.importorskip("uvloop")

BIN = Path(sys.executable).parent


def run(source: str, *arguments: str, **more: str) -> subprocess.CompletedProcess[str]:
    """An interpreter's answer."""
    return subprocess.run(
        [sys.executable, "-c", source, *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={**os.environ, **more},
    )


CHILDREN = """
from protogate.reactor import uv
uv.install()
import sys
from twisted.internet import reactor
from twisted.internet.protocol import ProcessProtocol
from twisted.internet.utils import getProcessOutputAndValue

ended = []

class Silent(ProcessProtocol):
    def processEnded(self, reason):
        self.over(reason.value.exitCode)

    def over(self, code):
        ended.append(code)
        if len(ended) == 3:
            reactor.stop()

# One ends before the reactor runs, one has no pipes that could tell of its end, one is talked to.
reactor.spawnProcess(Silent(), sys.executable, [sys.executable, "-c", "raise SystemExit(3)"])
import time; time.sleep(0.3)
reactor.callWhenRunning(
    lambda: reactor.spawnProcess(
        Silent(), sys.executable, [sys.executable, "-c", "raise SystemExit(4)"], childFDs={0: 0, 1: 1, 2: 2}
    )
)
d = getProcessOutputAndValue(sys.executable, ["-c", "print('out'); raise SystemExit(5)"])
d.addCallback(lambda result: Silent().over(result[2]))
reactor.callLater(20, reactor.stop)
reactor.run()
print(sorted(ended))
"""


def test_children_are_reaped_with_and_without_pipes() -> None:
    done = run(CHILDREN)
    assert done.stdout == "[3, 4, 5]\n", done.stderr


THREADS = """
from protogate.reactor import uv
uv.install()
import threading
from twisted.internet import reactor
from twisted.internet.threads import deferToThread

seen = []

def work():
    for number in range(1000):
        reactor.callFromThread(seen.append, number)
    return threading.current_thread() is threading.main_thread()

def done(main):
    print(seen == list(range(1000)), main)
    reactor.stop()

deferToThread(work).addCallback(lambda main: reactor.callLater(0, done, main))
reactor.run()
"""


def test_threads_hand_work_over_in_order() -> None:
    done = run(THREADS)
    assert done.stdout == "True False\n", done.stderr


SIGNALS = """
from protogate.reactor import uv
uv.install()
import signal, sys
from twisted.internet import reactor

heard = []
signal.signal(signal.SIGHUP, lambda *_: (heard.append("hup"), print("hup", flush=True)))
reactor.callWhenRunning(lambda: reactor.callLater(0, lambda: print("ready", flush=True)))
reactor.addSystemEventTrigger("before", "shutdown", lambda: print("stopping", flush=True))
reactor.run()
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signals_are_heard_at_once_while_nothing_else_happens(number: signal.Signals) -> None:
    with subprocess.Popen([sys.executable, "-c", SIGNALS], stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
        time.sleep(0.1)  # the loop sleeps by now
        child.send_signal(signal.SIGHUP)
        assert child.stdout.readline() == "hup\n"
        child.send_signal(number)
        assert child.stdout.readline() == "stopping\n"
        child.wait(20)


def test_twistd_runs_on_it_also_as_a_daemon(tmp_path: Path) -> None:
    """The loop is made before twistd forks."""
    (tmp_path / "service.tac").write_text(
        """
import sys
from twisted.application.service import Application, Service
from twisted.internet import reactor
from twisted.internet.protocol import Factory, Protocol

class Echo(Protocol):
    def dataReceived(self, data):
        self.transport.write(data)

class Server(Service):
    def startService(self):
        port = reactor.listenTCP(0, Factory.forProtocol(Echo), interface="127.0.0.1")
        open("port", "w").write(f"{type(reactor).__name__} {port.getHost().port} ")

application = Application("echo")
Server().setServiceParent(application)
"""
    )
    twistd = [str(BIN / "twistd"), "--reactor=protogate-uv", "--pidfile=pid", "--logfile=log", "-y", "service.tac"]
    subprocess.run(twistd, cwd=tmp_path, check=True, timeout=60)
    _wait(lambda: (tmp_path / "port").exists() and (tmp_path / "port").read_text().endswith(" "))
    name, port, *_ = (tmp_path / "port").read_text().split()
    assert name == "UVReactor"
    pid = int((tmp_path / "pid").read_text())
    try:
        import socket

        for _ in range(3):
            with socket.create_connection(("127.0.0.1", int(port)), 10) as client:
                client.sendall(b"x")
                assert client.recv(1) == b"x"
    finally:
        os.kill(pid, signal.SIGTERM)
    _wait(lambda: not (tmp_path / "pid").exists())
    assert "Server Shut Down" in (tmp_path / "log").read_text()


def _wait(condition: object) -> None:
    deadline = time.monotonic() + 30
    while not condition():  # type: ignore[operator]
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_trial_runs_on_it(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(
        "from twisted.internet import reactor, task\n"
        "from twisted.trial.unittest import TestCase\n"
        "class It(TestCase):\n"
        "    def test_it(self):\n"
        "        self.assertEqual(type(reactor).__name__, 'UVReactor')\n"
        "        return task.deferLater(reactor, 0.01)\n"
    )
    done = subprocess.run(
        [BIN / "trial", "--reactor=protogate-uv", "test_it"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert "successes=1" in done.stdout, done.stdout + done.stderr
