"""
Sockets that the service manager opened for us: sd_listen_fds(3), without libsystemd.

Rules
- Descriptors are ours only where C{LISTEN_PID} says so.  The variables are taken out of the environment in any case: a
  child would take its own descriptors for these.
- A descriptor serves the listener whose address it has, otherwise the one whose name it has (C{FileDescriptorName=}):
  then the manager's word on the address is the one that counts.
- What is no listening stream socket, and what no listener wants, is closed, with a warning: nobody would ever accept
  what arrives there.
"""

from __future__ import annotations

import os
import re
import socket
import stat
from collections.abc import MutableMapping, Sequence
from dataclasses import dataclass
from typing import Final

from twisted.logger import Logger

from protogate.config import address, model

FIRST: Final = 3
"""The first descriptor that is handed over (SD_LISTEN_FDS_START)."""
MOST: Final = 4096
"""More are not believed."""
UNNAMED: Final = ("", "unknown", "connection", "stored")
"""What a manager calls a descriptor that has no name."""

_NUMBER: Final = re.compile(r"[0-9]{1,9}", re.ASCII)
_FAMILIES: Final = (socket.AF_INET, socket.AF_INET6, socket.AF_UNIX)

_log = Logger()


@dataclass(frozen=True, slots=True)
class Inherited:
    """
    A listening socket that was there before us.

    @ivar name: of the descriptor, or empty.
    @ivar where: its address; None = one that no configuration can write, such as an abstract UNIX socket.
    @ivar every: it takes IPv4 connections, too (an IPv6 socket on C{::} that is not for IPv6 alone).
    """

    socket: socket.socket
    name: str
    where: address.Listen | None
    every: bool = False


def take(environ: MutableMapping[str, str] = os.environ, pid: int | None = None, first: int = FIRST) -> list[Inherited]:
    """
    The listening sockets that were handed to this process; the environment no longer has the variables afterwards.

    They are non-blocking, and closed when another program is executed.

    @param pid: who we are; None = this process.
    @param first: the first descriptor.
    """
    ours, number, names = (environ.pop(name, "") for name in ("LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES"))
    if not number or ours != str(os.getpid() if pid is None else pid):
        return []
    if not _NUMBER.fullmatch(number) or int(number) > MOST:
        _log.warn("LISTEN_FDS={number!r} is no number of sockets, none is taken over", number=number)
        return []
    called = names.split(":") if names else []
    found = []
    for at in range(int(number)):
        name = called[at] if at < len(called) else ""
        made = _socket(first + at, "" if name in UNNAMED else name)
        if made is not None:
            found.append(made)
    return found


def match(inherited: Sequence[Inherited], listeners: Sequence[model.Listener]) -> dict[str, socket.socket]:
    """
    Which socket serves which listener, by the listener's name.  The others are closed.

    @param listeners: those that have no socket yet.
    """
    left = list(inherited)
    found: dict[str, socket.socket] = {}
    for fits in (_same, _wider, _named):
        for listener in listeners:
            if listener.name in found:
                continue
            one = next((each for each in left if fits(each, listener)), None)
            if one is not None:
                left.remove(one)
                found[listener.name] = one.socket
                if fits is _named:
                    _log.info(
                        "listener {name} is on {where}, as the service manager has it, instead of {address}",
                        name=listener.name,
                        where=_shown(one),
                        address=listener.address,
                    )
    for one in left:
        _log.warn(
            "the socket {where} ({name!r}) that was handed over is closed: no listener has its address or its name",
            where=_shown(one),
            name=one.name,
        )
        one.socket.close()
    return found


def _same(one: Inherited, listener: model.Listener) -> bool:
    where = address.listen(listener.address)
    return bool(where.port or where.path) and one.where is not None and _plain(one.where) == _plain(where)


def _wider(one: Inherited, listener: model.Listener) -> bool:
    """A port alone (C{ListenStream=8080}) is every address of both families: more than C{0.0.0.0}, and meant by it."""
    where = address.listen(listener.address)
    return one.every and one.where is not None and where == address.Listen("0.0.0.0", one.where.port)


def _named(one: Inherited, listener: model.Listener) -> bool:
    return bool(one.name) and one.name == listener.name


def _plain(where: address.Listen) -> address.Listen:
    return address.Listen("127.0.0.1", where.port) if where.host == "localhost" else where


def _socket(descriptor: int, name: str) -> Inherited | None:
    """One descriptor, or None, and it is closed, when nobody can listen on it."""
    try:
        status = os.fstat(descriptor)
    except OSError as error:
        _log.warn("descriptor {descriptor} that was handed over: {why}", descriptor=descriptor, why=error.strerror)
        return None
    made = None
    why = "it is no socket"
    if stat.S_ISSOCK(status.st_mode):
        made = socket.socket(fileno=descriptor)
        why = _unfit(made)
    if made is None or why:
        _log.warn(
            "descriptor {descriptor} ({name!r}) that was handed over is closed: {why}",
            descriptor=descriptor,
            name=name,
            why=why,
        )
        os.close(descriptor if made is None else made.detach())
        return None
    made.setblocking(False)
    made.set_inheritable(False)
    return Inherited(made, name, _where(made), _every(made))


def _unfit(made: socket.socket) -> str:
    """Why it cannot be listened on, or empty."""
    if made.family not in _FAMILIES or made.getsockopt(socket.SOL_SOCKET, socket.SO_TYPE) != socket.SOCK_STREAM:
        return "it is no stream socket (ListenStream=)"
    if not made.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
        return "it does not listen (Accept=yes is for services that take one connection each)"
    return ""


def _where(made: socket.socket) -> address.Listen | None:
    name = made.getsockname()
    if made.family == socket.AF_UNIX:
        path = os.fsdecode(name)
        return address.Listen("", 0, os.path.normpath(path)) if path.startswith("/") else None
    host = address.host_name(f"[{name[0]}]" if made.family == socket.AF_INET6 else name[0])
    return address.Listen(host, name[1])


def _every(made: socket.socket) -> bool:
    return (
        made.family == socket.AF_INET6
        and made.getsockname()[0] == "::"
        and not made.getsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY)
    )


def _shown(one: Inherited) -> str:
    """As a configuration writes it, where it can."""
    if one.where is None:
        return ascii(one.socket.getsockname())
    return f"unix:{one.where.path}" if one.where.path else address.spelled(one.where.host, one.where.port)
