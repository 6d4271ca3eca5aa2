"""What all connections share: collected writes, back-pressure, one timer, and the ways to end."""

from __future__ import annotations

import gc
import weakref
from math import inf

import pytest
from twisted.internet.error import ConnectionDone
from twisted.internet.interfaces import IPushProducer, ISSLTransport
from twisted.internet.task import Clock
from twisted.internet.testing import StringTransport
from twisted.python.failure import Failure
from zope.interface import directlyProvides
from zope.interface.verify import verifyClass

from protogate.connection import (
    COPIED,
    LINGER,
    LINGER_BYTES,
    LINGER_MOST,
    LOOKS,
    MOST,
    PATIENCE,
    Connection,
    specialised,
)
from protogate.context import Context
from protogate.errors import CLIENT_GONE
from protogate.wheel import Wheel


class Transport(StringTransport):
    def __init__(self):
        super().__init__()
        self.log, self.waiting = [], 0

    def write(self, data):
        self.log.append(data)

    def writeSequence(self, data):
        self.log.append(list(data))

    def unsent(self):
        return self.waiting

    def unregisterProducer(self):
        self.log.append("unregister")

    def loseConnection(self):
        self.log.append("lose")

    def loseWriteConnection(self):
        self.log.append("fin")

    def abortConnection(self):
        self.log.append("rst")

    def pauseProducing(self):
        self.log.append("pause")

    def resumeProducing(self):
        self.log.append("resume")


class Outgoing:
    def __init__(self, log, name):
        self.log, self.name = log, name

    def pauseProducing(self):
        self.log.append(f"pause {self.name}")

    def resumeProducing(self):
        self.log.append(f"resume {self.name}")


class Half:
    def __init__(self, log, name):
        self.outgoing = Outgoing(log, name) if name else None
        self.log = log

    def lost(self, reason):
        self.log.append(("lost", reason))


class Line(Connection):
    def __init__(self, patience=8.0):
        self.clock = Clock()
        super().__init__(Context(Wheel(self.clock)))
        self.every, self.asked, self.seconds = [], [], patience
        self.next = inf

    def halves(self):
        return self.every

    def gone(self, half):
        return CLIENT_GONE

    def patience(self):
        return self.seconds

    def late(self, now):
        self.asked.append(now)
        return self.next

    def drain(self):
        self.draining = True


@pytest.fixture
def transport():
    return Transport()


@pytest.fixture
def line(transport):
    line = Line()
    line.makeConnection(transport)
    return line


def advance(line, seconds, step=0.25):
    for _ in range(round(seconds / step)):
        line.clock.advance(step)


def test_writes_are_collected_while_corked(line, transport):
    line.put(b"a")
    line.cork()
    line.cork()
    line.put(b"b")
    line.put(b"c")
    line.uncork()
    assert transport.log == [b"a"]
    line.uncork()
    assert transport.log == [b"a", b"bc"]
    line.cork()
    line.put(b"d")
    line.uncork()
    line.cork()
    line.uncork()
    assert transport.log == [b"a", b"bc", b"d"]


def test_not_more_than_a_bound_is_collected(line, transport):
    line.cork()
    line.put(b"x" * MOST)
    assert transport.log == []
    line.put(b"y")
    assert transport.log == [[b"x" * MOST, b"y"]]
    line.put(b"z")
    line.uncork()
    assert transport.log[1:] == [b"z"]


def test_small_pieces_are_joined_and_large_ones_are_not_copied(line, transport):
    line.cork()
    for piece in (b"head", b"x" * COPIED):
        line.put(piece)
    line.uncork()
    assert transport.log == [[b"head", b"x" * COPIED]]
    line.cork()
    for piece in (b"head", b"x" * (COPIED - 4)):
        line.put(piece)
    line.uncork()
    assert transport.log[1:] == [b"head" + b"x" * (COPIED - 4)]
    assert line._written == 4 + 2 * COPIED


