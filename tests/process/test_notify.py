from __future__ import annotations

import os
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from twisted.internet.task import Clock
from twisted.logger import capturedLogs

from protogate.process.notify import Notify


class Manager:
    """The service manager's end."""

    def __init__(self, where: str) -> None:
        self.where = where
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind("\0" + where[1:] if where.startswith("@") else where)
        self.socket.setblocking(False)

    def heard(self) -> list[dict[str, str]]:
        messages = []
        while True:
            try:
                data = self.socket.recv(65536)
            except BlockingIOError:
                return messages
            messages.append(dict(line.split("=", 1) for line in data.decode().split("\n")))


@pytest.fixture(params=["path", "abstract"])
def manager(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Manager]:
    where = os.fspath(tmp_path / "notify") if request.param == "path" else f"@protogate/{os.getpid()}/{tmp_path.name}"
    made = Manager(where)
    yield made
    made.socket.close()


@pytest.fixture
def notify(manager: Manager) -> Iterator[Notify]:
    made = Notify.take({"NOTIFY_SOCKET": manager.where})
    yield made
    made.close()


def environment(**more: str) -> dict[str, str]:
    return {"PATH": "/bin", **more}


def test_each_state_is_told_as_sd_notify_has_it(manager: Manager, notify: Notify) -> None:
    assert notify.wanted
    notify.ready("serving")
    notify.stopping()
    notify.status("draining: 3 requests under way")
    notify.main(4711)
    notify.alive()
    assert manager.heard() == [
        {"READY": "1", "STATUS": "serving"},
        {"STOPPING": "1"},
        {"STATUS": "draining: 3 requests under way"},
        {"MAINPID": "4711"},
        {"WATCHDOG": "1"},
    ]


def test_a_reload_says_when_it_began(manager: Manager, notify: Notify) -> None:
    before = time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000
    notify.reloading("loading")
    after = time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000
    (told,) = manager.heard()
    assert before <= int(told.pop("MONOTONIC_USEC")) <= after
    assert told == {"RELOADING": "1", "STATUS": "loading"}


def test_a_status_is_one_line_and_nothing_else(manager: Manager, notify: Notify) -> None:
    notify.status("two\nlines\r\nMAINPID=1\0 é\udcff")
    assert manager.heard() == [{"STATUS": "two lines MAINPID=1  é?"}]


def test_the_environment_no_longer_has_the_variables() -> None:
    environ = environment(NOTIFY_SOCKET="/nowhere", WATCHDOG_USEC="1000", WATCHDOG_PID="1")
    Notify.take(environ)
    assert environ == environment()


@pytest.mark.parametrize("where", [None, "", "vsock:2:1234", "relative/path"])
def test_nothing_happens_where_nobody_asked(where: str | None) -> None:
    clock = Clock()
    notify = Notify.take(environment(WATCHDOG_USEC="1000", **({} if where is None else {"NOTIFY_SOCKET": where})))
    notify.ready("serving")
    notify.watch(clock)
    assert not notify.wanted
    assert notify.interval == 0
    assert clock.getDelayedCalls() == []
    assert notify._socket is None
    notify.close()


@pytest.mark.parametrize(
    ("usec", "pid", "interval"),
    [
        ("30000000", None, 15.0),
        ("30000000", "4711", 15.0),
        ("1", "4711", 5e-7),
        ("30000000", "4712", 0.0),
        ("0", "4711", 0.0),
        ("", None, 0.0),
        ("many", None, 0.0),
        ("-5", None, 0.0),
        ("٣", None, 0.0),
    ],
)
def test_the_watchdog_is_fed_twice_as_often_as_it_must_be(usec: str, pid: str | None, interval: float) -> None:
    environ = environment(NOTIFY_SOCKET="@nowhere", WATCHDOG_USEC=usec)
    if pid is not None:
        environ["WATCHDOG_PID"] = pid
    assert Notify.take(environ, 4711).interval == interval


def watched(manager: Manager) -> tuple[Notify, Clock]:
    environ = environment(NOTIFY_SOCKET=manager.where, WATCHDOG_USEC="20000000", WATCHDOG_PID=str(os.getpid()))
    return Notify.take(environ), Clock()


def test_signs_of_life_come_while_the_loop_turns_and_all_is_well(manager: Manager) -> None:
    notify, clock = watched(manager)
    well = [True]
    notify.watch(clock, lambda: well[0])
    notify.watch(clock)  # once is enough
    assert manager.heard() == [{"WATCHDOG": "1"}]
    clock.advance(9.9)
    assert manager.heard() == []
    clock.advance(0.1)
    assert manager.heard() == [{"WATCHDOG": "1"}]
    well[0] = False
    clock.advance(10)
    assert manager.heard() == []
    well[0] = True
    clock.advance(10)
    assert manager.heard() == [{"WATCHDOG": "1"}]
    notify.close()
    clock.advance(100)
    assert manager.heard() == []
    assert clock.getDelayedCalls() == []


def test_who_cannot_say_whether_all_is_well_is_not_alive(manager: Manager, flush_errors: Any) -> None:
    notify, clock = watched(manager)
    notify.watch(clock, lambda: bool(1 / 0))
    clock.advance(100)
    assert manager.heard() == []
    assert len(flush_errors(ZeroDivisionError)) == 1
    notify.close()


def test_after_the_end_nothing_is_told(manager: Manager, notify: Notify) -> None:
    notify.ready()
    notify.close()
    notify.ready()
    notify.close()
    assert manager.heard() == [{"READY": "1"}]


@pytest.mark.parametrize("where", ["/nowhere/at/all", "@nobody-listens-there", "/" + "x" * 200])
def test_a_manager_that_is_not_there_is_told_of_once_and_harms_nobody(where: str) -> None:
    notify = Notify.take({"NOTIFY_SOCKET": where})
    with capturedLogs() as events:
        for _ in range(3):
            notify.ready("serving")
    assert len(events) == 1
    notify.close()


def test_a_manager_that_does_not_read_holds_nobody_up(manager: Manager, notify: Notify) -> None:
    with capturedLogs() as events:
        for _ in range(5000):
            notify.status("x" * 1000)
    assert len(events) == 1
    assert len(manager.heard()) < 5000
    notify.ready()  # it reads again
    assert manager.heard() == [{"READY": "1"}]


def test_no_child_has_the_socket(manager: Manager, notify: Notify) -> None:
    notify.ready()
    assert notify._socket is not None
    assert not os.get_inheritable(notify._socket.fileno())
