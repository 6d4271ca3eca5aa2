"""protogate decode: what was said, in each codec that can show it."""

from __future__ import annotations

import io
import sys
from io import StringIO
from pathlib import Path

import pytest
from zope.interface import implementer_only

from protogate.cli import main
from protogate.commands import decode
from protogate.context import Limits
from protogate.interfaces import IStreamCodec
from protogate_http.http1 import Http1
from protogate_sotp import frames
from protogate_sotp.codec import Sotp
from protogate_sotp.faults import DEADLINE, NONE
from protogate_sotp.frames import cancel, credited, frame, goaway

PING = "d550 01 07 00 000008 00000000 0000000000000001"


def run(*arguments: str) -> tuple[int, str]:
    out = StringIO()
    return main(["decode", *arguments], out), out.getvalue()


def test_hex_comes_from_the_command_line_or_a_file(tmp_path: Path) -> None:
    (tmp_path / "ping.hex").write_text(PING.upper().replace(" ", "\n"))
    expected = (0, "0: PING: 0000000000000001\n")
    assert run("sotp", "-x", PING) == expected
    assert run("sotp", "-x", f"@{tmp_path / 'ping.hex'}") == expected


def test_bytes_come_from_a_file_or_from_standard_input(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = bytes.fromhex(PING) * 2
    (tmp_path / "pings").write_bytes(data)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))
    expected = (0, "0: PING: 0000000000000001\n20: PING: 0000000000000001\n")
    assert run("sotp", str(tmp_path / "pings")) == expected
    assert run("sotp", "-") == expected


