"""What the garbage collector is told: once, when a process begins to serve."""

from __future__ import annotations

import gc
from typing import Final

YOUNG: Final = 10_000
"""
New objects after which it looks for garbage among the young ones.  Serving leaves none (tests assert it), so to look
every 700, as the interpreter does by itself, costs a gateway some percent of its time and finds nothing.
"""


def settle() -> None:
    """What is there now stays: the collector need not look at it again and again."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(YOUNG, *gc.get_threshold()[1:])
