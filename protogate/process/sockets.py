"""
The listening sockets of a supervisor, which keeps them open for its life: workers come and go.

Rules
- Each worker has a socket of its own for each TCP address (C{SO_REUSEPORT}): the kernel spreads connections over them,
  and what waits in the queue of one whose worker died is there for the next one.  Where that cannot be, and for UNIX
  sockets and those that a service manager opened, all workers accept from one.
- A socket is never closed while its address is wanted: connections may wait in its queue.  When there are fewer
  workers, one of them has two.
- L{Sockets.open} can fail, and then nothing has changed; L{Sockets.take} cannot.

Must not know: who accepts.
"""

from __future__ import annotations

import os
import socket
import stat
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final

from msgspec import Struct
from twisted.internet.address import IPv4Address, IPv6Address, UNIXAddress
from twisted.python.lockfile import FilesystemLock

from protogate.config import address, model
from protogate.config.faults import ConfigFaults
from protogate.downstream import leftover
from protogate.downstream.ports import BACKLOG, Key, cannot_listen, key_of
from protogate.errors import ConfigError
from protogate.process.activation import Inherited, match

REUSE: Final = hasattr(socket, "SO_REUSEPORT")
MODE: Final = 0o666
"""Of UNIX sockets, as Twisted makes them: the folder says who may come."""


@dataclass(slots=True)
class Group:
    """
    The sockets of one address.

    @ivar shared: all workers accept from each.
    """

    sockets: list[socket.socket]
    shared: bool


@dataclass(slots=True)
class Opening:
    """
    What L{Sockets.open} made for one configuration.

    @ivar names: which group is for which listener.
    @ivar fresh: what was not open before.
    """

    names: dict[str, Key] = field(default_factory=dict)
    groups: dict[Key, Group] = field(default_factory=dict)
    fresh: list[tuple[Key, socket.socket]] = field(default_factory=list)

    def share(self, slot: int, workers: int) -> dict[str, list[int]]:
        """Descriptors for one of so many workers, by the name of the listener."""
        found = {}
        for name, key in self.names.items():
            group = self.groups[key]
            mine = group.sockets if group.shared else group.sockets[slot::workers]
            found[name] = [each.fileno() for each in mine]
        return found


class Kept(Struct):
    """The sockets of one address, for the program that this process becomes."""

    host: str
    port: int
    path: str
    name: str
    shared: bool
    descriptors: list[int]
    listeners: list[str]


class Sockets:
    """
    @param inherited: what a service manager opened.
    """

    def __init__(self, inherited: Sequence[Inherited] = ()) -> None:
        self._inherited = inherited
        self._taken = Opening()

    @property
    def groups(self) -> dict[Key, Group]:
        """What is open now."""
        return self._taken.groups

    def open(self, entries: Sequence[model.Listener], workers: int) -> Opening:
        """
        All sockets of a configuration: those that are open already, and new ones.

        @raise ConfigFaults: all that cannot be opened; nothing has changed then.
        """
        opening = Opening()
        faults: list[ConfigError] = []
        given = self._claim(entries)
        for index, entry in enumerate(entries):
            key = key_of(entry)
            group = self.groups.get(key)
            try:
                if group is None:
                    group = _inherit(given[entry.name]) if entry.name in given else _first(key[0], workers)
                    opening.fresh += [(key, each) for each in group.sockets]
                elif not group.shared and len(group.sockets) < workers:
                    group, more = _grown(group, workers)
                    opening.fresh += [(key, each) for each in more]
            except OSError as error:
                faults.append(cannot_listen(index, entries, error))
                continue
            opening.names[entry.name], opening.groups[key] = key, group
        if faults:
            self.forget(opening)
            raise ConfigFaults(faults)
        return opening

    def take(self, opening: Opening) -> None:
        """Keep these, and close the others: whoever had them accepts nothing any more."""
        before, self._taken = self._taken, opening
        opening.fresh = []
        for key, group in before.groups.items():
            if key not in opening.groups:
                _close(key, group.sockets)

    def forget(self, opening: Opening) -> None:
        """It is not to be taken after all."""
        for key, each in opening.fresh:
            _close(key, [each])
        opening.fresh = []

    def close(self) -> None:
        """Close all."""
        self.take(Opening())

    def keep(self) -> list[Kept]:
        """All of them, for the program that this process becomes."""
        kept = []
        for key, group in self._taken.groups.items():
            where, name = key
            listeners = [listener for listener, its in self._taken.names.items() if its == key]
            descriptors = [each.fileno() for each in group.sockets]
            kept.append(Kept(where.host, where.port, where.path, name, group.shared, descriptors, listeners))
        return kept

    def find(self, kept: Sequence[Kept]) -> Opening:
        """Take what L{keep} gave in the program before."""
        found = Opening()
        for each in kept:
            key = address.Listen(each.host, each.port, each.path), each.name
            found.groups[key] = Group([socket.socket(fileno=number) for number in each.descriptors], each.shared)
            found.names.update(dict.fromkeys(each.listeners, key))
        self.take(found)
        return found

    @property
    def addresses(self) -> dict[str, Any]:
        """Where each listener really listens, by its name."""
        groups = self._taken.groups
        return {name: _address(groups[key].sockets[0]) for name, key in self._taken.names.items()}

    def _claim(self, entries: Sequence[model.Listener]) -> dict[str, socket.socket]:
        """Which inherited sockets are whose: asked once, for the first configuration."""
        inherited, self._inherited = self._inherited, ()
        return match(inherited, entries) if inherited else {}


