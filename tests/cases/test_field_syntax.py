"""Field lines of a request: what is no name, no value or no line of its own is refused, the rest arrives as it was."""

from __future__ import annotations

import pytest
from scene import NEXT, POST, Scene, passed, refused
from wire import equal

START = b"GET /a HTTP/1.1\r\nHost: a.test\r\n"
CONTROLS = [bytes([code]) for code in (*range(9), *range(10, 32), 127)]


def with_line(line: bytes, behind: bytes = b"Z: z\r\n") -> bytes:
    return START + line + b"\r\n" + behind + b"\r\n"


SPACED = [
    b"Transfer-Encoding : chunked",
    b"Transfer-Encoding\t: chunked",
    b"X : y",
    b"X\t: y",
    b"X \t : y",
    b"X\x85: y",
    b"X\xa0: y",
]
SPACED += [
    b"Transfer-Encoding\x0b: chunked",
    b"Content-Length : 5",
    b"Content-Length\x00: 5",
    b"Host : b.test",
    b"X\xe2\x80\x83: y",
]


@pytest.mark.parametrize("line", SPACED)
def test_white_space_before_the_colon_is_refused(line):
    """One reader strips it and sees a field, another takes it for part of an unknown name."""
    with Scene() as scene:
        refused(scene, with_line(line), step=2)
        refused(scene, POST + line + b"\r\n\r\n0\r\n\r\n", step=9)


FOLDS = [
    b"X: a\r\n b",
    b"X: a\r\n\tb",
    b"X:\r\n a",
    b"Transfer-Encoding:\r\n chunked",
    b"Content-Length:\r\n 5",
    b"X: a\r\n \t ",
]
FOLDS += [
    b"X: a\r\n \r\n b",
    b"Content-Length: 1\r\n 0",
    b" X: a",
    b"\tX: a",
    b" ",
    b"\t",
    b" \t",
    b"X: a\r\n\x0bb: c",
    b"X: a\r\n\x1cb: c",
]
FOLDS += [b"X: a\r\n\x85b: c", b"X: a\r\n\xa0b: c", b"X: a\r\n\x0cb: c", b"X: a\n b", b"X: a\n\tb", b"X: a\r b"]


@pytest.mark.parametrize("lines", FOLDS)
def test_folded_lines_are_refused(lines):
    """A line that goes on in the next one, or a line of white space that one reader takes for the end of the head."""
    with Scene() as scene:
        refused(scene, with_line(lines), step=2)


def test_a_fold_at_every_offset():
    """The same, cut everywhere, also where the fold is the last line of the head."""
    for data in (with_line(b"X: a\r\n b"), with_line(b"X: a\r\n b", b""), with_line(b" \t", b"")):
        with Scene() as scene:
            refused(scene, data)
    with Scene() as scene:
        refused(scene, b"GET / HTTP/1.1\r\n Host: a.test\r\n\r\n")


@pytest.mark.parametrize("control", CONTROLS, ids=repr)
def test_a_control_character_in_a_value_is_refused(control):
    """One reader cuts the value there, another does not: whose host, whose length is it then?"""
    for line in (b"X: v%bw", b"X: %bv", b"X: v%b", b"X: %b", b"X:%bv"):
        with Scene() as scene:
            refused(scene, with_line(line % control), step=11)
    for line in (b"Host: good.test%b.evil.test", b"Host: good.test%b", b"Host: %bgood.test"):
        with Scene() as scene:
            refused(scene, b"GET / HTTP/1.1\r\n" + line % control + b"\r\n\r\n", step=7)


@pytest.mark.parametrize("control", [*CONTROLS, b" ", b"\t"], ids=repr)
def test_a_control_character_in_a_name_is_refused(control):
    """The same for names."""
    for line in (b"X%by: v", b"%bX: v", b"X%b: v"):
        with Scene() as scene:
            refused(scene, with_line(line % control), step=11)


VALUES = [
    b"",
    b"a",
    b"a b",
    b"a\tb",
    b"a  b",
    b"\x80\xff",
    "\u00e4\u20ac".encode(),
    b'"a, b";c=(d)',
    b":",
    b"::a",
    b"a: b",
    b"=?utf-8?q?a?=",
]
VALUES += [b"\xc2\x85", b"\xa0", b"%0d%0aX: y", b"\\r\\n", b"a" * 3000]


@pytest.mark.parametrize("value", VALUES, ids=lambda value: repr(value[:20]))
def test_every_other_value_arrives_byte_for_byte(value):
    """Text of any encoding is the business of the two ends."""
    with Scene() as scene:
        step = 1 if len(value) < 100 else 397
        passed(scene, with_line(b"X: \t" + value + b" \t"), lambda request: equal(request.get(b"x"), value), step=step)


