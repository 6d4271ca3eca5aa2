"""What is known of a peer's certificate."""

from __future__ import annotations

import base64
from pathlib import Path

from cryptography.hazmat.primitives import hashes, serialization

from authority import Authority
from protogate.tls.session import Certificate, Session


def test_a_certificate_tells_what_stands_in_it(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    issued = authority.issue("partner", ["partner.test", "10.1.2.3", "spiffe://partner/orders"]).certificate
    der = issued.public_bytes(serialization.Encoding.DER)
    certificate = Session("TLSv1.3", "x", certificate=der).certificate
    assert certificate is not None
    assert certificate.subject == "CN=partner"
    assert certificate.issuer == "CN=authority"
    assert certificate.san == ("partner.test", "10.1.2.3", "spiffe://partner/orders")
    assert certificate.serial == f"{issued.serial_number:x}"
    assert certificate.fingerprint == issued.fingerprint(hashes.SHA256()).hex()
    assert certificate.fingerprint == certificate.fingerprint, "asked twice"
    assert certificate.encoded == f":{base64.b64encode(der).decode()}:"


def test_one_without_names_has_none(tmp_path: Path) -> None:
    issued = Authority(tmp_path).issue("partner", []).certificate
    certificate = Certificate(issued.public_bytes(serialization.Encoding.DER))
    assert (certificate.san, certificate.subject) == ((), "CN=partner")


def test_what_cannot_be_read_is_empty() -> None:
    certificate = Certificate(b"\x30\x03\x02\x01\x01")
    assert (certificate.subject, certificate.issuer, certificate.serial, certificate.san) == ("", "", "", ())
    assert len(certificate.fingerprint) == 64


def test_control_characters_cannot_make_one_name_look_like_another(tmp_path: Path) -> None:
    issued = Authority(tmp_path).issue("ad\r\nmin", ["a.test"]).certificate
    certificate = Certificate(issued.public_bytes(serialization.Encoding.DER))
    assert certificate.subject == r"CN=ad\0D\0Amin"
