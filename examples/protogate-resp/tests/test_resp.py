"""The contract of codecs, for commands of Redis too, and what is RESP's own."""
# ruff: noqa: PT009, PT027 - runs under trial, too

from __future__ import annotations

from dataclasses import dataclass

from twisted.internet.defer import Deferred
from twisted.trial.unittest import SynchronousTestCase

from protogate.context import Limits, Timeouts
from protogate.errors import Phase
from protogate.message import Request, Response
from protogate.testing.bodies import Giver, Taker
from protogate.testing.cell import Pair, ok
from protogate.testing.codec import CodecContract
from protogate.testing.gateway import MemoryGateway
from protogate.testing.replay import Message, Sample
from protogate.testing.upstream import Do, Expect
from protogate_resp.codec import Resp
from protogate_resp.messages import COUNT, HOST, RESP
from protogate_resp.wire import CONTENT, DONE, LINE, Reader, array, string


@dataclass(frozen=True, slots=True)
class Command(Sample):
    """One that Redis knows."""

    words: int = 2


class RespContract(CodecContract, SynchronousTestCase):
    """Every split, every offset, garbage: for what crosses in a PROTOGATE, and for commands and replies as they are."""

    codec = Resp

    def samples(self):
        nil, text, number = (Message((raw,), len(raw)) for raw in (b"$-1\r\n", b"$5\r\nhello\r\n", b":-7\r\n"))
        many = Message((b"*3\r\n$1\r\na\r\n*2\r\n:1\r\n$-1\r\n+x\r\n",))
        two = Message((string(b"\r\n$9\r\n"), string(b"")))
        return [
            *super().samples(),
            Command(b"PING", response=Message((b"+PONG\r\n",), 7), words=1),
            Command(b"GET", response=text),
            Command(b"GET", response=nil, status=404),
            Command(b"SET", Message((string(b"value"),), 11), response=Message((b"+OK\r\n",), 5), words=3),
            Command(b"LPUSH", two, response=number, words=4),
            Command(b"LRANGE", two, response=many, words=4),
            Command(b"INCR", response=Message((b"-WRONGTYPE no\r\n",), 15), status=409),
        ]

    def request(self, sample):
        if not isinstance(sample, Command):
            return super().request(sample)
        giver = sample.request.giver()
        target, fields = b"/user:1%2F%FF" if sample.words > 1 else b"/", [(COUNT, b"%d" % sample.words)]
        return Request(sample.method, target, fields, None if giver is None else giver.body, HOST, protocol=RESP)

    def answer(self, sample, request):
        if not isinstance(sample, Command):
            return super().answer(sample, request)
        return Response(sample.status, [], sample.response.giver().body, RESP)


def command(*words):
    return array(len(words), *words)


class ReaderTests(SynchronousTestCase):
    def test_values_as_events(self):
        reader = Reader()
        reader.feed(b"*2\r\n$3\r\na\r\n\r\n$?\r\n;1\r\nb\r\n;0\r\n:7\r\n")
        found = []
        while (event := reader.next()) is not None:
            found.append((*event[:2], reader.left))
        self.assertEqual(
            found,
            [
                (b"*", 2, 2), (b"$", 3, 2), (CONTENT, 3, 2), (DONE, None, 1),
                (b"$", None, 1), (b";", 1, 1), (CONTENT, 1, 1), (DONE, None, 1), (b";", 0, 0),
                (b":", None, 0),
            ],
        )  # fmt: skip

    def test_what_is_no_resp(self):
        for data in (
            b"PING\r\n", b"$+1\r\n", b"$ 1\r\n", b"$1_0\r\n", b"$-2\r\n", b"*?\r\n", b";1\r\n", b"$?\r\n+x\r\n",
            b"$?\r\n;-1\r\n", b"$1\r\nab\r\n", b"$0\r\nx", b"+a\nb\r\n", b"$9999999999999\r\n", b"+" + b"x" * LINE,
        ):  # fmt: skip
            reader = Reader()
            reader.feed(data)
            with self.assertRaises(ValueError, msg=data):
                while reader.next() is not None:
                    pass
                self.assertTrue(len(reader) < LINE, data)


