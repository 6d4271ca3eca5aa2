"""What somebody is answered is his: a cache behind a module that authenticates gives it to nobody else."""

from __future__ import annotations

import pytest

from protogate.identity.keys import digest_of
from protogate.testing.gateway import MemoryGateway
from protogate.testing.upstream import Expect

CONFIG = """
listeners: [{{name: web, address: "127.0.0.1:8080"}}]
upstreams: [{{name: shop, endpoints: [{{url: "http://192.0.2.7:80"}}]}}]
routes: [{{value: /, matcherType: prefix, routes: [{{targets: [{{upstream: shop}}]}}]}}]
modules:
  - name: keyAuth
    actionParam: {{keys: {{file: {path}}}, optional: true, forward: {{x-user: "${{identity.user}}"}}}}
  - {{name: cache, stage: PRE_UPSTREAM}}
"""


def answers(tmp_path, control, *keys):
    """What each of them is answered: the number of the answer that the origin gave."""
    path = tmp_path / "keys.txt"
    path.write_text("".join(f"{digest_of(key)} {key.decode()}\n" for key in (b"alice", b"bob")))
    told = []
    with MemoryGateway(CONFIG.format(path=path)) as gateway:
        head = b"HTTP/1.1 200 OK\r\nCache-Control: " + control + b"\r\nContent-Length: 1\r\n\r\n"
        gateway.upstream("192.0.2.7", 80, [step for n in range(9) for step in (Expect(b"\r\n\r\n"), head + b"%d" % n)])
        for key in keys:
            field = b"X-API-Key: " + key + b"\r\n" if key else b""
            told.append(gateway.ask(b"GET /a HTTP/1.1\r\nHost: a.test\r\n" + field + b"\r\n")[-1:])
    return told


@pytest.mark.parametrize("control", [b"max-age=60", b"private, max-age=60", b"max-age=60, stale-while-revalidate=60"])
def test_an_answer_to_somebody_is_given_to_nobody_else(tmp_path, control):
    """The key was taken out of the request: nothing there shows that somebody asked but the identity."""
    assert answers(tmp_path, control, b"alice", b"bob", b"alice", b"") == [b"0", b"1", b"2", b"3"]


def test_what_is_for_everybody_is_given_to_everybody(tmp_path):
    assert answers(tmp_path, b"public, max-age=60", b"alice", b"bob", b"") == [b"0", b"0", b"0"]
    assert answers(tmp_path, b"max-age=60", b"", b"") == [b"0", b"0"]
