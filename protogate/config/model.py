"""
What a configuration file may say, as frozen types.  One class per object of the file; C{snake_case} here is camelCase
there.  The JSON Schema that ships with the package is made from these classes.  What all are made of is in
L{protogate.config.words}, upstreams are in L{protogate.config.upstream}.

Values are as plain as they come out of the file, except durations (L{Seconds}), sizes (L{Bytes}), L{Workers} and
ratios: those are numbers already.  What refers to something else (conditions, templates, module parameters, upstream
names, regular expressions) is compiled by whom it concerns, and reports its own faults through
L{protogate.errors.ConfigError}.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import Meta, field

from protogate.config.discovery import Consul, Discovery, Etcd, Secret
from protogate.config.overload import LagMarks, Marks, Overload, Priority
from protogate.config.upstream import (
    CircuitBreaker,
    Endpoint,
    Hash,
    HealthCheck,
    Hedge,
    Outliers,
    PoolSettings,
    Retry,
    Upstream,
    UpstreamTimeouts,
    UpstreamTls,
    Zones,
)
from protogate.config.words import (
    Bytes,
    Count,
    FieldName,
    HostPattern,
    ListenAddress,
    Model,
    Network,
    Percent,
    Properties,
    Ratio,
    RequestPath,
    Resolvable,
    Seconds,
    Statuses,
    Url,
    Weight,
    Workers,
    within,
)
from protogate.context import Limits, Timeouts

__all__ = [
    "AccessLog",
    "Admin",
    "Bytes",
    "CertificateFiles",
    "CircuitBreaker",
    "ClientAuth",
    "Config",
    "Consul",
    "Count",
    "Discovery",
    "Endpoint",
    "Entry",
    "Etcd",
    "FieldName",
    "Gateway",
    "GatewayLimits",
    "GatewayTimeouts",
    "Hash",
    "HealthCheck",
    "Hedge",
    "Hold",
    "HostPattern",
    "LagMarks",
    "ListenAddress",
    "Listener",
    "ListenerTls",
    "Marks",
    "Model",
    "Module",
    "Network",
    "Outliers",
    "Overload",
    "Percent",
    "PoolSettings",
    "Priority",
    "Properties",
    "ProxyProtocol",
    "Ratio",
    "RequestPath",
    "Resolvable",
    "Retry",
    "Rewrite",
    "Rule",
    "Seconds",
    "Secret",
    "Statuses",
    "Sticky",
    "Target",
    "Upstream",
    "UpstreamTimeouts",
    "UpstreamTls",
    "Url",
    "Weight",
    "Workers",
    "Zones",
    "within",
]


class GatewayTimeouts(Model, frozen=True, kw_only=True):
    """Every phase has a clock of its own; 0 = off.  The error names the phase and the side."""

    client_header: Seconds = Seconds(10)
    """First byte of a head to its last byte."""
    client_idle: Seconds = Seconds(75)
    """A kept-alive connection between two requests; also accept to first byte."""
    client_stall: Seconds = Seconds(30)
    """The client neither sends its body nor takes ours."""
    client_min_rate: Annotated[float, Meta(ge=0)] = 0
    """Bytes per second that an upload must reach over 10 s; 0 = off."""
    queue: Seconds = Seconds(5)
    """Waiting for a free upstream connection."""
    dns: Seconds = Seconds(3)
    """Resolving the name of an endpoint."""
    connect: Seconds = Seconds(3)
    """TCP alone."""
    tls: Seconds = Seconds(5)
    """TLS handshake alone."""
    upstream_stall: Seconds = Seconds(30)
    """No byte of the request could be flushed to the upstream."""
    response_head: Seconds = Seconds(30)
    """Last flushed byte of the request to the response head."""
    response_stall: Seconds = Seconds(60)
    """No byte of the response body."""
    total: Seconds = Seconds(0)
    """The whole exchange."""

    def frozen(self) -> Timeouts:
        """As codecs and pools want them."""
        return Timeouts(**{name: float(getattr(self, name)) for name in self.__struct_fields__})


class GatewayLimits(Model, frozen=True, kw_only=True):
    """Each limit has its own counter and error."""

    request_line: Bytes = Bytes(8 * 1024)
    """Longest request line; 414."""
    header_line: Bytes = Bytes(8 * 1024)
    """Longest field line; 431."""
    headers: Bytes = Bytes(64 * 1024)
    """All field lines of a request together; 431."""
    header_count: Count = 128
    """Field lines of a request; 431."""
    body: Bytes = Bytes(0)
    """Longest request body; 413; 0 = off."""
    response_headers: Bytes = Bytes(64 * 1024)
    """The whole head of an upstream's response; 502."""
    connections: Count = 20_000
    """Connections of one listener; one more is closed at once."""

    def frozen(self) -> Limits:
        """As codecs want them."""
        return Limits(**{name: int(getattr(self, name)) for name in self.__struct_fields__})


