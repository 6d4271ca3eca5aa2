"""compress and decompress: content that is packed and unpacked on its way."""

from __future__ import annotations

import gzip
import zlib

import brotli
import pytest
from twisted.trial.unittest import SynchronousTestCase

from protogate.codings import UNPACKERS
from protogate.errors import CLIENT, UPSTREAM, Abort, ConfigError
from protogate.governance import compress as module
from protogate.governance.compress import CompressFactory
from protogate.governance.decompress import DecompressFactory
from protogate.message import Response
from protogate.testing.bodies import Giver, Taker
from protogate.testing.exchange import exchange
from protogate.testing.gateway import MemoryGateway
from protogate.testing.module import ModuleContract
from protogate.testing.upstream import Expect

TEXT = b"what is said again and again; " * 100


def gzipped(data: bytes) -> bytes:
    """Without the time, which would be another one in each process that collects these tests."""
    return gzip.compress(data, mtime=0)


class CompressContract(ModuleContract, SynchronousTestCase):
    factory = CompressFactory
    good = (
        {},
        {"codings": ["gzip"], "levels": {"gzip": 9}, "types": ["text/*", "application/*+json", "image/svg*"]},
        {"minLength": 0, "credentials": False},
    )
    bad = (
        ({"codings": []}, "codings"),
        ({"codings": ["lzma"]}, "codings"),
        ({"codings": "gzip"}, "codings"),
        ({"levels": {"gzip": 10}}, "levels"),
        ({"levels": {"gzip": "fast"}}, "levels"),
        ({"levels": {"lzma": 1}}, "levels"),
        ({"levels": 5}, "levels"),
        ({"types": []}, "types"),
        ({"types": ["html"]}, "types"),
        ({"types": ["*/html"]}, "types"),
        ({"types": ["Text/html"]}, "types"),
        ({"types": ["text/event-stream"]}, "types"),
        ({"types": ["application/grpc+proto"]}, "types"),
        ({"minLength": 100}, "minLength"),
        ({"credentials": "no"}, "credentials"),
    )


class DecompressContract(ModuleContract, SynchronousTestCase):
    factory = DecompressFactory
    good = ({"request": True}, {"response": True, "limit": "1MiB", "ratio": 10})
    bad = (
        ({}, ""),
        ({"request": False}, ""),
        ({"request": "yes"}, "request"),
        ({"request": True, "limit": 0}, "limit"),
        ({"request": True, "ratio": 0}, "ratio"),
    )


def test_what_is_not_installed_is_told(monkeypatch):
    monkeypatch.setattr(module, "PACKERS", {b"gzip": module.PACKERS[b"gzip"]})
    assert CompressFactory().build({})._offered == (b"gzip",)
    with pytest.raises(Exception, match=r"pip install 'protogate\[brotli\]'"):
        CompressFactory().build({"codings": ["br"]})


def test_levels_of_codings_that_are_wrong_are_no_fault_of_their_own():
    with pytest.raises(ConfigError, match='got "lzma"'):
        CompressFactory().build({"codings": ["lzma"], "levels": {"gzip": 12}})


class Packed:
    """An answer behind the module."""

    def __init__(self, params=None, accept=b"gzip", status=200, body=TEXT, length=None, **fields):
        headers = [] if accept is None else [(b"accept-encoding", accept)]
        headers += [(name.encode(), value) for name, value in fields.pop("request", {}).items()]
        lines = [(b"content-type", b"text/html; charset=utf-8")] if "kind" not in fields else []
        lines += [(b"content-type", fields.pop("kind"))] if fields.get("kind") else []
        fields.pop("kind", None)
        lines += [(name.replace("_", "-").encode(), value) for name, value in fields.items()]
        self.exchange = exchange("PRE_RESPONSE", headers=headers, status=status, response_headers=lines)
        response = self.exchange.response
        response.body = None if body is None else Giver([body], length).body
        CompressFactory().build(params or {}).process(self.exchange)
        self.headers = response.headers
        self.coding = response.headers.get(b"content-encoding")
        self.taker = Taker(response.body)

    @property
    def content(self):
        if self.coding is None:
            return self.taker.data
        unpacker, out = UNPACKERS[self.coding](), b""
        unpacker.give(self.taker.data)
        while data := unpacker.take():
            out += data
        return out


@pytest.mark.parametrize("name", [b"gzip", b"br", b"zstd"])
def test_an_answer_is_packed_as_its_client_takes_it(name):
    packed = Packed(accept=name, length=len(TEXT))
    assert (packed.coding, packed.content, packed.taker.finished) == (name, TEXT, True)
    assert len(packed.taker.data) < len(TEXT) / 5
    assert packed.headers.all(b"vary") == [b"accept-encoding"]


