"""
Compressed messages: what they are called.

A message is passed on as it came; it is unpacked only for a peer that has not said it could.
"""

from __future__ import annotations

from typing import Final

from protogate.coded import Unpacked
from protogate.codings import PACKERS, UNPACKERS
from protogate.errors import Abort
from protogate.interfaces import IBody

CODINGS: Final = {number: name for number, name in ((1, b"gzip"), (2, b"zstd")) if name in PACKERS}
"""Compressions that are known, by the number that is also their capability."""
IDS: Final = {name: number for number, name in CODINGS.items()}
CAPABILITIES: Final = sum(CODINGS)


def unpacking(body: IBody, coding: bytes, broken: Abort) -> Unpacked:
    """
    A body, unpacked as it is read.

    @param coding: one of the names of L{CODINGS}.
    @param broken: how it ends when it is not what C{coding} says.
    """
    return Unpacked(body, UNPACKERS[coding], broken)
