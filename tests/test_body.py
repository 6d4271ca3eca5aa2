"""Back-pressure: what a body holds, when it pauses its source, and how it ends."""

from __future__ import annotations

import gc

import pytest
from hypothesis import given
from hypothesis import strategies as st
from zope.interface.verify import verifyObject

from protogate.body import Body, Limit, Replay, Whole
from protogate.errors import CLIENT, UPSTREAM, Abort
from protogate.interfaces import IBody, ISink

GONE = Abort("gone", UPSTREAM)
LARGE = Abort("too large", CLIENT, 413)


class Source:
    def __init__(self):
        self.log = []

    def pauseProducing(self):
        self.log.append("pause")

    def resumeProducing(self):
        self.log.append("resume")

    def stopProducing(self):
        self.log.append("stop")


class Sink:
    """Collects, and pauses after so many bytes."""

    def __init__(self, body=None, pauses=False):
        self.body, self.pauses, self.got, self.end = body, pauses, [], None
        if body is not None:
            body.attach(self)

    def write(self, data):
        assert self.end is None
        assert data
        self.got.append(data)
        if self.pauses:
            self.body.pauseProducing()

    def finish(self, trailers=None):
        assert self.end is None
        self.end = ("finish", trailers)

    def abort(self, reason):
        assert self.end is None
        self.end = ("abort", reason)

    @property
    def data(self):
        return b"".join(self.got)


@pytest.fixture
def source():
    return Source()


@pytest.fixture
def body(source):
    return Body(source)


def test_interfaces(body):
    for each in (body, Replay(body, 9), Limit(body, 9, LARGE)):
        assert verifyObject(IBody, each)
        assert verifyObject(ISink, each)


# -- Body


def test_what_is_whole_before_it_is_attached_needs_no_source(body, source):
    body.write(b"a")
    body.write(b"b")
    body.finish([])
    assert source.log == ["pause"]
    sink = Sink(body)
    assert (sink.got, sink.end) == ([b"ab"], ("finish", []))
    assert source.log == ["pause"]


def test_attaching_reaches_the_source_though_it_was_never_paused(body, source):
    Sink(body)
    assert source.log == ["resume"]
    with pytest.raises(RuntimeError):
        body.attach(Sink())


def test_the_source_may_write_while_it_is_told_to_resume(body, source):
    source.resumeProducing = lambda: body.write(b"now")
    assert Sink(body).got == [b"now"]


def test_bytes_flow_straight_while_nobody_pauses(body, source):
    sink = Sink(body)
    for data in (b"a", b"b"):
        body.write(data)
    body.finish([(b"x", b"y")])
    assert (sink.got, sink.end, source.log) == ([b"a", b"b"], ("finish", [(b"x", b"y")]), ["resume"])


def test_a_pause_inside_write_holds_the_rest(body, source):
    sink = Sink(body, pauses=True)
    body.write(b"a")
    body.write(b"b")
    body.finish()
    assert (sink.got, sink.end) == ([b"a"], None)
    sink.pauses = False
    body.resumeProducing()
    assert (sink.got, sink.end) == ([b"a", b"b"], ("finish", None))
    assert source.log == ["resume", "pause"]


def test_pausing_and_resuming_are_told_once(body, source):
    Sink(body)
    for _ in range(2):
        body.pauseProducing()
    for _ in range(2):
        body.resumeProducing()
    assert source.log == ["resume", "pause", "resume"]


def test_pausing_and_resuming_inside_write_do_not_nest(body):
    depth, seen = [0], []

    class Nested(Sink):
        def write(self, data):
            depth[0] += 1
            assert depth[0] == 1
            seen.append(data)
            body.pauseProducing()
            if len(seen) < 3:
                body.write(b"x")
            body.resumeProducing()
            depth[0] -= 1

    body.write(b"x")
    Nested(body)
    assert seen == [b"x"] * 3


def test_what_is_written_inside_write_while_the_body_flows_waits_until_that_has_returned(body, source):
    log = []

    class Echo(Sink):
        def write(self, data):
            log.append(f"{data.decode()} begins")
            if data == b"a":
                body.pauseProducing()
                body.resumeProducing()
                body.write(b"b")
                body.finish()
            log.append(f"{data.decode()} ends")

        def finish(self, trailers=None):
            log.append("the end")

    Echo(body)
    body.write(b"a")
    assert log == ["a begins", "a ends", "b begins", "b ends", "the end"]


def test_abort_overtakes_a_pause_and_drops_what_was_held(body):
    sink = Sink(body, pauses=True)
    body.write(b"a")
    body.write(b"b")
    body.abort(GONE)
    assert (sink.got, sink.end) == ([b"a"], ("abort", GONE))
    body.resumeProducing()
    body.abort(GONE)
    body.finish()
    body.write(b"c")


