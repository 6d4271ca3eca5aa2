"""
What keeps a message from being handed on, whatever its protocol lets through.

A codec that reads a method, a target or a field out of its own framing may find bytes in it that mean something to
another protocol: a line break that ends a field of HTTP/1, a space that ends a target.  So what crosses is checked by
the patterns of RFC 9110, which all codecs can write, and by the limits.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from protogate.errors import CLIENT, Abort
from protogate.message import Field, Request

if TYPE_CHECKING:
    from protogate.context import Limits

_METHOD: Final = re.compile(rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]++").fullmatch
_TARGET: Final = re.compile(rb"(?:/[\x21\x22\x24-\x7e]*+|\*)").fullmatch
_AUTHORITY: Final = re.compile(rb"[\x21-\x7e]*+").fullmatch
_NAME: Final = re.compile(rb"[!#$%&'*+\-.^_`|~0-9a-z]++").fullmatch
_VISIBLE: Final = rb"[\x21-\x7e\x80-\xff]"
_VALUE: Final = re.compile(rb"(?:%b(?:[\t\x20-\x7e\x80-\xff]*%b)?)?" % (_VISIBLE, _VISIBLE)).fullmatch


def sound(fields: Sequence[Field]) -> bool:
    """Whether these are fields in every protocol (RFC 9110, 5)."""
    return all(_NAME(name) and _VALUE(value) for name, value in fields)


def fault(request: Request, limits: Limits) -> Abort | None:
    """What keeps a request from being handed on; None = nothing."""
    fields = request.headers
    if not (_METHOD(request.method) and _TARGET(request.target) and _AUTHORITY(request.authority) and sound(fields)):
        return refused("not a request")
    if len(request.method) + len(request.target) > limits.request_line:
        return refused("request line too long", 414)
    sizes = [len(name) + len(value) for name, value in fields]
    if len(sizes) > limits.header_count or sum(sizes) > limits.headers or max(sizes, default=0) > limits.header_line:
        return refused("header fields too large", 431)
    return None


def refused(why: str, status: int = 400) -> Abort:
    """The Abort for what a client should not have sent; it may read why."""
    return Abort(why, CLIENT, status, detail=why)
