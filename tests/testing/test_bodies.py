"""Sinks and sources keep the contract, and hold others to it."""

from __future__ import annotations

import pytest
from twisted.internet.interfaces import IPushProducer
from zope.interface.verify import verifyObject

from protogate.errors import UPSTREAM, Abort
from protogate.interfaces import ISink
from protogate.testing.bodies import Echo, Giver, Taker

BROKEN = Abort("broken", UPSTREAM)


def test_interfaces():
    verifyObject(ISink, Taker(None))
    verifyObject(IPushProducer, Giver())
    echo = Echo(Giver().body)
    verifyObject(ISink, echo)
    verifyObject(IPushProducer, echo)


def test_a_body_is_taken_whole():
    taker = Taker(Giver([b"a", b"b"], 2, [(b"x", b"1")]).body)
    assert (taker.data, taker.got, taker.size) == (b"ab", [b"a", b"b"], 2)
    assert (taker.finished, taker.ended, taker.trailers, taker.reason) == (True, True, [(b"x", b"1")], None)


def test_no_body_has_ended():
    taker = Taker(None)
    taker.pause()
    taker.resume()
    taker.stop()
    assert (taker.finished, taker.data) == (True, b"")


def test_a_limit_pauses_and_resume_goes_on():
    giver = Giver([b"one", b"two", b"three"])
    taker = Taker(giver.body, 4)
    assert (taker.data, giver.gave) == (b"onetwo", 6)
    taker.resume()
    assert taker.data == b"onetwothree"
    assert not taker.finished
    taker.resume()
    assert taker.finished


def test_stop_reaches_the_source():
    giver = Giver([b"x"] * 5)
    taker = Taker(giver.body, 1)
    taker.stop()
    assert giver.stopped
    assert not taker.ended
    giver.resumeProducing()
    assert giver.gave == 1


def test_given_by_hand():
    giver = Giver(close=False)
    taker = Taker(giver.body)
    giver.write(b"x")
    giver.abort(BROKEN)
    assert (taker.data, taker.reason, taker.finished) == (b"x", BROKEN, False)


def test_echo_passes_everything_on():
    giver = Giver(close=False)
    echo = Echo(giver.body)
    taker = Taker(echo.out, 1)
    giver.write(b"a")
    giver.write(b"b")
    assert taker.got == [b"a"]
    taker.resume()
    giver.finish([(b"t", b"")])
    assert taker.got == [b"a", b"b"]
    taker.limit = None
    taker.resume()
    assert (taker.finished, taker.trailers) == (True, [(b"t", b"")])
    giver = Giver(close=False)
    taker = Taker(Echo(giver.body).out)
    giver.abort(BROKEN)
    assert taker.reason is BROKEN
    giver = Giver(close=False)
    Taker(Echo(giver.body).out).stop()
    assert giver.stopped


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda taker: taker.write(b""), "never called with nothing"),
        (lambda taker: taker.write(bytearray(b"x")), "takes bytes, got bytearray"),
        (lambda taker: taker.abort(ValueError("x")), "takes an Abort"),
    ],
)
def test_a_faulty_source_is_caught(call, text):
    with pytest.raises(AssertionError, match=text):
        call(Taker(Giver(close=False).body))


@pytest.mark.parametrize("end", [lambda taker: taker.finish(), lambda taker: taker.abort(BROKEN)])
def test_nothing_comes_after_the_end(end):
    for call in (lambda t: t.write(b"x"), lambda t: t.finish(), lambda t: t.abort(BROKEN)):
        taker = Taker(Giver(close=False).body)
        end(taker)
        with pytest.raises(AssertionError, match="after the end"):
            call(taker)


def test_nested_writes_are_caught():
    class Nesting(Taker):
        def pause(self):
            self.write(b"inner")

    taker = Nesting(Giver(close=False).body, 1)
    with pytest.raises(AssertionError, match=r"write\(\) inside write"):
        taker.write(b"outer")
