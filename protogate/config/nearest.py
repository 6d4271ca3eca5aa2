"""What somebody probably meant by a name that is not known."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches
from typing import Final

LISTED: Final = 30
"""Known names that a message lists."""


def nearest(name: str, known: Iterable[str]) -> str:
    """The known name that is most like C{name}, or C{""}.  Case, C{_} and C{-} do not count."""
    folded: dict[str, str] = {}
    for word in known:
        folded.setdefault(_fold(word), word)
    close = get_close_matches(_fold(name), folded, 1, 0.6)
    return folded[close[0]] if close else ""


def hint(name: str, known: Iterable[str]) -> str:
    """C{did you mean "weight"?}, or what is known when nothing is near: the end of a message."""
    known = list(known)
    close = nearest(name, known)
    if close:
        return f'did you mean "{close}"?'
    if not known:
        return "none is known"
    more = ", …" if len(known) > LISTED else ""
    return f"known: {', '.join(known[:LISTED])}{more}"


def _fold(name: str) -> str:
    return name.lower().replace("_", "").replace("-", "")
