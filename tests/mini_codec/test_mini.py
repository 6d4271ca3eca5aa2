"""A codec from outside: found by its drop-in, held to the contract, and used by a gateway that never heard of it."""
# ruff: noqa: PT009, PT027 - runs under trial, too

from __future__ import annotations

import sys
from pathlib import Path

HERE = Path(__file__).parent
if str(HERE) not in sys.path:
    sys.path.append(str(HERE))

from protogate_mini.codec import Mini  # noqa: E402
from protogate_mini.frames import HEAD, frame, frames, pack, unpack  # noqa: E402
from twisted.trial.unittest import SynchronousTestCase  # noqa: E402

import twisted.plugins  # noqa: E402
from protogate.context import Timeouts  # noqa: E402
from protogate.errors import Phase  # noqa: E402
from protogate.interfaces import IStreamCodec  # noqa: E402
from protogate.plugins import find, names  # noqa: E402
from protogate.testing.bodies import Taker  # noqa: E402
from protogate.testing.cell import Pair  # noqa: E402
from protogate.testing.codec import CodecContract  # noqa: E402
from protogate.testing.gateway import MemoryGateway  # noqa: E402
from protogate.testing.states import STATES  # noqa: E402
from protogate.testing.upstream import Do, Expect  # noqa: E402


class MiniContract(CodecContract, SynchronousTestCase):
    codec = Mini


class ClockTests(SynchronousTestCase):
    def test_a_client_that_gives_no_credit_is_given_up(self):
        p = Pair(Mini(), timeouts=Timeouts(client_stall=10))
        (giver,), _ = STATES["unread_answer"](p)
        p.advance(9)
        self.assertFalse(giver.stopped)
        p.advance(3)
        self.assertTrue(giver.stopped)
        self.assertEqual([reason.phase for reason in p.app.closes[0]], [Phase.CLIENT_STALL])
        taker = Taker(p.result[0].body)
        p.run()
        self.assertIsNotNone(taker.reason)
        p.finish()

    def test_an_upstream_that_does_not_answer_is_given_up(self):
        p = Pair(Mini(), timeouts=Timeouts(response_head=5))
        STATES["waiting"](p)
        p.advance(6)
        self.assertEqual([error.phase for error in p.errors], [Phase.RESPONSE_HEAD])
        self.assertEqual(p.client.busy, 0)
        p.finish()

    def test_an_idle_connection_is_closed(self):
        p = Pair(Mini(), timeouts=Timeouts(client_idle=5))
        p.advance(6)
        self.assertEqual(len(p.closed), 2)


class FrameTests(SynchronousTestCase):
    def test_frames_come_back_in_pieces_of_any_size(self):
        fields = [(b":status", b"200"), (b"x-a", b""), (b"x-a", b"b c")]
        data = frame(HEAD, 1, pack(fields)) + frame(HEAD, 2)
        for at in range(len(data)):
            first, rest, _ = frames(data[:at])
            second, rest, _ = frames(rest + data[at:])
            self.assertEqual([(kind, stream) for kind, stream, _ in first + second], [(HEAD, 1), (HEAD, 2)])
            self.assertEqual(rest, b"")
        self.assertEqual(unpack((first + second)[0][2]), fields)

    def test_what_is_no_frame_or_field(self):
        for data in (b"\xff" * 9, frame(9, 1), frame(HEAD, 0)):
            self.assertEqual(frames(frame(HEAD, 1) + data), ([(HEAD, 1, b"")], b"", "not a frame"))
        good = pack([(b"x-a", b"1")])
        for data in (good[:-1], good[:3], pack([(b"X-A", b"1")]), pack([(b"", b"1")]), pack([(b"a", b" 1")])):
            self.assertRaises(ValueError, unpack, data)


CONFIG = """
gateway: {name: memory}
listeners:
  - {name: both, address: "127.0.0.1:8080", protocols: [http1, mini]}
upstreams:
  - {name: origin, protocol: mini, endpoints: [{url: "http://192.0.2.7:80"}]}
routes:
  - {name: all, value: /, matcherType: prefix, routes: [{targets: [{upstream: origin}]}]}
"""


class PluginTests(SynchronousTestCase):
    def setUp(self):
        self.patch(twisted.plugins, "__path__", [*twisted.plugins.__path__, str(HERE / "twisted" / "plugins")])

    def test_the_drop_in_declares_it(self):
        self.assertIn("mini", names(IStreamCodec))
        self.assertIsInstance(find(IStreamCodec, "mini"), Mini)

    def test_a_gateway_speaks_it_on_both_sides_without_knowing_it(self):
        answer = frame(HEAD, 1, pack([(b":status", b"200"), (b":length", b"0")])) + frame(2, 1)
        with MemoryGateway(CONFIG) as gateway:
            origin = gateway.upstream("192.0.2.7", 80, [Expect(b"/hello"), answer, Do.SILENCE])
            reply = gateway.ask(b"GET /hello HTTP/1.1\r\nHost: a.test\r\n\r\n")
            self.assertTrue(reply.startswith(b"HTTP/1.1 200 "), reply)
            kind, _, payload = frames(origin.received[0])[0][0]
            self.assertEqual((kind, unpack(payload)[0]), (HEAD, (b":method", b"GET")))
        with MemoryGateway(CONFIG) as gateway:
            gateway.upstream("192.0.2.7", 80, [Expect(b"/hello"), answer, Do.SILENCE])
            head = [(b":method", b"GET"), (b":target", b"/hello"), (b":authority", b"a.test"), (b":length", b"0")]
            reply = gateway.ask(frame(HEAD, 1, pack(head)) + frame(2, 1))
            self.assertEqual(unpack(frames(reply)[0][0][2])[0], (b":status", b"200"))
            self.assertEqual([made.protocol for made in gateway.records], ["MINI/1"])
