"""
Fields that HPACK must never put into its table, for whoever sends them said so (RFC 7541, 6.2.3 and 7.1.3).

Who shares a connection can find out, guess by guess, what is in its table.  A gateway shares one to an upstream between
all clients, so it keeps to what each of them has said.

Rules
- L{Unindexed} is a field like any other, for everybody; engines look at its class.
- Whoever makes another field of it has made a field that is none of these.
"""

from __future__ import annotations

from typing import Any, Final

from hpack import NeverIndexedHeaderTuple

ngh2: Any
try:
    import ngh2
except ImportError:  # pragma: no cover - the extra `ngh2`
    ngh2 = None

_TOLD: Final[tuple[Any, ...]] = (
    (NeverIndexedHeaderTuple,) if ngh2 is None else (ngh2.NeverIndexedHeader, NeverIndexedHeaderTuple)
)
"""What engines make of such a field."""
Unindexed: Final[Any] = type("Unindexed", _TOLD, {"__slots__": (), "__doc__": "A name and a value."})
"""C{Unindexed(name, value)}: what each engine takes for one."""
TOLD: Final[frozenset[Any]] = frozenset((*_TOLD, Unindexed))
"""Classes of fields that are such."""
