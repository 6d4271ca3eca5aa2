"""
What is left to each endpoint, who holds it back, and why: as the page for operators has it.

Rules
- Only endpoints that are judged are there.
- It is plain data, and becomes JSON in ASCII: what an upstream says of itself may be among the reasons.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from protogate.observe.snapshot import Shares

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


def page(found: dict[str, Any]) -> bytes:
    """In words."""
    return json.dumps(found, indent=2).encode("ascii") + b"\n"
