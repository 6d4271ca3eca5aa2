"""
L{DiscoveryContract}: what must hold for every source of endpoints; and L{FakeFindings}, what one is started with.

    class Contract(DiscoveryContract, SynchronousTestCase):
        factory = NacosFactory                          # called without arguments
        good = [{"url": "http://192.0.2.9:8848", "service": "shop"}]
        bad = [({"url": "http://192.0.2.9:8848", "service": ""}, "service")]

        def answer(self, request):
            return Response(200, body=Whole(b"…"))      # what whoever is asked says

Options are written as they stand in a configuration file.  Runs under trial and under pytest.
"""
# ruff: noqa: PT009, PT027 - under trial only these assertions show the values

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from random import Random
from typing import TYPE_CHECKING, Any, ClassVar

from twisted.internet.defer import Deferred, fail
from zope.interface.verify import verifyObject

from protogate.config import model
from protogate.config.faults import ConfigFaults
from protogate.discovery.entries import Entries
from protogate.discovery.sources import understood
from protogate.errors import UPSTREAM, Abort, ConfigError
from protogate.interfaces import IDiscovery, IDiscoveryFactory, IService
from protogate.message import Request, Response
from protogate.testing.means import Service
from protogate.testing.names import Names
from protogate.testing.reactor import MemoryReactor
from protogate.upstream.endpoint import Place
from protogate.upstream.resolver import Resolver
from protogate.wheel import Wheel

if TYPE_CHECKING:
    from twisted.trial.unittest import SynchronousTestCase as Base
else:
    Base = object

Answer = Callable[[Request], Response | Deferred[Response]]


class FakeFindings:
    """
    In the place of L{protogate.upstream.discovery.Findings}: remembers what it is told, on a reactor of memory.

    @ivar places: what was found, each time.
    @ivar trouble: what went wrong, each time.
    @ivar counted: what was counted.
    @ivar asked: the one service that answers, whatever its name.
    @ivar names: what names stand for.
    """

    def __init__(self, answer: Answer | None = None, known: Collection[str] | None = None) -> None:
        """
        @param answer: of whoever is asked; None = nobody answers.
        @param known: names that there are; None = all.
        """
        self.reactor = MemoryReactor()
        self.wheel = Wheel(self.reactor.clock)
        self.names = Names()
        self.random = Random(0)
        self.counted: Counter[str] = Counter()
        self.resolver = Resolver(self.wheel, self.names, self.count, "/nonexistent")
        self.asked = Service(_nobody if answer is None else answer)
        self.places: list[tuple[Place, ...]] = []
        self.trouble: list[str] = []
        self._known = known

    @property
    def answered(self) -> bool:
        """Whether anything was ever found."""
        return bool(self.places)

    def count(self, event: str) -> None:
        """One more."""
        self.counted[event] += 1

    def service(self, name: str) -> IService:
        """Whoever is asked."""
        if self._known is not None and name not in self._known:
            raise AssertionError(f"{name!r} is asked, but not named in asks: {sorted(self._known)}")
        return self.asked

    def found(self, places: Iterable[Place]) -> None:
        """These are all."""
        self.places.append(tuple(places))

    def failed(self, why: str | Abort) -> None:
        """There was no answer."""
        self.trouble.append(str(why))


def _nobody(request: Request) -> Deferred[Response]:
    return fail(Abort("nobody is there", UPSTREAM, 503))


