"""One request's life."""
from __future__ import annotations

from typing import TYPE_CHECKING, Any

from protogate.errors import Abort
from protogate.exchange.ledger import Ledger
from protogate.message import Peer, Request, Response

if TYPE_CHECKING:
    from protogate.routing.rules import Route, Target


class Exchange:
    """
    What a module sees.

    @ivar request: the Request; modules before the upstream may change it.
    @ivar source: where it came from: the connection's peer, or what trusted proxies say.
    @ivar route: the Route once it is chosen, else None.
    @ivar target: the Target once it is chosen, else None.
    @ivar response: the Response from PRE_RESPONSE on, else None.
    @ivar error: the Abort (or other exception) that led to the ERROR stage, else None.
    @ivar id: id of this request, 32 hex digits; what C{func.requestId} gives.
    @ivar trace: trace id (W3C traceparent, 32 hex digits), from the request or new; C{func.catRootMessageId}.
    @ivar gateway: C{name} and C{zone} of the gateway.
    @ivar ledger: what each phase took.
    @ivar notes: for modules: what they want to tell each other and the record; made on first access.
    """

    request: Request
    source: Peer
    route: Route | None
    target: Target | None
    response: Response | None
    error: BaseException | None
    id: str
    trace: str
    gateway: Any
    ledger: Ledger
    notes: dict[str, Any]
