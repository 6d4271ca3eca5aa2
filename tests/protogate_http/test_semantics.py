"""What fields mean: framing, connection, targets, and what may be sent."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protogate.message import Headers, Request
from protogate_http import semantics
from protogate_http.semantics import (
    FORBIDDEN_TRAILERS,
    accept,
    admitted,
    aim,
    bodyless,
    compose,
    described,
    key,
    leftovers,
    listed,
    new_key,
    split,
    trailing,
)
from protogate_http.wire1 import CHUNKED, Bad, T


def test_plain_fields_stay_as_they_are():
    kept, special = split([(b"a", b"1"), (b"b", b"2"), (b"a", b"3")])
    assert kept == [(b"a", b"1"), (b"b", b"2"), (b"a", b"3")]
    assert (special.length, special.host, special.options, special.upgrade, special.expect) == (
        None,
        None,
        (),
        (),
        False,
    )


def test_special_fields_are_taken_out():
    kept, special = split(
        [
            (b"host", b"a:1"),
            (b"content-length", b"0007"),
            (b"connection", b"Keep-Alive"),
            (b"connection", b"X-Hop ,, upgrade"),
            (b"upgrade", b"WebSocket, h2c"),
            (b"x-hop", b"1"),
            (b"te", b"trailers;q=0.5, gzip"),
            (b"te", b"Trailers"),
            (b"expect", b"100-Continue"),
            (b"expect", b"100-continue"),
            (b"proxy-authorization", b"Basic x"),
            (b"x", b"y"),
        ]
    )
    assert kept == [(b"x", b"y"), (b"expect", b"100-continue"), (b"te", b"trailers")]
    assert (special.length, special.host, special.expect) == (7, b"a:1", True)
    assert special.options == (b"keep-alive", b"x-hop", b"upgrade")
    assert special.upgrade == (b"websocket", b"h2c")


def test_connection_cannot_name_what_a_codec_needs():
    kept, special = split(
        [(b"connection", b"te, host, content-length"), (b"te", b"trailers"), (b"host", b"a"), (b"content-length", b"1")]
    )
    assert kept == [(b"te", b"trailers")]
    assert (special.host, special.length) == (b"a", 1)


def test_upgrade_counts_only_when_connection_names_it():
    assert split([(b"upgrade", b"websocket")])[1].upgrade == ()


def test_chunked():
    assert split([(b"transfer-encoding", b"Chunked")])[1].length == CHUNKED


@pytest.mark.parametrize(
    ("values", "status"),
    [
        ([b"chunked", b"chunked"], 400),
        ([b"chunked, chunked"], 400),
        ([b"chunked, gzip"], 400),
        ([b"gzip"], 400),
        ([b""], 400),
        ([b"chunked,"], 400),
        ([b"g zip, chunked"], 400),
        ([b"gzip, chunked"], 501),
        ([b"gzip", b"chunked"], 501),
    ],
)
def test_other_transfer_codings(values, status):
    with pytest.raises(Bad) as info:
        split([(b"transfer-encoding", value) for value in values])
    assert info.value.status == status


@given(st.binary(max_size=20))
def test_content_length_is_digits_alone(value):
    value = value.strip(b" \t")
    try:
        length = split([(b"content-length", value)])[1].length
    except Bad:
        assert not value or value.strip(b"0123456789") or len(value) > 18
    else:
        assert length == int(value)
        assert value.strip(b"0123456789") == b""


@pytest.mark.parametrize("value", [b"100-continue, x", b"", b"200-ok", b"100"])
def test_other_expectations(value):
    with pytest.raises(Bad) as info:
        split([(b"expect", value)])
    assert info.value.status == 417


def test_leftovers():
    kept, host = leftovers([(b"host", b"a"), (b"host", b"b"), (b"connection", b"x"), (b"x", b"1")])
    assert (kept, host) == ([(b"x", b"1")], b"a")
    assert leftovers([]) == ([], b"")


def test_bodyless():
    assert bodyless(b"HEAD", 200)
    assert all(bodyless(b"GET", status) for status in (100, 101, 199, 204, 304))
    assert not any(bodyless(b"GET", status) for status in (200, 205, 301, 404))


@pytest.mark.parametrize(
    ("method", "target"),
    [
        (b"GET", b"x"),
        (b"GET", b"*"),
        (b"GET", b"a.test:80"),
        (b"GET", b"?x"),
        (b"GET", b"http:/a"),
        (b"GET", b"http://"),
        (b"GET", b"http:///x"),
        (b"GET", b"http://?x"),
        (b"GET", b"gopher://a/"),
        (b"GET", b"1http://a/"),
        (b"CONNECT", b"*"),
        (b"CONNECT", b"/"),
        (b"CONNECT", b"http://a"),
    ],
)
def test_targets_without_a_form(method, target):
    with pytest.raises(Bad):
        aim(method, target, b"h")


def test_targets():
    assert aim(b"GET", b"/a?b%23c", b"h") == (b"/a?b%23c", b"h")
    assert aim(b"GET", b"/", None) == (b"/", b"")
    assert aim(b"OPTIONS", b"http://a/", b"h") == (b"/", b"a")
    assert aim(b"CONNECT", b"a:1", b"h") == (b"", b"a:1")
    assert aim(b"GET", b"http://u:p@a:1/x", b"h") == (b"/x", b"u:p@a:1")


@pytest.mark.parametrize("target", [b"/a#b", b"/a?b#c", b"http://a/b#c", b"http://a#f", b"*#", b"a:1#"])
@pytest.mark.parametrize("method", [b"GET", b"OPTIONS", b"CONNECT"])
def test_a_target_has_no_fragment(method, target):
    with pytest.raises(Bad):
        aim(method, target, b"h")


@pytest.mark.parametrize(
    "name",
    [b"content_length", b"transfer_encoding", b"proxy", b"proxy_authorization", b"keep_alive", b"http2_settings"],
)
def test_what_a_program_behind_cgi_would_take_for_framing_or_for_the_hop_ends_here(name):
    kept, special = split([(name, b"1"), (b"x_y", b"2")])
    assert (kept, special.length, special.options) == ([(b"x_y", b"2")], None, ())
    assert composed([(name, b"1"), (b"x_y", b"2")]) == [b"x_y: 2\r\n"]


def test_nobody_names_away_what_a_proxy_says_of_him():
    said = [(b"x-forwarded-for", b"192.0.2.1"), (b"x-forwarded-proto", b"https"), (b"forwarded", b"for=192.0.2.1")]
    nominated = (b"connection", b"X-Forwarded-For, x-forwarded-proto, Forwarded, x-a")
    assert split([nominated, *said, (b"x-a", b"b")])[0] == said


def test_listed():
    assert listed(b" A ,, b\t,c d") == (b"a", b"b", b"c d")
    assert listed(b"") == ()


# -- what is sent


class Count(list):
    def __call__(self, event):
        self.append(event)


def composed(fields):
    lines = []
    compose(lines, fields, Count())
    return lines


def test_what_is_sent_is_appended_and_the_message_stays_as_it_is():
    count, headers = Count(), Headers([(b"a", b"1"), (b"Accept", b"*/*")])
    for _ in range(2):
        lines = [b"start"]
        assert compose(lines, headers, count) == ()
        assert lines == [b"start", b"a: 1\r\n", b"accept: */*\r\n"]
    assert headers == [(b"a", b"1"), (b"Accept", b"*/*")]
    assert count == []


def test_options_are_asked_for_not_copied():
    lines = []
    fields = [(b"Connection", b"Close, x"), (b"te", b"trailers"), (b"TE", b"gzip"), (b"a", b"1")]
    assert compose(lines, fields, Count()) == (b"close", b"x", b"te")
    assert lines == [b"a: 1\r\n"]


def test_credentials_for_the_next_hop_may_be_sent():
    fields = [(b"proxy-authorization", b"Basic x"), (b"proxy-authenticate", b"Basic"), (b"expect", b"100-continue")]
    assert composed(fields) == [b"%b: %b\r\n" % field for field in fields]


NAMES = st.one_of(
    st.binary(max_size=12), st.sampled_from([b"x-a", b"X-B", b"host", b"connection", b"content-length: 5, x"])
)


LINES = re.compile(rb"((?:" + T + rb"+:[\t \x21-\x7e\x80-\xff]*\r\n)*)").fullmatch


@given(st.lists(st.tuples(NAMES, st.binary(max_size=12)), max_size=6))
def test_nothing_that_is_sent_can_be_misread(fields):
    for _ in range(2):  # the second time some are remembered
        count, lines = Count(), []
        compose(lines, fields, count)
        match = LINES(b"".join(lines))
        assert match is not None
        assert match[1].count(b"\r\n") == len(lines)
        names = [line.partition(b":")[0] for line in lines]
        assert not set(names) & semantics.OURS
        assert names == [name.lower() for name in names]
        assert len(lines) + len(count) <= len(fields)


@pytest.mark.parametrize("name", [b"b", b"host", b"accept", b"connection"])
@pytest.mark.parametrize("value", [b"a\r\nx: y", b"a\n", b"\x00", b"a\x7f", b"\r\n"])
def test_a_value_that_holds_what_no_value_may_hold_costs_its_line_and_is_counted(name, value):
    count, lines = Count(), []
    fields = [(b"a", b"1"), (name, value), (b"c", b"\x80\xff\t ok"), (name, value)]
    assert compose(lines, fields, count) == ()
    assert lines == [b"a: 1\r\n", b"c: \x80\xff\t ok\r\n"]
    assert count == ["invalid_field_dropped"] * 2


def test_names_and_lines_are_remembered_up_to_a_bound():
    for i in range(5000):
        composed([(b"x-%d" % i, b"1"), (b"User-Agent", b"%d" % i)])
    assert len(semantics._valid) <= 4096
    assert 0 < len(semantics._known) <= semantics.KNOWN
    assert composed([(b"x-" + b"y" * 100, b"1")]) == [b"x-" + b"y" * 100 + b": 1\r\n"]


def test_no_secret_is_remembered():
    names = (b"authorization", b"Cookie", b"set-cookie", b"x-api-key", b"proxy-authorization")
    assert len(composed([(name, b"s3cret") for name in names])) == 5
    assert not [line for line in semantics._known.values() if b"s3cret" in line]


def test_described():
    assert described(Headers([(b"content-length", b"12")])) == b"12"
    assert described(Headers([(b"content-length", b"x")])) is None
    assert described(Headers()) is None


def test_trailers():
    assert trailing(None, Count()) == []
    assert trailing([], Count()) == []
    fields = [(name, b"1") for name in sorted(FORBIDDEN_TRAILERS)]
    assert trailing([*fields, (b"Grpc-Status", b"0")], Count()) == [b"grpc-status: 0\r\n"]
    for name in (
        b"transfer-encoding",
        b"content-length",
        b"host",
        b"authorization",
        b"set-cookie",
        b"content-type",
        b"te",
    ):
        assert name in FORBIDDEN_TRAILERS


@pytest.mark.parametrize(
    "name", [b"x-forwarded-for", b"x-forwarded-port", b"x_forwarded_for", b"x-real-ip", b"x_real_ip", b"content_type"]
)
def test_what_only_a_head_may_say_is_said_by_no_trailer_however_it_is_spelled(name):
    assert admitted([(name, b"1"), (b"x_sum", b"2")]) == [(b"x_sum", b"2")]
    assert trailing([(name, b"1"), (b"x_sum", b"2")], Count()) == [b"x_sum: 2\r\n"]


def test_trailers_that_were_read():
    assert admitted(None) is None
    assert admitted([(b"content-length", b"1")]) is None
    assert admitted([(b"host", b"x"), (b"x-sum", b"7")]) == [(b"x-sum", b"7")]


def test_websocket_handshake():
    assert accept(b"dGhlIHNhbXBsZSBub25jZQ==") == b"s3pPLMBiTxaQ9kYGzzhZRbK+xOo=", "RFC 6455, 1.3"
    assert len(new_key()) == 24
    assert new_key() != new_key()
    assert key(Request(b"GET", b"/")) is None
    assert key(Request(b"GET", b"/", [(b"sec-websocket-key", b"k")])) == b"k"
