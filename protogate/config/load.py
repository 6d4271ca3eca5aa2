"""
A configuration file, from its name to the checked model.

L{load} is a function of the file alone: it changes nothing, keeps nothing, and may run in a thread.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

import msgspec

from protogate.config import document
from protogate.config.checks import check
from protogate.config.convert import convert
from protogate.config.document import LARGEST, Document
from protogate.config.faults import ConfigFaults, at
from protogate.config.model import Config, Discovery, ListenerTls, Secret, UpstreamTls
from protogate.config.salvage import Salvage
from protogate.config.stamp import Stamp, stamp
from protogate.errors import ConfigError

Source = tuple[bytes, Stamp | None]
"""The content of a file, and the state in which it was read."""

_CHUNK: Final = 1 << 20


class Loaded:
    """
    A configuration, and where in the file each of its values stands.

    @ivar config: the model.
    @ivar warnings: what is most probably not meant, in the order of the file; see L{describe}.
    @ivar name: of the file, as it was given.
    @ivar stamp: the state of the file that was read, for L{protogate.config.watch.FileWatch}; None if it was no file.
    """

    __slots__ = ("_document", "config", "name", "stamp", "warnings")

    def __init__(
        self, config: Config, document: Document, warnings: Iterable[ConfigError] = (), stamp: Stamp | None = None
    ) -> None:
        self.config, self.name, self.stamp = config, document.name, stamp
        self._document = document
        self.warnings = sorted(warnings, key=document.where)

    def position(self, path: Sequence[str | int]) -> tuple[int, int]:
        """
        Line and column, both from 1, of the value at C{path} (C{camelCase} keys, as in the file); of what is around it
        when the file leaves it out.
        """
        return self._document.position(path)

    def describe(self, error: ConfigError) -> str:
        """C{gateway.yaml:42:7: routes[3].targets[0].weight: expected …}."""
        return self._document.describe(error)

    def forget(self) -> None:
        """Everything was told: keep no places.  They are worked out anew should somebody ask after all."""
        self._document.forget()

    def faults(self, errors: Sequence[ConfigError]) -> ConfigFaults:
        """What builders found later, in the order of the file and ready to be printed."""
        return self._document.faults(errors)


class Rest:
    """See L{protogate.config.faults.Rest}."""

    def __init__(self, document: Document, salvage: Salvage, config: Config, faults: Sequence[ConfigError]) -> None:
        self.config = config
        self._document, self._salvage, self._faults = document, salvage, faults

    def faults(self, more: Sequence[ConfigError]) -> ConfigFaults:
        known = {fault.path for fault in self._faults}
        found = [at(fault, self._salvage.place(fault.path)) for fault in more]
        new = [fault for fault in found if fault.path not in known]
        return self._document.faults([*self._faults, *new])


def load(path: str | os.PathLike[str], source: Source | None = None) -> Loaded:
    """
    Read and check the file at C{path}.

    @param source: its content, where it has been read already.
    @raise ConfigFaults: everything that is wrong with it, in the order of the file.
    """
    name = os.fspath(path)
    data, stamp = read(name) if source is None else source
    loaded = loads(data, name)
    loaded.stamp = stamp
    return loaded


def loads(data: bytes, name: str) -> Loaded:
    """
    Check C{data} as the content of the file C{name}, whose folder relative paths refer to.

    @raise ConfigFaults: everything that is wrong with it, in the order of the file.
    """
    parsed = document.parse(data, name)
    config, faults = convert(parsed.value)
    more, warnings = check(parsed.value)
    early = {fault.path for fault in parsed.early}  # nothing is right about what stands there
    faults = [fault for fault in (*faults, *more) if not any(fault.path[: len(path)] == path for path in early)]
    faults += parsed.early
    if config is None or faults:
        error = parsed.faults(faults)
        salvage = Salvage(parsed.value, faults)
        if salvage.config is not None:
            error.rest = Rest(parsed, salvage, salvage.config, faults)
        raise error
    parsed.value = None  # nobody needs it any more
    return Loaded(_rooted(config, os.path.dirname(name)), parsed, warnings)


def _rooted(config: Config, folder: str) -> Config:
    """The configuration with absolute paths."""

    def path(text: str) -> str:
        return os.path.abspath(os.path.join(folder, text)) if text else ""

    with_ = msgspec.structs.replace
    log = config.access_log
    if log is not None and log.file != "-":
        config = with_(config, access_log=with_(log, file=path(log.file)))

    def serving(tls: ListenerTls) -> ListenerTls:
        pairs = tuple(with_(pair, cert=path(pair.cert), key=path(pair.key)) for pair in tls.certificates)
        auth = tls.client_auth
        return with_(tls, certificates=pairs, client_auth=None if auth is None else with_(auth, ca=path(auth.ca)))

    def asking(tls: UpstreamTls) -> UpstreamTls:
        return with_(tls, ca=path(tls.ca), cert=path(tls.cert), key=path(tls.key))

    listeners = tuple(each if each.tls is None else with_(each, tls=serving(each.tls)) for each in config.listeners)
    modules = tuple(with_(each, action_param=_filed(each.action_param, path)) for each in config.modules)
    plain = UpstreamTls()
    upstreams = tuple(each if each.tls == plain else with_(each, tls=asking(each.tls)) for each in config.upstreams)
    upstreams = tuple(
        each if each.discovery is None else with_(each, discovery=_sought(each.discovery, path)) for each in upstreams
    )
    return with_(config, listeners=listeners, upstreams=upstreams, modules=modules)


def _sought(discovery: Discovery, path: Callable[[str], str]) -> Discovery:
    """With absolute paths."""
    with_ = msgspec.structs.replace

    def secret(place: Secret | None) -> Secret | None:
        return None if place is None else with_(place, file=path(place.file))

    etcd, consul = discovery.etcd, discovery.consul
    return with_(
        discovery,
        file=path(discovery.file),
        etcd=None if etcd is None else with_(etcd, password=secret(etcd.password), token=secret(etcd.token)),
        consul=None if consul is None else with_(consul, token=secret(consul.token)),
        plugin=_filed(discovery.plugin, path),
    )


def _filed(value: Any, path: Callable[[str], str]) -> Any:
    """A parameter of a module, or of what others bring: what is called C{file} in it is a path."""
    if isinstance(value, dict):
        return {
            name: path(inner) if name == "file" and isinstance(inner, str) else _filed(inner, path)
            for name, inner in value.items()
        }
    if isinstance(value, list) and any(isinstance(inner, (dict, list)) for inner in value):
        return [_filed(inner, path) for inner in value]
    return value


def read(name: str) -> Source:
    """
    All of a file.  Not blocked by a FIFO that nobody writes.

    @raise ConfigFaults: it cannot be read.
    """
    try:
        handle = os.open(name, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else str(error)
        raise document.broken(name, f"the file cannot be opened: {why}") from None
    try:
        status = os.fstat(handle)
        if stat.S_ISDIR(status.st_mode):
            raise document.broken(name, "this is a folder; name a file within it")
        chunks = []
        left = LARGEST + 1
        while left > 0:
            chunk = os.read(handle, min(left, _CHUNK))
            if not chunk:
                break
            chunks.append(chunk)
            left -= len(chunk)
    except OSError as error:
        raise document.broken(name, f"the file cannot be read: {error.strerror}") from None
    finally:
        os.close(handle)
    return b"".join(chunks), stamp(status)
