"""
What a configuration says about TLS, read and checked: what each listener offers, what each upstream is asked for.

Rules
- Pure, but for the files: no reactor, no socket.
- Whatever is asked for the same in the same words is one L{Client}: authorities of a system take a while to load.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from protogate.config import model
from protogate.config.address import SCHEMES
from protogate.config.faults import ConfigFaults
from protogate.config.stamp import Stamp
from protogate.errors import ConfigError
from protogate.interfaces import IStreamCodec
from protogate.tls import client as asked
from protogate.tls import server as offered
from protogate.tls.client import Client
from protogate.tls.files import Reading
from protogate.tls.layer import prepare
from protogate.tls.server import Server
from protogate.upstream.endpoint import codec_of, spoken

Path = tuple[str | int, ...]


@dataclass(frozen=True, slots=True)
class Sides:
    """
    @ivar servers: by the name of the listener.
    @ivar clients: by the name of the upstream, or the origin of one without a name.
    @ivar warnings: what is doubtful; paths are of the file.
    """

    servers: Mapping[str, Server]
    clients: Mapping[str, Client]
    warnings: Sequence[ConfigError] = ()

    @property
    def stamps(self) -> dict[str, Stamp | None]:
        """The files that all this was read from, in the state that they were in."""
        stamps: dict[str, Stamp | None] = {}
        for server in self.servers.values():
            stamps.update(server.stamps)
        for client in self.clients.values():
            stamps.update(client.stamps)
        return stamps

    def prepare(self, of_ssl: bool) -> None:
        """
        Make all contexts, which takes a while; in any thread.

        @raise ConfigError: the library does not take something.
        """
        for server in self.servers.values():
            prepare(server, of_ssl)
        for client in self.clients.values():
            prepare(client, of_ssl)


def sides(config: model.Config, codecs: Mapping[str, IStreamCodec], origins: Sequence[str]) -> Sides:
    """
    Read what a configuration needs.

    @param codecs: by name; what is missing is a fault of its own already.
    @param origins: of the upstreams without a name.
    @raise ConfigFaults: all that is wrong.
    """
    made = _Making(config, codecs, origins)
    if made.faults:
        raise ConfigFaults(made.faults)
    return Sides(made.servers, made.clients, made.warnings)


def renewed(
    before: Sides, config: model.Config, codecs: Mapping[str, IStreamCodec], origins: Sequence[str], of_ssl: bool
) -> tuple[Sides, Sequence[ConfigError]]:
    """
    Read it all again, after files have changed; in a thread.

    @param of_ssl: which contexts are made.
    @return: what is in force from now on: of what is broken now, and of what did not change, as it was before; and the
        faults.
    """
    made = _Making(config, codecs, origins)
    faults = list(made.faults)

    def ready(side: Server | Client) -> bool:
        try:
            prepare(side, of_ssl)
        except ConfigError as error:
            faults.append(error)
            return False
        return True

    servers, clients = dict(before.servers), dict(before.clients)
    for name, server in made.servers.items():
        if server != servers.get(name) and ready(server):
            servers[name] = server
    for name, client in made.clients.items():
        if client != clients.get(name) and ready(client):
            clients[name] = client
    return Sides(servers, clients, made.warnings), faults


class _Making:
    """All sides of a configuration, as far as they can be made, and what is wrong with the others."""

    def __init__(self, config: model.Config, codecs: Mapping[str, IStreamCodec], origins: Sequence[str]) -> None:
        self.servers: dict[str, Server] = {}
        self.clients: dict[str, Client] = {}
        self.faults: list[ConfigError] = []
        self.warnings: list[ConfigError] = []
        self._codecs = codecs
        self._known: dict[tuple[model.UpstreamTls, str], Client] = {}
        for index, listener in enumerate(config.listeners):
            self._listener(listener, ("listeners", index, "tls"))
        for index, upstream in enumerate(config.upstreams):
            self._upstream(upstream, ("upstreams", index, "tls"))
        for origin in origins:
            if SCHEMES[origin.partition("://")[0]].tls:
                self._ask(origin, model.UpstreamTls(), codec_of(origin), ())

    def _listener(self, listener: model.Listener, path: Path) -> None:
        """One that has TLS."""
        if listener.tls is None:
            return
        tokens: dict[bytes, None] = {}
        for name in listener.protocols:
            if name in self._codecs:
                tokens.update(dict.fromkeys(self._codecs[name].alpn))
        reading = Reading()
        try:
            self.servers[listener.name] = offered.server(listener.tls, tuple(tokens), reading)
        except ConfigFaults as found:
            self._keep(found.faults, path)
        self._warn(reading, path)

    def _upstream(self, upstream: model.Upstream, path: Path) -> None:
        """One that has TLS, or is told how although it has none."""
        schemes = [endpoint.url.partition("://")[0].lower() for endpoint in upstream.endpoints]
        if upstream.discovery is not None:
            schemes.append(upstream.discovery.scheme)
        if any(scheme in SCHEMES and SCHEMES[scheme].tls for scheme in schemes):
            try:
                codec = spoken(upstream)
            except ConfigFaults:  # told by who looks for the codecs
                return
            self._ask(upstream.name, upstream.tls, codec, path)
        elif upstream.tls != model.UpstreamTls():
            self.warnings.append(ConfigError("no endpoint is spoken to over TLS: their URLs begin with https://", path))

    def _ask(self, name: str, config: model.UpstreamTls, codec: str, path: Path) -> None:
        """What that upstream is asked for."""
        known = self._known.get((config, codec))
        if known is None:
            spoken_by = self._codecs.get(codec)  # or it is missing, and a fault
            reading = Reading()
            try:
                tokens = () if spoken_by is None else tuple(spoken_by.alpn)
                known = self._known[config, codec] = asked.client(config, tokens, reading)
            except ConfigFaults as found:
                self._keep(found.faults, path)
                return
            finally:
                self._warn(reading, path)
        self.clients[name] = known

    def _keep(self, faults: Sequence[ConfigError], path: Path) -> None:
        self.faults += [ConfigError(fault.message, (*path, *fault.path)) for fault in faults]

    def _warn(self, reading: Reading, path: Path) -> None:
        self.warnings += [ConfigError(warning.message, (*path, *warning.path)) for warning in reading.warnings]
