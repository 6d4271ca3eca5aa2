"""
From a configuration file to everything that can be made of it without touching anything live.

Rules
- Pure: no reactor, no socket, no state that survives.  A reload runs it in another thread while traffic flows.
- Every fault of the file is found and reported in one go, whichever part found it.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from traceback import clear_frames
from typing import Any

import msgspec

from protogate.codecs import Codecs
from protogate.cohort import DEFAULT
from protogate.config.faults import ConfigFaults, Rest, under
from protogate.config.field import field_name
from protogate.config.load import Loaded, Source, load
from protogate.config.model import Config, Gateway
from protogate.discovery import sources as discovery
from protogate.errors import ConfigError
from protogate.exchange.exchange import Exchange
from protogate.exchange.forwarding import Forwarding
from protogate.exchange.pipeline import IBound
from protogate.exchange.plan import Plan
from protogate.expression import condition
from protogate.governance.binding import Bound, bind
from protogate.governance.lives import asked
from protogate.governance.reserve import hide, reserve
from protogate.interfaces import IDiscovery, IService, IStreamCodec
from protogate.overload.shedding import Class, classes
from protogate.plugins import find
from protogate.quiet import quiet
from protogate.routing.rules import forwarded
from protogate.routing.table import Router
from protogate.securing import Sides, sides
from protogate.upstream import hashing, hedges, retries, zones
from protogate.upstream.health import verify
from protogate.upstream.watch import verify as verify_judges
from protogate.wheel import Wheel


@dataclass(frozen=True, slots=True, kw_only=True)
class Build:
    """
    What a configuration means.

    @ivar codecs: by name, all that listeners and upstreams use.
    @ivar tls: what listeners and upstreams need for it.
    @ivar keys: by upstream: what gives the key that an endpoint is chosen by.
    @ivar bound: the modules of each stage, in the order they run.
    @ivar sources: of further endpoints, by the name of the upstream.
    @ivar priorities: classes of requests, where some are shed before others.
    @ivar always: which exchanges are logged whatever the sample says; None = no others.
    @ivar warnings: one line each: what works, but perhaps not as it was meant.
    """

    loaded: Loaded
    codecs: Mapping[str, IStreamCodec]
    tls: Sides
    router: Router
    keys: Mapping[str, Callable[[Exchange], str]]
    bound: Mapping[str, tuple[Bound, ...]]
    forwarding: Forwarding
    sources: Mapping[str, IDiscovery]
    priorities: tuple[Class, ...]
    always: Callable[[Exchange], bool] | None
    warnings: tuple[str, ...]

    @property
    def destinations(self) -> tuple[str, ...]:
        """Names and origins of all upstreams that rules lead to, that modules ask, or are asked for endpoints."""
        return _destinations(self.router, self.bound, self.sources)

    def codec(self, name: str) -> IStreamCodec:
        """By its name."""
        return self.codecs[name]

    @property
    def config(self) -> Config:
        """The configuration itself."""
        return self.loaded.config

    def plan(
        self,
        wheel: Wheel,
        clusters: Mapping[str, IService],
        record: Callable[[Exchange], None],
        count: Callable[[str], None],
        first: Sequence[IBound] = (),
    ) -> Plan:
        """
        What requests follow under it.

        @param clusters: the upstreams, C{record}, C{count}: see L{Plan}.
        @param first: what is asked before all modules.
        """
        config, bound = self.config, self.bound
        gateway = config.gateway
        deadlines = {each.name: field_name(each.deadline_header) for each in config.listeners}
        return Plan(
            name=gateway.name,
            zone=gateway.zone,
            wheel=wheel,
            router=self.router,
            rewrite=forwarded,
            clusters=clusters,
            keys=self.keys,
            forwarding=self.forwarding,
            record=record,
            count=count,
            total=float(gateway.timeouts.total),
            deadlines={name: field for name, field in deadlines.items() if field},
            body=int(gateway.limits.body),
            reject=gateway.path_policy == "reject",
            reserve=reserve(bound),
            hide=hide(bound),
            pre_request=(*first, *bound["PRE_REQUEST"]),
            pre_upstream=bound["PRE_UPSTREAM"],
            pre_response=bound["PRE_RESPONSE"],
            error=bound["ERROR"],
            post_response=bound["POST_RESPONSE"],
        )


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
    of_sources = discovery.warnings(config, parts.sources)
    doubts = (
        *loaded.warnings,
        *router.warnings,
        *of_modules,
        *of_sources,
        *parts.tls.warnings,
        *parts.codecs.warnings,
    )
    warnings = [loaded.describe(warning) for warning in doubts]
    loaded.forget()
    gateway = config.gateway
    return Build(
        loaded=loaded,
        codecs=parts.codecs.named,
        tls=parts.tls,
        router=router,
        keys=parts.keys,
        bound=bound,
        forwarding=Forwarding(gateway.name, gateway.trusted_proxies, gateway.trusted_header),
        sources=parts.sources,
        priorities=parts.priorities,
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
        cohort: str = self._made(_cohort, config.gateway) or DEFAULT
        gateway = msgspec.structs.replace(config.gateway, cohort=cohort)
        self.router: Any = self._made(Router, config.routes, gateway)
        upstreams = [upstream.name for upstream in config.upstreams]
        self.bound: Any = self._made(bind, config.modules, find, upstreams, cohort)
        self.sources: Any = self._made(discovery.sources, config, find)
        named = _destinations(self.router, self.bound, self.sources)
        self.origins = [name for name in named if "://" in name]
        self.codecs: Any = self._made(Codecs, config, self.origins)
        codecs = {} if self.codecs is None else self.codecs.named
        self.tls: Any = self._made(sides, config, codecs, self.origins)
        self.priorities: Any = self._made(classes, config)
        self.always: Any = self._made(_always, config)
        self._made(verify, config.upstreams, codecs)
        self._made(verify_judges, config.upstreams)
        self._made(retries.verify, config.upstreams)
        self._made(hedges.verify, config.upstreams)
        self.keys: Any = self._made(hashing.keys, config.upstreams)
        self._made(zones.verify, config.upstreams, config.gateway.zone)

    def _made(self, function: Callable[..., Any], *args: object) -> Any:
        try:
            return function(*args)
        except ConfigFaults as error:
            self.faults.extend(error.faults)
            clear_frames(error.__traceback__)  # of what was half made
        except ConfigError as error:
            self.faults.append(error)
        return None


def _destinations(
    router: Router | None,
    bound: Mapping[str, tuple[Bound, ...]] | None,
    sources: Mapping[str, IDiscovery] | None,
) -> tuple[str, ...]:
    found: dict[str, None] = {} if router is None else dict.fromkeys(router.clusters)
    for each in asked(bound or {}):
        found.update(dict.fromkeys(each))
    found.update(dict.fromkeys(discovery.asked(sources or {})))
    return tuple(found)


def _cohort(gateway: Gateway) -> str:
    """The expression that decides who is gray where no other one is named."""
    try:
        condition.expression(gateway.cohort)
    except ConfigError as error:
        raise under(error, "gateway", "cohort") from None
    return gateway.cohort


def _always(config: Config) -> Callable[[Exchange], bool] | None:
    log = config.access_log
    if log is None or not log.always:
        return None
    try:
        return condition.compile(log.always, response=True)
    except ConfigError as error:
        raise ConfigError(error.message, ("accessLog", "always", *error.path)) from None


def build_quietly(path: str, source: Source | None = None) -> Build:
    """
    L{build}, in a thread beside the event loop, which is let go on often.

    No garbage is looked for in what was built: a configuration refers to itself nowhere, so counting references is
    enough.
    """
    with quiet:  # to the very end: what is left of one with faults goes quietly, too
        try:
            built = build(path, source)
        except ConfigFaults as error:
            clear_frames(error.__traceback__)
            for fault in error.faults:  # each would keep alive all that was at hand where it was found
                fault.__traceback__ = fault.__context__ = fault.__cause__ = None
            raise
        if quiet.collects:
            gc.freeze()  # with whatever else there is right now: that costs nothing, and moves it out of sight
        return built
