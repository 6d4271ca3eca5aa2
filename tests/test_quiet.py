"""Work in a thread that holds the event loop up for no longer than it has to."""

from __future__ import annotations

import gc
import sys

import pytest

from protogate.quiet import SWITCH, Quiet, bury


class Witness:
    """Notes how soon the interpreter is handed over at the moment it is let go."""

    def __init__(self, seen: list[float], inner: list[object] | None = None) -> None:
        self.seen, self.inner = seen, inner

    def __del__(self) -> None:
        self.seen.append(sys.getswitchinterval())
        if self.inner is not None:
            bury(self.inner)
            self.seen.append(sys.getswitchinterval())


def test_a_burial_lets_the_event_loop_go_on_soon_and_another_one_does_not_end_that() -> None:
    before, seen = sys.getswitchinterval(), []
    remains: list[object] = [Witness(seen), Witness(seen, [Witness(seen)])]
    bury(remains)
    assert remains == []
    assert seen == pytest.approx([SWITCH] * 4)
    assert sys.getswitchinterval() == before


def test_no_garbage_is_collected_while_anybody_is_inside() -> None:
    quiet = Quiet()
    assert gc.isenabled()
    with quiet:
        assert not gc.isenabled()
        assert quiet.collects
        with quiet:
            pass
        assert not gc.isenabled()
    assert gc.isenabled()


def test_a_collector_that_is_off_stays_off() -> None:
    quiet = Quiet()
    gc.disable()
    try:
        with quiet:
            assert not quiet.collects
        assert not gc.isenabled()
    finally:
        gc.enable()
