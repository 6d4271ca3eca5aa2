"""
Who the gateways are: one certificate for all of them, made anew by each run; and what the loads offer them.

Rules
- All loads offer one version, one cipher and one group, so that no gateway has cheaper ones than another.
"""

from __future__ import annotations

import datetime
import ipaddress
from pathlib import Path
from typing import Final, NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

NAME: Final = "localhost"
OFFER: Final = "TLS 1.3, AES-128-GCM, X25519, a certificate of P-256"
"""What comes of it, in words."""
CLIENT: Final = """
openssl_conf = all
[all]
ssl_conf = every
[every]
system_default = offer
[offer]
MinProtocol = TLSv1.3
Ciphersuites = TLS_AES_128_GCM_SHA256
Groups = X25519
"""


class Identity(NamedTuple):
    """Files."""

    cert: Path
    """Its own authority, so loads can verify it."""
    key: Path
    """Named so that HAProxy finds it beside the certificate."""
    client: Path
    """Configuration of OpenSSL, for loads: what they offer."""

    @property
    def offering(self) -> dict[str, str]:
        """Of the environment of a load."""
        return {"OPENSSL_CONF": str(self.client)}


def made(folder: Path) -> Identity:
    """A new one, valid for a day, for C{localhost} and 127.0.0.1."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, NAME)])
    names = x509.SubjectAlternativeName([x509.DNSName(NAME), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(names, critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    files = Identity(folder / "bench.pem", folder / "bench.pem.key", folder / "openssl.cnf")
    files.cert.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    files.key.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    files.client.write_text(CLIENT)
    return files
