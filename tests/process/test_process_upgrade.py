"""What one program leaves to the next, and the rehearsal."""

from __future__ import annotations

import os
import signal
import socket
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest
import pytest_twisted
from twisted.internet import reactor as installed
from twisted.logger import capturedLogs, formatEvent

from protogate.observe.snapshot import empty
from protogate.process import resume, upgrade
from protogate.process.child import Begun
from protogate.process.sockets import Kept
from protogate.process.upgrade import HELD, Begin, State

reactor: Any = installed
CONFIG = 'listeners: [{name: web, address: "127.0.0.1:0"}]\ngateway: {workers: 1}\n'


def state(path: Path, **more: Any) -> State:
    values: dict[str, Any] = {
        "begin": Begin(twistd=False),
        "path": str(path),
        "text": CONFIG.encode(),
        "stamp": None,
        "workers": 1,
        "sockets": [],
        "children": [],
        "counted": dict(empty()),
        **more,
    }
    return State(**values)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "gateway.yaml"
    path.write_text(CONFIG)
    return path


def test_the_next_program_reads_what_this_one_leaves(file: Path) -> None:
    left = state(
        file,
        sockets=[Kept("127.0.0.1", 80, "", "", False, [7, 8], ["web"])],
        children=[Begun(4711, 0, 1.5, 9, 10, 3, b"held", True, False, True, ["shop"], True)],
        posts={"shop": {"healthCheck 10.0.0.1:80": [0.0, "it answered 503", None]}},
        term=3,
        stamp=(1, 2, 3, 4),
        log=("/a.log", 11),
    )
    written = upgrade._written(left)
    number = os.dup(written.fileno())
    written.close()
    assert upgrade.read(number) == left
    assert sorted(upgrade._descriptors(left)) == [7, 8, 9, 10, 11]


def test_a_newer_program_reads_what_an_older_one_leaves() -> None:
    """Fields are only added, with defaults; these are those of the first release."""
    old = {
        "begin": {"twistd": True, "arguments": ["-n"], "reactor": "", "environ": {}},
        "path": "/a.yaml",
        "text": b"",
        "stamp": None,
        "workers": 2,
        "sockets": [
            {"host": "", "port": 0, "path": "/a", "name": "", "shared": True, "descriptors": [5], "listeners": ["a"]}
        ],
        "children": [{"pid": 1, "slot": 0, "born": 0.0, "line": 6, "errors": 7}],
        "counted": {},
    }
    read = msgspec.msgpack.decode(msgspec.msgpack.encode(old), type=State)
    assert read.children[0].pid == 1
    assert (read.posts, read.term, read.children[0].board, read.children[0].follows) == ({}, 0, False, [])
    assert msgspec.msgpack.decode(msgspec.msgpack.encode({**old, "later": 1}), type=State) == read


@pytest.mark.parametrize("here", [True, False])
def test_the_folder_a_process_is_in_is_searched_if_it_was_before(here: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    others = [path for path in sys.path if path not in ("", os.getcwd())]
    monkeypatch.setattr(sys, "path", [os.getcwd(), *others] if here else others)
    assert ("-P" in upgrade.arguments("a")) is not here


@pytest_twisted.ensureDeferred
async def test_a_rehearsal_says_nothing_when_all_is_well(file: Path) -> None:
    assert await upgrade.rehearse(reactor, state(file)) == ""


@pytest.mark.parametrize("how", ["file", "workers", "text", "reactor", "twistd"])
@pytest_twisted.ensureDeferred
async def test_a_rehearsal_says_why_it_will_not_do(file: Path, how: str) -> None:
    made = state(file)
    if how == "file":
        file.write_text("nonsense: 1\n" + CONFIG)
    elif how == "workers":  # all would leave, and nobody come
        file.write_text(CONFIG.replace("workers: 1", "workers: 0"))
    elif how == "text":
        made.text = b"nonsense: 1\n" + made.text
    elif how == "reactor":
        made.begin.reactor = "nonsense"
    else:
        made.begin.twistd, made.begin.arguments = True, ["--nonsense", "protogate"]
    why = await upgrade.rehearse(reactor, made)
    assert why.startswith("exit status 1\n")
    assert (
        "gateway.workers: from 0 to other numbers, or back, takes a restart" if how == "workers" else "nonsense"
    ) in why


@pytest.mark.parametrize("text", ["nonsense: 1\n" + CONFIG, CONFIG.replace("workers: 1", "workers: 0")])
def test_a_file_that_will_not_do_any_more_leaves_the_one_in_force(file: Path, text: str) -> None:
    file.write_text(text)
    with capturedLogs() as captured:
        found = resume._first(state(file), rehearse=False)
    assert found.config.gateway.workers == 1
    (event,) = captured
    assert "has faults, the configuration in force stays" in formatEvent(event)


@pytest_twisted.ensureDeferred
async def test_a_rehearsal_that_cannot_begin(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", str(file.parent / "none"))
    assert "No such file or directory" in await upgrade.rehearse(reactor, state(file))


@pytest_twisted.ensureDeferred
async def test_a_rehearsal_without_an_end_is_ended(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file.unlink()
    monkeypatch.setattr(upgrade, "TRIAL", 0.2)
    monkeypatch.setattr(upgrade, "command", lambda *_: [sys.executable, "-c", "import time; time.sleep(60)"])
    assert await upgrade.rehearse(reactor, state(file)) == "it took more than 0.2 s"


def test_what_cannot_be_executed_changes_nothing(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", str(file.parent / "none"))
    before = signal.pthread_sigmask(signal.SIG_BLOCK, ())
    with socket.socket() as kept:
        left = state(file, sockets=[Kept("127.0.0.1", 80, "", "", False, [kept.fileno()], ["web"])])
        with pytest.raises(FileNotFoundError):
            upgrade.become(left)
        assert not os.get_inheritable(kept.fileno())
        os.set_inheritable(kept.fileno(), True)
        upgrade.taken(left)
        assert not os.get_inheritable(kept.fileno())
    assert signal.pthread_sigmask(signal.SIG_BLOCK, ()) == before
    signal.pthread_sigmask(signal.SIG_BLOCK, HELD)
    upgrade.begun()
    assert not signal.pthread_sigmask(signal.SIG_BLOCK, ()) & HELD
