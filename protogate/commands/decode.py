"""C{protogate decode}: what was said, in any codec that can show it."""

from __future__ import annotations

import re
import sys
from argparse import Namespace
from pathlib import Path
from typing import TYPE_CHECKING, Final, TextIO

from protogate.commands.registry import add, complain
from protogate.context import Limits
from protogate.interfaces import IReadableCodec, IStreamCodec
from protogate.plugins import PluginError, find

if TYPE_CHECKING:
    from protogate.commands.registry import Commands

EXAMPLES: Final = """\
examples:
  protogate decode sotp -x 'd550 01 07 00 000008 00000000 0000000000000001'
  protogate decode sotp -x @frames.hex
  protogate decode http1 --from server answer.bin
  nc -l 7001 | protogate decode sotp -

exit status: 0 = all of it was read, 1 = it is wrong or cut off, or cannot be had, 2 = the command was not understood
"""
_HEX: Final = re.compile(r"(?:[0-9A-Fa-f]{2})*").fullmatch


def register(commands: Commands) -> None:
    """Add it."""
    made = add(commands, "decode", "Show the frames in the bytes that one side sent.", run, EXAMPLES)
    made.add_argument("codec", metavar="CODEC", help="by its name")
    which = made.add_mutually_exclusive_group(required=True)
    which.add_argument("file", nargs="?", metavar="FILE", help="the bytes as they were sent; - is standard input")
    which.add_argument("-x", "--hex", metavar="HEX", help="or in hex, white space does not count; @FILE reads it")
    made.add_argument(
        "--from", dest="side", choices=("client", "server"), default="client", help="who sent them (default: client)"
    )


def run(options: Namespace, out: TextIO) -> int:
    """Print frame by frame, and what is wrong with the rest."""
    try:
        codec = find(IStreamCodec, options.codec)
    except PluginError as error:
        return complain("decode", error.args[0])
    if not IReadableCodec.providedBy(codec):
        return complain("decode", f"the codec {options.codec!r} cannot show what was said")
    try:
        data = _data(options)
    except OSError as error:
        return complain("decode", error, 1)
    except ValueError as error:
        return complain("decode", error)
    try:
        for line in codec.dissect(data, options.side == "client", Limits()):
            print(line, file=out)
    except ValueError as error:
        return complain("decode", error, 1)
    return 0


def _data(options: Namespace) -> bytes:
    """
    The bytes.

    @raise ValueError: it is no hex.
    """
    if options.hex is None:
        return sys.stdin.buffer.read() if options.file == "-" else Path(options.file).read_bytes()
    text = options.hex
    if text.startswith("@"):
        text = Path(text[1:]).read_text("ascii", "replace")
    digits = "".join(text.split())
    if not _HEX(digits):
        raise ValueError("-x wants pairs of hex digits")
    return bytes.fromhex(digits)
