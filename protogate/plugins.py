"""
How codecs and modules are found: named parts, imported on demand.

Rules
- A drop-in in C{twisted/plugins/} only declares L{Plugin}s.  It imports nothing that it declares: a drop-in that fails
  to import is logged by Twisted and skipped, and the name would be missing without a reason.
- L{find} imports the part, makes one instance for the life of the process, and verifies it against its interface.  So a
  reload finds the same codec, and keeps the connections that speak it.  And it is looked for once: looking leaves
  garbage behind that holds everything its callers had in hand, and a reload must leave none.
- To look for some is to import all drop-ins there are, of whomever, when Twisted has no cache of what they declare, or
  may not write it.  What those warn of is nothing to who runs a gateway or tests a codec, and no fault where warnings
  are errors: everything that looks for drop-ins here does so with L{dropins}.
- That cache is for all processes to come.  A drop-in that was replaced since this process has begun, as by an upgrade,
  is read anew before it is written there: what the old one declared would count for ever.
"""

from __future__ import annotations

import os
import sys
import time
import warnings
from collections.abc import Iterable
from typing import Any, Final, TypeVar, cast

from twisted.plugin import IPlugin, getPlugins
from twisted.python.reflect import namedAny
from zope.interface import Attribute, Interface, implementer
from zope.interface.exceptions import Invalid
from zope.interface.interface import InterfaceClass
from zope.interface.verify import verifyObject

import twisted.plugins

Part = TypeVar("Part")
_parts: dict[tuple[Any, str, Any], Any] = {}
"""What was found, by interface, name and package."""


_BEGUN: Final = time.time()
"""When this process began to look for parts."""

NOUNS: Final = {
    "IStreamCodec": "codec",
    "IModuleFactory": "module",
    "IDiscoveryFactory": "discovery",
    "ICommand": "command",
}
"""What those who write configurations call them."""


class IPart(Interface):
    """What a drop-in declares."""

    provides: InterfaceClass = Attribute("Interface of the part.")
    name: str = Attribute("Name used in configuration.")
    path: str = Attribute("Dotted name of what makes the part when called without arguments.")


class PluginError(LookupError):
    """No such part, or one that does not keep its promise.  The text is for whoever wrote the configuration."""


@implementer(IPlugin, IPart)
class Plugin:
    """
    One declaration: C{http1 = Plugin(IStreamCodec, "http1", "protogate_http.http1.Http1")}.

    @ivar provides: L{protogate.interfaces.IStreamCodec}, L{protogate.interfaces.IModuleFactory} …
    """

    def __init__(self, provides: Any, name: str, path: str) -> None:
        self.provides, self.name, self.path = provides, name, path


def dropins(interface: Any, package: Any = twisted.plugins) -> list[Any]:
    """Everything that drop-ins declare with that interface, Twisted's own included; a warning of theirs is dropped."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        _forget(f"{package.__name__}.")
        return list(getPlugins(interface, package))


def _forget(inside: str) -> None:
    """Forget drop-ins of a package that were replaced, so that they are imported as they are now."""
    for name in [name for name in sys.modules if name.startswith(inside)]:
        try:
            if os.stat(str(sys.modules[name].__file__)).st_mtime >= _BEGUN:
                del sys.modules[name]
        except (OSError, AttributeError):
            continue  # it is gone, or never was a file


def declared(interface: Any, package: Any = twisted.plugins) -> list[Plugin]:
    """Every declared part of that interface, by name.  Imports none of them."""
    plugins: Iterable[Any] = dropins(IPart, package)
    return sorted((plugin for plugin in plugins if plugin.provides is interface), key=lambda plugin: plugin.name)


def names(interface: Any, package: Any = twisted.plugins) -> list[str]:
    """The names that L{find} knows."""
    return [plugin.name for plugin in declared(interface, package)]


FEW: Final = 5
"""Installed ones that are all named to whoever asks for another."""


def find(interface: type[Part], name: str, package: Any = twisted.plugins) -> Part:
    """
    The part of that name, the same one each time.

    @raise PluginError: nobody declares it (the nearest one is named, or all), two drop-ins declare it, it cannot be
        imported, or it does not provide the interface.
    """
    key = (interface, name, package)
    part = _parts.get(key)
    if part is not None:
        return cast(Part, part)
    title = NOUNS.get(interface.__name__, interface.__name__)
    found = [plugin for plugin in declared(interface, package) if plugin.name == name]
    if not found:
        from protogate.config.nearest import nearest  # noqa: PLC0415 - drop-ins import this file, and need no guesses

        installed = names(interface, package)
        close = nearest(name, installed) if len(installed) > FEW else ""
        known = f'did you mean "{close}"?' if close else f"installed: {', '.join(installed) or 'none'}"
        raise PluginError(f"no {title} named {name!r}; {known}")
    if len(found) > 1:
        paths = " and ".join(plugin.path for plugin in found)
        raise PluginError(f"two parts claim to be the {title} named {name!r}: {paths}")
    path = found[0].path
    try:
        part = namedAny(path)()
    except Exception as error:
        raise PluginError(f"the {title} named {name!r} cannot be made from {path}: {error!r}") from error
    try:
        verifyObject(interface, part)
    except Invalid as error:
        raise PluginError(f"{path} is not a proper {interface.__name__}: {error}") from error
    _parts[key] = part
    return cast(Part, part)
