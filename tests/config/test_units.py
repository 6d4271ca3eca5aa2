from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from protogate.config.model import Bytes, Seconds
from protogate.config.units import LARGEST, YEAR, duration, size, written
from protogate.errors import ConfigError


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("250ms", 0.25),
        ("10s", 10),
        ("5m", 300),
        ("1h", 3600),
        ("1d", 86400),
        ("1.5s", 1.5),
        ("0s", 0),
        ("0", 0),
        ("366d", YEAR),
    ],
)
def test_durations(text: str, seconds: float) -> None:
    assert duration(text) == pytest.approx(seconds)
    assert type(duration(text)) is Seconds


@pytest.mark.parametrize("zero", [0, 0.0, "0"])
def test_nought_needs_no_unit(zero: object) -> None:
    assert duration(zero) == 0
    assert size(zero) == 0


@pytest.mark.parametrize("value", [3, 0.5, -1, "3", "3.5", "12.", "-3"])
def test_a_bare_number_is_told_to_have_no_unit(value: object) -> None:
    for unit in (duration, size):
        with pytest.raises(ConfigError, match="without a unit"):
            unit(value)
    with pytest.raises(ConfigError, match=r"expected a duration such as .* without a unit"):
        duration(value)


@pytest.mark.parametrize(
    "value",
    [
        "",
        "s",
        "10 s",
        "10S",
        "10sec",
        "-5s",
        "+5s",
        "1m30s",
        "1e3s",
        "٣s",
        "10s\n",
        ".5s",
        "1_0s",
        None,
        True,
        False,
        [],
        {},
    ],
)
def test_what_is_no_duration(value: object) -> None:
    with pytest.raises(ConfigError, match="expected a duration such as 250ms, 10s, 5m or 1h, got "):
        duration(value)


def test_durations_end_somewhere() -> None:
    with pytest.raises(ConfigError, match="at most 366d"):
        duration("367d")


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("512B", 512),
        ("8KiB", 8192),
        ("1KB", 1000),
        ("1MB", 10**6),
        ("1MiB", 2**20),
        ("2GiB", 2**31),
        ("3GB", 3 * 10**9),
        ("0B", 0),
    ],
)
def test_sizes(text: str, count: int) -> None:
    assert size(text) == count
    assert type(size(text)) is Bytes


@pytest.mark.parametrize(
    "value", ["", "B", "8k", "8K", "8kib", "8 KiB", "1.5MiB", "-1B", "٣B", "8KiB ", None, True, False, []]
)
def test_what_is_no_size(value: object) -> None:
    with pytest.raises(ConfigError, match="expected a size such as 512B, 8KiB, 1MB or 2GiB, got "):
        size(value)


def test_sizes_end_somewhere() -> None:
    with pytest.raises(ConfigError, match="below 2"):
        size("9999999999999GiB")


@given(st.integers(min_value=0, max_value=LARGEST))
def test_a_size_that_is_written_reads_the_same(count: int) -> None:
    assert size(written(Bytes(count))) == count


@given(st.integers(min_value=0, max_value=YEAR * 1000))
@example(10_125_673_574)
def test_a_duration_that_is_written_reads_the_same(milliseconds: int) -> None:
    seconds = Seconds(milliseconds / 1000)
    assert duration(written(seconds)) == seconds


@given(st.text() | st.floats() | st.integers() | st.none() | st.booleans())
def test_anything_is_a_value_or_one_fault(value: object) -> None:
    for unit in (duration, size):
        with suppress(ConfigError):
            assert unit(value) >= 0
