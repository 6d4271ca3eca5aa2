"""
What a case of the suite is, and the words for what came of it.

    case("6.7-length", "6.7", "A PING of other than 8 bytes is a connection error of type FRAME_SIZE_ERROR.",
         [raw(PING, payload=bytes(7))], closed("FRAME_SIZE_ERROR"))

Rules
- A case expects what the RFC's text asks for, nothing wider.  Where an end does what another paragraph allows instead,
  L{h2differs} says so, with that paragraph.
- Between two items of C{send} all becomes quiet.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from h2frames import Field, fields, headers, request
from h2peer import Peer

Item = bytes | Callable[[Peer], bytes]
"""Bytes, or what makes them from what has come so far."""


def closed(*codes: str) -> tuple[str, ...]:
    """A connection error of one of these types (RFC 9113, 5.4.1)."""
    return tuple(f"closed {code}" for code in codes)


def reset(*codes: str) -> tuple[str, ...]:
    """A stream error of one of these types (RFC 9113, 5.4.2)."""
    return tuple(f"reset {code}" for code in codes)


def answer(status: int = 200) -> tuple[str, ...]:
    """The request is answered; as a client: the response is taken."""
    return (f"answer {status}",)


OPEN = ("open",)
"""Nothing happens: the stream is as it was, the connection goes on."""
MALFORMED = (*reset("PROTOCOL_ERROR"), "answer 400")
"""A stream error, or a request's 400 before it (RFC 9113, 8.1.1)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One rule."""

    name: str
    """It begins with the section, and is unique for its role."""
    section: str
    """Of RFC 9113, or of another when it says so."""
    must: str
    """What the RFC asks for, in short."""
    send: tuple[Item, ...]
    """What the peer sends, behind its preface."""
    expect: tuple[str, ...]
    """What may come of it: see L{Peer.seen}."""
    stream: int = 1
    """The stream that C{expect} speaks of."""
    said: Mapping[int, int] = field(default_factory=dict)
    """The peer's first SETTINGS."""
    preface: bytes | None = None
    """Instead of preface and first SETTINGS."""
    then: bool = True
    """Another exchange on the connection works afterwards, if that goes on."""
    secret: bool = False
    """What C{stream} carries must not reach an application as if all of it were well."""
    look: Callable[[Peer], None] | None = None
    """More assertions about what came."""
    ask: Mapping[str, Any] | None = None
    """As a client: what is under way: C{method}, C{target}, and C{content}, bytes, or C{open}; None = GET /."""


class Role:
    """
    What differs between a server that reads requests and a client that reads responses.

    @ivar stream: of the message that a shared case brings.
    @ivar pairs: of its first section.
    """

    def __init__(self, client: bool) -> None:
        self.client = client  # the end that is looked at is the client
        self.stream = 1 if client else 3
        self.pairs: list[Field] = [(b":status", b"200")] if client else request()

    def message(self, block: bytes = b"", more: Sequence[Field] = (), **named: Any) -> bytes:
        """HEADERS of a message with these fields, and with that block behind them, which ends there."""
        return headers(self.stream, fields([*self.pairs, *more]) + block, **named)


CLIENT, SERVER = Role(True), Role(False)


class Table:
    """The cases of one role, in the order of the RFC."""

    def __init__(self) -> None:
        self.cases: dict[str, Case] = {}

    def __call__(
        self, name: str, must: str, send: Sequence[Item], expect: tuple[str, ...], section: str = "", **named: Any
    ) -> None:
        """One more; its section is what its name begins with, unless said otherwise."""
        assert name not in self.cases, name
        section = section or name.split("-", maxsplit=1)[0]
        self.cases[name] = Case(name=name, section=section, must=must, send=tuple(send), expect=expect, **named)
