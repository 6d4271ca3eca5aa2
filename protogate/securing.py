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
from protogate.errors import ConfigError
from protogate.interfaces import IStreamCodec
from protogate.tls.client import Client, client
from protogate.tls.files import Reading
from protogate.tls.layer import prepare
from protogate.tls.server import Server, server
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

    def prepare(self, of_ssl: bool) -> None:
        """
        Make all contexts, which takes a while; in any thread.

        @raise ConfigError: the library does not take something.
        """
        everybody: list[Server | Client] = [*self.servers.values(), *self.clients.values()]
        for side in everybody:
            prepare(side, of_ssl)


def sides(config: model.Config, codecs: Mapping[str, IStreamCodec], origins: Sequence[str]) -> Sides:
    """
    Read what a configuration needs.

    @param codecs: by name; what is missing is a fault of its own already.
    @param origins: of the upstreams without a name.
    @raise ConfigFaults: all that is wrong.
    """
    made = _Making(codecs)
    for index, listener in enumerate(config.listeners):
        made.listener(listener, ("listeners", index, "tls"))
    for index, upstream in enumerate(config.upstreams):
        made.upstream(upstream, ("upstreams", index, "tls"))
    for origin in origins:
        if SCHEMES[origin.partition("://")[0]].tls:
            made.ask(origin, model.UpstreamTls(), codec_of(origin), ())
    if made.faults:
        raise ConfigFaults(made.faults)
    return Sides(made.servers, made.clients, made.warnings)


class _Making:
    def __init__(self, codecs: Mapping[str, IStreamCodec]) -> None:
        self.servers: dict[str, Server] = {}
        self.clients: dict[str, Client] = {}
        self.faults: list[ConfigError] = []
        self.warnings: list[ConfigError] = []
        self._codecs = codecs
        self._known: dict[tuple[model.UpstreamTls, str], Client] = {}

    def listener(self, listener: model.Listener, path: Path) -> None:
        """One that has TLS."""
        if listener.tls is None:
            return
        offered: dict[bytes, None] = {}
        for name in listener.protocols:
            if name in self._codecs:
                offered.update(dict.fromkeys(self._codecs[name].alpn))
        reading = Reading()
        try:
            self.servers[listener.name] = server(listener.tls, tuple(offered), reading)
        except ConfigFaults as found:
            self._keep(found.faults, path)
        self._warn(reading, path)

    def upstream(self, upstream: model.Upstream, path: Path) -> None:
        """One that has TLS, or is told how although it has none."""
        schemes = [endpoint.url.partition("://")[0].lower() for endpoint in upstream.endpoints]
        if upstream.discovery is not None:
            schemes.append(upstream.discovery.scheme)
        if any(scheme in SCHEMES and SCHEMES[scheme].tls for scheme in schemes):
            try:
                codec = spoken(upstream)
            except ConfigFaults:  # told by who looks for the codecs
                return
            self.ask(upstream.name, upstream.tls, codec, path)
        elif upstream.tls != model.UpstreamTls():
            self.warnings.append(ConfigError("no endpoint is spoken to over TLS: their URLs begin with https://", path))

    def ask(self, name: str, config: model.UpstreamTls, codec: str, path: Path) -> None:
        """What that upstream is asked for."""
        known = self._known.get((config, codec))
        if known is None:
            if codec not in self._codecs:
                return
            reading = Reading()
            try:
                known = self._known[config, codec] = client(config, tuple(self._codecs[codec].alpn), reading)
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
