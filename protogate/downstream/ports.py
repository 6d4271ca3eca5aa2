"""
The open ports of a gateway, over all its configurations.

Rules
- A listener is the same one after a reload when its address is: its port stays open, its connections stay.  (Those that
  let the kernel choose a port are told apart by their names.)
- L{Ports.open} can fail, and then nothing has changed; L{Ports.take} cannot.
- A port that is no longer wanted is closed at once; its connections end when their requests have ended, or at the
  deadline.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol

from twisted.internet.address import UNIXAddress
from twisted.internet.defer import Deferred, DeferredList, maybeDeferred
from twisted.internet.error import CannotListenError
from twisted.internet.interfaces import IListeningPort

from protogate.config import address, model
from protogate.config.faults import ConfigFaults
from protogate.context import Context
from protogate.downstream.listener import Listener
from protogate.errors import ConfigError
from protogate.interfaces import IStreamCodec
from protogate.observe.counters import Counters
from protogate.observe.events import quietly
from protogate.wheel import Wheel

BACKLOG: Final = 4096
"""Connections that the kernel may hold for us; it cuts this to its own limit (somaxconn)."""

Key = tuple[address.Listen, str]


class Front(Protocol):
    """The L{IService} that a listener's codecs see; its name follows that of the listener."""

    name: str


@dataclass(slots=True)
class Open:
    """One open port."""

    port: IListeningPort
    listener: Listener
    front: Front


class Ports:
    """
    @param front: makes what serves the requests of the listener of that name.
    @ivar opened: what is open now.
    @ivar retired: what is on its way out, by what fires when it is gone.
    """

    def __init__(self, reactor: Any, wheel: Wheel, front: Callable[[str], Any]) -> None:
        self._reactor, self._wheel, self._front = reactor, wheel, front
        self.opened: dict[Key, Open] = {}
        self.retired: dict[Deferred[Any], Open] = {}

    @property
    def addresses(self) -> dict[str, Any]:
        """Where each listener really listens (a port 0 is chosen by the kernel), by its name."""
        return {one.listener.name: one.port.getHost() for one in self.opened.values()}

    def open(self, entries: Sequence[model.Listener]) -> dict[Key, Open]:
        """
        The ports of a configuration: those that are open already, and new ones.

        @raise ConfigFaults: all that cannot be opened; none is left open then that was not open before.
        """
        opened: dict[Key, Open] = {}
        faults: list[ConfigError] = []
        for index, entry in enumerate(entries):
            key = _key(entry)
            found = self.opened.get(key)
            try:
                opened[key] = self._listen(entry) if found is None else found
            except (CannotListenError, OSError) as error:  # the latter from the lock file of a UNIX socket
                cause = error.socketError if isinstance(error, CannotListenError) else error
                why = getattr(cause, "strerror", None) or cause
                faults.append(ConfigError(f"cannot listen on {entry.address}: {why}", ("listeners", index, "address")))
        if faults:
            for key, made in opened.items():
                if key not in self.opened:
                    made.port.stopListening()
            raise ConfigFaults(faults)
        return opened

    def take(
        self, opened: dict[Key, Open], config: model.Config, codecs: Mapping[str, IStreamCodec], counters: Counters
    ) -> None:
        """
        Serve these ports, and no others, as their configuration says.

        @param opened: what L{open} gave for it.
        """
        gateway = config.gateway
        limits, timeouts = gateway.limits.frozen(), gateway.timeouts.frozen()
        for entry in config.listeners:
            one = opened[_key(entry)]
            listener = one.listener
            listener.name = one.front.name = entry.name
            listener.codecs = [codecs[name] for name in entry.protocols]
            context = listener.context
            context.limits, context.timeouts = limits, timeouts
            context.count = counters.scope("listener", entry.name).count
        counters.keep("listener", [entry.name for entry in config.listeners])
        before, self.opened = self.opened, opened
        for key, gone in before.items():
            if key not in opened:
                self._retire(gone, float(gateway.drain))

    def close(self, within: float) -> Deferred[Any]:
        """
        Close all; fires when the last connection has ended, in at most so many seconds: also for what an earlier
        configuration gave more time.
        """
        opened, self.opened = self.opened, {}
        for one in opened.values():
            self._retire(one, within)
        last = self._wheel.after(within, self.abort)
        ends: Deferred[Any] = DeferredList(list(self.retired))
        return ends.addCallback(lambda _: last.close())

    def abort(self) -> None:
        """Wait no longer for what is on its way out."""
        for gone in list(self.retired.values()):
            gone.listener.abort()

    def _listen(self, entry: model.Listener) -> Open:
        front = self._front(entry.name)
        listener = Listener(entry.name, (), front, Context(self._wheel))
        where = address.listen(entry.address)
        if where.path:
            try:
                port = quietly(self._reactor.listenUNIX, where.path, listener, backlog=BACKLOG, wantPID=True)
            except CannotListenError as error:
                if isinstance(error.socketError, OSError):  # it has the lock, and would never let us try again
                    Path(f"{where.path}.lock").unlink(missing_ok=True)
                raise
        else:
            port = quietly(self._reactor.listenTCP, where.port, listener, backlog=BACKLOG, interface=where.host)
        return Open(port, listener, front)

    def _retire(self, gone: Open, within: float) -> None:
        stopped: Deferred[Any] = maybeDeferred(gone.port.stopListening)
        drained: Deferred[Any] = gone.listener.drain()
        last = self._wheel.after(within, gone.listener.abort)
        drained.addCallback(lambda _: last.close())
        ends: Deferred[Any] = DeferredList([stopped, drained])
        self.retired[ends] = gone
        ends.addCallback(lambda _: self.retired.pop(ends, None))


def shown(where: Any) -> str:
    """An address as a configuration writes it: C{127.0.0.1:8080}, C{[::1]:8080}, C{unix:/run/gateway.sock}."""
    if isinstance(where, UNIXAddress):
        return f"unix:{os.fsdecode(where.name or b'')}"
    return address.spelled(where.host, where.port)


def _key(entry: model.Listener) -> Key:
    """What makes a listener the same one after a reload."""
    where = address.listen(entry.address)
    return where, entry.name if not where.port and not where.path else ""
