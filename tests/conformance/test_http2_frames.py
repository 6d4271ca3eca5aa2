"""
RFC 9113 and RFC 7541, rule by rule, on the level of frames: both roles, both engines, whole and byte by byte.

The rules stand in tables: L{h2shared}, L{h2server_cases}, L{h2client_cases}.  Each case also looks whether all that our
end sent keeps to the rules, see L{h2peer}.
"""

from __future__ import annotations

from contextlib import nullcontext

import pytest
from h2case import MALFORMED, Case
from h2differs import DIFFERS, REASONS
from h2ends import play
from h2page import EVERY, PAGE, ROLES, page

from protogate.testing.transport import ALL
from protogate_http.engine2 import ENGINES
from unwatched import unwatched

LONG = 3000
"""Bytes of a case from which on it is cut into larger pieces: what one byte at a time would show is shown by others."""


@pytest.mark.parametrize("engine", ["ngh2", "h2"])
@pytest.mark.parametrize(("role", "case"), EVERY, ids=[f"{role}-{case.name}" for role, case in EVERY])
def test_rule(role: str, case: Case, engine: str) -> None:
    if engine not in ENGINES:
        pytest.skip("not installed")
    size = sum(len(item) for item in case.send if isinstance(item, bytes))
    dynamic = any(callable(item) for item in case.send)
    differs = DIFFERS.get((role, case.name), {}).get(engine)
    wanted = case.expect if differs is None else (differs[0],)
    for most in (ALL, 997 if size > LONG or dynamic else 1):
        with nullcontext() if most is ALL else unwatched():
            found = play(case, engine, role == "client", most)
        assert found.seen in wanted, (most, found.seen, found.peer.frames)
        assert found.peer.faults == [], most
        if case.secret:
            assert not found.fooled, "a malformed message was taken for a good one"


def test_every_case_says_what_it_is_about() -> None:
    for _, case in EVERY:
        assert case.section, case
        assert case.must.endswith("."), case
        assert case.expect, case
        assert case.secret or case.expect != MALFORMED, case


def test_a_difference_is_one_and_is_allowed() -> None:
    for (role, name), engines in DIFFERS.items():
        case = ROLES[role][name]
        for seen, why in engines.values():
            assert seen not in case.expect, f"{name}: no difference"
            assert why in REASONS


def test_the_page_is_made_from_the_tables() -> None:
    """C{python tests/conformance/h2page.py} writes it."""
    assert PAGE.read_text("utf-8") == page()
