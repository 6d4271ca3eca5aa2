"""HTTP/1.1 as a codec: what configuration and listeners know of it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from zope.interface import implementer

from protogate.interfaces import (
    IClientConnection,
    IDescribedCodec,
    INamingCodec,
    IReadableCodec,
    IService,
    IStreamCodec,
)
from protogate_http.client1 import Client
from protogate_http.dissect1 import dissect
from protogate_http.grpcservice import Grpc, named
from protogate_http.server1 import Server

if TYPE_CHECKING:
    from protogate.context import Context, Limits
    from protogate.message import Request

_BEGINS: Final = re.compile(rb"(?:\r\n)?[!#$%&'*+\-.^_`|~0-9A-Za-z]{1,32} [\x21-\x7e]").match
_MIGHT: Final = re.compile(rb"\r?|(?:\r\n)?[!#$%&'*+\-.^_`|~0-9A-Za-z]{0,32} ?").fullmatch
_PREFACE: Final = b"PRI * HTTP/2.0\r\n"
_OLD: Final = "HTTP/1.0 peers"


@implementer(IStreamCodec, IDescribedCodec, INamingCodec, IReadableCodec)
class Http1:
    """HTTP/1.0 and HTTP/1.1, RFC 9112."""

    name = "http1"
    alpn = (b"http/1.1",)
    distribution = "protogate"
    lacks = frozenset(("refuse", "multiplex", "goaway", "deadline"))
    depends: Mapping[str, str] = MappingProxyType(dict.fromkeys(("trailers", "interim", "continue", "upgrade"), _OLD))

    def sniff(self, prefix: bytes) -> bool | None:
        """A token, a space and something visible; not the preface of HTTP/2."""
        if _PREFACE.startswith(prefix):
            return None
        if prefix.startswith(_PREFACE):
            return False
        if _BEGINS(prefix):
            return True
        return None if _MIGHT(prefix) else False

    def server(self, service: IService, context: Context) -> Server:
        """A connection from a client."""
        return Server(Grpc(service, context), context)

    def service(self, request: Request) -> str:
        """Of a call of gRPC."""
        return named(request)

    def client(self, ready: Callable[[IClientConnection], None], context: Context) -> Client:
        """A connection to an upstream."""
        return Client(ready, context)

    def dissect(self, data: bytes, client: bool, limits: Limits) -> Iterator[str]:
        """Messages, their content and their trailers."""
        return dissect(data, client, limits)
