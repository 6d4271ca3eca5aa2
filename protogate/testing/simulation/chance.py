"""
Chance and the time of day, both of the story's making while it is told.

Rules
- Every C{SystemRandom}, C{os.urandom} and C{random} draws from the seed; C{time.time()} is what the reactor's clock
  says.  Afterwards all is as it was.
- What was taken out of these before, such as a default argument C{now=time.time}, is not reached.
- For one thread, and not for secrets.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

EPOCH: Final = 1_767_225_600.0
"""What time it is when a story begins: 2026-01-01T00:00:00Z, in seconds."""


def dice(seed: int, *names: object) -> random.Random:
    """Dice of their own for somebody: what others throw does not change what these show."""
    return random.Random("/".join(map(str, (seed, *names))))


@contextmanager
def replayed(chance: random.Random, now: Callable[[], float]) -> Iterator[None]:
    """
    @param chance: what is thrown meanwhile.
    @param now: seconds since the story began.
    """
    system: Any = random.SystemRandom
    kept = system.random, system.getrandbits, system.randbytes, os.urandom, time.time, random.getstate()
    system.random = lambda self: chance.random()
    system.getrandbits = lambda self, k: chance.getrandbits(k)
    system.randbytes = lambda self, n: chance.randbytes(n)
    os.urandom = chance.randbytes
    time.time = lambda: EPOCH + now()
    random.seed(chance.getrandbits(64))
    try:
        yield
    finally:
        system.random, system.getrandbits, system.randbytes, os.urandom, time.time = kept[:5]
        random.setstate(kept[5])
