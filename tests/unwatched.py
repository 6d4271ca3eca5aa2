"""
What coverage looks at: to be looked at makes Python four times as slow.

It sees one thread by the function that is set for tracing, and processes by a variable of the environment.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

CHILDREN = "COVERAGE_PROCESS_CONFIG"
"""With this coverage tells processes that are started from here to be measured."""


@contextmanager
def unwatched(children: bool = True) -> Iterator[Any]:
    """
    Here, in this thread, nothing is measured: by the same lines for the hundredth time, that would only be slow.

    @param children: nor in processes that it starts.
    @return: who was watching, for L{watched}.
    """
    told = os.environ.pop(CHILDREN, None) if children else None
    watching = sys.gettrace()
    try:
        with watched(None):
            yield watching
    finally:
        if told is not None:
            os.environ[CHILDREN] = told


@contextmanager
def watched(watching: Any) -> Iterator[None]:
    """Somebody looks at this thread, or nobody."""
    before = sys.gettrace()
    sys.settrace(watching)
    try:
        yield
    finally:
        sys.settrace(before)
