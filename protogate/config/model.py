"""
What a configuration file may say, as frozen types.  One class per object of the file; C{snake_case} here is camelCase
there.  The JSON Schema that ships with the package is made from these classes.

Values are as plain as they come out of the file, except durations (L{Seconds}), sizes (L{Bytes}) and ratios: those are
numbers already.  What refers to something else (conditions, templates, module parameters, upstream names, regular
expressions) is compiled by whom it concerns, and reports its own faults through L{protogate.errors.ConfigError}.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import Meta, Struct, field

from protogate.context import Limits, Timeouts


class Seconds(float):
    """A duration: C{250ms 10s 5m 1h}, or 0."""

    __slots__ = ()


class Bytes(int):
    """A size: C{512B 8KiB 1MB 2GiB}, or 0."""

    __slots__ = ()


Weight = Annotated[int, Meta(ge=0, le=1000)]
Percent = Annotated[float, Meta(ge=0, le=100)]
Count = Annotated[int, Meta(ge=1)]
Ratio = Annotated[float, Meta(ge=0, le=1)]
Properties = dict[str, str]


class Model(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="camel"):
    """Base of every object of the file."""


class GatewayTimeouts(Model, frozen=True, kw_only=True):
    """C{gateway.timeouts}: see L{Timeouts}."""

    client_header: Seconds = Seconds(10)
    client_idle: Seconds = Seconds(75)
    client_stall: Seconds = Seconds(30)
    client_min_rate: Annotated[float, Meta(ge=0)] = 0
    queue: Seconds = Seconds(5)
    dns: Seconds = Seconds(3)
    connect: Seconds = Seconds(3)
    tls: Seconds = Seconds(5)
    upstream_stall: Seconds = Seconds(30)
    response_head: Seconds = Seconds(30)
    response_stall: Seconds = Seconds(60)
    total: Seconds = Seconds(0)

    def frozen(self) -> Timeouts:
        """As codecs and pools want them."""
        return Timeouts(**{name: float(getattr(self, name)) for name in self.__struct_fields__})


class UpstreamTimeouts(Model, frozen=True, kw_only=True):
    """C{upstreams[].timeouts}: None = as the gateway's."""

    queue: Seconds | None = None
    dns: Seconds | None = None
    connect: Seconds | None = None
    tls: Seconds | None = None
    upstream_stall: Seconds | None = None
    response_head: Seconds | None = None
    response_stall: Seconds | None = None


class GatewayLimits(Model, frozen=True, kw_only=True):
    """C{gateway.limits}: see L{Limits}."""

    request_line: Bytes = Bytes(8 * 1024)
    header_line: Bytes = Bytes(8 * 1024)
    headers: Bytes = Bytes(64 * 1024)
    header_count: Count = 128
    body: Bytes = Bytes(0)
    response_headers: Bytes = Bytes(64 * 1024)
    connections: Count = 20_000

    def frozen(self) -> Limits:
        """As codecs want them."""
        return Limits(**{name: int(getattr(self, name)) for name in self.__struct_fields__})


class Gateway(Model, frozen=True, kw_only=True):
    """C{gateway}."""

    name: str = "protogate"
    zone: str = ""
    workers: Literal[0] = 0
    """0 = in this very process, the only choice so far."""
    trusted_proxies: tuple[str, ...] = ()
    """CIDRs whose forwarding headers are believed."""
    trusted_header: Literal["x-forwarded-for", "forwarded"] = "x-forwarded-for"
    """The list of addresses that those proxies keep; the other one is not believed."""
    path_policy: Literal["canonical", "reject", "raw"] = "canonical"
    watch: bool = True
    """Reload when the file changes."""
    drain: Seconds = Seconds(30)
    """How long requests under way may go on after SIGTERM, and on listeners that were removed."""
    timeouts: GatewayTimeouts = field(default_factory=GatewayTimeouts)
    limits: GatewayLimits = field(default_factory=GatewayLimits)


class Listener(Model, frozen=True, kw_only=True):
    """C{listeners[]}."""

    name: Annotated[str, Meta(min_length=1)]
    address: str
    """C{host:port}, C{[v6]:port} or C{unix:/path}."""
    protocols: Annotated[tuple[str, ...], Meta(min_length=1)] = ("http1",)


