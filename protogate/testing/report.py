"""The contract suite of codecs with a report for people: what C{protogate codec check} runs."""

from __future__ import annotations

import time
import unittest
from collections.abc import Callable, Collection
from types import TracebackType
from typing import Any, TextIO

from twisted.trial.unittest import SynchronousTestCase

from protogate.testing.codec import CodecContract

Error = tuple[type[BaseException], BaseException, TracebackType] | tuple[None, None, None]


def check(
    name: str,
    make: Callable[[], Any],
    out: TextIO,
    lacks: Collection[str] | None = None,
    verbose: bool = False,
    suite: type[CodecContract] = CodecContract,
) -> bool:
    """
    Run the suite: a line for each test, and one for all of them.

    @param make: makes the codec.
    @param lacks: what the protocol cannot say; None = what the codec tells.
    @param verbose: with the traceback of each failure.
    @return: whether the codec keeps the contract.
    """
    members: dict[str, Any] = {"codec": staticmethod(make)}
    if lacks is not None:
        members["lacks"] = lacks
    case: Any = type("Contract", (suite, SynchronousTestCase), members)
    report, began = Report(out, verbose), time.monotonic()
    unittest.defaultTestLoader.loadTestsFromTestCase(case).run(report)
    broken, left_out = report.broken, len(report.skipped)
    print(
        f"{name}: {'keeps the contract' if not broken else 'does NOT keep the contract'}: "
        f"{report.testsRun - broken - left_out} kept, {broken} broken, {left_out} left out, "
        f"{time.monotonic() - began:.1f} s",
        file=out,
    )
    return not broken


class Report(unittest.TestResult):
    """
    A line for each test.

    @param verbose: with the traceback of each failure.
    @ivar broken: tests that failed; one may fail in more than one way.
    """

    def __init__(self, out: TextIO, verbose: bool = False) -> None:
        super().__init__()
        self.broken = 0
        self._out, self._verbose = out, verbose
        self._last = ""  # of those that failed

    def addSuccess(self, test: unittest.TestCase) -> None:
        """unittest."""
        super().addSuccess(test)
        self._say("ok", test)

    def addSkip(self, test: unittest.TestCase, reason: str) -> None:
        """unittest."""
        super().addSkip(test, reason)
        self._say("-", test, str(reason))

    def addFailure(self, test: unittest.TestCase, err: Error) -> None:
        """unittest."""
        super().addFailure(test, err)
        self._failed(test, str(err[1]), self.failures[-1][1])

    def addError(self, test: unittest.TestCase, err: Error) -> None:
        """unittest."""
        super().addError(test, err)
        self._failed(test, f"{type(err[1]).__name__}: {err[1]}", self.errors[-1][1])

    def _failed(self, test: unittest.TestCase, why: str, traceback: str) -> None:
        if test.id() != self._last:
            self._last, self.broken = test.id(), self.broken + 1
        self._say("BROKEN", test, why.partition("\n")[0])
        if self._verbose:
            print(traceback, file=self._out)

    def _say(self, verdict: str, test: unittest.TestCase, why: str = "") -> None:
        name = test.id().rpartition(".")[2].removeprefix("test_").replace("_", " ")
        print(f"{verdict:6} {name}{': ' if why else ''}{why}", file=self._out, flush=True)
