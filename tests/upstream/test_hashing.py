"""The endpoint of a key: the same one while it can be, the next one where it has too much to do."""

from __future__ import annotations

from collections import Counter
from math import ceil
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from polls import Poll, endpoint, endpoints, holding, load, request, short

from protogate.config import model
from protogate.config.faults import ConfigFaults
from protogate.upstream.breaker import TRY
from protogate.upstream.hashing import keys

KEYS = [f"user-{number}" for number in range(2000)]


def hashed(among: Any, bound: float = 1.25, **more: Any) -> Poll:
    return Poll(among, balance="hash", hash=model.Hash(key="source.ip", bound=bound), **more)


def test_a_key_belongs_to_one_endpoint_in_every_process() -> None:
    among = endpoints(100, 200, 300)
    owners = hashed(among).owners(KEYS)
    assert hashed(list(reversed(endpoints(100, 200, 300))), seed=9).owners(KEYS) == owners
    seen = Counter(owners.values())
    for name, weight in (("1", 100), ("2", 200), ("3", 300)):
        assert abs(seen[name] - len(KEYS) * weight / 600) < 70


def test_one_that_comes_takes_its_share_and_one_that_goes_leaves_it() -> None:
    among = endpoints(100, 100, 100)
    one = hashed(among)
    before = one.owners(KEYS)
    one.arrange([*among, endpoint(4)])
    more = one.owners(KEYS)
    assert {more[key] for key in KEYS if more[key] != before[key]} == {"4"}
    assert abs(sum(more[key] == "4" for key in KEYS) - 500) < 80
    one.arrange(among[1:])
    fewer = one.owners(KEYS)
    assert {before[key] for key in KEYS if fewer[key] != before[key]} == {"1"}


def test_one_that_is_held_loses_so_many_of_its_keys_and_gets_the_same_back() -> None:
    among = endpoints(100, 100, 100)
    one = hashed(among)
    before = one.owners(KEYS)
    holding(among[1], 0.5)
    one.arrange()
    half = one.owners(KEYS)
    assert {before[key] for key in KEYS if half[key] != before[key]} == {"2"}
    assert abs(sum(half[key] == "2" for key in KEYS) - 400) < 80
    holding(among[1], 0.0)
    one.arrange()
    none = one.owners(KEYS)
    assert Counter(none.values())["2"] == 0
    assert all(none[key] == before[key] for key in KEYS if before[key] != "2")
    holding(among[1], 1.0)
    one.arrange()
    assert one.owners(KEYS) == before


def test_one_with_too_much_to_do_hands_on_in_the_order_of_the_key() -> None:
    among = endpoints(*[100] * 4)
    one = hashed(among)
    owners = one.owners(KEYS)
    for each in among:
        load(each, 10)
    assert one.owners(KEYS) == owners, "each has its share, and one more may come"
    load(among[0], 16)
    assert ceil(1.25 * 47 / 4) == 15
    now = one.owners(KEYS)
    mine = [key for key in KEYS if owners[key] == "1"]
    assert all(now[key] == owners[key] for key in KEYS if owners[key] != "1")
    assert one.counted.count("hash_overflow") == len(mine)
    heirs = Counter(now[key] for key in mine)
    assert set(heirs) == {"2", "3", "4"}
    assert max(heirs.values()) < 1.5 * min(heirs.values()), "they are shared out"
    load(among[0], 14)
    assert one.owners(KEYS) == owners


def test_without_a_bound_it_takes_what_comes() -> None:
    among = endpoints(100, 100)
    one = hashed(among, bound=0.0)
    owners = one.owners(KEYS)
    load(among[0], 1000)
    assert one.owners(KEYS) == owners
    assert one.counted == []


@settings(max_examples=30)
@given(st.lists(st.integers(1, 1000), min_size=2, max_size=8), st.sampled_from([1.0, 1.25, 2.0]), st.integers())
def test_nobody_is_ever_above_its_bound(weights: list[int], bound: float, seed: int) -> None:
    random = Random(seed)
    one = hashed(endpoints(*weights), bound)
    total = 0
    for turn in range(120):
        chosen = one.pick(random.choice(KEYS[:3]))
        assert chosen is not None
        load(chosen, chosen.pool.load + 1)
        total += 1
        assert chosen.pool.load <= ceil(bound * total * chosen.place.weight / sum(weights) + 1e-9)
        if turn % 3 == 2:
            busy = random.choice([each for each in one.among if each.pool.load])
            load(busy, busy.pool.load - 1)
            total -= 1


def test_without_a_key_it_goes_by_weight() -> None:
    one = hashed(endpoints(100, 300))
    assert one.counts(400) == {"1": 100, "2": 300}
    assert short(one.election.other(request(), [one.among[1]])) == "1"


def test_another_attempt_goes_to_the_next_in_the_order_of_the_key() -> None:
    among = endpoints(*[100] * 4)
    one = hashed(among)
    for key in KEYS[:50]:
        asked = request(key)
        tried = [one.election.pick(asked)]
        while (following := one.election.other(asked, tried)) is not None:  # type: ignore[arg-type]
            tried.append(following)
        assert len(set(tried)) == 4
        one.arrange([each for each in among if each is not tried[0]])
        assert one.election.pick(asked) is tried[1]
        one.arrange(among)


def test_one_that_is_tried_is_tried_by_any_of_its_keys() -> None:
    among = endpoints(100, 100, 100)
    one = hashed(among)
    mine = next(key for key, owner in one.owners(KEYS).items() if owner == "1")
    holding(among[0], TRY)
    one.arrange()
    picks = Counter(short(one.pick(mine)) for _ in range(2000))
    assert 60 < picks.pop("1") < 145
    assert len(picks) == 1, "and else it stays where it is meanwhile"
    rest = Counter(short(one.pick(key)) for key in KEYS)
    assert 15 < rest["1"] < 55, "a twentieth of a third"
    holding(among[0], 2 * TRY)
    one.arrange()
    assert one.owners(KEYS) == one.owners(KEYS), "from now on keys stay"
    for each in among[1:]:
        holding(each, 0.0)
    holding(among[0], TRY)
    one.arrange()
    assert set(one.owners(KEYS[:50]).values()) == {"1"}, "there is nobody else"


def upstream(**more: Any) -> model.Upstream:
    return model.Upstream(name="up", endpoints=(model.Endpoint(url="http://a"),), **more)


@pytest.mark.parametrize(
    ("given", "path", "why"),
    [
        ({"balance": "hash"}, ("upstreams", 0, "balance"), "add hash"),
        ({"hash": model.Hash(key="source.ip")}, ("upstreams", 0, "hash"), "balance is not hash"),
        ({"balance": "hash", "hash": model.Hash(key="souce.ip")}, ("upstreams", 0, "hash", "key"), "souce"),
        ({"balance": "hash", "hash": model.Hash(key="response.status")}, ("upstreams", 0, "hash", "key"), "response"),
        (
            {"balance": "hash", "hash": model.Hash(key="source.ip", bound=0.5)},
            ("upstreams", 0, "hash", "bound"),
            "1 and more",
        ),
    ],
)  # fmt: skip
def test_what_is_wrong_with_a_key_is_said(given: dict[str, Any], path: tuple[str | int, ...], why: str) -> None:
    with pytest.raises(ConfigFaults) as caught:
        keys([upstream(**given)])
    (fault,) = caught.value.faults
    assert fault.path == path
    assert why in fault.message


def test_only_upstreams_that_choose_by_one_have_a_key() -> None:
    made = keys([upstream(), model.Upstream(name="other", balance="hash", hash=model.Hash(key="source.ip"))])
    assert list(made) == ["other"]