class Gateway(Model, frozen=True, kw_only=True):
    """The process as a whole."""

    name: str = "protogate"
    """How this gateway calls itself, e.g. in Via and in records."""
    zone: str = ""
    """Where it is: entries of rules for other zones are not for it; endpoints of its zone come first."""
    workers: Workers = Workers(0)
    """Processes that serve; 0 = this very one; auto = one for each core that it may use."""
    pinning: bool = False
    """Whether each worker keeps to a core of its own."""
    hang_timeout: Seconds = Seconds(30)
    """A worker that says nothing for so long is killed and replaced; 0 = never."""
    drain_delay: Seconds = Seconds(0)
    """After SIGTERM: how long it is served on while readiness fails already."""
    trusted_proxies: tuple[Network, ...] = ()
    """CIDRs whose forwarding headers are believed."""
    trusted_header: Literal["x-forwarded-for", "forwarded"] = "x-forwarded-for"
    """The list of addresses that those proxies keep; the other one is not believed."""
    cohort: str = "source.ip"
    """An expression: whose value decides who is gray, for targets and modules that do not name another one."""
    path_policy: Literal["canonical", "reject", "raw"] = "canonical"
    """What to do when the path that came and its canonical form differ."""
    watch: bool = True
    """Reload when the file changes."""
    drain: Seconds = Seconds(30)
    """How long requests under way may go on after SIGTERM, and on listeners that were removed."""
    timeouts: GatewayTimeouts = field(default_factory=GatewayTimeouts)
    """The clocks."""
    limits: GatewayLimits = field(default_factory=GatewayLimits)
    """What a client and an upstream may send."""
    overload: Overload | None = None
    """What is done when there is more work than can be done; without it nothing."""


class CertificateFiles(Model, frozen=True, kw_only=True):
    """A certificate and its key, in PEM form."""

    cert: Annotated[str, Meta(min_length=1)]
    """File with the certificate, then those that lead to its authority; relative to the configuration file."""
    key: Annotated[str, Meta(min_length=1)]
    """File with its key, not encrypted."""


class ClientAuth(Model, frozen=True, kw_only=True):
    """Certificates of clients."""

    ca: Annotated[str, Meta(min_length=1)]
    """File with the authorities that must have issued them."""
    mode: Literal["off", "optional", "required"] = "required"
    """Whether a client must show one; one that is shown must always be valid."""


class ListenerTls(Model, frozen=True, kw_only=True):
    """What is offered over TLS."""

    certificates: Annotated[tuple[CertificateFiles, ...], Meta(min_length=1)]
    """Chosen by the name that a client asks for; the first is for everybody else."""
    client_auth: ClientAuth | None = None
    """Certificates of clients; without it none is asked for."""
    min_version: Literal["1.2", "1.3"] = "1.2"
    """Lowest version of TLS."""
    ciphers: str = ""
    """Ciphers of TLS 1.2 in OpenSSL's words; empty = those that are forward secret and authenticated."""


