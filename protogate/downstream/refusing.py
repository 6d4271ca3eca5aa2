"""
Who speaks without TLS where TLS is expected: asked for something, it is refused, in whatever protocol it was asked.

A request is handed on as one that must be refused, so that it is seen like any other: by modules, counters and records.
"""

from __future__ import annotations

from typing import Final

from twisted.internet.defer import Deferred
from zope.interface import implementer

from protogate.errors import CLIENT, Abort
from protogate.interfaces import IService
from protogate.message import Request, Response

PLAIN: Final = Abort(
    "the client speaks without TLS to a listener that has TLS",
    CLIENT,
    400,
    detail="this port speaks TLS, and the request came without",
)


@implementer(IService)
class Refusing:
    """
    @param service: hears of it.
    """

    def __init__(self, service: IService) -> None:
        self._service = service

    def handle(self, request: Request) -> Response | Deferred[Response]:
        """L{IService}."""
        if request.malformed is None:
            request.malformed = PLAIN
        return self._service.handle(request)