class Endpoint(Model, frozen=True, kw_only=True):
    """C{upstreams[].endpoints[]}."""

    url: str
    weight: Weight = 100
    zone: str = ""


class Discovery(Model, frozen=True, kw_only=True):
    """C{upstreams[].discovery}."""

    dns: str
    """C{host:port}: A and AAAA; C{_service._tcp.host}: SRV."""
    scheme: Literal["http"] = "http"


class PoolSettings(Model, frozen=True, kw_only=True):
    """C{upstreams[].pool}."""

    idle: Seconds = Seconds(30)
    max_per_endpoint: Count = 100
    max_reuse: Annotated[int, Meta(ge=0)] = 0
    """Requests after which a connection is not used again; 0 = no end."""
    queue: Count = 1024
    """Requests that may wait for a connection of one endpoint."""


class Upstream(Model, frozen=True, kw_only=True):
    """C{upstreams[]}."""

    name: Annotated[str, Meta(min_length=1)]
    protocol: str = ""
    """Codec; C{""} = by the endpoint's scheme."""
    endpoints: tuple[Endpoint, ...] = ()
    discovery: Discovery | None = None
    balance: Literal["weighted"] = "weighted"
    host: Literal["preserve", "endpoint"] = "preserve"
    """What the upstream sees as its host: what the client asked for, or the endpoint's own name."""
    pool: PoolSettings = field(default_factory=PoolSettings)
    timeouts: UpstreamTimeouts = field(default_factory=UpstreamTimeouts)


class Target(Model, frozen=True, kw_only=True):
    """C{routes[].routes[].targets[]}: exactly one of C{upstream} and C{url}."""

    upstream: str | None = None
    url: str | None = None
    weight: Weight = 100


class Sticky(Model, frozen=True, kw_only=True):
    """C{routes[].routes[].sticky}."""

    key: str
    """An expression: the same value is always sent to the same target."""


class Entry(Model, frozen=True, kw_only=True):
    """C{routes[].routes[]}."""

    condition: str = "true"
    zone: str = ""
    targets: Annotated[tuple[Target, ...], Meta(min_length=1)]
    sticky: Sticky | None = None


class Rule(Model, frozen=True, kw_only=True):
    """C{routes[]}."""

    type: Literal["uri", "host", "method", "header", "query", "cookie", "service", "protocol"] = "uri"
    value: str
    """For header, query and cookie: C{name=value}, or C{name} alone for 'is there'."""
    matcher_type: Literal["exact", "prefix", "regex", "template"] = "exact"
    name: str = ""
    """For people; C{""} = type and value."""
    priority: int = 0
    hosts: tuple[str, ...] = ()
    methods: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    properties: Properties = field(default_factory=dict)
    published: bool = True
    routes: Annotated[tuple[Entry, ...], Meta(min_length=1)]


class Module(Model, frozen=True, kw_only=True):
    """C{modules[]}."""

    name: Annotated[str, Meta(min_length=1)]
    stage: str = ""
    """C{""} = the first stage that the module knows."""
    rule_order: int = 0
    gray_ratio: Percent = 100
    gray_key: str = "source.ip"
    """An expression: who is gray is decided by a stable hash of its value."""
    condition: str = "true"
    action_param: dict[str, Any] = field(default_factory=dict)
    exception_handle: Literal["return", "continue"] = "return"
    timeout: Seconds = Seconds(2)
    timeout_handle: Literal["return", "continue", ""] = ""
    """C{""} = as the module wants: guards return, others continue."""


class AccessLog(Model, frozen=True, kw_only=True):
    """C{accessLog}."""

    file: str
    """A path, or C{-} for standard output."""
    sample: Ratio = 1.0
    always: str = ""
    """An expression: what is logged whatever C{sample} says."""
    queue: Count = 10_000
    """Lines that may wait for the disk; more are dropped and counted."""


class Config(Model, frozen=True, kw_only=True):
    """The whole file."""

    gateway: Gateway = field(default_factory=Gateway)
    listeners: Annotated[tuple[Listener, ...], Meta(min_length=1)]
    upstreams: tuple[Upstream, ...] = ()
    routes: tuple[Rule, ...] = ()
    modules: tuple[Module, ...] = ()
    access_log: AccessLog | None = None
