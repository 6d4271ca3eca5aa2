"""Groups of answers that an origin invalidates together (RFC 9875)."""

from __future__ import annotations

import re
from typing import Final

MOST: Final = 32
"""Groups of one answer that are looked at."""
LONGEST: Final = 64
"""Characters of the name of a group that is looked at."""

_ITEM: Final = re.compile(
    rb'[ \t]*+"((?:[\x20\x21\x23-\x5b\x5d-\x7e]|\\["\\])*+)"'
    rb'(?:;[ ]*+[a-z*][a-z0-9_.*-]*+(?:=[^,;" \t]++|="[^"]*+")?+)*+[ \t]*+(,|\Z)'
)
_ESCAPED: Final = re.compile(rb"\\(.)")


def groups(values: list[bytes]) -> frozenset[str]:
    """The names in a list of strings (RFC 9651, 3.1); none of what is no such list."""
    text, at = b",".join(values), 0
    found: list[str] = []
    while at < len(text):
        match = _ITEM.match(text, at)
        if match is None or (match[2] and match.end() == len(text)):
            return frozenset()
        found.append(_ESCAPED.sub(rb"\1", match[1]).decode("ascii"))
        at = match.end()
    return frozenset(name for name in found[:MOST] if len(name) <= LONGEST)
