"""What a file holds, and its state."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from protogate.config.stamp import read, stamp_of


def test_what_a_file_holds_comes_with_its_state(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"1234")
    assert read(str(path), 4) == (b"1234", stamp_of(path))


@pytest.mark.parametrize(("most", "why"), [(3, "larger than 3 bytes"), (0, "larger than 0 bytes")])
def test_one_that_is_larger_is_not_read(tmp_path: Path, most: int, why: str) -> None:
    (tmp_path / "file").write_bytes(b"1234")
    with pytest.raises(ValueError, match=why):
        read(str(tmp_path / "file"), most)


def test_what_cannot_be_read_is_said_in_the_words_of_the_system(tmp_path: Path) -> None:
    for path, why in ((tmp_path / "nothing", "No such file"), (tmp_path, "Is a directory")):
        with pytest.raises(ValueError, match=why):
            read(str(path), 10)
    with pytest.raises(ValueError, match="null"):
        read("a\0b", 10)


def test_a_fifo_that_nobody_writes_holds_nobody_up(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    assert read(str(tmp_path / "fifo"), 10)[0] == b""
