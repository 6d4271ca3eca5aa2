"""An exchange for modules, and modules that do what a test says."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from twisted.internet.task import Clock
from zope.interface import implementer

from protogate.exchange.ledger import Ledger
from protogate.interfaces import IModule, IModuleFactory
from protogate.message import Peer, Request
from protogate.wheel import Wheel


class FakeExchange:
    """What modules, conditions and templates ask of an exchange."""

    def __init__(self, method=b"GET", target=b"/", headers=(), authority=b"shop.test", ip="192.0.2.1"):
        self.clock = Clock()
        self.wheel = Wheel(self.clock)
        self.request = Request(method, target, headers, authority=authority)
        self.source = Peer(ip, 40000)
        self.identity = self.route = self.target = self.response = self.error = None
        self.id, self.trace = "1" * 32, "2" * 32
        self.gateway = SimpleNamespace(name="edge-1", zone="PRO")
        self.ledger = Ledger(1.0)
        self.notes = {}


@implementer(IModule)
class FakeModule:
    """Notes that it ran."""

    def __init__(self, params):
        self.params = params
        self.warnings = ()

    def process(self, exchange):
        exchange.notes.setdefault("ran", []).append(self.params.get("as"))


@implementer(IModuleFactory)
class FakeFactory:
    """Makes what C{make} makes."""

    def __init__(self, name="fake", stages=("PRE_REQUEST", "PRE_RESPONSE"), guards=False, make=FakeModule):
        self.name, self.stages, self.guards, self.make = name, stages, guards, make

    def build(self, params):
        return self.make(params)


def finder(*factories):
    """A C{find} that knows these."""
    known = {factory.name: factory for factory in factories}

    def find(interface, name):
        assert interface is IModuleFactory
        if name not in known:
            raise LookupError(f"no module named {name!r}; installed: {', '.join(known)}")
        return known[name]

    return find


@pytest.fixture
def exchange():
    return FakeExchange()


@pytest.fixture
def fakes():
    """The classes above."""
    return SimpleNamespace(Exchange=FakeExchange, Module=FakeModule, Factory=FakeFactory, finder=finder)