class ServerTests(SynchronousTestCase):
    """What a client of Redis is told."""

    def told(self, data, answer=ok, **named):
        """The connection, and all that it wrote."""
        p = Pair(Resp(), **named)
        self.addCleanup(p.finish)
        p.app.answer = answer
        p.server.dataReceived(data)
        p.link.ends[0][0].dataReceived = lambda data: None  # the client is not who asked
        p.run()
        return p, p.tapes[1]

    def test_commands_in_one_read_are_answered_in_order(self):
        data = b"".join(command(b"GET", b"%d" % n) for n in range(100))
        p, out = self.told(data, lambda request: Response(200, [], Giver([request.target], len(request.target)).body))
        self.assertEqual(out, b"".join(string(b"/%d" % n) for n in range(100)))
        self.assertEqual({request.service for request in p.app.requests}, {"GET"})

    def test_a_slow_answer_holds_back_the_next_one_and_what_is_read(self):
        held = []

        def answer(request):
            held.append(Giver(close=False))
            return Response(200, [], held[-1].body, RESP)

        p, _ = self.told(command(b"GET", b"a") + command(b"GET", b"b") * 10000, answer)
        self.assertEqual(len(held), 1)
        self.assertFalse(p.link.ends[1][1].reading)
        held[0].write(b"+x\r\n")
        held[0].finish()
        self.assertEqual(len(held), 2)

    def test_statuses_in_words_of_redis(self):
        for response, said in (
            (lambda: Response(204), b"+OK\r\n"),
            (lambda: Response(404, protocol="HTTP/1.1"), b"$-1\r\n"),
            (lambda: Response(404), b"-ERR 404 Not Found\r\n"),
            (lambda: Response(401), b"-NOAUTH 401 Unauthorized\r\n"),
            (lambda: Response(403, [], Giver([b"no"], 2).body), b"-NOPERM 403 Forbidden\r\n"),
            (lambda: Response(200, [], Giver([b"?"]).body), b"-ERR 502 Bad Gateway\r\n"),
        ):
            _, out = self.told(command(b"GET", b"a") + command(b"GET", b"b"), lambda request, r=response: r())
            self.assertEqual(out, said * 2)

    def test_a_command_about_the_connection_is_refused_and_the_next_one_served(self):
        for words in ((b"multi",), (b"SELECT", b"1"), (b"CLIENT", b"SETNAME", b"x"), (b"GET", b".."), (b"G T", b"x")):
            p, out = self.told(command(*words) + command(b"PING"))
            self.assertEqual(out[:5] + out[-5:], b"-ERR +OK\r\n", words)
            self.assertEqual([request.malformed is None for request in p.app.requests], [False, True])
            self.assertEqual(p.counted, ["malformed_command"])

    def test_what_is_no_command_ends_the_connection(self):
        for data in (
            b"PING\r\n",
            b"*0\r\n",
            b"*1\r\n$-1\r\n",
            b"*1\r\n:1\r\n",
            b"*1\r\n*1\r\n",
            b"*2\r\n$3\r\nGET\r\n+a\r\n",
        ):
            p, out = self.told(data + command(b"PING"))
            self.assertEqual(out, b"-ERR 400 Bad Request\r\n", data)
            self.assertEqual(len(p.app.requests), 1)
            p.advance(40)
            self.assertIn(p.server, p.closed)

    def test_arguments_are_strings_that_redis_takes(self):
        for argument in (b"*1\r\n$1\r\na\r\n", b":1\r\n", b"+a\r\n", b"$-1\r\n", b"$?\r\n;0\r\n"):
            for before in (0, 1):
                data = array(3 + before, b"SET", b"k", *[b"v"] * before) + argument
                p, out = self.told(data + command(b"PING"))
                self.assertEqual(out, b"-ERR 400 Bad Request\r\n", data)
                self.assertEqual([request.malformed is None for request in p.app.requests], [False])

    def test_limits(self):
        for data, status in (
            (command(b"GET", b"k" * 101), b"414"),
            (command(b"x" * 101), b"414"),
            (command(b"SET", b"k", b"v" * 1001), b"413"),
            (command(b"SET", b"k", b"v" * 600, b"w" * 600), b"413"),
        ):
            _, out = self.told(data, limits=Limits(request_line=100, body=1000))
            self.assertEqual(out[:9], b"-ERR " + status + b" ", data)

    def test_a_command_that_does_not_come_is_given_up(self):
        p, out = self.told(b"*2\r\n$3\r\nGET\r\n", timeouts=Timeouts(client_header=5))
        p.advance(4)
        self.assertEqual((out, p.app.requests), (b"", []))
        p.advance(2)
        self.assertEqual(p.tapes[1], b"-ERR 408 Request Timeout\r\n")
        p.advance(60)
        self.assertIn(p.server, p.closed)

    def test_a_value_that_does_not_come_is_given_up(self):
        takers = []

        def read(request):
            takers.append(Taker(request.body))
            return Deferred()

        p, _ = self.told(b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$9\r\nv", read, timeouts=Timeouts(client_stall=5))
        p.advance(4)
        self.assertFalse(takers[0].ended)
        p.advance(2)
        self.assertEqual(takers[0].reason.phase, Phase.CLIENT_STALL)


class ClientTests(SynchronousTestCase):
    """What Redis is asked, and what its replies are to who speaks something else."""

    def asked(self, method, target, reply, body=None):
        p = Pair(Resp())
        self.addCleanup(p.finish)
        p.link.ends[1][0].dataReceived = lambda data: None  # a Redis that is played here
        p.result, p.errors = [], []
        p.send(Request(method, target, [(b"x", b"dropped")], body, b"a.test", protocol="HTTP/1.1"))
        p.run()
        if not p.errors:
            p.client.dataReceived(reply)
        found = [(r.status, Taker(r.body).data) for r in p.result] + [(e.status, e.retry.name) for e in p.errors]
        return p.tapes[0], found[0], p.client.capacity

    def test_get_put_and_delete_by_path(self):
        for method, target, body, said in (
            (b"GET", b"/user:1%2Fa%20b", None, command(b"GET", b"user:1/a b")),
            (b"DELETE", b"/k?x=1", None, command(b"DEL", b"k")),
            (b"PUT", b"/k", Giver([b"v", b"w"], 2).body, command(b"SET", b"k", b"vw")),
            (b"PUT", b"/k", None, command(b"SET", b"k", b"")),
        ):
            self.assertEqual(self.asked(method, target, b"+OK\r\n", body), (said, (200, b"OK"), 1))

    def test_what_means_no_command(self):
        for method, target, body, status in (
            (b"FLUSHALL", b"/k", None, 405),
            (b"GET", b"/k", Giver([b"v"], 1).body, 400),
            (b"PUT", b"/k", Giver([b"v"]).body, 411),
            (b"GET", b"/a/b", None, 400),
            (b"GET", b"/staff%3A1", None, 400),
            (b"GET", b"/%2f", None, 400),
        ):
            sent, (found, _), capacity = self.asked(method, target, b"", body)
            self.assertEqual((sent, found, capacity), (b"", status, 1), target)

    def test_replies(self):
        for reply, found, capacity in (
            (b"$5\r\nhello\r\n", (200, b"hello"), 1),
            (b"$0\r\n\r\n", (200, b""), 1),
            (b"$-1\r\n", (404, b""), 1),
            (b":12\r\n", (200, b"12"), 1),
            (b"-ERR syntax error\r\n", (400, b"ERR syntax error"), 1),
            (b"-LOADING it\r\n", (503, b"LOADING it"), 1),
            (b"-NOPERM it\r\n", (403, b"NOPERM it"), 1),
            (b"*1\r\n:1\r\n", (502, "NEVER"), 0),
            (b"HTTP/1.1 200 OK\r\n", (502, "NEVER"), 0),
            (b"+OK\r\n+OK\r\n", (200, b"OK"), 0),
        ):
            self.assertEqual(self.asked(b"GET", b"/k", reply)[1:], (found, capacity), reply)


CONFIG = """
gateway: {name: memory}
listeners: [{name: both, address: "127.0.0.1:8080", protocols: [http1, resp]}]
upstreams: [{name: store, protocol: resp, endpoints: [{url: "resp://192.0.2.7:6379"}]}]
routes: [{value: /, matcherType: prefix, routes: [{targets: [{upstream: store}]}]}]
modules:
  - {name: respond, condition: "request.method == 'FLUSHALL'", actionParam: {status: 403}}
"""


class GatewayTests(SynchronousTestCase):
    """Installed, it is one protocol more."""

    def test_both_protocols_on_one_port(self):
        with MemoryGateway(CONFIG) as gateway:
            gateway.upstream("192.0.2.7", 6379, [Expect(b"GET"), string(b"hello"), Do.SILENCE])
            reply = gateway.ask(b"GET /k HTTP/1.1\r\nHost: a.test\r\n\r\n")
            self.assertTrue(reply.startswith(b"HTTP/1.1 200 ") and reply.endswith(b"\r\n\r\nhello"), reply)
        with MemoryGateway(CONFIG) as gateway:
            redis = gateway.upstream("192.0.2.7", 6379, [Expect(b"EX"), b"+OK\r\n", Do.SILENCE])
            said = command(b"SET", b"k", b"v", b"EX", b"9")
            self.assertEqual(gateway.ask(said), b"+OK\r\n")
            self.assertEqual(redis.received[0], said)
            self.assertEqual([(made.method, made.protocol) for made in gateway.records], [("SET", "RESP")])

    def test_what_is_behind_may_speak_something_else(self):
        with MemoryGateway(CONFIG.replace("protocol: resp, ", "").replace("resp://", "http://")) as gateway:
            script = [Expect(b"\r\n\r\n"), b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello", Do.SILENCE]
            origin = gateway.upstream("192.0.2.7", 6379, script)
            self.assertEqual(gateway.ask(command(b"get", b"a b")), string(b"hello"))
            self.assertTrue(origin.received[0].startswith(b"GET /a%20b HTTP/1.1\r\nhost: resp\r\n"))

    def test_a_module_denies_a_command(self):
        with MemoryGateway(CONFIG) as gateway:
            self.assertEqual(gateway.ask(command(b"flushall")), b"-NOPERM 403 Forbidden\r\n")
