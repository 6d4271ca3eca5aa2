"""An upstream of a configuration file, as frozen types: see L{protogate.config.model}."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, field

from protogate.config.discovery import Discovery
from protogate.config.words import (
    Bytes,
    Count,
    FieldName,
    Model,
    Percent,
    Ratio,
    RequestPath,
    Seconds,
    Statuses,
    Weight,
    within,
)


class UpstreamTimeouts(Model, frozen=True, kw_only=True):
    """What differs from the gateway's timeouts for this upstream; without a value: as the gateway's."""

    queue: Seconds | None = None
    """Waiting for a free connection."""
    dns: Seconds | None = None
    """Resolving the name of an endpoint."""
    connect: Seconds | None = None
    """TCP alone."""
    tls: Seconds | None = None
    """TLS handshake alone."""
    upstream_stall: Seconds | None = None
    """No byte of the request could be flushed to the upstream."""
    response_head: Seconds | None = None
    """Last flushed byte of the request to the response head."""
    response_stall: Seconds | None = None
    """No byte of the response body."""


class Endpoint(Model, frozen=True, kw_only=True):
    """One server of an upstream."""

    url: str
    """http://host:port; https, wss, h2, grpcs and tls are with TLS, ws, h2c and grpc without."""
    weight: Weight = 100
    """Its share of the requests, 0 to 1000; 0 = none."""
    zone: str = ""
    """Where it is; see zones."""


class Hash(Model, frozen=True, kw_only=True):
    """By what a request belongs to an endpoint."""

    key: Annotated[str, Meta(min_length=1)]
    """An expression; the same value goes to the same endpoint, an empty value by weight."""
    bound: Annotated[float, Meta(ge=0)] = 1.25
    """How many times its share of the requests under way an endpoint may have; 0 = as many as come, else 1 and more."""


class Zones(Model, frozen=True, kw_only=True):
    """How requests are shared out between the zones of endpoints."""

    prefer: Literal["own", "none"] = "own"
    """Whether the gateway's own zone comes first."""
    order: tuple[str, ...] = ()
    """Which come next, one after the other; all that are not named come last, together."""
    spill: Annotated[float, Meta(ge=1)] = 1.4
    """A zone keeps all its requests while one in so many of its endpoints is well."""
    schedule: dict[str, Weight] = field(default_factory=dict)
    """What each zone gets, in proportion, wherever the gateway is; none = by prefer and order."""


class PoolSettings(Model, frozen=True, kw_only=True):
    """Connections kept open to each endpoint."""

    idle: Seconds = Seconds(30)
    """How long an unused connection is kept."""
    max_per_endpoint: Count = 100
    """Connections to one endpoint."""
    max_reuse: Annotated[int, Meta(ge=0)] = 0
    """Requests after which a connection is not used again; 0 = no end."""
    queue: Count = 1024
    """Requests that may wait for a connection of one endpoint."""
    standing: Seconds = Seconds(0)
    """A queue that was never empty for so long: then the newest is served first, and nobody waits longer; 0 = off."""


class HealthCheck(Model, frozen=True, kw_only=True):
    """How each endpoint is looked at, on a connection of its own."""

    type: Literal["http", "grpc", "ping", "connect"] = "http"
    """Ask for a path, as gRPC checks health, for a sign of life (HTTP/2, SOTP), or be content with a connection."""
    path: RequestPath = "/"
    """Path and query, of http."""
    method: Literal["GET", "HEAD", "OPTIONS"] = "GET"
    """Method, of http."""
    host: str = ""
    """The host that is asked for; empty = the endpoint's own."""
    statuses: Statuses = "200-299"
    """What is well, of http: statuses and ranges, with commas between."""
    body: str = ""
    """Text that must be in the answer, of http; empty = none."""
    service: str = ""
    """Which service is meant, of grpc; empty = the server as a whole."""
    interval: Seconds = Seconds(5)
    """From one look to the next, give or take a tenth."""
    timeout: Seconds | None = None
    """How long one may take, connecting included; without a value 2s, or interval where that is less."""
    rise: Count = 2
    """Looks in a row that must find it well again."""
    fall: Count = 3
    """Looks in a row that must find it unwell."""


