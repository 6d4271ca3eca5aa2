"""A configuration as a supervisor has it: of which it needs little itself, and the text for its workers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from protogate.build import build, build_quietly
from protogate.config.load import Loaded, Source, read
from protogate.config.model import Config


class Draft(NamedTuple):
    """A configuration that was read and checked."""

    loaded: Loaded
    source: Source
    warnings: Sequence[str]

    @property
    def config(self) -> Config:
        """The configuration itself."""
        return self.loaded.config


def draft(path: str, source: Source | None = None) -> Draft:
    """
    Read and check a file, at the start.

    @param source: its content, where it has been read already.
    @raise ConfigFaults: all faults.
    """
    found = read(path) if source is None else source
    built = build(path, found)
    return Draft(built.loaded, found, built.warnings)


def draft_quietly(path: str) -> Draft:
    """As L{draft}, in a thread beside an event loop."""
    source = read(path)
    built = build_quietly(path, source)
    return Draft(built.loaded, source, built.warnings)
