"""The access log over all configurations: which file is written, and what becomes of the others."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import pytest_twisted
from twisted.internet import reactor
from twisted.internet.task import deferLater

from protogate.config.model import AccessLog
from protogate.errors import ConfigError
from protogate.observe.journal import Journal


def open_files(folder: Path) -> list[str]:
    """Names of files in that folder that this process has open."""
    return sorted(_links(folder))


def _links(folder: Path) -> Iterator[str]:
    for descriptor in os.listdir("/proc/self/fd"):
        try:
            where = os.readlink(f"/proc/self/fd/{descriptor}")
        except OSError:  # the one that reads the folder
            continue
        if where.startswith(f"{folder}/"):
            yield os.path.basename(where)


async def opens(folder: Path, *names: str) -> None:
    """Wait until these are open, and no others: their threads close files when they are through."""
    for _ in range(2000):
        if open_files(folder) == list(names):
            return
        await deferLater(reactor, 0.005)
    pytest.fail(f"still open: {open_files(folder)}")


def settings(folder: Path, name: str, **more: object) -> AccessLog:
    return AccessLog(file=str(folder / name), **more)  # type: ignore[arg-type]


@pytest_twisted.ensureDeferred
async def test_the_same_file_stays_open_with_other_settings_and_another_takes_its_place(tmp_path: Path) -> None:
    journal = Journal(reactor, lambda event: None)
    one, again = settings(tmp_path, "one"), settings(tmp_path, "one", sample=0.5, queue=7)
    first = journal.open(one)
    assert first is not None
    journal.take(first, one, None)
    assert journal.open(again, os.open(again.file, os.O_WRONLY)) is first
    assert open_files(tmp_path) == ["one"], "what somebody else opened is not needed"
    assert (first.sample, first.queue) == (1.0, 10_000), "nothing has changed yet"

    def always(exchange: object) -> bool:
        return True

    journal.take(first, again, always)
    assert (first.sample, first.queue, first.always) == (0.5, 7, always)
    two = settings(tmp_path, "two")
    second = journal.open(two)
    assert second is not first
    journal.take(second, two, None)
    assert journal.log is second
    await opens(tmp_path, "two")
    journal.take(journal.open(None), None, None)
    assert journal.log is None
    await opens(tmp_path)
    await journal.stop()


@pytest.mark.parametrize("running", [True, False])
@pytest_twisted.ensureDeferred
async def test_what_is_not_taken_is_closed_but_never_what_is_written(tmp_path: Path, running: bool) -> None:
    journal = Journal(reactor, lambda event: None)
    one, two = settings(tmp_path, "one"), settings(tmp_path, "two")
    first = journal.open(one)
    journal.take(first, one, None)
    journal.drop(journal.open(one), running)
    journal.drop(None, running)
    other = journal.open(two, os.open(two.file, os.O_WRONLY | os.O_CREAT))
    assert other is not None
    assert open_files(tmp_path) == ["one", "two"]
    journal.drop(other, running)
    await opens(tmp_path, "one")
    assert journal.log is first
    await journal.stop()
    assert open_files(tmp_path) == []


def test_one_that_cannot_be_opened_is_a_fault_and_changes_nothing(tmp_path: Path) -> None:
    journal = Journal(reactor, lambda event: None)
    with pytest.raises(ConfigError, match="cannot be opened: No such file") as raised:
        journal.open(settings(tmp_path, "none/a.log"))
    assert raised.value.path == ("accessLog", "file")
    assert journal.log is None
    assert journal.open(None, os.open(tmp_path / "given", os.O_WRONLY | os.O_CREAT)) is None
    assert open_files(tmp_path) == []
