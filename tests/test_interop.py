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
BOTH = {
    "http1": {"multiplex", "goaway"},
    "mini": {"continue", "goaway"},
    "sotp": set(),
}
"""What a pair cannot say, whichever side the codec is on."""
BEHIND = {
    "http1": {"refuse"},
    "mini": set(),
    "sotp": set(),
}
"""What it cannot say behind another."""
REFUSE = {"mini": refuse, "sotp": refuse}
MULTIPLEXED = {"mini", "sotp"}

for _down, _front in CODECS.items():
    for _up, _behind in CODECS.items():
        _name = f"{_down}_to_{_up}"
        _lacks = BOTH[_down] | BOTH[_up] | BEHIND[_up]
        if _down == _up == "mini":
            _lacks = _lacks | {"head"}
        if _up in MULTIPLEXED:
            _lacks = _lacks - {"multiplex"}
        _members = {"down": _front, "up": _behind, "lacks": _lacks, "__module__": __name__}
        if _up in REFUSE:
            _members["refuse"] = REFUSE[_up]
        globals()[_name] = type(_name, (InteropContract, SynchronousTestCase), _members)
