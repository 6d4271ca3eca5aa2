"""Every codec in front of every codec: the installed ones, and one from outside."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parent / "mini_codec"))

from protogate_mini.codec import Mini
from twisted.trial.unittest import SynchronousTestCase

from protogate.errors import ALWAYS, CLIENT, Abort
from protogate.interfaces import IStreamCodec
from protogate.plugins import find, names
from protogate.testing.interop import InteropContract


def refuse(self, server):
    stream = list(server.streams.values())[-1]
    stream.reset(Abort("not looked at", CLIENT, 502, ALWAYS))
    stream.lost(Abort("not looked at", CLIENT, 502))


CODECS = {name: type(find(IStreamCodec, name)) for name in names(IStreamCodec)} | {"mini": Mini}
LACKS = {name: frozenset(made.lacks) for name, made in CODECS.items()}
"""What each says that it cannot say: "refuse" only matters behind another, HEAD where neither side knows it."""
REFUSE = {"http2": refuse, "mini": refuse, "sotp": refuse}
MULTIPLEXED = {"http2", "mini", "sotp"}

for _down, _front in CODECS.items():
    for _up, _behind in CODECS.items():
        _name = f"{_down}_to_{_up}"
        _lacks = (LACKS[_down] - {"refuse"}) | LACKS[_up]
        if not {"head"} <= LACKS[_down] & LACKS[_up]:
            _lacks = _lacks - {"head"}
        if _up in MULTIPLEXED:
            _lacks = _lacks - {"multiplex"}
        _members = {"down": _front, "up": _behind, "lacks": _lacks, "__module__": __name__}
        if _up in REFUSE:
            _members["refuse"] = REFUSE[_up]
        globals()[_name] = type(_name, (InteropContract, SynchronousTestCase), _members)
