"""
C{bodyLimit}: how much content a request may have, or an answer; for some requests, where C{gateway.limits.body} is for
all.

Rules
- A length that is known is judged at once: nobody uploads what will be refused.
- Otherwise what goes beyond ends the transfer; the upstream sees that the request is not whole, or the client that the
  answer is not.
- A tunnel (WebSocket, CONNECT) has no content.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from zope.interface import classImplements, implementer

from protogate.body import Limit
from protogate.errors import CLIENT, UPSTREAM, Abort, Who
from protogate.governance.params import Params
from protogate.governance.stages import PRE_REQUEST, PRE_UPSTREAM
from protogate.interfaces import IModule, IModuleFactory
from protogate.message import Request, Response, tunnels

if TYPE_CHECKING:
    from protogate.exchange.exchange import Exchange


class BodyLimit:
    """
    @param request: bytes; None = as many as it likes.
    @param response: bytes; None = as many as it likes.
    """

    __slots__ = ("_request", "_response")

    def __init__(self, request: int | None, response: int | None) -> None:
        self._request, self._response = request, response

    def process(self, exchange: Exchange) -> None:
        """Judge the request, and have the answer judged."""
        request = exchange.request
        if request.body is not None and self._request is not None and request.upgrade is None:
            _limit(request, self._request, CLIENT)
        if self._response is not None:
            exchange.upon(self._answered)

    def _answered(self, exchange: Exchange) -> None:
        response, limit = exchange.response, self._response
        assert limit is not None
        if response is None or response.body is None:
            return
        if response.reason is None and not tunnels(exchange.request, response):
            _limit(response, limit, UPSTREAM)


def _limit(message: Request | Response, limit: int, sender: Who) -> None:
    body = message.body
    if body is None:
        return
    if body.length is None:
        message.body = Limit(body, limit, _abort(limit, sender))
    elif body.length > limit:
        raise _abort(limit, sender)


def _abort(limit: int, sender: Who) -> Abort:
    what = f"has more than {limit} bytes of content"
    if sender is CLIENT:
        return Abort(
            f"bodyLimit: the request {what}", CLIENT, 413, error="http_request_error", detail=f"the request {what}"
        )
    return Abort(f"bodyLimit: the answer {what}", sender, 502, error="http_response_body_size")


classImplements(BodyLimit, IModule)


@implementer(IModuleFactory)
class BodyLimitFactory:
    """Makes L{BodyLimit}."""

    name = "bodyLimit"
    stages = (PRE_UPSTREAM, PRE_REQUEST)
    guards = True

    def build(self, params: Mapping[str, object]) -> BodyLimit:
        """See L{IModuleFactory.build}."""
        reader = Params(params, "request", "response")
        limits = [reader.size(name, 0) if name in reader else None for name in ("request", "response")]
        if limits == [None, None]:
            reader.fault("expected request, response, or both: sizes such as 1MiB")
        reader.done()
        return BodyLimit(*limits)
