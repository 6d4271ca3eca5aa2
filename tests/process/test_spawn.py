"""Processes that are started, watched, and handed on."""

from __future__ import annotations

import os
import signal
import socket
import sys
from pathlib import Path
from typing import Any

import pytest
import pytest_twisted
from twisted.internet.defer import Deferred

from protogate.process.spawn import LINE, Watched, how, spawn

PROGRAM = f"""
import os, signal, socket, sys
line = socket.socket(fileno={LINE})
line.sendall(repr([sys.stdin.read(), os.environ.get('WORD'), signal.pthread_sigmask(signal.SIG_BLOCK, ())]).encode())
os.write(2, b'gone wrong')
line.recv(1)
sys.exit(3)
"""


def start(program: str, **environ: str) -> tuple[int, socket.socket, int]:
    ours, theirs = socket.socketpair()
    reads, writes = os.pipe()
    with theirs:
        pid = spawn([sys.executable, "-c", program], {**os.environ, **environ}, theirs.fileno(), writes)
    os.close(writes)
    return pid, ours, reads


def watch(pid: int) -> Deferred[int]:
    from twisted.internet import reactor  # noqa: F401 - it hears of SIGCHLD

    ended: Deferred[int] = Deferred()
    Watched(pid, ended.callback)
    return ended


@pytest_twisted.ensureDeferred
async def test_it_has_a_line_its_errors_and_nothing_else() -> None:
    other = os.open(os.devnull, os.O_RDONLY)
    os.set_inheritable(other, True)
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})
    try:
        pid, line, errors = start(PROGRAM, WORD="x")
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
    assert eval(line.recv(4096)) == ["", "x", set()]
    assert {int(name) for name in os.listdir(f"/proc/{pid}/fd")} == {0, 1, 2, LINE}
    line.sendall(b".")
    assert os.read(errors, 100) == b"gone wrong"
    assert await watch(pid) == 3 << 8
    line.close()
    os.close(errors)
    os.close(other)


@pytest_twisted.ensureDeferred
async def test_one_that_has_ended_before_it_is_watched() -> None:
    pid, line, errors = start("pass")
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    assert await watch(pid) == 0
    line.close()
    os.close(errors)


def test_one_whose_end_somebody_else_took() -> None:
    pid, line, errors = start("input()")
    told: list[int] = []
    watched = Watched(pid, told.append)
    os.waitpid(pid, 0)
    watched.reapProcess()
    assert told == [0]
    line.close()
    os.close(errors)


def test_what_cannot_be_started_leaves_nothing(tmp_path: Path) -> None:
    before = os.listdir("/proc/self/fd")
    with pytest.raises(FileNotFoundError):
        spawn([str(tmp_path / "none")], {}, 0, 0)
    assert os.listdir("/proc/self/fd") == before


@pytest.mark.parametrize(
    ("status", "told"),
    [(0, "exit status 0"), (3 << 8, "exit status 3"), (9, "signal SIGKILL"), (50, "signal 50")],
)
def test_what_became_of_one(status: int, told: Any) -> None:
    assert how(status) == told
