"""What tests of TLS share: both libraries, clients of C{ssl}, files that gateway and neighbours use."""

from __future__ import annotations

import json
import os
import socket
import ssl
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from authority import Authority, Issued
from gateways import WITHIN, Gateway, Wire, start
from neighbours import Neighbours

REACTORS = ["", "epoll"]
"""The one that a gateway would choose itself, whose TLS is that of C{ssl}; and one of Twisted's, with pyOpenSSL."""


def begin(neighbours: Neighbours, settings: Mapping[str, Any], reactor: str) -> Gateway:
    """Start a gateway on a reactor."""
    before = os.environ.get("GATEWAY_REACTOR")
    os.environ["GATEWAY_REACTOR"] = reactor or "protogate-uv"
    try:
        return start(neighbours, settings)
    finally:
        if before is None:
            del os.environ["GATEWAY_REACTOR"]
        else:
            os.environ["GATEWAY_REACTOR"] = before


def pair(issued: Issued) -> dict[str, str]:
    """As a configuration names it."""
    return {"cert": str(issued.cert), "key": str(issued.key)}


def client(authority: Authority, issued: Issued | None = None, *, alpn: list[str] | None = None) -> ssl.SSLContext:
    """A context that trusts the authority."""
    context = ssl.create_default_context(cafile=str(authority.file))
    if issued is not None:
        context.load_cert_chain(issued.cert, issued.key)
    if alpn is not None:
        context.set_alpn_protocols(alpn)
    return context


@contextmanager
def shaken(
    port: int, context: ssl.SSLContext, name: str = "shop.test", session: ssl.SSLSession | None = None
) -> Iterator[ssl.SSLSocket]:
    """A connection whose handshake is done, as far as the client is concerned."""
    plain = socket.create_connection(("127.0.0.1", port), timeout=WITHIN)
    with plain, context.wrap_socket(plain, server_hostname=name, session=session) as secured:
        yield secured


def ask(connection: socket.socket, path: str = "/", *fields: str, host: str = "shop.test") -> tuple[int, bytes]:
    """Status and body of the answer to a GET."""
    wire = Wire(connection)
    lines = "".join(f"{field}\r\n" for field in fields)
    wire.send(f"GET {path} HTTP/1.1\r\nHost: {host}\r\n{lines}\r\n".encode())
    head, body = wire.answer()
    return int(head.split()[1]), body


def counters(port: int) -> dict[str, float]:
    """What a gateway with an admin port there has counted, over all listeners and upstreams, of TLS."""
    with socket.create_connection(("127.0.0.1", port), timeout=WITHIN) as connection:
        wire = Wire(connection)
        wire.send(b"GET /metrics HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
        text = wire.rest().decode()
    found: dict[str, float] = {}
    for line in text.splitlines():
        if 'event="tls' in line and ('listener="' in line or 'upstream="' in line):
            name = line.partition('event="')[2].partition('"')[0]
            found[name] = found.get(name, 0) + float(line.rpartition(" ")[2])
    return found


def seen(body: bytes) -> dict[str, Any]:
    """What an upstream that tells what it was asked was asked."""
    found: dict[str, Any] = json.loads(body)
    return found


def renew(issued: Issued, there: Issued) -> None:
    """Put renewed files in the place of those that there are, as tools do: each in one step, first the certificate."""
    for new, old in ((issued.cert, there.cert), (issued.key, there.key)):
        Path(new).replace(old)
