"""
Durations and sizes: a number with its unit.  A bare number says nothing, except 0.  And a number of processes, which
has a word for "as many as there are cores".
"""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Any, Final

from protogate.config.model import Bytes, Seconds, Workers
from protogate.config.scalar import shown
from protogate.errors import ConfigError

YEAR: Final = 366 * 86400
"""The longest duration, in seconds."""
LARGEST: Final = 2**60
"""The largest size, in bytes."""
CROWD: Final = 256
"""The most workers."""
AUTO: Final = Workers(-1)
"""One for each core."""

_DURATION: Final = re.compile(r"([0-9]{1,12}(?:\.[0-9]{1,9})?)(ms|s|m|h|d)", re.ASCII)
_SIZE: Final = re.compile(r"([0-9]{1,19})([KMG]i?B|B)", re.ASCII)
_NUMBER: Final = re.compile(r"[-+]?[0-9]+(?:\.[0-9]*)?", re.ASCII)
_SECONDS: Final = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_BYTES: Final = {
    "B": 1,
    "KB": 1000,
    "KiB": 1024,
    "MB": 1000**2,
    "MiB": 1024**2,
    "GB": 1000**3,
    "GiB": 1024**3,
}


def duration(value: Any) -> Seconds:
    """C{250ms 10s 1.5m 1h 1d} or 0, as seconds.  @raise ConfigError: it is none of these."""
    if _zero(value):
        return Seconds(0)
    match = _DURATION.fullmatch(value) if isinstance(value, str) else None
    if match is None:
        raise ConfigError(f"expected a duration such as 250ms, 10s, 5m or 1h, got {_got(value)}")
    number, unit = float(match[1]), match[2]
    seconds = number / 1000 if unit == "ms" else number * _SECONDS[unit]  # a division is right to the last bit
    if seconds > YEAR:
        raise ConfigError(f"expected a duration of at most 366d, got {shown(value)}; 0 switches a clock off")
    return Seconds(seconds)


def size(value: Any) -> Bytes:
    """C{512B 8KiB 1MB 2GiB} or 0, as bytes.  @raise ConfigError: it is none of these."""
    if _zero(value):
        return Bytes(0)
    match = _SIZE.fullmatch(value) if isinstance(value, str) else None
    if match is None:
        raise ConfigError(f"expected a size such as 512B, 8KiB, 1MB or 2GiB, got {_got(value)}")
    count = int(match[1]) * _BYTES[match[2]]
    if count > LARGEST:
        raise ConfigError(f"expected a size below 2^60 bytes, got {shown(value)}; 0 switches a limit off")
    return Bytes(count)


def workers(value: Any) -> Workers:
    """C{auto}, or a number from 0 on.  @raise ConfigError: it is neither."""
    if value == "auto":
        return AUTO
    if type(value) is int and 0 <= value <= CROWD:
        return Workers(value)
    advice = "; remove the quotes" if isinstance(value, str) and is_number(value) else ""
    raise ConfigError(f"expected auto or a whole number from 0 to {CROWD}, got {shown(value)}{advice}")


def written(value: float) -> str:
    """Seconds, Bytes or Workers as the file would say them: read back, they are the same value."""
    if not value:
        return "0"
    if isinstance(value, Workers):
        return "auto" if value == AUTO else str(int(value))
    if isinstance(value, Bytes):
        unit = next(unit for unit in ("GiB", "MiB", "KiB", "B") if value % _BYTES[unit] == 0)
        return f"{value // _BYTES[unit]}{unit}"
    unit = next((unit for unit in ("h", "m", "s") if value % _SECONDS[unit] == 0), "")
    if unit:
        return f"{value / _SECONDS[unit]:.0f}{unit}"
    return f"{Decimal(repr(float(value))) * 1000:.6f}".rstrip("0").rstrip(".") + "ms"


def is_number(text: str) -> bool:
    """Whether a text is nothing but a number."""
    return _NUMBER.fullmatch(text) is not None


def _zero(value: Any) -> bool:
    return (isinstance(value, int | float) and not isinstance(value, bool) and value == 0) or value == "0"


def _got(value: Any) -> str:
    if isinstance(value, int | float) and not isinstance(value, bool):
        return f"{value} without a unit"
    if isinstance(value, str) and is_number(value):
        return f"{shown(value)} without a unit"
    return shown(value)
