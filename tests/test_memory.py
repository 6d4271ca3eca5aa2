from __future__ import annotations

import gc

import pytest

from protogate.memory import YOUNG, settle


@pytest.fixture(autouse=True)
def as_before():
    before = gc.get_threshold()
    yield
    gc.set_threshold(*before)
    gc.unfreeze()


def test_what_is_there_is_looked_at_no_more_and_what_comes_less_often():
    assert gc.get_freeze_count() == 0
    _, *older = gc.get_threshold()
    settle()
    assert gc.get_freeze_count() > 1000
    assert gc.get_threshold() == (YOUNG, *older)


def test_garbage_is_still_collected():
    class Cycle:
        pass

    settle()
    born = [Cycle() for _ in range(3 * YOUNG)]
    for each in born:
        each.me = each
    del born, each
    kept = [Cycle() for _ in range(2 * YOUNG)]
    assert sum(isinstance(found, Cycle) for found in gc.get_objects()) < len(kept) + YOUNG
