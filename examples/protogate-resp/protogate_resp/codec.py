"""The codec: who makes both sides, and knows its own first bytes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, ClassVar

from zope.interface import implementer

from protogate.interfaces import IClientConnection, IDescribedCodec, IService, IStreamCodec
from protogate_resp.client import RespClient
from protogate_resp.server import RespServer

if TYPE_CHECKING:
    from protogate.context import Context


@implementer(IStreamCodec, IDescribedCodec)
class Resp:
    """RESP2."""

    name, alpn = "resp", ()
    distribution = "protogate-resp"
    lacks = (
        *("trailers", "interim", "continue", "upgrade", "halfclose", "head", "refuse", "multiplex", "goaway"),
        *("deadline", "fields", "method", "query", "status", "length"),
    )
    depends: ClassVar[Mapping[str, str]] = {}

    def sniff(self, prefix: bytes) -> bool | None:
        """A command is an array."""
        if prefix[:1] not in (b"", b"*"):
            return False
        return None if len(prefix) < 2 else prefix[1:2] in b"123456789"

    def server(self, service: IService, context: Context) -> RespServer:
        """A connection from a client."""
        return RespServer(service, context)

    def client(self, ready: Callable[[IClientConnection], None], context: Context) -> RespClient:
        """A connection to an upstream."""
        return RespClient(ready, context)
