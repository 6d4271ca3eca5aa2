"""What tests of HTTP/2 share: a gateway between clients and upstreams of both versions, over either engine."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from secure import pair

from authority import Authority, Issued
from gateways import HERE, WITHIN, Gateway, config, origin, start
from neighbours import Neighbours, free_port, need, run

ENGINES = ["ngh2", "h2"]


class World(NamedTuple):
    """
    A gateway, and what is around it.

    @ivar gateway: on its first port in cleartext, both versions told apart by their first bytes.
    @ivar tls: its port with TLS, both versions by ALPN.
    """

    gateway: Gateway
    tls: int
    authority: Authority
    issued: Issued
    company: Neighbours

    @property
    def url(self) -> str:
        """Where it speaks TLS."""
        return f"https://127.0.0.1:{self.tls}"

    def ask(self, scenario: str, prefix: str, *, tls: bool = False) -> Any:
        """What Node's client has seen."""
        where = [self.url, prefix, str(self.authority.file)] if tls else [self.gateway.url, prefix]
        return told(scenario, *where)


def told(scenario: str, *where: str) -> Any:
    """Run one scenario of C{client2.js}."""
    done = run([need("node"), str(HERE / "client2.js"), scenario, *where], timeout=2 * WITHIN)
    assert done.returncode == 0, done.stderr.decode()
    return json.loads(done.stdout)


@contextmanager
def engine(name: str, folder: Path) -> Iterator[None]:
    """What is started meanwhile has that engine: where C{ngh2} cannot be imported it is h2."""
    before = os.environ.get("PYTHONPATH", "")
    if name == "h2":
        blocked = folder / "without-ngh2"
        blocked.mkdir(exist_ok=True)
        (blocked / "ngh2.py").write_text("raise ImportError\n")
        os.environ["PYTHONPATH"] = f"{blocked}:{before}" if before else str(blocked)
    try:
        used = run([sys.executable, "-c", "from protogate_http import engine2; print(engine2.ENGINES[0])"])
        assert used.stdout.decode().strip() == name, used.stderr.decode()
        yield
    finally:
        os.environ.pop("PYTHONPATH", None)
        if before:
            os.environ["PYTHONPATH"] = before


def rule(prefix: str, name: str, **match: str) -> dict[str, Any]:
    """What begins with that goes there, without it."""
    target = {"upstream": name}
    return {"value": prefix, "matcherType": "prefix", "routes": [{"targets": [target]}], **match}


def world(
    company: Neighbours,
    node: int,
    name: str,
    *,
    routes: Sequence[Any] = (),
    upstreams: Sequence[Any] = (),
    modules: Sequence[Any] = (),
) -> World:
    """
    Start a gateway with that engine.  What a path begins with says where it goes: C{/one} to a server of HTTP/1,
    C{/two} to one of HTTP/2 in cleartext, C{/tls} to one with TLS; what is given comes on top of that.
    """
    folder = company.directory / f"multiplexed-{name}"
    folder.mkdir(exist_ok=True)
    authority = Authority(folder)
    issued = authority.issue("shop.test", ["shop.test", "127.0.0.1"])
    clear = origin(company, "origin2.js").port
    secure = origin(company, "origin2.js", arguments=(str(issued.cert), str(issued.key))).port
    port = free_port()
    protocols = ["http2", "http1"]
    settings = config(
        node,
        listeners=[
            {"name": "web", "address": "127.0.0.1:0", "protocols": protocols},
            {
                "name": "tls",
                "address": f"127.0.0.1:{port}",
                "protocols": protocols,
                "tls": {"certificates": [pair(issued)]},
            },
        ],
        upstreams=[
            {"name": "one", "endpoints": [{"url": f"http://127.0.0.1:{node}"}]},
            {"name": "two", "endpoints": [{"url": f"h2c://127.0.0.1:{clear}"}]},
            {
                "name": "tls",
                "endpoints": [{"url": f"h2://127.0.0.1:{secure}"}],
                "tls": {"ca": str(authority.file)},
            },
            *upstreams,
        ],
        routes=[*(rule(f"/{each}", each) for each in ("one", "two", "tls")), *routes],
        modules=[
            {
                "name": "rewritePath",
                "stage": "PRE_UPSTREAM",
                "actionParam": {"regex": "^/(one|two|tls)(/by[0-9]+)?/", "replacement": "/"},
            },
            *modules,
        ],
        accessLog={"file": "access.log"},
    )
    with engine(name, folder):
        gateway = start(company, settings)
    return World(gateway, port, authority, issued, company)


def fields(answer: Mapping[str, Any]) -> dict[str, str]:
    """The fields that the upstream saw, of either kind; names in lower case."""
    seen: dict[str, Any] = json.loads(answer["x-seen"])
    if "fields" not in seen:
        return seen
    names = seen["fields"]
    return {name.lower(): value for name, value in zip(names[::2], names[1::2], strict=True)}
