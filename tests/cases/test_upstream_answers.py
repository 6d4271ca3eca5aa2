"""What an upstream may say: its answers are read as strictly as requests, and framed anew for each client."""

from __future__ import annotations

import pytest
from scene import CONFIG, GET, NEXT, Scene, good, splits

OK = b"HTTP/1.1 200 OK\r\n"
GOOD = OK + b"Content-Length: 2\r\n\r\nok"


def bad(data: bytes, request: bytes = GET % b"/a", step: int = 1) -> None:
    """However C{data} is cut: 502, its connection is dropped, the client's lives on, one record blames the upstream."""
    with Scene(None) as scene:
        for pieces in [*splits(data, step), (data + GOOD,)]:
            seen = scene.reply(*pieces, request=request)
            assert seen.statuses == [502], (pieces, seen.received)
            assert not seen.eof
            assert seen.answers[0].get(b"content-type") == b"application/problem+json"
            assert b"error=http_protocol_error" in seen.answers[0].get(b"proxy-status")
            assert seen.served.lost is not None, pieces
            assert [(record.status, record.who, record.attempts) for record in seen.records] == [(502, "upstream", 1)]
            seen.client.take()
            seen.client.send(NEXT)
            scene.gateway.run()
            assert scene.origin.last is not seen.served, "a connection that was once out of step is not used again"
            scene.origin.last.send(GOOD)
            scene.gateway.run()
            assert seen.statuses == [200], pieces
            scene.origin.last.close()
            seen.client.close()
            scene.gateway.run()
        counts = map(scene.counts, ("malformed_response", "bad_framing", "unknown_transfer_coding"))
        assert sum(counts) == len(scene.records) / 2


LENGTHS = [
    b"abc5",
    b"5abc",
    b"+5",
    b"-5",
    b"5,5",
    b"5, 5",
    b"",
    b"0x5",
    b"5 5",
    b"5\x00",
    "\uff15".encode(),
    b"9" * 19,
    b"\x0b5",
]


@pytest.mark.parametrize("value", LENGTHS)
def test_a_length_that_is_none_is_a_bad_answer(value):
    """What strtol() would make something of."""
    bad(OK + b"Content-Length: " + value + b"\r\n\r\nhello", step=4)


HEADS = {
    "differing lengths": b"Content-Length: 5\r\nContent-Length: 6\r\n",
    "equal lengths": b"Content-Length: 5\r\nContent-Length: 5\r\n",
    "length and coding": b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n",
    "coding and length": b"Transfer-Encoding: chunked\r\nContent-Length: 5\r\n",
    "coding twice": b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n",
    "chunked not last": b"Transfer-Encoding: chunked, gzip\r\n",
    "unknown coding": b"Transfer-Encoding: gzip\r\n",
    "gzip, chunked": b"Transfer-Encoding: gzip, chunked\r\n",
    "identity": b"Transfer-Encoding: identity\r\n",
    "space before the colon": b"Transfer-Encoding : chunked\r\n",
    "tab before the colon": b"X\t: y\r\n",
    "no name": b": y\r\n",
    "no colon": b"X y\r\n",
    "name of two words": b"X Y: z\r\n",
    "high byte in a name": b"X\x85: y\r\n",
    "bare line feed": b"X: y\nContent-Length: 2\r\n",
    "bare carriage return": b"X: y\rContent-Length: 2\r\n",
    "fold of a vertical tab": b"X: y\r\n\x0bz\r\n",
    "fold into a length": b"Content-Length: 1\r\n 0\r\n",
    "fold first": b" X: y\r\nContent-Length: 2\r\n",
    "line of white space first": b" \r\nContent-Length: 2\r\n",
    "101 that nobody wanted": b"Connection: upgrade\r\nUpgrade: websocket\r\n",
}


@pytest.mark.parametrize("lines", HEADS.values(), ids=HEADS)
def test_a_head_with_two_readings_is_a_bad_answer(lines):
    """The rules for requests hold for upstreams: whoever gets an answer out of step poisons the next client."""
    line = b"HTTP/1.1 101 Switching Protocols\r\n" if b"Upgrade" in lines else OK
    bad(line + lines + b"\r\nhello", step=2)


@pytest.mark.parametrize("control", [bytes([code]) for code in (*range(9), *range(10, 32), 127)], ids=repr)
def test_a_control_character_in_an_answer_is_a_bad_answer(control):
    """In values, in names, in the reason: cut there by one reader and not by the next."""
    bad(OK + b"X: a" + control + b"b\r\nContent-Length: 2\r\n\r\nok", step=23)
    bad(OK + b"X" + control + b": b\r\nContent-Length: 2\r\n\r\nok", step=23)
    bad(b"HTTP/1.1 200 O" + control + b"K\r\nContent-Length: 2\r\n\r\nok", step=23)


