"""
JSON with one reading: an object in UTF-8, no name twice, no numbers that JSON does not have, not nested without end.

Who checks a token and who reads it must see the same: of two members with one name, parsers take the first or the last.
"""

from __future__ import annotations

import json
from typing import Any


def mapping(data: bytes) -> dict[str, Any]:
    """
    The object that it is.

    @raise ValueError: what is wrong with it; nothing of it is repeated.
    """
    found = value(data)
    if not isinstance(found, dict):
        raise ValueError("it is no object")
    return found


def value(data: bytes) -> Any:
    """
    Whatever it is.

    @raise ValueError: as in L{mapping}.
    """
    try:
        return json.loads(data.decode("utf-8"), object_pairs_hook=_once, parse_constant=_never)
    except UnicodeDecodeError:
        raise ValueError("it is not UTF-8") from None
    except json.JSONDecodeError as error:
        raise ValueError(f"it is no JSON: {error.msg} at {error.pos}") from None
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a name stands there twice")
    return found


def _never(name: str) -> Any:
    raise ValueError(f"{name} is no number")
