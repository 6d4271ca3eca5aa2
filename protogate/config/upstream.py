"""An upstream of a configuration file, as frozen types: see L{protogate.config.model}."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, field

from protogate.config.words import (
    Count,
    FieldName,
    Model,
    RequestPath,
    Resolvable,
    Seconds,
    Statuses,
    Weight,
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
    """Where it is, for people: it decides nothing in this release."""


class Discovery(Model, frozen=True, kw_only=True):
    """Where endpoints are looked up, by the TTL of the answer."""

    dns: Resolvable
    """host:port for A and AAAA; _service._tcp.host for SRV."""
    scheme: Literal["http", "https", "ws", "wss", "h2c", "h2", "grpc", "grpcs", "tls"] = "http"
    """How what was found is spoken to, as in the URL of an endpoint."""


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


class HealthCheck(Model, frozen=True, kw_only=True):
    """How each endpoint is looked at, on a connection of its own."""

    type: Literal["http", "grpc", "connect"] = "http"
    """Ask for a path, by the protocol of health checks of gRPC, or for nothing: to be connected is enough."""
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
    timeout: Seconds = Seconds(2)
    """How long one may take, connecting included."""
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
    balance: Literal["weighted"] = "weighted"
    """How a server is picked: smooth weighted round-robin."""
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
