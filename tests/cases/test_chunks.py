"""Chunked bodies: sizes, extensions, line ends, trailers; what is forwarded is chunked anew."""

from __future__ import annotations

import pytest
from scene import CHUNKED, NEXT, Scene, passed, refused, splits
from wire import equal

SIZES = [
    b"FFFFFFFFFFFFFFFF",
    b"8000000000000000",
    b"10000000000000005",
    b"0" * 15 + b"5",
    b"0" * 16 + b"5",
    b"0" * 3000 + b"5",
]
SIZES += [
    b"",
    b"+5",
    b"-5",
    b"0x5",
    b"5 ",
    b" 5",
    b"\t5",
    b"5\t",
    b"g",
    b"5g",
    b"5.",
    b"5,5",
    b"5 5",
    b"1_0",
    b"\x00",
    b"5\x00",
]
SIZES += [b"5\x0b", b"\xa05", "\uff15".encode()]


@pytest.mark.parametrize("size", SIZES, ids=lambda size: repr(size[:20]))
def test_a_chunk_size_that_is_no_short_hexadecimal_number_is_refused(size):
    """Sizes that overflow, wrap, or that one reader understands and another does not."""
    with Scene() as scene:
        data = CHUNKED + size + b"\r\nhello\r\n0\r\n\r\n"
        refused(scene, data, malformed=False, step=3 if len(data) < 1000 else 499)


@pytest.mark.parametrize("size", [b"100000005", b"80000000", b"100000000", b"FFFFFFFFFFFFFFF"])
def test_a_huge_chunk_is_as_huge_as_it_says(size):
    """32 bits are not enough for a size; what follows five bytes of 2**32 + 5 is still content, and no request."""
    with Scene() as scene:
        for pieces in splits(CHUNKED + size + b"\r\nhello\r\n0\r\n\r\n" + NEXT, 3):
            seen = scene.play(*pieces)
            assert (seen.received, seen.requests) == (b"", [])
            assert [record.status for record in seen.records] == [499]
            assert all(each.lost is not None for each in seen.broken)
        bodies = [each.rest.body for each in scene.origin.connections]
        assert bodies
        assert all((b"hello\r\n0\r\n\r\n" + NEXT).startswith(body) for body in bodies)


@pytest.mark.parametrize("size", [b"5", b"05", b"00000005", b"0" * 14 + b"5"])
def test_zeros_before_a_chunk_size_do_not_leave_the_gateway(size):
    """The upstream gets the canonical size."""
    with Scene() as scene:
        passed(scene, CHUNKED + size + b"\r\nhello\r\n00\r\n\r\n", lambda request: equal(request.body, b"hello"))


EXTENSIONS = [
    b";",
    b";;",
    b"; ",
    b";a b",
    b";=b",
    b";a=",
    b';a="',
    b';a="b',
    b';a="b\x01"',
    b";a=\x01",
    b";a\x00",
    b";\xffa=b",
]
EXTENSIONS += [
    b"\r;a",
    b";a\r",
    b";a\n",
    b"\n",
    b";\nxx",
    b';a="\r\n"',
    b";a=b\x7f",
    b";a,b",
    b" a",
    b";a=(b)",
    b"\x00;a",
]


@pytest.mark.parametrize("extension", EXTENSIONS)
def test_a_chunk_extension_that_is_none_is_refused(extension):
    """Line ends and controls within an extension: one reader ends the line there, the other does not."""
    with Scene() as scene:
        refused(scene, CHUNKED + b"5" + extension + b"\r\nhello\r\n0\r\n\r\n", malformed=False)


@pytest.mark.parametrize(
    "data", [b"2;\nxx\r\n10\r\n\r\n0\r\n\r\n", b"5\r\r;a\r\nhello\r\n0\r\n\r\n", b'2;a="\r\n"\r\nxx\r\n0\r\n\r\n']
)
def test_line_ends_hidden_in_an_extension_are_refused(data):
    """The same, at every offset."""
    with Scene() as scene:
        refused(scene, CHUNKED + data, malformed=False)


