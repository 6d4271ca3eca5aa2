"""
The reactor that a gateway runs on when nobody asked for another one.

Rules
- Nothing here needs uvloop; without it the choice is Twisted's.
- A reactor that is installed already stays.

Must not know: what runs on it.
"""

from __future__ import annotations

import sys

from twisted.internet import default
from twisted.internet.interfaces import IReactorCore


def install_best() -> IReactorCore:
    """
    Install the fastest reactor of this machine, unless one is installed, and return the one that is installed then.

    To be called before anything imports C{twisted.internet.reactor}; both C{protogate run} and its workers do.
    """
    if "twisted.internet.reactor" not in sys.modules:
        try:
            from protogate.reactor import uv  # noqa: PLC0415 - uvloop may be missing
        except ImportError:
            default.install()
        else:
            uv.install()
    from twisted.internet import reactor  # noqa: PLC0415 - it exists from here on

    return reactor
