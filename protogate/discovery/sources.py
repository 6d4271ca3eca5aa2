"""
The sources of endpoints that the upstreams of a configuration name: made, and checked against the rest of it.

Rules
- Where endpoints are found is a part (L{protogate.plugins}) like any codec or module: none is known here by name.
- Whoever is asked must be there, must not be the upstream itself, nor wait for it to be found; and must be given the
  time that an answer takes on purpose.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from protogate.config import model
from protogate.config.convert import options
from protogate.config.faults import ConfigFaults, under
from protogate.config.nearest import hint
from protogate.config.scalar import shown
from protogate.config.units import written
from protogate.discovery.entries import Entries
from protogate.errors import ConfigError
from protogate.interfaces import IDiscovery, IDiscoveryFactory
from protogate.plugins import PluginError
from protogate.upstream.endpoint import spoken

PLUGIN: Final = "plugin"
"""The key below which stands what others bring."""
COMMON: Final = ("plugin", "scheme", "stale_for", "empty_for")
"""Keys of a C{discovery} that name no source."""

Find = Callable[[Any, str], Any]
Path = tuple[str | int, ...]


def sources(config: model.Config, find: Find) -> dict[str, IDiscovery]:
    """
    Make all of them.

    @param find: L{protogate.plugins.find}.
    @return: by the name of the upstream.
    @raise ConfigFaults: all that is wrong.
    """
    made = _Making(config, find)
    if made.faults:
        raise ConfigFaults(made.faults)
    return made.sources


def source(upstream: model.Upstream, find: Find) -> IDiscovery | None:
    """
    Make that of one upstream; None = it has none.

    @raise ConfigFaults: all that is wrong; paths are relative to the upstream.
    """
    if upstream.discovery is None:
        return None
    ((name, told, path),) = chosen(upstream.discovery)
    try:
        factory = find(IDiscoveryFactory, name)
        made: IDiscovery = factory.build(understood(factory, told), Entries(upstream))
        return made
    except PluginError as error:
        faults = [ConfigError(str(error.args[0]), path)]
    except ConfigFaults as found:
        faults = [under(fault, *path) for fault in found.faults]
    except ConfigError as fault:
        faults = [under(fault, *path)]
    raise ConfigFaults([under(fault, "discovery") for fault in faults])


def understood(factory: Any, told: object) -> Any:
    """
    What a factory is told, as its C{options} want it.

    @raise ConfigError: it is not that; or L{ConfigFaults}.
    """
    kind = factory.options
    if isinstance(told, kind):
        return told  # of ours: the configuration has its class
    if kind is str:
        raise ConfigError(f"expected a text, got {shown(told)}")
    return options(kind, told)


def chosen(settings: model.Discovery) -> list[tuple[str, Any, Path]]:
    """What a C{discovery} names: the source, what it is told, and where that stands.  Exactly one, if it is right."""
    named = ((name, getattr(settings, name)) for name in settings.__struct_fields__ if name not in COMMON)
    found: list[tuple[str, Any, Path]] = [(name, told, (name,)) for name, told in named if told not in (None, "")]
    return found + [(name, told, (PLUGIN, name)) for name, told in settings.plugin.items()]


class _Making:
    def __init__(self, config: model.Config, find: Find) -> None:
        self.sources: dict[str, IDiscovery] = {}
        self.faults: list[ConfigError] = []
        self._gateway = config.gateway
        self._upstreams = {upstream.name: upstream for upstream in config.upstreams}
        paths: dict[str, Path] = {}
        for index, upstream in enumerate(config.upstreams):
            settings = upstream.discovery
            named = [] if settings is None else chosen(settings)
            if len(named) != 1 or not _agrees(upstream):
                continue  # there is none, or that is a fault already
            paths[upstream.name] = ("upstreams", index, "discovery", *named[0][2])
            try:
                made = source(upstream, find)
            except ConfigFaults as found:
                self.faults += [under(fault, "upstreams", index) for fault in found.faults]
            else:
                assert made is not None
                self.sources[upstream.name] = made
        for name, made in self.sources.items():
            self._check(name, made, paths[name])

    def _check(self, name: str, source: IDiscovery, path: Path) -> None:
        for asked, inner in source.asks.items():
            where = (*path, *inner)
            if "://" not in asked and asked not in self._upstreams:
                message = f"there is no upstream {shown(asked)}; {hint(asked, sorted(self._upstreams))}"
                self.faults.append(ConfigError(message, where))
                continue
            if name in self._found_by(asked):
                message = f"to find the upstream {shown(name)}, {shown(name)} would have to be asked"
                self.faults.append(ConfigError(message, where))
            upstream = self._upstreams.get(asked)
            own = None if upstream is None else upstream.timeouts.response_head
            head = float(self._gateway.timeouts.response_head if own is None else own)
            if source.patience and head and source.patience >= head:
                message = (
                    f"an answer may take {source.patience:.3g} s on purpose, but {shown(asked)} has"
                    f" {written(model.Seconds(head))} for it (timeouts.responseHead)"
                )
                self.faults.append(ConfigError(message, path))

    def _found_by(self, name: str) -> Iterator[str]:
        """An upstream, and all that are asked to find it."""
        seen: set[str] = set()
        left = [name]
        while left:
            each = left.pop()
            if each not in seen:
                seen.add(each)
                yield each
                source = self.sources.get(each)
                left += [] if source is None else list(source.asks)


def _agrees(upstream: model.Upstream) -> bool:
    """Whether it is clear what it is spoken to with; who looks for the codecs tells where it is not."""
    try:
        spoken(upstream)
    except ConfigFaults:
        return False
    return True


def warnings(config: model.Config, sources: Mapping[str, IDiscovery]) -> Iterator[ConfigError]:
    """What works, but perhaps not as it was meant; paths are of the file."""
    for index, upstream in enumerate(config.upstreams):
        if upstream.discovery is not None:
            ((_, _, path),) = chosen(upstream.discovery)
            for warning in getattr(sources[upstream.name], "warnings", ()):
                yield under(warning, "upstreams", index, "discovery", *path)


def asked(sources: Mapping[str, IDiscovery]) -> list[str]:
    """Names and origins of all that are asked."""
    return [name for source in sources.values() for name in source.asks]
