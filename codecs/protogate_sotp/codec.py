"""SOTP as a codec: what configuration and listeners know of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from zope.interface import implementer

from protogate.interfaces import (
    IClientConnection,
    IConfigurableCodec,
    IDescribedCodec,
    IPingingCodec,
    IReadableCodec,
    IService,
    IStreamCodec,
)
from protogate_sotp.caller import Client
from protogate_sotp.dissect import dissect
from protogate_sotp.link import Greeting
from protogate_sotp.options import Options
from protogate_sotp.server import Server

if TYPE_CHECKING:
    from twisted.internet.defer import Deferred

    from protogate.context import Context, Limits

_BEGINS: Final = b"\xd5\x50\x01\x00\x00"
"""Magic, version, type and flags of a HELLO."""


@implementer(IStreamCodec, IConfigurableCodec, IDescribedCodec, IPingingCodec, IReadableCodec)
class Sotp:
    """SOTP/1, docs/sotp.md."""

    name = "sotp"
    alpn = (b"sotp/1",)
    distribution = "protogate"
    lacks: frozenset[str] = frozenset()
    depends: Mapping[str, str] = MappingProxyType({})
    options = Options

    def __init__(self, told: Options | None = None) -> None:
        self._greeting = Greeting(told)

    def configure(self, options: Options) -> Sotp:
        """One that says this of itself."""
        options.check()
        return Sotp(options)

    def sniff(self, prefix: bytes) -> bool | None:
        """A connection begins with a HELLO; no text and no TLS does."""
        if prefix.startswith(_BEGINS):
            return True
        return None if _BEGINS.startswith(prefix) else False

    def server(self, service: IService, context: Context) -> Server:
        """A connection from a client."""
        return Server(service, context, self._greeting)

    def client(self, ready: Callable[[IClientConnection], None], context: Context) -> Client:
        """A connection to an upstream."""
        return Client(ready, context, self._greeting)

    def ping(self, connection: IClientConnection) -> Deferred[None]:
        """A PING."""
        assert isinstance(connection, Client)
        return connection.ping()

    def dissect(self, data: bytes, client: bool, limits: Limits) -> Iterator[str]:
        """Frames."""
        return dissect(data, limits)
