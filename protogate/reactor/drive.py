"""
Coroutines of uvloop, run from the outside: what a task does, at once.

A task takes its first step in the next turn of the loop.  In between uvloop would read, and give what it read to a
protocol that cannot have it yet.

Rules
- One future at a time is waited for, as uvloop's own coroutines do.
- C{over} is called once, with the result or with a L{Failure}.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

from twisted.python.failure import Failure


def drive(coroutine: Coroutine[Any, Any, Any], over: Callable[[Any], object]) -> None:
    """Run it up to where it waits, and on from there when that is there."""
    result: Any
    try:
        future = coroutine.send(None)
    except StopIteration as end:
        result = end.value
    except Exception:
        result = Failure()
    else:
        future.add_done_callback(lambda _: drive(coroutine, over))
        return
    over(result)
