"""The memory: bytes are counted, whatever comes and goes."""

from __future__ import annotations

from random import Random

from protogate.caching.content import Content
from protogate.caching.store import ALONE, VARIANTS, Store
from protogate.caching.stored import Stored
from protogate.message import Headers

URI = b"http", b"a.test", b"/"


def stored(uri=URI, place=("p",), values=(), size=100, groups=()):
    names = tuple(b"x-%d" % at for at in range(len(values)))
    made = Stored(uri, place, 200, [(b"x-a", b"b")], names, values, Content.of([b"x" * size]))
    made.groups = frozenset(groups)
    return made


def test_what_is_put_is_found_where_it_belongs():
    store = Store(10_000)
    one, two = stored(), stored(place=("q",))
    store.put(one)
    store.put(two)
    assert store.find(URI, ("p",), Headers()) is one
    assert store.find(URI, ("q",), Headers()) is two
    assert store.find(URI, ("r",), Headers()) is None
    assert store.find((b"https", *URI[1:]), ("p",), Headers()) is None


def test_a_newer_one_takes_the_place():
    store = Store(10_000)
    store.put(stored())
    newer = stored(size=5)
    store.put(newer)
    assert (len(store), store.used) == (1, newer.size)
    assert store.find(URI, ("p",), Headers()) is newer


def test_of_several_that_match_the_latest_is_given():
    store = Store(100_000)
    store.put(stored(values=(b"1",)))
    plain = stored()
    store.put(plain)
    assert store.find(URI, ("p",), Headers([(b"x-0", b"1")])) is plain


def test_variants_are_bounded_and_the_ones_in_use_stay():
    store = Store(1 << 20)
    store.put(stored(values=(b"hot",)))
    for number in range(3 * VARIANTS):
        assert store.find(URI, ("p",), Headers([(b"x-0", b"hot")])) is not None
        store.put(stored(values=(b"%d" % number,)))
    assert len(store) == VARIANTS


def test_what_shares_nothing_is_remembered_so_often_and_so_long():
    store = Store(10_000)
    for number in range(ALONE + 10):
        store.set_alone(((b"http", b"a", b"%d" % number), (), False), 5.0)
    assert not store.alone(((b"http", b"a", b"0"), (), False), 1.0)
    key = ((b"http", b"a", b"%d" % (ALONE + 9)), (), False)
    assert store.alone(key, 4.9)
    assert not store.alone((*key[:2], True), 1.0)
    assert not store.alone(key, 5.0)
    assert not store.alone(key, 1.0), "what is over is forgotten"


def test_bytes_add_up_whatever_happens():
    random, store = Random(7), Store(50_000)
    kept = []
    for _ in range(3000):
        act = random.random()
        uri = (b"http", random.choice([b"a", b"b"]), b"/%d" % random.randrange(40))
        if act < 0.5:
            kept.append(
                stored(uri, (random.choice("pq"),), size=random.randrange(3000), groups=random.sample("xyz", 2))
            )
            store.put(kept[-1])
        elif act < 0.6:
            store.forget(uri)
        elif act < 0.65:
            store.forget_groups(b"http", uri[1], random.choice("xyz"))
        elif act < 0.7 and kept:
            store.drop(random.choice(kept))
        elif act < 0.75:
            store.forget_all(lambda one, uri=uri: one.uri == uri, 0.0)
        elif act < 0.8 and store.reserve(4000):
            assert store.used + store.coming <= store.limit
            store.release(4000)
        else:
            store.find(uri, ("p",), Headers())
        assert store.used == sum(one.size for one in store._order) <= store.limit
        assert sum(map(len, store._shelves.values())) == len(store)
        members = set().union(*store._groups.values()) if store._groups else set()
        assert members <= set(store._order)
        assert all(store._shelves.values())
        assert all(store._groups.values())
    store.resize(5000)
    assert store.used <= 5000
    store.forget_all(lambda one: True, 0.0)
    assert (store.used, len(store), store._shelves, store._groups) == (0, 0, {}, {})


def test_half_of_it_at_most_is_on_its_way():
    store = Store(10_000)
    assert store.reserve(5000)
    assert not store.reserve(1)
    store.release(5000)
    assert store.reserve(1)
