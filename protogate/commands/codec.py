"""C{protogate codec check}: the contract suite of all codecs, run against an installed one, whoever made it."""

from __future__ import annotations

from argparse import Namespace
from typing import TYPE_CHECKING, Final, TextIO

from twisted.python.reflect import namedAny

from protogate.commands.registry import add, complain
from protogate.interfaces import IStreamCodec
from protogate.plugins import PluginError, declared, find

if TYPE_CHECKING:
    from protogate.commands.registry import Commands

EXAMPLES: Final = """\
examples:
  protogate codec check http1
  protogate codec check mine --lacks trailers,upgrade

exit status: 0 = it keeps the contract, 1 = it does not, or cannot be used, 2 = the command was not understood
"""


def register(commands: Commands) -> None:
    """Add it."""
    below = add(commands, "codec", "Try an installed codec.", None).add_subparsers(required=True, metavar="COMMAND")
    check = add(below, "check", "Hold an installed codec to the contract of all codecs.", run, EXAMPLES)
    check.add_argument("name", metavar="NAME", help="of the codec, as protogate codecs lists it")
    check.add_argument(
        "--lacks", metavar="WORD,…", help="what its protocol cannot say, where it does not tell that itself"
    )
    check.add_argument("-v", "--verbose", action="store_true", help="show the traceback of each failure")


def run(options: Namespace, out: TextIO) -> int:
    """Run the suite; a line for each of its tests as it ends."""
    # Imports trial, which a gateway must not do: no other command has a use for it.
    from protogate.testing.matrix import LACKS  # noqa: PLC0415
    from protogate.testing.report import check  # noqa: PLC0415

    lacks = None
    if options.lacks is not None:
        lacks = frozenset(word for word in options.lacks.split(",") if word)
        unknown = ", ".join(sorted(lacks - LACKS))
        if unknown:
            return complain("codec check", f"--lacks knows {', '.join(sorted(LACKS))}; not {unknown}")
    try:
        find(IStreamCodec, options.name)
    except PluginError as error:
        return complain("codec check", error.args[0], 1)
    (plugin,) = (plugin for plugin in declared(IStreamCodec) if plugin.name == options.name)
    kept = check(options.name, namedAny(plugin.path), out, lacks, options.verbose)
    return 0 if kept else 1
