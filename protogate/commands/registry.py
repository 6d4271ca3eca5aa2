"""
How a command comes to stand behind C{protogate}.

Rules
- Each module of this package adds its parser by C{register(commands)}, and names its function in the default
  C{function}: called with the options and with where the answer goes, it returns the exit status.
- 0 = fine, 1 = what was looked at is not, 2 = the command was not understood.
"""

from __future__ import annotations

import sys
from argparse import ArgumentParser, Namespace, RawDescriptionHelpFormatter
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TextIO

if TYPE_CHECKING:
    from argparse import _SubParsersAction

    Commands = _SubParsersAction[ArgumentParser]

Function = Callable[[Namespace, TextIO], int]


def add(commands: Commands, name: str, text: str, function: Function | None, examples: str = "") -> ArgumentParser:
    """A parser for a command; None is for one that only has commands below it."""
    made = commands.add_parser(
        name,
        help=text.replace("%", "%%"),
        description=text,
        epilog=examples or None,
        formatter_class=RawDescriptionHelpFormatter,
    )
    if function is not None:
        made.set_defaults(function=function)
    return made


def complain(command: str, why: Any, status: int = 2) -> int:
    """Say on standard error why a command ends; returns the status.  Of an OSError: about what, and what it says."""
    if isinstance(why, OSError) and why.strerror:
        why = f"{why.filename}: {why.strerror}" if why.filename is not None else why.strerror
    print(f"protogate {command}: {why}", file=sys.stderr)
    return status
