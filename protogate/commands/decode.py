"""C{protogate decode}: what was said, in any codec that can show it; from bytes, from hex, or from a capture file."""

from __future__ import annotations

import re
import sys
from argparse import Namespace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TextIO

from protogate.commands.capture import MAGICS, conversations
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
  tcpdump -i any -w all.pcap port 7001; protogate decode sotp all.pcap

exit status: 0 = all of it was read, 1 = it is wrong or cut off, or cannot be had, 2 = the command was not understood
"""
_HEX: Final = re.compile(r"(?:[0-9A-Fa-f]{2})*").fullmatch


def register(commands: Commands) -> None:
    """Add it."""
    made = add(commands, "decode", "Show the frames in the bytes that one side sent.", run, EXAMPLES)
    made.add_argument("codec", metavar="CODEC", help="by its name")
    which = made.add_mutually_exclusive_group(required=True)
    which.add_argument(
        "file", nargs="?", metavar="FILE", help="a capture (pcap), or the bytes of one side; - is standard input"
    )
    which.add_argument("-x", "--hex", metavar="HEX", help="or in hex, white space does not count; @FILE reads it")
    made.add_argument(
        "--from",
        dest="side",
        choices=("client", "server"),
        default="client",
        help="who sent the bytes (default: client)",
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
    except (OSError, ValueError) as error:
        return complain("decode", error, 1 if isinstance(error, OSError) else 2)
    if options.hex is None and data[:4] in MAGICS:
        return _capture(codec, data, out)
    try:
        for line in codec.dissect(data, options.side == "client", Limits()):
            print(line, file=out)
    except ValueError as error:
        return complain("decode", error, 1)
    return 0


def _capture(codec: Any, data: bytes, out: TextIO) -> int:
    """Both sides of each connection: first all that the client said, then all that the server did."""
    status = 0
    try:
        found = conversations(data)
    except ValueError as error:
        return complain("decode", error, 1)
    for made in found:
        sides = [(side, *side.read()) for side in (made.client, made.server) if side is not None]
        if codec.sniff(sides[0][1][:256]) is False:
            print(f"{made}: not {codec.name}", file=out)
            continue
        print(made, file=out)
        for side, said, gap in sides:
            mark = ">" if side is made.client else "<"
            try:
                for line in codec.dissect(said, side is made.client, Limits()):
                    print("\n".join(f"{mark} {part}" for part in line.split("\n")), file=out)
            except ValueError as error:
                print(f"{mark} WRONG: {error}", file=out)
                status = 1
            if gap:
                print(f"{mark} the capture lost what comes next", file=out)
                status = 1
    if not found:
        return complain("decode", "the capture has no connection from its beginning on", 1)
    return status


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
