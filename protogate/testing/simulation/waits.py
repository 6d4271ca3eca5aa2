"""
How long something takes, as a distribution: C{wait(dice)} gives seconds.

    Always(0.02)              each time the same
    Between(0.01, 0.05)       any of these, equally likely
    Spread(0.02, 0.5)         around a median, with a long tail (log-normal): what most servers are like
    Either(0.05, Always(2.0), Spread(0.02))   in 5 % of all cases the first, else the second
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import log
from random import Random

Wait = Callable[[Random], float]


@dataclass(frozen=True, slots=True)
class Always:
    """Each time the same."""

    seconds: float

    def __call__(self, dice: Random) -> float:
        return self.seconds


@dataclass(frozen=True, slots=True)
class Between:
    """Any of these."""

    least: float
    most: float

    def __call__(self, dice: Random) -> float:
        return dice.uniform(self.least, self.most)


@dataclass(frozen=True, slots=True)
class Spread:
    """
    Log-normal.

    @ivar median: seconds; half of all are shorter.
    @ivar sigma: of the logarithm: with 0.5 the 99th percentile is 3.2 times the median, with 1.0 ten times.
    """

    median: float
    sigma: float = 0.5

    def __call__(self, dice: Random) -> float:
        return dice.lognormvariate(log(self.median), self.sigma)


@dataclass(frozen=True, slots=True)
class Either:
    """
    @ivar share: of the first, 0.0 to 1.0.
    """

    share: float
    first: Wait
    second: Wait

    def __call__(self, dice: Random) -> float:
        return (self.first if dice.random() < self.share else self.second)(dice)
