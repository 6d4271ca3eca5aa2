"""Dates of HTTP (RFC 9110, 5.6.7): one form is written, three are read."""

from __future__ import annotations

import re
from calendar import timegm
from email.utils import formatdate
from typing import Final

_DAY: Final = rb"(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun)"
_MONTH: Final = rb"(Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)"
_TIME: Final = rb"([01][0-9]|2[0-3]):([0-5][0-9]):([0-5][0-9]|60)"
_FIXED: Final = re.compile(_DAY + rb", ([0-9]{2}) " + _MONTH + rb" ([0-9]{4}) " + _TIME + rb" GMT").fullmatch
_RFC850: Final = re.compile(
    rb"(?:Mon|Tues|Wednes|Thurs|Fri|Satur|Sun)day, ([0-9]{2})-" + _MONTH + rb"-([0-9]{2}) " + _TIME + rb" GMT"
).fullmatch
_ASCTIME: Final = re.compile(_DAY + rb" " + _MONTH + rb" ([0-9]{2}| [0-9]) " + _TIME + rb" ([0-9]{4})").fullmatch
_MONTHS: Final = b"JanFebMarAprMayJunJulAugSepOctNovDec"


def read(text: bytes, now: float) -> float | None:
    """
    Seconds since 1970; None when it is no date.

    @param now: a year of two digits that is more than 50 years from then on is one of the past.
    """
    if match := _FIXED(text):
        day, month, year, *time = match.groups()
    elif match := _RFC850(text):
        day, month, short, *time = match.groups()
        this = int(formatdate(now)[12:16])
        full = this - this % 100 + int(short)
        year = b"%d" % (full - 100 if full > this + 50 else full)
    elif match := _ASCTIME(text):
        month, day, *time, year = match.groups()
    else:
        return None
    number = _MONTHS.index(month) // 3 + 1
    if not 1 <= int(day) <= 31 or int(year) < 1600:
        return None
    return float(timegm((int(year), number, int(day), *map(int, time))))
