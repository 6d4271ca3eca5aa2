"""What modules of a kind tell their like in other processes: over a real board, whoever leads."""

from __future__ import annotations

import pytest
from twisted.internet.task import Clock

from protogate.governance.news import GAP, KEYS, MISSED, MOST, WAITING, News
from protogate.testing.boards import Boards
from protogate.upstream.board import Alone
from protogate.wheel import Wheel

KIND = "cache"


class Scene:
    """Processes that follow one kind, and what each was told."""

    def __init__(self, count=3, leads=0):
        self.clock = Clock()
        self.wheel = Wheel(self.clock)
        self.boards = Boards()
        self.lines, self.news, self.told, self.heard = [], [], [], []
        for _ in range(count):
            self.join()
        self.boards.lead(*[line.here for line in self.lines[leads:]])

    def join(self):
        line = self.boards.worker()
        told = []
        self.lines.append(line)
        self.told.append(told)
        self.heard.append(told.append)
        self.news.append(News(line.here, self.wheel))
        self.news[-1].follow(KIND, self.heard[-1])
        self.boards.run()

    def run(self, *deaf):
        self.clock.advance(0)
        self.boards.run(*deaf)

    def later(self, *deaf):
        self.clock.advance(2 * GAP)
        self.boards.run(*deaf)

    def stop(self):
        for news, heard in zip(self.news, self.heard, strict=True):
            news.leave(KIND, heard)
        self.wheel.stop()
        assert self.clock.getDelayedCalls() == []


@pytest.fixture
def scene():
    made = Scene()
    yield made
    made.stop()


@pytest.mark.parametrize("who", [0, 1, 2])
def test_all_others_are_told_at_once_and_who_tells_it_is_not(scene, who):
    scene.news[who].tell(KIND, ["/a"])
    scene.run()
    assert [scene.told[each] for each in range(3)] == [[] if each == who else [[["/a"]]] for each in range(3)]


def test_what_is_told_in_quick_succession_goes_out_together(scene):
    for number in range(3):
        scene.news[1].tell(KIND, number)
    scene.run()
    for number in range(3, 6):
        scene.news[1].tell(KIND, number)
        scene.run()
    assert scene.told[2] == [[0, 1, 2]], "the rest waits"
    scene.later()
    assert scene.told[0] == scene.told[2] == [[0, 1, 2], [3, 4, 5]]
    scene.later()
    scene.news[1].tell(KIND, 6)
    scene.run()
    assert scene.told[2][-1] == [6], "after a while of silence it goes out at once"


def test_there_is_one_order_for_all():
    scene = Scene(4, leads=3)
    for number in range(20):
        scene.news[number % 3].tell(KIND, number)
        scene.later()
    first, second = ([piece for pieces in scene.told[each] for piece in pieces] for each in (0, 3))
    assert second == list(range(20))
    assert first == [number for number in range(20) if number % 3]
    scene.stop()


def test_more_than_a_message_holds_is_told_piece_by_piece(scene):
    for number in range(2 * MOST + 1):
        scene.news[0].tell(KIND, number)
    scene.run()
    scene.later()
    scene.later()
    assert [len(pieces) for pieces in scene.told[1]] == [MOST, MOST, 1]


def test_too_much_is_told_as_something_that_was_missed(scene):
    for number in range(WAITING + 1):
        scene.news[2].tell(KIND, number)
    scene.run()
    assert scene.told[0] == scene.told[1] == [MISSED]
    scene.later()
    scene.news[2].tell(KIND, "again")
    scene.run()
    assert scene.told[1] == [MISSED, ["again"]]


def test_who_did_not_read_for_long_knows_that_something_was_missed(scene):
    deaf = scene.lines[2]
    deaf.down.waiting = 1 << 30
    for number in range(KEYS + 5):
        scene.news[1].tell(KIND, number)
        scene.later(deaf)
    deaf.down.waiting = 0
    scene.boards.keeper.alive(deaf)
    scene.news[1].tell(KIND, "last")
    scene.later()
    assert MISSED in scene.told[2]
    assert sum(len(pieces) for pieces in scene.told[0]) == KEYS + 6


def test_it_goes_on_when_another_one_leads(scene):
    scene.news[1].tell(KIND, "a")
    scene.run()
    scene.boards.leave(scene.lines[0].here)
    scene.boards.lead(scene.lines[1].here)
    scene.later()
    scene.news[2].tell(KIND, "b")
    scene.run()
    scene.later()
    scene.news[1].tell(KIND, "c")
    scene.run()
    assert (scene.told[1], scene.told[2]) == ([["b"]], [["a"], ["c"]])


def test_who_comes_later_is_told_nothing_of_what_was_before(scene):
    scene.news[0].tell(KIND, "a")
    scene.run()
    scene.join()
    scene.later()
    assert scene.told[3] == []
    scene.news[1].tell(KIND, "b")
    scene.run()
    assert scene.told[3] == [["b"]]


def test_several_in_one_process_share_what_comes(scene):
    more = []
    scene.news[2].follow(KIND, more.append)
    scene.news[0].tell(KIND, "a")
    scene.run()
    scene.news[2].leave(KIND, more.append)
    scene.later()
    scene.news[0].tell(KIND, "b")
    scene.run()
    assert (more, scene.told[2]) == ([["a"]], [["a"], ["b"]])


def test_what_waits_is_told_by_who_leaves(scene):
    scene.news[1].tell(KIND, "a")
    scene.run()
    scene.news[1].tell(KIND, "b")
    scene.news[1].leave(KIND, scene.heard[1])
    scene.run()
    assert scene.told[2] == [["a"], ["b"]]
    scene.news[1].tell(KIND, "nobody follows here")
    scene.news[1].follow(KIND, scene.heard[1])


def test_alone_it_is_told_nobody():
    clock = Clock()
    news = News(Alone(), Wheel(clock))
    told = []
    news.follow(KIND, told.append)
    news.tell(KIND, "a")
    clock.advance(1)
    news.leave(KIND, told.append)
    assert told == []
