"""
A load that makes a connection for each request: TLS, with a handshake from the beginning or with a session resumed.

    python bench/handshakes.py --port 8443 --cert bench.pem [--resume] [--path /] [--seconds 4] [--connections 16]

Each thread makes one connection after the other: handshake, one request, the whole answer, end.  The certificate is
verified.  With C{--resume} each uses the session of the one before, so that only the first handshake of a thread is
whole.  What is offered stands in the file that C{OPENSSL_CONF} names.

Prints one JSON object: seconds; answers; errors, with the commonest reason; and other: handshakes that were resumed
although they should not have been, or the other way round.
"""

from __future__ import annotations

import argparse
import json
import socket
import ssl
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import Final

from identity import NAME

WITHIN: Final = 10.0
"""Seconds for each step of a connection."""


@dataclass
class Account:
    """
    Of one thread.

    @ivar answers: that were whole and well.
    @ivar other: of their connections, those whose handshake was not of the kind that was wanted.
    @ivar errors: what came instead of an answer, and how often.
    """

    answers: int = 0
    other: int = 0
    errors: Counter[str] = field(default_factory=Counter)


def once(
    context: ssl.SSLContext, port: int, request: bytes, session: ssl.SSLSession | None
) -> tuple[ssl.SSLSession | None, bool]:
    """
    One connection, to its end.

    @return: its session, and whether that was resumed.
    @raise OSError: it failed.
    @raise ValueError: the answer is none, or not whole.
    """
    with (
        socket.create_connection(("127.0.0.1", port), WITHIN) as line,
        context.wrap_socket(line, server_hostname=NAME, session=session) as secured,
    ):
        secured.sendall(request)
        data = b""
        while more := secured.recv(65536):
            data += more
        found = secured.session, bool(secured.session_reused)
    head, _, body = data.partition(b"\r\n\r\n")
    status, *lines = head.lower().split(b"\r\n")
    if not status.startswith(b"http/1.1 200 "):
        raise ValueError(f"answered with {status[:40]!r}")
    if b"content-length: %d" % len(body) not in lines:
        raise ValueError("a part of an answer")
    return found


def run(port: int, path: str, cert: str, resume: bool, until: float) -> Account:
    """One thread of the load, until that time of the monotonic clock."""
    request = f"GET {path} HTTP/1.1\r\nHost: {NAME}:{port}\r\nConnection: close\r\n\r\n".encode()
    context, account = ssl.create_default_context(cafile=cert), Account()
    session: ssl.SSLSession | None = None
    while time.monotonic() < until:
        try:
            new, resumed = once(context, port, request, session)
        except (OSError, ValueError) as why:
            account.errors[str(why)] += 1
            session = None
            continue
        account.answers += 1
        account.other += resumed is not (session is not None)
        session = new if resume else None
    return account


def main() -> int:
    """Ask, and print what came of it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--port", type=int, required=True, help="of 127.0.0.1")
    parser.add_argument("--cert", required=True, help="what certificates are verified by")
    parser.add_argument("--resume", action="store_true", help="the session of the connection before")
    parser.add_argument("--path", default="/", help="what is asked for (default: /)")
    parser.add_argument("--seconds", type=float, default=4, help="how long (default: 4)")
    parser.add_argument("--connections", type=int, default=16, help="threads (default: 16)")
    options = parser.parse_args()
    begun, accounts = time.monotonic(), []

    def ask() -> None:
        accounts.append(run(options.port, options.path, options.cert, options.resume, begun + options.seconds))

    threads = [threading.Thread(target=ask) for _ in range(options.connections)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    errors = sum((account.errors for account in accounts), Counter[str]())
    told = {
        "seconds": time.monotonic() - begun,
        "answers": sum(account.answers for account in accounts),
        "other": sum(account.other for account in accounts),
        "errors": errors.total(),
        "why": errors.most_common(1)[0][0] if errors else "",
    }
    print(json.dumps(told))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
