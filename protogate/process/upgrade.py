"""
New code in the place of the old, without a connection lost: the supervisor becomes another program.

It executes the new code in its own process, rather than to start a second supervisor that takes over.  So its process
id stays what a pid file, a service manager and a container know it by, and so do its children, its standard output, its
user and its rights; a terminal or a container does not see it end.  The price is that there is no way back once it is
done.  So the new code is tried before (L{rehearse}): in a process of its own, it does all that it will have to do until
its event loop runs.  And it does not need its workers at once: the old ones serve until new ones do.

Rules
- Nothing of the old program is touched before the rehearsal was a success.
- Signals that come in between are held back by the kernel, until the new program has its handlers.
- A newer program reads the C{State} of an older one: fields are only added, with defaults.
"""

from __future__ import annotations

import os
import signal
import sys
import tempfile
from contextlib import suppress
from typing import Any, Final

import msgspec
from msgspec import Struct
from twisted.internet.defer import Deferred

from protogate.config.stamp import Stamp
from protogate.process.child import Begun
from protogate.process.sockets import Kept
from protogate.process.spawn import LINE, Watched, how, spawn

TRIAL: Final = 60.0
"""Seconds that a rehearsal may take."""
TAIL: Final = 4000
"""Bytes of what it said, at the end, that are told."""
HELD: Final = frozenset((signal.SIGHUP, signal.SIGTERM, signal.SIGINT, signal.SIGUSR1, signal.SIGUSR2))
"""What is held back while one program becomes the other."""


class Begin(Struct):
    """
    How this process was started, and is to be again.

    @ivar twistd: by twistd, else by C{protogate run}.
    @ivar arguments: of twistd.
    @ivar reactor: that was asked for; empty = none.
    @ivar environ: variables for the service manager, which are not in the environment any more.
    """

    twistd: bool
    arguments: list[str] = []
    reactor: str = ""
    environ: dict[str, str] = {}


class State(Struct):
    """
    What the new program has to know of the old one.

    @ivar path: of the configuration, and C{text}, C{stamp}, C{workers}: that is in force.
    @ivar counted: by those who are gone.
    """

    begin: Begin
    path: str
    text: bytes
    stamp: Stamp | None
    workers: int
    sockets: list[Kept]
    children: list[Begun]
    counted: dict[str, Any]
    log: tuple[str, int] | None = None
    """Of the access log: its name and descriptor."""
    posts: dict[str, dict[str, Any]] = {}
    """On the board, and how far its terms were."""
    term: int = 0


def arguments(*options: str) -> list[str]:
    """
    The command line of a module of this package, with the interpreter that runs now.

    The folder that a process is in is where Python finds modules only if it has been so far.
    """
    here = {"", os.getcwd()} & set(sys.path)
    return [sys.executable, *([] if here else ["-P"]), "-m", *options]


def command(number: int, *options: str) -> list[str]:
    """The command line of the new program, which finds its state on that descriptor."""
    return arguments("protogate.process.resume", "--state", str(number), *options)


def rehearse(reactor: Any, state: State) -> Deferred[str]:
    """Try the new program.  Fires with why it will not do, for people; empty = it will."""
    done: Deferred[str] = Deferred()
    with _written(state) as written:
        said = _file()
        try:
            pid = spawn(command(LINE, "--rehearse"), os.environ, written.fileno(), said.fileno())
        except OSError as error:
            said.close()
            done.callback(f"it cannot be started: {error}")
            return done

    def late() -> None:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)

    limit = reactor.callLater(TRIAL, late)

    def ended(status: int) -> None:
        why = ""
        if status:
            said.seek(0)
            why = f"{how(status)}\n{said.read()[-TAIL:].decode('utf-8', 'replace').strip()}"
        said.close()
        if limit.active():
            limit.cancel()
        else:
            why = f"it took more than {TRIAL:g} s"
        done.callback(why)

    Watched(pid, ended)
    return done


def become(state: State) -> None:
    """
    Be the new program.  Does not return.

    @raise OSError: it cannot be executed; signals are no longer held back, and nothing else has changed.
    """
    written = _written(state)
    kept = [written.fileno(), *_descriptors(state)]
    signal.pthread_sigmask(signal.SIG_BLOCK, HELD)
    for number in kept:
        os.set_inheritable(number, True)
    sys.stdout.flush()
    sys.stderr.flush()
    line = command(written.fileno())
    try:
        os.execv(line[0], line)
    except OSError:
        for number in kept:
            os.set_inheritable(number, False)
        written.close()
        signal.pthread_sigmask(signal.SIG_UNBLOCK, HELD)
        raise


def read(number: int) -> State:
    """The state on that descriptor, which is closed."""
    with open(number, "rb") as file:
        file.seek(0)
        return msgspec.msgpack.decode(file.read(), type=State)


def taken(state: State) -> None:
    """The new program has what is in the state: it is for no child."""
    for number in _descriptors(state):
        os.set_inheritable(number, False)


def _descriptors(state: State) -> list[int]:
    found = [] if state.log is None else [state.log[1]]
    for each in state.sockets:
        found += each.descriptors
    for child in state.children:
        found += [child.line, child.errors]
    return found


def begun() -> None:
    """The new program has its handlers: signals that came meanwhile are delivered."""
    signal.pthread_sigmask(signal.SIG_UNBLOCK, HELD)


def _file() -> Any:
    """A file without a name; in memory where that can be, as there may be no folder to write in."""
    if hasattr(os, "memfd_create"):
        return open(os.memfd_create("protogate"), "w+b")
    return tempfile.TemporaryFile()


def _written(state: State) -> Any:
    file = _file()
    file.write(msgspec.msgpack.encode(state))
    file.flush()
    return file
