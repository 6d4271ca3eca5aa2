"""
The port for operators, over all configurations.

Rules
- It is none of the listeners: no traffic is accepted here, and these pages are nowhere else.
- The same address is the same port after a reload.  L{Admin.open} can fail, and then nothing has changed; L{Admin.take}
  cannot.
- It is the last to close: whoever asks during the stop is told that it is one.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from twisted.internet.defer import Deferred, maybeDeferred, succeed
from twisted.internet.error import CannotListenError
from twisted.internet.interfaces import IListeningPort

from protogate.admin.site import CONNECTIONS, Site, Watched
from protogate.config import address, model
from protogate.downstream import leftover
from protogate.errors import ConfigError
from protogate.observe.events import quietly

MODE: Final = 0o660
"""Of a socket in the file system: for the user and the group of the gateway."""


@dataclass(frozen=True, slots=True)
class Open:
    """An open port."""

    where: address.Listen
    port: IListeningPort
    site: Site


class Admin:
    """
    @param watched: what is shown.
    @ivar opened: what is open now; None = nothing.
    """

    def __init__(self, watched: Watched, reactor: Any) -> None:
        self._watched, self._reactor = watched, reactor
        self.opened: Open | None = None

    @property
    def host(self) -> Any:
        """Where it really listens (a port 0 is chosen by the kernel); None = nowhere."""
        return None if self.opened is None else self.opened.port.getHost()

    def open(self, settings: model.Admin | None) -> Open | None:
        """
        The port of a configuration: the one that is open already, a new one, or none.

        @raise ConfigError: it cannot be opened.
        """
        if settings is None:
            return None
        where = address.listen(settings.address)
        if self.opened is not None and self.opened.where == where:
            return self.opened
        site = Site(self._watched, self._reactor)
        try:
            return Open(where, self._listen(where, site), site)
        except (CannotListenError, OSError) as error:  # the latter from the lock file of a UNIX socket
            cause = error.socketError if isinstance(error, CannotListenError) else error
            why = getattr(cause, "strerror", None) or cause
            raise ConfigError(f"cannot listen on {settings.address}: {why}", ("admin", "address")) from None

    def take(self, opened: Open | None) -> None:
        """
        Let this be the port, and no other.

        @param opened: what L{open} gave.
        """
        before, self.opened = self.opened, opened
        if before is not None and before is not opened:
            self.drop(before)

    def drop(self, opened: Open | None) -> Deferred[Any]:
        """
        Close what L{open} gave, unless it is in use.  Answers under way end by themselves, soon.

        @return: fires when nothing listens there any more.
        """
        if opened is None or opened is self.opened:
            return succeed(None)
        return maybeDeferred(opened.port.stopListening)

    def close(self) -> Deferred[Any]:
        """Stop, at once, also what is under way; fires when nothing listens there any more."""
        opened, self.opened = self.opened, None
        if opened is not None:
            opened.site.abort()
        return self.drop(opened)

    def _listen(self, where: address.Listen, site: Site) -> IListeningPort:
        reactor = self._reactor
        port: IListeningPort
        if not where.path:
            port = quietly(reactor.listenTCP, where.port, site, backlog=CONNECTIONS, interface=where.host)
            return port
        leftover.clear(where.path)
        try:
            port = quietly(reactor.listenUNIX, where.path, site, backlog=CONNECTIONS, mode=MODE, wantPID=True)
        except CannotListenError as error:
            if isinstance(error.socketError, OSError):  # it has the lock, and would never let us try again
                Path(f"{where.path}.lock").unlink(missing_ok=True)
            raise
        return port
