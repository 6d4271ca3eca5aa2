"""
Scalars: the core schema of YAML 1.2 (10.3.2), and how a value is shown in a message.

C{no}, C{yes}, C{on} and C{12:30} are strings, C{012} is twelve, C{0o14} too.
"""

from __future__ import annotations

import json
import math
import re
from typing import Any, Final

SHOWN: Final = 40
"""Characters of a value that a message repeats."""

_WORDS: Final[dict[str, bool | None]] = {
    "": None,
    "~": None,
    **dict.fromkeys(("null", "Null", "NULL"), None),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}
_STARTS: Final = frozenset("+-.0123456789")
_WHOLE: Final = (
    (re.compile(r"[-+]?[0-9]+", re.ASCII), 0, 10),
    (re.compile(r"0o[0-7]+", re.ASCII), 2, 8),
    (re.compile(r"0x[0-9a-fA-F]+", re.ASCII), 2, 16),
)
_FLOAT: Final = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?", re.ASCII)
_SPECIAL: Final = re.compile(r"[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)", re.ASCII)
_SURROGATE: Final = re.compile("[\ud800-\udfff]")
_DIGITS: Final = 18  # what surely fits 64 bits
_SECRET: Final = re.compile(r"(?<=//)\S*@|[^\s/@:]+:\S*@")


def plain(text: str) -> Any:
    """The value of an unquoted scalar.  @raise ValueError: a number that cannot be held; the message says so."""
    if text in _WORDS:
        return _WORDS[text]
    if text[0] not in _STARTS:
        return text
    for pattern, skip, base in _WHOLE:
        if pattern.fullmatch(text):
            return whole(text[skip:], base)
    if _FLOAT.fullmatch(text):
        return real(text)
    if _SPECIAL.fullmatch(text):
        raise ValueError(f"{text} is no number here; text needs quotes")
    return text


def halves(text: str) -> bool:
    """Whether half a character is in it, which an escape can make and no file can hold."""
    return not text.isascii() and _SURROGATE.search(text) is not None


def whole(text: str, base: int) -> int:
    """An integer of at most 64 bits.  @raise ValueError: it is longer."""
    if len(text.lstrip("+-0")) > _DIGITS:
        raise ValueError(f"the number {shorten(text)} is too long; text needs quotes")
    value = int(text, base)
    if value.bit_length() > 62:
        raise ValueError(f"the number {shorten(text)} is too long; text needs quotes")
    return value


def real(text: str) -> float:
    """A finite number.  @raise ValueError: it is too large."""
    value = float(text)
    if math.isinf(value):
        raise ValueError(f"the number {shorten(text)} is too large; text needs quotes")
    return value


def shorten(text: str) -> str:
    """The beginning of a long text; without the credentials of a URL."""
    text = _SECRET.sub("…@", text)
    return text if len(text) <= SHOWN else f"{text[: SHOWN - 1]}…"


def shown(value: Any) -> str:
    """A value as a message repeats it: on one line, short, strings in quotes."""
    if value is None:
        return "nothing"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return json.dumps(shorten(value), ensure_ascii=False)
    if isinstance(value, list | tuple):
        return "a list" if value else "an empty list"
    if isinstance(value, dict):
        return "a mapping" if value else "an empty mapping"
    return shorten(str(value))
