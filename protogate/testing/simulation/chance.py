"""
Chance and the time of day, both of the story's making while it is told.

Rules
- Every C{SystemRandom}, C{os.urandom} and C{random} draws from the seed; C{time.time()} is what the reactor's clock
  says.  Afterwards all is as it was.
- Each of these has dice of its own, so that it is no matter whether a module that is already there has taken one out
  before, such as a default argument C{now=time.time}: that is not reached.
- What a module takes out meanwhile, because it is imported now, goes back to the real thing afterwards.
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

_urandom, _time = os.urandom, time.time
_bytes: list[Callable[[int], bytes]] = [_urandom]
_clock: list[Callable[[], float]] = [_time]


def _some_bytes(size: int, /) -> bytes:
    return _bytes[-1](size)


def _what_time() -> float:
    return _clock[-1]()


def dice(seed: int, *names: object) -> random.Random:
    """Dice of their own for somebody: what others throw does not change what these show."""
    return random.Random("/".join(map(str, (seed, *names))))


@contextmanager
def replayed(seed: int, now: Callable[[], float]) -> Iterator[None]:
    """
    @param seed: of what is thrown meanwhile.
    @param now: seconds since the story began.
    """
    system: Any = random.SystemRandom
    chance = dice(seed, "gateway")
    kept = system.random, system.getrandbits, system.randbytes, os.urandom, time.time, random.getstate()
    system.random = lambda self: chance.random()
    system.getrandbits = lambda self, k: chance.getrandbits(k)
    system.randbytes = lambda self, n: chance.randbytes(n)
    _bytes.append(dice(seed, "bytes").randbytes)
    _clock.append(lambda: EPOCH + now())
    os.urandom, time.time = _some_bytes, _what_time
    random.seed(f"{seed}/random")
    try:
        yield
    finally:
        system.random, system.getrandbits, system.randbytes, os.urandom, time.time = kept[:5]
        random.setstate(kept[5])
        _bytes.pop()
        _clock.pop()
