"""protogate_sotp.options: what each option of SOTP does on a connection."""

from __future__ import annotations

import pytest
from sotp_ends import ORDER, greeted
from twisted.internet.defer import Deferred

from protogate.body import Whole
from protogate.codings import pack
from protogate.context import Limits
from protogate.errors import ConfigError
from protogate.message import Request, Response
from protogate.testing.bodies import Taker
from protogate_sotp.codec import Sotp
from protogate_sotp.frames import CANCEL, CREDIT, DATA, END, GOAWAY, REQUEST, RESPONSE, Hello, credit, frame
from protogate_sotp.heads import read_response, write_request, write_response
from protogate_sotp.link import Greeting
from protogate_sotp.options import Options

OPEN = write_request(Request(b"POST", b"/1001/order.create", authority=b"1001"), 0, [].append)
"""A REQUEST whose length nobody said."""


def taken(end):
    """The app takes all that comes, and never answers."""
    takers = []

    def take(request):
        takers.append(Taker(request.body))
        return Deferred()

    end.app.answer = take
    return takers


def test_all_of_them_are_in_the_hello():
    told = Options(heartbeat=7, streams=3, window=1 << 17, connection_window=1 << 21, frame=1 << 15, compression=False)
    said = Greeting(told).hello(Limits())
    assert (said.heartbeat, said.streams, said.window, said.total) == (7, 3, 1 << 17, 1 << 21)
    assert (said.data, said.capabilities) == (1 << 15, 0)


@pytest.mark.parametrize(
    ("streams", "window", "total"), [(1, 65536, 1 << 20), (100, 65536, 6553600), (1_000_000, 1 << 20, 1 << 30)]
)
def test_by_default_a_connection_has_a_window_for_each_stream(streams, window, total):
    assert Greeting(Options(streams=streams, window=window)).hello(Limits()).total == total


@pytest.mark.parametrize(
    ("told", "place"),
    [
        (Options(heartbeat=1.5), ("heartbeat",)),
        (Options(window=1 << 21, connection_window=1 << 20), ("connectionWindow",)),
    ],
)
def test_what_does_not_go_together_is_refused(told, place):
    with pytest.raises(ConfigError) as caught:
        Sotp().configure(told)
    assert caught.value.path == place


def test_credit_comes_back_in_halves_of_the_window_that_was_said():
    end = greeted(options=Options(window=256 * 1024, frame=64 * 1024))
    (takers, given) = taken(end), []
    end.order(flags=0, payload=OPEN)
    for _ in range(4):
        end.feed(frame(DATA, 0, 1, b"x" * 65536))
        given.append([credit(payload) for kind, _, stream, payload in end.said if kind == CREDIT and stream])
    assert given == [[], [131072], [], [131072]]
    assert len(takers[0].data) == 4 * 65536
    end.close()


def test_more_than_the_window_ends_the_connection():
    end = greeted(options=Options(window=128 * 1024))
    end.app.answer = lambda request: Deferred()  # nobody reads it
    end.order(flags=0, payload=OPEN)
    end.feed(frame(DATA, 0, 1, b"x" * 65536), frame(DATA, 0, 1, b"x" * 65536))
    assert end.said == []
    end.feed(frame(DATA, 0, 1, b"x"))
    assert [kind for kind, *_ in end.said] == [GOAWAY]
    end.close()


def test_many_uploads_that_are_owed_a_little_never_use_up_the_connection():
    """Each has sent less than half a window, and all together more than the connection may hold."""
    end = greeted(options=Options(streams=100, connection_window=1 << 20))
    takers = taken(end)
    room = 1 << 20
    for number in range(1, 200, 2):
        end.order(number, 0, OPEN)
        end.feed(frame(DATA, 0, number, b"x" * 30000))
        room -= 30000
        room += sum(credit(payload) for kind, _, stream, payload in end.said if kind == CREDIT and not stream)
        assert room >= 1 << 19
    assert [len(taker.data) for taker in takers] == [30000] * 100
    end.close()


def test_uploads_that_nobody_reads_use_up_the_connection_and_give_it_back_when_they_are_read():
    end = greeted(options=Options(streams=100, connection_window=1 << 20))
    held = []
    end.app.answer = lambda request: held.append(request) or Deferred()
    for number in range(1, 33, 2):
        end.order(number, 0, OPEN)
        end.feed(frame(DATA, 0, number, b"x" * 65536))
    assert end.said == []
    takers = [Taker(request.body) for request in held]
    given = [(stream, credit(payload)) for kind, _, stream, payload in end.said if kind == CREDIT]
    back = sum(size for stream, size in given if not stream)
    assert back == end.end.room
    assert (1 << 20) - back < back  # what is still owed is less than what is left
    assert sorted(stream for stream, _ in given if stream) == list(range(1, 33, 2))
    assert all(len(taker.data) == 65536 for taker in takers)
    end.close()


def test_a_request_beyond_the_streams_is_refused():
    end = greeted(options=Options(streams=2))
    end.app.answer = lambda request: Deferred()
    for number in (1, 3, 5):
        end.order(number)
    assert [(kind, stream) for kind, _, stream, _ in end.said] == [(CANCEL, 5)]
    end.close()


def test_a_frame_that_is_larger_ends_the_connection():
    end = greeted(options=Options(frame=16384))
    taken(end)
    end.order(flags=0, payload=OPEN)
    end.feed(frame(DATA, 0, 1, b"x" * 16384))
    assert end.said == []
    end.feed(frame(DATA, 0, 1, b"x" * 16385))
    assert [kind for kind, *_ in end.said] == [GOAWAY]
    end.close()


def compressed(flag):
    """A REQUEST with compressed content, and that."""
    data = pack(b"gzip", b"hello")
    request = Request(b"POST", b"/1001/a", [(b"content-encoding", b"gzip")], Whole(data), b"1001")
    return frame(REQUEST, 0, 1, write_request(request, flag, [].append)) + frame(DATA, END, 1, data)


@pytest.mark.parametrize(("told", "status"), [(True, 204), (False, 400)])
def test_a_compressed_request_is_taken_only_where_that_was_said(told, status):
    end = greeted(options=Options(compression=told))
    end.feed(compressed(1))
    (answer, *_) = end.said
    assert (answer[0], read_response(answer[3]).status) == (RESPONSE, status)
    end.close()


@pytest.mark.parametrize("told", [True, False])
def test_a_compressed_answer_is_taken_only_where_that_was_said(told):
    end = greeted("client", options=Options(compression=told))
    end.call()
    head = write_response(Response(200, [(b"content-encoding", b"gzip")]), None, 1, [].append)
    end.feed(frame(RESPONSE, END, 1, head))
    if told:
        assert end.result[0].headers.get(b"content-encoding") == b"gzip"
    else:
        assert end.errors[0].status == 502
        assert [kind for kind, *_ in end.said if kind != REQUEST] == [CANCEL]
    end.close()


def test_without_compression_a_content_encoding_between_the_applications_still_passes():
    end = greeted(options=Options(compression=False))
    end.feed(compressed(0))
    assert end.app.requests[0].headers.get(b"content-encoding") == b"gzip"
    end.close()


def test_what_is_sent_goes_by_what_the_peer_has_said():
    end = greeted(hello=Hello(heartbeat=0, capabilities=1).pack(), options=Options(compression=False))
    data = pack(b"gzip", b"hello")
    end.app.answer = lambda request: Response(200, [(b"content-encoding", b"gzip")], Whole(data))
    end.order(payload=ORDER)
    (answer, content) = end.said
    assert content[3] == data
    assert read_response(answer[3]).fields == [(b"content-encoding", b"gzip")]
    end.close()
