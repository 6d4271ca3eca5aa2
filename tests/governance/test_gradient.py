"""A limit that is learnt: it finds what an upstream can take, and leaves what it cannot."""

from __future__ import annotations

import random

import pytest

from protogate.governance.gradient import SAMPLES, WINDOW, Gradient


def window(gradient, seconds, busy, now):
    """One window of answers."""
    for _ in range(SAMPLES):
        gradient.sample(seconds, busy, now)


def test_it_grows_while_answers_take_as_long_as_usual():
    gradient = Gradient(20, 1, 1000, 1.5, 0.0)
    seen = []
    for n in range(1, 60):
        window(gradient, 0.01, round(gradient.limit), n * WINDOW)
        seen.append(gradient.limit)
    assert seen == sorted(seen)
    assert seen[0] == pytest.approx(20 + 0.2 * 20**0.5)
    assert seen[-1] > 100


def test_it_shrinks_by_the_gradient_when_they_take_longer():
    gradient = Gradient(100, 1, 1000, 1.5, 0.0)
    for n in range(1, 21):
        window(gradient, 0.01, 100, n * WINDOW)
    before = gradient.limit
    window(gradient, 0.1, 200, 21 * WINDOW)
    assert gradient.limit == pytest.approx(before * 0.8 + 0.2 * (before * 0.5 + before**0.5))
    for n in range(22, 60):
        window(gradient, 0.1, 200, n * WINDOW)
    assert gradient.limit < 12


def test_a_little_longer_is_as_usual():
    gradient = Gradient(100, 1, 1000, 2.0, 0.0)
    for n in range(1, 21):
        window(gradient, 0.010, 100, n * WINDOW)
    before = gradient.limit
    window(gradient, 0.018, 200, 21 * WINDOW)
    assert gradient.limit > before


def test_nothing_is_learnt_of_what_is_not_used():
    gradient = Gradient(100, 1, 1000, 1.5, 0.0)
    for n in range(1, 50):
        window(gradient, 0.01, 49, n * WINDOW)
    assert gradient.limit == 100
    window(gradient, 0.01, 50, 51 * WINDOW)
    assert gradient.limit > 100


def test_it_is_used_as_much_as_it_ever_was_in_the_window():
    gradient = Gradient(100, 1, 1000, 1.5, 0.0)
    gradient.sample(0.01, 60, 0.1)
    for _ in range(SAMPLES):
        gradient.sample(0.01, 1, WINDOW)
    assert gradient.limit > 100


def test_few_answers_and_short_times_are_no_window():
    gradient = Gradient(10, 1, 1000, 1.5, 0.0)
    for _ in range(1000):
        gradient.sample(0.01, 10, WINDOW * 0.9)
    assert gradient.short == 0.0
    gradient.sample(0.01, 10, WINDOW)
    assert gradient.short == pytest.approx(0.01)
    for n in range(SAMPLES - 1):
        gradient.sample(0.5, 10, WINDOW * (2 + n))
    assert gradient.short == pytest.approx(0.01)
    gradient.sample(0.5, 10, WINDOW * 20)
    assert gradient.short == pytest.approx(0.5)


@pytest.mark.parametrize(("least", "most"), [(5, 50), (20, 20)])
def test_it_stays_within_its_bounds(least, most):
    gradient = Gradient(1000, least, most, 1.5, 0.0)
    assert gradient.limit == most
    chance = random.Random(7)
    for n in range(1, 500):
        window(gradient, chance.choice([0.0, 1e-9, 0.001, 1.0, 100.0]), 1000, n * WINDOW)
        assert least <= gradient.limit <= most


def test_what_is_usual_follows_quickly_when_all_is_quick_again():
    gradient = Gradient(100, 1, 1000, 1.5, 0.0)
    for n in range(1, 21):
        window(gradient, 1.0, 100, n * WINDOW)
    for n in range(21, 71):
        window(gradient, 0.01, 100, n * WINDOW)
    assert gradient.long < 0.1


def test_it_finds_what_an_upstream_can_take():
    """One that serves 40 at a time in 10 ms each; who comes beyond waits in its queue."""
    gradient = Gradient(10, 5, 1000, 1.5, 0.0)
    settled = []
    for n in range(1, 400):
        busy = int(gradient.limit)
        seconds = 0.01 * max(busy / 40, 1.0)
        window(gradient, seconds, busy, n * WINDOW)
        if n > 200:
            settled.append(gradient.limit)
    assert min(settled) >= 40, "it is kept busy"
    assert max(settled) < 200, "and not flooded"
