"""What a configuration says about too much work: L{protogate.overload}."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, field

from protogate.config.words import Bytes, Model, Percent, Seconds


class LagMarks(Model, frozen=True, kw_only=True):
    """How late the event loop comes to what is due."""

    begin: Seconds = Seconds(0.02)
    """Up to here all is well."""
    full: Seconds = Seconds(0.1)
    """Where it stays so late everything is shed; 0 = lateness is not looked at."""


class Marks(Model, frozen=True, kw_only=True):
    """How much of something that has an end is in use."""

    begin: Percent = 85
    """Up to here all is well; accepting that was paused goes on."""
    full: Percent = 95
    """From here on everything is shed, and nothing more is accepted; 0 = it is not looked at."""


class Priority(Model, frozen=True, kw_only=True):
    """One class of requests."""

    name: Annotated[str, Meta(min_length=1)]
    """For records and counters; each class has another one."""
    when: str = ""
    """An expression: which requests are meant; empty for exactly one class: all that no other one is for."""


class Overload(Model, frozen=True, kw_only=True):
    """What is done when there is more work than a process can do."""

    priorities: tuple[Priority, ...] = ()
    """Classes of requests, the most important one first; without any all are alike."""
    retry_after: Annotated[Seconds, Meta(extra={"within": (1, 3600, False)})] = Seconds(1)
    """What who is shed is told to wait, at least; at most three times as long."""
    lag: LagMarks = field(default_factory=LagMarks)
    """The event loop."""
    memory: Marks = field(default_factory=Marks)
    """Memory, of what may be used."""
    memory_limit: Bytes = Bytes(0)
    """What all processes together may use; 0 = what the control group (container) may."""
    connections: Marks = field(default_factory=Marks)
    """Connections of a listener, of limits.connections."""
    descriptors: Marks = field(default_factory=Marks)
    """Open files and sockets of a process, of those that it may have."""
