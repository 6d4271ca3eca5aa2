"""protogate sotp call: asks over a real socket, as curl would."""

from __future__ import annotations

import os
import re
from argparse import ArgumentParser
from collections.abc import Iterator
from io import BytesIO, StringIO, TextIOWrapper
from pathlib import Path

import pytest
import pytest_twisted
from twisted.internet import reactor
from twisted.internet.defer import Deferred, maybeDeferred
from twisted.internet.protocol import Factory, Protocol
from twisted.internet.ssl import CertificateOptions
from twisted.internet.task import deferLater

from authority import Authority
from protogate.codings import pack
from protogate.context import Context, Timeouts
from protogate.errors import GATEWAY, Abort
from protogate.message import Response
from protogate.testing.bodies import Giver, Taker
from protogate.testing.cell import App, read_then
from protogate.wheel import Wheel
from protogate_sotp import call as module
from protogate_sotp.codec import Sotp
from protogate_sotp.command import Command


class Server:
    """A SOTP server on a port of its own; C{app.answer} is what it does."""

    def __init__(self) -> None:
        self.app = App()
        context = Context(Wheel(reactor))
        factory = Factory.forProtocol(lambda: Sotp().server(self.app, context))
        factory.noisy = False
        self.port = reactor.listenTCP(0, factory, interface="127.0.0.1")
        self.url = f"sotp://127.0.0.1:{self.port.getHost().port}"

    async def call(self, path: str, *arguments: str, out: object = None) -> tuple[int, str]:
        """(exit status, standard output)."""
        return await called(self.url + path, *arguments, out=out)


async def called(*arguments: str, out: object = None) -> tuple[int, str]:
    command, parser = Command(), ArgumentParser()
    command.arguments(parser)
    printed = StringIO() if out is None else out
    context = Context(Wheel(reactor), timeouts=Timeouts(connect=2))
    status = await maybeDeferred(command.run, parser.parse_args(["call", *arguments]), reactor, context, printed)
    return status, printed.getvalue() if out is None else ""


@pytest.fixture(autouse=True)
def turned() -> Iterator[None]:
    """The wheels of a test, which it leaves without a timer, find that out when they turn once more."""
    yield
    pytest_twisted.blockon(deferLater(reactor, 0.1))


@pytest.fixture
def server() -> Iterator[Server]:
    made = Server()
    yield made
    pytest_twisted.blockon(maybeDeferred(made.port.stopListening))


def whole(status=200, headers=(), data=b"", trailers=None):
    """An answer; what was asked for is in the requests of the app, and in its fields."""
    return read_then(lambda request, sent: Response(status, [*headers, (b"x-sent", sent)], body(data, trailers)))


def body(data, trailers):
    return Giver([data], len(data), trailers=trailers).body if data else None


@pytest_twisted.ensureDeferred
async def test_the_content_of_an_answer_is_printed(server: Server) -> None:
    server.app.answer = whole(data=b'{"ok": true}')
    assert await server.call("/1001/order.create", "-d", "hello") == (0, '{"ok": true}')
    (request,) = server.app.requests
    assert (request.service, request.target, request.authority) == ("1001", b"/1001/order.create", b"1001")


@pytest_twisted.ensureDeferred
async def test_metadata_and_deadline_are_sent_and_the_head_is_printed(server: Server) -> None:
    server.app.answer = whole(201, [(b"a", b"1")], b"x", [(b"x-sum", b"7")])
    arguments = ("-i", "-m", "2.5", "-H", "Content-Type: application/json", "-H", "host: a.test", "-d", "{}")
    status, text = await server.call("/orders/list", *arguments)
    assert (status, text) == (0, "SOTP/1 status 0 OK, HTTP 201\na: 1\nx-sent: {}\n\nx\n\nx-sum: 7\n")
    (request,) = server.app.requests
    assert dict(request.headers) == {b"content-type": b"application/json"}
    assert request.deadline == pytest.approx(request.ledger.head + 2.5)
    assert request.authority == b"a.test"


@pytest_twisted.ensureDeferred
async def test_any_request_goes_in_the_form_of_http(server: Server) -> None:
    server.app.answer = whole(data=b"y")
    assert await server.call("/x?y=1", "-X", "GET") == (0, "y")
    (request,) = server.app.requests
    assert (request.method, request.target) == (b"GET", b"/x?y=1")
    assert request.authority.startswith(b"127.0.0.1:")