@pytest.mark.parametrize(
    ("arguments", "status", "text"),
    [
        (["sotp", "-x", "d5 5"], 2, "-x wants pairs of hex digits"),
        (["sotp", "-x", "d5é0"], 2, "-x wants pairs of hex digits"),
        (["nothing", "-x", ""], 2, "no codec named 'nothing'; installed: http1, http2, sotp"),
        (["sotp", "not-there"], 1, "not-there: No such file or directory"),
        (["sotp", "-x", "@not-there"], 1, "not-there: No such file or directory"),
    ],
)
def test_what_cannot_be_had(arguments: list[str], status: int, text: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(*arguments) == (status, "")
    error = capsys.readouterr().err
    assert error.startswith("protogate decode: ")
    assert text in error


@implementer_only(IStreamCodec)
class Mute(Sotp):
    """Shows nothing."""


def test_a_codec_that_cannot_show_what_was_said(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(decode, "find", lambda interface, name: Mute())
    assert run("sotp", "-x", PING) == (2, "")
    assert capsys.readouterr().err == "protogate decode: the codec 'sotp' cannot show what was said\n"


@pytest.mark.parametrize("arguments", [["sotp"], ["sotp", "a", "-x", "00"], []])
def test_bytes_come_from_one_place(arguments: list[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        run(*arguments)
    assert ended.value.code == 2


def test_what_is_right_is_shown_before_what_is_wrong(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("sotp", "-x", PING + "ff" * 12) == (1, "0: PING: 0000000000000001\n")
    assert capsys.readouterr().err == "protogate decode: at 20: not a frame\n"
    assert run("sotp", "-x", PING + PING[:20]) == (1, "0: PING: 0000000000000001\n")
    assert capsys.readouterr().err == "protogate decode: at 20: a frame that is cut off after 8 bytes\n"


def lines(codec: Http1 | Sotp, data: bytes, client: bool = True) -> list[str]:
    """The frames; the last is what is wrong with the rest."""
    out = []
    try:
        for line in codec.dissect(data, client, Limits()):
            out.append(line)
    except ValueError as error:
        out.append(f"ValueError: {error}")
    return out


HELLO = (
    "HELLO: versions 1 to 1, heartbeat 0 s, capabilities none, streams 100, window 65536, total 1048576, "
    "data 16384, heads 16384"
)
ORDER = (
    "REQUEST stream 1: POST /1001/order.create, service 1001, authority 1001, secure, deadline 1500 ms, length 5\n"
    "    a: \\xe9\n    content-type: text/plain; charset=utf-8"
)


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (credited(0, 9), "CREDIT: 9 bytes for the connection"),
        (credited(3, 9), "CREDIT stream 3: 9 bytes"),
        (frame(frames.CREDIT, 0, 3, b"\0"), "CREDIT stream 3: WRONG: the payload has not the size of its type"),
        (cancel(5, DEADLINE), "CANCEL stream 5: DEADLINE"),
        (cancel(5, 999, "no\x1b[2J"), "CANCEL stream 5: 999: no\\x1b[2J"),
        (goaway(7, NONE, "bye"), "GOAWAY: last stream 7, NONE: bye"),
        (frame(frames.PONG, 0, 0, b"12345678"), "PONG: 3132333435363738"),
        (frame(130, 4, 0, b"12"), "extension 130 flags 0x04: 2 bytes"),
        (frame(frames.DATA, frames.END, 1, b"12"), "DATA stream 1 END: 2 bytes"),
        (frame(frames.TRAILERS, 0, 1, bytes.fromhex("0001 01 0001 61 31")), "TRAILERS stream 1: 1 pair\n    a: 1"),
        (frame(frames.TRAILERS, 0, 1, b"\0"), "TRAILERS stream 1: WRONG: trailers without a count"),
        (
            frame(
                frames.REQUEST,
                0,
                1,
                bytes.fromhex("000003e9 000005dc 04 00 05 00 0c 00 0001 0000000000000005")
                + b"order.create"
                + bytes.fromhex("01 0002 61 c3a9"),
            ),
            ORDER,
        ),
        (frame(frames.REQUEST, 1, 1, b"12"), "REQUEST stream 1 END: POST /, WRONG: the head is too short"),
        (
            frame(frames.RESPONSE, 3, 1, bytes.fromhex("0005 0000 00 00 00 00 0000")),
            "RESPONSE stream 1 END INTERIM: status 5 NOT_FOUND, HTTP 404",
        ),
        (
            frame(frames.RESPONSE, 0, 1, bytes.fromhex("03e7 0000 00 00 01 00 0000 0000000000000002")),
            "RESPONSE stream 1: status 999, HTTP 500, length 2\n    sotp-status: 999",
        ),
        (
            frames.LEAST.pack(),
            HELLO,
        ),
        (frame(frames.HELLO, 0, 0, b"1"), "HELLO: WRONG: the payload has not the size of its type"),
    ],
)
def test_sotp_is_shown_frame_by_frame(data: bytes, text: str) -> None:
    assert lines(Sotp(), data) == [f"0: {text}"]


def test_a_large_data_that_is_cut_off_is_no_frame() -> None:
    data = frame(frames.DATA, 0, 1, b"x" * 100_000)
    assert lines(Sotp(), data) == ["0: DATA stream 1: 100000 bytes"]
    for cut in (1, 12, 13, 99_000):
        assert lines(Sotp(), data[:cut]) == [f"ValueError: at 0: a frame that is cut off after {cut} bytes"]


POST = b"POST /x HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc"
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: Chunked\r\n\r\n2\r\nab\r\n1\r\nc\r\n0\r\nX-Sum: 7\r\n\r\n"


@pytest.mark.parametrize(
    ("client", "data", "expected"),
    [
        (
            True,
            POST + b"GET /\xc3\xa9 HTTP/1.0\r\n\r\n",
            [
                "0: POST /x HTTP/1.1\n    host: a\n    content-length: 3",
                "48: content, 3 bytes",
                "ValueError: at 51: malformed head",
            ],
        ),
        (True, POST[:-1], ["0: POST /x HTTP/1.1\n    host: a\n    content-length: 3", "48: content, 2 bytes"]),
        (True, b"CONNECT a:1 HTTP/1.1\r\n\r\n123", ["0: CONNECT a:1 HTTP/1.1", "24: content, 3 bytes"]),
        (
            False,
            CHUNKED + b"HTTP/1.1 304 Not Modified\r\nContent-Length: 9\r\n\r\nHTTP/1.0 200\r\n\r\nrest",
            [
                "0: HTTP/1.1 200\n    transfer-encoding: Chunked",
                "47: content, 3 bytes",
                "63: end of the content\n    x-sum: 7",
                "75: HTTP/1.1 304\n    content-length: 9",
                "123: HTTP/1.0 200",
                "139: content, 4 bytes",
            ],
        ),
        (
            False,
            b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 101 Up\r\nx: \xff\r\n\r\n\x81\x00",
            ["0: HTTP/1.1 100", "25: HTTP/1.1 101\n    x: \\ufffd", "50: content, 2 bytes"],
        ),
    ],
)
def test_http_is_shown_message_by_message(client: bool, data: bytes, expected: list[str]) -> None:
    found = lines(Http1(), data, client)
    if data == POST[:-1]:
        assert found.pop() == f"ValueError: at {len(data)}: cut off within a message that begins before"
    assert found == expected


@pytest.mark.parametrize(
    "fields",
    [
        b"Content-Length: 1\r\nContent-Length: 2",
        b"Content-Length: +1",
        b"Content-Length: 1\r\nTransfer-Encoding: chunked",
        b"Transfer-Encoding: gzip, chunked",
    ],
)
def test_content_that_may_be_read_in_two_ways_is_not_read(fields: bytes) -> None:
    found = lines(Http1(), b"POST / HTTP/1.1\r\n" + fields + b"\r\n\r\nabc")
    assert found[1:] == ["ValueError: at 0: no one way to tell how long the content is"]
