"""A fake exchange for expressions, made of the real parts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import SimpleNamespace
from typing import Any

from twisted.internet.task import Clock

from protogate.errors import Abort
from protogate.exchange.ledger import Ledger
from protogate.identity.identity import Identity
from protogate.message import Peer, Request, Response
from protogate.wheel import Wheel


def exchange(
    *,
    method: bytes = b"GET",
    target: bytes = b"/hotel/order?city=Paris&empty=",
    headers: Iterable[tuple[bytes, bytes]] = (),
    authority: bytes = b"Shop.example:8080",
    protocol: str = "HTTP/1.1",
    service: str = "",
    malformed: Abort | None = None,
    source: Peer | None = None,
    route: Any = None,
    response: Response | None = None,
    error: BaseException | None = None,
    identity: Identity | None = None,
) -> Any:
    """One with the attributes that expressions read.  Its clock stands at 100 s; advance C{clock}."""
    request = Request(method, target, headers, authority=authority, protocol=protocol)
    request.service = service
    request.malformed = malformed
    clock = Clock()
    clock.advance(100)
    ledger = Ledger(head=100.0)
    return SimpleNamespace(
        clock=clock,
        error=error,
        gateway=SimpleNamespace(name="edge-1", zone="PRO"),
        identity=identity,
        id="00112233445566778899aabbccddeeff",
        ledger=ledger,
        request=request,
        response=response,
        route=route,
        source=Peer("10.1.2.3", 40000, True) if source is None else source,
        trace="0af7651916cd43dd8448eb211c80319c",
        wheel=Wheel(clock),
    )


def route(name: str = "orders", tags: tuple[str, ...] = (), properties: Mapping[str, str] | None = None) -> Any:
    """A route as the router gives it."""
    return SimpleNamespace(name=name, tags=tags, properties=dict(properties or {}))
