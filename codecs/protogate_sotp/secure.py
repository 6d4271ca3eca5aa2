"""
TLS for C{protogate sotp call}: who the server must be, and that both speak SOTP.

Rules
- A server is believed by the authorities of the system, or by those of a file, and by its name; or unseen, if somebody
  says so.
- What kept the two apart is told in words.
"""

from __future__ import annotations

import ipaddress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from OpenSSL import SSL
from OpenSSL.crypto import Error
from twisted.internet.endpoints import wrapClientTLS
from twisted.internet.error import ConnectionDone
from twisted.internet.interfaces import IOpenSSLClientConnectionCreator
from twisted.internet.ssl import Certificate, CertificateOptions, optionsForClientTLS, trustRootFromCertificates
from zope.interface import implementer

if TYPE_CHECKING:
    from twisted.internet.interfaces import IStreamClientEndpoint

ALPN: Final = b"sotp/1"
_BEGIN: Final = b"-----BEGIN CERTIFICATE-----"


def secured(endpoint: IStreamClientEndpoint, host: str, authorities: str | None, unseen: bool) -> IStreamClientEndpoint:
    """
    The same endpoint, over TLS.

    @param host: name or address that the certificate must have.
    @param authorities: a file of certificates; None = those of the system.
    @param unseen: believe whatever is shown.
    @raise OSError: the file cannot be read.
    @raise ValueError: it has no certificates.
    """
    if unseen:
        return wrapClientTLS(_Unseen(host), endpoint)
    trusted = None if authorities is None else trustRootFromCertificates(_certificates(Path(authorities)))
    return wrapClientTLS(optionsForClientTLS(host, trusted, acceptableProtocols=[ALPN]), endpoint)


def _certificates(file: Path) -> list[Certificate]:
    try:
        found = [Certificate.loadPEM(_BEGIN + part) for part in file.read_bytes().split(_BEGIN)[1:]]
    except (ValueError, Error):
        found = []
    if not found:
        raise ValueError(f"{file}: expected certificates in PEM")
    return found


@implementer(IOpenSSLClientConnectionCreator)
class _Unseen:
    """Makes connections that believe everybody."""

    def __init__(self, host: str) -> None:
        self._host = host
        self._context = CertificateOptions(acceptableProtocols=[ALPN]).getContext()

    def clientConnectionForTLS(self, protocol: Any) -> SSL.Connection:
        """Twisted."""
        connection = SSL.Connection(self._context, None)
        connection.set_app_data(protocol)
        try:
            ipaddress.ip_address(self._host)
        except ValueError:
            connection.set_tlsext_host_name(self._host.encode("ascii"))
        return connection


def why(error: BaseException | None) -> str:
    """What a handshake, or the connection, ended with; empty = nothing but a close."""
    if error is None or isinstance(error, ConnectionDone):
        return ""
    if isinstance(error, SSL.Error) and error.args and isinstance(error.args[0], list):
        return f"TLS: {'; '.join(str(part[-1]) for part in error.args[0])}"
    return str(error) or type(error).__name__


__all__ = ["ALPN", "secured", "why"]
