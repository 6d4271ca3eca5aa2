"""Names of header fields that a configuration file chooses."""

from __future__ import annotations

import re
from typing import Final

from protogate.config.scalar import shown
from protogate.errors import ConfigError

_TOKEN: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_TAKEN: Final = frozenset(
    (
        "connection",
        "content-encoding",
        "content-length",
        "content-type",
        "cookie",
        "date",
        "expect",
        "forwarded",
        "host",
        "keep-alive",
        "max-forwards",
        "proxy-connection",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
        "via",
    )
)
"""Those that mean something else to whoever reads them."""


def field_name(text: str) -> bytes:
    """
    The field that a value of the file names; nothing for nothing.

    @raise ConfigError: it is no name of a field, or one that has a meaning of its own.
    """
    name = text.lower()
    if name and _TOKEN.fullmatch(text) is None:
        raise ConfigError(f"{shown(text)} is no field name")
    if name in _TAKEN or name.startswith("x-forwarded-"):
        raise ConfigError(f"{shown(text)} has a meaning of its own; give it a name that stands for nothing else")
    return name.encode("ascii")