LINES = [
    b"HTTP/1.1 0 Unknown",
    b"HTTP/1.1 99 x",
    b"HTTP/1.1 600 x",
    b"HTTP/1.1 2000 x",
    b"HTTP/1.1 20 x",
    b"HTTP/1.1 +20 x",
    b"HTTP/1.1",
]
LINES += [
    b"HTTP/1.1 ",
    b"HTTP/1.1  200 OK",
    b"HTTP/1.1\t200 OK",
    b"HTTP/1.1 200\tOK",
    b" HTTP/1.1 200 OK",
    b"http/1.1 200 OK",
    b"HTTP/2 200 OK",
]
LINES += [
    b"HTTP/2.0 200 OK",
    b"HTTP/1.10 200 OK",
    b"ICY 200 OK",
    b"HTTP/1.1 2OO OK",
    b"SSH-2.0-x",
    b"200 OK",
    b"\r\nHTTP/1.1 200 OK",
]


@pytest.mark.parametrize("line", LINES)
def test_a_status_line_that_is_none_is_a_bad_answer(line):
    """Nothing is guessed, and no status invented."""
    bad(line + b"\r\nContent-Length: 2\r\n\r\nok", step=3)


def test_a_coding_in_an_http_1_0_answer_is_a_bad_answer():
    """A version that knows no codings."""
    bad(b"HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n")


FOLDS = {
    b"X: a\r\n b\r\n": b"a b",
    b"X: a \t\r\n \t b\r\n": b"a b",
    b"X:\r\n a\r\n": b"a",
    b"X: a\r\n \r\n": b"a",
    b"X: a\r\n\tb\r\n c\r\n": b"a b c",
}


@pytest.mark.parametrize("lines", FOLDS)
def test_folded_lines_of_an_upstream_are_joined(lines):
    """Old servers fold; clients never see it."""

    def check(seen):
        assert (seen.statuses, seen.answers[0].get(b"x"), seen.answers[0].body) == ([200], FOLDS[lines], b"ok")

    good(OK + lines + b"Content-Length: 2\r\n\r\nok", check)
    good(OK + b"Content-Length: 2\r\n" + lines + b"\r\nok", check, step=5)


TEXTS = [
    b"HTTP/1.1 200\r\n",
    b"HTTP/1.1 200 \r\n",
    b"HTTP/1.1 200 \xe4\xff\r\n",
    b"HTTP/1.1 200 OK OK\r\n",
    b"HTTP/1.0 200 OK\r\nConnection: keep-alive\r\n",
]


@pytest.mark.parametrize("start", TEXTS)
def test_the_reason_does_not_matter(start):
    """It is neither looked at nor passed on, and neither is the version."""

    def check(seen):
        assert seen.received.startswith(b"HTTP/1.1 200 OK\r\n")
        assert seen.answers[0].body == b"ok"

    good(start + b"Content-Length: 02\r\nX: \xc3\xa4\r\n\r\nok", check)


HOP = [
    b"Keep-Alive: timeout=5",
    b"Proxy-Connection: x",
    b"Proxy-Authenticate: Basic",
    b"TE: x",
    b"Trailer: X",
    b"Upgrade: foo",
]
HOP += [b"Connection: x-secret", b"Connection: keep-alive, X-Secret"]


@pytest.mark.parametrize("line", HOP)
def test_fields_of_the_upstream_connection_stay_on_it(line):
    """Hop-by-hop fields and those that Connection names, on the way back."""

    def check(seen):
        answer = seen.answers[0]
        names = {name for name, _ in answer.fields}
        assert line.partition(b":")[0].lower() not in names
        assert (b"x-secret" in names) == (not line.startswith(b"Connection"))
        assert answer.get(b"via") == b"1.1 edge"

    good(OK + line + b"\r\nX-Secret: 1\r\nContent-Length: 2\r\n\r\nok", check)


def test_a_head_over_its_limit_is_a_bad_answer_with_a_counter_of_its_own():
    """Endless heads, from an upstream this time."""
    config = CONFIG | {"gateway": {"name": "edge", "limits": {"responseHeaders": "1KiB"}}}
    for data in (OK + b"X: " + b"a" * 1100 + b"\r\n\r\n", OK + b"X: " + b"a" * 2000, OK + b"X: y\r\n" * 200 + b"\r\n"):
        with Scene(None, config=config) as scene:
            for pieces in splits(data, 301):
                seen = scene.reply(*pieces)
                assert (seen.statuses, seen.served.lost is not None) == ([502], True)
                assert b"error=http_response_header_section_size" in seen.answers[0].get(b"proxy-status")
            assert scene.counts("response_headers_too_large") == len(scene.records)
    with Scene(None, config=config) as scene:
        fill = b"X: " + b"a" * (1024 - len(OK) - 3 - 2 - 20 - 2)
        data = OK + fill + b"\r\nContent-Length: 02\r\n\r\nok"
        assert len(data) - 2 == 1024
        assert scene.reply(data).statuses == [200]
