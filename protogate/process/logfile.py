"""
The access log of a supervisor, which writes nothing to it: workers may not be able to open the file, for they are no
longer root, and nor may the supervisor be later on.

Rules
- The same file stays open, over all configurations and programs.
- L{LogFile.open} can fail, and then nothing has changed; L{LogFile.take} cannot.
"""

from __future__ import annotations

import os

from protogate.config import model
from protogate.observe.accesslog import STDOUT, cannot_open, opened


class LogFile:
    """
    @ivar held: name and descriptor of the file that is open; None = there is none, or one that workers open.
    """

    def __init__(self, held: tuple[str, int] | None = None) -> None:
        self.held = held

    @property
    def descriptor(self) -> int | None:
        """Of what is open."""
        return None if self.held is None else self.held[1]

    def open(self, settings: model.AccessLog | None) -> int | None:
        """
        A descriptor for a configuration, or None when it takes none.

        @raise ConfigError: it cannot be opened.
        """
        if settings is None or settings.file == STDOUT:
            return None
        if self.held is not None and self.held[0] == settings.file:
            return self.held[1]
        try:
            return opened(settings.file)
        except OSError as error:
            raise cannot_open(error) from None

    def take(self, settings: model.AccessLog | None, descriptor: int | None) -> None:
        """Hold what L{open} gave, and nothing else."""
        before = self.descriptor
        self.held = None if settings is None or descriptor is None else (settings.file, descriptor)
        if before is not None and before != descriptor:
            os.close(before)

    def drop(self, descriptor: int | None) -> None:
        """What L{open} gave is not to be held after all."""
        if descriptor is not None and descriptor != self.descriptor:
            os.close(descriptor)

    def close(self) -> None:
        """Hold nothing."""
        self.take(None, None)
