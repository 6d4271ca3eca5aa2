"""
What holds for every test: it fails when it leaves something broken behind.

- A failure that was logged and not taken with C{flush_errors} fails the test that logged it.  That includes "Unhandled
  error in Deferred", which only shows when the Deferred is collected: so garbage is collected after each test.
- So does what is left on the reactor: delayed calls, open transports, listening ports.
- C{--compiled} is for an installation of the compiled build: its modules must be what runs, and tests marked
  C{interpreted} are left out.
- Coverage does not look at a test that is marked C{unwatched}, nor at the processes that it starts: to be looked at
  makes Python four times as slow, and a bench, a matrix or a story goes again and again where other tests have been.
- C{TEST_REACTOR=protogate-uv} in the environment runs the tests on that reactor of Twisted's.
- Warnings are errors (C{pyproject.toml}), also those of a finalizer: unclosed files and sockets, coroutines that were
  never awaited.  But for what other people's drop-ins warn of: all are imported before the first test, as otherwise
  whichever test looks for one first would import them where Twisted's cache of what they declare is missing or old.
- SIGINT ends this process and those that it starts, also where a shell that runs all in its background has it ignored.
"""

from __future__ import annotations

import gc
import os
import signal
import sys
import time
from collections.abc import Callable, Generator, Iterator
from functools import partial, wraps
from itertools import count
from pathlib import Path
from typing import Any

import pytest
import pytest_twisted
from hypothesis import HealthCheck, settings
from twisted.internet.task import deferLater
from twisted.logger import ILogObserver, LogEvent, globalLogPublisher
from twisted.plugin import IPlugin
from twisted.python.failure import Failure
from twisted.trial.unittest import SynchronousTestCase
from zope.interface import implementer

import twisted.plugins  # noqa: F401 - it looks for drop-ins once: before tests bring packages that nobody has installed
from neighbours import Neighbours
from protogate.plugins import dropins
from protogate.process.cores import number_of
from protogate.reactor.best import install
from unwatched import unwatched, watched