@pytest_twisted.ensureDeferred
async def test_bytes_are_printed_as_they_came_unpacked(server: Server) -> None:
    data = bytes(range(256))
    server.app.answer = whole(200, [(b"content-encoding", b"gzip")], pack(b"gzip", data))
    out = TextIOWrapper(BytesIO(), encoding="ascii")
    assert (await server.call("/a/b", out=out))[0] == 0
    assert out.buffer.getvalue() == data


@pytest_twisted.ensureDeferred
async def test_another_status_than_ok_is_exit_status_1(server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    server.app.answer = whole(404, data=b"no such order")
    assert await server.call("/a/b") == (1, "no such order")
    assert capsys.readouterr().err == "protogate sotp call: status 5 NOT_FOUND, HTTP 404\n"


@pytest_twisted.ensureDeferred
async def test_every_frame_is_shown(server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    def answer(request, sent):
        request.interim(Response(103, [(b"link", b"</a>")]))
        return Response(200, [(b"a", b"1")], Giver([b"abc"], 3).body)

    server.app.answer = read_then(answer)
    status, text = await server.call("/1001/order.create", "-v", "-i", "-d", "hello")
    assert (status, text.splitlines()[:2]) == (0, ["SOTP/1 status 0 OK, HTTP 103", "link: </a>"])
    lines = [line for line in capsys.readouterr().err.splitlines() if not re.match("[<>] HELLO: ", line)]
    assert lines == [
        "> REQUEST stream 1: POST /1001/order.create, service 1001, authority 1001, length 5",
        "> DATA stream 1 END: 5 bytes",
        "< RESPONSE stream 1 INTERIM: status 0 OK, HTTP 103",
        "<     link: </a>",
        "< RESPONSE stream 1: status 0 OK, HTTP 200, length 3",
        "<     a: 1",
        "< DATA stream 1 END: 3 bytes",
        "> GOAWAY: last stream 0, NONE",
    ]


@pytest_twisted.ensureDeferred
async def test_the_frames_of_a_large_content_are_shown_and_sent(server: Server, tmp_path, capsys) -> None:
    data = os.urandom(300_000)
    (tmp_path / "large").write_bytes(data)
    server.app.answer = lambda request: Response(200, [], request.body)
    out = TextIOWrapper(BytesIO())
    assert (await server.call("/a/echo", "-v", "-d", f"@{tmp_path / 'large'}", out=out))[0] == 0
    assert out.buffer.getvalue() == data
    sizes = [(line[0], int(line.split()[-2])) for line in capsys.readouterr().err.splitlines() if " DATA " in line]
    assert [sum(size for mark, size in sizes if mark == side) for side in "><"] == [300_000, 300_000]


class Watched(StringIO):
    """Calls a function with each piece that is written."""

    def __init__(self, told) -> None:
        super().__init__()
        self.told = told

    def write(self, text: str) -> int:
        if text:
            self.told(text)
        return super().write(text)


@pytest_twisted.ensureDeferred
async def test_streaming_sends_and_prints_each_piece_as_it_comes(server: Server, monkeypatch) -> None:
    """What was printed of the answer causes the next piece of the request: neither end waits for a whole message."""
    reading, writing = os.pipe()
    monkeypatch.setattr(module.sys, "stdin", os.fdopen(reading))
    server.app.answer = lambda request: Response(200, [], request.body)
    words = ["two", "three"]
    printed: list[str] = []

    def told(text: str) -> None:
        printed.append(text)
        if words:
            os.write(writing, words.pop(0).encode())
        else:
            os.close(writing)

    os.write(writing, b"one")
    assert (await server.call("/a/echo", "-d", "@-", "--stream", out=Watched(told)))[0] == 0
    assert printed == ["one", "two", "three"]
    module.sys.stdin.close()


@pytest_twisted.ensureDeferred
async def test_a_large_file_is_streamed_both_ways(server: Server, tmp_path) -> None:
    data = os.urandom(3 << 20)
    (tmp_path / "large").write_bytes(data)
    server.app.answer = lambda request: Response(200, [], request.body)
    out = TextIOWrapper(BytesIO())
    assert (await server.call("/a/echo", "-d", f"@{tmp_path / 'large'}", "--stream", out=out))[0] == 0
    assert out.buffer.getvalue() == data


@pytest_twisted.ensureDeferred
async def test_an_early_answer_ends_the_call_though_nobody_ends_the_content(server: Server, monkeypatch) -> None:
    reading, writing = os.pipe()
    monkeypatch.setattr(module.sys, "stdin", os.fdopen(reading))

    def answer(request):
        taker = Taker(request.body)
        taker.stop()
        return Response(413)

    server.app.answer = answer
    assert await server.call("/a/b", "-d", "@-", "--stream") == (1, "")
    os.close(writing)
    module.sys.stdin.close()


@pytest_twisted.ensureDeferred
async def test_content_comes_from_a_file_or_from_standard_input(server: Server, tmp_path, monkeypatch) -> None:
    server.app.answer = read_then(lambda request, sent: Response(200, [], Giver([sent], len(sent)).body))
    (tmp_path / "data").write_bytes(b"from a file")
    assert await server.call("/a/b", "-d", f"@{tmp_path / 'data'}") == (0, "from a file")
    monkeypatch.setattr(module.sys, "stdin", TextIOWrapper(BytesIO(b"from a pipe")))
    assert await server.call("/a/b", "-d", "@-") == (0, "from a pipe")


@pytest_twisted.ensureDeferred
async def test_nothing_is_printed_of_an_answer_that_broke_off(server: Server, capsys) -> None:
    def answer(request):
        giver = Giver([b"half of it"], 100, close=False)
        reactor.callLater(0.05, giver.abort, Abort("disk error", GATEWAY))
        return Response(200, [], giver.body)

    server.app.answer = answer
    assert await server.call("/a/b") == (3, "")
    assert "protogate sotp call: the upstream gave it up: INTERNAL" in capsys.readouterr().err
    assert await server.call("/a/b", "--stream") == (3, "half of it")


@pytest_twisted.ensureDeferred
async def test_a_large_answer_wants_streaming(server: Server, monkeypatch, capsys) -> None:
    monkeypatch.setattr(module, "MOST", 1000)
    server.app.answer = whole(data=b"x" * 1001)
    assert await server.call("/a/b") == (3, "")
    assert "the answer has more than 1000 bytes; --stream takes it" in capsys.readouterr().err
    assert await server.call("/a/b", "--stream") == (0, "x" * 1001)


@pytest_twisted.ensureDeferred
async def test_a_deadline_ends_the_call(server: Server, capsys) -> None:
    server.app.answer = lambda request: Deferred()
    assert await server.call("/a/b", "-m", "0.05") == (3, "")
    assert "deadline" in capsys.readouterr().err


@pytest_twisted.ensureDeferred
async def test_nobody_listens(server: Server, capsys) -> None:
    await maybeDeferred(server.port.stopListening)
    assert await server.call("/a/b", "-d", "x") == (3, "")
    assert "protogate sotp call: no connection: Connection was refused" in capsys.readouterr().err


class Stranger(Protocol):
    """Speaks something else, and does not close."""

    def dataReceived(self, data: bytes) -> None:
        self.transport.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")


@pytest_twisted.ensureDeferred
async def test_somebody_else_listens(capsys) -> None:
    factory = Factory.forProtocol(Stranger)
    factory.noisy = False
    port = reactor.listenTCP(0, factory, interface="127.0.0.1")
    assert await called(f"sotp://127.0.0.1:{port.getHost().port}/a/b") == (3, "")
    assert capsys.readouterr().err == "protogate sotp call: bad frame: not a frame\n"
    await maybeDeferred(port.stopListening)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["http://a:1/b/c"], "expected a URL like sotp://127.0.0.1:7001/1001/order.create, got 'http://a:1/b/c'"),
        (["sotp://a/b/c"], "expected a URL like"),
        (["sotp://a:65536/b/c"], "expected a URL like"),
        (["sotp://a:1/b c"], "expected a URL like"),
        (["sotp://a:1"], "'' is no service and operation like /1001/order.create; for HTTP say -X"),
        (["sotp://[::1]:1/b"], "'/b' is no service and operation"),
        (["sotp://a:1/b/c", "-H", "x"], "expected metadata like 'x-name: value', got 'x'"),
        (["sotp://a:1/b/c", "-m", "-1"], "-m wants seconds, 0 to 4294967"),
        (["sotp://a:1/b/c", "-m", "nan"], "-m wants seconds, 0 to 4294967"),
    ],
)
@pytest_twisted.ensureDeferred
async def test_what_is_not_understood_is_exit_status_2(arguments, text, capsys) -> None:
    assert await called(*arguments) == (2, "")
    assert capsys.readouterr().err.startswith(f"protogate sotp call: {text}")


