"""
The new program of an upgrade: what L{protogate.process.upgrade} executes.

    python -m protogate.process.resume --state 7 [--rehearse]

Rules
- It goes on as the program before it was started, by twistd or by C{protogate run}; what that did once (a daemon's
  fork, the pid file, another user) is not done again.
- A rehearsal does all that comes before the event loop, opens nothing, and exits with 0 when it would do.
"""

from __future__ import annotations

import argparse
import os
import sys
from importlib import import_module
from typing import Any

from twisted.application import app
from twisted.logger import Logger
from twisted.scripts import _twistd_unix

from protogate import cli, tap
from protogate.config.faults import ConfigFaults
from protogate.process import upgrade
from protogate.process.draft import Draft, draft
from protogate.process.upgrade import State
from protogate.reactor.best import install

_log = Logger()


class Again(_twistd_unix.UnixApplicationRunner):
    """twistd, in a process that it has set up already."""

    def preApplication(self) -> None:
        """Twisted: the pid file is ours."""
        self.oldstdout, self.oldstderr = sys.stdout, sys.stderr

    def setupEnvironment(self, *_: object) -> None:
        """Twisted: it is set up."""


def main() -> None:
    """The whole life of the program."""
    parser = argparse.ArgumentParser(prog="protogate upgrade", description="Started by a gateway, never by hand.")
    parser.add_argument("--state", type=int, required=True)
    parser.add_argument("--rehearse", action="store_true")
    options = parser.parse_args()
    state = upgrade.read(options.state)
    os.environ.update(state.begin.environ)
    first = _first(state, options.rehearse)
    if options.rehearse:
        rehearse(state)
        return
    upgrade.taken(state)
    if state.begin.twistd:
        twistd(state, first)
    else:
        reactor = install(state.begin.reactor)
        cli.serve(tap.supervise(first, state.begin, state), reactor)


def _first(state: State, rehearse: bool) -> Draft:
    """
    The configuration to go on with: the file as it is now.

    It was fine at the rehearsal; if it has faults now, the one in force has to do.
    """
    try:
        return draft(state.path).keeps_workers()
    except ConfigFaults as faults:
        if rehearse:
            raise SystemExit(str(faults)) from None
        _log.error("{path} has faults, the configuration in force stays:\n{faults}", path=state.path, faults=faults)
        return draft(state.path, (state.text, state.stamp))


def rehearse(state: State) -> None:
    """Would it do?"""
    draft(state.path, (state.text, state.stamp))  # what has to do if the file has faults by then
    import_module("protogate.process.worker")
    if state.begin.twistd:
        _options(state)
    else:
        install(state.begin.reactor)


def twistd(state: State, first: Draft) -> None:
    """Go on as twistd."""
    config = _options(state)
    config.subOptions.made = tap.supervise(first, state.begin, state)
    config["uid"] = config["gid"] = None
    runner: Any = Again(config)  # type: ignore[no-untyped-call]
    runner.run()
    if runner._exitSignal is not None:
        app._exitWithSignal(runner._exitSignal)


def _options(state: State) -> Any:
    """As they were given; this installs the reactor that they name."""
    config = _twistd_unix.ServerOptions()
    config.parseOptions(state.begin.arguments)
    return config


if __name__ == "__main__":
    main()
