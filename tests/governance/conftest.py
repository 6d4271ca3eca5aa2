"""An exchange for modules, and modules that do what a test says."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from zope.interface import implementer

from protogate.interfaces import IModule, IModuleFactory
from protogate.testing import exchange as exchanges


def an_exchange(method=b"GET", target=b"/", headers=(), authority=b"shop.test", ip="192.0.2.1"):
    """A real one: compiled modules take no other."""
    return exchanges.exchange(method=method, target=target, headers=headers, authority=authority, ip=ip)


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
    return an_exchange()


@pytest.fixture
def fakes():
    """What is above."""
    return SimpleNamespace(Exchange=an_exchange, Module=FakeModule, Factory=FakeFactory, finder=finder)
