"""
What is left to each endpoint, who holds it back, and why; which targets of releases are taken back: as the pages for
operators have it.

Rules
- Only what is judged is there.
- It is plain data, and becomes JSON in ASCII: what an upstream says of itself may be among the reasons.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from protogate.observe.snapshot import Number, Shares

Why = Callable[[str, str, str], str]
"""Given upstream, endpoint and who judges it: why it is held back."""


def told(shares: Shares, why: Why) -> dict[str, Any]:
    """By upstream and endpoint."""
    return {
        upstream: {
            at: {
                "share": judges.get("", 1.0),
                "held": {by: {"share": share, "why": why(upstream, at, by)} for by, share in judges.items() if by},
            }
            for at, judges in endpoints.items()
        }
        for upstream, endpoints in shares.items()
    }


def targets(gauges: Mapping[str, Mapping[str, Number]], why: Mapping[str, str]) -> dict[str, Any]:
    """Which targets of releases are judged, by their titles, and why one is taken back."""
    return {
        title: {"held": bool(numbers["held"]), **({"why": why[title]} if title in why else {})}
        for title, numbers in gauges.items()
    }


def page(found: dict[str, Any]) -> bytes:
    """In words."""
    return json.dumps(found, indent=2).encode("ascii") + b"\n"