def test_the_most_welcome_of_those_that_are_taken():
    assert Packed(accept=b"gzip, br, zstd").coding == b"zstd"
    assert Packed({"codings": ["gzip", "br"]}, accept=b"gzip, br, zstd").coding == b"gzip"


@pytest.mark.parametrize(
    ("what", "varies"),
    [
        ({"accept": None}, True),
        ({"accept": b"identity"}, True),
        ({"length": 1023, "body": b"x" * 1023}, True),
        ({"content_encoding": b"br"}, False),
        ({"cache_control": b"public, No-Transform"}, False),
        ({"status": 204, "body": None}, False),
        ({"status": 206}, False),
        ({"status": 304, "body": None}, False),
        ({"kind": b"image/png"}, False),
        ({"kind": b"text/event-stream"}, False),
        ({"kind": b"application/grpc+proto"}, False),
        ({"kind": None}, False),
    ],
)
def test_what_is_left_alone(what, varies):
    packed = Packed({"types": ["text/*", "application/*"]}, **what)
    assert packed.headers.all(b"vary") == ([b"accept-encoding"] if varies else [])
    assert packed.coding == what.get("content_encoding")
    assert packed.taker.data == (what.get("body", TEXT) or b"")


@pytest.mark.parametrize(
    ("kind", "fits"),
    [
        (b"text/css", True),
        (b"TEXT/HTML ; charset=x", True),
        (b"application/problem+json", True),
        (b"application/json", True),
        (b"application/octet-stream", False),
        (b"font/woff2", False),
        (b"textual/x", False),
    ],
)
def test_which_types_are_packed(kind, fits):
    assert (Packed(kind=kind).coding is not None) is fits


def test_a_length_that_is_not_known_may_be_long():
    assert Packed(body=b"x").coding == b"gzip"
    assert Packed({"minLength": 0}, body=b"x", length=1).coding == b"gzip"


@pytest.mark.parametrize("name", ["cookie", "authorization"])
def test_answers_to_those_with_credentials_can_be_left_alone(name):
    request = {name: b"x"}
    assert Packed(request=request).coding == b"gzip"
    assert Packed({"credentials": False}, request=request).coding is None
    assert Packed({"credentials": False}).coding == b"gzip"


def test_what_told_of_the_bytes_as_they_were_goes():
    told = {"content_digest": b"sha-256=:x:", "repr_digest": b"sha-256=:x:", "content_md5": b"x"}
    packed = Packed(etag=b'"1"', accept_ranges=b"bytes", x_a=b"1", **told)
    assert {name for name, _ in packed.headers} == {b"content-encoding", b"content-type", b"etag", b"vary", b"x-a"}
    assert packed.headers.get(b"etag") == b'W/"1"'
    assert Packed(etag=b'W/"1"').headers.get(b"etag") == b'W/"1"'


@pytest.mark.parametrize(
    ("vary", "after"),
    [
        ([b"origin"], [b"origin", b"accept-encoding"]),
        ([b"Accept-Encoding"], [b"Accept-Encoding"]),
        ([b"origin, accept-encoding"], [b"origin, accept-encoding"]),
        ([b"*"], [b"*"]),
    ],
)
def test_vary_is_said_once(vary, after):
    made = exchange(
        "PRE_RESPONSE",
        response_headers=[(b"content-type", b"text/x"), *((b"vary", each) for each in vary)],
        response_body=TEXT,
    )
    CompressFactory().build({}).process(made)
    assert made.response.headers.all(b"vary") == after


def test_what_is_remembered_is_bounded():
    built = CompressFactory().build({})
    for number in range(600):
        made = exchange(
            "PRE_RESPONSE",
            headers=[(b"accept-encoding", b"gzip;q=0.%03d" % number)],
            response_headers=[(b"content-type", b"text/x%d" % number)],
            response_body=TEXT,
        )
        built.process(made)
        Taker(made.response.body).stop()
    assert len(built._chosen) <= module.KNOWN
    assert len(built._fits) <= module.KNOWN


# -- decompress


def unpacked(params, body, coding, pieces=None):
    made = exchange(method=b"POST", headers=[(b"content-encoding", each) for each in coding] + [(b"etag", b'"1"')])
    made.request.body = Giver(pieces or [body], len(body)).body
    DecompressFactory().build(params).process(made)
    return made.request


@pytest.mark.parametrize(
    ("body", "coding"),
    [
        (gzipped(TEXT), [b"gzip"]),
        (gzipped(TEXT), [b"X-GZIP"]),
        (zlib.compress(TEXT), [b"deflate"]),
        (brotli.compress(TEXT), [b"br"]),
        (gzipped(brotli.compress(TEXT)), [b"br, gzip"]),
        (gzipped(brotli.compress(TEXT)), [b"br", b"identity, gzip"]),
    ],
)
def test_a_request_is_unpacked(body, coding):
    request = unpacked({"request": True}, body, coding)
    taker = Taker(request.body)
    assert (taker.data, taker.finished) == (TEXT, True)
    assert request.body.length is None
    assert request.headers == [(b"etag", b'W/"1"')]


