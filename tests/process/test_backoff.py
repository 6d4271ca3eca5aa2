from __future__ import annotations

from protogate.process.backoff import FIRST, MOST, STEADY, Backoff


def test_the_first_end_is_no_habit() -> None:
    assert Backoff().ended(0.1) == 0


def test_what_ends_again_and_again_waits_ever_longer_up_to_a_bound() -> None:
    backoff = Backoff()
    waits = [backoff.ended(0.1) for _ in range(12)]
    assert waits[:5] == [0, FIRST, 2 * FIRST, 4 * FIRST, 8 * FIRST]
    assert waits[-1] == MOST == max(waits)
    assert waits == sorted(waits)


def test_a_life_of_some_length_is_a_new_start() -> None:
    backoff = Backoff()
    for _ in range(5):
        backoff.ended(0.1)
    assert backoff.ended(STEADY) == 0
    assert backoff.ended(0.1) == 0
    assert backoff.ended(0.1) == FIRST
