"""HTTP/2 as a codec: what configuration and listeners know of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING

from zope.interface import implementer

from protogate.errors import ConfigError
from protogate.interfaces import (
    IClientConnection,
    IConfigurableCodec,
    IDescribedCodec,
    INamingCodec,
    INegotiated,
    IPingingCodec,
    IReadableCodec,
    IRemarkedCodec,
    IService,
    IStreamCodec,
)
from protogate_http.client2 import Client
from protogate_http.engine2 import ENGINES, remarks
from protogate_http.frames2 import PREFACE
from protogate_http.grpcservice import Grpc, named
from protogate_http.options2 import Options
from protogate_http.server2 import Server

if TYPE_CHECKING:
    from twisted.internet.defer import Deferred

    from protogate.context import Context, Limits
    from protogate.message import Request


@implementer(
    IStreamCodec,
    IConfigurableCodec,
    IDescribedCodec,
    INamingCodec,
    INegotiated,
    IPingingCodec,
    IReadableCodec,
    IRemarkedCodec,
)
class Http2:
    """HTTP/2, RFC 9113: over TLS, and in cleartext with prior knowledge."""

    name = "http2"
    alpn = (b"h2",)
    distribution = "protogate"
    lacks = frozenset(("deadline",))
    depends: Mapping[str, str] = MappingProxyType({"upgrade": "peers without RFC 8441"})
    options = Options

    def __init__(self, engine: str = "auto", told: Options | None = None) -> None:
        """
        @param engine: its name; auto = the best that is installed.
        @param told: what else it is told.
        @raise ConfigError: the engine is not installed.
        """
        self._told = Options() if told is None else told
        self._engine = ENGINES[0] if engine == "auto" else engine
        if self._engine not in ENGINES:
            text = f"the engine {engine} is not installed: install protogate[{engine}], or leave it out"
            raise ConfigError(text, ("engine",))

    @property
    def remarks(self) -> Sequence[tuple[str, str]]:
        """Of its engine."""
        return remarks(self._engine)

    def configure(self, options: Options) -> Http2:
        """One that speaks by these."""
        return Http2(options.engine, options)

    def sniff(self, prefix: bytes) -> bool | None:
        """The preface of a client."""
        if prefix.startswith(PREFACE):
            return True
        return None if PREFACE.startswith(prefix) else False

    def server(self, service: IService, context: Context) -> Server:
        """A connection from a client."""
        return Server(Grpc(service, context), context, self._told, self._engine)

    def service(self, request: Request) -> str:
        """Of a call of gRPC."""
        return named(request)

    def client(self, ready: Callable[[IClientConnection], None], context: Context) -> Client:
        """A connection to an upstream."""
        return Client(ready, context, self._told, self._engine)

    def ping(self, connection: IClientConnection) -> Deferred[None]:
        """A PING (RFC 9113, 6.7)."""
        assert isinstance(connection, Client)
        return connection.ping()

    def dissect(self, data: bytes, client: bool, limits: Limits) -> Iterator[str]:
        """Frames."""
        from protogate_http.dissect2 import dissect  # noqa: PLC0415 - and what undoes HPACK, for those who ask

        return dissect(data, client, limits)
