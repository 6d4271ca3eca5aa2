"""
L{ModuleContract}: what must hold for every module.

    class Contract(ModuleContract, SynchronousTestCase):
        factory = AddResponseHeaderFactory              # called without arguments
        good = [{"x-a": "1"}, {"x-id": "${func.requestId}"}]
        bad = [({"not a name": "1"}, "not a name")]     # parameters, and the one that the error must name

Parameters are written as C{actionParam} stands in a configuration file; they are bound by the gateway's own binder.
For tests of what a module does, see L{protogate.testing.exchange.exchange}.

Runs under trial and under pytest.
"""
# ruff: noqa: PT009, PT027 - under trial only these assertions show the values

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar

from twisted.internet.defer import Deferred
from twisted.python.failure import Failure
from zope.interface.verify import verifyObject

from protogate.config.faults import ConfigFaults
from protogate.config.model import Module
from protogate.errors import Abort
from protogate.exchange.exchange import Exchange
from protogate.governance.binding import Bound, bind
from protogate.governance.means import Means
from protogate.governance.stages import ERROR, STAGES
from protogate.interfaces import IBody, ILiveModule, IModule, IModuleFactory
from protogate.message import Response
from protogate.testing.bodies import Taker
from protogate.testing.exchange import exchange
from protogate.testing.means import FakeMeans
from protogate.testing.reactor import MemoryReactor
from protogate.wheel import Wheel

if TYPE_CHECKING:
    from twisted.trial.unittest import SynchronousTestCase as Base
else:
    Base = object

Params = Mapping[str, Any]


