"""
Twisted's own tests of reactors, run on C{protogate-uv}:  C{python tests/reactor/suite.py [MODULE …] > outcomes.json}

It is also the reactor that trial itself runs on.  What each test came to is printed as JSON: its name, and "success",
"skip", "failure" or "error" with the reason; see L{test_uv_suite}.  Tests run as they are, except for two things: one
that hangs gives up after ten seconds instead of two minutes, and after each one its loop is closed.
"""

from __future__ import annotations

import json
import sys
import tempfile
from asyncio import set_event_loop
from typing import Any

from protogate.reactor import uv

uv.install()

from twisted.internet.test import reactormixins  # noqa: E402 - after a reactor is installed
from twisted.trial import reporter, runner  # noqa: E402

MODULES = (
    "base", "core", "endpoints", "fdset", "filedescriptor", "newtls", "posixbase", "process", "resolver", "sigchld",
    "socket", "stdio", "tcp", "threads", "time", "tls", "udp", "unix",
)  # fmt: skip


def new_reactor(case: Any) -> uv.UVReactor:
    """What Twisted's C{ReactorBuilder} calls for each test."""
    reactor = uv.UVReactor()

    @case.addCleanup
    def close() -> None:
        reactor.loop.call_soon(reactor.loop.stop)
        reactor.loop.run_forever()  # uvloop finishes what disconnectAll has begun
        reactor.loop.close()
        set_event_loop(None)

    return reactor


class Outcomes(reporter.MinimalReporter):
    """Writes down what each test came to; the worst, if it came to several things."""

    def __init__(self, *arguments: Any, **more: Any) -> None:
        super().__init__(*arguments, **more)
        self.outcomes: dict[str, tuple[str, str]] = {}

    def addSuccess(self, test: Any) -> None:
        super().addSuccess(test)
        self.outcomes.setdefault(test.id(), ("success", ""))

    def addSkip(self, test: Any, reason: Any) -> None:
        super().addSkip(test, reason)
        self.outcomes.setdefault(test.id(), ("skip", str(reason)))

    def addError(self, test: Any, error: Any) -> None:
        super().addError(test, error)
        self.outcomes[test.id()] = ("error", str(error))

    def addFailure(self, test: Any, error: Any) -> None:
        super().addFailure(test, error)
        self.outcomes[test.id()] = ("failure", str(error))


def main(modules: list[str]) -> None:
    reactormixins.protogate_uv = new_reactor
    reactormixins.ReactorBuilder._reactors = ["twisted.internet.test.reactormixins.protogate_uv"]
    reactormixins.ReactorBuilder.getTimeout = lambda case: 10  # type: ignore[method-assign]
    names = [f"twisted.internet.test.test_{name}" for name in modules or MODULES]
    suite = runner.TestLoader().loadByNames(names)
    with tempfile.TemporaryDirectory() as folder:
        trial = runner.TrialRunner(Outcomes, stream=sys.stderr, workingDirectory=f"{folder}/trial")
        result: Any = trial.run(suite)
    json.dump(result.outcomes, sys.stdout)


if __name__ == "__main__":
    main(sys.argv[1:])