def test_nothing_is_written_on_a_dead_connection(line, transport):
    line.close()
    transport.log.clear()
    line.put(b"a")
    line.cork()
    line.put(b"b")
    line.uncork()
    line.close()
    line.linger()
    line.discard(b"x")
    assert transport.log == []


def test_a_full_transport_pauses_every_outgoing_body(line):
    log = []
    line.every = [Half(log, "a"), Half(log, None), Half(log, "b")]
    assert line.busy == 3
    line.pauseProducing()
    assert line.full
    line.resumeProducing()
    assert not line.full
    assert log == ["pause a", "pause b", "resume a", "resume b"]
    line.stopProducing()


def test_resuming_stops_when_the_transport_is_full_again(line):
    log = []
    line.every = [Half(log, "a"), Half(log, "b")]
    line.pauseProducing()
    line.every[0].outgoing.resumeProducing = line.pauseProducing
    log.clear()
    line.resumeProducing()
    assert "resume b" not in log


def test_unsent_asks_the_transport(line, transport):
    transport.waiting = 7
    assert line.unsent() == 7

    class Descriptor(StringTransport):
        unsent = None
        dataBuffer, offset, _tempDataLen = b"12345", 2, 4

    line.transport = Descriptor()
    assert line.unsent() == 7
    line.transport = StringTransport()
    assert line.unsent() == 0
    line.full = True
    assert line.unsent() == 1


def test_stalled_counts_from_the_last_flushed_byte(line, transport):
    assert line.stalled(1) == 0
    line.put(b"x" * 10)
    transport.waiting = 10
    assert line.stalled(2) == 0
    assert line.stalled(5) == 3
    transport.waiting = 9
    assert line.stalled(6) == 0
    line.put(b"x" * 10)
    transport.waiting = 19
    assert line.stalled(8) == 2
    transport.waiting = 0
    assert line.stalled(9) == 0
    transport.waiting = 0
    line.put(b"x")
    transport.waiting = 1
    assert line.stalled(100) == 0


def test_the_timer_is_armed_for_the_earliest(line):
    line.watch(5)
    line.watch(10)
    line.watch(inf)
    line.next = 1.0
    advance(line, 5.5)
    assert len(line.asked) == 1
    line.next = inf
    advance(line, 10)
    assert len(line.asked) == 2
    line.watch(3)
    line.watch(1)
    advance(line, 1.5)
    assert len(line.asked) == 3
    advance(line, 5)
    assert len(line.asked) == 3


def test_looks_are_a_part_of_the_stall_time(line):
    assert line.look() == 8 / LOOKS
    line.seconds = 0
    assert line.look() == inf


def test_every_close_ends_in_an_abort(line, transport):
    line.put(b"x" * 10)
    transport.waiting = 10
    line.close()
    assert transport.log[-2:] == ["unregister", "lose"]
    advance(line, 7)
    transport.waiting = 5
    advance(line, 7)
    assert "rst" not in transport.log
    advance(line, 4)
    assert transport.log[-1] == "rst"


def test_a_close_ends_in_an_abort_even_without_a_stall_clock(line, transport):
    line.seconds = 0
    transport.waiting = 10
    line.close()
    advance(line, PATIENCE * 1.5)
    assert transport.log[-1] == "rst"


def test_lingering_reads_on(line, transport):
    line.cork()
    line.put(b"answer")
    line.linger()
    assert transport.log == [b"answer", "unregister", "resume", "fin"]
    assert line.dead
    line.discard(b"x" * 1000)
    advance(line, LINGER - 1)
    assert "lose" not in transport.log
    advance(line, 2)
    assert transport.log[-1] == "lose"
    line.discard(b"x" * LINGER_BYTES * 2)
    assert "rst" not in transport.log


def test_lingering_goes_on_while_something_comes_but_not_for_ever(line, transport):
    line.linger()
    for _ in range(int(LINGER_MOST / 4)):
        assert "lose" not in transport.log
        advance(line, 4)
        line.discard(b"x")
    advance(line, 3)
    assert transport.log[-1] == "lose"