NAMES = [
    b": x",
    b":",
    b"a b: x",
    b"(a): x",
    b"\xefa: x",
    b"a",
    b"a\xff: x",
    b'"a": x',
    b"a,b: x",
    b"a;b: x",
    b"a/b: x",
    b"a@b: x",
]
NAMES += [
    b"a[b]: x",
    b"a{b}: x",
    b"a=b: x",
    b"a\\b: x",
    b"a?: x",
    b"<a>: x",
    "\u00e4: x".encode(),
    b"a=x",
    b"GET / HTTP/1.1",
    b": :",
]


@pytest.mark.parametrize("line", NAMES)
def test_a_name_that_is_no_token_is_refused(line):
    """Empty and strange names: they hide what follows from whoever stops there."""
    with Scene() as scene:
        refused(scene, with_line(line, b"Content-Length: 5\r\n"), step=2)


@pytest.mark.parametrize("name", [b"x_y", b"X-Y", b"x.y", b"!#$%&'*+-.^_`|~0", b"1", b"x--y"])
def test_every_token_is_a_name(name):
    """In any case; it leaves in lower case."""
    with Scene() as scene:
        passed(scene, with_line(name + b": v"), lambda request: equal(request.get(name.lower()), b"v"))


@pytest.mark.parametrize("size", [1, 100, 241, 255, 256, 257, 270, 1000, 8000])
@pytest.mark.parametrize("name", [b"Content-Length0", b"Content-Length", b"Transfer-Encoding"])
def test_long_names_are_names_of_their_own(size, name):
    """A length that overflows in somebody's index must not turn the name into that of a framing field."""
    long = name + b"a" * size

    def check(request):
        assert (request.get(long.lower()), request.body) == (b"5", b"")
        assert request.get(b"content-length") is request.get(b"transfer-encoding") is None

    with Scene() as scene:
        passed(scene, with_line(long + b": 5"), check, step=1 if size == 241 else 997 if size > 500 else 29)


@pytest.mark.parametrize("size", [8192, 16384])
def test_too_long_names_are_refused(size):
    """No name is longer than a line may be."""
    with Scene() as scene:
        refused(scene, START + b"Content-Length0" + b"a" * size + b": 5\r\n\r\n", 431, step=size)


HOP = [
    b"Keep-Alive: timeout=5",
    b"Proxy-Connection: keep-alive",
    b"Proxy-Authorization: Basic dG9r",
    b"TE: deflate",
    b"Trailer: X",
]
HOP += [
    b"Upgrade: foo",
    b"HTTP2-Settings: AAMAAABkAAQCAAAAAAIAAAAA",
    b"Connection: x-secret",
    b"Connection: X-Secret, keep-alive",
]


@pytest.mark.parametrize("line", HOP)
def test_fields_of_the_connection_stay_on_it(line):
    """Hop-by-hop fields and those that Connection names."""

    def check(request):
        names = {name for name, _ in request.fields}
        assert line.partition(b":")[0].lower() not in names
        assert (b"x-secret" in names) == (not line.startswith(b"Connection"))
        assert request.get(b"x-open") == b"2"

    with Scene() as scene:
        passed(scene, START + line + b"\r\nX-Secret: 1\r\nX-Open: 2\r\n\r\n", check, step=3)


@pytest.mark.parametrize(
    "option", [b"host", b"content-length", b"x-forwarded-for", b"via", b"expect", b"connection", b"te", b"forwarded"]
)
def test_connection_cannot_take_away_what_the_gateway_says(option):
    """What a client names there is what it sent, not what is added behind it."""

    def check(request):
        assert request.get(b"host") == b"a.test"
        assert request.get(b"x-forwarded-for") == b"127.0.0.1"
        assert request.get(b"via") == b"1.1 edge"
        assert (request.get(b"content-length"), request.body) == (b"5", b"hello")

    with Scene() as scene:
        passed(scene, POST + b"Connection: " + option + b"\r\nContent-Length: 5\r\n\r\nhello", check, step=5)


def test_te_trailers_crosses_alone():
    """The one coding that a gateway can promise to pass on."""

    def check(request):
        assert (request.get(b"te"), request.get(b"connection")) == (b"trailers", b"te")

    with Scene() as scene:
        passed(scene, START + b"TE: trailers, deflate;q=0.5\r\nConnection: TE\r\n\r\n", check)


def test_equal_names_stay_apart_and_in_order():
    """Lines are neither joined nor sorted, whatever else a reader may do with them."""

    def check(request):
        assert request.all(b"x") == [b"1", b"2, 3", b"4"]
        assert request.all(b"cookie") == [b"a=1", b"b=2"]

    with Scene() as scene:
        passed(scene, START + b"X: 1\r\nCookie: a=1\r\nx: 2, 3\r\nX:4\r\nCookie: b=2\r\n\r\n", check)
        assert NEXT
