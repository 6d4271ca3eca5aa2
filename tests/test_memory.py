from __future__ import annotations

import gc

import pytest

from protogate.memory import YOUNG, settle


@pytest.fixture(autouse=True)
def as_before():
    threshold, enabled = gc.get_threshold(), gc.isenabled()
    gc.enable()
    gc.unfreeze()
    yield
    gc.set_threshold(*threshold)
    if not enabled:
        gc.disable()
    gc.freeze()


def test_what_is_there_is_looked_at_no_more_and_what_comes_less_often():
    assert gc.get_freeze_count() == 0
    _, *older = gc.get_threshold()
    settle()
    assert gc.get_freeze_count() > 1000
    assert gc.get_threshold() == (YOUNG, *older)


def test_garbage_is_still_collected():
    class Cycle:
        def __init__(self):
            self.me = self

    settle()
    for _ in range(3 * YOUNG):
        Cycle()
    assert sum(isinstance(found, Cycle) for found in gc.get_objects()) <= YOUNG
