"""Modules that keep the contract pass it; each way to break it is caught."""

from __future__ import annotations

import unittest

import pytest
from twisted.internet.defer import Deferred, succeed
from twisted.trial.unittest import SynchronousTestCase
from zope.interface import implementer

from protogate.body import Limit
from protogate.errors import CLIENT, Abort, ConfigError
from protogate.governance.accesslist import AccessListFactory
from protogate.governance.addresponseheader import AddResponseHeaderFactory
from protogate.governance.respond import RespondFactory
from protogate.interfaces import IModule, IModuleFactory
from protogate.message import Response
from protogate.testing.module import ModuleContract


class AddResponseHeaderContract(ModuleContract, SynchronousTestCase):
    factory = AddResponseHeaderFactory
    good = ({"x-a": "1"}, {"x-id": "${func.requestId}", "x-status": ["a", "b"]})
    bad = (({"not a name": "1"}, "not a name"),)


class RespondContract(ModuleContract, SynchronousTestCase):
    factory = RespondFactory
    good = ({"status": 200, "body": "pong"}, {"status": 204})
    bad = (({"status": 99}, "status"), ({"status": "many"}, "status"), ({"status": 200, "nonsense": 1}, "nonsense"))


class AccessListContract(ModuleContract, SynchronousTestCase):
    factory = AccessListFactory
    good = ({"allow": ["192.0.2.0/24"]}, {"deny": ["192.0.2.1"]})
    bad = (({"allow": ["192.0.2.0/33"]}, "allow"),)


@implementer(IModule)
class Good:
    """Does nothing; what the mutants start from."""

    def __init__(self, params):
        self.params = params

    def process(self, exchange):
        return None


@implementer(IModuleFactory)
class GoodFactory:
    name, stages, guards = "good", ("PRE_REQUEST", "PRE_RESPONSE", "ERROR"), False
    module = Good

    def build(self, params):
        for name in params:
            if name != "known":
                raise ConfigError("no such parameter; there is: known", (name,))
        return self.module(params)


class Waiting(Good):
    def process(self, exchange):
        return succeed(None)


class Coroutine(Good):
    async def process(self, exchange):
        return Response(200)


class Failing(Good):
    async def process(self, exchange):
        raise KeyError("a bug")


class Late(Good):
    async def process(self, exchange):
        raise Abort("no", CLIENT, 403)


class Never(Good):
    def process(self, exchange):
        return Deferred()


class Refusing(Good):
    def process(self, exchange):
        raise Abort("no", CLIENT, 403)


class Limiting(Good):
    def process(self, exchange):
        if exchange.request.body is not None:
            exchange.request.body = Limit(exchange.request.body, 3, Abort("too much", CLIENT, 413))


class Dropping(Good):
    def process(self, exchange):
        exchange.request.body = None


class Talking(Good):
    def process(self, exchange):
        return "an answer"


class Odd(Good):
    def process(self, exchange):
        return Response(42)


class Upper(Good):
    def process(self, exchange):
        exchange.request.headers.append((b"X-Upper", b"1"))


class Text(Good):
    def process(self, exchange):
        exchange.request.headers.append((b"x-text", "1"))


class Counting(Good):
    count = 0

    def process(self, exchange):
        Counting.count += 1


class Crashing(Good):
    def process(self, exchange):
        return exchange.request.body.length and None


class Answering(Good):
    def process(self, exchange):
        if exchange.error is not None:
            exchange.response = Response(200)


def mutant(module=Good, **members):
    return type("Mutant", (GoodFactory,), {"module": module, **members})


class Careless(GoodFactory):
    def build(self, params):
        params["known"]
        return Good(params)


def run(factory, **members):
    members = {"factory": factory, "good": ({}, {"known": ["a"]}), "bad": (({"x": 1}, "x"),), **members}
    case = type("Case", (ModuleContract, SynchronousTestCase), members)
    result = unittest.TestResult()
    unittest.defaultTestLoader.loadTestsFromTestCase(case).run(result)
    return {test.id().rpartition(".")[2] for test, _ in result.failures + result.errors}


def test_good_ones_pass():
    assert run(GoodFactory) == set()
    assert run(mutant(Waiting), waits=True) == set()
    assert run(mutant(Coroutine), waits=True) == set()
    assert run(mutant(Limiting)) == set()


@pytest.mark.parametrize(
    ("factory", "test", "members"),
    [
        (mutant(Waiting), "test_what_it_returns", {}),
        (mutant(Coroutine), "test_what_it_returns", {}),
        (mutant(Never), "test_what_it_returns", {"waits": True}),
        (mutant(Failing), "test_what_it_returns", {"waits": True}),
        (mutant(Talking), "test_what_it_returns", {}),
        (mutant(Odd), "test_what_it_returns", {}),
        (mutant(Upper), "test_what_it_returns", {}),
        (mutant(Text), "test_what_it_returns", {}),
        (mutant(Dropping), "test_bodies_are_handed_on_or_stopped", {}),
        (mutant(Counting), "test_two_builds_share_nothing", {}),
        (mutant(Crashing), "test_failures_are_aborts", {}),
        (mutant(Answering), "test_failures_are_aborts", {}),
        (mutant(stages=()), "test_factory", {}),
        (mutant(stages=("SOMETIME",)), "test_factory", {}),
        (mutant(name="two words"), "test_factory", {}),
        (mutant(guards=None), "test_factory", {}),
        (mutant(object), "test_good_parameters", {}),
        (GoodFactory, "test_good_parameters", {"good": ()}),
        (GoodFactory, "test_good_parameters", {"good": ({"x": 1},)}),
        (GoodFactory, "test_bad_parameters_are_named", {"bad": (({"known": 1}, "known"),)}),
        (GoodFactory, "test_bad_parameters_are_named", {"bad": (({"y": 1}, "x"),)}),
        (Careless, "test_bad_parameters_are_named", {}),
    ],
)
def test_each_fault_is_caught(factory, test, members):
    assert test in run(factory, **members)


def test_an_abort_is_a_proper_failure():
    assert run(mutant(Refusing)) == set()
    assert run(mutant(Late), waits=True) == set()
