"""
Who was authenticated: C{exchange.identity}, None until a module has found out.

Rules
- Only a module that verified something makes one.  A module that finds another later puts its own in the place of it.
- Claims are what the issuer said, as JSON has it.  Whoever reads one as a text or as a list gets what is unambiguous:
  an object is never flattened into words that somebody could take for others.
- A name that has to be changed to be told (C{"ad\\nmin"} in a field is C{admin}) is nobody's name.
- It holds no secret: it is named in records, conditions and templates.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, Final

NOTHING: Final[Mapping[str, Any]] = {}
_control: Final = re.compile(r"[\x00-\x1f\x7f]").search


def certain(name: str) -> bool:
    """Whether a name is the same everywhere: in a field of a request, in a line of a log, in a comparison."""
    return name == name.strip() and (name.isprintable() or _control(name) is None)


class Identity:
    """
    @ivar user: its name, in the words of whoever vouches for it; may be empty where only claims are known.
    @ivar scheme: how it was proved: C{basic}, C{jwt}, C{key} …
    @ivar claims: what else is known about it; JSON values by name.  Do not change it.
    """

    __slots__ = ("claims", "scheme", "user")

    def __init__(self, user: str, scheme: str, claims: Mapping[str, Any] = NOTHING) -> None:
        self.user, self.scheme, self.claims = user, scheme, claims

    def claim(self, name: str) -> Any:
        """
        The claim of that name, or, where there is none, what stands at that path: C{realm_access.roles}.  None when
        there is neither.
        """
        found: Any = self.claims
        if name in found or "." not in name:
            return found.get(name)
        for step in name.split("."):
            if not isinstance(found, Mapping):
                return None
            found = found.get(step)
        return found

    def named(self, name: str) -> str:
        """
        A claim as the name of somebody: a text or a whole number.  Empty where it is anything else, or a text that
        somebody could take for another one: with control characters, which no field of a request can hold, or with
        white space around it.
        """
        value = self.claim(name)
        if isinstance(value, str):
            return value if certain(value) else ""
        return str(value) if type(value) is int else ""

    def text(self, name: str) -> str:
        """
        A claim as one text; empty when it is not there or null.  A list of texts is joined by commas, unless there are
        commas in it: that, and all else that is no text, is JSON.
        """
        value = self.claim(name)
        if isinstance(value, str):
            return value
        if value is None:
            return ""
        if isinstance(value, list) and all(isinstance(item, str) and "," not in item for item in value):
            return ",".join(value)
        return json.dumps(value, separators=(",", ":"))

    def texts(self, name: str) -> tuple[str, ...]:
        """
        A claim as a list: the texts of a list, one text alone; empty when it is anything else.  C{scope} is a list of
        words with spaces between (RFC 8693, 4.2).
        """
        value = self.claim(name)
        if isinstance(value, str):
            return tuple(value.split()) if name == "scope" else (value,)
        if isinstance(value, list):
            return tuple([item for item in value if isinstance(item, str)])
        return ()

    def __repr__(self) -> str:
        return f"<Identity {self.scheme} {self.user!r}>"
