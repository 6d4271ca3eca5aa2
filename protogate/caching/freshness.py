"""
How long an answer is fresh (RFC 9111, 4.2), and how old it was when it came (4.2.3).

Wall clocks are compared with each other only where two messages have been stamped; what passes here is measured with a
clock that only goes forward.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple

from protogate.caching import httpdate
from protogate.caching.directives import Control, of_answer, seconds, targeted
from protogate.message import Headers

HEURISTIC: Final = frozenset((200, 203, 204, 300, 301, 308, 404, 405, 410, 414, 501))
"""Statuses whose freshness may be guessed at (RFC 9110, 15.1); 206 is not kept at all."""


@dataclass(frozen=True, slots=True)
class Guess:
    """
    How freshness is guessed where nothing is said (RFC 9111, 4.2.2).

    @ivar share: of the time since C{Last-Modified}; 0 = nothing is guessed.
    @ivar most: seconds at most.
    """

    share: float = 0.0
    most: float = 86_400.0


class Freshness(NamedTuple):
    """
    @ivar control: the directives that hold.
    @ivar lifetime: seconds from its making on that the answer is fresh.
    @ivar explicit: the origin has said how long, or that others may keep it.
    @ivar guessed: the lifetime is a guess.
    """

    control: Control
    lifetime: float
    explicit: bool
    guessed: bool = False


def control_of(headers: Headers, names: tuple[bytes, ...]) -> tuple[Control, bool]:
    """
    The directives that hold for this cache, and whether they stand in a field for it alone (RFC 9213, 2.2).

    @param names: targeted fields, the most specific first.
    """
    for name in names:
        values = headers.all(name)
        if values:
            control = targeted(values)
            if control is not None:
                return control, True
    return of_answer(headers.all(b"cache-control")), False


def freshness_of(status: int, headers: Headers, names: tuple[bytes, ...], guess: Guess, now: float) -> Freshness:
    """
    @param now: seconds since 1970.
    """
    control, alone = control_of(headers, names)
    lifetime = control.max_age if control.s_maxage is None else control.s_maxage
    if lifetime is not None:
        return Freshness(control, lifetime, True)
    expires = [] if alone else headers.all(b"expires")
    if expires:
        # An invalid date is one of the past, 0 above all (5.3); so are two that differ.
        ends = httpdate.read(expires[0], now) if len(set(expires)) == 1 else None
        return Freshness(control, 0.0 if ends is None else max(0.0, ends - _made(headers, now)), True)
    explicit = control.public or control.no_cache
    if guess.share and (status in HEURISTIC or control.public):
        modified = headers.get(b"last-modified")
        since = None if modified is None else httpdate.read(modified, now)
        if since is not None:
            passed = max(0.0, _made(headers, now) - since)
            return Freshness(control, min(passed * guess.share, guess.most), explicit, True)
    return Freshness(control, 0.0, explicit)


def first_age(headers: Headers, now: float, delay: float) -> float:
    """
    How old an answer is when it comes, in seconds: C{corrected_initial_age} (4.2.3).

    @param now: seconds since 1970.
    @param delay: seconds that passed since it was asked for.
    """
    ages = headers.all(b"age")
    said = seconds(ages[0].partition(b",")[0].strip(b" \t")) if ages else None
    return max(0.0, int(now) - _made(headers, int(now)), 0.0 if said is None else said + delay)


def _made(headers: Headers, now: float) -> float:
    date = headers.get(b"date")
    made = None if date is None else httpdate.read(date, now)
    return now if made is None else made
