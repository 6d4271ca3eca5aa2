"""
What becomes of the streams of C{streams.py}.  A kind's name is the path that the client asks for, so both ends know it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from protogate_http.frames2 import INTERNAL_ERROR


@dataclass(frozen=True)
class Kind:
    """
    What becomes of a stream.

    @ivar share: of a hundred.
    @ivar upload: bytes that the client sends; -1 = more than it has said.
    @ivar ends: whether the client ends what it sends.
    @ivar reset: when the client resets it: at once, later, at the first DATA, when its window is used up (closed),
        after the end, when it is told to (held); a stream that is held gets no window back from either end.
    @ivar answer: bytes that the upstream sends; -1 = it does not answer.
    @ivar whole: whether the upstream ends its answer; else it resets it (C{code}), or leaves it open.
    """

    share: int
    upload: int = 0
    ends: bool = True
    reset: str = ""
    answer: int = 100
    whole: bool = True
    code: int | None = None
    padded: bool = True


KINDS: Final[dict[str, Kind]] = {
    "small": Kind(35),
    "large": Kind(10, answer=40_000),
    "post": Kind(25, upload=10_000),
    # reset by the client, in every state
    "at-once": Kind(3, reset="at once"),
    "unanswered": Kind(4, reset="later", answer=-1),
    "uploading": Kind(4, upload=5_000, ends=False, reset="later", answer=-1),
    "downloading": Kind(4, reset="data", answer=10_000, whole=False),
    "closed": Kind(4, reset="closed", answer=100_000),
    "answered": Kind(3, reset="end"),
    # by the upstream
    "broken": Kind(3, answer=5_000, whole=False, code=INTERNAL_ERROR),
    # by the gateway
    "early": Kind(3, upload=30_000, ends=False, answer=10),
    "surplus": Kind(2, upload=-1, answer=-1),
    # one frame, so that the window is whole when it is given back
    "piece": Kind(0, upload=8_000, padded=False),
    "bite": Kind(0, answer=8_000, padded=False),
    # paused
    "held-down": Kind(0, reset="held", answer=1 << 20),
    "held-up": Kind(0, upload=1 << 20, reset="held", answer=-1),
}