class ProxyProtocol(Model, frozen=True, kw_only=True):
    """The PROXY protocol: proxies in front that say at the start of each connection whose it is."""

    trusted: tuple[Network, ...] = ()
    """CIDRs of those proxies; whoever comes through a UNIX socket is one, too."""
    mode: Literal["optional", "required"] = "required"
    """Required: who is not one of them, or does not say it, is closed; optional: both are taken for clients."""


class Listener(Model, frozen=True, kw_only=True):
    """Where clients come in."""

    name: Annotated[str, Meta(min_length=1)]
    """For records and counters; each listener has another one."""
    address: ListenAddress
    """host:port, [v6]:port or unix:/path; port 0 = any free one."""
    protocols: Annotated[tuple[str, ...], Meta(min_length=1)] = ("http1",)
    """Codecs, best first; told apart by ALPN or by the first bytes."""
    tls: ListenerTls | None = None
    """Certificates; without it there is no TLS."""
    deadline_header: FieldName = ""
    """Field in which clients say how many milliseconds they will wait; empty = none is read."""
    proxy_protocol: ProxyProtocol | None = None
    """Whose word on where a connection comes from is believed; without it nobody's."""


class Rewrite(Model, frozen=True, kw_only=True):
    """What a target is asked, where that is not what came; all but the method may be templates."""

    method: str = ""
    """Method; empty = as it came."""
    path: str = ""
    """Path; empty = as it would be without this."""
    query: dict[str, str] | None = None
    """Parameters, by name, instead of those that came; one that is empty is left out."""
    service: str = ""
    """Number or name of a service, for upstreams that have services; with an operation."""
    operation: str = ""
    """What is asked of that service."""


class Hold(Model, frozen=True, kw_only=True):
    """When a target gets no requests any more, because it does worse than the others of its entry."""

    window: Annotated[Seconds, within(10, 3600)] = Seconds(60)
    """How far back requests count, its own and those of the others."""
    min_requests: Count = 50
    """Requests within window, its own and of the others, below which nothing is judged."""
    error_margin: Ratio = 0.01
    """How much larger than that of the others its share of failures may be; 1 = as large as it likes."""
    latency_factor: Annotated[float, Meta(ge=0)] = 2.0
    """How many times as long as those of the others nine of ten answers may take; 0 = as long as they like."""
    latency_floor: Seconds = Seconds(0.1)
    """And by how much longer at least, for that to matter."""
    duration: Annotated[Seconds, within(1, 604800, off=True)] = Seconds(0)
    """How long it gets none; 0 = until its entry changes."""
    attempt: Annotated[int, Meta(ge=0)] = 0
    """Any number: another one is a change of the entry that changes nothing else."""


class Target(Model, frozen=True, kw_only=True):
    """Where a request goes: exactly one of upstream and url."""

    upstream: str | None = None
    """Name of an upstream."""
    url: Url | None = None
    """http://host:port/path or https://host:port/path: an upstream without a name."""
    rewrite: Rewrite | None = None
    """What it is asked, where that is not what came."""
    weight: Weight = 100
    """Its share of the requests, 0 to 1000; 0 = none.  With gray or when it has none."""
    gray: Percent | None = None
    """It is for so many percent of the cohort, always the same ones, and not for others."""
    when: str = ""
    """An expression: it is for these requests, whatever gray says; empty = for no others."""
    hold: Hold | None = None
    """When it is taken back; without it never."""


class Sticky(Model, frozen=True, kw_only=True):
    """Keeps a client at one target."""

    key: str
    """An expression: the same value is always sent to the same target."""


class Entry(Model, frozen=True, kw_only=True):
    """One choice of a rule: the first whose condition holds and whose zone fits is taken."""

    condition: str = "true"
    """An expression."""
    zone: str = ""
    """For gateways of this zone only; empty = for all."""
    targets: Annotated[tuple[Target, ...], Meta(min_length=1)]
    """Where to, by weight."""
    sticky: Sticky | None = None
    """Keeps a client at one target."""
    cohort: str = ""
    """An expression: who is the same for gray; empty = what gateway.cohort says."""