def test_abort_before_attach_is_told_on_attach(body, source):
    body.write(b"a")
    body.abort(GONE)
    assert Sink(body).end == ("abort", GONE)
    assert source.log == ["pause"]


@pytest.mark.parametrize("when", ["held", "flowing"])
def test_stopping_inside_write(body, source, when):
    class Stopper(Sink):
        def write(self, data):
            self.got.append(data)
            body.stopProducing()

    if when == "held":
        body.write(b"a")
        sink = Stopper(body)
    else:
        sink = Stopper(body)
        body.write(b"a")
    body.write(b"b")
    body.finish()
    body.abort(GONE)
    body.stopProducing()
    body.resumeProducing()
    body.pauseProducing()
    assert (sink.got, sink.end) == ([b"a"], None)
    assert source.log[-1] == "stop"
    assert source.log.count("stop") == 1


def test_stopping_before_attach_and_after_the_end(source):
    body = Body(source)
    body.stopProducing()
    assert body.attached
    with pytest.raises(RuntimeError):
        body.attach(Sink())
    body = Body(source)
    body.finish()
    body.stopProducing()
    assert source.log == ["stop"]


@given(st.lists(st.sampled_from(["write", "pause", "resume", "attach"])), st.sampled_from(["finish", "abort", None]))
def test_every_byte_arrives_once_in_order_and_the_end_comes_last(steps, end):
    source, sink, sent = Source(), Sink(), b""
    body = Body(source)
    sink.body = body
    for step in [*steps, end, "attach", "resume"]:
        if step == "write":
            data = b"%d," % len(sent)
            sent += data
            body.write(data)
        elif step == "attach":
            if not body.attached:
                body.attach(sink)
        elif step == "pause":
            body.pauseProducing()
        elif step == "resume":
            body.resumeProducing()
        elif step == "finish":
            body.finish()
        elif step == "abort":
            body.abort(GONE)
        if "pause" in source.log:
            assert [told for told in source.log if told != source.log[0]] == source.log[1::2]
    if end == "abort":
        assert sent.startswith(sink.data)
        assert sink.end == ("abort", GONE)
    else:
        assert sink.data == sent
        assert sink.end == (("finish", None) if end else None)


def test_a_body_that_has_ended_refers_to_nobody():
    gc.collect()
    gc.disable()
    try:
        for end in (lambda body: body.finish(), lambda body: body.abort(GONE), lambda body: body.stopProducing()):
            source = Source()
            source.body = Body(source)
            sink = Sink(source.body)
            end(source.body)
            del source, sink
        assert gc.collect() == 0
    finally:
        gc.enable()


# -- Replay


def test_a_body_is_sent_again_while_it_is_whole(body, source):
    replay = Replay(body, 10)
    first = Sink(replay)
    body.write(b"hello")
    assert not replay.attached
    replay.stopProducing()
    assert source.log == ["resume", "pause"]
    body.write(b" you")
    second = Sink(replay)
    assert (first.got, second.data) == ([b"hello"], b"hello you")
    body.finish([(b"a", b"b")])
    assert second.end == ("finish", [(b"a", b"b")])
    third = Sink(replay)
    assert (third.data, third.end) == (b"hello you", ("finish", [(b"a", b"b")]))
    assert first.end is None


def test_too_much_to_keep_ends_that(body, source):
    replay = Replay(body, 10)
    sink = Sink(replay)
    body.write(b"x" * 10)
    assert not replay.attached
    body.write(b"x")
    assert replay.attached
    with pytest.raises(RuntimeError):
        replay.attach(Sink())
    replay.stopProducing()
    assert source.log[-1] == "stop"
    assert sink.data == b"x" * 11


def test_release_keeps_nothing_more(body, source):
    replay = Replay(body, 10)
    Sink(replay)
    replay.release()
    assert replay.attached
    replay.stopProducing()
    assert source.log[-1] == "stop"
    body = Body(source)
    replay = Replay(body, 10)
    replay.release()
    assert not replay.attached, "nobody has taken it yet"
    body.write(b"x")
    assert Sink(replay).data == b"x"
    assert replay.attached


def test_a_second_attempt_may_pause_inside_what_is_repeated(body):
    replay = Replay(body, 10)
    Sink(replay)
    body.write(b"abc")
    body.finish()
    second = Sink()
    second.body, second.pauses = replay, True
    replay.attach(second)
    assert (second.data, second.end) == (b"abc", None)
    replay.resumeProducing()
    assert second.end == ("finish", None)


def test_a_second_attempt_may_stop_inside_what_is_repeated(body, source):
    replay = Replay(body, 10)
    Sink(replay)
    body.write(b"abc")
    replay.stopProducing()

    class Stopper(Sink):
        def write(self, data):
            self.got.append(data)
            replay.stopProducing()

    sink = Stopper()
    replay.attach(sink)
    body.write(b"def")
    assert sink.got == [b"abc"]
    assert source.log[-1] == "pause"


