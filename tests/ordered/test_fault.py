"""What keeps a message from being handed on."""

from __future__ import annotations

import pytest

from protogate.context import Limits
from protogate.errors import CLIENT
from protogate.message import Request
from protogate.ordered.fault import fault, refused, sound


@pytest.mark.parametrize(
    "request_",
    [
        Request(b"GET", b"/"),
        Request(b"M-SEARCH", b"*", authority=b"[::1]:80"),
        Request(b"GET", b"/%00?a=b&c", [(b"x-a", b""), (b"x", b"a\tb \xff")], authority=b"a.test"),
    ],
)
def test_what_every_protocol_can_write_is_handed_on(request_):
    assert fault(request_, Limits()) is None


@pytest.mark.parametrize(
    "request_",
    [
        Request(b"", b"/"),
        Request(b"G T", b"/"),
        Request(b"G\xc9T", b"/"),
        Request(b"GET", b""),
        Request(b"GET", b"x"),
        Request(b"GET", b"**"),
        Request(b"GET", b"/ x"),
        Request(b"GET", b"/#x"),
        Request(b"GET", b"/\n"),
        Request(b"GET", b"/\xff"),
        Request(b"GET", b"/", authority=b"a b"),
        Request(b"GET", b"/", authority=b"a\r\nx: y"),
    ],
)
def test_what_another_protocol_could_not_write_is_no_request(request_):
    found = fault(request_, Limits())
    assert (found.status, found.who, found.detail) == (400, CLIENT, "not a request")


@pytest.mark.parametrize(
    "field",
    [(b"", b"x"), (b"X-A", b"x"), (b"x a", b"x"), (b"x:", b"x"), (b"x", b" x"), (b"x", b"x "), (b"x", b"a\r\nb: c"),
     (b"x", b"\n"), (b"x", b"\x00"), (b"x\n", b"x"), (b"x", b"x\n"), (b"x", b"\x7f")],
)  # fmt: skip
def test_what_is_no_field(field):
    assert not sound([(b"x-a", b"1"), field])
    assert fault(Request(b"GET", b"/", [field]), Limits()).status == 400


def test_limits_are_bounds_that_may_be_reached():
    limits = Limits(request_line=4, header_count=2, header_line=4, headers=8)
    assert fault(Request(b"GET", b"/", [(b"x", b"abc"), (b"y", b"abc")]), limits) is None
    for request, status in (
        (Request(b"GET", b"/x"), 414),
        (Request(b"GET", b"/", [(b"x", b"abcd")]), 431),
        (Request(b"GET", b"/", [(b"x", b"")] * 3), 431),
        (Request(b"GET", b"/", [(b"x", b"abc"), (b"y", b"abc"), (b"z", b"a")]), 431),
    ):
        assert fault(request, limits).status == status


def test_a_stranger_may_read_why():
    reason = refused("not this", 405)
    assert (reason.status, reason.who, reason.detail, reason.reason) == (405, CLIENT, "not this", "not this")
