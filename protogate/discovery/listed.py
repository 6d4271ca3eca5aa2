"""
A file with a list of endpoints, in YAML or JSON: looked at each second, and read anew when it has changed.

    - {url: "http://10.0.0.11:8080", weight: 50, zone: a}
    - 10.0.0.12:8080

Rules
- Whoever writes it writes all of it: a fault in one entry is a fault of the file, and the list before stays in use.
- It is read when the configuration is loaded, and its faults are the configuration's then.  Where that was in force
  already, as when a worker is replaced, they are trouble of the source.
- It is read in a thread, one reading at a time.
"""

from __future__ import annotations

from typing import Any, Final

from twisted.internet.defer import Deferred
from twisted.internet.threads import deferToThreadPool
from twisted.logger import Logger
from twisted.python.failure import Failure
from zope.interface import implementer

from protogate.config.document import parse
from protogate.config.faults import AtKey, ConfigFaults, under
from protogate.config.forgiven import forgiven
from protogate.config.nearest import hint
from protogate.config.scalar import shown
from protogate.config.stamp import Stamp, read
from protogate.config.watch import FileWatch
from protogate.discovery.entries import MOST, Entry
from protogate.errors import ConfigError
from protogate.interfaces import IDiscovery, IDiscoveryFactory
from protogate.quiet import quiet
from protogate.upstream.discovery import Findings
from protogate.upstream.endpoint import Place

LARGEST: Final = 8 << 20
"""Bytes of the file."""
KEYS: Final = ("url", "weight", "zone")
"""What may be said about an endpoint."""

_log = Logger()
Reading = tuple[tuple[Place, ...], Stamp]


@implementer(IDiscovery)
class Listed:
    """
    @param path: absolute.
    @raise ConfigError: it cannot be read or used, and that is not L{forgiven}.
    """

    patience = 0.0

    def __init__(self, path: str, entry: Entry) -> None:
        self.asks: dict[str, Any] = {}
        self._path, self._entry = path, entry
        self._places: tuple[Place, ...] = ()
        self._stamp: Stamp | None = None
        self._trouble = ""
        try:
            self._places, self._stamp = reading(path, entry)
        except ConfigError as error:
            if not forgiven():
                raise
            self._trouble = str(error)
        self._findings: Findings | None = None
        self._watch: FileWatch | None = None
        self._busy = self._again = False

    def start(self, findings: Findings) -> None:
        """L{IDiscovery}."""
        self._findings = findings
        self._watch = FileWatch(self._path, self._changed, findings.wheel, gone=self._gone)
        self._watch.start(self._stamp)
        if self._trouble:
            findings.failed(self._trouble)
            self._changed()  # it may have been mended since
        else:
            findings.found(self._places)

    def stop(self) -> None:
        """L{IDiscovery}."""
        self._findings = None
        watch, self._watch = self._watch, None
        if watch is not None:
            watch.stop()

    def _gone(self) -> None:
        if self._findings is not None:
            self._findings.failed("there is no such file any more")

    def _changed(self) -> None:
        findings = self._findings
        if findings is None:
            return
        if self._busy:
            self._again = True
            return
        self._busy, self._again = True, False
        reactor = findings.reactor
        work: Deferred[Reading] = deferToThreadPool(reactor, reactor.getThreadPool(), reading, self._path, self._entry)
        work.addCallbacks(self._read, self._failed).addBoth(self._over)

    def _read(self, made: Reading) -> None:
        self._places, self._stamp = made
        if self._findings is not None:
            if self._watch is not None:
                self._watch.known(self._stamp)
            self._findings.found(self._places)

    def _failed(self, failure: Failure) -> None:
        if not failure.check(ConfigError):
            _log.failure("{path} cannot be read", failure, path=self._path)
        if self._findings is not None:
            self._findings.failed(failure.getErrorMessage())

    def _over(self, _: object) -> None:
        self._busy = False
        if self._again:
            self._changed()


def reading(path: str, entry: Entry) -> Reading:
    """
    What a file says, and in which state it was read.

    @raise ConfigError: it cannot be read or used: where, and why.
    """
    with quiet:
        try:
            data, stamp = read(path, LARGEST)
            return places(data, path, entry), stamp
        except ConfigFaults as faults:
            raise ConfigError(faults.lines[0]) from None
        except ValueError as error:
            raise ConfigError(f"{path}: {error}") from None


def places(data: bytes, path: str, entry: Entry) -> tuple[Place, ...]:
    """
    The endpoints of a list.

    @param path: of the file, for people.
    @raise ValueError: what is wrong with it.
    @raise ConfigFaults: the same, with its place in the file.
    """
    if not any(line.strip() and not line.lstrip().startswith(b"#") for line in data.splitlines()):
        raise ValueError("the file is empty; no endpoints are written []")
    document = parse(data, path)
    if document.early:
        raise document.faults(document.early)
    if not isinstance(document.value, list):
        raise document.faults([ConfigError(f"expected a list of endpoints, got {shown(document.value)}")])
    if len(document.value) > MOST:
        raise ValueError(f"more than {MOST} endpoints")
    found: dict[tuple[str, int, str], int] = {}
    made: list[Place] = []
    faults: list[ConfigError] = []
    for index, value in enumerate(document.value):
        try:
            place = _place(value, entry)
            first = found.setdefault(place.key, index)
            if first != index:
                raise ConfigError(f"this is [{first}] already; give that one the weight of both")
            made.append(place)
        except ConfigError as error:
            faults.append(under(error, index))
    if faults:
        raise document.faults(faults)
    return tuple(made)


def _place(value: object, entry: Entry) -> Place:
    if isinstance(value, dict):
        for key in value:
            if key not in KEYS:
                raise AtKey(f"unknown key; {hint(key, KEYS)}", (key,))
    return entry(value)


@implementer(IDiscoveryFactory)
class ListedFactory:
    """Makes L{Listed}."""

    name = "file"
    options = str

    def build(self, options: str, entry: Entry) -> Listed:
        """L{IDiscoveryFactory}."""
        return Listed(options, entry)
