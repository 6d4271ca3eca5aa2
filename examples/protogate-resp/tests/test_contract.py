"""The contract of codecs, for commands of Redis too; and a gateway that has learnt them."""
# ruff: noqa: PT009 - runs under trial, too

from __future__ import annotations

from dataclasses import dataclass

from twisted.trial.unittest import SynchronousTestCase

from protogate.testing.codec import CodecContract
from protogate.testing.gateway import MemoryGateway
from protogate.testing.replay import Message, Sample
from protogate.testing.upstream import Do, Expect
from protogate_resp.codec import Resp
from protogate_resp.commands import RESP, TYPE, WORDS
from protogate_resp.values import array


def said(*words):
    return array(len(words), *words)


def string(data):
    return b"$%d\r\n%b\r\n" % (len(data), data)


@dataclass(frozen=True, slots=True)
class Command(Sample):
    """One that Redis knows, and how its reply begins."""

    words: int = 2
    kind: bytes = b"$"


class RespContract(CodecContract, SynchronousTestCase):
    """Every split, every offset, garbage: for what other protocols say in RESP, and for commands and replies."""

    codec = Resp

    def samples(self):
        hello, done, number = Message((b"hello",), 5), Message((b"OK",), 2), Message((b"-7",), 2)
        many = Message((b"*3\r\n$1\r\na\r\n*3\r\n:1\r\n$-1\r\n*0\r\n+x\r\n",))
        two = Message((string(b"\r\n$9\r\n") + string(b""),))
        return [
            *super().samples(),
            Command(b"PING", response=Message((b"PONG",), 4), words=1, kind=b"+"),
            Command(b"GET", response=hello),
            Command(b"GET", status=404),
            Command(b"SET", Message((b"value",), 5), response=done, words=3, kind=b"+"),
            Command(b"SET", Message(), response=done, words=3, kind=b"+"),
            Command(b"LPUSH", two, response=number, words=4, kind=b":"),
            Command(b"LRANGE", two, response=many, words=4, kind=b"*"),
            Command(b"BLPOP", Message((b"1",), 1), 404, Message((b"*-1\r\n",)), words=3, kind=b"*"),
            Command(b"INCR", response=Message((b"WRONGTYPE no ",), 13), status=409, kind=b"-"),
        ]

    def request(self, sample):
        request = super().request(sample)
        if isinstance(sample, Command):
            request.protocol, request.headers[:] = RESP, [(WORDS, b"%d" % sample.words)]
            request.target = b"/user:1%2F%FF" if sample.words > 1 else b"/"
        return request

    def answer(self, sample, request):
        response = super().answer(sample, request)
        if isinstance(sample, Command):
            response.protocol, response.headers[:] = RESP, [(TYPE, sample.kind)]
        return response


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
            command = said(b"SET", b"k", b"v", b"EX", b"9")
            self.assertEqual(gateway.ask(command), b"+OK\r\n")
            self.assertEqual(redis.received[0], command)
            self.assertEqual([(made.method, made.protocol) for made in gateway.records], [("SET", "RESP")])

    def test_what_is_behind_may_speak_something_else(self):
        with MemoryGateway(CONFIG.replace("protocol: resp, ", "").replace("resp://", "http://")) as gateway:
            script = [Expect(b"\r\n\r\n"), b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello", Do.SILENCE]
            origin = gateway.upstream("192.0.2.7", 6379, script)
            self.assertEqual(gateway.ask(said(b"get", b"a b")), string(b"hello"))
            self.assertTrue(origin.received[0].startswith(b"GET /a%20b HTTP/1.1\r\nhost: resp\r\n"))

    def test_a_module_denies_a_command(self):
        with MemoryGateway(CONFIG) as gateway:
            self.assertEqual(gateway.ask(said(b"flushall")), b"-NOPERM 403 Forbidden\r\n")
