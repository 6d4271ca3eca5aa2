"""A name server without a network: what C{protogate.upstream.resolver.Resolver} asks in a memory gateway."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from typing import Any, Final

from twisted.internet.defer import Deferred, fail, succeed
from twisted.names import dns
from twisted.names.common import ResolverBase
from twisted.names.error import DNSNameError

TTL: Final = 60

Service = tuple[int, int, int, str]
"""Priority, weight, port, host of an SRV record."""


class Names(ResolverBase):
    """
    @ivar hosts: addresses of each name, in their text form; change it at will.
    @ivar services: SRV records of each name.
    @ivar ttl: seconds, of every answer.
    @ivar asked: the names asked for so far.
    """

    def __init__(
        self,
        hosts: Mapping[str, list[str]] | None = None,
        services: Mapping[str, list[Service]] | None = None,
        ttl: int = TTL,
    ) -> None:
        super().__init__()
        self.hosts = dict(hosts or {})
        self.services = dict(services or {})
        self.ttl = ttl
        self.asked: list[str] = []

    def _lookup(self, name: bytes, cls: int, type: int, timeout: object) -> Deferred[Any]:  # noqa: A002 - Twisted's
        host = name.decode("ascii").lower().rstrip(".")
        self.asked.append(host)
        if host not in self.hosts and host not in self.services:
            return fail(DNSNameError(f"Names does not know {host!r}"))
        records: list[Any] = []
        for text in self.hosts.get(host, ()):
            six = ipaddress.ip_address(text).version == 6
            if type == (dns.AAAA if six else dns.A):
                records.append((dns.Record_AAAA if six else dns.Record_A)(text, self.ttl))
        if type == dns.SRV:
            records += [dns.Record_SRV(*service, ttl=self.ttl) for service in self.services.get(host, ())]
        return succeed(([dns.RRHeader(name, type, cls, self.ttl, record) for record in records], [], []))
