"""
From the C{modules} of a configuration to what a pipeline runs.

Rules
- Everything that a module must not care about is done here: stage, ruleOrder, grayRatio, condition, templates, timeout,
  exceptionHandle.
- All faults are found at load and reported together; their paths start at the root of the configuration.
- What is constant costs nothing later: a module that always applies has no C{applies}; ratio 0 and 100 hash nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
from zope.interface import Interface
from zope.interface.exceptions import Invalid
from zope.interface.verify import verifyObject

from protogate import cohort
from protogate.config.faults import ConfigFaults, under
from protogate.config.nearest import hint
from protogate.config.scalar import shown
from protogate.context import uncounted
from protogate.errors import ConfigError
from protogate.expression import condition, template
from protogate.governance.order import warn
from protogate.governance.shadow import Shadow
from protogate.governance.stages import ALIASES, POST_RESPONSE, SEE_RESPONSE, STAGES
from protogate.interfaces import ILiveModule, IModule, IModuleFactory
from protogate.observe.snapshot import Number

if TYPE_CHECKING:
    from protogate.config.model import Module
    from protogate.exchange.exchange import Exchange

Find = Callable[[type[Interface], str], Any]
"""L{protogate.plugins.find}: the part of that name, or LookupError with a text that helps."""
Path = tuple[str | int, ...]
Compiled = TypeVar("Compiled")


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """What C{protogate explain} shows of one module."""

    name: str
    stage: str
    order: int
    condition: str
    """Its text."""
    holds: bool | None
    """What the condition gives; None when it cannot be evaluated, then C{error} says why."""
    ratio: float
    """Percent."""
    position: float | None
    """Where the exchange stands in [0, 100); None when nothing needs to be hashed, or the key has no value."""
    gray: bool | None
    """Whether the exchange is among those C{ratio} percent; None when its key cannot be evaluated."""
    error: str = ""

    @property
    def applies(self) -> bool:
        """Whether the module would run."""
        return bool(self.holds and self.gray)


class Bound:
    """
    One module where the configuration puts it: what a pipeline runs.

    @ivar name: of its factory.
    @ivar stage: where it runs.
    @ivar order: its ruleOrder.
    @ivar module: the L{IModule}.
    @ivar condition: as the configuration has it.
    @ivar process: its C{process}.
    @ivar applies: C{applies(exchange)}: is it for this exchange?  None = it always is.  What it raises counts as raised
        by the module.
    @ivar timeout: seconds; 0 = off.
    @ivar opens: after a timeout the chain goes on; False = it ends with an error.
    @ivar proceeds: after a failure the chain goes on; False = it ends with an error.
    @ivar shadow: it is asked, and nothing is done.
    @ivar outlives: its stage runs whether or not the client is still there.
    @ivar count: told of what becomes of it, see L{protogate.exchange.pipeline.IBound}; and what it counts itself.
    @ivar key: equal for modules with equal parameters.
    @ivar named: its parameter C{name}; empty where there is none, or it is no text.
    @ivar gauges: how much it has right now, by name, see L{protogate.governance.means.Means}.
    @ivar warnings: what works, but perhaps not as it was meant.  A module may have C{warnings} of its own:
        ConfigErrors, whose paths start at its parameters; and C{waits}, the longest that it may wait, in seconds, and
        the path of the parameter that says so: an entry whose timeout ends that earlier is warned of; and what
        L{protogate.governance.order} asks for.
    """

    __slots__ = (
        "_condition",
        "_key",
        "applies",
        "condition",
        "count",
        "gauges",
        "key",
        "module",
        "name",
        "named",
        "opens",
        "order",
        "outlives",
        "proceeds",
        "process",
        "ratio",
        "shadow",
        "stage",
        "timeout",
        "warnings",
    )

    def __init__(
        self,
        entry: Module,
        stage: str,
        guards: bool,
        module: IModule,
        holds: Callable[[Exchange], bool],
        key: Callable[[Exchange], str],
        warnings: Sequence[ConfigError] = (),
    ) -> None:
        self.name, self.stage, self.order, self.module = entry.name, stage, entry.rule_order, module
        self.process: Callable[[Exchange], Any] = module.process
        self.timeout = float(entry.timeout)
        self.opens = entry.timeout_handle == "continue" if entry.timeout_handle else not guards
        self.proceeds = entry.exception_handle == "continue"
        self.outlives = stage == POST_RESPONSE
        self.key = _key(entry)
        named = entry.action_param.get("name")
        self.named = named if isinstance(named, str) else ""
        self.gauges: dict[str, Callable[[], Number]] = {}
        self.count: Callable[[str], None] = uncounted
        self.shadow = entry.shadow
        if self.shadow:
            process = getattr(module, "rehearse", module.process)
            self.process = Shadow(entry.name, process, self._counted).process
            self.opens = self.proceeds = True
        self.warnings = tuple(warnings)
        self.ratio = float(entry.gray_ratio)
        self.condition, self._condition, self._key = entry.condition.strip(), holds, key
        self.applies = self._applies()

    def _counted(self, event: str) -> None:
        self.count(event)

    def _applies(self) -> Callable[[Exchange], bool] | None:
        ratio, holds, key = self.ratio, self._condition, self._key
        if ratio <= 0 or condition.never(holds):
            return condition.ALWAYS_FALSE
        if ratio >= 100:
            return None if condition.always(holds) else holds
        if condition.always(holds):
            return lambda exchange: cohort.place(exchange, key(exchange)) < ratio
        return lambda exchange: holds(exchange) and cohort.place(exchange, key(exchange)) < ratio

    def explain(self, exchange: Exchange) -> Explanation:
        """What would become of this module in an exchange; runs nothing of it."""
        errors = []
        holds = position = None
        gray: bool | None = self.ratio >= 100
        try:
            holds = bool(self._condition(exchange))
        except Exception as error:
            errors.append(f"condition: {error}")
        if 0 < self.ratio < 100:
            try:
                position = cohort.place(exchange, self._key(exchange))
                gray = position < self.ratio
            except Exception as error:
                gray = None
                errors.append(f"grayKey: {error}")
        return Explanation(
            name=self.name,
            stage=self.stage,
            order=self.order,
            condition=self.condition,
            holds=holds,
            ratio=self.ratio,
            position=position,
            gray=gray,
            error="; ".join(errors),
        )

    def __repr__(self) -> str:
        return f"<Bound {self.name} {self.stage} {self.order}>"


def bind(
    modules: Sequence[Module], find: Find, upstreams: Collection[str] = (), key: str = cohort.DEFAULT
) -> dict[str, tuple[Bound, ...]]:
    """
    Build every module of a configuration.

    @param find: L{protogate.plugins.find}.
    @param upstreams: names of those that modules may ask.
    @param key: the grayKey of modules that have none; it can be compiled.
    @return: the modules of each stage in the order they run: by ruleOrder, then as in the file.  Every stage is there.
    @raise ConfigFaults: all faults of all entries.
    """
    faults: list[ConfigError] = []
    stages: dict[str, list[Bound]] = {stage: [] for stage in STAGES}
    places: dict[Bound, int] = {}
    for index, entry in enumerate(modules):
        bound = _Entry(entry, ("modules", index), faults, upstreams, key).bound(find)
        if bound is not None:
            stages[bound.stage].append(bound)
            places[bound] = index
    if faults:
        raise ConfigFaults(faults)
    ordered = {stage: tuple(sorted(bounds, key=lambda bound: bound.order)) for stage, bounds in stages.items()}
    warn(ordered, places)
    return ordered


class _Entry:
    """One entry on its way to a Bound."""

    def __init__(
        self, entry: Module, path: Path, faults: list[ConfigError], upstreams: Collection[str], key: str
    ) -> None:
        self._entry, self._path, self._faults, self._upstreams = entry, path, faults, upstreams
        self._gray = entry.gray_key or key

    def bound(self, find: Find) -> Bound | None:
        """None when it has a fault."""
        entry, before = self._entry, len(self._faults)
        factory = self._factory(find)
        stage = self._stage(factory)
        # A stage that is not known allows everything: one fault, not two.
        see = stage is None or stage in SEE_RESPONSE
        holds = self._compiled("condition", lambda: condition.compile(entry.condition, response=see))
        key = self._compiled("grayKey", lambda: condition.expression(self._gray, response=see))
        params, broken = self._params(see)
        module = None if factory is None else self._module(factory, params, broken)
        if len(self._faults) > before:
            return None
        assert factory is not None
        assert stage is not None
        assert module is not None
        assert holds is not None
        assert key is not None
        warnings = [under(warning, *self._path, "actionParam") for warning in getattr(module, "warnings", ())]
        warnings += self._impatience(*getattr(module, "waits", (0.0, ())))
        return Bound(entry, stage, bool(factory.guards), module, holds, key, warnings)

    def _fault(self, message: str, *path: str | int) -> None:
        self._faults.append(ConfigError(message, (*self._path, *path)))

    def _factory(self, find: Find) -> Any:
        name = self._entry.name
        try:
            return find(IModuleFactory, name)
        except LookupError as error:
            self._fault(str(error.args[0]) if error.args else f"no module named {name!r}", "name")
        except Exception as error:
            self._fault(f"module {name!r} cannot be loaded: {type(error).__name__}: {error}", "name")
        return None

    def _stage(self, factory: Any) -> str | None:
        wanted = self._entry.stage
        stage: str = ALIASES.get(wanted, wanted)
        if factory is None:
            if stage and stage not in STAGES:
                self._fault(_unknown_stage(wanted), "stage")
            return stage if stage in STAGES else None
        allowed: tuple[str, ...] = tuple(factory.stages)
        if not stage:
            return allowed[0]
        if stage in allowed:
            return stage
        if stage in STAGES:
            self._fault(f"{self._entry.name} does not run in {stage}; allowed: {', '.join(allowed)}", "stage")
        else:
            unknown = _unknown_stage(wanted)
            stop = "" if unknown.endswith("?") else ";"
            self._fault(f"{unknown}{stop} {self._entry.name} allows {', '.join(allowed)}", "stage")
        return None

    def _compiled(self, name: str, compiler: Callable[[], Compiled]) -> Compiled | None:
        try:
            return compiler()
        except ConfigError as error:
            self._faults.append(under(error, *self._path, name))
        return None

    def _params(self, see: bool) -> tuple[dict[str, Any], list[Path]]:
        """The parameters with their templates compiled, and the paths of those that cannot be."""
        broken: list[Path] = []
        return self._param(self._entry.action_param, (), see, broken), broken

    def _param(self, value: Any, path: Path, see: bool, broken: list[Path]) -> Any:
        """One of them; not a closure, which would be garbage that refers to itself."""
        if isinstance(value, str):
            if "${" not in value:
                return value
            try:
                return template.compile(value, response=see)
            except ConfigError as error:
                self._faults.append(under(error, *self._path, "actionParam", *path))
                broken.append(path)
                return value
        if isinstance(value, Mapping):
            return {name: self._param(inner, (*path, name), see, broken) for name, inner in value.items()}
        if isinstance(value, (list, tuple)):
            return [self._param(inner, (*path, index), see, broken) for index, inner in enumerate(value)]
        return value

    def _module(self, factory: Any, params: dict[str, Any], broken: list[Path]) -> Any:
        try:
            module = factory.build(params)
            verifyObject(IModule, module)
        except ConfigError as error:
            faults = [error]
        except ConfigFaults as error:
            faults = list(error.faults)
        except Invalid as error:
            faults = [ConfigError(f"module {self._entry.name!r} built something that is no IModule: {error}")]
        except Exception as error:
            faults = [ConfigError(f"module {self._entry.name!r} cannot be built: {type(error).__name__}: {error}")]
        else:
            faults = [*self._strangers(module)]
            if not faults:
                return module
        for fault in faults:
            fault.__traceback__ = None  # it has this frame, which has the fault
            # What follows from a template that cannot be compiled has been said.
            if not any(fault.path[: len(path)] == path for path in broken):
                self._faults.append(under(fault, *self._path, "actionParam"))
        return None

    def _impatience(self, seconds: float, path: Path) -> Iterator[ConfigError]:
        """It is given up before it would give up by itself: its page then promises what does not happen."""
        timeout = float(self._entry.timeout)
        if 0 < timeout <= seconds:
            why = f"it may take {seconds:g}s, and the timeout of the entry is {timeout:g}s: say less, or more there"
            yield ConfigError(why, (*self._path, "actionParam", *path))

    def _strangers(self, module: Any) -> Iterator[ConfigError]:
        """Upstreams that it wants to ask and that there are not."""
        if ILiveModule.providedBy(module):
            for name, path in module.asks.items():
                if "://" not in name and name not in self._upstreams:
                    yield ConfigError(
                        f"no upstream is called {shown(name)}; {hint(name, self._upstreams)}", tuple(path)
                    )


def _key(entry: Module) -> bytes:
    return sha256(msgspec.json.encode((entry.name, entry.stage, entry.action_param), enc_hook=str)).digest()


def _unknown_stage(stage: str) -> str:
    return f"unknown stage {shown(stage)}; {hint(stage, (*STAGES, *ALIASES))}"
