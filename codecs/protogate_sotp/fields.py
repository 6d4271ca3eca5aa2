"""
Metadata and trailers: pairs of bytes on the wire, fields of the model (docs/sotp.md).

    sizes of name (1) and value (2), of all pairs | name | value | name | value …

Rules
- Lengths are added up once, at the end: what is cut off, and what is left over, is the same fault.
- Bytes are checked by patterns only.  Names are lower-case tokens; fields of framing and of the connection are none.
- What is written is checked as well: a module cannot put onto the wire what a peer must refuse.
- What does not fit is never cut: the message is refused.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable
from itertools import chain
from typing import Final

from mypy_extensions import mypyc_attr

from protogate.message import Field, spellings

KNOWN: Final = 4096
"""Names that are remembered to be in order; a few thousand, whoever sends them."""
_CLOSED: Final = frozenset(
    (
        b"connection",
        b"content-length",
        b"host",
        b"http2-settings",
        b"keep-alive",
        b"proxy",
        b"proxy-connection",
        b"trailer",
        b"transfer-encoding",
        b"upgrade",
        b"te",
        b"expect",
    )
)
_CONDITIONAL: Final = {b"te": b"trailers", b"expect": b"100-continue"}
"""Those of them that may stand there with this one value."""
FORBIDDEN: Final = (_CLOSED | frozenset().union(*map(spellings, _CLOSED))) - set(_CONDITIONAL)
"""Fields of framing or of the connection, also as those spell them who see no difference between C{_} and C{-}."""

_TOKEN: Final = re.compile(rb"[!#$%&'*+\-.^_`|~0-9a-z]++").fullmatch
_TEXT: Final = bytes([9, *range(32, 127), *range(128, 256)])
_TABLES: Final = [struct.Struct("!" + "BH" * count) for count in range(129)]
_flat: Final = chain.from_iterable
_strip: Final = bytes.strip
_known: set[bytes] = set()


@mypyc_attr(native_class=False)
class Bad(Exception):
    """
    What was read, or is to be written, is no head.

    @ivar event: counted as.
    @ivar status: of the answer, as HTTP has it.
    """

    def __init__(self, text: str, event: str = "malformed_head", status: int = 400) -> None:
        super().__init__(text)
        self.text, self.event, self.status = text, event, status


def read(data: bytes, at: int, count: int) -> list[Field]:
    """
    So many pairs, which must be all that is left.

    @raise Bad: they are not, or one of them is no field.
    """
    begin = at + 3 * count
    if begin > len(data):
        raise Bad("the metadata is cut off")
    sizes = iter(_table(count).unpack_from(data, at))
    names, values, at = [], [], begin
    for name, value in zip(sizes, sizes, strict=True):
        middle = at + name
        names.append(data[at:middle])
        at = middle + value
        values.append(data[middle:at])
    if at != len(data):
        raise Bad("the metadata is not as long as the frame")
    if not _known.issuperset(names):
        for name_, value_ in zip(names, values, strict=True):
            if name_ not in _known:
                _admit(name_, value_)
    if data[begin:].translate(None, _TEXT) or list(map(_strip, values)) != values:
        raise Bad("a value in the metadata is none")
    return list(zip(names, values, strict=True))


def write(fields: list[Field], count: Callable[[str], None]) -> tuple[int, bytes]:
    """
    (number of pairs, what read() reads) of those that may be sent; each of the others is counted.

    @raise Bad: one is too long, or they are too many.
    """
    flat = list(_flat(fields))
    text, values = b"".join(flat), flat[1::2]
    if not _known.issuperset(flat[::2]) or text.translate(None, _TEXT) or list(map(_strip, values)) != values:
        flat = list(_flat(_sendable(fields, count)))
        text = b"".join(flat)
    number = len(flat) >> 1
    try:
        return number, _table(number).pack(*map(len, flat)) + text
    except struct.error:
        raise Bad("a field that is too long for SOTP", "invalid_request_refused", 500) from None


def _table(count: int) -> struct.Struct:
    return _TABLES[count] if count < len(_TABLES) else struct.Struct("!" + "BH" * count)


def _admit(name: bytes, value: bytes) -> None:
    """See that a name that is not known may stand there."""
    wanted = _CONDITIONAL.get(name)
    if wanted is not None:
        if value.lower() != wanted:
            if name == b"expect":
                raise Bad("an expectation that is not 100-continue", "unknown_expectation", 417)
            raise Bad("te may say trailers only")
    elif name in FORBIDDEN:
        raise Bad("a field of framing or of a connection in the metadata", "bad_framing")
    elif not _TOKEN(name) or len(name) > 255:
        raise Bad("a name in the metadata is none")
    elif len(_known) < KNOWN and len(name) < 64:
        _known.add(name)


def _sendable(fields: list[Field], count: Callable[[str], None]) -> list[Field]:
    """Those that a peer may be sent, as it must be sent them."""
    kept = []
    for name, value in fields:
        lowered, bare = name.lower(), value.strip(b" \t")
        try:
            if lowered not in _known:
                _admit(lowered, bare)
            if bare.translate(None, _TEXT):
                raise Bad("a value is none")
        except Bad:
            if lowered not in _CLOSED:
                count("invalid_field_dropped")
        else:
            kept.append((lowered, bare))
    return kept
