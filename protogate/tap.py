"""C{twistd protogate}: its options, and the service that it runs."""

from __future__ import annotations

import gc
from typing import Any, ClassVar

from twisted.application.service import IService
from twisted.python import usage

from protogate.build import build
from protogate.config.faults import ConfigFaults
from protogate.service import GatewayService


class Options(usage.Options):
    """Of the command C{twistd protogate}."""

    synopsis = "[options] -c FILE"
    longdesc = "Run a gateway.  SIGHUP loads the configuration anew; SIGTERM drains and stops."
    optParameters: ClassVar[list[list[Any]]] = [["config", "c", None, "The configuration, YAML or JSON."]]

    def postOptions(self) -> None:
        """Twisted."""
        if not self["config"]:
            raise usage.UsageError("which configuration? twistd protogate -c FILE")


class Foreground(GatewayService):
    """A gateway at a terminal: a port that cannot be opened ends it with a line, not with a traceback."""

    def privilegedStartService(self) -> None:
        """Twisted."""
        try:
            super().privilegedStartService()
        except ConfigFaults as faults:
            raise SystemExit(str(faults)) from None


def makeService(options: Options) -> IService:
    """Everything is checked here: before a port is opened, and before twistd goes to the background."""
    path = options["config"]
    try:
        built = build(path)
    except ConfigFaults as faults:
        raise SystemExit(str(faults)) from None
    parent = options.parent
    # A daemon's parent waits to be told what went wrong; twistd tells it of exceptions, but not of an exit.
    daemon = parent is not None and not parent["nodaemon"]
    service = GatewayService(path, built) if daemon else Foreground(path, built)
    # What is there now stays: the collector need not look at it again and again.
    gc.collect()
    gc.freeze()
    return service
