"""A short run of the fuzzer; C{fuzz.py} has the long one."""

from __future__ import annotations

import pytest
from fuzz import KINDS, fuzz


@pytest.mark.interpreted("it is led by the lines that run")
@pytest.mark.parametrize("what", KINDS)
def test_whatever_comes_nothing_breaks(what):
    first, last, corpus = fuzz(what, 400, 1)
    assert last > first > 50, "it finds its way into the code"
    assert corpus