class DiscoveryContract(Base):
    """
    @cvar factory: makes the factory, called without arguments.
    @cvar good: options to build with; at least one.
    @cvar bad: options that must be refused, each with the name of the one at fault; C{""} where none can be named.
    @cvar scheme: how what is found is spoken to.
    """

    factory: ClassVar[Callable[[], Any]]
    good: ClassVar[Sequence[Any]] = ()
    bad: ClassVar[Sequence[tuple[Any, str]]] = ()
    scheme: ClassVar[str] = "http"

    # -- for the tests

    def answer(self, request: Request) -> Response | Deferred[Response]:
        """What whoever is asked says.  To be overridden where somebody is."""
        return _nobody(request)

    def build(self, told: Any) -> Any:
        """Build it as a configuration would.  Raises ConfigError or ConfigFaults."""
        made = type(self).factory()
        discovery = model.Discovery(plugin={made.name: told}, scheme=type(self).scheme)  # type: ignore[arg-type]
        return made.build(understood(made, told), Entries(model.Upstream(name="up", discovery=discovery)))

    def each(self) -> Iterator[tuple[Any, FakeFindings]]:
        """Each that can be built, and what it may be started with."""
        self.assertTrue(self.good, "no good options: nothing was tested")
        for told in self.good:
            source = self.build(told)
            yield source, FakeFindings(self.answer, set(source.asks))

    # -- the factory

    def test_factory(self) -> None:
        made = type(self).factory()
        verifyObject(IDiscoveryFactory, made)
        self.assertRegex(made.name, r"\A[a-z][A-Za-z0-9]*\Z")
        self.assertTrue(made.options is str or issubclass(made.options, model.Model), made.options)

    def test_good_options(self) -> None:
        for source, _ in self.each():
            self.assertTrue(verifyObject(IDiscovery, source))
            self.assertTrue(all(isinstance(name, str) and name for name in source.asks), source.asks)
            self.assertGreaterEqual(source.patience, 0.0)

    def test_bad_options_are_named(self) -> None:
        """An operator must find the place: the fault's path names the option, its text says what to do."""
        for told, name in self.bad:
            with self.assertRaises((ConfigError, ConfigFaults), msg=f"{told!r} must be refused") as caught:
                self.build(told)
            error: Any = caught.exception
            faults = error.faults if isinstance(error, ConfigFaults) else [error]
            self.assertTrue(all(fault.message for fault in faults))
            paths = [fault.path for fault in faults]
            self.assertTrue(not name or any(name in path for path in paths), f"{told!r}: {name!r} not in {paths}")

    # -- its life

    def test_it_finds_and_is_heard_no_more_when_it_is_stopped(self) -> None:
        for source, findings in self.each():
            source.start(findings)
            findings.reactor.advance(5)
            self.assertTrue(findings.places, f"nothing was found; {findings.trouble}")
            self.assertTrue(all(isinstance(place, Place) for place in findings.places[-1]))
            source.stop()
            told = len(findings.places), len(findings.trouble), len(findings.asked.requests)
            findings.reactor.advance(90)
            self.assertEqual((len(findings.places), len(findings.trouble), len(findings.asked.requests)), told)
            self.assertEqual(list(findings.reactor.getDelayedCalls()), [], "a timer is left")

    def test_it_may_be_stopped_at_once(self) -> None:
        for source, findings in self.each():
            source.start(findings)
            source.stop()
            findings.reactor.advance(5)
            self.assertEqual(list(findings.reactor.getDelayedCalls()), [], "a timer is left")

    def test_trouble_is_told_and_it_goes_on(self) -> None:
        """Whoever is asked is not there, and says nonsense, and is there again."""
        for source, findings in self.each():
            if not source.asks:
                continue
            good, findings.asked = findings.asked, Service(_nobody)
            source.start(findings)
            findings.reactor.advance(5)
            self.assertTrue(findings.trouble, "it fails, and nobody is told")
            self.assertEqual(findings.places, [])
            before, findings.asked = len(findings.trouble), Service(lambda request: Response(500))
            findings.reactor.advance(60)
            self.assertGreater(len(findings.trouble), before, "it is refused, and nobody is told")
            self.assertLess(len(findings.trouble), 60, "it is asked again and again without a rest")
            findings.asked = good
            findings.reactor.advance(60)
            self.assertTrue(findings.places, "it does not find its way back")
            source.stop()
