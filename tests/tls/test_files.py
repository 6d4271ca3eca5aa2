"""What is wrong with files of certificates and keys, and what is doubtful about them."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from authority import Authority, pem, rsa_key, secret
from protogate.errors import ConfigError
from protogate.tls import files
from protogate.tls.files import LARGEST, Reading


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


def test_a_pair_has_its_names_in_lower_case(authority: Authority) -> None:
    issued = authority.issue("shop", ["Shop.Test", "*.shop.test", "10.0.0.1", "spiffe://shop"])
    reading = Reading()
    pair = reading.pair(str(issued.cert), str(issued.key), ("certificates", 0))
    assert pair.names == ("shop.test", "*.shop.test")
    assert pair.chain == (issued.certificate,)
    assert reading.warnings == []
    assert set(reading.stamps) == {str(issued.cert), str(issued.key)}
    assert None not in reading.stamps.values()


def test_two_readings_of_the_same_files_are_equal(authority: Authority) -> None:
    issued = authority.issue("shop.test")
    one, other = (Reading().pair(str(issued.cert), str(issued.key), ()) for _ in range(2))
    assert one == other
    assert hash(one) == hash(other)
    assert "PRIVATE" not in repr(one)
    assert "EllipticCurve" not in repr(one)


def test_kinds_of_keys_are_told_apart(authority: Authority) -> None:
    ec, rsa = authority.issue("a.test"), authority.issue("b.test", key=rsa_key())
    kinds = {Reading().pair(str(one.cert), str(one.key), ()).kind for one in (ec, rsa)}
    assert len(kinds) == 2


def broken(authority: Authority, name: str) -> tuple[Any, Any]:
    """Files of a pair with that fault."""
    good, other = authority.issue("good.test"), authority.issue("other.test")
    cert, key, file = good.cert, good.key, authority.folder / "broken"
    match name:
        case "missing":
            cert = authority.folder / "nowhere.pem"
        case "folder":
            cert = authority.folder
        case "unreadable name":
            cert = Path("a\0b")
        case "no certificate":
            file.write_text("hello")
            cert = file
        case "key for certificate":
            cert = good.key
        case "certificate for key":
            key = good.cert
        case "no key":
            file.write_text("hello")
            key = file
        case "cut certificate":
            file.write_bytes(good.cert.read_bytes()[:200] + b"\n-----END CERTIFICATE-----\n")
            cert = file
        case "cut key":
            file.write_bytes(good.key.read_bytes()[:80] + b"\n-----END PRIVATE KEY-----\n")
            key = file
        case "encrypted":
            file.write_bytes(secret(good.secret, b"hunter2"))
            key = file
        case "other key":
            key = other.key
        case "authority first":
            file.write_bytes(pem(authority.certificate) + good.cert.read_bytes())
            cert = file
        case "wrong chain":
            file.write_bytes(good.cert.read_bytes() + other.cert.read_bytes())
            cert = file
        case "huge":
            file.write_bytes(b"-----BEGIN CERTIFICATE-----" + b" " * LARGEST)
            cert = file
    return cert, key


@pytest.mark.parametrize(
    ("name", "at", "message"),
    [
        ("missing", "cert", "nowhere.pem: No such file or directory"),
        ("folder", "cert", "Is a directory"),
        ("unreadable name", "cert", "null"),
        ("no certificate", "cert", "no certificate in PEM form in this file$"),
        ("key for certificate", "cert", r"no certificate in PEM form in this file \(it holds a key\)"),
        ("certificate for key", "key", r"no private key in PEM form in this file \(it holds a certificate\)"),
        ("no key", "key", "no private key in PEM form in this file$"),
        ("cut certificate", "cert", "a certificate in this file is broken"),
        ("cut key", "key", "the key in this file is broken"),
        ("encrypted", "key", "this key is encrypted"),
        ("other key", "key", "this key does not belong to the certificate in .*good.test.pem"),
        ("authority first", "cert", "the key belongs to certificate 2, which must be the first"),
        ("wrong chain", "cert", "certificate 1 was not issued by certificate 2"),
        ("huge", "cert", "larger than"),
    ],
)
def test_what_is_wrong_is_told_with_file_and_place(authority: Authority, name: str, at: str, message: str) -> None:
    cert, key = broken(authority, name)
    with pytest.raises(ConfigError, match=message) as caught:
        Reading().pair(str(cert), str(key), ("certificates", 3))
    assert caught.value.path == ("certificates", 3, at)
    assert "hunter2" not in caught.value.message
    assert "\n" not in caught.value.message


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_a_file_that_may_not_be_read_is_told(authority: Authority) -> None:
    issued = authority.issue("shop.test")
    issued.key.chmod(0)
    with pytest.raises(ConfigError, match=r"shop.test.key: Permission denied"):
        Reading().pair(str(issued.cert), str(issued.key), ())


def test_nobody_waits_for_a_pipe(authority: Authority) -> None:
    pipe = authority.folder / "pipe"
    os.mkfifo(pipe)
    with pytest.raises(ConfigError, match="no certificate"):
        Reading().pair(str(pipe), str(pipe), ())


@pytest.mark.parametrize(
    ("issue", "message"),
    [
        (lambda authority: authority.issue("a.test", days=-1), "the certificate expired on "),
        (lambda authority: authority.issue("a.test", since=2), "the certificate is not valid before "),
        (lambda authority: authority.issue("a.test", []), "names nothing that it is for"),
    ],
)
def test_what_works_but_not_for_long_is_a_warning(
    authority: Authority, issue: Callable[[Authority], Any], message: str
) -> None:
    issued, reading = issue(authority), Reading()
    reading.pair(str(issued.cert), str(issued.key), ("x",))
    (warning,) = reading.warnings
    assert message in warning.message
    assert warning.path == ("x", "cert")


def test_a_chain_has_all_that_lead_to_the_authority(authority: Authority) -> None:
    between = Authority(authority.folder, "between", by=authority)
    issued = between.issue("shop.test", more=[between.certificate])
    reading = Reading()
    assert len(reading.pair(str(issued.cert), str(issued.key), ()).chain) == 2
    assert reading.warnings == []


def test_authorities_are_read_without_what_stands_around_them(authority: Authority) -> None:
    other = Authority(authority.folder, "other")
    bundle = authority.folder / "bundle.pem"
    bundle.write_bytes(b"# ours\n" + pem(authority.certificate) + b"# theirs\n" + pem(other.certificate))
    text = Reading().authorities(str(bundle), ("ca",))
    assert text == (pem(authority.certificate) + pem(other.certificate)).decode()
    with pytest.raises(ConfigError, match="No such file") as caught:
        Reading().authorities("/nowhere.pem", ("ca",))
    assert caught.value.path == ("ca",)


def test_ciphers_are_tried() -> None:
    files.ciphers("ECDHE+AESGCM:!aNULL", ())
    with pytest.raises(ConfigError, match='no cipher of that name: "FAST"') as caught:
        files.ciphers("FAST", ("ciphers",))
    assert caught.value.path == ("ciphers",)
