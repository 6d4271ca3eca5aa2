"""
What stands in PEM files: certificates, keys, authorities; and what is wrong with them.

Rules
- Whatever TLS would trip over later is found here, and told with the file and what to do.
- Certificates that work today but not as they should (expired, not valid yet, without a name) are warnings: a gateway
  that refused to start would serve nobody at all.
- A file is known by its L{Stamp}: so that somebody can notice that it was renewed.
"""

from __future__ import annotations

import datetime
import os
import ssl
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Final

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization

from protogate.config.scalar import shown
from protogate.config.stamp import Stamp, stamp
from protogate.errors import ConfigError

LARGEST: Final = 4 << 20
"""Bytes of a file; the bundles of whole systems have a quarter of a million."""

Path = tuple[str | int, ...]
_PUBLIC: Final = (serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)


@dataclass(frozen=True, slots=True)
class Pair:
    """
    A certificate with its key.

    @ivar cert: path of the file with the certificate, and those that lead to its authority.
    @ivar key: path of the file with the key.
    @ivar chain: what C{cert} holds; the server's own first.
    @ivar secret: the key.
    @ivar names: which it is for, lower case; C{*.domain} for all directly below a domain.
    """

    cert: str
    key: str
    chain: tuple[x509.Certificate, ...] = field(repr=False)
    secret: Any = field(repr=False, compare=False)
    names: tuple[str, ...]

    @property
    def kind(self) -> str:
        """Of its key: a server may have one certificate of each for the same name."""
        return type(self.secret).__name__


class Reading:
    """
    Reads files, and remembers which.

    @ivar stamps: the state of each file that was read; None = it could not be.
    @ivar warnings: what is doubtful.
    """

    def __init__(self, now: datetime.datetime | None = None) -> None:
        self.stamps: dict[str, Stamp | None] = {}
        self.warnings: list[ConfigError] = []
        self._now = datetime.datetime.now(datetime.UTC) if now is None else now

    def pair(self, cert: str, key: str, at: Path) -> Pair:
        """
        A certificate and its key.

        @param at: path of what has C{cert} and C{key} in the configuration.
        @raise ConfigError: what is wrong with either, or that they do not belong together.
        """
        chain = self._certificates(cert, (*at, "cert"))
        secret = self._key(key, (*at, "key"))
        public = secret.public_key().public_bytes(*_PUBLIC)
        if chain[0].public_key().public_bytes(*_PUBLIC) != public:
            for index, other in enumerate(chain[1:], 2):
                if other.public_key().public_bytes(*_PUBLIC) == public:
                    message = f"{cert}: wrong order: the key belongs to certificate {index}, which must be the first"
                    raise ConfigError(message, (*at, "cert"))
            raise ConfigError(f"{key}: this key does not belong to the certificate in {cert}", (*at, "key"))
        _ordered(cert, chain, (*at, "cert"))
        names = _names(chain[0])
        self._doubts(cert, chain, (*at, "cert"))
        return Pair(cert, key, chain, secret, names)

    def authorities(self, path: str, at: Path) -> str:
        """
        The certificates of authorities, as the text of a PEM file.

        @raise ConfigError: there are none.
        """
        chain = self._certificates(path, at)
        self._doubts(path, chain, at, authority=True)
        return "".join(each.public_bytes(serialization.Encoding.PEM).decode("ascii") for each in chain)

    def _certificates(self, path: str, at: Path) -> tuple[x509.Certificate, ...]:
        data = self._read(path, at)
        if b"-----BEGIN CERTIFICATE-----" not in data:
            held = " (it holds a key)" if b"PRIVATE KEY-----" in data else ""
            raise ConfigError(f"{path}: there is no certificate in PEM form in this file{held}", at)
        try:
            return tuple(x509.load_pem_x509_certificates(data))
        except ValueError as error:
            raise ConfigError(f"{path}: a certificate in this file is broken: {error}", at) from None

    def _key(self, path: str, at: Path) -> Any:
        data = self._read(path, at)
        if b"PRIVATE KEY-----" not in data:
            held = " (it holds a certificate)" if b"-----BEGIN CERTIFICATE-----" in data else ""
            raise ConfigError(f"{path}: there is no private key in PEM form in this file{held}", at)
        try:
            return serialization.load_pem_private_key(data, None)
        except TypeError:
            message = f"{path}: this key is encrypted, and nobody is there to type its password: store it decrypted"
            raise ConfigError(message, at) from None
        except (ValueError, UnsupportedAlgorithm):  # the error has lines of OpenSSL's, and nothing more
            raise ConfigError(
                f"{path}: the key in this file is broken, or of a kind that is not supported", at
            ) from None

    def _read(self, path: str, at: Path) -> bytes:
        try:
            with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
                self.stamps[path] = stamp(os.fstat(file.fileno()))
                data = file.read(LARGEST + 1)
        except (OSError, ValueError) as error:
            self.stamps.setdefault(path, None)
            why = error.strerror if isinstance(error, OSError) else str(error)
            raise ConfigError(f"{path}: {why}", at) from None
        if len(data) > LARGEST:
            raise ConfigError(f"{path}: larger than {LARGEST} bytes: not a file of certificates", at)
        return data

    def _doubts(self, path: str, chain: Sequence[x509.Certificate], at: Path, authority: bool = False) -> None:
        """What works, or will, but not now, or not for everybody."""
        for index, each in enumerate(chain, 1):
            which = f"certificate {index} " if len(chain) > 1 else "the certificate "
            if each.not_valid_after_utc < self._now:
                self._warn(f"{path}: {which}expired on {each.not_valid_after_utc:%Y-%m-%d %H:%M} UTC", at)
            elif each.not_valid_before_utc > self._now:
                self._warn(f"{path}: {which}is not valid before {each.not_valid_before_utc:%Y-%m-%d %H:%M} UTC", at)
        if not authority and not _alternatives(chain[0]):
            self._warn(f"{path}: the certificate names nothing that it is for (subjectAltName); clients refuse it", at)

    def _warn(self, message: str, at: Path) -> None:
        self.warnings.append(ConfigError(message, at))


def _ordered(path: str, chain: Sequence[x509.Certificate], at: Path) -> None:
    """Each certificate is issued by the next (RFC 5246, 7.4.2): clients of TLS 1.2 may insist on it."""
    for index, (each, issuer) in enumerate(pairwise(chain), 1):
        try:
            each.verify_directly_issued_by(issuer)
        except (ValueError, TypeError, InvalidSignature, UnsupportedAlgorithm):
            message = f"{path}: wrong order: certificate {index} was not issued by certificate {index + 1}"
            raise ConfigError(message, at) from None


def _alternatives(certificate: x509.Certificate) -> Iterable[Any]:
    try:
        return certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (x509.ExtensionNotFound, ValueError):
        return ()


def _names(certificate: x509.Certificate) -> tuple[str, ...]:
    alternatives: Any = _alternatives(certificate)
    if not alternatives:
        return ()
    return tuple(name.lower().removesuffix(".") for name in alternatives.get_values_for_type(x509.DNSName))


def ciphers(text: str, at: Path) -> None:
    """
    Check the name of ciphers of TLS 1.2, in OpenSSL's words.

    @raise ConfigError: no cipher is meant by it.
    """
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).set_ciphers(text)
    except ssl.SSLError:
        raise ConfigError(f"OpenSSL knows no cipher of that name: {shown(text)}", at) from None
