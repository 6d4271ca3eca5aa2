"""Hashes of passwords, and files of them."""

from __future__ import annotations

import base64
import sys

import pytest

from protogate.identity import users
from protogate.identity.password import make, parse


def test_a_hash_that_was_made_verifies():
    text = make(b"correct horse")
    assert text.startswith("$scrypt$ln=15,r=8,p=3$")
    assert text != make(b"correct horse")
    assert parse(text).matches(b"correct horse")
    assert not parse(text).matches(b"correct horses")


def test_scrypt_is_that_of_its_rfc():
    """RFC 7914, 12, third vector."""
    made = bytes.fromhex(
        "7023bdcb3afd7348461c06cd81fd38ebfda8fbba904f8e3ea9b543f6545da1f2"
        "d5432955613f0fcf62d49705242a9af9e61e85dc0d651e40dfcf017b45575887"
    )
    text = "$scrypt$ln=14,r=8,p=1$U29kaXVtQ2hsb3JpZGU$" + base64.b64encode(made).decode().rstrip("=")
    assert parse(text).matches(b"pleaseletmein")


def test_htpasswd_and_passlib_are_read():
    text = "$2y$04$tI3.S/2x7OJLLTpnY9HQmusLIWkRIB.hMsZ7Kmf8hE73MF95Jnuva"
    assert parse(text).matches(b"tr0ub4dor")
    assert not parse(text).matches(b"tr0ub4dor ")
    assert not parse(text).matches(b"tr0ub4dor" * 9)
    assert not parse(text).matches(b"tr0ub4dor\0")
    text = "$pbkdf2-sha256$600000$c2FsdHNhbHRzYWx0$i99eJvnMzjm/zfSWXSeQOg3qDxviGItznH4wR8s6nBU"
    assert parse(text).matches(b"battery staple")
    assert not parse(text).matches(b"battery")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("{SHA}5en6G6MezRroT3XKqkdPOmY/BfQ=", "SHA-1 is too fast"),
        ("{SSHA}x", "salted SHA-1 is too fast"),
        ("$apr1$abc$def", "MD5 is too fast"),
        ("secret", "no hash of a password"),
        ("", "no hash of a password"),
        ("$scrypt$ln=9,r=8,p=1$c2FsdHNhbHRzYWx0$" + "A" * 43, "ln from 10"),
        ("$scrypt$ln=20,r=8,p=1$c2FsdHNhbHRzYWx0$" + "A" * 43, "128 MiB"),
        ("$scrypt$ln=10,r=8,p=99$c2FsdHNhbHRzYWx0$" + "A" * 43, "p to 16"),
        ("$pbkdf2-sha256$i=1000$c2FsdHNhbHRzYWx0$" + "A" * 43, "10,000"),
        ("$pbkdf2-sha256$i=99999999$c2FsdHNhbHRzYWx0$" + "A" * 43, "10,000"),
        ("$pbkdf2-sha256$i=10000$c2Fs$" + "A" * 43, "a salt of 8"),
        ("$pbkdf2-sha256$i=10000$c2FsdHNhbHRzYWx0$AAAA", "a hash of 16"),
        ("$2b$31$" + "a" * 53, "a cost from 4 to 16"),
    ],
)
def test_what_is_weak_or_out_of_bounds_is_refused_and_not_repeated(text, why):
    with pytest.raises(ValueError, match=why) as caught:
        parse(text)
    assert not text or text not in str(caught.value)


def test_bcrypt_is_an_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "bcrypt", None)
    with pytest.raises(ValueError, match=r"pip install 'protogate\[bcrypt\]'"):
        parse("$2b$04$" + "a" * 53)


HASH = "$pbkdf2-sha256$i=10000$c2FsdHNhbHRzYWx0$" + "A" * 43


def test_a_file_of_users():
    found = users.parse(f"# us\n\nalice:{HASH}:admin, ops,\n  bob:{HASH}\nzoë:{HASH}:\n".encode())
    assert len(found) == 3
    assert (found.get(b"alice").groups, found.get(b"bob").groups) == (("admin", "ops"), ())
    assert found.get("zoë".encode()).name == "zoë"
    assert found.get(b"carol") is None


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (b"alice", "line 1: expected name:hash"),
        (b"\n:x", "line 2: expected name:hash"),
        (b"alice:x", "line 1: this is no hash"),
        (f"alice:{HASH}\n# x\nalice:{HASH}".encode(), "line 3: this name stands there twice"),
        (b"\xff", "not UTF-8"),
    ],
)
def test_the_first_fault_of_a_file_is_told(text, why):
    with pytest.raises(ValueError, match=why):
        users.parse(text)


class Slow:
    def __init__(self):
        self.asked = []

    def matches(self, password):
        self.asked.append(password)
        return True


def test_a_name_that_nobody_has_costs_as_much_and_is_never_let_in():
    slow = Slow()
    found = users.Users({b"alice": users.User("alice", slow, ())}, b"")
    assert not found.verify(b"mallory", b"x")
    assert slow.asked == [b"x"]
    assert found.verify(b"alice", b"y")
    assert not users.Users({}, b"").verify(b"alice", b"y")
