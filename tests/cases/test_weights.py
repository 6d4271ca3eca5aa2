"""Weights, sticky clients and gray cohorts as a client and its upstreams see them."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from math import gcd

import pytest
from edge import config, fetch, installed, module, rule, to

from protogate.testing.gateway import MemoryGateway
from protogate.testing.upstream import Expect

WEIGHTS = [(100, 100, 25), (100, 100, 66), (1, 1, 1), (5, 1, 0), (1000, 1, 0), (3, 2, 2)]


def origins(gateway, number=3):
    """So many, each answers with its own number."""
    for at in range(1, number + 1):
        body = b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n%d" % at
        gateway.upstream(f"192.0.2.{at}", 80, [Expect(b"\r\n\r\n"), body])


def over_endpoints(weights):
    made = [{"url": f"http://192.0.2.{at}", "weight": weight} for at, weight in enumerate(weights, 1)]
    return config(origin={"endpoints": made})


def over_targets(weights):
    ups = [{"name": f"up{at}", "endpoints": [{"url": f"http://192.0.2.{at}"}]} for at in (1, 2, 3)]
    targets = [{"upstream": f"up{at}", "weight": weight} for at, weight in enumerate(weights, 1)]
    return config([rule(routes=to(*targets))], (), ups)


def over_urls(weights):
    targets = [{"url": f"http://192.0.2.{at}", "weight": weight} for at, weight in enumerate(weights, 1)]
    return config([rule(routes=to(*targets))])


def picks(gateway, number):
    """Who answered, one after the other, on one connection."""
    client, found = gateway.client(), []
    for _ in range(number):
        client.send(b"GET / HTTP/1.1\r\nHost: a.test\r\n\r\n")
        gateway.run()
        found.append(int(client.take()[-1:]))
    client.close()
    gateway.run()
    return found


@pytest.mark.parametrize("make", [over_endpoints, over_targets, over_urls])
@pytest.mark.parametrize("weights", WEIGHTS)
def test_every_window_is_exact_and_nobody_starves_within_it(make, weights):
    common = gcd(*weights)
    shares = [weight // common for weight in weights]
    size = sum(shares)
    if size > 300:
        size, shares = 1001, [1000, 1, 0]
    with MemoryGateway(make(weights)) as gateway:
        origins(gateway)
        found = picks(gateway, 2 * size if size < 300 else size)
        for start in range(len(found) - size + 1):
            window = Counter(found[start : start + size])
            assert [window[at] for at in (1, 2, 3)] == shares
        for at, share in enumerate(shares, 1):
            if share > 1:
                gaps = [index for index, each in enumerate(found) if each == at]
                worst = max(later - earlier for earlier, later in pairwise(gaps))
                assert worst <= 2 * -(-size // share)


def test_the_first_pick_differs_from_start_to_start():
    firsts = set()
    for _ in range(40):
        with MemoryGateway(over_endpoints((1, 1, 1))) as gateway:
            origins(gateway)
            firsts.add(picks(gateway, 1)[0])
    assert firsts == {1, 2, 3}


def test_weights_change_under_traffic():
    with MemoryGateway(over_endpoints((1, 1, 0))) as gateway:
        origins(gateway)
        assert set(picks(gateway, 4)) == {1, 2}
        assert gateway.reload(over_endpoints((0, 1, 3)))
        assert Counter(picks(gateway, 40)) == {2: 10, 3: 30}
        assert gateway.reload(over_endpoints((0, 0, 3)))
        assert set(picks(gateway, 4)) == {3}


@pytest.mark.parametrize("make", [over_endpoints, over_targets])
def test_weight_zero_everywhere_is_503(make):
    with MemoryGateway(make((0, 0, 0))) as gateway:
        origins(gateway)
        assert fetch(gateway).status == 503
        assert gateway.records[-1].status == 503


def sticky(weights):
    made = over_targets(weights)
    made["routes"][0]["routes"][0]["sticky"] = {"key": "request.cookies['sid']"}
    return made


def who(gateway, sid):
    return int(fetch(gateway, "/", b"Cookie: sid=%b" % sid).body)


def test_a_sticky_client_stays_where_it_is_in_every_process_and_moves_only_when_it_must():
    ids = [b"client-%d" % at for at in range(60)]
    with MemoryGateway(sticky((100, 100, 0))) as gateway:
        origins(gateway)
        first = {sid: who(gateway, sid) for sid in ids}
        assert {sid: who(gateway, sid) for sid in ids} == first
        assert set(first.values()) == {1, 2}
        assert gateway.reload(sticky((100, 100, 100)))
        wider = {sid: who(gateway, sid) for sid in ids}
        assert all(now in (before, 3) for before, now in zip(first.values(), wider.values(), strict=True))
        assert set(wider.values()) == {1, 2, 3}
        assert gateway.reload(sticky((0, 100, 100)))
        narrow = {sid: who(gateway, sid) for sid in ids}
        assert all(narrow[sid] == wider[sid] for sid in ids if wider[sid] != 1)
    with MemoryGateway(sticky((100, 100, 0))) as gateway:
        origins(gateway)
        assert {sid: who(gateway, sid) for sid in ids} == first


def test_a_client_without_the_key_goes_by_weight():
    with MemoryGateway(sticky((1, 1, 0))) as gateway:
        origins(gateway)
        assert Counter(picks(gateway, 20)) == {1: 10, 2: 10}


def test_the_first_five_percent_stay_gray_when_they_become_ten():
    seen = set()

    def mark(exchange):
        seen.add(exchange.request.headers.get(b"x-user"))

    def gray(ratio):
        chosen = module("mark", "PRE_REQUEST", grayRatio_=ratio, grayKey_="request.headers['x-user']")
        return config(modules=[chosen, module("respond", "PRE_REQUEST", ruleOrder_=1)])

    users = [b"user-%d" % at for at in range(1000)]
    with installed(mark=mark), MemoryGateway(gray(0)) as gateway:
        cohorts = []
        for ratio in (0, 5, 10, 50, 100):
            assert gateway.reload(gray(ratio))
            seen.clear()
            client = gateway.client()
            for user in users:
                client.send(b"GET / HTTP/1.1\r\nHost: a\r\nX-User: %b\r\n\r\n" % user)
            gateway.run()
            client.close()
            gateway.run()
            cohorts.append(set(seen))
        none, five, ten, half, everybody = cohorts
        assert not none
        assert five < ten < half < everybody == set(users)
        assert 25 < len(five) < 75
        assert 70 < len(ten) < 130
