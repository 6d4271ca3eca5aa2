"""Part of L{protogate.testing.interop}: tunnels."""
# ruff: noqa: PT009 - under trial only these assertions show the values

from __future__ import annotations

from typing import TYPE_CHECKING

from protogate.message import Response
from protogate.testing.bodies import Giver, Taker
from protogate.testing.transport import ALL

if TYPE_CHECKING:
    from twisted.trial.unittest import SynchronousTestCase as Base
else:
    Base = object

from protogate.testing.matrix import Matrix


class TunnelTests(Matrix):
    """Opened, refused, half-closed, broken."""

    def test_tunnel(self, most: int = ALL) -> None:
        self.needs("upgrade", "halfclose")
        for first in ("client", "origin"):
            c = self.cell(most)
            origin, client = Giver(close=False), Giver([b"early "], close=False)
            c.app.answer = lambda request, origin=origin: Response(101, [], origin.body)  # type: ignore[misc]
            c.ask(b"GET", client.body, upgrade=b"websocket")
            c.run()
            self.assertEqual([r.status for r in c.result], [101], c.errors)
            self.assertEqual(c.app.requests[0].upgrade, b"websocket")
            at_origin, at_client = Taker(c.app.requests[0].body), Taker(c.result[0].body)
            c.run()
            client.write(b"hello")
            origin.write(b"welcome")
            c.run()
            self.assertEqual((at_origin.data, at_client.data), (b"early hello", b"welcome"))
            one, at_one, other, at_other = client, at_client, origin, at_origin
            if first == "origin":
                one, at_one, other, at_other = origin, at_origin, client, at_client
            one.finish()
            c.run()
            self.assertTrue(at_other.finished)
            self.assertFalse(at_one.ended, "half closed: the other way still flows")
            other.write(b" more")
            c.run()
            self.assertTrue(at_one.data.endswith(b" more"))
            other.finish()
            c.run()
            self.assertTrue(at_one.finished)
            c.again()

    def test_tunnel_refused(self, most: int = ALL) -> None:
        self.needs("upgrade")
        c = self.cell(most)
        c.app.answer = lambda request: Response(403, [], Giver([b"no"], 2).body)
        client = Giver([b"early"], close=False)
        c.ask(b"GET", client.body, upgrade=b"websocket")
        c.run()
        self.assertEqual([r.status for r in c.result], [403], c.errors)
        taker = Taker(c.result[0].body)
        c.run()
        self.assertEqual((taker.data, client.gave), (b"no", 0))
        c.again()

    def test_tunnel_broken(self) -> None:
        self.needs("upgrade")
        c = self.cell()
        origin, client = Giver(close=False), Giver(close=False)
        c.app.answer = lambda request: Response(101, [], origin.body)
        c.ask(b"GET", client.body, upgrade=b"websocket")
        c.run()
        at_origin, at_client = Taker(c.app.requests[0].body), Taker(c.result[0].body)
        c.run()
        c.client.abort()
        c.run()
        self.assertTrue(origin.stopped)
        self.assertIsNotNone(at_origin.reason)
        self.assertIsNotNone(at_client.reason)
        c.again()
