"""Dates of HTTP, in all three forms, and nothing else."""

from __future__ import annotations

import pytest

from protogate.caching.httpdate import read

NOW = 1_700_000_000.0  # in 2023
THEN = 784_111_777.0


@pytest.mark.parametrize(
    "text", [b"Sun, 06 Nov 1994 08:49:37 GMT", b"Sunday, 06-Nov-94 08:49:37 GMT", b"Sun Nov  6 08:49:37 1994"]
)
def test_the_three_forms(text):
    assert read(text, NOW) == THEN


def test_a_year_of_two_digits_is_at_most_50_years_ahead():
    assert read(b"Sunday, 06-Nov-73 08:49:37 GMT", NOW) == read(b"Sun, 06 Nov 2073 08:49:37 GMT", NOW)
    assert read(b"Sunday, 06-Nov-74 08:49:37 GMT", NOW) == read(b"Sun, 06 Nov 1974 08:49:37 GMT", NOW)


def test_a_leap_second_is_one():
    assert read(b"Sat, 31 Dec 2016 23:59:60 GMT", NOW) == read(b"Sun, 01 Jan 2017 00:00:00 GMT", NOW)


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"0",
        b"Sun, 06 Nov 1994 08:49:37",
        b"Sun, 06 Nov 1994 08:49:37 UTC",
        b"Sun, 06 Nov 1994 08:49:37 +0000",
        b"sun, 06 nov 1994 08:49:37 gmt",
        b"Sun, 6 Nov 1994 08:49:37 GMT",
        b"Sun, 06 Nov 94 08:49:37 GMT",
        b"Sun, 06 Nov 1994 24:49:37 GMT",
        b"Sun, 06 Nov 1994 08:60:37 GMT",
        b"Sun, 00 Nov 1994 08:49:37 GMT",
        b"Sun, 32 Nov 1994 08:49:37 GMT",
        b"Sun, 06 Nov 0000 08:49:37 GMT",
        b"Sun Nov 6 08:49:37 1994",
        b"Sun, 06 Nov 1994 08:49:37 GMT ",
        b"1994-11-06T08:49:37Z",
        b"\xff",
    ],
)
def test_what_is_none(text):
    assert read(text, NOW) is None
