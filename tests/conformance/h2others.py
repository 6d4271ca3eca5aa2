"""
Plays the cases for servers against servers of other people, as a check of the table: a rule that all of them break is
probably not one.

    python tests/conformance/h2others.py nginx nghttpd

It prints each case whose outcome is not what the table expects, and how many there were.  Their sites are what
L{h2server_cases} describes as far as such a server can do it: nothing there reads content and says how much it was, so
what a case says about that is not looked at.  Only addresses of this machine are used, and all ends within minutes.
"""
# ruff: noqa: E402 - a program, whose path the tests' configuration does not set

from __future__ import annotations

import signal
import socket
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parent.parent)]

from h2case import Case
from h2server_cases import server
from h2shared import SHARED

from h2frames import PREFACE, ping, req, settings
from h2peer import Peer
from neighbours import Neighbour, free_port, listens, need

BIG = 1 << 20
SILENCE, PAUSE = 0.08, 0.005
"""Seconds without a byte that are taken for the end of what comes: at last, and between two items."""
NEXT = 100_001
NGINX = """
daemon off; master_process off; pid {root}/pid; error_log stderr crit; worker_rlimit_nofile 1024;
events {{}}
http {{
  access_log off; client_body_temp_path {root}/b; proxy_temp_path {root}/p; fastcgi_temp_path {root}/f;
  uwsgi_temp_path {root}/u; scgi_temp_path {root}/s; large_client_header_buffers 4 32k;
  server {{
    listen 127.0.0.1:{port} http2; root {root}/site; server_name a.test;
    location = / {{ rewrite ^ /ok last; }}
    location /hold {{ proxy_pass http://127.0.0.1:{silent}; }}
    location /sink {{ proxy_pass http://127.0.0.1:{sink}/; }}
  }}
  server {{ listen 127.0.0.1:{sink}; location / {{ return 200 read; }} }}
}}
"""


@contextmanager
def nginx(root: Path, silent: int) -> Iterator[int]:
    """nginx, with HTTP/2 in cleartext."""
    port, sink = free_port(), free_port()
    for folder in ("b", "p", "f", "u", "s"):
        (root / folder).mkdir()
    (root / "nginx.conf").write_text(NGINX.format(root=root, port=port, sink=sink, silent=silent))
    with run([need("nginx"), "-p", str(root), "-c", str(root / "nginx.conf")], root, port):
        yield port


@contextmanager
def nghttpd(root: Path, silent: int) -> Iterator[int]:
    """nghttp2's own server."""
    port = free_port()
    argv = [need("nghttpd"), "--no-tls", "-d", str(root / "site"), "--echo-upload", "--address=127.0.0.1", str(port)]
    with run(argv, root, port):
        yield port


@contextmanager
def run(argv: list[str], root: Path, port: int) -> Iterator[None]:
    """One of them, until it is not needed."""
    neighbour = Neighbour(argv, root / "log", root, None, lambda _: listens(port))
    try:
        yield
    finally:
        neighbour.stop()


def play(case: Case, port: int) -> str:
    """What came of a case, in the words of L{Peer.seen}."""
    peer = Peer(True, case.said)
    with socket.create_connection(("127.0.0.1", port), timeout=SILENCE) as wire:

        def send(data: bytes) -> None:
            peer.said(data)
            try:
                wire.sendall(data)
            except OSError:
                peer.closed = True

        def quiet(silence: float = PAUSE) -> None:
            wire.settimeout(silence)
            while not peer.closed:
                try:
                    found = wire.recv(1 << 16)
                except TimeoutError:
                    return
                except OSError:
                    found = b""
                if found:
                    peer.feed(found)
                else:
                    peer.closed = True

        peer.send = send
        send(PREFACE + settings(*case.said.items()) if case.preface is None else case.preface)
        quiet()
        for item in case.send:
            if callable(item):
                quiet(SILENCE)
            data = item(peer) if callable(item) else item
            if data and not peer.closed:
                send(data)
                quiet()
        quiet(SILENCE)
        seen = peer.seen(case.stream)
        if peer.closed or peer.goaways:
            return seen
        send(ping(b"conforms"))
        if case.then:
            send(req(NEXT, b"/", b"HEAD"))
        quiet(SILENCE)
        if b"conforms" not in peer.pongs:
            return f"{seen}, then no answer to PING"
        if case.then and peer.messages[NEXT].status != 200:
            return f"{seen}, then {peer.seen(NEXT)}"
    return seen


KNOWN: dict[str, Callable[..., object]] = {"nginx": nginx, "nghttpd": nghttpd}


def main(names: list[str]) -> None:
    """Play all, print what differs."""
    cases = (SHARED[False].cases | server.cases).values()
    found: dict[str, dict[str, str]] = {}
    with socket.create_server(("127.0.0.1", 0)) as silent:
        for name in names:
            with tempfile.TemporaryDirectory() as folder:
                root = Path(folder)
                (root / "site").mkdir()
                for page, content in {
                    "ok": b"ok",
                    "index.html": b"ok",
                    "big": bytes(BIG),
                    "hold": b"",
                    "sink": b"",
                }.items():
                    (root / "site" / page).write_bytes(content)
                with KNOWN[name](root, silent.getsockname()[1]) as port:  # type: ignore[attr-defined]
                    for case in cases:
                        try:
                            seen = play(case, port)
                        except AssertionError as error:
                            seen = f"assert {error}"
                        if seen not in case.expect:
                            found.setdefault(case.name, {})[name] = seen
    for case in cases:
        if case.name in found:
            who = "all: " if len(found[case.name]) == len(names) else ""
            print(f"{who}{case.name} ({' or '.join(case.expect)}): {found[case.name]}")
    for name in names:
        print(f"{name}: {sum(name in each for each in found.values())} of {len(cases)} cases differ")


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # and stop what was started
    main(sys.argv[1:] or list(KNOWN))