@pytest.mark.parametrize(
    "extension", [b";a", b";a=b", b' ; a = "b c\\"d\xff"', b";a;b=c;d", b"\t;\ta", b";a=" + b"b" * 200]
)
def test_chunk_extensions_are_dropped(extension):
    """They are for one hop."""
    with Scene() as scene:
        data = CHUNKED + b"5" + extension + b"\r\nhello\r\n0" + extension + b"\r\n\r\n"
        passed(scene, data, lambda request: equal(request.body, b"hello"))


def test_an_extension_without_end_is_refused():
    """It would be a way to send for ever and never to deliver a byte."""
    with Scene() as scene:
        refused(scene, CHUNKED + b"5;a=" + b"b" * 300 + b"\r\nhello\r\n0\r\n\r\n", malformed=False)
        seen = scene.play(CHUNKED + b"5;a=" + b"b" * 300)
        assert (seen.statuses, seen.eof_before) == ([400], True)


SPILLS = [
    b"5\r\nhelloXX0\r\n\r\n",
    b"5\r\nhello0\r\n\r\n",
    b"5\r\nhelloworld\r\n0\r\n\r\n",
    b"5\r\nAAAAAXXX\r\n0\r\n\r\n",
]
SPILLS += [b"5\r\nhello\n0\r\n\r\n", b"5\r\nhello\r0\r\n\r\n", b"5\r\nhello\n\r0\r\n\r\n", b"5\r\nhello\r\r\n0\r\n\r\n"]
SPILLS += [
    b"5\r\nhell\r\n0\r\n\r\n",
    b"5\r\nhello \r\n0\r\n\r\n",
    b"5\r\nhello\r\n\r\n0\r\n\r\n",
    b"5\nhello\r\n0\r\n\r\n",
]


@pytest.mark.parametrize("data", SPILLS)
def test_a_chunk_that_is_not_followed_by_its_line_end_is_refused(data):
    """Whoever skips two bytes without looking takes the rest for something else."""
    with Scene() as scene:
        refused(scene, CHUNKED + data, malformed=False)


@pytest.mark.parametrize(
    "data", [b"\r\n\r\n", b"\r\n5\r\nhello\r\n0\r\n\r\n", b"\n", b"INVALID\r\n", b"\r\r\n", b";a\r\n\r\n", b"0\n\r\n"]
)
def test_a_chunk_without_a_size_is_refused(data):
    """An empty size is no zero; and what follows an error is no request."""
    with Scene() as scene:
        refused(scene, CHUNKED + data, malformed=False)


TRAILERS = [
    b"X y\r\n",
    b": y\r\n",
    b"X : y\r\n",
    b" X: y\r\n",
    b"X: y\n",
    b"X: a\r\n b\r\n",
    b"X: \x00\r\n",
    b"X: a\rb\r\n",
    b"X\r\n",
]


@pytest.mark.parametrize("lines", TRAILERS)
def test_malformed_trailers_are_refused(lines):
    """They obey the rules of field lines."""
    with Scene() as scene:
        refused(scene, CHUNKED + b"5\r\nhello\r\n0\r\n" + lines + b"\r\n", malformed=False)


def test_trailers_are_passed_on_but_for_those_that_would_change_the_message():
    """Framing, routing and credentials have no business behind the content."""

    def check(request):
        assert (request.body, request.trailers) == (b"hello", [(b"x-sum", b"1"), (b"x-sum", b"2")])
        assert request.get(b"authorization") is None

    trailers = b"X-Sum: 1\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\nHost: b.test\r\n"
    trailers += b"Authorization: x\r\nX-Forwarded-Port: 1\r\nX_Forwarded_For: 192.0.2.66\r\nX-Real-IP: y\r\nx-sum:2\r\n"
    with Scene() as scene:
        passed(scene, CHUNKED + b"5\r\nhello\r\n0\r\n" + trailers + b"\r\n", check)
