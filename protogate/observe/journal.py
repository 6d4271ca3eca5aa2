"""
The access log, over all configurations.

Rules
- The same file stays open; the rest of its settings is taken over.
- L{Journal.open} can fail, and then nothing has changed; L{Journal.take} cannot.

Must not know: what a record is.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from twisted.internet.defer import Deferred, succeed

from protogate.config import model
from protogate.observe.accesslog import AccessLog, cannot_open

if TYPE_CHECKING:
    from protogate.exchange.exchange import Exchange


class Journal:
    """
    @param reactor: whose threads end what is no longer written.
    @param count: told of each C{access_log_dropped}.
    @ivar log: what is written now; None = nothing.
    """

    def __init__(self, reactor: Any, count: Callable[[str], None]) -> None:
        self._reactor, self._count = reactor, count
        self.log: AccessLog | None = None

    def open(self, settings: model.AccessLog | None, descriptor: int | None = None) -> AccessLog | None:
        """
        The log of a configuration: the one that is written already, another one, or none.

        @param descriptor: of its file, where somebody else opened it; it is ours from now on.
        @raise ConfigError: it cannot be opened.
        """
        same = self.log is not None and settings is not None and self.log.file == settings.file
        if settings is None or same:
            if descriptor is not None:
                os.close(descriptor)
            return self.log if same else None
        try:
            return AccessLog(settings.file, count=self._count, reactor=self._reactor, descriptor=descriptor)
        except OSError as error:
            raise cannot_open(error) from None

    def take(
        self,
        log: AccessLog | None,
        settings: model.AccessLog | None,
        always: Callable[[Exchange], bool] | None,
    ) -> None:
        """
        Write this one, and no other.

        @param log: what L{open} gave for these settings.
        @param always: see L{AccessLog}.
        """
        old, self.log = self.log, log
        if log is not None and settings is not None:
            log.sample, log.always, log.queue = float(settings.sample), always, int(settings.queue)
        if old is not None and old is not log:
            old.stop()

    def drop(self, log: AccessLog | None, running: bool) -> None:
        """
        What L{open} gave is not to be written after all.

        @param running: whether there is an event loop, which would be held up, and to stop it on.
        """
        if log is not None and log is not self.log:
            if running:
                log.stop()
            else:
                log.close()

    def stop(self) -> Deferred[None]:
        """Write nothing more; fires when the last lines are written."""
        log, self.log = self.log, None
        return succeed(None) if log is None else log.stop()
