"""
What an attempt says of the endpoint that was asked.

Rules
- Only what the endpoint did, or did not do, counts for or against it.  A client that leaves or has no time left, a
  limit of ours, a connection that was closed while it was idle, an endpoint that drains: they say nothing.
- A status is the intermediate model's: codecs whose protocols have other words for failures translate them.
- A call whose status stands in trailers is judged by these where they came together with the head.  Else it was
  answered well for now, as every answer whose rest may still break off, and how it ends is told besides.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final

from twisted.internet.defer import CancelledError

from protogate.body import Body
from protogate.errors import ALWAYS, IDEMPOTENT, UPSTREAM, Abort, Phase
from protogate.exchange.ledger import Ledger
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


CALL: Final = b"grpc-status"
"""Where the status of an answer says nothing of the call, as in gRPC: in a head alone or in trailers, this does."""
FAILURES: Final = frozenset((b"2", b"13", b"14", b"15"))
"""UNKNOWN, INTERNAL, UNAVAILABLE, DATA_LOSS; what is left is said of the request, or up to the client: its deadline."""


UNAVAILABLE: Final = b"14"
"""Of those, what may be asked again."""


def unavailable(response: Response) -> bool:
    """Whether an answer says of its call that there is nobody for it right now."""
    return response.body is None and response.headers.get(CALL) == UNAVAILABLE


def said(response: Response) -> str:
    """What an answer that is not passed on said, beside its status; empty = nothing."""
    call = None if response.body is not None else response.headers.get(CALL)
    return "" if call is None else f"{CALL.decode()} {call.decode('latin-1')}"


def answered(response: Response) -> Outcome:
    """Of an answer whose head came, and perhaps all of it."""
    if response.status >= 500:
        return ERROR
    body = response.body
    if body is None:
        return ERROR if response.headers.get(CALL) in FAILURES else WELL
    if isinstance(body, Body):
        for name, value in body.trailers:
            if name == CALL:
                return ERROR if value in FAILURES else WELL
    return WELL


def ended(ledger: Ledger, response: Response | None, reason: Abort | None) -> Outcome:
    """
    What the rest of an answer says of its endpoint, of whose head nothing bad was told; NOTHING = no more.

    @param ledger: of the exchange, which is over.
    @param response: which it had; one of our own making says nothing.
    @param reason: what broke it off, or None.
    """
    if reason is not None:
        return failed(reason)
    if response is None or not response.protocol or response.status >= 300:
        return NOTHING
    return ERROR if b"%d" % ledger.rpc in FAILURES else NOTHING


def failed(error: BaseException | None, ledger: Ledger | None = None) -> Outcome:
    """
    Of an attempt that came to no answer, or whose answer broke off.

    @param ledger: of the attempt, while it tells of no other.
    """
    if isinstance(error, CancelledError) or not isinstance(error, Abort):
        return NOTHING
    if error.who is not UPSTREAM or error.phase is Phase.QUEUE or error.phase is Phase.DEADLINE:
        return NOTHING
    if error.retry is ALWAYS and error.phase is None and (error.status == 503 or not error.error):
        return NOTHING  # taken out of use, or draining: it has not looked at the request, and need not
    if error.retry is IDEMPOTENT and ledger is not None and ledger.reused:
        return NOTHING  # the connection was idle for longer than it keeps one
    return FAILED
