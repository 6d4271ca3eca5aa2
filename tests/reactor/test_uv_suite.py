"""The judge: Twisted's own tests of reactors, in a process of their own.  L{EXEMPT} names all that do not succeed."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import pytest

pytest.importorskip("uvloop")

pytestmark = pytest.mark.unwatched

HERE = Path(__file__).parent
ROOT = os.geteuid() == 0
ANYBODY = all(part.stat().st_mode & stat.S_IXOTH for part in Path(sys.executable).resolve().parents)
"""Whether any user can run this interpreter."""


def _has(module: str) -> bool:
    try:
        __import__(module)
    except ImportError:
        return False
    return True


class Exempt(NamedTuple):
    """One test that does not succeed."""

    test: str
    outcome: str
    reason: str
    holds: bool = True
    """Whether that is so on this machine; if not, the test must succeed."""


EXEMPT = [
    Exempt(
        "test_unix.UNIXTestsBuilder_protogate_uvTests.test_avoidLeakingFileDescriptors",
        "failure",
        "wants a log line about a descriptor that nobody wanted; uvloop reads with read(), the kernel closes it, "
        "and nobody can know",
    ),
    *(
        Exempt(
            f"test_process.{kind}ProcessTestsBuilder_protogate_uvTests.test_changeUID",
            "failure" if ROOT else "skip",
            "only root can change users, and the other user must be able to run this interpreter",
            not (ROOT and ANYBODY),
        )
        for kind in ("", "PTY")
    ),
    *(
        Exempt(
            f"test_process.{kind}ProcessTestsBuilder_protogate_uvTests.test_changeGID",
            "skip",
            "only root can",
            not ROOT,
        )
        for kind in ("", "PTY")
    ),
    Exempt(
        "test_time.GlibTimeTestsBuilder_GIReactorTests.test_timeout_add",
        "skip",
        "a test of another reactor",
        not _has("gi"),
    ),
    Exempt(
        "test_process.ProcessIsUnimportableOnUnsupportedPlatormsTests.test_unimportableOnWindows",
        "skip",
        "Windows only",
    ),
    Exempt("test_base.ReactorBaseSignalTests.test_captureSIGBREAK", "skip", "Windows only"),
]


@pytest.fixture(scope="module")
def outcomes() -> dict[str, list[str]]:
    """What each of Twisted's tests came to."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", str(HERE / "suite.py")],
        capture_output=True,
        text=True,
        timeout=400,
        check=False,
        # It looks at the environment of its children, where coverage would leave something.
        env={name: value for name, value in os.environ.items() if not name.startswith("COVERAGE")},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    found: Any = json.loads(done.stdout)
    return {name.removeprefix("twisted.internet.test."): outcome for name, outcome in found.items()}


def test_all_of_them_ran(outcomes: dict[str, list[str]]) -> None:
    assert sum("_protogate_uvTests." in name for name in outcomes) >= 280


def test_each_succeeds_or_is_exempt(outcomes: dict[str, list[str]]) -> None:
    expected = {exempt.test for exempt in EXEMPT}
    bad = {
        name: reason for name, (outcome, reason) in outcomes.items() if outcome != "success" and name not in expected
    }
    assert not bad, "\n\n".join(f"{name}\n{reason}" for name, reason in bad.items())


@pytest.mark.parametrize("exempt", EXEMPT, ids=lambda exempt: exempt.test.rpartition(".")[2])
def test_what_is_exempt_still_does_not_succeed(exempt: Exempt, outcomes: dict[str, list[str]]) -> None:
    expected = exempt.outcome if exempt.holds else "success"
    assert outcomes[exempt.test][0] == expected, exempt.reason
