"""
Whether a copy was answered as the original was: status, fields, content.  On what both codecs have made of it, so that
the two may have come over different protocols.

Rules
- An answer is kept only as far as comparing needs it: a digest of the content, or up to C{limit} bytes of it where it
  is compared as JSON.
- JSON is compared by what it means: order of members and spelling of numbers and strings do not count.  What is no JSON
  on both sides, or too much of it, is compared by its bytes.
- It names what differs; what stood there it says only where the configuration wants that: content is personal.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, Final

import msgspec

from protogate.codings import UNPACKERS, Bounded
from protogate.message import Field, Headers, Response

DIGEST: Final = "digest"
LENGTH: Final = "length"
JSON: Final = "json"
NOTHING: Final = "none"
BODIES: Final = (DIGEST, LENGTH, JSON, NOTHING)
"""How content is compared."""
VOLATILE: Final = frozenset(
    (
        b"age",
        b"cache-status",
        b"content-length",
        b"date",
        b"proxy-status",
        b"server",
        b"server-timing",
        b"via",
        b"x-request-id",
    )
)
"""Fields that are about the moment, or the way, of an answer."""
MOST: Final = 8
"""Differences that are named."""
TEXT: Final = 80
"""Characters of a name or a value."""
NODES: Final = 100_000
"""Values of JSON that are looked at."""
RATIO: Final = 100
"""How many times as much may come out of what is packed."""

Path = tuple[str, ...]
"""Of a value in JSON: names and indexes; C{*} is any."""
_MISSING: Final = object()


@dataclass(frozen=True, slots=True)
class Terms:
    """
    What counts.

    @ivar ignored: names of fields that do not.
    @ivar body: one of L{BODIES}.
    @ivar paths: values of JSON that do not count, with all that is in them.
    @ivar limit: bytes of content that are kept to be compared as JSON.
    @ivar values: what differs is shown.
    """

    status: bool = True
    headers: bool = True
    ignored: frozenset[bytes] = VOLATILE
    body: str = DIGEST
    paths: tuple[Path, ...] = ()
    limit: int = 64 * 1024
    values: bool = False


class Said:
    """
    One answer, as far as it is compared.

    @ivar size: bytes of content so far.
    @ivar trailers: fields behind the content.
    @ivar whole: all of it came.
    """

    __slots__ = ("_digest", "_room", "_wants", "headers", "parts", "size", "status", "trailers", "whole")

    def __init__(self, response: Response, terms: Terms) -> None:
        self.status, self.headers = response.status, Headers(response.headers)
        self.size, self.whole, self.trailers = 0, response.body is None, Headers()
        self._room = terms.limit if terms.body == JSON else 0
        self._wants = terms.body in (JSON, DIGEST)
        self._digest: Any = None
        self.parts: list[bytes] | None = [] if terms.body == JSON else None
        """The content, as long as it is kept."""

    def add(self, data: bytes) -> None:
        """Some of its content."""
        self.size += len(data)
        if not self._wants:
            return
        parts = self.parts
        if parts is not None:
            parts.append(data)
            if self.size <= self._room:
                return
            self.parts, data = None, b"".join(parts)
        if self._digest is None:
            self._digest = blake2b(digest_size=16)
        self._digest.update(data)

    def end(self, trailers: Sequence[Field] | None) -> None:
        """That was all of it."""
        self.whole = True
        if trailers:
            self.trailers.extend(trailers)

    @property
    def digest(self) -> bytes:
        """Of all of its content."""
        if self.parts is not None:
            return blake2b(b"".join(self.parts), digest_size=16).digest()
        return b"" if self._digest is None else self._digest.digest()


def differences(original: Said, copy: Said, terms: Terms) -> list[str]:
    """
    What differs, in words, L{MOST} of them; none where nothing that counts does.  Takes its time: for a thread.
    """
    found: list[str] = []
    for word in _differences(original, copy, terms):
        if len(found) == MOST:
            found.append("more")
            break
        found.append(word)
    return found


def _differences(original: Said, copy: Said, terms: Terms) -> Iterator[str]:
    if terms.status and original.status != copy.status:
        yield f"status: {original.status}, {copy.status}"
    if terms.headers:
        yield from _fields("header", original.headers, copy.headers, terms)
        yield from _fields("trailer", original.trailers, copy.trailers, terms)
    if terms.body != NOTHING:
        yield from _content(original, copy, terms)


def _fields(kind: str, original: Headers, copy: Headers, terms: Terms) -> Iterator[str]:
    names = {name for fields in (original, copy) for name, _ in fields} - terms.ignored
    for name in sorted(names):
        before, after = original.all(name), copy.all(name)
        if before != after:
            text = f"{kind} {_short(name.decode('latin-1'))}"
            yield f"{text}: {_value(before)}, {_value(after)}" if terms.values else text


def _value(values: list[bytes]) -> str:
    return _short(b", ".join(values).decode("latin-1")) if values else "missing"


def _content(original: Said, copy: Said, terms: Terms) -> Iterator[str]:
    if original.parts is not None and copy.parts is not None:
        try:
            values = [msgspec.json.decode(_plain(said, terms.limit)) for said in (original, copy)]
        except (ValueError, RecursionError):  # a DecodeError is a ValueError
            pass
        else:
            yield from _json(values[0], values[1], terms)
            return
    if original.size != copy.size:
        yield f"length: {original.size}, {copy.size}"
    elif terms.body != LENGTH and original.digest != copy.digest:
        yield "content"


def _plain(said: Said, limit: int) -> bytes:
    """
    Its content, without its coding.

    @raise ValueError: that cannot be had.
    """
    data = b"".join(said.parts or ())
    codings = b",".join(said.headers.all(b"content-encoding")).strip().lower()
    if codings in (b"", b"identity"):
        return data
    if codings not in UNPACKERS:
        raise ValueError("no coding of ours")
    unpacker, out, size = Bounded(UNPACKERS[codings](), RATIO), [], 0
    unpacker.give(data)
    while piece := unpacker.take():
        out.append(piece)
        size += len(piece)
        if size > limit:
            raise ValueError("too much")
    if not unpacker.ended:
        raise ValueError("not all of it")
    return b"".join(out)


def _json(original: Any, copy: Any, terms: Terms) -> Iterator[str]:
    """In what two values differ; without recursion, for they may be deep."""
    left: list[tuple[Path, Any, Any, Sequence[Path]]] = [((), original, copy, terms.paths)]
    for _ in range(NODES):
        if not left:
            return
        path, before, after, ignored = left.pop()
        inner: Iterator[tuple[str, Any, Any]]
        if isinstance(before, dict) and isinstance(after, dict):
            names = [*before, *(name for name in after if name not in before)]
            inner = ((name, before.get(name, _MISSING), after.get(name, _MISSING)) for name in names)
        elif isinstance(before, list) and isinstance(after, list):
            if len(before) != len(after):
                yield _named(path, f"{len(before)} items, {len(after)}")
            inner = ((str(at), *both) for at, both in enumerate(zip(before, after, strict=False)))
        else:
            if before != after or isinstance(before, bool) is not isinstance(after, bool):
                yield _named(path, f"{_shown(before)}, {_shown(after)}" if terms.values else "")
            continue
        below = []
        for name, one, other in inner:
            rest = [rule[1:] for rule in ignored if rule[0] in (name, "*")]
            if () not in rest:
                below.append(((*path, name), one, other, rest))
        left.extend(reversed(below))
    yield "json: too much to be compared"


def pointer(path: Path) -> str:
    """As RFC 6901 writes it."""
    return "".join("/" + name.replace("~", "~0").replace("/", "~1") for name in path)


def _named(path: Path, what: str) -> str:
    name = _short(pointer(path)) or "all of it"
    return f"json {name}: {what}" if what else f"json {name}"


def _shown(value: Any) -> str:
    return "missing" if value is _MISSING else _short(msgspec.json.encode(value).decode("utf-8"))


def _short(text: str) -> str:
    """One line of printable characters, bounded."""
    text = text if len(text) <= TEXT else text[:TEXT] + "…"
    return text if text.isprintable() else text.encode("unicode_escape").decode("ascii")
