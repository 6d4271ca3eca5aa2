"""A configuration as a supervisor has it: of which it needs little itself, and the text for its workers."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple, Self

from protogate.build import Build, build, build_quietly
from protogate.config.load import Loaded, Source, read
from protogate.config.model import Config
from protogate.service import restart_needed


class Draft(NamedTuple):
    """A configuration that was read and checked."""

    loaded: Loaded
    source: Source
    warnings: Sequence[str]
    upstreams: Collection[str]
    """Names and origins of all that requests are sent to."""

    @classmethod
    def of(cls, built: Build, source: Source) -> Self:
        """What remains of a build."""
        names = {upstream.name for upstream in built.config.upstreams}
        return cls(built.loaded, source, built.warnings, names.union(built.destinations))

    @property
    def config(self) -> Config:
        """The configuration itself."""
        return self.loaded.config

    def keeps_workers(self) -> Self:
        """
        The same, where it may take the place of one with workers.

        @raise ConfigFaults: it wants none.
        """
        if not self.config.gateway.workers:
            raise self.loaded.faults([restart_needed()])
        return self


def draft(path: str, source: Source | None = None) -> Draft:
    """
    Read and check a file, at the start.

    @param source: its content, where it has been read already.
    @raise ConfigFaults: all faults.
    """
    found = read(path) if source is None else source
    return Draft.of(build(path, found), found)


def draft_quietly(path: str) -> Draft:
    """As L{draft}, in a thread beside an event loop."""
    source = read(path)
    return Draft.of(build_quietly(path, source), source)
