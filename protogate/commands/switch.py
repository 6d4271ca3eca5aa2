"""
C{protogate switch}: which switches of a configuration are on, and turning one on or off.

It only writes the list that the entries of C{degrade} follow: gateways see that for themselves.  Who may write the file
may switch.

Rules
- The list is written anew beside the old one, with its mode and, where we may, its owner, and renamed: nobody reads
  half of it.  Two of us wait for each other.
- Remarks and other switches stay as they are.
"""

from __future__ import annotations

import fcntl
import os
import tempfile
from argparse import Namespace
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final, TextIO

from protogate.build import Build, build
from protogate.commands.registry import add, complain
from protogate.config.faults import ConfigFaults
from protogate.config.stamp import read
from protogate.governance.degrade import Degrade
from protogate.governance.degradewhen import named, switches
from protogate.governance.sources import LARGEST

if TYPE_CHECKING:
    from protogate.commands.registry import Commands

NAME: Final = "switch"
EXAMPLES: Final = """\
examples:
  protogate switch -c gateway.yaml                       which there are, and which are on
  protogate switch -c gateway.yaml recommendations on
"""


@dataclass
class Switch:
    """
    @ivar files: lists that it stands in when it is on.
    @ivar urls: the same, where nobody can write.
    @ivar users: names of entries.
    """

    files: set[str] = field(default_factory=set)
    urls: set[str] = field(default_factory=set)
    users: list[str] = field(default_factory=list)


def register(commands: Commands) -> None:
    """Add it."""
    made = add(commands, NAME, "Show which switches of a configuration are on, or turn one on or off.", run, EXAMPLES)
    made.add_argument("-c", "--config", required=True, metavar="FILE", help="the configuration, YAML or JSON")
    made.add_argument("name", nargs="?", default="", metavar="NAME", help="of the switch")
    made.add_argument(
        "state", nargs="?", default="", choices=("on", "off", ""), metavar="on|off", help="what it shall be"
    )


def run(options: Namespace, out: TextIO) -> int:
    """Status 1 when the configuration has faults, or a list cannot be read or written."""
    try:
        found = used(build(options.config))
    except ConfigFaults as faults:
        print(faults, file=out)
        return 1
    name, state = options.name, options.state
    if name and name not in found:
        return complain(NAME, f"no entry has the switch {name}; there are: {', '.join(sorted(found)) or 'none'}")
    try:
        if state:
            one = found[name]
            if not one.files:
                return complain(
                    NAME, f"{name} is on where {', '.join(sorted(one.urls))} says so: nobody can write there"
                )
            for path in sorted(one.files):
                write(path, name, state == "on")
        for line in shown({name: found[name]} if name else found):
            print(line, file=out)
        if not found:
            print(f"{options.config}: no entry has a switch (degrade, when: {{switch: NAME}})", file=out)
    except (OSError, ValueError) as error:
        return complain(NAME, error, 1)
    return 0


def used(built: Build) -> dict[str, Switch]:
    """The switches of a configuration, by name."""
    found: dict[str, Switch] = {}
    for stage in built.bound.values():
        for bound in stage:
            module = bound.module
            if isinstance(module, Degrade) and module.source is not None:
                one = found.setdefault(module.when.switch, Switch())
                source = module.source
                (one.files if source.file else one.urls).add(source.file or str(source))
                if module.name not in one.users:
                    one.users.append(module.name)
    return found


def shown(found: dict[str, Switch]) -> Iterator[str]:
    """
    A line for each.

    @raise ValueError: a list cannot be read.
    """
    widest = max(map(len, found), default=0)
    for name, one in sorted(found.items()):
        states = {name in switches(_read(path)) for path in one.files}
        state = "?" if not states else "both" if len(states) > 1 else "on" if states == {True} else "off"
        yield f"{name:{widest}}  {state:3}  used by: {', '.join(one.users)}"


def write(path: str, name: str, on: bool) -> None:
    """
    Turn it on or off.

    @raise OSError: the list cannot be written.
    @raise ValueError: it cannot be read.
    """
    path = os.path.realpath(path)
    with _alone(os.path.dirname(path)):
        data = _read(path)
        if (name in switches(data)) is on:
            return
        lines = [line for line in data.decode("utf-8").splitlines() if on or named(line) != name]
        if on:
            lines.append(f"{name}  # since {datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}")
        text = "".join(f"{line}\n" for line in lines).encode("utf-8")
        switches(text)
        _replace(path, text)


def _replace(path: str, data: bytes) -> None:
    status = os.stat(path)
    descriptor, other = tempfile.mkstemp(dir=os.path.dirname(path), prefix=f".{os.path.basename(path)}.")
    try:
        with open(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fchmod(file.fileno(), status.st_mode & 0o7777)
            with suppress(PermissionError):
                os.fchown(file.fileno(), status.st_uid, status.st_gid)
            os.fsync(file.fileno())
        os.replace(other, path)
    except BaseException:
        Path(other).unlink(missing_ok=True)
        raise


def _read(path: str) -> bytes:
    try:
        return read(path, LARGEST)[0]
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None


@contextmanager
def _alone(folder: str) -> Iterator[None]:
    """Nobody else of us is at it."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
