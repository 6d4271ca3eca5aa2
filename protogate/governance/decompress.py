"""
C{decompress}: content that is unpacked on its way: requests for upstreams that cannot do it, answers for clients that
do not take them as they are.

Rules
- Content comes out of nothing but what it says it is: a coding that is not known, or not installed, leaves it alone.
- A few bytes may be a great many: what comes out is bounded, in all and by a ratio.
- What is broken, or breaks off, ends the transfer; nobody sees it as complete.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

from zope.interface import implementer

from protogate.body import Limit
from protogate.coded import Unpacked
from protogate.codings import UNPACKERS, Bounded, Coder
from protogate.errors import CLIENT, UPSTREAM, Abort, Who
from protogate.governance.negotiation import accepts
from protogate.governance.params import Params
from protogate.governance.recoding import recode
from protogate.governance.stages import PRE_REQUEST, PRE_UPSTREAM
from protogate.interfaces import IBody, IModule, IModuleFactory
from protogate.message import Request, Response, tunnels

if TYPE_CHECKING:
    from protogate.exchange.exchange import Exchange

DEEP: Final = 3
"""Codings over each other that are unpacked; content with more is refused."""


@implementer(IModule)
class Decompress:
    """
    @param request: whether requests are unpacked.
    @param response: whether answers are that their client does not take.
    @param limit: bytes that may come out.
    @param ratio: how many times as much as went in, see L{Bounded}.
    """

    __slots__ = ("_limit", "_ratio", "_request", "_response")

    def __init__(self, request: bool, response: bool, limit: int, ratio: int) -> None:
        self._request, self._response, self._limit, self._ratio = request, response, limit, ratio

    def process(self, exchange: Exchange) -> None:
        """Unpack the request, and see to the answer."""
        request = exchange.request
        if self._request and request.body is not None and request.upgrade is None:
            self._unpack(request, CLIENT, request.headers.all(b"content-encoding"))
        if self._response:
            exchange.upon(partial(self._answered, request.headers.all(b"accept-encoding")))

    def _answered(self, taken: Sequence[bytes], exchange: Exchange) -> None:
        response = exchange.response
        if response is None or tunnels(exchange.request, response):
            return
        packed = response.headers.all(b"content-encoding")
        if not packed or response.status == 206:
            return
        names = _names(packed)
        if all(accepts(taken, name) for name in names):
            return
        self._unpack(response, UPSTREAM, packed)
        response.headers.append((b"vary", b"accept-encoding"))

    def _unpack(self, message: Request | Response, sender: Who, packed: Sequence[bytes]) -> None:
        names = _names(packed)
        if not names or any(name not in UNPACKERS for name in names):
            return
        if len(names) > DEEP:
            raise _abort(f"{len(names)} codings over each other", sender)
        body = message.body
        if body is not None:
            for name in reversed(names):
                body = self._unpacked(body, name, sender)
            message.body = Limit(body, self._limit, _large(self._limit, sender))
        recode(message.headers, b"content-encoding")

    def _unpacked(self, body: IBody, name: bytes, sender: Who) -> IBody:
        def make() -> Coder:
            return Bounded(UNPACKERS[name](), self._ratio)

        return Unpacked(body, make, _abort(f"the content is not {name.decode()}, or too much comes of it", sender))


def _names(lines: Sequence[bytes]) -> list[bytes]:
    """Codings in the order in which they were applied."""
    found = [each.strip(b" \t").lower() for line in lines for each in line.split(b",")]
    return [name for name in found if name and name != b"identity"]


def _abort(why: str, sender: Who) -> Abort:
    if sender is CLIENT:
        return Abort(f"decompress: {why}", CLIENT, 400, error="http_request_error", detail=why)
    return Abort(f"decompress: {why}", sender, 502, error="http_response_content_coding")


def _large(limit: int, sender: Who) -> Abort:
    why = f"more than {limit} bytes come of the content"
    if sender is CLIENT:
        return Abort(f"decompress: {why}", CLIENT, 413, error="http_request_error", detail=why)
    return Abort(f"decompress: {why}", sender, 502, error="http_response_body_size")


@implementer(IModuleFactory)
class DecompressFactory:
    """Makes L{Decompress}."""

    name = "decompress"
    stages = (PRE_UPSTREAM, PRE_REQUEST)
    guards = True

    def build(self, params: Mapping[str, object]) -> Decompress:
        """See L{IModuleFactory.build}."""
        reader = Params(params, "request", "response", "limit", "ratio")
        request, response = reader.flag("request"), reader.flag("response")
        if not request and not response and not reader.faults:
            reader.fault("expected request: true, response: true, or both")
        limit = reader.size("limit", 100 << 20, 1)
        ratio = reader.integer("ratio", 100, 1, 1_000_000)
        reader.done()
        return Decompress(request, response, limit, ratio)
