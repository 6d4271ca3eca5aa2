"""The lines of an answer that goes on: however they are cut, whoever is slow, however it ends."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from twisted.internet.defer import CancelledError, Deferred

from protogate.discovery.lines import Lines, TooLong
from protogate.errors import UPSTREAM, Abort
from protogate.testing.bodies import Giver


def result(taking: Deferred[list[bytes]]) -> Any:
    found: list[Any] = []
    taking.addBoth(found.append)
    return found[0] if found else None


def pair(most: int = 100) -> tuple[Giver, Lines]:
    giver = Giver(close=False)
    return giver, Lines(giver.body, most)


@settings(max_examples=50, deadline=None)
@given(st.lists(st.binary(min_size=1, max_size=5).filter(lambda line: b"\n" not in line and line.strip())), st.data())
def test_lines_come_whole_however_they_are_cut(lines: list[bytes], data: st.DataObject) -> None:
    giver, taken = pair()
    whole = b"".join(line + b"\n" for line in lines)
    got: list[bytes] = []
    while whole:
        size = data.draw(st.integers(1, len(whole)))
        waiting = taken.take() if data.draw(st.booleans()) else None
        giver.write(whole[:size])
        whole = whole[size:]
        got += (result(waiting) or []) if waiting is not None else []
        if waiting is not None and not waiting.called:
            waiting.addErrback(lambda _: None).cancel()
    giver.finish()
    while more := result(taken.take()):
        got += more
    assert got == lines


def test_who_does_not_take_holds_the_body_up() -> None:
    giver, lines = pair()
    giver.write(b"a\n")
    assert not giver._go
    giver.write(b"b\n")
    assert result(lines.take()) == [b"a"]  # what the body holds comes when it is resumed
    waiting = lines.take()
    assert result(waiting) == [b"b"]
    waiting = lines.take()
    giver.write(b"c\n")
    assert result(waiting) == [b"c"]


def test_the_last_line_needs_no_end() -> None:
    giver, lines = pair()
    waiting = lines.take()
    giver.write(b"a")
    assert result(waiting) is None
    giver.finish()
    assert waiting.result is None  # it was told
    assert result(lines.take()) == []


def test_a_body_that_breaks_fails_after_what_has_come() -> None:
    giver, lines = pair()
    waiting = lines.take()
    giver.write(b"a\n")
    assert result(waiting) == [b"a"]
    giver.abort(Abort("gone", UPSTREAM))
    failure = result(lines.take())
    assert failure.check(Abort)


@pytest.mark.parametrize("text", [b"x" * 101, b"y\n" + b"x" * 101 + b"\nz\n"])
def test_a_line_that_is_too_long_ends_all(text: bytes) -> None:
    giver, lines = pair()
    waiting = lines.take()
    giver.write(text)
    found = result(waiting)
    assert giver.stopped
    while isinstance(found, list) and found:
        found = result(lines.take())
    assert found.check(TooLong)


def test_nobody_is_told_who_gave_up() -> None:
    giver, lines = pair()
    waiting = lines.take()
    waiting.cancel()
    assert result(waiting).check(CancelledError)
    giver.write(b"a\n")
    assert result(lines.take()) == [b"a"]
    lines.stop()
    lines.stop()
    assert giver.stopped
