"""Files of keys."""

from __future__ import annotations

import hashlib

import pytest

from protogate.identity.keys import digest_of, moment, parse

ONE = digest_of(b"one")


def test_a_file_of_keys():
    found = parse(
        f"# ours\n\n{ONE} alice\n{digest_of(b'two')} alice expires=2027-01-31 plan=gold seats=5\n"
        f"  {digest_of(b'three')}  zoë  \n".encode()
    )
    assert {key.owner for key in found.values()} == {"alice", "zoë"}
    one, two = (found[hashlib.sha256(name).digest()] for name in (b"one", b"two"))
    assert (one.expires, one.claims) == (0.0, {})
    assert (two.expires, two.claims) == (1801353600.0, {"plan": "gold", "seats": "5"})


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("secret-key alice", "line 1: expected sha256:DIGEST OWNER"),
        (ONE, "line 1: expected sha256"),
        (ONE[:-1] + " alice", "line 1: expected sha256"),
        (ONE.upper() + " alice", "line 1: expected sha256"),
        (f"{ONE} expires=2027-01-01", "line 1: expected sha256"),
        (f"\n{ONE} alice gold", "line 2: expected name=value"),
        (f"{ONE} alice plan=a plan=b", "each name once"),
        (f"{ONE} alice 1=2", "expected name=value"),
        (f"{ONE} alice expires=tomorrow", "expected a time"),
        (f"{ONE} alice expires=2027-02-31", "there is no such time"),
        (f"{ONE} alice expires=2027-01-31T12:00:00", "expected a time"),
        (f"{ONE} alice\n{ONE} bob", "line 2: this key stands there twice"),
    ],
)
def test_the_first_fault_is_told_and_the_line_is_not_repeated(text, why):
    with pytest.raises(ValueError, match=why) as caught:
        parse(text.encode())
    assert "alice" not in str(caught.value)
    assert "secret" not in str(caught.value)


def test_what_is_not_utf8():
    with pytest.raises(ValueError, match="not UTF-8"):
        parse(b"\xff")


def test_moments():
    assert moment("1970-01-02") == 86400.0
    assert moment("1970-01-01T01:00:00+01:00") == 0.0
    assert moment("2027-01-31T12:00:00Z") - moment("2027-01-31") == 43200.0
