"""
Requests of HTTP/2 end by themselves: nothing of them waits for the garbage collector, and nothing stays.

What is compiled has no tables that an object could be found in by chance, so this is looked at in both builds.
"""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from scene import ok as ok1
from two import BOTH, CANCEL, Asked, Two, ok

from h2frames import data, fields, headers, req, res, rst

pytestmark = pytest.mark.parametrize("engine", BOTH)
OURS = ("protogate.", "protogate_http.")
CALL = [(b"content-type", b"application/grpc"), (b"te", b"trailers")]


def counted() -> Counter[str]:
    """How many objects of each class of the gateway there are, by its name."""
    kinds = (type(each) for each in gc.get_objects())
    return Counter(f"{kind.__module__}.{kind.__name__}" for kind in kinds if kind.__module__.startswith(OURS))


@pytest.fixture
def uncollected() -> Iterator[None]:
    """The collector looks when it is told to."""
    gc.disable()
    yield
    gc.enable()


Ask = Callable[[int], tuple[bytes, ...]]


def get(stream: int) -> tuple[bytes, ...]:
    """A request without content."""
    return (req(stream, b"/a"),)


def call(stream: int) -> tuple[bytes, ...]:
    """A call of gRPC, with a message."""
    return (req(stream, b"/a.B/C", b"POST", CALL, False) + data(stream, b"\0\0\0\0\2hi", True),)


def broken(stream: int) -> tuple[bytes, ...]:
    """Given up while it is under way."""
    return req(stream, b"/a"), rst(stream, CANCEL)


def malformed(stream: int) -> tuple[bytes, ...]:
    """None at all."""
    return (req(stream, b"/a", b"GET", [(b"connection", b"close")]),)


def called(asked: Asked) -> bytes:
    """The answer to a call: a message, and trailers."""
    stream = asked.stream
    head = res(stream, b"200", [(b"content-type", b"application/grpc")], False)
    return head + data(stream, b"\0\0\0\0\2ho") + headers(stream, fields([(b"grpc-status", b"0")]))


@pytest.mark.usefixtures("uncollected")
@pytest.mark.parametrize(
    ("ask", "answer", "behind"),
    [
        (get, ok1, "http1"),
        (get, ok, "http2"),
        (call, called, "http2"),
        (broken, None, "http2"),
        (malformed, ok, "http2"),
    ],
    ids=["http1", "http2", "grpc", "reset", "malformed"],
)
def test_requests_leave_nothing(engine: str, ask: Ask, answer: Any, behind: str) -> None:
    with Two(engine, answer, behind=behind) as two:
        client = two.client()
        for at in range(10):
            for frames in ask(2 * at + 1):
                client.send(frames)
        two.records.clear()
        gc.collect()
        before = counted()
        for at in range(10, 60):
            for frames in ask(2 * at + 1):
                client.send(frames)
        assert len(two.records) == 50
        two.records.clear()
        assert gc.collect() == 0
        assert counted() - before == Counter()
