"""
One request and its answer, in whatever clients speak: what L{candidates.check} sees, before anything is measured.

Not made for speed.  Over HTTP/2 and SOTP there is one connection for each.
"""

from __future__ import annotations

import http.client
import socket
import ssl
from dataclasses import dataclass, field
from typing import Final

from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import DataReceived, ResponseReceived, StreamEnded, StreamReset, TrailersReceived

from identity import NAME
from others.plan import Plan
from protogate.message import Request
from protogate_sotp.frames import DATA, END, REQUEST, RESPONSE, Hello, Reader, frame
from protogate_sotp.heads import read_response, write_request

WITHIN: Final = 10.0
"""Seconds for each step."""
PLAIN: Final = Plan(0)
"""HTTP/1 in cleartext."""
ALPN: Final = {"http1": "http/1.1", "http2": "h2", "sotp": "sotp/1"}


@dataclass(slots=True)
class Answer:
    """
    @ivar fields: by their names in lower case.
    @ivar trailers: so, too; of HTTP/2 only.
    """

    status: int = 0
    fields: dict[str, str] = field(default_factory=dict)
    body: bytes = b""
    trailers: dict[str, str] = field(default_factory=dict)


def ask(
    port: int,
    path: str,
    plan: Plan = PLAIN,
    *,
    method: str = "GET",
    source: str = "127.0.0.1",
    fields: dict[str, str] | None = None,
    body: bytes = b"",
) -> Answer:
    """
    One answer.

    @param plan: says what is spoken.
    @param source: the address that asks.
    @param fields: more of them; over SOTP there are none.
    @raise SystemExit: something else came.
    """
    line = socket.create_connection(("127.0.0.1", port), WITHIN, (source, 0))
    with line if plan.identity is None else _secured(line, plan) as spoken:
        if plan.front == "http2":
            return _http2(spoken, plan, method, path, fields or {}, body)
        if plan.front == "sotp":
            return _sotp(spoken, method, path)
        return _http1(spoken, method, path, fields or {}, body)


def _secured(line: socket.socket, plan: Plan) -> ssl.SSLSocket:
    assert plan.identity is not None
    context = ssl.create_default_context(cafile=plan.identity.cert)
    context.set_alpn_protocols([ALPN[plan.front]])
    spoken = context.wrap_socket(line, server_hostname=NAME)
    agreed = spoken.selected_alpn_protocol() or "http/1.1"
    if agreed != ALPN[plan.front]:
        raise SystemExit(f"agreed by ALPN to {agreed}, not to {ALPN[plan.front]}")
    return spoken


def _http1(line: socket.socket, method: str, path: str, fields: dict[str, str], body: bytes) -> Answer:
    connection = http.client.HTTPConnection("127.0.0.1", line.getpeername()[1])
    connection.sock = line
    connection.request(method, path, body or None, fields)
    found = connection.getresponse()
    named = {name.lower(): value for name, value in found.getheaders()}
    return Answer(found.status, named, found.read())


def _http2(line: socket.socket, plan: Plan, method: str, path: str, fields: dict[str, str], body: bytes) -> Answer:
    connection = H2Connection(H2Configuration(header_encoding="utf-8"))
    connection.initiate_connection()
    scheme = "http" if plan.identity is None else "https"
    head = {":method": method, ":scheme": scheme, ":authority": NAME, ":path": path, **fields}
    connection.send_headers(1, list(head.items()), end_stream=not body)
    if body:
        connection.send_data(1, body, end_stream=True)
    answer = Answer()
    while True:
        line.sendall(connection.data_to_send())
        data = line.recv(65536)
        if not data:
            raise SystemExit("the connection was closed")
        for event in connection.receive_data(data):
            if isinstance(event, ResponseReceived):
                answer.fields = {str(name): str(value) for name, value in event.headers}
                answer.status = int(answer.fields.pop(":status"))
            elif isinstance(event, DataReceived):
                answer.body += event.data
                connection.acknowledge_received_data(event.flow_controlled_length, 1)
            elif isinstance(event, TrailersReceived):
                answer.trailers = {str(name): str(value) for name, value in event.headers}
            elif isinstance(event, StreamReset):
                raise SystemExit(f"the stream was reset: {event.error_code!r}")
            elif isinstance(event, StreamEnded):
                return answer


def get(method: str, path: str) -> bytes:
    """The payload of a REQUEST without content, in the form of HTTP."""
    return write_request(Request(method.encode(), path.encode(), authority=NAME.encode()), 0, lambda what: None)


def _sotp(line: socket.socket, method: str, path: str) -> Answer:
    line.sendall(Hello(heartbeat=0).pack() + frame(REQUEST, END, 1, get(method, path)))
    reader, answer = Reader(Hello().sizes), Answer()
    while data := line.recv(65536):
        for kind, flags, stream, payload in reader.feed(data):
            if kind == RESPONSE:
                told = read_response(payload)
                answer.status = told.status
                answer.fields = {name.decode(): value.decode() for name, value in told.fields}
            elif kind == DATA:
                answer.body += payload
            if stream and flags & END:
                return answer
    raise SystemExit("the link was closed")