class UpstreamTls(Model, frozen=True, kw_only=True):
    """Whom endpoints with TLS must prove to be, and what is proved to them."""

    ca: str = ""
    """File with the authorities that must have issued their certificates; empty = those that the system trusts."""
    verify: bool = True
    """False takes whoever answers for the upstream."""
    server_name: str = ""
    """The name that they must prove, and are asked for; empty = the host of each one's URL."""
    cert: str = ""
    """File with our own certificate."""
    key: str = ""
    """File with its key, not encrypted."""
    min_version: Literal["1.2", "1.3"] = "1.2"
    """Lowest version of TLS."""
    ciphers: str = ""
    """Ciphers of TLS 1.2 in OpenSSL's words; empty = those that are forward secret and authenticated."""


class Outliers(Model, frozen=True, kw_only=True):
    """When an endpoint that answers worse than it should is left alone for a while."""

    consecutive: Annotated[int, Meta(ge=0)] = 5
    """Failures in a row after which it is; 0 = however many."""
    error_ratio: Ratio = 0.5
    """Share of its requests within interval that fail, from which on it is; 0 = whatever it is."""
    min_requests: Count = 20
    """Requests within interval below which no share and no time says anything."""
    interval: Annotated[Seconds, within(1, 3600)] = Seconds(10)
    """How far back requests count."""
    latency_factor: Annotated[float, Meta(ge=0)] = 0.0
    """How many times longer than the others its median answer may take; 0 = as long as it likes."""
    latency_floor: Seconds = Seconds(0.1)
    """And by how much longer at least, for that to matter."""
    ejection: Annotated[Seconds, within(0.1, 3600)] = Seconds(30)
    """How long it is left alone; twice as long each time that it has to be again."""
    max_ejection: Annotated[Seconds, within(0.1, 86400)] = Seconds(300)
    """The longest time of that."""
    max_share: Ratio = 0.5
    """Share of the endpoints that may be without requests; one may be where there are two, and never all."""
    ramp: Seconds = Seconds(10)
    """How long it takes until it has all of its share again."""


class CircuitBreaker(Model, frozen=True, kw_only=True):
    """When requests that would most likely fail are not sent any more."""

    scope: Literal["endpoint", "upstream"] = "endpoint"
    """What it is about: each endpoint by itself, or the upstream as a whole."""
    error_ratio: Ratio = 0.5
    """Share of the attempts within window that fail, from which on it opens; 0 = whatever it is."""
    consecutive: Annotated[int, Meta(ge=0)] = 0
    """Failures in a row after which it opens; 0 = however many."""
    latency: Seconds = Seconds(0)
    """How long answers may take; it opens when latencyQuantile of them take longer; 0 = as long as they like."""
    latency_quantile: Ratio = 0.95
    """The share of answers that must not take longer."""
    window: Annotated[Seconds, within(1, 3600)] = Seconds(10)
    """How far back attempts count."""
    min_requests: Count = 20
    """Attempts within window below which no share and no quantile says anything."""
    open: Annotated[Seconds, within(0.1, 3600)] = Seconds(5)
    """How long it is open before something is tried; twice as long each time that this fails."""
    max_open: Annotated[Seconds, within(0.1, 86400)] = Seconds(60)
    """The longest time of that."""
    probes: Count = 3
    """How many that are tried must do well; as many are under way at a time at most."""
    ramp: Seconds = Seconds(10)
    """How long it takes from there until all are sent again."""


