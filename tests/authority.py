"""
An authority, and what it issues: made anew by each test that wants one; nothing of it is ever kept.

Keys are of P-256, unless a test wants others: they take no time to make.
"""

from __future__ import annotations

import datetime
import ipaddress
import re
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import NameOID

PEM = serialization.Encoding.PEM


def pem(certificate: x509.Certificate) -> bytes:
    """A certificate as the text of a file."""
    return certificate.public_bytes(PEM)


def secret(key: Any, password: bytes | None = None) -> bytes:
    """A key as the text of a file."""
    how = serialization.NoEncryption() if password is None else serialization.BestAvailableEncryption(password)
    return bytes(key.private_bytes(PEM, serialization.PrivateFormat.PKCS8, how))


@cache
def rsa_key(which: int = 0) -> Any:
    """One for all tests: these take a while."""
    return rsa.generate_private_key(65537, 2048)


class Issued(NamedTuple):
    """Files, and what is in them."""

    cert: Path
    key: Path
    certificate: x509.Certificate
    secret: Any


class Authority:
    """
    @param folder: where its files go.
    @ivar file: its own certificate.
    """

    def __init__(self, folder: Path, name: str = "authority", by: Authority | None = None) -> None:
        self.folder, self.name, self._serial = folder, name, 0
        self.key = ec.generate_private_key(ec.SECP256R1())
        self.by = self if by is None else by
        self.certificate = self._made(name, self.key.public_key(), (), 3650, -1, True, self.by)
        self.file = folder / f"{name}.pem"
        self.file.write_bytes(pem(self.certificate))

    def issue(
        self,
        name: str,
        names: Iterable[str] | None = None,
        *,
        file: str = "",
        days: float = 30,
        since: float = -1,
        key: Any = None,
        more: Iterable[x509.Certificate] = (),
    ) -> Issued:
        """
        A certificate, in files of that name.

        @param name: its common name.
        @param names: what it is for: host names, addresses, URIs; None = C{name}.
        @param days: from now until it expires; C{since}: until it is valid.
        @param more: certificates that follow it in the file.
        """
        key = ec.generate_private_key(ec.SECP256R1()) if key is None else key
        certificate = self._made(name, key.public_key(), [name] if names is None else names, days, since, False, self)
        stem = file or re.sub(r"[^\w.-]", "_", name)
        cert, private = self.folder / f"{stem}.pem", self.folder / f"{stem}.key"
        cert.write_bytes(b"".join(map(pem, (certificate, *more))))
        private.write_bytes(secret(key))
        return Issued(cert, private, certificate, key)

    def _made(
        self, name: str, public: Any, names: Iterable[str], days: float, since: float, ca: bool, by: Authority
    ) -> x509.Certificate:
        now = datetime.datetime.now(datetime.UTC)
        builder = (
            x509.CertificateBuilder()
            .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]))
            .issuer_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, by.name)]))
            .public_key(public)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now + datetime.timedelta(days=min(since, days - 1)))
            .not_valid_after(now + datetime.timedelta(days=days))
            .add_extension(x509.BasicConstraints(ca=ca, path_length=None), critical=True)
        )
        alternatives = [_alternative(each) for each in names]
        if alternatives:
            builder = builder.add_extension(x509.SubjectAlternativeName(alternatives), critical=False)
        return builder.sign(by.key, hashes.SHA256())


def _alternative(text: str) -> x509.GeneralName:
    if "://" in text:
        return x509.UniformResourceIdentifier(text)
    try:
        return x509.IPAddress(ipaddress.ip_address(text))
    except ValueError:
        return x509.DNSName(text)


_PAIR = re.compile(r"cert: ([\w./-]+),?\s+key: ([\w./-]+)")
_CA = re.compile(r"\bca: ([\w./-]+)")


def provide(text: str, folder: Path) -> None:
    """Make the files that a configuration names: so that examples can be loaded."""
    if not _PAIR.search(text) and not _CA.search(text):
        return
    authority = Authority(folder)
    for cert, key in _PAIR.findall(text):
        name = f"{Path(cert).stem}.example"  # each is for another one
        issued = authority.issue(name, [name, f"*.{name}"], file="issued")
        for path, issued_as in ((cert, issued.cert), (key, issued.key)):
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_bytes(issued_as.read_bytes())
    for path in _CA.findall(text):
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(authority.file.read_bytes())
