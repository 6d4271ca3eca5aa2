"""
What was negotiated with a peer, and who the peer proved to be.

A certificate is kept as its bytes; whoever asks what stands in it has it read, once.
"""

from __future__ import annotations

import base64
import hashlib
import re
from typing import Any, Final

from cryptography import x509

_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f-\x9f]")
_TOLD: Final = (x509.DNSName, x509.RFC822Name, x509.UniformResourceIdentifier)


class Certificate:
    """
    The certificate that a peer has shown, and whose chain was verified.

    What cannot be read is empty: a certificate may be sound to OpenSSL, and strange in a field that decides nothing.
    """

    __slots__ = ("_fingerprint", "_read", "der")

    def __init__(self, der: bytes) -> None:
        self.der = der
        self._fingerprint = ""
        self._read: tuple[str, str, str, tuple[str, ...]] | None = None

    @property
    def fingerprint(self) -> str:
        """SHA-256 of the certificate, in lower-case hexadecimal digits."""
        if not self._fingerprint:
            self._fingerprint = hashlib.sha256(self.der).hexdigest()
        return self._fingerprint

    @property
    def subject(self) -> str:
        """As RFC 4514 writes it: C{CN=orders,O=Example}."""
        return self._fields()[0]

    @property
    def issuer(self) -> str:
        """Likewise."""
        return self._fields()[1]

    @property
    def serial(self) -> str:
        """Its number, in lower-case hexadecimal digits."""
        return self._fields()[2]

    @property
    def san(self) -> tuple[str, ...]:
        """Its subjectAltNames, without their kinds: host names, addresses, mailboxes, URIs (such as SPIFFE's)."""
        return self._fields()[3]

    @property
    def encoded(self) -> str:
        """As the field Client-Cert has it (RFC 9440, 2.1)."""
        return f":{base64.b64encode(self.der).decode('ascii')}:"

    def _fields(self) -> tuple[str, str, str, tuple[str, ...]]:
        if self._read is None:
            self._read = _fields(self.der)
        return self._read


class Session:
    """
    @ivar version: C{TLSv1.2} or C{TLSv1.3}.
    @ivar cipher: in OpenSSL's words, e.g. C{TLS_AES_128_GCM_SHA256}.
    @ivar name: that the client asked for (SNI), lower case; empty if it named none.
    @ivar known: whether there is a certificate for that name; True if it named none.
    @ivar alpn: the protocol that was agreed on, or None.
    @ivar resumed: whether it goes on with a session that there was before.
    @ivar certificate: the peer's, or None.
    """

    __slots__ = ("alpn", "certificate", "cipher", "known", "name", "resumed", "version")

    def __init__(
        self,
        version: str,
        cipher: str,
        alpn: bytes | None = None,
        name: str = "",
        resumed: bool = False,
        certificate: bytes | None = None,
        known: bool = True,
    ) -> None:
        self.version, self.cipher, self.alpn, self.name = version, cipher, alpn, name
        self.resumed, self.known = resumed, known
        self.certificate = None if certificate is None else Certificate(certificate)


def _fields(der: bytes) -> tuple[str, str, str, tuple[str, ...]]:
    try:
        certificate = x509.load_der_x509_certificate(der)
    except ValueError:
        return "", "", "", ()
    return (
        _quietly(lambda: _plain(certificate.subject.rfc4514_string()), ""),
        _quietly(lambda: _plain(certificate.issuer.rfc4514_string()), ""),
        _quietly(lambda: f"{certificate.serial_number:x}", ""),
        _quietly(lambda: _san(certificate), ()),
    )


def _plain(text: str) -> str:
    """
    The same without control characters, which RFC 4514 (2.4) lets stand as C{\\0D}: where they must not stand somebody
    might leave them out, and what is left is another name.
    """
    return _CONTROL.sub(lambda match: "".join(f"\\{byte:02X}" for byte in match[0].encode()), text)


def _quietly(read: Any, otherwise: Any) -> Any:
    try:
        return read()
    except (ValueError, x509.ExtensionNotFound):
        return otherwise


def _san(certificate: x509.Certificate) -> tuple[str, ...]:
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    return tuple(_plain(str(name.value)) for name in names if isinstance(name, (*_TOLD, x509.IPAddress)))
