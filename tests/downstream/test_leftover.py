"""What a gateway that was killed leaves of a UNIX socket, where the next one has its process id."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from protogate.config.faults import ConfigFaults
from protogate.config.model import Listener
from protogate.downstream.leftover import clear
from protogate.process.sockets import Sockets


def leave(path: Path, pid: int) -> None:
    """As a process of that id that was killed."""
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(path))
        left.listen()
    os.symlink(str(pid), f"{path}.lock")


def test_what_a_process_with_our_id_left_is_taken_away(tmp_path: Path) -> None:
    leave(tmp_path / "a.sock", os.getpid())
    clear(str(tmp_path / "a.sock"))
    assert list(tmp_path.iterdir()) == []


def test_a_lock_without_its_socket_and_nothing_at_all(tmp_path: Path) -> None:
    os.symlink(str(os.getpid()), tmp_path / "a.sock.lock")
    for _ in range(2):
        clear(str(tmp_path / "a.sock"))
        assert list(tmp_path.iterdir()) == []


def test_a_file_that_is_no_socket_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "a.sock").write_text("something else")
    os.symlink(str(os.getpid()), tmp_path / "a.sock.lock")
    clear(str(tmp_path / "a.sock"))
    assert (tmp_path / "a.sock").read_text() == "something else"


@pytest.mark.parametrize("queue", [0, 5])
def test_a_socket_that_somebody_listens_on_stays_his_however_busy_he_is(tmp_path: Path, queue: int) -> None:
    path = tmp_path / "a.sock"
    with socket.socket(socket.AF_UNIX) as ours, socket.socket(socket.AF_UNIX) as waits:
        ours.bind(str(path))
        ours.listen(queue)
        waits.connect(str(path))
        os.symlink(str(os.getpid()), f"{path}.lock")
        clear(str(path))
        assert os.path.islink(f"{path}.lock")
        assert path.is_socket()


def test_the_lock_of_another_process_is_his(tmp_path: Path) -> None:
    leave(tmp_path / "a.sock", os.getppid())
    clear(str(tmp_path / "a.sock"))
    assert sorted(os.listdir(tmp_path)) == ["a.sock", "a.sock.lock"]


def test_a_supervisor_opens_what_one_with_its_id_left(tmp_path: Path) -> None:
    path = tmp_path / "a.sock"
    leave(path, os.getpid())
    entry = Listener(name="web", address=f"unix:{path}")
    sockets = Sockets()
    sockets.take(sockets.open([entry], 1))
    with pytest.raises(ConfigFaults, match="Cannot acquire lock"):
        Sockets().open([entry], 1)
    sockets.close()
    assert list(tmp_path.iterdir()) == []
