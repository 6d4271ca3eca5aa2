"""One source, many readers."""

from __future__ import annotations

from random import Random

import pytest

from protogate.caching.content import DESERTED, Content, Fill
from protogate.errors import UPSTREAM, Abort
from protogate.testing.bodies import Giver, Taker

BROKEN = Abort("the upstream closed", UPSTREAM, 502)


class Scene:
    """A fill, what it was told, and what became of it."""

    def __init__(self, pieces=(), length=None, room=1000, wanted=False, close=True):
        self.room, self.wanted, self.ended = room, wanted, []
        self.giver = Giver(pieces, length, [(b"x-sum", b"1")], close)
        self.content = Content(length)
        self.fill = Fill(self.giver.body, self.content, self._room, lambda: self.wanted, self.ended.append)

    def _room(self, size):
        self.room -= size
        return self.room >= 0


def test_whoever_comes_late_reads_from_the_beginning():
    scene = Scene([b"ab", b"c"], close=False)
    early = Taker(scene.content.copy())
    scene.fill.begin()
    late = Taker(scene.content.copy())
    assert (early.got, late.got) == ([b"ab", b"c"], [b"ab", b"c"])
    scene.giver.write(b"d")
    scene.giver.finish([(b"x", b"y")])
    last = Taker(scene.content.copy())
    for taker in (early, late, last):
        assert (taker.data, taker.finished, taker.trailers) == (b"abcd", True, [(b"x", b"y")])
    assert scene.ended == [True]
    assert (scene.content.size, scene.content.length) == (4, 4)


def test_pieces_are_the_ones_that_came():
    pieces = [b"a" * 1000, b"b" * 1000]
    scene = Scene(pieces, 2000, room=9999)
    taker = Taker(scene.content.copy())
    scene.fill.begin()
    assert [id(piece) for piece in taker.got] == [id(piece) for piece in pieces]


def test_a_reader_may_stop_within_a_write():
    class Stops(Taker):
        def write(self, data):
            super().write(data)
            self.stop()

    scene = Scene([b"a", b"b"], close=False)
    stops, reads = Stops(scene.content.copy()), Taker(scene.content.copy())
    scene.fill.begin()
    assert (stops.got, reads.got) == ([b"a"], [b"a", b"b"])
    assert not scene.giver.stopped
    reads.stop()
    assert scene.giver.stopped
    assert scene.ended == [False]


def test_the_last_reader_to_leave_stops_the_source_unless_it_is_wanted():
    scene = Scene([b"a"], wanted=True, close=False)
    taker = Taker(scene.content.copy())
    scene.fill.begin()
    taker.stop()
    assert not scene.giver.stopped
    scene.giver.finish()
    assert scene.ended == [True]


def test_a_body_that_was_never_attached_may_be_stopped():
    scene = Scene([b"a"], close=False)
    copy = scene.content.copy()
    scene.fill.begin()
    copy.stopProducing()
    assert scene.giver.stopped
    with pytest.raises(RuntimeError):
        copy.attach(Taker(None))
    late = Taker(scene.content.copy())
    assert late.reason is DESERTED


def test_it_breaks_off_for_all_at_once():
    scene = Scene([b"a"], close=False)
    paused, unread = Taker(scene.content.copy(), limit=0), scene.content.copy()
    scene.fill.begin()
    scene.giver.abort(BROKEN)
    assert paused.reason is BROKEN
    assert Taker(unread).reason is BROKEN
    assert Taker(scene.content.copy()).reason is BROKEN
    assert (scene.ended, scene.content.pieces) == ([False], [])


def test_what_does_not_fit_waits_for_its_reader():
    scene = Scene([b"abc", b"def", b"ghi", b"jkl"], room=5)
    taker = Taker(scene.content.copy(), limit=1)
    scene.fill.begin()
    assert (taker.got, scene.giver.gave, scene.ended) == ([b"abc"], 6, [False])
    taker.resume()
    assert (taker.got, scene.giver.gave) == ([b"abc", b"def"], 6)
    taker.resume()
    assert scene.giver.gave == 9
    assert sum(map(len, scene.content.pieces)) <= 3, "what has flowed by is not kept"
    taker.resume()
    taker.resume()
    assert (taker.data, taker.finished) == (b"abcdefghijkl", True)


def test_what_does_not_fit_and_nobody_reads_is_stopped():
    scene = Scene([b"abc", b"def"], room=5, wanted=True)
    scene.fill.begin()
    assert scene.giver.stopped
    assert scene.ended == [False]


def test_without_a_pause_what_does_not_fit_flows():
    scene = Scene([b"abc"] * 100, room=5)
    taker = Taker(scene.content.copy())
    scene.fill.begin()
    assert (len(taker.data), taker.finished, scene.ended) == (300, True, [False])


@pytest.mark.parametrize("seed", range(40))
def test_whatever_readers_do_each_gets_all_or_is_told(seed):
    """Readers come, pause, go on and leave at random; those who stay have every byte, in order, and one end."""
    random = Random(seed)
    pieces = [bytes([65 + at % 26]) * random.randint(1, 9) for at in range(random.randint(0, 30))]
    whole, room = b"".join(pieces), random.choice([10_000, 10_000, 40])
    scene = Scene([], room=room, wanted=random.random() < 0.3, close=False)
    takers, left = [Taker(scene.content.copy())], []
    scene.fill.begin()
    queue = list(pieces)
    for _ in range(400):
        act = random.random()
        passing = scene.fill.passing
        if act < 0.35 and queue and not scene.giver.stopped:
            scene.giver.write(queue.pop(0))
        elif act < 0.45 and not passing and scene.content.reason is None and room > 40 and len(takers) < 6:
            takers.append(Taker(scene.content.copy(), random.choice([None, 1])))
        elif act < 0.6:
            random.choice(takers).pause()
        elif act < 0.97:
            random.choice(takers).resume()
        elif len(takers) > 1:
            gone = takers.pop(random.randrange(len(takers)))
            gone.stop()
            left.append((gone, gone.size))
    while queue and not scene.giver.stopped:
        scene.giver.write(queue.pop(0))
    broken = random.random() < 0.3 and not scene.giver.stopped
    if broken:
        scene.giver.abort(BROKEN)
    else:
        scene.giver.finish()
    for taker in takers:
        taker.limit = None
        for _ in range(100):
            taker.resume()
        if broken and not taker.finished:
            assert taker.reason is BROKEN
            assert whole.startswith(taker.data)
        else:
            assert (taker.finished, taker.data) == (True, whole)
    for gone, size in left:
        assert gone.size == size
    assert len(scene.ended) == 1
