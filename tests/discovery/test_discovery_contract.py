"""All sources that come with the gateway keep to the contract."""

from __future__ import annotations

import json
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from twisted.internet.defer import Deferred
from twisted.trial.unittest import SynchronousTestCase

from protogate.body import Whole
from protogate.discovery.consul import ConsulFactory
from protogate.discovery.dns import NamesFactory
from protogate.discovery.etcd import EtcdFactory
from protogate.discovery.listed import ListedFactory
from protogate.message import Request, Response
from protogate.testing.catalogues import Etcd
from protogate.testing.discovery import DiscoveryContract

INSTANCE = {"Node": {"Address": "192.0.2.1"}, "Service": {"ID": "a", "Address": "", "Port": 80}}


class EtcdContract(DiscoveryContract, SynchronousTestCase):
    factory = EtcdFactory
    good = ({"url": "http://192.0.2.9:2379", "prefix": "/shop/"}, {"upstream": "hub", "prefix": "/shop/"})
    bad = (
        ({"prefix": "/shop/"}, ""),
        ({"url": "http://192.0.2.9:2379", "prefix": ""}, "prefix"),
        ({"upstream": "hub", "prefix": "/shop/", "user": "me"}, "user"),
        ({"upstream": "hub", "prefix": "/shop/", "username": "me", "password": {"env": "NOT_SET"}}, "password"),
    )

    def setUp(self) -> None:
        self.etcd = Etcd()
        self.etcd.put("/shop/a", "192.0.2.1:80")

    def answer(self, request: Request) -> Response | Deferred[Response]:
        return self.etcd.handle(request)


class ConsulContract(DiscoveryContract, SynchronousTestCase):
    factory = ConsulFactory
    good = ({"url": "http://192.0.2.9:8500", "service": "shop"}, {"upstream": "hub", "service": "shop", "wait": "5s"})
    bad = (
        ({"url": "http://192.0.2.9:8500", "service": ""}, "service"),
        ({"url": "http://192.0.2.9:8500", "upstream": "hub", "service": "shop"}, ""),
        ({"upstream": "hub", "service": "shop", "token": {}}, "token"),
    )

    def answer(self, request: Request) -> Response:
        return Response(200, [(b"x-consul-index", b"7")], Whole(json.dumps([INSTANCE]).encode()))


class NamesContract(DiscoveryContract, SynchronousTestCase):
    factory = NamesFactory
    good = ("192.0.2.1:80", "shop.test:80", "_shop._tcp.test")
    bad = (("shop.test", ""), ({"host": "shop.test"}, ""))


class ListedContract(DiscoveryContract, SynchronousTestCase):
    factory = ListedFactory
    good = ("list.yaml",)
    bad = (("nonexistent.yaml", ""),)

    def setUp(self) -> None:
        self._folder = TemporaryDirectory()
        self.addCleanup(self._folder.cleanup)
        Path(self._folder.name, "list.yaml").write_text("[192.0.2.1:80]")

    def build(self, told: Any) -> Any:
        return super().build(str(Path(self._folder.name, told)))
