"""What clients of Redis are told, and what Redis is asked: the peer is played by hand."""
# ruff: noqa: PT009 - runs under trial, too

from __future__ import annotations

from twisted.internet.defer import Deferred
from twisted.trial.unittest import SynchronousTestCase

from protogate.context import Limits, Timeouts
from protogate.errors import CLIENT, Abort, Phase
from protogate.message import Request, Response
from protogate.testing.bodies import Giver, Taker
from protogate.testing.cell import Pair, ok
from protogate_resp.codec import Resp
from protogate_resp.commands import RESP, TYPE, WORDS
from protogate_resp.values import LINE, array


def said(*words):
    return array(len(words), *words)


def string(data):
    return b"$%d\r\n%b\r\n" % (len(data), data)


class ServerTests(SynchronousTestCase):
    """What a client of Redis is told."""

    def told(self, data, answer=ok, **named):
        """The connection, and all that it wrote."""
        p = Pair(Resp(), **named)
        self.addCleanup(p.finish)
        p.app.answer = answer
        p.link.ends[0][0].dataReceived = lambda data: None  # the client is not who asks
        p.server.dataReceived(data)
        p.run()
        return p, p.tapes[1]

    def test_commands_in_one_read_are_answered_in_order(self):
        data = b"".join(said(b"get", b"%d" % n) for n in range(50))
        p, out = self.told(data, lambda request: Response(200, [], Giver([request.target], len(request.target)).body))
        self.assertEqual(out, b"".join(string(b"/%d" % n) for n in range(50)))
        self.assertEqual({request.method for request in p.app.requests}, {b"GET"})

    def test_a_slow_answer_holds_back_the_next_one_and_what_is_read(self):
        held = []

        def answer(request):
            held.append(Giver(length=1, close=False))
            return Response(200, [], held[-1].body)

        p, _ = self.told(said(b"GET", b"a") + said(b"GET", b"b") * 10000, answer)
        self.assertEqual(len(held), 1)
        self.assertFalse(p.link.ends[1][1].reading)
        held[0].write(b"x")
        held[0].finish()
        self.assertEqual(len(held), 2)

    def test_answers_of_other_protocols_in_words_of_redis(self):
        def denied(request):
            response = Response(403, [], Giver([b"{}"], 2).body)
            response.reason = Abort("not on the list", CLIENT, 403, detail="not\r\n+you")
            return response

        for answer, out in (
            (lambda request: Response(204), b"$0\r\n\r\n"),
            (lambda request: Response(200, [], Giver([b"hi"], 2).body), b"$2\r\nhi\r\n"),
            (lambda request: Response(404, protocol="HTTP/1.1"), b"$-1\r\n"),
            (lambda request: Response(404), b"-ERR 404 Not Found\r\n"),
            (lambda request: Response(401), b"-NOAUTH 401 Unauthorized\r\n"),
            (lambda request: Response(599), b"-ERR 599 \r\n"),
            (denied, b"-NOPERM 403 not  +you\r\n"),
            (lambda request: Response(200, [], Giver([b"?"]).body), b"-ERR 502 an answer needs a length\r\n"),
            # A reply that a module has meddled with, and one that only claims to be one.
            (lambda request: Response(200, [(TYPE, b":")], Giver([b"1\r\n:2"], 5).body, RESP), b":1:2\r\n"),
            (lambda request: Response(200, [(TYPE, b"*")], Giver([b":2\r\n"], 4).body, "HTTP/1.1"), string(b":2\r\n")),
        ):
            self.assertEqual(self.told(said(b"GET", b"a") * 2, answer)[1], out * 2)
        self.assertEqual(self.told(said(b"SET", b"k", b"v"))[1], b"+OK\r\n")

    def test_what_may_not_be_asked_is_refused_and_the_next_command_served(self):
        for words in ((b"multi",), (b"SELECT", b"1"), (b"CLIENT", b"SETNAME", b"x"), (b"GET", b".."), (b"G T", b"x")):
            p, out = self.told(said(*words) + said(b"PING"))
            self.assertEqual((out[:5], out[-5:]), (b"-ERR ", b"+OK\r\n"), words)
            self.assertEqual([request.malformed is None for request in p.app.requests], [False, True])
            self.assertEqual(p.counted, ["malformed_request"])

    def test_what_is_no_command_ends_the_connection(self):
        for data in (
            *(
                b"PING\r\n",
                b"*0\r\n",
                b"*-1\r\n",
                b"*01\r\n",
                b"* 1\r\n",
                b"*1_0\r\n",
                b"*+1\r\n",
                b"*9999999999999\r\n",
            ),
            *(
                b"*1\r\n" + word
                for word in (b"$-1\r\n", b":1\r\n", b"*1\r\n", b"$1\r\nab\r\n", b"$0\r\nx\r", b"$?\r\n")
            ),
            *(b"*%d\r\n" % n + string(b"SET") * (n - 1) + b":1\r\n" for n in (2, 3, 4)),
            b"*" + b"1" * LINE,
        ):
            p, out = self.told(data + said(b"PING"))
            self.assertEqual((out[:9], out.count(b"\r\n")), (b"-ERR 400 ", 1), data)
            self.assertEqual([r for r in p.app.requests if r.method == b"PING"], [], data)
            p.advance(40)
            self.assertIn(p.server, p.closed)

    def test_limits(self):
        for data, status in (
            (said(b"GET", b"k" * 101), b"414"),
            (said(b"x" * 101), b"414"),
            (said(b"SET", b"k", b"v" * 1001), b"413"),
            (said(b"SET", b"k", b"v" * 600, b"w" * 600), b"413"),
        ):
            _, out = self.told(data, limits=Limits(request_line=100, body=1000))
            self.assertEqual(out[:9], b"-ERR " + status + b" ", data)

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

    def asked(self, request, reply):
        """What Redis read; the status of the answer, and its content or whether to ask again; the capacity then."""
        p = Pair(Resp())
        self.addCleanup(p.finish)
        p.link.ends[1][0].dataReceived = lambda data: None  # a Redis that is played here
        p.send(request)
        p.run()
        if not p.errors:
            p.client.dataReceived(reply)
        found = [(r.status, Taker(r.body).data) for r in p.result] + [(e.status, e.retry.name) for e in p.errors]
        return p.tapes[0], found[0], p.client.capacity

    def test_get_put_and_delete_by_path(self):
        for method, target, body, out in (
            (b"GET", b"/user:1%2Fa%20b", None, said(b"GET", b"user:1/a b")),
            (b"DELETE", b"/k?x=1", None, said(b"DEL", b"k")),
            (b"PUT", b"/k", Giver([b"v", b"w"], 2).body, said(b"SET", b"k", b"vw")),
            (b"PUT", b"/k", None, said(b"SET", b"k", b"")),
        ):
            request = Request(method, target, [(WORDS, b"9")], body, b"a.test", protocol="HTTP/1.1")
            self.assertEqual(self.asked(request, b"+OK\r\n"), (out, (200, b"OK"), 1))

    def test_what_means_no_command(self):
        for method, target, body, status in (
            (b"FLUSHALL", b"/k", None, 405),
            (b"GET", b"/k", Giver([b"v"], 1).body, 400),
            (b"PUT", b"/k", Giver([b"v"]).body, 411),
            *((b"GET", target, None, 400) for target in (b"/a/b", b"/staff%3A1", b"/%2f", b"*", b"/%")),
        ):
            sent, (found, _), capacity = self.asked(Request(method, target, [], body, protocol="HTTP/1.1"), b"")
            self.assertEqual((sent, found, capacity), (b"", status, 1), target)

    def test_a_command_that_lost_its_words_is_not_asked(self):
        for words, body in ((None, None), (b"0", None), (b"x", None), (b"2", Giver([b"v"], 1).body), (b"4", None)):
            fields = [] if words is None else [(WORDS, words)]
            sent, (found, _), capacity = self.asked(Request(b"SET", b"/k", fields, body, protocol=RESP), b"")
            self.assertEqual((sent, found, capacity), (b"", 500, 1), words)

    def test_replies(self):
        for reply, found, capacity in (
            (b"$5\r\nhello\r\n", (200, b"hello"), 1),
            (b"$0\r\n\r\n", (200, b""), 1),
            (b"$-1\r\n", (404, b""), 1),
            (b":12\r\n", (200, b"12"), 1),
            (b"-ERR syntax error\r\n", (400, b"ERR syntax error"), 1),
            (b"-LOADING it\r\n", (503, b"LOADING it"), 1),
            (b"-NOPERM it\r\n", (403, b"NOPERM it"), 1),
            (b"-ERR 429 later\r\n", (429, b"ERR 429 later"), 1),
            (b"-Error\r\n", (400, b"Error"), 1),
            (b"HTTP/1.1 200 OK\r\n", (502, "NEVER"), 0),
            (b"_\r\n", (502, "NEVER"), 0),
            (b"+OK\r\n+OK\r\n", (200, b"OK"), 0),
        ):
            self.assertEqual(self.asked(Request(b"GET", b"/k", protocol="HTTP/1.1"), reply)[1:], (found, capacity))
