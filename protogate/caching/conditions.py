"""
Validators and conditions (RFC 9110, 8.8 and 13): is what somebody has still what is here?

An entity tag wins over a date.  C{If-None-Match} compares weakly, C{If-Range} strongly.
"""

from __future__ import annotations

import re
from typing import Final

from protogate.caching import httpdate
from protogate.message import Field, Headers

NONE_MATCH: Final = b"if-none-match"
MODIFIED_SINCE: Final = b"if-modified-since"
CONDITIONS: Final = frozenset((NONE_MATCH, MODIFIED_SINCE))
"""What a cache answers itself (RFC 9111, 4.3.2)."""
STRICT: Final = frozenset((b"if-match", b"if-unmodified-since"))
"""What only the origin can answer."""

_TAG: Final = re.compile(rb'(?:W/)?"[\x21\x23-\x7e\x80-\xff]*+"')
_TAGS: Final = re.compile(rb'[ \t,]*+((?:W/)?"[\x21\x23-\x7e\x80-\xff]*+")[ \t]*+(?=,|\Z)')


def tag_of(headers: Headers) -> bytes | None:
    """The entity tag of an answer, if it has one, and one only."""
    tags = headers.all(b"etag")
    return tags[0] if len(tags) == 1 and _TAG.fullmatch(tags[0]) else None


def weakly(tag: bytes) -> bytes:
    """What is compared weakly (RFC 9110, 8.8.3.2)."""
    return tag.removeprefix(b"W/")


def validators(headers: Headers) -> list[Field]:
    """The conditions that ask an origin whether an answer is still good; none where it has no validator."""
    found: list[Field] = []
    tag = tag_of(headers)
    if tag is not None:
        found.append((NONE_MATCH, tag))
    modified = headers.get(b"last-modified")
    if modified is not None and modified:
        found.append((MODIFIED_SINCE, modified))
    return found


def unmodified(conditions: list[Field], headers: Headers, now: float) -> bool:
    """
    Whether a client that asks with these conditions has the answer with these headers: then it is told 304.

    @param conditions: its lines of L{CONDITIONS}.
    @param now: seconds since 1970.
    """
    tags = [value for name, value in conditions if name == NONE_MATCH]
    if tags:
        text = b",".join(tags)
        if text.strip(b" \t") == b"*":
            return True
        tag = tag_of(headers)
        return tag is not None and any(weakly(each) == weakly(tag) for each in _each(text))
    dates = [value for _, value in conditions]
    if len(dates) != 1:
        return False
    modified = headers.get(b"last-modified") or headers.get(b"date")
    since, last = httpdate.read(dates[0], now), None if modified is None else httpdate.read(modified, now)
    return since is not None and last is not None and last <= since


def same_range(condition: bytes, headers: Headers, now: float) -> bool:
    """Whether C{If-Range} holds (RFC 9110, 13.1.5)."""
    if _TAG.fullmatch(condition):
        return not condition.startswith(b"W/") and condition == tag_of(headers)
    modified, date = headers.get(b"last-modified"), headers.get(b"date")
    if modified is None or date is None or modified != condition:
        return False
    last, made = httpdate.read(modified, now), httpdate.read(date, now)
    return last is not None and made is not None and made - last >= 1.0  # else it is a weak one (8.8.2.2)


def _each(text: bytes) -> list[bytes]:
    """The tags of a list; none of one that is broken."""
    found: list[bytes] = []
    at = 0
    while match := _TAGS.match(text, at):
        found.append(match[1])
        at = match.end()
    return found if not text[at:].strip(b" \t,") else []
