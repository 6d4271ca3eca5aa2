"""
What is known of very many keys, in order of last use.

A dictionary that grows is copied, all at once: a million keys take 75 ms, for which nobody is answered.  So a large
table is many small ones, of which one grows at a time.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final, Generic, TypeVar

Value = TypeVar("Value")

SMALL: Final = 50_000
"""Keys of one dictionary, at most: it is copied in less than 3 ms."""


class Tables(Generic[Value]):
    """
    @ivar small: the tables.
    @ivar mask: the bits of a key's hash that say which of them has it.
    @ivar each: keys that one table may have; together they have room for C{most}, or some more.
    """

    __slots__ = ("each", "mask", "small")

    def __init__(self, most: int) -> None:
        count = 1
        while count * SMALL < most:
            count *= 2
        self.small: list[OrderedDict[str | None, Value]] = [OrderedDict() for _ in range(count)]
        self.mask = count - 1
        self.each = 0
        self.limit(most)

    def __len__(self) -> int:
        return sum(map(len, self.small))

    def of(self, key: str | None) -> OrderedDict[str | None, Value]:
        """The table that has a key, if any has; those used longest ago come first."""
        return self.small[hash(key) & self.mask]

    def get(self, key: str | None) -> Value | None:
        """What is known of a key."""
        return self.of(key).get(key)

    def limit(self, most: int) -> None:
        """Have room for another number of keys."""
        self.each = -(-most // len(self.small))
