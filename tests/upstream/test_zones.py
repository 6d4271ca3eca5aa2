"""How requests are shared out between zones."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from polls import Poll, endpoint, endpoints, fill, holding, request, short

from protogate.config import model
from protogate.config.faults import ConfigFaults
from protogate.upstream.endpoint import Endpoint
from protogate.upstream.zones import flat, tiers, verify


def zoned(among: list[Endpoint], own: str = "A", way: dict[str, Any] | None = None, **zones: Any) -> Poll:
    return Poll(among, zone=own, zones=model.Zones(**zones), **(way or {}))


def both(many: int = 4) -> list[Endpoint]:
    """1 to 4 are in A, 5 to 8 in B."""
    return [*endpoints(*[100] * many, zone="A"), *endpoints(*[100] * many, zone="B", first=many + 1)]


def by_zone(one: Poll, times: int = 2000) -> dict[str, int]:
    picks = [one.pick() for _ in range(times)]
    return Counter("nobody" if each is None else each.place.zone for each in picks)


def down(one: Poll, *names: int, share: float = 0.0) -> None:
    for each in one.among:
        holding(each, share if int(short(each)) in names else 1.0)
    one.arrange()


# -- prefer


def test_the_own_zone_keeps_all_while_enough_of_it_is_well() -> None:
    one = zoned(both())
    assert by_zone(one) == {"A": 2000}
    down(one, 1)
    assert by_zone(one) == {"A": 2000}, "three of four, times 1.4, are more than all"
    assert set(one.counts(300).values()) == {100}


def test_what_it_cannot_take_goes_to_the_others() -> None:
    one = zoned(both())
    down(one, 1, 2)
    assert by_zone(one) == {"A": 1400, "B": 600}, "half of it, times 1.4"
    down(one, 1, 2, 3)
    assert by_zone(one) == {"A": 700, "B": 1300}
    down(one, 1, 2, 3, 4)
    assert by_zone(one) == {"B": 2000}
    down(one)
    assert by_zone(one) == {"A": 2000}


def test_an_endpoint_that_is_held_in_part_counts_in_part() -> None:
    one = zoned(both(2), spill=1.0)
    down(one, 1, share=0.5)
    assert by_zone(one) == {"A": 1500, "B": 500}


def test_when_both_are_short_each_gets_in_proportion() -> None:
    one = zoned(both())
    down(one, 1, 2, 3, 5, 6, 7)
    seen = by_zone(one)
    assert seen["A"] == seen["B"] == 1000


def test_when_none_is_well_anywhere_the_own_zone_gets_all() -> None:
    one = zoned(both())
    down(one, *range(1, 9))
    assert by_zone(one) == {"A": 2000}
    assert one.counted == ["nobody_well"]


def test_zones_follow_in_order_and_the_rest_together() -> None:
    among = [endpoint(number, 100, zone) for number, zone in enumerate("ABCDE", 1)]
    one = zoned(among, order=("C",))
    assert by_zone(one, 100) == {"A": 100}
    down(one, 1)
    assert by_zone(one, 100) == {"C": 100}
    down(one, 1, 3)
    seen = by_zone(one, 99)
    assert set(seen.values()) == {33}
    assert set(seen) == {"B", "D", "E"}


def test_a_fixed_order_is_the_same_for_all_gateways() -> None:
    for own in ("A", "B", ""):
        one = zoned(both(1), own, prefer="none", order=("B", "A"))
        assert by_zone(one, 10) == {"B": 10}
        down(one, 2)
        assert by_zone(one, 10) == {"A": 10}


def test_a_gateway_of_another_zone_uses_all_alike() -> None:
    assert by_zone(zoned(both(), "C")) == {"A": 1000, "B": 1000}


def test_an_endpoint_without_room_hands_on_to_the_next_zone() -> None:
    one = zoned(both(2), order=("B",))
    fill(one.among[0])
    assert by_zone(one, 100) == {"A": 50, "B": 50}
    assert one.counted == ["zone_spilled"] * 50
    for each in one.among:
        fill(each)
    assert by_zone(one, 100) == {"A": 100}, "to wait there is no better"


def test_another_attempt_stays_in_the_zone_while_it_can() -> None:
    one = zoned(both(2))
    asked = request()
    first = one.election.pick(asked)
    assert first is not None
    second = one.election.other(asked, [first])
    assert second is not None
    third = one.election.other(asked, [first, second])
    assert third is not None
    assert [each.place.zone for each in (first, second, third)] == ["A", "A", "B"]


def test_a_zone_comes_back_as_slowly_as_its_endpoints_start_and_where_all_are_new_none_is_spared() -> None:
    one = zoned(both(), way={"slow_start": 30.0})
    down(one, 1, 2, 3, 4)
    one.time.pass_by(60)
    down(one)
    assert by_zone(one, 1000) == {"A": 140, "B": 860}
    one.time.pass_by(15.1)
    assert by_zone(one, 1000) == {"A": 770, "B": 230}
    one.time.pass_by(15.1)
    assert by_zone(one, 1000) == {"A": 1000}
    one.arrange([*endpoints(100, 100, zone="A", first=11), *endpoints(100, 100, zone="B", first=13)])
    assert by_zone(one, 1000) == {"A": 1000}, "all of them are new"


# -- schedule


def test_a_schedule_gives_each_zone_its_number() -> None:
    one = zoned(both(), "A", schedule={"A": 70, "B": 30})
    assert by_zone(one, 10_000) == {"A": 7000, "B": 3000}
    assert by_zone(zoned(both(), "B", schedule={"A": 70, "B": 30}), 1000) == {"A": 700, "B": 300}


def test_the_number_of_endpoints_does_not_matter() -> None:
    among = [*endpoints(100, 100, 100, zone="A"), *endpoints(900, zone="B", first=4)]
    assert by_zone(zoned(among, schedule={"A": 1, "B": 1}), 1000) == {"A": 500, "B": 500}


def test_one_number_moves_a_share_at_once() -> None:
    one = zoned(both(), schedule={"A": 100, "B": 0})
    for part in (0, 10, 50, 100):
        one.settle("A", zones=model.Zones(schedule={"A": 100 - part, "B": part}))
        assert by_zone(one, 1000).get("B", 0) == part * 10


def test_a_zone_that_fails_leaves_its_share_to_the_others() -> None:
    one = zoned(both(), schedule={"A": 50, "B": 50})
    down(one, 1, 2)
    assert by_zone(one, 1700) == {"A": 700, "B": 1000}, "half of it, times 1.4, is 0.7 of 50"
    down(one, 1, 2, 3, 4)
    assert by_zone(one) == {"B": 2000}


def test_what_has_no_number_gets_nothing_whatever_happens() -> None:
    one = zoned([*both(1), endpoint(3, 100, "C")], schedule={"A": 1, "B": 0})
    assert by_zone(one, 10) == {"A": 10}
    assert one.election.other(request(), [one.among[0]]) is None
    down(one, 1)
    assert by_zone(one, 10) == {"A": 10}
    assert one.counted == ["nobody_well"]
    one.arrange(one.among[1:])
    assert by_zone(one, 10) == {"nobody": 10}


# -- with every way to choose


@pytest.mark.parametrize("balance", ["weighted", "leastRequest", "peakEwma"])
def test_zones_are_shared_out_exactly_whatever_the_way(balance: str) -> None:
    one = zoned(both(), way={"balance": balance}, schedule={"A": 70, "B": 30})
    assert by_zone(one, 10_000) == {"A": 7000, "B": 3000}


def test_a_key_stays_in_its_zone() -> None:
    way = {"balance": "hash", "hash": model.Hash(key="source.ip")}
    one = zoned(both(), way=way, schedule={"A": 70, "B": 30})
    names = [f"user-{number}" for number in range(2000)]
    before = one.owners(names)
    assert one.owners(names) == before
    inside = {"1", "2", "3", "4"}
    assert abs(sum(each in inside for each in before.values()) - 1400) < 90
    one.settle("A", zones=model.Zones(schedule={"A": 60, "B": 40}), **way)
    after = one.owners(names)
    moved = [key for key in names if before[key] != after[key]]
    assert all(before[key] in inside and after[key] not in inside for key in moved)
    assert abs(len(moved) - 200) < 60


def test_a_key_moves_no_further_than_it_must_when_its_zone_spills() -> None:
    one = zoned(both(), way={"balance": "hash", "hash": model.Hash(key="source.ip")})
    names = [f"user-{number}" for number in range(1000)]
    before = one.owners(names)
    assert set(before.values()) == {"1", "2", "3", "4"}
    down(one, 1, 2, 3, 4)
    assert set(one.owners(names).values()) == {"5", "6", "7", "8"}
    down(one)
    assert one.owners(names) == before


PLACES = st.lists(
    st.tuples(st.integers(0, 1000), st.sampled_from("ABC"), st.sampled_from([0.0, 0.1, 0.5, 1.0])), max_size=9
)
ZONES = st.builds(
    model.Zones,
    prefer=st.sampled_from(["own", "none"]),
    order=st.permutations("ABC").map(lambda order: tuple(order[:2])),
    spill=st.floats(1, 3),
) | st.builds(model.Zones, schedule=st.dictionaries(st.sampled_from("ABC"), st.integers(0, 1000), min_size=1))


@settings(max_examples=80)
@given(PLACES, ZONES, st.sampled_from("ABX"))
def test_all_is_shared_out_while_anybody_is_well(
    places: list[tuple[int, str, float]], zones: model.Zones, own: str
) -> None:
    shares = []
    for number, (weight, zone, share) in enumerate(places):
        shares.append((endpoint(number, weight, zone), round(weight * 100 * share)))
    found = tiers(zones, own, shares, 100)
    seen = [each for tier in found for each, _ in tier.shares]
    assert len(set(seen)) == len(seen)
    for tier in found:
        assert bool(tier.part) <= any(share for _, share in tier.shares)
    able = [each for each, share in shares if share and (not zones.schedule or zones.schedule.get(each.place.zone))]
    if sum(share for _, share in shares) > 100:  # else it may be less than a thousandth of a zone
        assert not able or any(tier.part for tier in found) or len(places) > 1
    if not zones.schedule:
        assert sum(tier.part for tier in found) <= 1000
    total = sum(share for _, share in flat(found))
    for tier in found:
        if tier.part:
            part = sum(share for each, share in flat(found) if each in [one for one, _ in tier.shares])
            assert part / total == pytest.approx(tier.part / sum(each.part for each in found), rel=0.01)


# -- what is wrong


def upstream(*zones_: str, **zones: Any) -> model.Upstream:
    made = tuple(model.Endpoint(url=f"http://10.0.0.{n}", zone=zone) for n, zone in enumerate(zones_, 1))
    return model.Upstream(name="up", endpoints=made, zones=model.Zones(**zones))


@pytest.mark.parametrize(
    ("given", "own", "path", "why"),
    [
        (upstream("A", "B"), "", ("zones", "prefer"), "set gateway.zone"),
        (upstream("A", "B", order=("C",)), "A", ("zones", "order"), 'no endpoint is in zone "C"'),
        (upstream("A", "B", order=("B", "B")), "A", ("zones", "order"), "twice"),
        (upstream("A", "B", schedule={"A": 1, "B": 1}, order=("B",)), "", ("zones", "order"), "schedule"),
        (upstream("A", schedule={"A": 0}), "", ("zones", "schedule"), "no zone gets anything"),
        (upstream("A", schedule={"A": 1, "B": 1}), "", ("zones", "schedule"), 'no endpoint is in zone "B"'),
        (upstream("A", "B", schedule={"A": 1}), "", ("endpoints", 1, "zone"), 'zone "B" is not in the schedule'),
        (upstream("A", "", schedule={"A": 1}), "", ("endpoints", 1, "zone"), "without a zone"),
    ],
)  # fmt: skip
def test_what_is_wrong_with_zones_is_said(
    given: model.Upstream, own: str, path: tuple[str | int, ...], why: str
) -> None:
    with pytest.raises(ConfigFaults) as caught:
        verify([model.Upstream(name="other"), given], own)
    (fault,) = caught.value.faults
    assert fault.path == ("upstreams", 1, *path)
    assert why in fault.message


def test_zones_that_are_found_may_have_any_name() -> None:
    found = model.Discovery(dns="a.test:80")
    made = model.Upstream(name="up", discovery=found, zones=model.Zones(order=("X",)))
    verify([made, upstream("A", "B", schedule={"A": 1, "B": 0})], "A")
