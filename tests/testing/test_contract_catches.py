"""The contract of codecs is worth something: each of these faults makes it fail."""

from __future__ import annotations

import sys
import unittest
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parent.parent / "mini_codec"))

from protogate_mini import codec, streams
from twisted.trial.unittest import SynchronousTestCase
from zope.interface import implementer

from protogate import connection, halves
from protogate.config.model import Model
from protogate.interfaces import IConfigurableCodec
from protogate.message import ignore
from protogate.testing.codec import CodecContract


class Quick(CodecContract):
    """Without what takes long."""

    lacks = ("continue", "goaway", "head", "refuse", "deadline")

    def noise(self, dice):
        return list(super().noise(dice))[:3]

    def garbled(self, dice, data):
        return list(super().garbled(dice, data))[:20]


def run(*tests, **members):
    """The names of those tests that fail."""
    members = {"codec": codec.Mini, **members}
    case = type("Case", (Quick, SynchronousTestCase), members)
    result = unittest.TestResult()
    unittest.TestSuite(case(test) for test in tests).run(result)
    return {test.id().rpartition(".")[2] for test, _ in result.failures + result.errors}


class Many(codec.Mini):
    alpn = ("mini",)


class Prying(codec.Mini):
    def sniff(self, prefix):
        return True


class Blind(codec.Mini):
    def sniff(self, prefix):
        return False


class Options(Model, frozen=True, kw_only=True):
    room: int = 5


@implementer(IConfigurableCodec)
class Mute(codec.Mini):
    """Nobody is told what its option is for."""

    options = Options

    def configure(self, options):
        return type(self)()


class Described(Options, frozen=True, kw_only=True):
    room: int = 5
    """How much it takes."""


class Same(Mute):
    """It changes itself."""

    options = Described

    def configure(self, options):
        self.told = options
        return self


class Unequal(Mute):
    """What it is told can be remembered by nobody."""

    class options(Described, frozen=True, kw_only=True):  # noqa: N801
        words: list = []  # noqa: RUF012
        """What it says."""


@pytest.mark.parametrize(
    ("kind", "test"),
    [
        (Many, "test_codec"),
        (Mute, "test_options"),
        (Same, "test_options"),
        (Unequal, "test_options"),
        (Prying, "test_sniffing_refuses_strangers"),
        (Blind, "test_sniffing_knows_its_own_first_bytes"),
    ],
)
def test_faulty_codecs(kind, test):
    assert run(test) == set()
    assert run(test, codec=kind) == {test}


def twice(request, reason):
    if request is not None:
        closed, request.closed, request.interim = request.closed, ignore, ignore
        closed(reason)
        closed(reason)


def greedy(stream):
    stream.paused = False


def clean(stream, reason):
    """A truncation that looks like an end."""
    stream.writing = halves.ENDED
    stream.end(None)


READ = codec.Many.dataReceived


def split_reader(self, data):
    """Takes each read for whole frames."""
    self.data = b""
    READ(self, data)


def hoarding(self, data):
    self.queue += data
    self.flush()


def fires_early(self, item, new):
    """Hands a request on before all of this read was fed to it."""
    fresh = []
    TAKE(self, item, fresh)
    for stream in fresh:
        self.fire(stream)


TAKE = codec.Many.take


def forgets(self, reason):
    LOST(self, reason)
    self.context.wheel.after(1e6, print)


FAULTS = {
    "closed twice": (halves, "close", twice, "test_small_messages_arrive_whole_and_connections_are_reused"),
    "never closed": (halves, "close", lambda request, reason: None, "test_no_content"),
    "never paused": (streams.Stream, "pauseProducing", greedy, "test_nobody_reads"),
    "no back-pressure": (streams.Stream, "write", hoarding, "test_nobody_reads"),
    "truncation looks whole": (streams.Stream, "reset", clean, "test_truncation_is_seen_by_the_client"),
    "no frame may be split": (codec.Many, "dataReceived", split_reader, "test_every_split"),
    "trailers get lost": (
        streams,
        "pack",
        lambda fields: PACK(f for f in fields if f[0] != b"x-sum"),
        "test_each_piece_is_passed_on_at_once",
    ),
    "no limits": (codec.Server, "fault", lambda *args: None, "test_each_limit_of_a_request_head"),
    "no limit of a body": (codec.Server, "over_limit", lambda *args: False, "test_limit_of_a_request_body"),
    "drain does nothing": (codec.Many, "drain", lambda self: None, "test_drain_of_an_idle_connection_closes_it"),
    "drain aborts": (codec.Many, "drain", connection.Connection.abort, "test_drain_lets_a_request_end"),
    "ready is never told": (codec.Client, "forget", codec.Many.forget, "test_capacity_is_counted_by_the_connection"),
    "requests outlive abort": (codec.Many, "end", lambda self: None, "test_abort_ends_every_request_before_it_returns"),
    "fired before all is read": (
        codec.Many,
        "take",
        fires_early,
        "test_what_came_in_one_read_is_whole_when_it_is_handed_over",
    ),
    "cut off is no failure": (codec.Many, "end", lambda self: None, "test_cut_off_at_every_offset"),
    "errors escape": (codec, "unpack", lambda data: [data[9]] and UNPACK(data), "test_garbage"),
    "deadlines stay": (
        connection.Connection,
        "connectionLost",
        forgets,
        "test_no_content",
    ),
}
PACK, UNPACK, LOST = streams.pack, codec.unpack, connection.Connection.connectionLost


@pytest.mark.parametrize("fault", FAULTS)
def test_faults(fault, monkeypatch, flush_errors):
    where, name, value, test = FAULTS[fault]
    monkeypatch.setattr(where, name, value)
    assert run(test) == {test}
    flush_errors()


def test_cycles_are_found(monkeypatch):
    class Cycle:
        def __init__(self):
            self.me = self

    def begin(self, service):
        Cycle()
        BEGIN(self, service)

    monkeypatch.setattr(halves.Serving, "begin", begin)
    assert run("test_no_cycles_are_left_for_the_collector") == {"test_no_cycles_are_left_for_the_collector"}


BEGIN = halves.Serving.begin


def test_lacks_that_do_not_exist_are_refused():
    assert run("test_trailers_without_content", lacks=("nonsense",)) == {"test_trailers_without_content"}
