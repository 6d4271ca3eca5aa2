"""Lines for the files that say who may come in."""

from __future__ import annotations

import sys
import time
from io import StringIO

import pytest

from protogate.cli import main
from protogate.commands import credential
from protogate.identity import keys, users


class Terminal(StringIO):
    def isatty(self):
        return True


def made(*words, typed="", monkeypatch):
    out = StringIO()
    monkeypatch.setattr(sys, "stdin", StringIO(typed))
    return main(["credential", *words], out), out.getvalue()


def test_a_password_becomes_a_line_that_verifies_it(monkeypatch):
    status, line = made("password", "alice", "--groups", "admin,ops", typed="correct horse\n", monkeypatch=monkeypatch)
    found = users.parse(line.encode())
    assert (status, found.get(b"alice").groups) == (0, ("admin", "ops"))
    assert found.verify(b"alice", b"correct horse")
    assert not found.verify(b"alice", b"correct horse\n")
    assert "correct" not in line


def test_a_password_is_asked_for_twice_at_a_terminal(monkeypatch, capsys):
    typed = iter(["one", "one", "one", "two"])
    monkeypatch.setattr(credential, "getpass", lambda prompt: next(typed))
    out = StringIO()
    monkeypatch.setattr(sys, "stdin", Terminal())
    assert main(["credential", "password", "bob"], out) == 0
    assert users.parse(out.getvalue().encode()).verify(b"bob", b"one")
    assert main(["credential", "password", "bob"], out) == 2
    assert "these were two passwords" in capsys.readouterr().err


def test_a_key_is_shown_once_and_its_line_finds_it(monkeypatch, capsys):
    status, line = made("key", "billing", "--days", "90", monkeypatch=monkeypatch)
    key = capsys.readouterr().err.rpartition(": ")[2].strip()
    ((digest, found),) = keys.parse(line.encode()).items()
    assert (status, found.owner) == (0, "billing")
    assert abs(found.expires - time.time() - 90 * 86400) < 60
    assert keys.digest_of(key.encode()) == f"sha256:{digest.hex()}"
    assert key not in line


@pytest.mark.parametrize(
    "words",
    [
        ["password", "a:b"],
        ["password", ""],
        ["password", "#a"],
        ["password", "a", "--groups", "a:b"],
        ["key", "a b"],
        ["key", "a=b"],
        ["key", "a", "--days", "-1"],
        ["secret", "a", "b c"],
    ],
)
def test_what_no_line_can_hold_is_refused(words, monkeypatch, capsys):
    assert made(*words, typed="x\n", monkeypatch=monkeypatch) == (2, "")
    assert "protogate credential: " in capsys.readouterr().err


@pytest.mark.parametrize("typed", ["", "\n", "\t\n", "x" * 1025])
def test_what_is_no_password_is_refused(typed, monkeypatch, capsys):
    assert made("password", "alice", typed=typed, monkeypatch=monkeypatch) == (2, "")
