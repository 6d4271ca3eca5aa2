"""
A queue that does not end: more comes than can be served, and who came first has waited too long for it to be any use.

Rules
- It stands when it was never empty for a span of time: a burst, however large, that is over by then is no such thing.
- Who comes while it stands waits for one span at most, and so does, from then on, who is in it.  The newest is served
  first: its client is surely still there.
- It ends with the first moment in which nobody waits.

(The first rule is CoDel's, RFC 8289; both together are what Facebook's queues do: Maurer, "Fail at Scale", 2015.)
"""

from __future__ import annotations


class Standing:
    """
    @ivar on: it stands.
    """

    __slots__ = ("_since", "on")

    def __init__(self) -> None:
        self.on = False
        self._since = 0.0

    def begin(self, now: float) -> None:
        """The queue was empty up to now."""
        self._since, self.on = now, False

    def left(self, now: float, span: float) -> float:
        """Seconds until it stands, if it does not become empty."""
        return self._since + span - now

    def limit(self, limit: float, span: float) -> float:
        """
        Seconds that who comes while it stands may wait.

        @param limit: what holds otherwise; 0 = no end.
        @param span: 0 = it stands no more, for the configuration has changed.
        """
        return min(limit or span, span or limit)
