"""
C{circuitBreaker}: requests that would most likely fail are refused at once, by how those before them went.

Rules
- What is judged is how the upstream answered whoever was let through, retries included: the head of the answer, and
  whether the rest of it came.  Clients that leave, their deadlines, limits of ours and answers of other modules say
  nothing.
- There is a breaker for each key; the last C{most} are remembered.  One that is not closed is not forgotten for others:
  where there is no room, a key goes without.
- Each worker judges by what it sees itself, and so by its part of C{minRequests}.
- A reload keeps all breakers, unless it asks for other keys.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from twisted.internet.defer import Deferred, fail
from twisted.logger import Logger
from zope.interface import implementer

from protogate.config import model
from protogate.config.model import Seconds
from protogate.context import uncounted
from protogate.governance import limits
from protogate.governance.params import Params, shown
from protogate.governance.stages import PRE_UPSTREAM
from protogate.interfaces import ILiveModule, IModule, IModuleFactory
from protogate.message import Response, tunnels
from protogate.promise import waits
from protogate.upstream.breaker import State, Terms, wrong
from protogate.upstream.door import Circuit, tell
from protogate.upstream.outcome import NOTHING, WELL, Outcome, answered, ended, failed
from protogate.upstream.seen import one

if TYPE_CHECKING:
    from twisted.python.failure import Failure

    from protogate.exchange.exchange import Ask, Exchange
    from protogate.governance.means import Means

NOTE: Final = "circuitBreaker"
"""Under which a record has why a request was refused."""
KEYS: Final = 1000
"""Breakers, unless the configuration says another number."""
LOOKED: Final = 8
"""Old breakers that are looked at for one that can be forgotten."""

_EVENTS: Final = {State.OPEN: "opened", State.PROBING: "probing", State.CLOSED: "closed"}
_log = Logger()
Answer = Response | Deferred[Response]


@implementer(ILiveModule)
class CircuitBreaker:
    """
    @param key: by what exchanges are told apart; None = by route and target.  C{text} is how it is written.
    @param most: breakers that are remembered.
    """

    asks: Mapping[str, tuple[str | int, ...]] = {}

    def __init__(self, settings: model.CircuitBreaker, key: limits.Key | None, text: str, most: int) -> None:
        self._settings, self._key, self._text, self._most = settings, key, text, most
        self._terms = Terms.of(settings)
        self._count: Callable[[str], None] = uncounted
        self.circuits: OrderedDict[str, Circuit] = OrderedDict()

    # -- its life

    def start(self, means: Means, before: IModule | None) -> None:
        """L{ILiveModule}: take over all breakers."""
        self._count, self._terms = means.count, Terms.of(self._settings, means.workers)
        old: Any = before
        if isinstance(old, CircuitBreaker) and old._text == self._text:
            self.circuits = old.circuits
            for circuit in self.circuits.values():
                circuit.change(self._terms)

    def stop(self) -> None:
        """L{ILiveModule}: nothing waits for anything."""

    # -- exchanges

    def process(self, exchange: Exchange) -> None:
        """Have a look at it when the upstream is asked."""
        if self._key is None:
            exchange.through(self._guard)
        else:
            exchange.through(partial(self._guard, key=self._key(exchange)))

    def _guard(self, exchange: Exchange, ask: Ask, key: str | None = None) -> Answer:
        if key is None:
            route, target = exchange.route, exchange.target
            key = f"{'' if route is None else route.name} to {'' if target is None else target.name}"
        now = exchange.wheel.now()
        circuit = self._circuit(key, now)
        if circuit is None:
            return ask()
        breaker, door = circuit.breaker, circuit.door
        if now >= breaker.due:
            state = breaker.state
            if circuit.turn(now):
                self._tell(key, circuit, state)
        if not door.admits():
            self._count("refused_open")
            exchange.notes[NOTE] = breaker.why
            return fail(circuit.refusal(f"circuitBreaker {key}", now))
        visit = Visit(self, key, circuit, exchange)
        answer = ask()
        if waits(answer):
            return answer.addCallbacks(visit.answered, visit.failed)
        return visit.answered(answer)

    def see(self, key: str, circuit: Circuit, outcome: Outcome, began: float, now: float) -> None:
        """Somebody who was let through came back."""
        if outcome is NOTHING or began < circuit.breaker.since:
            return
        state = circuit.breaker.state
        if circuit.see(one(outcome, now - began), now):
            self._tell(key, circuit, state)

    def _circuit(self, key: str, now: float) -> Circuit | None:
        circuits = self.circuits
        circuit = circuits.get(key)
        if circuit is not None:
            circuits.move_to_end(key)
            return circuit
        if len(circuits) >= self._most and not self._room(now):
            self._count("no_room")
            return None
        circuit = circuits[key] = Circuit(self._terms)
        return circuit

    def _room(self, now: float) -> bool:
        """Forget one that was not used for long; not one that keeps somebody out."""
        circuits = self.circuits
        for _ in range(min(LOOKED, len(circuits))):
            key = next(iter(circuits))
            if circuits[key].breaker.state is State.CLOSED:
                del circuits[key]
                return True
            circuits.move_to_end(key)
        return False

    def _tell(self, key: str, circuit: Circuit, before: State) -> None:
        breaker = circuit.breaker
        if breaker.state is not before:
            tell(_log, f"circuitBreaker {key!r}", breaker, self._count, _EVENTS)


class Visit:
    """Somebody who was let through."""

    __slots__ = ("_began", "_circuit", "_exchange", "_key", "_module", "_probe")

    def __init__(self, module: CircuitBreaker, key: str, circuit: Circuit, exchange: Exchange) -> None:
        self._module, self._key, self._circuit, self._exchange = module, key, circuit, exchange
        self._began = exchange.wheel.now()
        self._probe = circuit.door.probing
        if self._probe:
            circuit.door.under += 1

    def answered(self, response: Response) -> Response:
        """The head of an answer is there."""
        ours = not response.protocol  # of another module, which is nearer to the upstream
        outcome = NOTHING if ours else answered(response)
        self._over(outcome)
        if outcome is WELL and response.body is not None and not tunnels(self._exchange.request, response):
            self._exchange.after(self._ended)
        return response

    def failed(self, failure: Failure) -> Failure:
        """There is none."""
        self._over(failed(failure.value, self._exchange.ledger))
        return failure

    def _over(self, outcome: Outcome) -> None:
        if self._probe:
            self._circuit.door.under -= 1
        self._see(outcome)

    def _see(self, outcome: Outcome) -> None:
        now = self._exchange.wheel.now()
        self._module.see(self._key, self._circuit, outcome, self._began, now)

    def _ended(self) -> None:
        """All is over: whether the rest of the answer came, and said that it was none."""
        exchange = self._exchange
        if exchange.error is None:
            self._see(ended(exchange.ledger, exchange.response, exchange.reason))


@implementer(IModuleFactory)
class CircuitBreakerFactory:
    """Makes L{CircuitBreaker}."""

    name = "circuitBreaker"
    stages = (PRE_UPSTREAM,)
    guards = False

    def build(self, params: Mapping[str, object]) -> CircuitBreaker:
        """See L{IModuleFactory.build}."""
        reader = Params(
            params,
            "errorRatio",
            "consecutive",
            "latency",
            "latencyQuantile",
            "window",
            "minRequests",
            "open",
            "maxOpen",
            "probes",
            "ramp",
            "key",
            "keys",
        )
        usual = model.CircuitBreaker()
        settings = model.CircuitBreaker(
            error_ratio=_ratio(reader, "errorRatio", usual.error_ratio),
            consecutive=reader.integer("consecutive", usual.consecutive, 0, 1_000_000),
            latency=Seconds(reader.seconds("latency", usual.latency)),
            latency_quantile=_ratio(reader, "latencyQuantile", usual.latency_quantile),
            window=Seconds(reader.seconds("window", usual.window, 1.0, 3600.0)),
            min_requests=reader.integer("minRequests", usual.min_requests, 1, 1_000_000),
            open=Seconds(reader.seconds("open", usual.open, 0.1, 3600.0)),
            max_open=Seconds(reader.seconds("maxOpen", usual.max_open, 0.1, 86_400.0)),
            probes=reader.integer("probes", usual.probes, 1, 1000),
            ramp=Seconds(reader.seconds("ramp", usual.ramp, 0.0, 3600.0)),
        )
        key: limits.Key | None = None
        text = ""
        if "key" in reader:
            key, text = limits.read_key(reader)
        most = reader.integer("keys", KEYS, 1, limits.MOST_KEYS)
        if not reader.faults:
            for name, message in wrong(settings):
                reader.fault(message, *((name,) if name else ()))
        reader.done()
        return CircuitBreaker(settings, key, text, most)


def _ratio(reader: Params, name: str, default: float) -> float:
    given: Any = reader.given(name) if name in reader else default
    if isinstance(given, bool) or not isinstance(given, (int, float)) or not 0 <= given <= 1:
        reader.fault(f"expected a number from 0 to 1, got {shown(given)}", name)
        return default
    return float(given)
