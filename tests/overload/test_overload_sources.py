"""What is in use: memory of a control group of either version, of a process, and descriptors."""

from __future__ import annotations

import os
import resource
from pathlib import Path

import pytest

from protogate.overload import sources

GIB = 1 << 30


def group(folder: Path, limit: str, used: int, inactive: int, version: int = 2) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    names = ("memory.max", "memory.current", "inactive_file")
    if version == 1:
        names = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
    (folder / names[0]).write_text(f"{limit}\n")
    (folder / names[1]).write_text(f"{used}\n")
    (folder / "memory.stat").write_text(f"anon 5\ninactive_anon 7\n{names[2]} {inactive}\nslab 3\n")


def look(tmp_path: Path, own: str, limit: int = 0) -> sources.Source | None:
    (tmp_path / "own").write_text(own)
    return sources.memory(limit, 1, tmp_path / "fs", tmp_path / "own")


def test_files_that_were_read_do_not_count(tmp_path: Path) -> None:
    group(tmp_path / "fs" / "a.slice", str(GIB), GIB // 2, GIB // 4)
    source = look(tmp_path, "0::/a.slice\n")
    assert source is not None
    assert source() == 25.0


def test_the_least_limit_up_to_the_root_counts(tmp_path: Path) -> None:
    group(tmp_path / "fs" / "a" / "b", "max", 1, 0)
    group(tmp_path / "fs" / "a", str(GIB), GIB // 2, 0)
    group(tmp_path / "fs", str(2 * GIB), GIB // 2, 0)
    source = look(tmp_path, "3:cpu:/x\n0::/a/b\n")
    assert source is not None
    assert source() == 50.0


def test_in_a_container_the_root_is_its_own(tmp_path: Path) -> None:
    group(tmp_path / "fs", str(GIB), 0, 10)
    source = look(tmp_path, "0::/\n")
    assert source is not None
    assert source() == 0.0, "never less than nothing"


def test_the_first_version_says_it_in_other_words(tmp_path: Path) -> None:
    group(tmp_path / "fs" / "memory" / "a", str(GIB), GIB // 4, 0, version=1)
    group(tmp_path / "fs" / "memory", str((1 << 63) - 4096), GIB, 0, version=1)
    source = look(tmp_path, "4:cpu,memory:/a\n0::/\n")
    assert source is not None
    assert source() == 25.0


@pytest.mark.parametrize("limit", ["max", "9223372036854771712", "rubbish"])
def test_who_has_no_limit_has_no_share(tmp_path: Path, limit: str) -> None:
    group(tmp_path / "fs", limit, 1, 0)
    assert look(tmp_path, "0::/\n") is None


def test_where_there_are_no_groups_there_is_no_limit(tmp_path: Path) -> None:
    assert sources.memory(0, 1, tmp_path, tmp_path / "none") is None


def test_a_limit_of_the_configuration_is_shared_by_the_workers(tmp_path: Path) -> None:
    (tmp_path / "statm").write_text("9999 1024 5 1 0 7 0\n")
    source = sources.memory(4 * 1024 * resource.getpagesize(), 2, statm=tmp_path / "statm")
    assert source is not None
    assert source() == 50.0
    assert sources.memory(GIB, 1, statm=tmp_path / "none") is None


def test_the_real_process_has_memory_and_descriptors() -> None:
    memory, descriptors = sources.memory(GIB, 1), sources.descriptors()
    assert memory is not None
    assert descriptors is not None
    assert 0.1 < memory() < 500
    before = descriptors()
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    opened = [os.open("/dev/null", os.O_RDONLY) for _ in range(10)]
    try:
        assert descriptors() == pytest.approx(before + 1000 / most, abs=300 / most)
    finally:
        for each in opened:
            os.close(each)


def test_descriptors_are_counted_where_the_folder_does_not_say(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources, "DESCRIPTORS", ("/none",))
    assert sources.descriptors() is None
    counted = sources._Descriptors("/proc/self")  # its size is 0
    monkeypatch.setattr(resource, "getrlimit", lambda kind: (1000, 1000))
    assert counted() == 100 * len(os.listdir("/proc/self")) / 1000
    monkeypatch.setattr(resource, "getrlimit", lambda kind: (resource.RLIM_INFINITY, 1000))
    assert counted() == 0.0
