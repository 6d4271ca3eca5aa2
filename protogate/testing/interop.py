"""
L{InteropContract}: what must hold between any codec in front and any codec behind.

    class Http1ToMine(InteropContract, SynchronousTestCase):
        down, up = Http1, Mine
        lacks = {"continue"}

Every request, answer and way to end travels from the client of C{down} through a small gateway and a real pool to a
server of C{up}, and back; each test ends by proving that the next request works, that every request was closed once,
and that no deadline is left.

Runs under trial and under pytest.
"""

from __future__ import annotations

from twisted.trial.unittest import SkipTest

from protogate.testing.deadlines import DeadlineTests
from protogate.testing.departures import DepartureTests
from protogate.testing.exchanges import ExchangeTests
from protogate.testing.matrix import BIG, BLOCK, LACKS
from protogate.testing.queues import QueueTests
from protogate.testing.tunnels import TunnelTests


class InteropContract(ExchangeTests, DepartureTests, DeadlineTests, TunnelTests, QueueTests):
    """
    @cvar down: makes the codec in front, called without arguments.
    @cvar up: makes the codec behind.
    @cvar lacks: which of L{LACKS} one of the two cannot say.
    @cvar bound: bytes of one body that may be under way while nobody reads: all buffers of both hops.
    """

    def test_one_byte_at_a_time(self) -> None:
        for name in (
            "small_messages_arrive_whole_and_connections_are_reused",
            "no_content",
            "head",
            "each_piece_is_passed_on_at_once",
            "trailers_without_content",
            "interim_responses",
            "expect_continue",
            "expect_continue_refused",
            "client_gone_before_the_head",
            "a_deadline_that_is_over_is_told_to_both_sides",
            "upstream_lost_before_the_head",
            "truncation_is_seen_by_the_client",
            "tunnel",
            "tunnel_refused",
        ):
            try:
                getattr(self, f"test_{name}")(most=1)
            except SkipTest:
                continue


__all__ = ["BIG", "BLOCK", "LACKS", "InteropContract"]
