"""
What a supervisor and its workers say to each other.

Rules
- After an upgrade a newer supervisor speaks to older workers, and they to it.  So what is here only grows: fields are
  added with defaults, unknown ones are passed over, and a message that is not known is answered with L{Failed}.
- A configuration is handed over in two steps, at the start as at each reload: all L{Prepare}, then all L{Commit}.
- Descriptors travel with L{Prepare}: the sockets of each listener in their order, then that of the access log.
- The board (L{protogate.upstream.board}) is never answered, only told: what there is of it is told anew where that may
  be needed.  A side that knows of none says nothing of it, and is told nothing.
"""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from protogate.config.stamp import Stamp


class Message(Struct, tag=True, kw_only=True):
    """Base of all."""


class Given(Struct):
    """How many descriptors are for which listener."""

    name: str
    count: int


# -- from the supervisor; each is answered


class Prepare(Message, kw_only=True):
    """
    Do all that a configuration takes but for taking it.  Answered with L{Done} or L{Failed}; an earlier one is off.
    """

    path: str
    text: bytes
    stamp: Stamp | None
    listeners: list[Given]
    log: bool
    """Whether the last descriptor is that of the access log."""
    workers: int = 1
    """How many there are, this one included."""
    board: bool = False
    """Whether there is a board; a worker without one judges for itself."""


class Commit(Message):
    """Serve what was prepared.  Answered with L{Done} or L{Failed}, and then the worker has no use any more."""


class Forget(Message):
    """What was prepared is off."""


class Drain(Message):
    """Accept nothing more, let requests end, and exit.  Answered when nothing more is accepted."""


class Hurry(Message):
    """Cut off what is still under way."""


class Ping(Message):
    """Answered by whoever's event loop turns, with L{Counted}."""


# -- from a worker


class Started(Message, kw_only=True):
    """The first word.  Not answered."""

    version: str
    reactor: str
    board: bool = False
    """Whether it knows of a board."""


class Event(Message, kw_only=True):
    """Something for the log.  Not answered."""

    level: str
    namespace: str
    text: str


class Leaving(Message):
    """It was told to end by a signal: it accepts nothing more.  Not answered."""


# -- of the board; not answered


class Lead(Message, kw_only=True):
    """
    To a worker: judge for all from now on; its posts carry this number.  0 = no more, and L{Posts} with all that there
    is follows.  From a worker, with 0: it cannot any more.
    """

    term: int


class Follow(Message, kw_only=True):
    """From a worker: it wants to be told of a topic, or no more.  The first is followed by L{Posts}."""

    topic: str
    follows: bool


class Post(Message, kw_only=True):
    """From who leads, and to the others: what is posted there now; None = nothing."""

    topic: str
    key: str
    value: Any
    term: int = 0


class Posts(Message, kw_only=True):
    """Likewise: all that is posted on some topics, in the place of what was."""

    posts: dict[str, dict[str, Any]]
    term: int = 0


class Observed(Message, kw_only=True):
    """From a worker, and to who leads: what it observed."""

    topic: str
    observed: Any


# -- answers


class Done(Message):
    """It is done."""


class Failed(Message, kw_only=True):
    """It is not; all is as before."""

    text: str


class Counted(Message, kw_only=True):
    """A L{protogate.observe.snapshot.Snapshot}; also the last word of a worker that leaves, and no answer then."""

    snapshot: dict[str, Any]


Word = (
    Prepare | Commit | Forget | Drain | Hurry | Ping | Started | Event | Leaving | Done | Failed | Counted
    | Lead | Follow | Post | Posts | Observed
)  # fmt: skip
"""What can be read."""