@pytest.mark.parametrize("coding", [[], [b"identity"], [b"lzma"], [b"gzip, lzma"], [b"aes128gcm"]])
def test_what_it_does_not_know_it_leaves_alone(coding):
    request = unpacked({"request": True}, TEXT, coding)
    assert (request.headers.all(b"content-encoding"), request.body.length) == (coding, len(TEXT))
    assert Taker(request.body).data == TEXT


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (gzipped(TEXT)[:-9], 400),
        (b"nothing of the kind", 400),
        (gzipped(bytes(8 << 20)), 400),
        (gzipped(bytes(range(256)) * 20), 413),
    ],
    ids=["it breaks off", "nonsense", "a bomb", "too much"],
)
def test_what_cannot_be_unpacked_ends_the_transfer(body, status):
    request = unpacked({"request": True, "limit": "4KiB" if status == 413 else "100MiB"}, body, [b"gzip"])
    taker = Taker(request.body)
    assert (taker.reason.status, taker.reason.who) == (status, CLIENT)
    assert not taker.finished


def test_too_many_codings_are_refused():
    with pytest.raises(Abort, match="4 codings over each other") as caught:
        unpacked({"request": True}, TEXT, [b"gzip, gzip, gzip, gzip"])
    assert caught.value.status == 400


def answered(params, body, coding, accept=None, status=200):
    made = exchange(headers=[] if accept is None else [(b"accept-encoding", accept)])
    DecompressFactory().build(params).process(made)
    made.response = Response(status, [(b"content-encoding", coding)] if coding else [], Giver([body], len(body)).body)
    for see in made.promised()[1]:
        assert see(made) is None
    return made.response


@pytest.mark.parametrize(
    ("accept", "plain"), [(None, True), (b"br", True), (b"gzip;q=0", True), (b"gzip", False), (b"*", False)]
)
def test_an_answer_is_unpacked_for_whom_it_is_not(accept, plain):
    response = answered({"response": True}, gzipped(TEXT), b"gzip", accept)
    assert Taker(response.body).data == (TEXT if plain else gzipped(TEXT))
    assert response.headers.all(b"vary") == ([b"accept-encoding"] if plain else [])
    assert response.headers.all(b"content-encoding") == ([] if plain else [b"gzip"])


def test_an_answer_that_cannot_be_unpacked_is_the_upstreams_fault():
    reason = Taker(answered({"response": True}, b"nothing of the kind", b"gzip").body).reason
    assert (reason.status, reason.who, reason.error) == (502, UPSTREAM, "http_response_content_coding")


def test_parts_of_answers_are_left_alone():
    packed = gzipped(TEXT)
    assert Taker(answered({"response": True}, packed[:20], b"gzip", status=206).body).data == packed[:20]
    assert Taker(answered({"response": True}, TEXT, b"").body).data == TEXT


CONFIG = """
listeners: [{name: web, address: "127.0.0.1:8080"}]
upstreams: [{name: shop, endpoints: [{url: "http://192.0.2.7:80"}]}]
routes: [{value: /, matcherType: prefix, routes: [{targets: [{upstream: shop}]}]}]
modules:
  - {name: compress}
  - {name: decompress, actionParam: {request: true}}
"""


def whole(answer):
    """Fields and content of an answer in chunks."""
    head, _, rest = answer.partition(b"\r\n\r\n")
    content = b""
    while (size := int(rest.partition(b"\r\n")[0], 16)) > 0:
        start = rest.index(b"\r\n") + 2
        content += rest[start : start + size]
        rest = rest[start + size + 2 :]
    return head.split(b"\r\n"), content


def test_in_a_gateway():
    head = b'HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nETag: "1"\r\nContent-Length: %d\r\n\r\n' % len(TEXT)
    fields = b"Host: a\r\nAccept-Encoding: gzip\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n"
    packed = gzipped(TEXT)
    with MemoryGateway(CONFIG) as gateway:
        origin = gateway.upstream("192.0.2.7", 80, [Expect(b"0\r\n\r\n"), head + TEXT])
        answer, content = whole(gateway.ask(b"POST / HTTP/1.1\r\n" + fields % len(packed) + packed))
        assert {b"content-encoding: gzip", b'etag: W/"1"', b"vary: accept-encoding"} <= set(answer)
        assert gzip.decompress(content) == TEXT
        lines, content = whole(origin.received[0])
        assert not any(line.lower().startswith(b"content-encoding") for line in lines)
        assert content == TEXT
