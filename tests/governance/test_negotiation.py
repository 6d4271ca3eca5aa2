"""What a client would rather have."""

from __future__ import annotations

import pytest

from protogate.governance.negotiation import LONGEST, accepts, coding, media, qualities

OFFERED = (b"zstd", b"br", b"gzip")


@pytest.mark.parametrize(
    ("lines", "chosen"),
    [
        ([], b"identity"),
        ([b""], b"identity"),
        ([b"gzip"], b"gzip"),
        ([b"GZIP"], b"gzip"),
        ([b"x-gzip"], b"gzip"),
        ([b"gzip, deflate, br, zstd"], b"zstd"),
        ([b"gzip;q=1.0, br;q=0.9"], b"gzip"),
        ([b"gzip;q=0.5 , br; q=0.5"], b"br"),
        ([b"*"], b"zstd"),
        ([b"*;q=0"], b"identity"),
        ([b"zstd;q=0, *;q=0.1"], b"br"),
        ([b"gzip;q=0"], b"identity"),
        ([b"identity"], b"identity"),
        ([b"identity;q=0.5, gzip;q=0.4"], b"identity"),
        ([b"identity;q=0.5, gzip;q=0.6"], b"gzip"),
        ([b"identity;q=0"], b"identity"),
        ([b"identity;q=0, gzip"], b"gzip"),
        ([b"compress"], b"identity"),
        ([b"gzip", b"br"], b"br"),
        ([b",, gzip ,"], b"gzip"),
        ([b"gzip;q=2"], b"identity"),
        ([b"gzip;q=0.1234"], b"identity"),
        ([b"gzip;q=x"], b"identity"),
        ([b"gz ip"], b"identity"),
        ([b"gzip;"], b"identity"),
        ([b"gzip\x00"], b"identity"),
        ([b"gzip" + b" " * LONGEST], b"identity"),
    ],
)
def test_the_coding_of_an_answer(lines, chosen):
    assert coding(lines, OFFERED) == chosen


@pytest.mark.parametrize(
    ("lines", "taken"),
    [([], False), ([b"gzip"], True), ([b"gzip;q=0"], False), ([b"*"], True), ([b"*;q=0"], False), ([b"br"], False)],
)
def test_whether_a_coding_is_taken(lines, taken):
    assert accepts(lines, b"gzip") is taken


@pytest.mark.parametrize(
    ("lines", "chosen"),
    [
        ([], b"application/json"),
        ([b"*/*"], b"application/json"),
        ([b"text/html"], b"text/html"),
        ([b"text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"], b"text/html"),
        ([b"text/*"], b"text/html"),
        ([b"text/plain"], b"text/plain"),
        ([b"text/plain;q=0.5, text/html;level=1;q=0.6"], b"text/html"),
        ([b"image/png"], b"application/json"),
        ([b"nonsense//"], b"application/json"),
    ],
)
def test_the_media_type_of_an_answer(lines, chosen):
    assert media(lines, (b"application/json", b"text/html", b"text/plain")) == chosen


def test_of_an_item_that_stands_there_twice_the_first_counts():
    assert qualities([b"gzip;q=0.1, gzip"]) == {b"gzip": 0.1}
