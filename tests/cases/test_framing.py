"""How a request is delimited: what has two readings is refused, what has one leaves in its canonical form."""

from __future__ import annotations

import pytest
from scene import NEXT, POST, Scene, passed, refused
from wire import equal

INNER = b"GET /x HTTP/1.1\r\nHost: a\r\n\r\n    "


def framed(*lines: bytes, body: bytes = b"20\r\n" + INNER + b"\r\n0\r\n\r\n") -> bytes:
    return POST + b"".join(line + b"\r\n" for line in lines) + b"\r\n" + body


BOTH = {
    "length first": (b"Content-Length: 0", b"Transfer-Encoding: chunked"),
    "coding first": (b"Transfer-Encoding: chunked", b"Content-Length: 0"),
    "apart": (b"Content-Length: 42", b"X: y", b"Transfer-Encoding: chunked"),
    "lower case": (b"content-length: 0", b"transfer-encoding: chunked"),
    "upper case": (b"TRANSFER-ENCODING: CHUNKED", b"CONTENT-LENGTH: 0"),
    "identity, chunked": (b"Content-Length: 0", b"Transfer-Encoding: identity, chunked"),
    "chunked, identity": (b"Content-Length: 0", b"Transfer-Encoding: chunked, identity"),
    "identity": (b"Content-Length: 0", b"Transfer-Encoding: identity"),
    "xchunked": (b"Content-Length: 0", b"Transfer-Encoding: xchunked"),
    "tabs": (b"Content-Length:\t0\t", b"Transfer-Encoding:\tchunked\t"),
    "empty coding": (b"Content-Length: 0", b"Transfer-Encoding:"),
    "coding removed by Connection": (
        b"Connection: transfer-encoding",
        b"Content-Length: 0",
        b"Transfer-Encoding: chunked",
    ),
    "length removed by Connection": (
        b"Connection: content-length",
        b"Content-Length: 0",
        b"Transfer-Encoding: chunked",
    ),
}


@pytest.mark.parametrize("lines", BOTH.values(), ids=BOTH)
def test_length_and_coding_together_are_refused_when_the_head_ends(lines):
    """Two framings in one request: the classic of request smuggling, either way round."""
    with Scene() as scene:
        refused(scene, framed(*lines))
        head = framed(*lines, body=b"")
        seen = scene.play(head)
        assert (seen.statuses, seen.eof_before) == ([400], True), "it does not wait for a body"


CODINGS = {
    "twice": ((b"Transfer-Encoding: chunked", b"Transfer-Encoding: chunked"), 400),
    "twice in a list": ((b"Transfer-Encoding: chunked, chunked",), 400),
    "twice, apart": ((b"Transfer-Encoding: chunked", b"X: y", b"TRANSFER-ENCODING: chunked"), 400),
    "chunked, then identity": ((b"Transfer-Encoding: chunked", b"Transfer-Encoding: identity"), 400),
    "not last": ((b"Transfer-Encoding: chunked, gzip",), 400),
    "identity alone": ((b"Transfer-Encoding: identity",), 400),
    "gzip alone": ((b"Transfer-Encoding: gzip",), 400),
    "xchunked": ((b"Transfer-Encoding: xchunked",), 400),
    "chunkedx": ((b"Transfer-Encoding: chunkedx",), 400),
    "empty": ((b"Transfer-Encoding:",), 400),
    "comma before": ((b"Transfer-Encoding: ,chunked",), 400),
    "comma behind": ((b"Transfer-Encoding: chunked,",), 400),
    "parameter": ((b"Transfer-Encoding: chunked;q=1",), 400),
    "quoted": ((b'Transfer-Encoding: "chunked"',), 400),
    "two words": ((b"Transfer-Encoding: chunked chunked",), 400),
    "vertical tab": ((b"Transfer-Encoding: \x0bchunked",), 400),
    "form feed": ((b"Transfer-Encoding: chunked\x0c",), 400),
    "next line": ((b"Transfer-Encoding: chunked\x85",), 400),
    "no-break space": ((b"Transfer-Encoding: \xa0chunked",), 400),
    "long s, as lower() would have it": (("Transfer-Encoding: chun\u212aed".encode(),), 400),
    "gzip, chunked": ((b"Transfer-Encoding: gzip, chunked",), 501),
    "identity, chunked": ((b"Transfer-Encoding: identity, chunked",), 501),
    "gzip, then chunked": ((b"Transfer-Encoding: gzip", b"Transfer-Encoding: chunked"), 501),
}


