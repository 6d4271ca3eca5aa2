"""Every codec in front of every codec: those that are installed, and two from outside."""
# ruff: noqa: E402 - two lie where nobody looks for packages

from __future__ import annotations

import sys
from pathlib import Path

TESTS = Path(__file__).parent
sys.path += [str(TESTS / "mini_codec"), str(TESTS.parent / "examples" / "protogate-resp")]

import pytest
from protogate_mini.codec import Mini
from twisted.trial.unittest import SynchronousTestCase

from protogate.interfaces import IStreamCodec
from protogate.plugins import find, names
from protogate.testing.interop import InteropContract
from protogate_resp.codec import Resp

INSTALLED = {name: type(find(IStreamCodec, name)) for name in names(IStreamCodec)}
CODECS = INSTALLED | {made().name: made for made in (Mini, Resp)}
BEHIND = frozenset(("refuse", "multiplex"))
"""What only matters of the codec behind."""


def lost(front: type, behind: type) -> frozenset[str]:
    """What cannot be said from the one to the other, by what they say of themselves."""
    one, other = frozenset(front().lacks), frozenset(behind().lacks)
    lacks = (one - BEHIND) | other
    # An answer to HEAD has no content if one of both sees to that, and there can be a HEAD at all.
    return lacks if "head" in one & other or "method" in lacks else lacks - {"head"}


for _down, _front in CODECS.items():
    for _up, _behind in CODECS.items():
        _name = f"{_down}_to_{_up}"
        _members = {"down": _front, "up": _behind, "lacks": lost(_front, _behind), "__module__": __name__}
        # Each with itself is all there is to see.
        _members["pytestmark"] = [] if _front is _behind else [pytest.mark.unwatched]
        globals()[_name] = type(_name, (InteropContract, SynchronousTestCase), _members)


def test_codecs_from_outside_are_not_installed() -> None:
    """Else every other test of this process would see them."""
    assert INSTALLED
    assert not {"mini", "resp"} & set(names(IStreamCodec))