class ModuleContract(Base):
    """
    @cvar factory: makes the factory, called without arguments.
    @cvar good: parameters to build with; at least one.
    @cvar bad: parameters that must be refused, each with the name of the one at fault; C{""} where none can be named.
    @cvar waits: process() may return a Deferred or a coroutine.
    @cvar upstreams: names of those that good parameters mean.
    """

    factory: ClassVar[Callable[[], Any]]
    good: ClassVar[Sequence[Params]] = ({},)
    bad: ClassVar[Sequence[tuple[Params, str]]] = ()
    waits: ClassVar[bool] = False
    upstreams: ClassVar[Sequence[str]] = ()

    # -- for the tests

    def exchange(self, stage: str) -> Exchange:
        """An exchange at the beginning of a stage, with a body each way.  Override it for modules that need more."""
        return exchange(
            stage,
            method=b"POST",
            headers=[(b"accept", b"*/*"), (b"x-a", b"1")],
            body=b"request",
            response_headers=[(b"content-type", b"text/plain"), (b"x-b", b"2")],
            response_body=b"response",
        )

    def build(self, params: Params, stage: str = "") -> Bound:
        """Bind it as a configuration would.  Raises ConfigFaults."""
        made = type(self).factory()
        entry = Module(name=made.name, stage=stage, action_param=dict(params))
        bound = bind([entry], lambda interface, name: made, self.upstreams)
        one = next(each for stage in bound.values() for each in stage)
        if ILiveModule.providedBy(one.module):
            module: Any = one.module
            module.start(self.means(), None)
            self.addCleanup(module.stop)
        return one

    def means(self) -> Means:
        """What a module that lives is started with.  Override it for modules that ask somebody."""
        return FakeMeans()

    def each(self) -> Iterator[tuple[Params, str, Bound]]:
        """Each good set of parameters, in each stage it can be bound to."""
        count = 0
        for params in self.good:
            for stage in type(self).factory().stages:
                try:
                    bound = self.build(params, stage)
                except ConfigFaults:
                    if stage == type(self).factory().stages[0]:
                        raise
                    continue  # e.g. a template that names the response, before there is one
                count += 1
                yield params, stage, bound
        self.assertGreater(count, 0, "no good parameters: nothing was tested")

    def work(self, bound: Bound, made: Exchange) -> Response | Abort | None:
        """What process() gives once it is there; an Abort it raises is an answer, too."""
        try:
            return self.answer(bound.process(made))  # type: ignore[no-any-return]
        except Abort as reason:
            return reason

    def answer(self, result: Any) -> Any:
        """What process() returned, once it is there.  Override it to let time pass for modules that wait."""
        if not (isinstance(result, Deferred) or inspect.isawaitable(result)):
            return result
        if not self.waits:
            if inspect.iscoroutine(result):
                result.close()
            self.fail(f"process() returned {result!r}, but the contract does not say waits = True")
        seen: list[Any] = []
        Deferred.fromCoroutine(_awaited(result)).addBoth(seen.append)
        self.assertEqual(len(seen), 1, "it still waits; override exchange() or answer() to go on")
        if isinstance(seen[0], Failure):
            seen[0].raiseException()
        return seen[0]

    # -- the factory

    def test_factory(self) -> None:
        made = type(self).factory()
        verifyObject(IModuleFactory, made)
        self.assertRegex(made.name, r"\A[a-z][A-Za-z0-9]*\Z")
        self.assertTrue(made.stages, "a module runs somewhere")
        self.assertLessEqual(set(made.stages), set(STAGES))
        self.assertEqual(len(set(made.stages)), len(made.stages))
        self.assertIsInstance(made.guards, bool)

    def test_good_parameters(self) -> None:
        for params, _, bound in self.each():
            self.assertTrue(verifyObject(IModule, bound.module), params)

    def test_bad_parameters_are_named(self) -> None:
        """An operator must find the place: the fault's path names the parameter, its text says what to do."""
        for params, name in self.bad:
            with self.assertRaises(ConfigFaults, msg=f"{params!r} must be refused") as caught:
                self.build(params)
            faults = caught.exception.faults
            self.assertTrue(all(fault.message for fault in faults))
            if name:
                paths = [fault.path for fault in faults]
                self.assertTrue(any(name in path for path in paths), f"{params!r}: no fault names {name!r}: {paths}")
            for fault in faults:
                self.assertNotRegex(fault.message, r"cannot be built|no IModule", "build() raises ConfigError only")

    def test_two_builds_share_nothing(self) -> None:
        """A configuration is built while another one is in force."""
        for params, stage, bound in self.each():
            kinds = (type(bound.module), type(self).factory if inspect.isclass(type(self).factory) else type(None))
            before = [dict(vars(kind)) for kind in kinds]
            other = self.build(params, stage)
            self.assertIsNot(other.module, bound.module)
            self.work(bound, self.exchange(stage))
            self.assertEqual([dict(vars(kind)) for kind in kinds], before, "classes are not for state")

    def test_life(self) -> None:
        """It takes the place of another one, and leaves no timer behind."""
        for params, stage, bound in self.each():
            if not ILiveModule.providedBy(bound.module):
                continue
            first: Any = bound.module
            second: Any = self.build(params, stage).module
            reactor = MemoryReactor()
            means = replace(self.means(), reactor=reactor, wheel=Wheel(reactor.clock))
            self.assertTrue(all(isinstance(name, str) and name for name in first.asks), f"{params!r}: {first.asks!r}")
            for module in (first, second):
                module.stop()
            first.start(means, None)
            second.start(means, first)
            first.stop()
            reactor.run()
            second.stop()
            reactor.advance(1)
            self.assertEqual(list(reactor.getDelayedCalls()), [], f"{params!r} in {stage}: a timer is left")

    # -- at work

    def test_what_it_returns(self) -> None:
        for params, stage, bound in self.each():
            for _ in range(3):
                made = self.exchange(stage)
                result = self.work(bound, made)
                where = f"{params!r} in {stage}"
                self.assertTrue(
                    result is None or isinstance(result, Response | Abort), f"{where}: process() returned {result!r}"
                )
                if result is not None:
                    self.assertTrue(100 <= result.status <= 599, where)
                self.check(made, where)

    def check(self, made: Exchange, where: str) -> None:
        """The messages are still in good order."""
        for message in (made.request, made.response):
            if message is None:
                continue
            for name, value in message.headers:
                self.assertTrue(type(name) is bytes and type(value) is bytes, f"{where}: {name!r}: {value!r}")
                self.assertEqual(name, name.lower(), f"{where}: names are lower case")
                self.assertEqual(value, value.strip(), f"{where}: values have no white space around them")
            self.assertTrue(message.body is None or IBody.providedBy(message.body), where)

    def test_failures_are_aborts(self) -> None:
        """In the ERROR stage there is no response yet; elsewhere there may be no body."""
        for params, stage, bound in self.each():
            made = exchange(stage)
            result = self.work(bound, made)
            where = f"{params!r} in {stage}"
            self.assertTrue(result is None or isinstance(result, Response | Abort), f"{where}: {result!r}")
            if stage == ERROR:
                self.assertIsNone(made.response, "an ERROR module returns its response")

    def test_bodies_are_handed_on_or_stopped(self) -> None:
        """Whoever is handed a body attaches it, passes it on, or stops it: else its connection is busy for ever."""
        for params, stage, bound in self.each():
            made = self.exchange(stage)
            bodies: list[tuple[Any, IBody | None]] = [(made.request, made.request.body)]
            if made.response is not None:
                bodies.append((made.response, made.response.body))
            self.work(bound, made)
            for message, before in bodies:
                after = message.body
                if before is None or after is before:
                    continue
                if after is not None and not after.attached:
                    Taker(after)  # a filter attaches what it wraps when it is attached itself
                self.assertTrue(before.attached, f"{params!r} in {stage}: a body was dropped")


async def _awaited(result: Any) -> Any:
    return await result
