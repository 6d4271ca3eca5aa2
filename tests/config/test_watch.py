from __future__ import annotations

import os
from pathlib import Path

import pytest
from twisted.internet.task import Clock

from protogate.config.stamp import stamp
from protogate.config.watch import FileWatch
from protogate.wheel import Wheel


class Watched:
    """A file, a watch over it, and a clock of its own."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.clock = Clock()
        self.wheel = Wheel(self.clock)
        self.changes = 0
        self.watch = FileWatch(path, self.changed, self.wheel)

    def changed(self) -> None:
        self.changes += 1

    def looks(self, count: int) -> int:
        """How many changes were told while it looked so often."""
        before = self.changes
        for _ in range(count * 22):
            self.clock.advance(0.05)
        return self.changes - before


@pytest.fixture
def watched(tmp_path: Path) -> Watched:
    path = tmp_path / "gateway.yaml"
    path.write_text("a")
    return Watched(path)


def test_a_file_that_stays_as_it_is_tells_nothing(watched: Watched) -> None:
    watched.watch.start()
    assert watched.looks(5) == 0


def test_a_change_is_told_once_when_it_looked_the_same_twice(watched: Watched) -> None:
    watched.watch.start()
    watched.path.write_text("ab")
    assert watched.looks(1) == 0
    assert watched.looks(1) == 1
    assert watched.looks(5) == 0


def test_a_file_that_is_still_written_is_waited_for(watched: Watched) -> None:
    watched.watch.start()
    for length in range(2, 8):
        watched.path.write_text("a" * length)
        assert watched.looks(1) == 0
    assert watched.looks(2) == 1


def test_the_same_size_is_a_change_too(watched: Watched) -> None:
    watched.watch.start()
    before = watched.path.stat().st_mtime_ns
    watched.path.write_text("b")
    os.utime(watched.path, ns=(before, before + 1))
    assert watched.looks(3) == 1


def test_another_file_renamed_over_it_is_a_change(watched: Watched) -> None:
    watched.watch.start()
    status = watched.path.stat()
    new = watched.path.with_suffix(".new")
    new.write_text("b")
    os.utime(new, ns=(status.st_atime_ns, status.st_mtime_ns))
    new.rename(watched.path)
    assert watched.looks(3) == 1


def test_links_that_are_swapped_are_a_change(tmp_path: Path) -> None:
    for version in ("v1", "v2"):
        (tmp_path / version).mkdir()
        (tmp_path / version / "gateway.yaml").write_text(version)
    (tmp_path / "..data").symlink_to("v1")
    (tmp_path / "gateway.yaml").symlink_to("..data/gateway.yaml")
    watched = Watched(tmp_path / "gateway.yaml")
    watched.watch.start()
    (tmp_path / "..new").symlink_to("v2")
    (tmp_path / "..new").rename(tmp_path / "..data")
    assert watched.looks(3) == 1


def test_a_file_that_goes_is_no_change_but_another_one_that_comes_is(watched: Watched) -> None:
    watched.watch.start()
    watched.path.unlink()
    assert watched.looks(3) == 0
    watched.path.write_text("abc")
    assert watched.looks(3) == 1


def test_a_file_that_was_only_away_for_a_while_is_no_change(watched: Watched) -> None:
    watched.watch.start()
    away = watched.path.with_suffix(".away")
    watched.path.rename(away)
    assert watched.looks(3) == 0
    away.rename(watched.path)
    assert watched.looks(3) == 0


def test_a_change_before_the_watch_began_is_seen(watched: Watched) -> None:
    known = stamp(watched.path.stat())
    watched.path.write_text("ab")
    watched.watch.start(known)
    assert watched.looks(2) == 1


def test_what_was_loaded_in_the_meantime_is_no_news(watched: Watched) -> None:
    watched.watch.start()
    watched.path.write_text("ab")
    watched.watch.known(None)
    watched.watch.known(stamp(watched.path.stat()))
    assert watched.looks(3) == 0


def test_a_watch_that_was_stopped_looks_no_more(watched: Watched) -> None:
    watched.watch.start()
    watched.watch.stop()
    watched.path.write_text("ab")
    assert watched.looks(3) == 0
    watched.looks(2)
    assert not watched.clock.getDelayedCalls()


def test_it_goes_on_after_a_change_that_could_not_be_handled(tmp_path: Path) -> None:
    path = tmp_path / "gateway.yaml"
    clock = Clock()
    told = []

    def changed() -> None:
        told.append(path.read_text())

    watch = FileWatch(path, changed, Wheel(clock), interval=0.2)
    watch.start()
    for text in ("a", "ab"):
        path.write_text(text)
        for _ in range(20):
            clock.advance(0.05)
    assert told == ["a", "ab"]
    watch.stop()
