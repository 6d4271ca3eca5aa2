"""
From a configuration file to everything that can be made of it without touching anything live.

Rules
- Pure: no reactor, no socket, no state that survives.  A reload runs it in another thread while traffic flows.
- Every fault of the file is found and reported in one go, whichever part found it.
"""

from __future__ import annotations

import gc
import sys
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from traceback import clear_frames
from typing import Any, Final

from protogate.codecs import Codecs
from protogate.config.faults import ConfigFaults, Rest
from protogate.config.load import Loaded, Source, load
from protogate.config.model import Config
from protogate.errors import ConfigError
from protogate.exchange.exchange import Exchange
from protogate.exchange.forwarding import Forwarding
from protogate.expression import condition
from protogate.governance.binding import Bound, bind
from protogate.governance.lives import asked
from protogate.interfaces import IStreamCodec
from protogate.plugins import find
from protogate.routing.table import Router
from protogate.securing import Sides, sides


@dataclass(frozen=True, slots=True, kw_only=True)
class Build:
    """
    What a configuration means.

    @ivar codecs: by name, all that listeners and upstreams use.
    @ivar tls: what listeners and upstreams need for it.
    @ivar bound: the modules of each stage, in the order they run.
    @ivar always: which exchanges are logged whatever the sample says; None = no others.
    @ivar warnings: one line each: what works, but perhaps not as it was meant.
    """

    loaded: Loaded
    codecs: Mapping[str, IStreamCodec]
    tls: Sides
    router: Router
    bound: Mapping[str, tuple[Bound, ...]]
    forwarding: Forwarding
    always: Callable[[Exchange], bool] | None
    warnings: tuple[str, ...]

    @property
    def destinations(self) -> tuple[str, ...]:
        """Names and origins of all upstreams that rules lead to, or modules ask."""
        return _destinations(self.router, self.bound)

    def codec(self, name: str) -> IStreamCodec:
        """By its name."""
        return self.codecs[name]

    @property
    def config(self) -> Config:
        """The configuration itself."""
        return self.loaded.config


def build(path: str, source: Source | None = None) -> Build:
    """
    Read and compile a configuration file.

    @param source: its content, where it has been read already.
    @raise ConfigFaults: all faults; its text is ready for an operator.
    """
    loaded = _load(path, source)
    if not isinstance(loaded, Loaded):
        # The file is wrong already; what is left of it may be wrong in other ways.
        raise loaded.faults(_Parts(loaded.config).faults)
    config, parts = loaded.config, _Parts(loaded.config)
    if parts.faults:
        raise loaded.faults(parts.faults)
    router, bound = parts.router, parts.bound
    of_modules = [warning for stage in bound.values() for module in stage for warning in module.warnings]
    doubts = (*loaded.warnings, *router.warnings, *of_modules, *parts.tls.warnings, *parts.codecs.warnings)
    warnings = [loaded.describe(warning) for warning in doubts]
    loaded.forget()
    gateway = config.gateway
    return Build(
        loaded=loaded,
        codecs=parts.codecs.named,
        tls=parts.tls,
        router=router,
        bound=bound,
        forwarding=Forwarding(gateway.name, gateway.trusted_proxies, gateway.trusted_header),
        always=parts.always,
        warnings=tuple(warnings),
    )


def _load(path: str, source: Source | None) -> Loaded | Rest:
    try:
        return load(path, source)
    except ConfigFaults as error:
        if error.rest is None:
            raise
        clear_frames(error.__traceback__)  # one of them has the error, which has them
        return error.rest


class _Parts:
    """What is made of a configuration, each part by itself, and what is wrong with any of them."""

    def __init__(self, config: Config) -> None:
        self.faults: list[ConfigError] = []
        self.router: Any = self._made(Router, config.routes, config.gateway)
        upstreams = [upstream.name for upstream in config.upstreams]
        self.bound: Any = self._made(bind, config.modules, find, upstreams)
        self.origins = [name for name in _destinations(self.router, self.bound) if "://" in name]
        self.codecs: Any = self._made(Codecs, config, self.origins)
        named = {} if self.codecs is None else self.codecs.named
        self.tls: Any = self._made(sides, config, named, self.origins)
        self.always: Any = self._made(_always, config)

    def _made(self, function: Callable[..., Any], *args: object) -> Any:
        try:
            return function(*args)
        except ConfigFaults as error:
            self.faults.extend(error.faults)
            clear_frames(error.__traceback__)  # of what was half made
        except ConfigError as error:
            self.faults.append(error)
        return None


def _destinations(router: Router | None, bound: Mapping[str, tuple[Bound, ...]] | None) -> tuple[str, ...]:
    found: dict[str, None] = {} if router is None else dict.fromkeys(router.clusters)
    for each in asked(bound or {}):
        found.update(dict.fromkeys(each))
    return tuple(found)


SWITCH: Final = 0.0005
"""Seconds after which a thread that builds or buries a configuration lets the event loop go on."""


def _always(config: Config) -> Callable[[Exchange], bool] | None:
    log = config.access_log
    if log is None or not log.always:
        return None
    try:
        return condition.compile(log.always, response=True)
    except ConfigError as error:
        raise ConfigError(error.message, ("accessLog", "always", *error.path)) from None


class _Courtesy:
    """
    While a thread is inside, the interpreter is handed over after L{SWITCH} seconds of waiting.

    An event loop lets go of it several times a turn, and waits that long each time.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._inside = 0
        self._before = 0.0

    def __enter__(self) -> None:
        with self._lock:
            if not self._inside:
                self._before = sys.getswitchinterval()
                sys.setswitchinterval(SWITCH)
            self._inside += 1

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._inside -= 1
            if not self._inside:
                sys.setswitchinterval(self._before)


_courtesy = _Courtesy()


def build_quietly(path: str, source: Source | None = None) -> Build:
    """
    L{build}, in a thread beside the event loop, which is let go on often.

    No garbage is collected meanwhile, and none is looked for in what was built: either holds the interpreter for longer
    than the event loop may wait.  A configuration refers to itself nowhere, so counting references is enough.
    """
    collects = gc.isenabled()
    gc.disable()
    try:
        with _courtesy:
            built = build(path, source)
        if collects:
            gc.freeze()  # with whatever else there is right now: that costs nothing, and moves it out of sight
        return built
    except ConfigFaults as error:
        clear_frames(error.__traceback__)
        for fault in error.faults:  # each would keep alive all that was at hand where it was found
            fault.__traceback__ = fault.__context__ = fault.__cause__ = None
        raise
    finally:
        if collects:
            gc.enable()


def bury(remains: list[Any]) -> None:
    """Let go of the parts of a large thing one by one, in a thread: all at once would hold the event loop up."""
    with _courtesy:
        while remains:
            remains.pop()