def test_two_attempts_at_once_are_refused(body):
    replay = Replay(body, 10)
    Sink(replay)
    with pytest.raises(RuntimeError):
        replay.attach(Sink())


def test_an_aborted_body_is_not_sent_again(body):
    replay = Replay(body, 10)
    sink = Sink(replay)
    body.write(b"abc")
    body.abort(GONE)
    assert sink.end == ("abort", GONE)
    assert replay.attached


def test_an_abort_between_two_attempts(body):
    replay = Replay(body, 10)
    Sink(replay)
    body.write(b"abc")
    replay.stopProducing()
    body.abort(GONE)
    assert replay.attached


def test_pauses_go_through(body, source):
    replay = Replay(body, 10)
    sink = Sink()
    sink.body, sink.pauses = replay, True
    replay.attach(sink)
    body.write(b"a")
    body.write(b"b")
    assert sink.got == [b"a"]
    replay.resumeProducing()
    assert sink.got == [b"a", b"b"]
    assert source.log == ["resume", "pause"]


def test_nothing_is_left_of_a_replay():
    gc.collect()
    gc.disable()
    try:
        source = Source()
        replay = Replay(Body(source), 10)
        sink = Sink(replay)
        replay.body.write(b"a")
        replay.body.finish()
        del sink, replay, source
        assert gc.collect() == 0
    finally:
        gc.enable()


# -- Limit


def test_up_to_the_limit_all_passes(body):
    limit = Limit(body, 4, LARGE)
    assert (limit.length, limit.attached) == (None, False)
    sink = Sink(limit)
    assert limit.attached
    for data in (b"ab", b"cd"):
        body.write(data)
    body.finish([])
    assert (sink.data, sink.end) == (b"abcd", ("finish", []))


def test_one_byte_more_breaks_off(body, source):
    sink = Sink(Limit(body, 4, LARGE))
    body.write(b"abc")
    body.write(b"de")
    assert (sink.data, sink.end) == (b"abc", ("abort", LARGE))
    assert source.log[-1] == "stop"
    body.write(b"f")
    body.finish()


def test_what_is_held_counts(body):
    body.write(b"abcde")
    sink = Sink(Limit(body, 4, LARGE))
    assert (sink.data, sink.end) == (b"", ("abort", LARGE))


def test_a_known_length_is_refused_at_once(source):
    sink = Sink(Limit(Body(source, 5), 4, LARGE))
    assert sink.end == ("abort", LARGE)
    assert source.log == ["stop"]
    limit = Limit(Body(source, 4), 4, LARGE)
    assert limit.length == 4
    assert Sink(limit).end is None
    with pytest.raises(RuntimeError):
        limit.attach(Sink())


def test_a_limit_passes_everything_else_on(body, source):
    limit = Limit(body, 4, LARGE)
    sink = Sink(limit)
    limit.pauseProducing()
    limit.resumeProducing()
    assert source.log == ["resume", "pause", "resume"]
    body.abort(GONE)
    assert sink.end == ("abort", GONE)
    body = Body(source)
    limit = Limit(body, 4, LARGE)
    sink = Sink(limit)
    limit.stopProducing()
    limit.write(b"late")
    limit.finish()
    assert (sink.got, sink.end) == ([], None)
    assert source.log[-1] == "stop"


# -- Whole


def test_a_body_that_is_there_already():
    for data in (b"hello", b""):
        body = Whole(data)
        assert verifyObject(IBody, body)
        assert (body.length, body.attached) == (len(data), False)
        sink = Sink(body)
        assert (sink.data, sink.end, body.attached) == (data, ("finish", None), True)
        body.resumeProducing()
        body.stopProducing()
        with pytest.raises(RuntimeError):
            body.attach(Sink())


def test_its_end_waits_for_a_pause():
    body = Whole(b"hello")
    sink = Sink()
    sink.body, sink.pauses = body, True
    body.attach(sink)
    assert (sink.data, sink.end) == (b"hello", None)
    body.resumeProducing()
    assert sink.end == ("finish", None)


def test_its_end_is_not_told_inside_write():
    body = Whole(b"hello")

    class Hasty(Sink):
        def write(self, data):
            super().write(data)
            body.pauseProducing()
            body.resumeProducing()
            assert self.end is None

    assert Hasty(body).end == ("finish", None)


def test_it_may_be_stopped_before_and_inside_write():
    body = Whole(b"hello")
    body.stopProducing()
    with pytest.raises(RuntimeError):
        body.attach(Sink())
    body = Whole(b"hello")

    class Stopper(Sink):
        def write(self, data):
            super().write(data)
            body.stopProducing()

    sink = Stopper(body)
    assert (sink.data, sink.end) == (b"hello", None)
