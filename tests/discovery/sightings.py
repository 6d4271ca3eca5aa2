"""A gateway whose upstream C{origin} is found somewhere, and servers that say who they are."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from twisted.logger import LogEvent, formatEvent, globalLogPublisher

from protogate.testing.catalogues import Consul, Etcd, serve
from protogate.testing.gateway import MemoryGateway
from protogate.testing.upstream import Expect, Upstream

PREFIX = "/services/shop/"
ETCD, CONSUL = ("192.0.2.91", 2379), ("192.0.2.92", 8500)
GET = b"GET / HTTP/1.1\r\nHost: a.test\r\nConnection: close\r\n\r\n"


def at(last: int) -> str:
    """Address of the server of that number."""
    return f"192.0.2.{last}"


def config(discovery: dict[str, Any], *more: dict[str, Any], **origin: Any) -> dict[str, Any]:
    """One upstream that is found, and others."""
    return {
        "gateway": {"watch": False},
        "listeners": [{"name": "web", "address": "127.0.0.1:8080"}],
        "upstreams": [{"name": "origin", "discovery": discovery, **origin}, *more],
        "routes": [{"value": "/", "matcherType": "prefix", "routes": [{"targets": [{"upstream": "origin"}]}]}],
    }


def etcd_at(**more: Any) -> dict[str, Any]:
    """A C{discovery} by the etcd of the scene; C{staleFor} and the like are keys of its own."""
    outer = {key: more.pop(key) for key in ("staleFor", "emptyFor", "scheme") if key in more}
    return {"etcd": {"url": f"http://{ETCD[0]}:{ETCD[1]}", "prefix": PREFIX, **more}, **outer}


def consul_at(**more: Any) -> dict[str, Any]:
    """The same by the Consul of the scene."""
    outer = {key: more.pop(key) for key in ("staleFor", "emptyFor", "scheme") if key in more}
    return {"consul": {"url": f"http://{CONSUL[0]}:{CONSUL[1]}", "service": "shop", **more}, **outer}


class Scene:
    """
    @ivar logged: what was said.
    """

    def __init__(self, gateway: MemoryGateway, logged: list[str]) -> None:
        self.gateway, self.logged = gateway, logged
        self.servers: dict[int, Upstream] = {}
        self.etcd = Etcd()
        self.consul = Consul(gateway.service.wheel)
        serve(gateway.reactor, *ETCD, self.etcd)
        serve(gateway.reactor, *CONSUL, self.consul)
        for number in range(1, 5):
            said = b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n%d" % number
            self.servers[number] = gateway.upstream(at(number), 80, [Expect(b"\r\n\r\n"), said])

    def ask(self) -> int | str:
        """The number of the server that answers a request, or what is said instead."""
        answer = self.gateway.ask(GET)
        status = int(answer[9:12])
        return int(answer[-1:]) if status == 200 else f"{status}"

    def asked(self, times: int = 8) -> set[int | str]:
        """All that are."""
        return {self.ask() for _ in range(times)}

    def count(self, event: str) -> float:
        return self.gateway.service.counters.counts[event]

    @property
    def stale(self) -> float:
        """The gauge of the upstream."""
        from protogate.admin.own import Own

        return Own(self.gateway.service).snapshot()["gauges"]["upstream"]["origin"]["stale"]

    def said(self, text: str) -> bool:
        return any(text in line for line in self.logged)


@contextmanager
def scene(
    discovery: dict[str, Any],
    *more: dict[str, Any],
    before: Callable[[Scene], None] = lambda _: None,
    **origin: Any,
) -> Iterator[Scene]:
    """
    A gateway that has just begun to look.

    @param before: does something before it looks.
    """
    logged: list[str] = []

    def log(event: LogEvent) -> None:
        logged.append(formatEvent(event))

    globalLogPublisher.addObserver(log)
    try:
        with MemoryGateway(config({"dns": "nobody.test:1"}, endpoints=[{"url": "http://192.0.2.250"}])) as gateway:
            made = Scene(gateway, logged)
            before(made)
            assert gateway.reload(config(discovery, *more, **origin)), logged
            gateway.advance(0.1)
            logged.clear()
            yield made
    finally:
        globalLogPublisher.removeObserver(log)
