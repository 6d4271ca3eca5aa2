"""The gateway as one listener's codecs see it."""

from __future__ import annotations

from typing import Protocol

from mypy_extensions import mypyc_attr
from twisted.internet.defer import Deferred
from zope.interface import classImplements

from protogate.exchange.exchange import Exchange
from protogate.exchange.plan import Plan
from protogate.interfaces import IService
from protogate.message import Request, Response


@mypyc_attr(native_class=False)
class Planned(Protocol):
    """
    What has a plan.

    @ivar plan: what a request that comes in now follows.
    """

    @property
    def plan(self) -> Plan: ...


class Front:
    """
    An exchange for each request.

    @ivar name: of the listener.
    """

    __slots__ = ("_gateway", "name")

    def __init__(self, gateway: Planned, name: str) -> None:
        self._gateway, self.name = gateway, name

    def handle(self, request: Request) -> Response | Deferred[Response]:
        """L{IService}."""
        return Exchange(request, self._gateway.plan, self.name).begin()


classImplements(Front, IService)
