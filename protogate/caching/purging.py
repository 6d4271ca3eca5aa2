"""
What an operator has forgotten: a list that only ever grows at its end.

Each line counts when it is first seen; a line that is there once more counts once more.

    /products/7            what is asked for exactly so, whatever the host
    /products/*            what begins so
    shop.test/products/*   the same, of one host
    group:shoes            answers of a group (RFC 9875)
    *                      everything
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Final

from protogate.caching.stored import Stored
from protogate.config.scalar import shown
from protogate.errors import ConfigError

MOST: Final = 1000
"""Lines of a list."""
GROUP: Final = "group:"

_LINE: Final = re.compile(r"\*|group:[\x21-\x7e]+|[A-Za-z0-9._:\[\]-]*/[\x21-\x29\x2b-\x7e]*\*?").fullmatch


class Purges(Counter[str]):
    """Lines, and how often each is there."""


def purges(data: bytes) -> Purges:
    """
    A list.

    @raise ConfigError: what is wrong with it; its message names the line.
    """
    found = Purges()
    for number, line in enumerate(data.decode("utf-8").split("\n"), 1):
        text = line.partition(" #")[0].strip(" \t\r")
        if not text or text.startswith("#"):
            continue
        if not _LINE(text):
            raise ConfigError(f"line {number}: expected /path, /path*, host/path*, group:name or *, got {shown(text)}")
        found[text] += 1
    if found.total() > MOST:
        raise ConfigError(f"{found.total()} lines: {MOST} are enough; remove the oldest")
    return found


def named(lines: Iterable[str]) -> Callable[[Stored], bool]:
    """Whether an answer is named by one of these lines."""
    exact: set[tuple[bytes, bytes]] = set()
    begins: dict[bytes, list[bytes]] = {}
    groups: set[str] = set()
    for line in lines:
        if line.startswith(GROUP):
            groups.add(line.removeprefix(GROUP))
            continue
        host, slash, rest = line.partition("/") if line != "*" else ("", "", "*")
        authority, target = host.lower().encode("ascii"), (slash + rest).encode("ascii")
        if target.endswith(b"*"):
            begins.setdefault(authority, []).append(target[:-1])
        else:
            exact.add((authority, target))
    heads = {authority: tuple(each) for authority, each in begins.items()}

    def test(stored: Stored) -> bool:
        _, authority, target = stored.uri
        return not groups.isdisjoint(stored.groups) or any(
            (where, target) in exact or target.startswith(heads.get(where, ())) for where in (b"", authority)
        )

    return test
