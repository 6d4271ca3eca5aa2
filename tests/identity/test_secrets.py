"""Files of shared secrets, and what must not come twice."""

from __future__ import annotations

import hmac
import sys
from base64 import b64encode
from io import StringIO

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import given
from hypothesis import strategies as st
from twisted.internet.task import Clock

from protogate.cli import main
from protogate.identity.replays import Full, Replays
from protogate.identity.secrets import parse

TEXT = "AAECAwQFBgcICQoLDA0ODw"


def test_a_file_of_secrets():
    lines = [f"a alice {TEXT}", f"b bob {TEXT}== plan=gold", f"c zoë {'-_' * 12}", f"d dan {'+/' * 12}"]
    found = parse("\n".join(["# ours", "", *lines]).encode())
    assert (found["a"].owner, found["b"].claims, found["c"].owner) == ("alice", {"plan": "gold"}, "zoë")
    text = b"signed"
    for name in "ab":
        assert found[name].algorithm == "hmac-sha256"
        assert found[name].verifies(text, hmac.digest(bytes(range(16)), text, "sha256"))
        assert not found[name].verifies(text, hmac.digest(bytes(range(17)), text, "sha256"))
    made = hmac.digest(b"\xfb\xff\xbf" * 6, text, "sha256")
    assert (found["c"].verifies(text, made), found["d"].verifies(text, made)) == (True, True)
    assert TEXT not in repr(found)
    assert "x00" not in repr(found)


def test_a_public_key():
    key = Ed25519PrivateKey.generate()
    public = b64encode(key.public_key().public_bytes_raw()).decode()
    (found,) = parse(f"a alice ed25519:{public} plan=gold".encode()).values()
    assert (found.owner, found.algorithm, found.claims) == ("alice", "ed25519", {"plan": "gold"})
    assert found.verifies(b"text", key.sign(b"text"))
    assert not found.verifies(b"text", key.sign(b"other"))
    assert not found.verifies(b"text", b"")


def test_the_command_makes_a_line_of_it(monkeypatch):
    out = StringIO()
    monkeypatch.setattr(sys, "stdin", StringIO())
    assert main(["credential", "secret", "partner-7", "partner"], out) == 0
    (secret,) = parse(out.getvalue().encode()).values()
    assert (secret.owner, secret.algorithm) == ("partner", "hmac-sha256")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("a alice", "line 1: expected ID OWNER SECRET"),
        ("a alice se!cret", "line 1: the secret is not Base64"),
        ("a alice rsa:AAAA", "line 1: expected ID OWNER SECRET"),
        ("a alice ed25519:", "line 1: the secret is not Base64"),
        (f"a alice ed25519:{TEXT}", "line 1: a key of Ed25519 has 32 bytes"),
        ("a alice AAECAwQF", "line 1: a secret has 16 bytes at least"),
        (f"a alice {TEXT}AAA", "line 1: the secret is not Base64"),
        (f"\na alice {TEXT} plan", "line 2: expected name=value"),
        (f"a alice {TEXT} p=1 p=2", "line 1: expected name=value"),
        (f"a alice {TEXT}\na bob {TEXT}", "line 2: this ID stands there twice"),
    ],
)
def test_the_first_fault_is_told_and_the_secret_is_not(text, why):
    with pytest.raises(ValueError, match=why) as caught:
        parse(text.encode())
    assert "AAEC" not in str(caught.value)


def test_what_came_must_not_come_again_for_a_while():
    clock = Clock()
    seen = Replays(clock.seconds, 10, room=2)
    assert seen.add(b"a")
    assert not seen.add(b"a")
    clock.advance(5)
    assert seen.add(b"b")
    with pytest.raises(Full):
        seen.add(b"c")
    assert not seen.add(b"a"), "what is known is known also when there is no room"
    clock.advance(5)
    assert seen.add(b"a")
    assert not seen.add(b"b")
    assert len(seen) == 2


def test_what_was_seen_is_remembered_for_longer_when_that_is_asked_for():
    clock = Clock()
    seen = Replays(clock.seconds, 10)
    seen.add(b"a")
    seen.lengthen(30)
    seen.lengthen(5)
    clock.advance(29)
    assert not seen.add(b"a")
    clock.advance(1)
    assert seen.add(b"a")


@given(st.lists(st.tuples(st.integers(0, 3), st.sampled_from([b"a", b"b", b"c"])), max_size=30))
def test_it_does_as_a_model_does(steps):
    clock, model = Clock(), {}
    seen = Replays(clock.seconds, 5)
    for wait, thing in steps:
        clock.advance(wait)
        new = model.get(thing, -1) <= clock.seconds()
        assert seen.add(thing) is new
        if new:
            model[thing] = clock.seconds() + 5
