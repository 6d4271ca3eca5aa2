"""How many workers a machine is for, and where they run."""

from __future__ import annotations

import os
from collections.abc import Sequence


def cores(pinning: bool) -> Sequence[int]:
    """Where workers are to stay, each on the next of these; empty = anywhere."""
    return sorted(os.sched_getaffinity(0)) if pinning and hasattr(os, "sched_getaffinity") else ()


def number_of(workers: int) -> int:
    """How many workers are meant by a number of the configuration."""
    if workers >= 0:
        return int(workers)
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
