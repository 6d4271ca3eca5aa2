"""C{protogate modules}: what is installed, where each may run, and what holds when it does not answer."""

from __future__ import annotations

from argparse import Namespace
from typing import TYPE_CHECKING, TextIO

from protogate.commands.registry import add
from protogate.interfaces import IModuleFactory
from protogate.plugins import PluginError, declared, find

if TYPE_CHECKING:
    from protogate.commands.registry import Commands


def register(commands: Commands) -> None:
    """Add it."""
    add(commands, "modules", "List the installed modules: stages, the first is the default; who guards.", run)


def run(options: Namespace, out: TextIO) -> int:
    """One line a module; status 1 when one of them cannot be used."""
    status = 0
    rows = []
    for plugin in declared(IModuleFactory):
        try:
            factory = find(IModuleFactory, plugin.name)
        except PluginError as error:
            rows.append((plugin.name, "unusable", "", error.args[0]))
            status = 1
        else:
            rows.append((plugin.name, ", ".join(factory.stages), "guards" if factory.guards else "", plugin.path))
    name, stages, guards = (max((len(row[at]) for row in rows), default=0) for at in range(3))
    for row in rows:
        print(f"{row[0]:{name}}  {row[1]:{stages}}  {row[2]:{guards}}  {row[3]}", file=out)
    return status
