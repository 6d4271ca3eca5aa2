"""
The open ports of a gateway, over all its configurations.

Rules
- A listener is the same one after a reload when its address is: its port stays open, its connections stay.  (Those that
  let the kernel choose a port are told apart by their names.)
- How a port is opened is for whoever makes this to say: a process by itself binds (L{Binding}), a worker is handed
  sockets that others bound, and perhaps several for one listener.
- L{Ports.open} can fail, and then nothing has changed; L{Ports.take} cannot.
- A port that is no longer wanted is closed at once; its connections end when their requests have ended, or at the
  deadline.  What the kernel had accepted for it would be reset: it is accepted before, and served like the others.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from errno import EADDRINUSE
from pathlib import Path
from select import POLLIN, poll
from types import MappingProxyType
from typing import Any, Final, Protocol, cast

from twisted.internet.address import UNIXAddress
from twisted.internet.defer import Deferred, DeferredList, maybeDeferred
from twisted.internet.error import CannotListenError
from twisted.internet.interfaces import IListeningPort, IReadDescriptor

from protogate.config import address, model
from protogate.config.faults import ConfigFaults
from protogate.context import Context
from protogate.downstream import leftover
from protogate.downstream.listener import Listener
from protogate.downstream.proxies import Proxies
from protogate.errors import ConfigError
from protogate.interfaces import IStreamCodec
from protogate.observe.counters import Counters
from protogate.observe.events import quietly
from protogate.tls.server import Server
from protogate.wheel import Wheel

BACKLOG: Final = 4096
"""Connections that the kernel may hold for us; it cuts this to its own limit (somaxconn)."""

Key = tuple[address.Listen, str]


class Front(Protocol):
    """The L{IService} that a listener's codecs see; its name follows that of the listener."""

    name: str


class Opener(Protocol):
    """How ports are opened."""

    def open(self, entry: model.Listener, factory: Listener, had: Sequence[IListeningPort]) -> Sequence[IListeningPort]:
        """
        The ports of one listener; those of C{had}, which are open, are used again where they fit.

        @raise OSError: it cannot be done, and no port is left that was not there before.
        @raise CannotListenError: likewise.
        """


@dataclass(slots=True)
class Open:
    """
    What is open for one listener.

    @ivar paused: nothing is accepted for now; who comes waits in the queue of the kernel.
    """

    listener: Listener
    front: Front
    ports: Sequence[IListeningPort] = ()
    paused: bool = False

    def pause(self) -> None:
        """Accept nothing; once more does no harm."""
        self.paused = True
        for port in self.ports:
            cast("Any", port).stopReading()

    def resume(self) -> None:
        """Accept again."""
        self.paused = False
        for port in self.ports:
            cast("Any", port).startReading()


Opened = dict[Key, tuple[Open, Sequence[IListeningPort]]]
"""What is, or is to be, open for each listener."""


class Ports:
    """
    @param front: makes what serves the requests of the listener of that name.
    @param opener: None = as a process by itself.
    @ivar opened: what is open now.
    @ivar retired: what is on its way out, by what fires when it is gone.
    """

    def __init__(self, reactor: Any, wheel: Wheel, front: Callable[[str], Any], opener: Opener | None = None) -> None:
        self._wheel, self._front = wheel, front
        self._opener = Binding(reactor) if opener is None else opener
        self.opened: dict[Key, Open] = {}
        self.retired: dict[Deferred[Any], Open] = {}

    @property
    def addresses(self) -> dict[str, Any]:
        """Where each listener really listens (a port 0 is chosen by the kernel), by its name."""
        return {one.listener.name: one.ports[0].getHost() for one in self.opened.values()}

    def open(self, entries: Sequence[model.Listener]) -> Opened:
        """
        The ports of a configuration: those that are open already, and new ones.

        @raise ConfigFaults: all that cannot be opened; none is left open then that was not open before.
        """
        opened: Opened = {}
        faults: list[ConfigError] = []
        for index, entry in enumerate(entries):
            key = key_of(entry)
            one = self.opened.get(key)
            if one is None:
                front = self._front(entry.name)
                one = Open(Listener(entry.name, (), front, Context(self._wheel)), front)
            try:
                opened[key] = one, self._opener.open(entry, one.listener, one.ports)
            except (CannotListenError, OSError) as error:  # the latter from the lock file of a UNIX socket
                faults.append(cannot_listen(index, entries, error))
        if faults:
            for one, ports in opened.values():
                _stop(ports, one.ports)
            raise ConfigFaults(faults)
        return opened

    def take(
        self,
        opened: Opened,
        config: model.Config,
        codecs: Mapping[str, IStreamCodec],
        counters: Counters,
        tls: Mapping[str, Server] = MappingProxyType({}),
    ) -> None:
        """
        Serve these ports, and no others, as their configuration says.

        @param opened: what L{open} gave for it.
        @param tls: what the listeners of these names offer over TLS; the others have none.
        """
        gateway = config.gateway
        limits, timeouts = gateway.limits.frozen(), gateway.timeouts.frozen()
        for entry in config.listeners:
            one, ports = opened[key_of(entry)]
            before, one.ports = one.ports, ports
            _stop(before, ports)
            listener = one.listener
            listener.name = one.front.name = entry.name
            listener.codecs = [codecs[name] for name in entry.protocols]
            listener.tls = tls.get(entry.name)
            listener.proxies = None if entry.proxy_protocol is None else Proxies(entry.proxy_protocol)
            context = listener.context
            context.limits, context.timeouts = limits, timeouts
            context.count = counters.scope("listener", entry.name).count
        counters.keep("listener", [entry.name for entry in config.listeners])
        had, self.opened = self.opened, {key: one for key, (one, _) in opened.items()}
        for key, gone in had.items():
            if key not in opened:
                self._retire(gone, float(gateway.drain))

    def secure(self, tls: Mapping[str, Server]) -> None:
        """From now on the listeners of these names offer this over TLS."""
        for one in self.opened.values():
            one.listener.tls = tls.get(one.listener.name, one.listener.tls)

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

    def _retire(self, gone: Open, within: float) -> None:
        drained = _stop(gone.ports, ()).addCallback(lambda _: gone.listener.drain())
        last = self._wheel.after(within, gone.listener.abort)
        drained.addCallback(lambda _: last.close())
        ends: Deferred[Any] = DeferredList([drained])
        self.retired[ends] = gone
        ends.addCallback(lambda _: self.retired.pop(ends, None))