def _address(bound: socket.socket) -> IPv4Address | IPv6Address | UNIXAddress:
    name = bound.getsockname()
    if bound.family == socket.AF_UNIX:
        return UNIXAddress(name)
    return (IPv6Address if bound.family == socket.AF_INET6 else IPv4Address)("TCP", *name[:2])


def _inherit(given: socket.socket) -> Group:
    return Group([given], shared=True)


def _first(where: address.Listen, workers: int) -> Group:
    """@raise OSError: it cannot be opened."""
    if where.path:
        return Group([_unix(where.path)], shared=True)
    reuse = REUSE and workers > 1
    if REUSE and where.port:
        # Two programs may have a port together when both say so: make sure that nobody has it.
        _tcp(where.host, where.port, reuse=False, listen=False).close()
    first = _tcp(where.host, where.port, reuse=REUSE)
    try:
        return Group([first, *(_more(first, workers - 1) if reuse else ())], shared=not REUSE)
    except OSError:
        first.close()
        raise


def _grown(group: Group, workers: int) -> tuple[Group, list[socket.socket]]:
    """With a socket for each of so many workers, and what is new in it."""
    try:
        more = _more(group.sockets[0], workers - len(group.sockets))
    except OSError:  # another user may not: the first were opened before the user was changed
        return Group(group.sockets, shared=True), []
    return Group([*group.sockets, *more], shared=False), more


def _more(first: socket.socket, number: int) -> list[socket.socket]:
    """So many more at the same address.  @raise OSError: none was opened."""
    host, port, *_ = first.getsockname()
    made: list[socket.socket] = []
    try:
        for _ in range(number):
            made.append(_tcp(host, port, reuse=True))
    except OSError:
        for each in made:
            each.close()
        raise
    return made


def _tcp(host: str, port: int, reuse: bool, listen: bool = True) -> socket.socket:
    made = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM)
    try:
        made.setblocking(False)
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if reuse:
            made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        made.bind((host, port))
        if listen:
            made.listen(BACKLOG)
    except OSError:
        made.close()
        raise
    return made


def _unix(path: str) -> socket.socket:
    leftover.clear(path)
    lock = FilesystemLock(f"{path}.lock")
    if not lock.lock():
        raise OSError(0, "Cannot acquire lock")
    made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        if not lock.clean:  # its owner was killed, and so left it
            with suppress(OSError):
                if stat.S_ISSOCK(os.stat(path).st_mode):
                    os.remove(path)
        made.setblocking(False)
        made.bind(path)
        os.chmod(path, MODE)
        made.listen(BACKLOG)
    except OSError:
        made.close()
        lock.unlock()
        raise
    return made


def _close(key: Key, sockets: Sequence[socket.socket]) -> None:
    where, _ = key
    for each in sockets:
        each.close()
    if where.path:
        with suppress(OSError, ValueError):  # a service manager's has no lock, and stays where it is
            FilesystemLock(f"{where.path}.lock").unlock()
            os.unlink(where.path)
