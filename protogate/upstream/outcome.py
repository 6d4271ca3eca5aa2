"""
What an attempt says of the endpoint that was asked.

Rules
- Only what the endpoint did, or did not do, counts for or against it.  A client that leaves, a limit of ours, a request
  that nobody could have answered: they say nothing.
- A status is the intermediate model's: codecs whose protocols have other words for failures translate them.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final

from twisted.internet.defer import CancelledError

from protogate.errors import UPSTREAM, Abort, Phase
from protogate.message import Response


class Outcome(IntEnum):
    """Of one attempt."""

    WELL = 0
    """It answered, and not that it had failed."""
    ERROR = 1
    """It answered that it had failed: 5xx."""
    FAILED = 2
    """It could not be reached, broke off, or took longer than it may."""
    NOTHING = 3
    """It has nothing to do with it."""


WELL: Final = Outcome.WELL
ERROR: Final = Outcome.ERROR
FAILED: Final = Outcome.FAILED
NOTHING: Final = Outcome.NOTHING


def answered(response: Response) -> Outcome:
    """Of an answer whose head came."""
    return ERROR if response.status >= 500 else WELL


def failed(error: BaseException | None) -> Outcome:
    """Of an attempt that came to no answer, or whose answer broke off."""
    if isinstance(error, CancelledError) or not isinstance(error, Abort):
        return NOTHING
    return FAILED if error.who is UPSTREAM and error.phase is not Phase.QUEUE else NOTHING
