"""Work that coverage does not look at: by the same lines for the hundredth time, it would only be slow."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

CHILDREN = "COVERAGE_PROCESS_CONFIG"
"""With this coverage tells processes that are started from here to be measured."""


@contextmanager
def unwatched() -> Iterator[None]:
    """Here, in this thread and in processes that it starts, nothing is measured."""
    watching, children = sys.gettrace(), os.environ.pop(CHILDREN, None)
    sys.settrace(None)
    try:
        yield
    finally:
        sys.settrace(watching)
        if children is not None:
            os.environ[CHILDREN] = children
