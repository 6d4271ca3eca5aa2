"""
The reactor that a gateway runs on: the one that was asked for, or the best there is.

Rules
- Nothing here needs uvloop; without it the choice is Twisted's.
- A reactor that is installed already stays.

Must not know: what runs on it.
"""

from __future__ import annotations

import sys

from twisted.application.reactors import IReactorInstaller, NoSuchReactor
from twisted.internet import default
from twisted.internet.interfaces import IReactorCore

from protogate.plugins import dropins


def reactors() -> list[str]:
    """The names that L{install} knows."""
    return sorted(reactor.shortName for reactor in dropins(IReactorInstaller))


def install(name: str) -> IReactorCore:
    """
    Install the reactor of that name, or with no name the best one (L{install_best}).

    @raise NoSuchReactor: there is none of that name.
    """
    if name:
        for reactor in dropins(IReactorInstaller):
            if reactor.shortName == name:
                reactor.install()
                break
        else:
            raise NoSuchReactor(name)
    return install_best()


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
