"""What becomes of the fields of a message whose content gets another coding (RFC 9110, 8.4)."""

from __future__ import annotations

from typing import Final

from protogate.message import Headers

BYTES: Final = frozenset((b"content-digest", b"content-length", b"content-md5"))
"""Fields that tell of the very bytes of the content (RFC 9530, 2)."""


def recode(headers: Headers, *gone: bytes) -> None:
    """
    Take out what told of the bytes as they were; a strong validator named them, and becomes a weak one (8.8.1).

    @param gone: further fields that go.
    """
    headers[:] = [
        (line[0], b"W/" + line[1]) if line[0] == b"etag" and line[1].startswith(b'"') else line
        for line in headers
        if line[0] not in BYTES and line[0] not in gone
    ]
