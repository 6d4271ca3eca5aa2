"""Which endpoint would be chosen, told without a gateway: it is the one that is chosen by one."""

from __future__ import annotations

from random import Random

import pytest
from fake_upstream import FakeConnector, Time
from hypothesis import given, settings
from hypothesis import strategies as st

from protogate.config.model import Discovery, Endpoint, Hash, Upstream, Zones
from protogate.message import Request
from protogate.upstream import endpoint as endpoints
from protogate.upstream.election import Election
from protogate.upstream.pool import Pool
from protogate.upstream.prospect import SHOWN, prospect

THREE = (
    Endpoint(url="http://10.0.0.1:80", weight=100, zone="a"),
    Endpoint(url="http://10.0.0.2:80", weight=50, zone="a"),
    Endpoint(url="http://10.0.0.3:8080", weight=50, zone="b"),
)
DRAWN = "of two that are drawn the one "


def told(zone="", key="", **more):
    more.setdefault("endpoints", THREE)
    return prospect(Upstream(name="shop", **more), zone, lambda: key)


@pytest.mark.parametrize(
    ("balance", "how"),
    [
        ("weighted", "each in turn"),
        ("leastRequest", DRAWN + "with less to do"),
        ("peakEwma", DRAWN + "that is likely to answer sooner"),
    ],
)
def test_how_and_which_with_their_shares(balance, how):
    shares = "50.0 % 10.0.0.1:80 in zone a, 25.0 % 10.0.0.2:80 in zone a, 25.0 % 10.0.0.3:8080 in zone b"
    assert told(balance=balance) == f"{balance}, {how}: {shares}"


@pytest.mark.parametrize(
    ("zone", "zones", "shares"),
    [
        ("a", Zones(), "66.7 % 10.0.0.1:80 in zone a, 33.3 % 10.0.0.2:80 in zone a"),
        ("b", Zones(), "100.0 % 10.0.0.3:8080 in zone b"),
        ("", Zones(prefer="none", order=("b",)), "100.0 % 10.0.0.3:8080 in zone b"),
        ("a", Zones(schedule={"b": 100, "a": 0}), "100.0 % 10.0.0.3:8080 in zone b"),
    ],
)
def test_zones_share_out_first(zone, zones, shares):
    assert told(zone, zones=zones) == f"weighted, each in turn: {shares}"


def test_where_there_is_one_there_is_nothing_to_say():
    assert told(endpoints=THREE[:1]) == ""
    twice = (Endpoint(url="http://10.0.0.1:80"), Endpoint(url="http://10.0.0.1"))
    assert told(endpoints=twice) == "", "named twice it is one"


def test_what_only_a_running_gateway_knows():
    found = told(endpoints=(), discovery=Discovery(dns="shop.test:80"), balance="leastRequest")
    assert found == f"leastRequest, {DRAWN}with less to do; which there are it is told while it runs"


def test_none_that_has_a_weight():
    none = tuple(Endpoint(url=each.url, weight=0) for each in THREE)
    assert told(endpoints=none) == "weighted, each in turn; none has a weight"


def test_many_are_counted():
    many = tuple(Endpoint(url=f"http://10.0.1.{number}:80") for number in range(SHOWN + 5))
    assert told(endpoints=many).endswith(f"6.7 % 10.0.1.{SHOWN - 1}:80 and 5 more")


def test_without_a_key_it_is_each_in_turn():
    text = told(balance="hash", hash=Hash(key="source.ip"))
    assert text.startswith("hash of source.ip, which is empty, so each in turn: 50.0 % 10.0.0.1:80")


def test_a_key_that_cannot_be_told():
    def key():
        raise ValueError("no such field")

    upstream = Upstream(name="shop", endpoints=THREE, balance="hash", hash=Hash(key="request.x"))
    assert prospect(upstream, "", key) == "none, for the key request.x cannot be told: no such field"


@settings(max_examples=30, deadline=None)
@given(key=st.text(min_size=1, max_size=8), zones=st.sampled_from([None, Zones(), Zones(schedule={"a": 3, "b": 1})]))
def test_a_key_leads_to_where_its_requests_go(key, zones):
    upstream = Upstream(name="shop", endpoints=THREE, balance="hash", hash=Hash(key="source.ip", bound=2), zones=zones)
    time = Time()
    election = Election(Random(1), lambda event: None, time.wheel)
    election.settle(upstream, "a")
    idle = Pool(FakeConnector(), time.context)
    election.arrange([endpoints.Endpoint(place, idle) for place in endpoints.layout(upstream)])
    request = Request(b"GET", b"/", [])
    request.key = key
    text = prospect(upstream, "a", lambda: key)
    assert text.startswith(
        f"hash of source.ip, which is {key!r}, unless that has more than 2 times its share under way: "
    )
    assert text.endswith(f": {election.pick(request).address} in zone {election.pick(request).place.zone}")
    election.stop()