@pytest.mark.parametrize(("lines", "status"), CODINGS.values(), ids=CODINGS)
def test_any_coding_but_chunked_once_is_refused(lines, status):
    """Transfer codings repeated, unknown or misspelt, which some reader takes for chunked and some for none."""
    with Scene() as scene:
        refused(scene, framed(*lines), status)


@pytest.mark.parametrize("value", [b"chunked", b"CHUNKED", b"Chunked", b"\tchunked \t", b"   chunked"])
def test_chunked_is_chunked_in_any_case(value):
    """Names of codings have no case, and white space around a value is none of it."""

    def check(request):
        assert (request.body, request.get(b"transfer-encoding")) == (INNER, b"chunked")

    with Scene() as scene:
        data = POST + b"transfer-Encoding:" + value + b"\r\n\r\n20\r\n" + INNER + b"\r\n0\r\n\r\n"
        passed(scene, data, check)


@pytest.mark.parametrize("lines", [b"", b"Content-Length: 50\r\n", b"Connection: keep-alive\r\n"])
@pytest.mark.parametrize("host", [b"", b"Host: a.test\r\n"])
def test_a_coding_in_http_1_0_is_refused(lines, host):
    """A version that knows no codings: whoever is in front reads another end of the message."""
    with Scene() as scene:
        data = b"GET / HTTP/1.0\r\n" + host + lines + b"Transfer-Encoding: chunked\r\n\r\n3\r\nxxx\r\n0\r\n\r\n"
        refused(scene, data)


@pytest.mark.parametrize("value", [b"10", b"010", b"0010", b"  10", b"10\t", b"\t10 ", b"000000000000000010"])
def test_a_length_is_decimal_and_leaves_in_its_canonical_form(value):
    """Leading zeros, which a reader in C takes for octal."""

    def check(request):
        assert (request.get(b"content-length"), request.body) == (b"10", b"0123456789")

    with Scene() as scene:
        passed(scene, POST + b"Content-Length:" + value + b"\r\n\r\n0123456789", check)


LENGTHS = [b"+5", b"-0", b"-5", b"0x5", b"5,5", b"5, 5", b"5,", b",5", b"", b" ", b"5 5", b"5;", b"5.0", b"5e0", b"1_0"]
LENGTHS += [
    b"5\x0b",
    b"5\x0c",
    b"\xa05",
    b"5\x85",
    "\uff15".encode(),
    "\u0665".encode(),
    b"\xb2",
    b"abc5",
    b"5abc",
    b'"5"',
]
LENGTHS += [b"9" * 19, b"18446744073709551621", b"4294967301" + b"0" * 10, b"0" * 18 + b"5"]


@pytest.mark.parametrize("value", LENGTHS)
def test_a_length_that_is_no_decimal_is_refused(value):
    """Signs, prefixes, lists, other digits, and numbers that wrap: what int() and strtoll() accept or truncate."""
    with Scene() as scene:
        refused(scene, framed(b"Content-Length: " + value, body=b"hello"))


LISTS = {
    "differing": (b"Content-Length: 0", b"Content-Length: 38"),
    "differing, other way": (b"Content-Length: 38", b"Content-Length: 0"),
    "equal": (b"Content-Length: 5", b"Content-Length: 5"),
    "equal in a list": (b"Content-Length: 42, 42",),
    "differing in a list": (b"Content-Length: 0, 38",),
    "equal numbers, spelt otherwise": (b"Content-Length: 5", b"content-length: 05"),
    "apart": (b"Content-Length: 5", b"X: y", b"CONTENT-LENGTH: 6"),
    "three": (b"Content-Length: 5", b"Content-Length: 5", b"Content-Length: 6"),
    "second empty": (b"Content-Length: 5", b"Content-Length:"),
}


@pytest.mark.parametrize("lines", LISTS.values(), ids=LISTS)
def test_more_than_one_length_is_refused(lines):
    """One reader takes the first, another the last."""
    with Scene() as scene:
        refused(scene, framed(*lines, body=INNER + b"123456"))


