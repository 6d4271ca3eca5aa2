"""
Where an engine does other than the text of a rule asks for, and what allows it.

    DIFFERS[role, case][engine] = (what is seen instead, why that is right)

Rules
- An engine that does what the rule asks for has no business here: the test says so.
- What no paragraph allows is not listed but mended.
"""

from __future__ import annotations

from typing import Final

WIDER: Final = "RFC 9113, 5.4.1: a stream error may be treated as a connection error."
PLAINER: Final = "RFC 9113, 5.4: PROTOCOL_ERROR may stand for any more specific code."
DISCARDED: Final = "RFC 9113, 5.1: what comes for a closed stream may be processed minimally, and discarded."
REASONS: Final = (WIDER, PLAINER, DISCARDED)

DIFFERS: dict[tuple[str, str], dict[str, tuple[str, str]]] = {}
_BOTH: Final = ("server", "client")


def _add(engines: str, seen: str, why: str, names: str, roles: tuple[str, ...] = _BOTH) -> None:
    for role in roles:
        for name in names.split():
            for engine in engines.split():
                DIFFERS.setdefault((role, name), {})[engine] = (seen, why)


_SERVER, _CLIENT = ("server",), ("client",)

_add("ngh2 h2", "closed FRAME_SIZE_ERROR", WIDER, "6.3-length-4 6.3-length-6")
_add("ngh2 h2", "closed PROTOCOL_ERROR", WIDER, "6.9-zero")
_add("ngh2 h2", "closed PROTOCOL_ERROR", WIDER, "8.1-data-first", _CLIENT)

_add("ngh2", "closed FLOW_CONTROL_ERROR", WIDER, "6.9.1-overflow 6.9.1-overflow-sum")
_add(
    "ngh2",
    "closed STREAM_CLOSED",
    WIDER,
    "5.1-half-closed-data 5.1-half-closed-headers 5.1-half-closed-trailers",
    _SERVER,
)
_add("ngh2", "closed PROTOCOL_ERROR", PLAINER, "4.2-headers-short 4.2-data-short")
_add("ngh2", "open", DISCARDED, "5.1.1-lower 5.1.1-passed-data", _SERVER)

_add(
    "h2",
    "closed PROTOCOL_ERROR",
    PLAINER,
    "4.3-garbage 4.3-trailers 4.3-cut 6.5-ack-payload 7541-index-0 7541-index-beyond 7541-name-beyond "
    "7541-integer-endless 7541-integer-cut 7541-string-beyond 7541-value-missing 7541-huffman-eos "
    "7541-huffman-padding 7541-huffman-zeros 7541-size-late 7541-size-above 7541-evicted",
)
_add("h2", "closed PROTOCOL_ERROR", PLAINER, "7541-size", _SERVER)
_add(
    "h2",
    "closed PROTOCOL_ERROR",
    WIDER,
    "8.1-trailers-open 8.1-request-again",
    _SERVER,
)
_add(
    "h2",
    "closed PROTOCOL_ERROR",
    WIDER,
    "8.1-data-interim 8.1-interim-end 8.1-trailers-open",
    _CLIENT,
)
