"""Every installed codec in front of every installed codec."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from protogate.testing.interop import InteropContract
from protogate_http.http1 import Http1

CODECS = {"Http1": (Http1, {"refuse", "multiplex"})}

for _down, (_front, _one) in CODECS.items():
    for _up, (_behind, _two) in CODECS.items():
        _name = f"{_down}To{_up}"
        globals()[_name] = type(
            _name,
            (InteropContract, SynchronousTestCase),
            {"down": _front, "up": _behind, "lacks": _one | _two, "__module__": __name__},
        )
