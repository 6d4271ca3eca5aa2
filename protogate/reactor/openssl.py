"""startTLS with a context of pyOpenSSL's: Twisted's own TLS, laid over a connection."""

from __future__ import annotations

from ssl import SSLContext
from typing import Any, Final

from twisted.internet._newtls import startTLS
from twisted.python.failure import Failure

from protogate.reactor.transport import Transport

ROUTED: Final = ("write", "writeSequence", "loseConnection", "registerProducer", "unregisterProducer")
"""What means the layer once there is one.  It is given to the one transport, so that all others pay nothing for it."""
SET: Final = (*ROUTED, "getHandle", "getPeerCertificate")


class StartTLS(Transport):
    """
    A transport that can be told to speak TLS from here on.

    @cvar _tlsClientDefault: which side of TLS it is (Twisted asks for this name).
    """

    _tlsClientDefault = False

    def startTLS(self, contextFactory: Any, normal: bool = True) -> None:
        if isinstance(contextFactory, SSLContext):
            raise TypeError("startTLS wants a context factory of pyOpenSSL's; uvloop's TLS begins with the connection")
        producer, streaming = self.producer, self.streamingProducer
        if producer is not None:
            self.unregisterProducer()
        startTLS(self, contextFactory, normal, Transport)
        for name in ROUTED:
            setattr(self, name, getattr(self.protocol, name))
        if producer is not None:
            self.registerProducer(producer, streaming)

    def connectionLost(self, reason: Failure) -> None:
        for name in SET:
            self.__dict__.pop(name, None)
        super().connectionLost(reason)
