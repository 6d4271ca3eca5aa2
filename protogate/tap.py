"""C{twistd protogate}: its options, and the service that it runs."""

from __future__ import annotations

import os
import sys
from typing import Any, ClassVar, Final

from twisted.application.service import IService
from twisted.python import usage

from protogate.build import build
from protogate.config.faults import ConfigFaults
from protogate.config.load import read
from protogate.memory import settle
from protogate.process import activation
from protogate.process.adopted import Handed
from protogate.process.draft import Draft
from protogate.process.notify import PID, SOCKET, USEC, Notify
from protogate.process.supervisor import Supervisor
from protogate.process.upgrade import Begin, State
from protogate.reactor.best import reactors
from protogate.service import GatewayService

REACTOR: Final = "PROTOGATE_REACTOR"
"""The variable that names the reactor of workers; without it: the best there is."""


class Options(usage.Options):
    """Of the command C{twistd protogate}."""

    synopsis = "[options] -c FILE"
    longdesc = (
        "Run a gateway.  SIGHUP loads the configuration anew; SIGUSR2 takes new code; SIGTERM drains and stops.  "
        "$PROTOGATE_REACTOR names the reactor of workers."
    )
    optParameters: ClassVar[list[list[Any]]] = [["config", "c", None, "The configuration, YAML or JSON."]]
    made: IService | None = None
    """The service, where it was made already: in the program of an upgrade."""

    def parseArgs(self, *words: str) -> None:
        """Twisted.  It would only say that their number is wrong."""
        if words:
            raise usage.UsageError(f"{words[0]!r} is no option; the configuration is named by -c FILE")

    def postOptions(self) -> None:
        """Twisted."""
        if not self["config"]:
            raise usage.UsageError("which configuration? twistd protogate -c FILE")


class Foreground:
    """At a terminal a port that cannot be opened ends a gateway with a line, not with a traceback."""

    def privilegedStartService(self) -> None:
        """Twisted."""
        try:
            super().privilegedStartService()  # type: ignore[misc]
        except ConfigFaults as faults:
            raise SystemExit(str(faults)) from None


class ForegroundGateway(Foreground, GatewayService):
    """A gateway of one process, at a terminal."""


class ForegroundSupervisor(Foreground, Supervisor):
    """A gateway of several processes, at a terminal."""


def makeService(options: Options) -> IService:
    """Everything is checked here: before a port is opened, and before twistd goes to the background."""
    if options.made is not None:
        return options.made
    parent = options.parent
    # A daemon's parent waits to be told what went wrong; twistd tells it of exceptions, but not of an exit.
    daemon = parent is not None and not parent["nodaemon"]
    begin = Begin(twistd=True, arguments=sys.argv[1:], reactor=os.environ.get(REACTOR, ""))
    return make(options["config"], begin, foreground=not daemon)


def make(path: str, begin: Begin, foreground: bool = True) -> GatewayService | Supervisor:
    """
    The service of a configuration.

    @param begin: how this process is started.
    @raise SystemExit: the configuration has faults, which are its text.
    """
    if begin.reactor and begin.reactor not in (known := reactors()):
        raise SystemExit(f"no reactor named {begin.reactor!r} for workers; installed: {', '.join(known)}")
    try:
        source = read(path)
        built = build(path, source)
    except ConfigFaults as faults:
        raise SystemExit(str(faults)) from None
    inherited = activation.take()
    service: GatewayService | Supervisor
    if built.config.gateway.workers:
        begin.environ = {name: os.environ[name] for name in (SOCKET, USEC, PID) if name in os.environ}
        kind = ForegroundSupervisor if foreground else Supervisor
        service = kind(Draft.of(built, source), None, begin, Notify.take(), inherited)
    else:
        opener = Handed(inherited, built.config.listeners) if inherited else None
        one = ForegroundGateway if foreground else GatewayService
        service = one(path, built, opener=opener, notify=Notify.take())
    del built, source
    settle()
    return service


def supervise(first: Draft, begin: Begin, state: State) -> Supervisor:
    """The service of a program that another one became."""
    service = Supervisor(first, None, begin, Notify.take(), (), state)
    settle()
    return service