class Retry(Model, frozen=True, kw_only=True):
    """When a request is sent again; whatever was surely not processed always is, within attempts and budget."""

    attempts: Annotated[int, Meta(ge=1, le=10)] = 3
    """In all; 1 = nothing is sent again."""
    on: tuple[Literal["reset", "timeout", "unavailable"], ...] = ()
    """Further reasons: the connection was lost before the answer's head; a clock ran out; a call (gRPC) says so."""
    statuses: Statuses | None = None
    """Answers that are reasons, e.g. 502-504; without it none."""
    methods: tuple[str, ...] = ("GET", "HEAD", "OPTIONS", "TRACE", "PUT", "DELETE")
    """Whose requests may be sent again where the upstream may have seen them; others may be done twice by that."""
    per_try: Seconds = Seconds(0)
    """How long one attempt may take to the answer's head; 0 = as long as timeouts say; needs timeout in on."""
    backoff: Annotated[Seconds, within(0, 60)] = Seconds(0.025)
    """The longest first pause before an attempt that the upstream may feel; doubled each time."""
    max_backoff: Annotated[Seconds, within(0, 60)] = Seconds(0.25)
    """The longest pause, and the longest Retry-After that is waited for."""
    budget: Percent = 20
    """Attempts on top, in percent of the requests of the last 10 seconds."""
    floor: Annotated[float, Meta(ge=0, le=1000)] = 10
    """Attempts on top that are allowed each second besides."""
    buffer: Bytes = Bytes(64 * 1024)
    """Content of a request that is kept; what has more is sent once."""


class Hedge(Model, frozen=True, kw_only=True):
    """A second attempt at another endpoint, while the first takes long; the loser is cancelled."""

    after: Seconds = Seconds(0)
    """When it begins; 0 = by the quantile."""
    quantile: Annotated[float, Meta(ge=0.5, le=0.999)] = 0.95
    """The share of the answers of the last 30 seconds that took less than it is waited."""
    min_requests: Count = 100
    """Answers that there must have been for the quantile."""
    methods: tuple[str, ...] = ("GET", "HEAD", "OPTIONS")
    """Whose requests, without content, may be asked twice."""
    budget: Percent = 10
    """Second attempts, in percent of the requests of the last 10 seconds."""
    floor: Annotated[float, Meta(ge=0, le=1000)] = 1
    """Second attempts that are allowed each second besides."""


class Upstream(Model, frozen=True, kw_only=True):
    """A service behind the gateway: endpoints that answer alike."""

    name: Annotated[str, Meta(min_length=1)]
    """What targets refer to."""
    protocol: str = ""
    """Codec; empty = by the endpoint's scheme."""
    endpoints: tuple[Endpoint, ...] = ()
    """Its servers."""
    discovery: Discovery | None = None
    """Further servers, looked up."""
    balance: Literal["weighted", "leastRequest", "hash", "peakEwma"] = "weighted"
    """How a server is picked: in turn, less to do of two, by a key, or likely to be sooner of two."""
    hash: Hash | None = None
    """By what key, where that decides."""
    slow_start: Annotated[Seconds, within(0.1, 3600, off=True)] = Seconds(0)
    """How long it takes until an endpoint that is new, or well again, gets all of its share; 0 = gets it at once."""
    zones: Zones | None = None
    """Which zones of endpoints come first; without it zones decide nothing."""
    host: Literal["preserve", "endpoint"] = "preserve"
    """What the upstream sees as its host: what the client asked for, or the endpoint's own name."""
    deadline_header: FieldName = ""
    """Field that tells it how many milliseconds are left of the client's deadline; empty = none does."""
    proxy_protocol: Literal["off", "v1", "v2"] = "off"
    """Version of the PROXY protocol that tells endpoints who the client is; no connection serves two clients then."""
    tls: UpstreamTls = field(default_factory=UpstreamTls)
    """For endpoints with TLS."""
    pool: PoolSettings = field(default_factory=PoolSettings)
    """Its connections."""
    timeouts: UpstreamTimeouts = field(default_factory=UpstreamTimeouts)
    """Clocks that differ from the gateway's."""
    health_check: HealthCheck | None = None
    """How its endpoints are looked at; without it they all count as well."""
    outliers: Outliers | None = None
    """When an endpoint that does worse than it should is left alone; without it none is."""
    circuit_breaker: CircuitBreaker | None = None
    """When requests that would most likely fail are not sent; without it all are."""
    retry: Retry = field(default_factory=Retry)
    """When a request is sent again."""
    hedge: Hedge | None = None
    """A second attempt while the first takes long; without it none."""
