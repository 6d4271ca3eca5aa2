"""Directives, read the strict way."""

from __future__ import annotations

import time

import pytest

from protogate.caching.directives import FOREVER, NOTHING, Control, of_answer, of_request, seconds, targeted


@pytest.mark.parametrize(
    ("text", "means"),
    [
        (b"max-age=60", Control(max_age=60)),
        (b"Max-Age=60,NO-STORE", Control(max_age=60, no_store=True)),
        (b'max-age="60"', Control(max_age=60)),
        (b"max-age=60, max-age=30", Control(max_age=30)),
        (b"max-age=30, max-age=x", Control(max_age=0)),
        (b"max-age=007", Control(max_age=7)),
        (b"max-age=" + b"9" * 5000, Control(max_age=FOREVER)),
        (b"max-age=60 x", Control(max_age=0)),
        (b"max-age", Control(max_age=0)),
        (b"s-maxage=1;max-age=2", Control(s_maxage=0)),
        (b'private="set-cookie, x-a", max-age=5', Control(private=True, max_age=5)),
        (b'x="no-store, private", public', Control(public=True)),
        (b'x="a\\"b, no-store", public', Control(public=True)),
        (b'x="unclosed, no-store', Control(no_store=True)),
        (b"must-revalidate", Control(must_revalidate=True, revalidate=True)),
        (b"proxy-revalidate", Control(revalidate=True)),
        (b",, ,no-cache,", Control(no_cache=True)),
        (b"=, no-store", Control(no_store=True)),
        (b"no store", NOTHING),
        (b"", NOTHING),
        (b"stale-while-revalidate=5, stale-if-error=6", Control(stale_while_revalidate=5, stale_if_error=6)),
    ],
)
def test_of_an_answer(text, means):
    assert of_answer([text]) == means
    assert of_answer([text]) == means, "what is remembered is the same"
    assert of_answer([b"x-other=1", text]) == means


@pytest.mark.parametrize(
    ("text", "means"),
    [
        (b"max-age=x", NOTHING),
        (b"max-stale", Control(max_stale=FOREVER)),
        (b"max-stale=5", Control(max_stale=5)),
        (b"min-fresh=5, only-if-cached", Control(min_fresh=5, only_if_cached=True)),
        (b"min-fresh", NOTHING),
    ],
)
def test_of_a_request(text, means):
    assert of_request([text]) == means


@pytest.mark.parametrize(
    ("text", "means"),
    [
        (b"max-age=60", Control(max_age=60)),
        (b"max-age=60,no-store", Control(max_age=60, no_store=True)),
        (b"max-age=60, max-age=5", Control(max_age=5)),
        (b"no-store, no-store=?0", NOTHING),
        (b"max-age=-1", Control(max_age=0)),
        (b"max-age=1.5", Control(max_age=0)),
        (b'max-age="60", x=:YQ==:;a, y=tok/en', NOTHING),
        (b"max-age", NOTHING),
        (b"max-age=60;q=1;r", Control(max_age=60)),
        (b"max-age=60;no-store=1", Control(max_age=60)),
        (b"", None),
        (b"max-age=60,", None),
        (b"max-age= 60", None),
        (b"Max-Age=60", None),
        (b"max-age=60 no-store", None),
        (b'x="a', None),
    ],
)
def test_of_a_targeted_field(text, means):
    assert targeted([text]) == means


@pytest.mark.parametrize("text", [b"", b"-1", b"1.0", b"1 ", b"+1", b"\xb2", b"1_0", b"0x1"])
def test_no_number_of_seconds(text):
    assert seconds(text) is None


@pytest.mark.parametrize(
    "text",
    [b"," * 60_000, b"a" * 60_000, b'a="' * 20_000, b"a=" * 30_000, b'x="\\' * 15_000, b" \t" * 30_000, b"a;" * 30_000],
)
def test_nothing_takes_long(text):
    begun = time.process_time()
    of_answer([text])
    targeted([text])
    assert time.process_time() - begun < 1.0
