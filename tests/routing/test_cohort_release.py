"""protogate.routing.release: which target is for whom."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from typing import Any

import pytest
from asking import ask, entry, router, rule

from protogate.cohort import position
from protogate.config import model
from protogate.config.faults import ConfigFaults
from protogate.errors import Abort
from protogate.routing.rules import Route, identity

USER = "request.headers['x-user']"


def target(upstream: str, **more: Any) -> model.Target:
    return model.Target(upstream=upstream, **more)


def route(*targets: model.Target, **more: Any) -> Route:
    more.setdefault("cohort", USER)
    (made,) = router(rule("/", "exact", "uri", entry(*targets, **more))).rules
    return made.routes[0]


def users(made: Route, count: int = 2000) -> dict[str, str]:
    """By user: where each goes."""
    return {name: made.pick(ask(headers={"x-user": name})).upstream for name in (f"u{n}" for n in range(count))}


def gray(percent: float) -> set[str]:
    """Who is gray."""
    went = users(route(target("old"), target("new", gray=percent)))
    return {name for name, upstream in went.items() if upstream == "new"}


# -- by the cohort


def test_the_cohort_is_that_of_the_key() -> None:
    assert gray(5.0) == {name for name in (f"u{n}" for n in range(2000)) if position(name) < 5.0}


def test_a_hundred_thousand_users_are_shared_out_as_the_percentage_says() -> None:
    made = route(target("old"), target("new", gray=5.0))
    release = made.release
    assert release is not None
    went = Counter(made.pick(ask(headers={"x-user": str(number)})).upstream for number in range(100_000))
    assert abs(went["new"] - 5000) < 4 * (100_000 * 0.05 * 0.95) ** 0.5
    assert went["old"] == 100_000 - went["new"]


def test_who_is_gray_stays_so_when_the_percentage_grows() -> None:
    steps = [gray(percent) for percent in (0.0, 1.0, 5.0, 10.0, 50.0, 100.0)]
    for smaller, larger in pairwise(steps):
        assert smaller < larger
    assert len(steps[0]) == 0
    assert len(steps[-1]) == 2000


def test_without_a_key_the_address_decides() -> None:
    exchange = ask()
    at = position("192.0.2.1")
    assert route(target("old"), target("new", gray=at + 0.1)).pick(exchange).upstream == "new"
    assert route(target("old"), target("new", gray=at - 0.1)).pick(exchange).upstream == "old"


def test_the_key_of_the_gateway_counts_where_the_entry_has_none() -> None:
    made = router(rule("/", "exact", "uri", entry(target("old"), target("new", gray=50.0))))
    assert made.releases[0].text == "source.ip"
    assert route(target("old"), target("new", gray=50.0)).release.text == USER  # type: ignore[union-attr]


# -- by what the request says


def test_who_asks_for_it_gets_it() -> None:
    made = route(target("old"), target("new", gray=0.0, when="request.headers['x-version'] == 'next'"))
    assert made.pick(ask(headers={"x-version": "next"})).upstream == "new"
    assert made.pick(ask(headers={"x-version": "old"})).upstream == "old"


def test_the_first_condition_that_holds_decides_before_the_cohort() -> None:
    made = route(
        target("old"),
        target("new", gray=100.0),
        target("blue", when="request.cookies['v'] == 'blue'"),
        target("red", when="true"),
    )
    assert made.pick(ask(headers={"cookie": "v=blue"})).upstream == "blue"
    assert made.pick(ask()).upstream == "red"


# -- the rest


def test_the_others_are_shared_out_by_weight() -> None:
    made = route(target("a", weight=3), target("b", weight=1), target("new", gray=0.0, weight=1000))
    assert Counter(made.pick(ask()).upstream for _ in range(400)) == {"a": 300, "b": 100}


def test_the_others_keep_to_their_target() -> None:
    made = route(target("a"), target("b"), target("new", gray=10.0), sticky=USER)
    went = users(made)
    assert went == users(made)
    plain = users(route(target("a"), target("b"), sticky=USER))
    assert all(went[name] in ("new", plain[name]) for name in went)


def test_a_target_without_a_weight_is_never_chosen_by_weight() -> None:
    with pytest.raises(Abort, match="all targets have weight 0"):
        route(target("old", weight=0), target("new", gray=0.0)).pick(ask())


def test_what_is_sure_and_what_is_not() -> None:
    """As a cache wants to know it: nothing is used up by the question."""
    one = route(target("old"), target("new", gray=50.0))
    for name in map(str, range(50)):
        exchange = ask(headers={"x-user": name})
        assert one.sure(exchange) is one.pick(exchange)
    two = route(target("a"), target("b"), target("new", gray=50.0))
    sure = [two.sure(ask(headers={"x-user": name})) for name in map(str, range(50))]
    assert {None if each is None else each.upstream for each in sure} == {None, "new"}
    assert not one.alike
    assert route(target("a"), target("b")).alike
    assert route(target("a")).sure(ask()) is not None


def test_the_shares_are_told() -> None:
    made = route(target("a", weight=3), target("b", weight=1), target("new", gray=20.0), target("x", when="false"))
    assert [each.upstream for each, _ in made.odds()] == ["a", "b", "new", "x"]
    assert [share for _, share in made.odds()] == pytest.approx([0.6, 0.2, 0.2, 0.0])


# -- faults


@pytest.mark.parametrize(
    ("made", "where", "why"),
    [
        (entry(target("a", gray=1.0)), "targets", "one must be there for everybody else"),
        (entry(target("a"), target("b", gray=1.0), target("c", gray=2.0)), "targets[2].gray", "another target"),
        (entry(target("a"), target("b", when="1 +")), "targets[1].when", ""),
        (entry(target("a"), target("b", gray=5.0), cohort="source.ipp"), "cohort", "ipp"),
        (entry(target("a", hold=model.Hold())), "targets[0].hold", "needs something to be compared with"),
        (
            entry(target("a", weight=0), target("b", gray=5.0, hold=model.Hold())),
            "targets[1].hold",
            "needs something to be compared with",
        ),
    ],
)
def test_what_cannot_be(made: model.Entry, where: str, why: str) -> None:
    with pytest.raises(ConfigFaults) as caught:
        router(rule("/", "exact", "uri", made))
    (fault,) = caught.value.faults
    path = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in fault.path)
    assert path == f".routes[0].routes[0].{where}"
    assert why in fault.message


def test_a_hold_that_compares_with_nobody_is_doubted() -> None:
    made = router(rule("/", "exact", "uri", entry(target("a"), target("b", gray=100.0, hold=model.Hold()))))
    (warning,) = made.warnings
    assert "gets everything" in warning.message


# -- which entry is the same


def test_an_entry_is_the_same_when_it_says_the_same() -> None:
    def of(value: str = "/", **more: Any) -> str:
        written = entry(target("a"), target("b", gray=more.pop("gray", 5.0), hold=model.Hold(**more)))
        return identity(router(rule(value, "exact", "uri", written)).rules[0], written)

    assert of() == of()
    assert len({of(), of("/other"), of(gray=6.0), of(attempt=1), of(window=model.Seconds(30))}) == 5