# Wall-clock limits say more about the machine than about the code.
settings.register_profile("dev", deadline=None)
settings.register_profile(
    "ci", deadline=None, derandomize=True, print_blob=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("ci" if os.environ.get("CI") == "true" else "dev")

if "TEST_REACTOR" in os.environ:
    # What it does for the reactors that it knows by name, before the first test.
    pytest_twisted.reactor_installers["default"] = partial(
        pytest_twisted._install_reactor, partial(install, os.environ["TEST_REACTOR"]), object
    )

HERE = Path(__file__).parent
WATCHING = pytest.StashKey[Any]()
"""Who looks at the test that runs, if anybody does."""
EXAMPLES = 20
"""Of a property, that are looked at."""
TURNS = 5
"""Turns of the reactor in which transports that were told to close may do so."""


@implementer(ILogObserver)
class Failures:
    """A log observer that keeps every failure."""

    def __init__(self) -> None:
        self.events: list[LogEvent] = []

    def __call__(self, event: LogEvent) -> None:
        if event.get("log_failure") is not None:
            self.events.append(event)

    def flush(self, *types: type[BaseException]) -> list[Failure]:
        """Take out the failures of these types, all of them when none is named."""
        taken = [event for event in self.events if not types or event["log_failure"].check(*types)]
        self.events = [event for event in self.events if event not in taken]
        return [event["log_failure"] for event in taken]

    def report(self) -> str:
        """One paragraph for each that is left."""
        return "\n".join(
            f"{event.get('log_namespace', '')}: {event.get('log_format') or event.get('why') or ''}\n"
            f"{event['log_failure'].getTraceback()}"
            for event in self.events
        )


class Frozen:
    """
    Garbage is collected after each test, and is to be found in what the test made: all that was there before is frozen.

    Freezing anew takes a look at everything there is, so it is done when the looks at what came since have taken as
    long as that did the last time: what tests leave in caches and in reports would make each look a slower one.

    It stands for C{gc.freeze} and C{gc.unfreeze}, too.  A gateway that loads its configuration anew hides from the
    collector what is there at that moment, and with it what the test leaves behind: here it hides nothing, except in a
    test that has shown everything to the collector before.
    """

    def __init__(self) -> None:
        self._shown, self._spent, self._whole = False, 0.0, 0.0
        self._freeze, self._unfreeze = gc.freeze, gc.unfreeze
        gc.freeze, gc.unfreeze = self.freeze, self.unfreeze

    def freeze(self) -> None:
        """Hide everything from the collector, in a test that has shown it."""
        if self._shown:
            self._freeze()

    def unfreeze(self) -> None:
        """Hide nothing."""
        self._shown = True
        self._unfreeze()

    def collect(self) -> None:
        """Collect garbage, wherever it is."""
        if self._shown or self._spent > self._whole:
            self.settle()
        else:
            begun = time.thread_time()
            gc.collect()
            self._spent += time.thread_time() - begun

    def settle(self) -> None:
        """What exists by now, and is no garbage, is left out of every collection to come, which is then quick."""
        begun = time.thread_time()
        self._unfreeze()
        gc.collect()
        self._freeze()
        self._shown, self._spent, self._whole = False, 0.0, time.thread_time() - begun


frozen = Frozen()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int | None:
    """One more than there are cores, as tests of e2e wait more than they do; unless the environment says a number."""
    if "PYTEST_XDIST_AUTO_NUM_WORKERS" in os.environ:
        return None
    return number_of(-1) + 1


def pytest_addoption(parser: pytest.Parser) -> None:
    """See above."""
    parser.addoption("--compiled", action="store_true", help="test the compiled build, and nothing else")


def pytest_configure(config: pytest.Config) -> None:
    """Import all drop-ins; hear of SIGINT; refuse to test the source where the compiled build is meant."""
    dropins(IPlugin)
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if not config.getoption("--compiled"):
        return
    from compiling import compiled_modules, is_compiled

    source = sorted(name for name in compiled_modules() if not is_compiled(name))
    if source:
        raise pytest.UsageError(f"not compiled, of {sys.executable}: {', '.join(source)}")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """
    Dear files first, and those of e2e before all: who shares files out over processes (pytest-xdist) has cheap ones in
    the end, and no process waits for the last.  C{--compiled}: leave out what only the interpreter can do.
    """
    items.sort(key=lambda item: _rank(item.path))
    if config.getoption("--compiled"):
        out = [item for item in items if item.get_closest_marker("interpreted")]
        config.hook.pytest_deselected(items=out)
        items[:] = [item for item in items if item not in out]


def _rank(path: Path) -> int:
    """0 for stories and tests with other processes, 1 for those of no part, 2 for those of one; files stay together."""
    return 0 if path.parent.name in {"e2e", "process", "reactor", "simulation"} else 1 if path.parent == HERE else 2


def pytest_collection_finish() -> None:
    """The collection after each test is for what the tests make."""
    frozen.settle()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Coverage looks at what tests do, and at how fixtures are made, but not at pytest."""
    marked = item.get_closest_marker("unwatched") is not None
    with unwatched(children=marked) as watching:
        item.config.stash[WATCHING] = None if marked else watching
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(request: pytest.FixtureRequest) -> Generator[None, object, object]:
    """See above."""
    with watched(request.config.stash[WATCHING]):
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    """See above.  Of a property it looks at the first examples, and at nothing that Hypothesis does to find them."""
    watching = item.config.stash[WATCHING]
    prop = getattr(getattr(item, "obj", None), "hypothesis", None)
    if prop is None or watching is None:
        with watched(watching):
            return (yield)
    inner = prop.inner_test
    prop.inner_test = _first_examples(inner, watching)
    try:
        return (yield)
    finally:
        prop.inner_test = inner


def _first_examples(inner: Callable[..., object], watching: Any) -> Callable[..., object]:
    numbers = count()

    @wraps(inner)  # by what it is Hypothesis chooses examples, where that is not left to chance
    def looked_at(*arguments: Any, **named: Any) -> object:
        with watched(watching if next(numbers) < EXAMPLES else None):
            return inner(*arguments, **named)

    return looked_at


@pytest.fixture
def failures() -> Iterator[Failures]:
    """What was logged with a failure since the test began."""
    observer = Failures()
    globalLogPublisher.addObserver(observer)
    yield observer
    globalLogPublisher.removeObserver(observer)


@pytest.fixture
def flush_errors(failures: Failures) -> Callable[..., list[Failure]]:
    """C{flush_errors(*types)}: the failures logged so far, which the test expected; as trial's flushLoggedErrors."""

    def flush(*types: type[BaseException]) -> list[Failure]:
        gc.collect()
        return failures.flush(*types)

    return flush


def _selectables(reactor: Any) -> set[Any]:
    internal: set[Any] = getattr(reactor, "_internalReaders", set())
    return (set(reactor.getReaders()) | set(reactor.getWriters())) - set(internal)


def _dirt(reactor: Any, before: tuple[set[Any], set[Any]]) -> tuple[set[Any], set[Any]]:
    return set(reactor.getDelayedCalls()) - before[0], _selectables(reactor) - before[1]


def _sweep(reactor: Any, calls: set[Any], selectables: set[Any]) -> None:
    """Take away what a test left, so that it is reported once and harms no other."""
    for call in calls:
        if call.active():
            call.cancel()
    for selectable in selectables:
        reactor.removeReader(selectable)
        reactor.removeWriter(selectable)
        close = getattr(selectable, "connectionLost", None)
        if close is not None:
            close(Failure(ConnectionAbortedError("left behind by a test")))


@pytest.fixture(autouse=True)
def clean(request: pytest.FixtureRequest, failures: Failures) -> Iterator[None]:
    """The rules of this module's docstring."""
    reactor: Any = sys.modules.get("twisted.internet.reactor")
    before = (set(reactor.getDelayedCalls()), _selectables(reactor)) if reactor else (set(), set())
    yield
    if isinstance(request.instance, SynchronousTestCase):
        failures.flush()  # trial looked at them itself, and knows which were expected
    reactor = sys.modules.get("twisted.internet.reactor")
    calls: set[Any] = set()
    selectables: set[Any] = set()
    if reactor is not None:
        calls, selectables = _dirt(reactor, before)
        for _ in range(TURNS):
            if not calls and not selectables:
                break
            pytest_twisted.blockon(deferLater(reactor, 0))
            calls, selectables = _dirt(reactor, before)
    frozen.collect()
    faults = []
    if failures.events:
        faults.append(f"logged and not expected (flush_errors takes those that are):\n{failures.report()}")
    if calls:
        faults.append("delayed calls left on the reactor:\n" + "\n".join(map(str, calls)))
    if selectables:
        faults.append("transports or ports left open:\n" + "\n".join(map(repr, selectables)))
    if reactor is not None:
        _sweep(reactor, calls, selectables)
    if faults:
        pytest.fail("\n\n".join(faults), pytrace=False)


@pytest.fixture
def neighbours(tmp_path: Path) -> Iterator[Neighbours]:
    """Starts programs of other people, and ends them with the test."""
    started = Neighbours(tmp_path)
    yield started
    started.stop()
