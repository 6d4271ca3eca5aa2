"""The rules of conftest.py, tried on tests that break them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).parent

HEAD = """
import gc, socket
from twisted.internet import defer, reactor
from twisted.internet.protocol import Factory
from twisted.logger import Logger
from twisted.python.failure import Failure
from twisted.trial.unittest import SynchronousTestCase

log = Logger()

def fail(kind):
    log.failure("it broke", failure=Failure(kind("on purpose")))

def forget(kind):
    deferred = defer.Deferred()
    cycle = [deferred]
    cycle.append(cycle)
    deferred.errback(kind("on purpose"))

async def coroutine():
    pass
"""

CASES = """
def test_bad_deferred():
    forget(ValueError)

def test_bad_failure():
    fail(ValueError)

def test_bad_other_failure(flush_errors):
    fail(ValueError)
    fail(KeyError)
    assert len(flush_errors(KeyError)) == 1

def test_bad_call():
    reactor.callLater(100, print)

def test_bad_port():
    reactor.listenTCP(0, Factory(), interface="127.0.0.1")

def test_bad_socket():
    cycle = [socket.socket()]
    cycle.append(cycle)

def test_bad_coroutine():
    coroutine()

class Trial(SynchronousTestCase):
    def test_bad_trial_deferred(self):
        forget(ValueError)

    def test_good_trial(self):
        fail(ValueError)
        self.assertEqual(len(self.flushLoggedErrors(ValueError)), 1)

def test_good():
    pass

def test_good_deferred(flush_errors):
    forget(ValueError)
    fail(KeyError)
    assert len(flush_errors()) == 2

def test_good_call():
    reactor.callLater(100, print).cancel()

def test_good_port():
    reactor.listenTCP(0, Factory(), interface="127.0.0.1").stopListening()
"""


@pytest.fixture(scope="module")
def verdicts(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Name of each case → what pytest said of it."""
    directory = tmp_path_factory.mktemp("clean")
    (directory / "conftest.py").write_text("from conftest_of_protogate import *\n")
    (directory / "conftest_of_protogate.py").write_text((TESTS / "conftest.py").read_text())
    for file in (TESTS / "neighbours.py", TESTS / "unwatched.py", TESTS.parent / "bench" / "processes.py"):
        (directory / file.name).write_text(file.read_text())
    (directory / "test_cases.py").write_text(HEAD + CASES)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-q", "-rA", "-W", "error", "--rootdir", directory,
         directory],
        cwd=directory, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    found: dict[str, str] = {}
    for line in done.stdout.splitlines():
        word, _, rest = line.partition(" ")
        if word in {"PASSED", "FAILED", "ERROR"} and "::" in rest:
            name = rest.partition(" - ")[0].rpartition("::")[2]
            found[name] = word if found.get(name) in {None, "PASSED"} else found[name]
    assert found, done.stdout + done.stderr
    return found


NAMES = [line.partition("(")[0].split()[1] for line in CASES.splitlines() if line.strip().startswith("def test")]


@pytest.mark.parametrize("name", [name for name in NAMES if "_bad_" in name])
def test_a_test_that_leaves_something_behind_fails(verdicts: dict[str, str], name: str) -> None:
    assert verdicts[name] in {"ERROR", "FAILED"}


@pytest.mark.parametrize("name", [name for name in NAMES if "_good" in name])
def test_a_test_that_cleans_up_passes(verdicts: dict[str, str], name: str) -> None:
    assert verdicts[name] == "PASSED"