class Rule(Model, frozen=True, kw_only=True):
    """Which requests are meant, and where they go."""

    type: Literal["uri", "host", "method", "header", "query", "cookie", "service", "protocol"] = "uri"
    """What of the request is looked at."""
    value: str
    """For header, query and cookie: name=value, or the name alone for 'is there'."""
    matcher_type: Literal["exact", "prefix", "regex", "template"] = "exact"
    """How value is compared."""
    name: str = ""
    """For people; empty = type and value."""
    priority: int = 0
    """Comes before every other order: rules with a higher number are tried first."""
    hosts: tuple[HostPattern, ...] = ()
    """For these hosts only; *.domain for all below a domain."""
    methods: tuple[str, ...] = ()
    """For these methods only."""
    tags: tuple[str, ...] = ()
    """For conditions and records."""
    properties: Properties = field(default_factory=dict)
    """For conditions, templates and records."""
    published: bool = True
    """False takes the API offline: 404."""
    routes: Annotated[tuple[Entry, ...], Meta(min_length=1)]
    """The choices, in this order."""


class Module(Model, frozen=True, kw_only=True):
    """A module at work on requests or responses."""

    name: Annotated[str, Meta(min_length=1)]
    """Which module."""
    stage: str = ""
    """When it runs; empty = the first stage that the module knows."""
    rule_order: int = 0
    """Sorts within the stage, lowest first."""
    gray_ratio: Percent = 100
    """For how many percent of the requests."""
    gray_key: str = ""
    """An expression: who is gray is decided by a stable hash of its value; empty = what gateway.cohort says."""
    condition: str = "true"
    """An expression: for which requests."""
    action_param: dict[str, Any] = field(default_factory=dict)
    """What the module wants to know."""
    exception_handle: Literal["return", "continue"] = "return"
    """When it fails: answer with the error stage, or log it and go on."""
    timeout: Seconds = Seconds(2)
    """For a module that waits."""
    timeout_handle: Literal["return", "continue", ""] = ""
    """When its time is over; empty = as the module wants: guards return, others continue."""
    shadow: bool = False
    """Only evaluate, count and note what it would do; do nothing."""


class AccessLog(Model, frozen=True, kw_only=True):
    """One JSON line for each exchange."""

    file: Annotated[str, Meta(min_length=1)]
    """A path, relative to the configuration file, or - for standard output."""
    sample: Ratio = 1.0
    """The share of exchanges that are logged, 0 to 1."""
    always: str = ""
    """An expression: what is logged whatever sample says."""
    queue: Count = 10_000
    """Lines that may wait for the disk; more are dropped and counted."""


class Admin(Model, frozen=True, kw_only=True):
    """Pages for operators: /livez, /readyz, /metrics.  No traffic comes in here."""

    address: ListenAddress
    """host:port, [v6]:port or unix:/path; whoever gets there may read them."""


class Config(Model, frozen=True, kw_only=True):
    """Configuration of a protogate gateway."""

    gateway: Gateway = field(default_factory=Gateway)
    """The process as a whole."""
    listeners: Annotated[tuple[Listener, ...], Meta(min_length=1)]
    """Where clients come in."""
    upstreams: tuple[Upstream, ...] = ()
    """The services behind the gateway."""
    routes: tuple[Rule, ...] = ()
    """Which requests go where."""
    modules: tuple[Module, ...] = ()
    """What is done to requests and responses on their way."""
    codecs: dict[str, dict[str, Any]] = field(default_factory=dict)
    """How codecs speak, by their names; protogate codecs lists what each can be told."""
    access_log: AccessLog | None = None
    """One JSON line for each exchange; without it none."""
    admin: Admin | None = None
    """Pages for operators; without it none."""
