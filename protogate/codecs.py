"""
The codecs of a configuration: those that it names, speaking as its C{codecs} say.

Rules
- One that is told nothing, or nothing but its defaults, is the one of the whole process (L{protogate.plugins}).
- One that is told the same as before is the same one: a reload keeps its connections.
- Which options there are is for the codec to say, and to judge (L{IConfigurableCodec}); no protocol is known here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final, cast

from protogate.config import model
from protogate.config.convert import options
from protogate.config.faults import AtKey, ConfigFaults, under
from protogate.config.nearest import hint
from protogate.config.scalar import shown
from protogate.errors import ConfigError
from protogate.interfaces import IConfigurableCodec, IStreamCodec
from protogate.plugins import PluginError, find, names
from protogate.upstream.endpoint import codec_of, spoken

KEPT: Final = 64
"""Configured codecs that are remembered, by codec and options."""

Path = tuple[str | int, ...]


class Codecs:
    """
    @ivar named: by name, all that listeners and upstreams use.
    @ivar warnings: what surely was not meant.
    """

    def __init__(self, config: model.Config, origins: Sequence[str]) -> None:
        """
        @param origins: of the upstreams without a name.
        @raise ConfigFaults: a codec is not there, or is told what it does not understand.
        """
        self.named: dict[str, IStreamCodec] = {}
        self.warnings: list[ConfigError] = []
        self._faults: list[ConfigError] = []
        missing = set()
        for name, place in self._wanted(config, origins):
            if name in self.named or name in missing:
                continue
            try:
                self.named[name] = find(IStreamCodec, name)
            except PluginError as error:
                missing.add(name)
                self._faults.append(ConfigError(str(error.args[0]), place))
        for name, told in config.codecs.items():
            self._tell(name, told)
        if self._faults:
            raise ConfigFaults(self._faults)

    def _wanted(self, config: model.Config, origins: Sequence[str]) -> Iterator[tuple[str, Path]]:
        """Each codec that is named somewhere, or meant by the scheme of a URL, and where."""
        for index, listener in enumerate(config.listeners):
            yield from ((name, ("listeners", index, "protocols", at)) for at, name in enumerate(listener.protocols))
        for index, upstream in enumerate(config.upstreams):
            try:
                yield spoken(upstream), ("upstreams", index, "protocol")
            except ConfigFaults as found:
                self._faults += [under(fault, "upstreams", index) for fault in found.faults]
        yield from ((codec_of(origin), ("routes",)) for origin in origins)

    def _tell(self, name: str, told: Mapping[str, Any]) -> None:
        """One codec its options."""
        path = ("codecs", name)
        codec = self.named.get(name)
        used = codec is not None
        if codec is None:
            known = names(IStreamCodec)
            if name not in known:
                self._faults.append(AtKey(f"there is no codec {shown(name)}; {hint(name, known)}", path))
                return
            try:
                codec = find(IStreamCodec, name)
            except PluginError as error:
                self._faults.append(AtKey(str(error.args[0]), path))
                return
        if not IConfigurableCodec.providedBy(codec):
            self._faults.append(AtKey(f"the codec {shown(name)} has no options", path))
            return
        try:
            made = configured(codec, options(codec.options, told))
        except ConfigFaults as found:
            self._faults += [under(fault, *path) for fault in found.faults]
        except ConfigError as fault:
            self._faults.append(under(fault, *path))
        else:
            if used:
                self.named[name] = made
            else:
                self.warnings.append(AtKey(f"no listener and no upstream speaks {shown(name)}", path))


@lru_cache(maxsize=KEPT)
def configured(codec: Any, told: model.Model) -> IStreamCodec:
    """
    A codec that speaks by these options: the same one for equal options.

    @param codec: L{IConfigurableCodec}.
    @raise ConfigError: it does not take them.
    """
    return cast("IStreamCodec", codec if told == codec.options() else codec.configure(told))
