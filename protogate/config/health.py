"""What stands in the health check of an upstream."""

from __future__ import annotations

import re
from typing import Final

from protogate.config.scalar import shown
from protogate.errors import ConfigError

_PATH: Final = re.compile(r"/[!-~]*")
_RANGE: Final = re.compile(r"([1-5][0-9]{2})(?:-([1-5][0-9]{2}))?", re.ASCII)


def request_path(text: str) -> str:
    """A path and perhaps a query, as a request has them.  @raise ConfigError: it is none."""
    if not _PATH.fullmatch(text) or "#" in text:
        raise ConfigError(f"expected a path such as /health, percent-encoded, got {shown(text)}")
    return text


def statuses(text: str) -> frozenset[int]:
    """C{200-299,304}: what these are.  @raise ConfigError: they are none."""
    found: set[int] = set()
    for part in text.split(","):
        match = _RANGE.fullmatch(part.strip(" "))
        if match is None or int(match[2] or match[1]) < int(match[1]):
            raise ConfigError(f"expected statuses such as 200 or 200-299, with commas between, got {shown(text)}")
        found.update(range(int(match[1]), int(match[2] or match[1]) + 1))
    return frozenset(found)
