"""An authority, and certificates that it has issued, made anew for each run of the tests."""

from __future__ import annotations

import datetime
import ssl
from functools import cache
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

_PEM = serialization.Encoding.PEM
FOLDER = Path(mkdtemp(prefix="protogate-certificates-"))


def _issue(name: str, key: Any, issuer: str, signer: Any, authority: bool) -> x509.Certificate:
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]))
        .issuer_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, issuer)]))
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.BasicConstraints(ca=authority, path_length=None), critical=True)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
        .sign(signer, hashes.SHA256())
    )


@cache
def _authority() -> tuple[Any, Path]:
    key = ec.generate_private_key(ec.SECP256R1())
    path = FOLDER / "authority.pem"
    path.write_bytes(_issue("authority", key, "authority", key, authority=True).public_bytes(_PEM))
    return key, path


@cache
def issued(name: str) -> tuple[Path, Path]:
    """Files of a certificate for that name and of its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    certificate, secret = FOLDER / f"{name}.pem", FOLDER / f"{name}.key"
    certificate.write_bytes(_issue(name, key, "authority", _authority()[0], authority=False).public_bytes(_PEM))
    secret.write_bytes(key.private_bytes(_PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()))
    return certificate, secret


def server(
    name: str = "localhost", *, clients: bool = False, alpn: tuple[str, ...] = ("h2", "http/1.1")
) -> ssl.SSLContext:
    """A server's context; C{clients} must have a certificate of the authority's, if that is true."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(*issued(name))
    context.set_alpn_protocols(alpn)
    if clients:
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(_authority()[1])
    return context


def client(name: str | None = None, *, alpn: tuple[str, ...] = ("h2",)) -> ssl.SSLContext:
    """A client's context that trusts the authority; with a name, its certificate."""
    context = ssl.create_default_context(cafile=str(_authority()[1]))
    context.set_alpn_protocols(alpn)
    if name is not None:
        context.load_cert_chain(*issued(name))
    return context
