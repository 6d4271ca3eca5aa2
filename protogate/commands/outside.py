"""
The commands that distributions add: found as codecs and modules are, run on a reactor of their own.

Rules
- One that cannot be loaded is listed with the reason, and spoils no other command.
- Whoever brings one does not take the place of a command of ours.
"""

from __future__ import annotations

import sys
from argparse import Namespace
from functools import partial
from typing import TYPE_CHECKING, Any, TextIO

from twisted.internet.defer import maybeDeferred
from twisted.python.failure import Failure

from protogate.commands.registry import add, complain
from protogate.context import Context
from protogate.interfaces import ICommand
from protogate.plugins import PluginError, find, names
from protogate.wheel import Wheel

if TYPE_CHECKING:
    from protogate.commands.registry import Commands


def register(commands: Commands) -> None:
    """Add all of them."""
    for name in dict.fromkeys(names(ICommand)):
        if name in commands.choices:
            continue
        try:
            command = find(ICommand, name)
        except PluginError as error:
            why = str(error.args[0])
            add(commands, name, f"(cannot be used: {why})", partial(_unusable, name, why))
        else:
            command.arguments(add(commands, name, command.summary, partial(run, command)))


def _unusable(name: str, why: str, options: Namespace, out: TextIO) -> int:
    return complain(name, why, 1)


def run(command: ICommand, options: Namespace, out: TextIO) -> int:
    """Run one, on the reactor that is the default here; 130 when it was interrupted, as shells say it."""
    from twisted.internet import reactor as default  # noqa: PLC0415 - importing it installs it

    reactor: Any = default
    statuses: list[int] = []

    def fail(failure: Failure) -> None:
        failure.printTraceback(sys.stderr)
        statuses.append(1)

    def begin() -> None:
        done = maybeDeferred(command.run, options, reactor, Context(Wheel(reactor)), out)
        done.addCallbacks(statuses.append, fail)
        done.addBoth(lambda _: reactor.stop() if reactor.running else None)

    reactor.callWhenRunning(begin)
    reactor.run()
    return statuses[0] if statuses else 130
