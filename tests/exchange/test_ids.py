"""Ids of requests: always 32 hex digits, never one twice."""

from __future__ import annotations

import re

from protogate.exchange.ids import PAGE, Ids


def test_no_id_is_given_twice_and_all_have_32_hex_digits() -> None:
    made = Ids()
    given = [made.next() for _ in range(3 * PAGE + 1)]
    assert len(set(given)) == len(given)
    assert all(re.fullmatch("[0-9a-f]{32}", one) for one in given)
    assert given == sorted(given)


def test_two_processes_have_no_id_in_common() -> None:
    one, other = Ids(), Ids()
    assert one.next()[:16] != other.next()[:16]


def test_the_number_starts_anywhere_so_that_not_even_the_same_process_id_repeats_one() -> None:
    assert Ids().next()[16:29] != Ids().next()[16:29]