METHODS = [b"GET", b"HEAD", b"OPTIONS", b"DELETE", b"TRACE", b"POST", b"PUT", b"PATCH", b"SEARCH"]


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(
    ("field", "content", "body"),
    [
        (b"Content-Length: 5", b"hello", b"hello"),
        (b"Transfer-Encoding: chunked", b"5\r\nhello\r\n0\r\n\r\n", b"hello"),
        (b"Content-Length: 0", b"", b""),
        (b"Transfer-Encoding: chunked", b"0\r\n\r\n", b""),
        (b"Content-Length: 34", NEXT, NEXT),
    ],
)
def test_fields_frame_a_request_whatever_its_method(method, field, content, body):
    """A body behind GET is a body: forwarded with its framing, and never read as the next request."""
    assert len(NEXT) == 36

    def check(request):
        assert (request.method, request.body) == (method, body)

    data = method + b" /a HTTP/1.1\r\nHost: a.test\r\n" + field.replace(b"34", b"36") + b"\r\n\r\n" + content
    with Scene() as scene:
        passed(scene, data, check, methods=[method])


@pytest.mark.parametrize("method", METHODS)
def test_a_request_without_framing_has_no_body(method):
    """What follows is the next request."""
    with Scene() as scene:
        data = method + b" /a HTTP/1.1\r\nHost: a.test\r\n\r\n"
        passed(scene, data, lambda request: equal(request.body, b""), methods=[method])


@pytest.mark.parametrize("head", [b"GET / HTTP/1.1\nHost: a.test\r\n\r\n", b"GET / HTTP/1.1\r\nHost: a.test\n\r\n"])
@pytest.mark.parametrize("end", [b"", b"\n", b"\r\n"])
def test_bare_line_feeds_end_no_line(head, end):
    """Only CRLF does: one reader ends the head where another does not."""
    with Scene() as scene:
        refused(scene, head + end)


@pytest.mark.parametrize("ends", [b"\n\n", b"\r\n\n", b"\n\r\n", b"\r\r", b"\r\n\r", b"\r\n\r\r\n"])
def test_a_head_ends_with_an_empty_line_and_nothing_else(ends):
    """Every other mixture of CR and LF is refused, whatever follows."""
    with Scene() as scene:
        refused(scene, b"GET / HTTP/1.1\r\nHost: a.test" + ends + b"X: y\r\n\r\n")


def test_one_empty_line_before_a_request_is_no_fault():
    """Old clients send one behind their body; two are more than a mistake."""
    with Scene() as scene:
        passed(scene, b"\r\n" + NEXT.replace(b"next", b"a"), lambda request: equal(request.target, b"/a"))
    for junk in (b"\r\n\r\n", b"\n", b"\r", b" ", b"\x00", b"\t\r\n", b"\xef\xbb\xbf"):
        with Scene() as scene:
            refused(scene, junk + NEXT.replace(b"next", b"a"))


START_LINES = [
    b"GET  / HTTP/1.1",
    b" GET / HTTP/1.1",
    b"GET /  HTTP/1.1",
    b"GET / HTTP/1.1 ",
    b"GET\t/ HTTP/1.1",
    b"GET / http/1.1",
]
START_LINES += [
    b"GET /",
    b"GET",
    b"GET / HTTP/1",
    b"GET / HTTP/1.10",
    b"GET / HTTP/11.1",
    b"GET / HTTP/ 1.1",
    b"GET / HTTP/+1.1",
]
START_LINES += [
    b"G(T / HTTP/1.1",
    b"GE\x00T / HTTP/1.1",
    b"GET /\x00 HTTP/1.1",
    b"GET /\xff HTTP/1.1",
    b"GET /a b HTTP/1.1",
]
START_LINES += [
    b"GET / HTTP/1.1\r",
    b"GET / XTTP/1.1",
    b"GET /\x7f HTTP/1.1",
    b"GET /\x0b HTTP/1.1",
    b"HTTP/1.1 200 OK",
    b"\x16\x03\x01",
]


@pytest.mark.parametrize("line", START_LINES)
def test_a_malformed_request_line_is_refused(line):
    """Two single spaces, three parts, a token, visible ASCII, a version as it is written."""
    with Scene() as scene:
        refused(scene, line + b"\r\nHost: a.test\r\n\r\n")


@pytest.mark.parametrize("version", [b"2.0", b"1.2", b"0.9", b"3.0", b"9.9", b"0.0"])
def test_other_versions_are_not_supported(version):
    """They are told so, and nothing is guessed."""
    with Scene() as scene:
        refused(scene, b"GET / HTTP/" + version + b"\r\nHost: a.test\r\n\r\n", 505)