@pytest_twisted.ensureDeferred
async def test_content_that_cannot_be_read(server: Server, tmp_path, capsys) -> None:
    for arguments in ((), ("--stream",)):
        assert await server.call("/a/b", "-d", f"@{tmp_path / 'missing'}", *arguments) == (3, "")
        assert "No such file or directory" in capsys.readouterr().err
    server.app.answer = lambda request: Deferred()
    assert await server.call("/a/b", "-d", f"@{tmp_path}", "--stream") == (3, "")
    assert "the content cannot be read: [Errno 21] Is a directory" in capsys.readouterr().err


@pytest_twisted.ensureDeferred
async def test_a_request_that_sotp_cannot_say(server: Server, capsys) -> None:
    assert await server.call("/x", "-X", "B AD") == (3, "")
    assert "a request that cannot be said in SOTP" in capsys.readouterr().err


# -- over TLS


class Secured(Server):
    """One over TLS, with a certificate for localhost."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.authority = Authority(folder)
        issued = self.authority.issue("localhost")
        told = CertificateOptions(issued.secret, issued.certificate, acceptableProtocols=[b"sotp/1"])
        context = Context(Wheel(reactor))
        factory = Factory.forProtocol(lambda: Sotp().server(self.app, context))
        factory.noisy = False
        self.tls = reactor.listenSSL(0, factory, told, interface="127.0.0.1")
        self.url = f"sotps://localhost:{self.tls.getHost().port}"


@pytest.fixture
def secure(tmp_path: Path) -> Iterator[Secured]:
    made = Secured(tmp_path)
    yield made
    for port in (made.port, made.tls):
        pytest_twisted.blockon(maybeDeferred(port.stopListening))


@pytest_twisted.ensureDeferred
async def test_a_server_over_tls_is_believed_by_an_authority(secure: Secured, capsys) -> None:
    secure.app.answer = lambda request: Response(200, [], Giver([request.scheme], len(request.scheme)).body)
    assert await secure.call("/1001/x", "--cacert", str(secure.authority.file)) == (0, "https")
    assert capsys.readouterr().err == ""


@pytest_twisted.ensureDeferred
async def test_a_server_over_tls_that_is_not_believed_is_not_asked(secure: Secured, tmp_path, capsys) -> None:
    other = tmp_path / "other"
    other.mkdir()
    assert await secure.call("/1001/x", "--cacert", str(Authority(other, "other").file)) == (3, "")
    assert "TLS: certificate verify failed" in capsys.readouterr().err
    assert await secure.call("/1001/x") == (3, "")
    secure.url = secure.url.replace("localhost", "127.0.0.1")
    assert await secure.call("/1001/x", "--cacert", str(secure.authority.file)) == (3, "")
    assert secure.app.requests == []


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1"])
@pytest_twisted.ensureDeferred
async def test_a_server_over_tls_may_be_believed_unseen(secure: Secured, host: str) -> None:
    secure.url = secure.url.replace("localhost", host)
    secure.app.answer = whole(data=b"x")
    assert await secure.call("/1001/x", "-k", "-v") == (0, "x")


@pytest_twisted.ensureDeferred
async def test_authorities_that_cannot_be_read(secure: Secured, tmp_path, capsys) -> None:
    (tmp_path / "none.pem").write_text("-----BEGIN CERTIFICATE-----\nno\n-----END CERTIFICATE-----\n")
    (tmp_path / "empty.pem").write_text("")
    for name, status, text in (
        ("none.pem", 2, "expected certificates in PEM"),
        ("empty.pem", 2, "expected certificates in PEM"),
        ("not-there", 3, "No such file"),
    ):
        assert await secure.call("/1001/x", "--cacert", str(tmp_path / name)) == (status, "")
        assert text in capsys.readouterr().err