def test_lingering_has_a_cap(line, transport):
    line.linger()
    line.discard(b"x" * LINGER_BYTES)
    assert "rst" not in transport.log
    line.discard(b"x")
    assert transport.log[-1] == "rst"


def test_lingering_does_not_half_close_tls_or_what_cannot(line, transport):
    directlyProvides(transport, ISSLTransport)
    line.linger()
    assert "fin" not in transport.log
    other = Line()
    transport = Transport()
    transport.loseWriteConnection = None
    other.makeConnection(transport)
    other.linger()
    assert transport.log == ["unregister", "resume"]


def test_abort_ends_every_request_at_once(line, transport):
    log = []
    line.every = [Half(log, "a"), Half(log, "b")]
    line.cork()
    line.put(b"never")
    line.abort()
    assert transport.log == ["unregister", "rst"]
    assert log == [("lost", CLIENT_GONE)] * 2
    line.uncork()
    line.abort()
    assert transport.log == ["unregister", "rst"]


def test_abort_while_lingering(line, transport):
    line.linger()
    line.abort()
    assert transport.log[-1] == "rst"


@pytest.mark.parametrize("waiting", [0, 9])
def test_abort_while_closing_drops_what_the_peer_does_not_take(line, transport, waiting):
    line.close()
    transport.waiting = waiting
    transport.log.clear()
    line.abort()
    assert transport.log == (["rst"] if waiting else []), "what is with the kernel ends as it was meant"


def test_closed_fires_once_and_the_timer_is_gone(line):
    seen = []
    line.closed.addCallback(seen.append)
    line.watch(5)
    line.connectionLost(Failure(ConnectionDone()))
    assert seen == [None]
    assert line.dead
    advance(line, 10)
    assert line.asked == []


def test_a_lost_connection_does_not_wait_for_the_garbage_collector():
    transport, line = Descriptor(), Line()
    line.makeConnection(transport)
    line.watch(5)
    line.put(b"a")
    line.connectionLost(Failure(ConnectionDone()))
    line.put(b"b")
    seen = weakref.ref(line)
    enabled = gc.isenabled()
    gc.disable()
    try:
        transport.producer = None
        del line
        assert seen() is None
    finally:
        if enabled:
            gc.enable()


def test_a_clock_that_ends_the_connection(line, transport):
    line.late = lambda now: line.close() or 5.0
    line.watch(1)
    advance(line, 1.5)
    assert transport.log[-1] == "lose"


class Descriptor(Transport):
    """The inside of one of Twisted's own TCP transports."""

    dataBuffer, _tempDataLen, disconnecting, connected = b"", 0, False, True
    takes: object = 0

    @property
    def socket(self):
        return self

    def sendmsg(self, pieces):
        return self.send(b"".join(pieces))

    def send(self, data):
        self.log.append(("at once", data))
        if isinstance(self.takes, OSError):
            raise self.takes
        return self.takes


@pytest.fixture
def own(line):
    """A line on one of Twisted's own transports."""
    line.transport = Descriptor()
    line._write, line._writes = line._collect, line._collects
    return line


def turn(line):
    line.context.wheel._clock.advance(0)


def test_what_is_written_in_one_turn_is_sent_at_its_end(own):
    own.transport.takes = 6
    own.put(b"123")
    own.put(b"456")
    assert own.transport.log == []
    assert own.unsent() == 6
    turn(own)
    assert own.transport.log == [("at once", b"123456")]
    assert own.unsent() == 0
    assert own.context.wheel._clock.getDelayedCalls() == []


def test_what_the_kernel_does_not_take_is_for_the_transport(own):
    for own.transport.takes, left in ((2, b"345"), (BlockingIOError(), b"12345"), (BrokenPipeError(), b"12345")):
        own.transport.log.clear()
        own.put(b"12345")
        turn(own)
        assert own.transport.log == [("at once", b"12345"), left]


