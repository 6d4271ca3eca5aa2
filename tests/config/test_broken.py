"""
Broken configuration files, each with the one message that a tired operator needs.

C{tests/fixtures/broken/load}: what reading the file alone tells.  C{tests/fixtures/broken/build}: what the parts tell
that compile conditions, templates, rules and modules.  Beside each file stands C{NAME.expect}: one line for each fault
as it is printed, without the name of the file; C{…} stands for any text.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from protogate.build import build
from protogate.config.faults import ConfigFaults
from protogate.config.load import load

FIXTURES = Path(__file__).parent.parent / "fixtures" / "broken"


def files(part: str) -> list[Path]:
    return sorted(path for path in (FIXTURES / part).iterdir() if path.suffix != ".expect")


def by_name(path: Path) -> str:
    return path.name


def compare(path: Path, faults: ConfigFaults) -> None:
    expected = path.with_suffix(".expect").read_text("utf-8").splitlines()
    lines = [line.removeprefix(f"{path}:").lstrip() for line in faults.lines]
    assert len(lines) == len(expected), lines
    for line, pattern in zip(lines, expected, strict=True):
        assert re.fullmatch(".*".join(re.escape(part) for part in pattern.split("…")), line), line


@pytest.mark.parametrize("path", files("load"), ids=by_name)
def test_reading_the_file_tells(path: Path) -> None:
    with pytest.raises(ConfigFaults) as caught:
        load(path)
    compare(path, caught.value)


@pytest.mark.parametrize("path", files("build"), ids=by_name)
def test_building_from_it_tells(path: Path) -> None:
    load(path)  # nothing is wrong with the file alone
    with pytest.raises(ConfigFaults) as caught:
        build(str(path))
    compare(path, caught.value)


@pytest.mark.parametrize("path", [*files("load"), *files("build")], ids=by_name)
def test_each_message_is_one_line_of_a_size_that_can_be_read(path: Path) -> None:
    with pytest.raises(ConfigFaults) as caught:
        build(str(path))
    assert str(caught.value).splitlines() == caught.value.lines
    for line in caught.value.lines:
        assert line.startswith(f"{path}:")
        assert len(line) - len(str(path)) < 250
        assert "hunter2" not in line


def test_there_are_enough_of_them() -> None:
    assert len(files("load")) + len(files("build")) >= 60
    assert {path.stem for path in FIXTURES.rglob("*.expect")} == {
        path.stem for part in ("load", "build") for path in files(part)
    }
