"""
What the processes of one gateway tell each other of endpoints.

Rules
- One process leads: it looks at endpoints and judges them, for all.  Whoever does not lead tells it what was observed,
  and follows what it posts.
- What is posted stays: who comes later is told, and so is the next one to lead.
- Under C{endpoints/NAME} stands what is judged of the endpoints of an upstream (L{protogate.upstream.verdicts}).  Who
  has more to say, or something to hear, takes a topic of its own with a first word of its own, such as C{watch/NAME},
  or C{found/NAME} (L{protogate.upstream.known}).
- Keys and values are plain: texts, numbers, lists and dictionaries of them, None.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from mypy_extensions import mypyc_attr

Told = Callable[[str, Any], None]
"""Given a key and what is posted there now, None when nothing is any more."""
Heard = Callable[[Any], None]
"""Given what another process observed."""
Led = Callable[[bool], None]
"""Given whether this process leads from now on."""


@mypyc_attr(native_class=False)
class Board(Protocol):
    """The board as one process sees it."""

    leads: bool
    """Whether this process judges for all."""

    def follow(self, topic: str, told: Told, heard: Heard, led: Led) -> None:
        """
        From now on be told of a topic: at once of everything that is posted there, then of each change by others;
        and, while leading, what others observe; and of each change of C{leads}, which it finds out about at first by
        itself.  One follower a topic; another one takes its place.
        """

    def leave(self, topic: str) -> None:
        """Be told no more.  What is posted there stays, while any process follows it."""

    def post(self, topic: str, key: str, value: Any) -> None:
        """Only while leading: tell all others, and who comes later.  None takes it off."""

    def tell(self, topic: str, observed: Any) -> None:
        """To who leads; nothing happens when nobody does, or this process itself."""


class Alone:
    """L{Board} of a gateway of one process: nobody else is there to be told."""

    def __init__(self) -> None:
        self.leads = True

    def follow(self, topic: str, told: Told, heard: Heard, led: Led) -> None:
        """L{Board}."""

    def leave(self, topic: str) -> None:
        """L{Board}."""

    def post(self, topic: str, key: str, value: Any) -> None:
        """L{Board}."""

    def tell(self, topic: str, observed: Any) -> None:
        """L{Board}."""
