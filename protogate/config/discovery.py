"""Where the endpoints of an upstream are found, as frozen types: see L{protogate.config.model}."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import Meta, field

from protogate.config.words import Model, Resolvable, Seconds, Url, within


class Secret(Model, frozen=True, kw_only=True):
    """Where a secret stands: exactly one of file and env.  It never stands in the configuration itself."""

    file: str = ""
    """File with it; relative to the configuration file."""
    env: str = ""
    """Variable of the environment."""


class Etcd(Model, frozen=True, kw_only=True):
    """Keys of an etcd, each with an endpoint."""

    upstream: str | None = None
    """Upstream that is the etcd; exactly one of upstream and url."""
    url: Url | None = None
    """http://host:port or https://host:port of it."""
    prefix: Annotated[str, Meta(min_length=1)]
    """What the keys begin with."""
    username: str = ""
    """Who to be there; empty = nobody."""
    password: Secret | None = None
    """Where the password stands; with a username."""
    token: Secret | None = None
    """Where a token stands that somebody else has made, in place of both."""


class Consul(Model, frozen=True, kw_only=True):
    """Instances of a service in Consul."""

    upstream: str | None = None
    """Upstream that is the Consul; exactly one of upstream and url."""
    url: Url | None = None
    """http://host:port or https://host:port of it."""
    service: Annotated[str, Meta(min_length=1)]
    """Name of the service."""
    tags: tuple[str, ...] = ()
    """Tags that an instance must have, all of them."""
    datacenter: str = ""
    """Datacenter; empty = that of the agent."""
    passing: bool = True
    """Whether instances whose checks warn are left out, too; those whose checks fail always are."""
    wait: Annotated[Seconds, within(1, 600)] = Seconds(20)
    """How long Consul may keep a question that has no news; less than timeouts.responseHead."""
    token: Secret | None = None
    """Where the token stands; without it there is none."""


class Discovery(Model, frozen=True, kw_only=True):
    """Where endpoints are found: exactly one of dns, file, etcd, consul and plugin."""

    dns: Resolvable | None = None
    """host:port for A and AAAA; _service._tcp.host for SRV."""
    file: str = ""
    """File with a list of endpoints, in YAML or JSON; relative to the configuration file."""
    etcd: Etcd | None = None
    """Keys of an etcd."""
    consul: Consul | None = None
    """Instances of a service in Consul."""
    plugin: dict[str, Any] = field(default_factory=dict)
    """What a distribution of others brings: its name, and what it is told."""
    scheme: Literal["http", "https", "ws", "wss", "h2c", "h2", "grpc", "grpcs", "tls"] = "http"
    """How what was found is spoken to, as in the URL of an endpoint."""
    stale_for: Seconds = Seconds(72 * 3600)
    """How long endpoints are used after their source was heard of last; 0 = for ever."""
    empty_for: Seconds = Seconds(60)
    """How long a source must say that there are no endpoints any more before it is believed; 0 = at once."""
