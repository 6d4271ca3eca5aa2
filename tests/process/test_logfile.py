"""The access log that a supervisor keeps open for its workers."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from protogate.config.model import AccessLog
from protogate.errors import ConfigError
from protogate.process.logfile import LogFile


def is_open(descriptor: int) -> bool:
    try:
        os.fstat(descriptor)
    except OSError:
        return False
    return True


def test_the_same_file_stays_open_and_another_takes_its_place(tmp_path: Path) -> None:
    one, two = (AccessLog(file=str(tmp_path / name)) for name in ("one", "two"))
    log = LogFile()
    assert log.descriptor is None
    first = log.open(one)
    assert first is not None
    log.take(one, first)
    assert log.held == (one.file, first)
    assert log.open(one) == first
    log.drop(first)
    assert is_open(first)
    second = log.open(two)
    assert second is not None
    log.drop(second)
    assert not is_open(second)
    second = log.open(two)
    log.take(two, second)
    assert not is_open(first)
    log.close()
    assert log.held is None
    assert not os.path.exists(f"/proc/self/fd/{second}")


def test_what_workers_open_by_themselves_is_not_held(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    log = LogFile()
    for settings in (None, AccessLog(file="-"), AccessLog(file=str(tmp_path / "fifo"))):
        assert log.open(settings) is None
        log.take(settings, None)
        log.drop(None)
    log.close()


def test_one_that_cannot_be_opened_is_a_fault(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be opened: No such file") as raised:
        LogFile().open(AccessLog(file=str(tmp_path / "none" / "a.log")))
    assert raised.value.path == ("accessLog", "file")


def test_what_the_program_before_had_open_is_used_again(tmp_path: Path) -> None:
    settings = AccessLog(file=str(tmp_path / "a.log"))
    descriptor = os.open(settings.file, os.O_CREAT | os.O_WRONLY)
    log = LogFile((settings.file, descriptor))
    assert log.open(settings) == descriptor
    log.close()
    assert not is_open(descriptor)