class Binding:
    """Opens ports by binding sockets of its own."""

    def __init__(self, reactor: Any) -> None:
        self._reactor = reactor

    def open(self, entry: model.Listener, factory: Listener, had: Sequence[IListeningPort]) -> Sequence[IListeningPort]:
        """L{Opener}."""
        if had:
            return had
        where = address.listen(entry.address)
        if not where.path:
            return [quietly(self._reactor.listenTCP, where.port, factory, backlog=BACKLOG, interface=where.host)]
        leftover.clear(where.path)
        try:
            return [quietly(self._reactor.listenUNIX, where.path, factory, backlog=BACKLOG, wantPID=True)]
        except CannotListenError as error:
            if isinstance(error.socketError, OSError):  # it has the lock, and would never let us try again
                Path(f"{where.path}.lock").unlink(missing_ok=True)
            raise


def cannot_listen(index: int, entries: Sequence[model.Listener], error: Exception) -> ConfigError:
    """What is wrong with the address of one of these listeners."""
    cause = error.socketError if isinstance(error, CannotListenError) else error
    why = getattr(cause, "strerror", None) or cause
    entry = entries[index]
    if getattr(cause, "errno", None) == EADDRINUSE:
        for at, other in enumerate(entries):
            if _both(address.listen(entry.address), address.listen(other.address)):
                why = f"{why}; listeners[{at}] has the port: [::] takes IPv4 as well, so leave 0.0.0.0 out"
    return ConfigError(f"cannot listen on {entry.address}: {why}", ("listeners", index, "address"))


def _both(one: address.Listen, other: address.Listen) -> bool:
    """Whether one is every IPv4 address and the other every IPv6 address, which most systems take for both."""
    return bool(one.port) and one.port == other.port and {one.host, other.host} == {"0.0.0.0", "::"}


def _stop(ports: Sequence[IListeningPort], but: Sequence[IListeningPort]) -> Deferred[Any]:
    """Close ports, except some; fires when they are closed, and what they had accepted is with its listener."""
    ending = [port for port in ports if port not in but]
    for port in ending:
        accept(port)
    return DeferredList([maybeDeferred(port.stopListening) for port in ending])


def accept(port: Any) -> None:
    """Have a port accept all that waits for it: in turns of its own, and no more than a queue can hold."""
    if not IReadDescriptor.providedBy(port) or port.fileno() < 0:
        return
    looks = poll()
    looks.register(port.fileno(), POLLIN)
    for _ in range(BACKLOG):
        if not looks.poll(0):
            return
        port.doRead()


def shown(where: Any) -> str:
    """An address as a configuration writes it: C{127.0.0.1:8080}, C{[::1]:8080}, C{unix:/run/gateway.sock}."""
    if isinstance(where, UNIXAddress):
        return f"unix:{os.fsdecode(where.name or b'')}"
    return address.spelled(where.host, where.port)


def key_of(entry: model.Listener) -> Key:
    """What makes a listener the same one after a reload."""
    where = address.listen(entry.address)
    return where, entry.name if not where.port and not where.path else ""