@pytest.mark.parametrize(
    ("name", "value"), [("dataBuffer", b"x"), ("_tempDataLen", 1), ("disconnecting", True), ("connected", False)]
)
def test_a_transport_that_has_something_waiting_is_written_to_in_order(own, name, value):
    setattr(own.transport, name, value)
    own.put(b"12345")
    turn(own)
    assert own.transport.log == [b"12345"]


def test_much_is_not_kept_until_the_end_of_the_turn(own):
    own.transport.takes = MOST
    own.put(b"x" * MOST)
    assert own.transport.log == []
    own.put(b"y")
    assert own.transport.log == [("at once", b"x" * MOST + b"y"), b"y"]
    turn(own)
    assert len(own.transport.log) == 2


@pytest.mark.parametrize("end", ["close", "linger"])
def test_an_end_sends_what_waits_first(own, end):
    own.transport.takes = 3
    own.put(b"end")
    getattr(own, end)()
    assert own.transport.log[0] == ("at once", b"end")
    turn(own)
    assert own.transport.log.count(("at once", b"end")) == 1


def test_an_abort_drops_what_waits(own):
    own.put(b"end")
    own.abort()
    turn(own)
    assert ("at once", b"end") not in own.transport.log
    assert own.unsent() == 0


class Base(Connection):
    def shared(self, value=1, *, other=2):
        """Text."""
        return (value, other, super().busy)

    @property
    def prop(self):
        return 3

    @staticmethod
    def static():
        return 4

    def halves(self):
        return ()


@specialised
class One(Base):
    pass


@specialised
class Two(Base):
    def halves(self):
        return (None,)


def test_specialised_classes_share_behaviour_but_no_code():
    context = Context(Wheel(Clock()))
    one, two = One(context), Two(context)
    assert (one.shared(), two.shared(5, other=6)) == ((1, 2, 0), (5, 6, 1))
    assert (one.prop, one.static(), one.shared.__doc__) == (3, 4, "Text.")
    codes = {kind.shared.__code__ for kind in (One, Two, Base)}
    assert len({id(code) for code in (One.shared.__code__, Two.shared.__code__, Base.shared.__code__)}) == 3
    assert len(codes) == 1
    assert One.flush is not Two.flush
    assert Two.halves is not Base.halves
    verifyClass(IPushProducer, One)


def test_every_verb_is_for_the_codec_to_fill_in():
    connection = Connection(Context(Wheel(Clock())))
    for call in (
        connection.halves,
        connection.drain,
        connection.patience,
        lambda: connection.late(0),
        lambda: connection.gone(None),
    ):
        with pytest.raises(NotImplementedError):
            call()


# -- last words


def test_one_that_breaks_off_lets_what_was_written_leave_first(line, transport):
    half = Half(transport.log, "")
    line.every = [half]
    line.cork()
    line.put(b"bye")
    transport.waiting = 3  # with the transport until the turn is over
    line.break_off()
    assert transport.log == [b"bye", "unregister", "pause", ("lost", CLIENT_GONE)]
    assert line.dead
    line.clock.advance(0.05)
    assert transport.log[4:] == ["rst"]


def test_one_that_breaks_off_with_nothing_to_say_is_gone_at_once(line, transport):
    line.put(b"hello")
    line.break_off()
    assert transport.log == [b"hello", "unregister", "rst"]


def test_one_that_is_dead_breaks_off_as_it_is_aborted(line, transport):
    transport.waiting = 3
    line.close()
    line.break_off()
    assert transport.log == ["unregister", "lose", "rst"]


def test_nothing_is_written_behind_the_last_words(line, transport):
    transport.waiting = 3
    line.break_off()
    line.put(b"more")
    line.flush()
    line.close()
    line.clock.advance(0.05)
    assert transport.log == ["unregister", "pause", "rst"]
