"""
What a client would rather have (RFC 9110, 12): quality values, codings, media types.

Rules
- What is no list of the kind is as if it were not there: everything is acceptable.
- Of equal ones the one that is offered first is chosen.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final

LONGEST: Final = 1024
"""Bytes of a field that are looked at; a longer one is as if it were not there."""
IDENTITY: Final = b"identity"

_ITEM: Final = re.compile(
    rb"[ \t]*([!#$%&'*+\-.^_`|~0-9A-Za-z]+(?:/[!#$%&'*+\-.^_`|~0-9A-Za-z]+)?)"
    rb"((?:[ \t]*;[ \t]*[!#$%&'*+\-.^_`|~0-9A-Za-z]+=(?:\"[^\"\\]*\"|[!#$%&'*+\-.^_`|~0-9A-Za-z]+))*)[ \t]*"
).fullmatch
_QUALITY: Final = re.compile(rb";[ \t]*[qQ]=(0(?:\.[0-9]{0,3})?|1(?:\.0{0,3})?)[ \t]*(?:;|$)").search
_ANY_QUALITY: Final = re.compile(rb";[ \t]*[qQ]=").search


def qualities(lines: Sequence[bytes]) -> Mapping[bytes, float] | None:
    """
    Each item, in lower case and without its parameters, with its quality.

    @param lines: the values of all lines of the field.
    @return: None where there is no line, or something is wrong with it.
    """
    if not lines or sum(map(len, lines)) > LONGEST:
        return None
    found: dict[bytes, float] = {}
    for item in b",".join(lines).split(b","):
        if not item.strip(b" \t"):
            continue
        match = _ITEM(item)
        if match is None:
            return None
        quality = _QUALITY(match[2])
        if quality is None and _ANY_QUALITY(match[2]):
            return None
        found.setdefault(match[1].lower(), 1.0 if quality is None else float(quality[1]))
    return found


def coding(lines: Sequence[bytes], offered: Sequence[bytes]) -> bytes:
    """
    The coding for an answer, by C{Accept-Encoding} (RFC 9110, 12.5.3).

    @param offered: names of codings, in lower case.
    @return: L{IDENTITY} where none of them is wanted; also where that is not, either: an answer is better than none.
    """
    found = qualities(lines)
    if found is None:
        return IDENTITY  # it may be anything; what everybody understands is safe
    best, chosen = 0.0, IDENTITY
    anything = found.get(b"*", 0.0)
    for name in offered:
        quality = found.get(name, found.get(b"x-" + name, anything))
        if quality > best:
            best, chosen = quality, name
    return IDENTITY if best < found.get(IDENTITY, 0.0) else chosen


def accepts(lines: Sequence[bytes], name: bytes) -> bool:
    """Whether a client takes that coding (RFC 9110, 12.5.3)."""
    found = qualities(lines)
    return found is not None and found.get(name, found.get(b"*", 0.0)) > 0


def media(lines: Sequence[bytes], offered: Sequence[bytes]) -> bytes:
    """
    The media type for an answer, by C{Accept} (RFC 9110, 12.5.1).

    @param offered: types in lower case, without parameters.
    @return: the first of them where none is wanted, or nothing is said.
    """
    found = qualities(lines)
    if found is None:
        return offered[0]
    best, chosen = 0.0, offered[0]
    for name in offered:
        quality = found.get(name, found.get(name.partition(b"/")[0] + b"/*", found.get(b"*/*", 0.0)))
        if quality > best:
            best, chosen = quality, name
    return chosen
