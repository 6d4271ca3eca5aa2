"""
The instances of a service in Consul, by blocking queries (C{/v1/health/service/NAME?index=…&wait=…}).

Rules
- A question says which state it knows, and Consul keeps it until there is another one, or C{wait} is over: what changes
  is known at once, and nothing is asked every few seconds.
- The index only goes forward; where it does not, Consul was set back, and the next question asks for all.
- At most one question a second, whatever Consul says.
- Weights are those of C{Service.Weights.Passing} times 100; where one goes beyond 1000, all are scaled down.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final
from urllib.parse import quote, urlencode

from zope.interface import implementer

from protogate.config import model
from protogate.config.address import spelled
from protogate.config.faults import under
from protogate.config.scalar import shown
from protogate.discovery.conversation import PATIENCE, Conversation, located, refused, target
from protogate.discovery.entries import HEAVIEST, WEIGHT, Entry, Legible, legible
from protogate.discovery.secret import secret
from protogate.errors import ConfigError
from protogate.governance.asking import Question
from protogate.identity import strictjson
from protogate.interfaces import IDiscoveryFactory
from protogate.upstream.endpoint import Place

LEAST: Final = 1.0
"""Seconds between two questions."""
SPREAD: Final = 1 + 1 / 16
"""Consul waits up to so much longer than it was asked to, by chance."""
_INDEX: Final = re.compile(rb"[0-9]{1,19}").fullmatch
_GONE: Final = ("critical", "maintenance")


class Consul(Conversation):
    """@raise ConfigError: what is wrong with the token; its path begins with C{token}."""

    def __init__(self, question: Question, path: tuple[str | int, ...], options: model.Consul, entry: Entry) -> None:
        super().__init__(question, path, options.token is not None)
        self.patience = float(options.wait) * SPREAD
        self._entry, self._passing, self._place = entry, options.passing, options.token
        self._token = b""
        if options.token is not None:
            try:
                self._token = secret(options.token)
            except ConfigError as fault:
                raise under(fault, "token") from None
        asked = [("tag", tag) for tag in options.tags]
        if options.passing:
            asked.append(("passing", "true"))
        if options.datacenter:
            asked.append(("dc", options.datacenter))
        self._wait = f"{max(int(float(options.wait) * 1000), 1)}ms"
        self._asked = asked
        self._path = f"/v1/health/service/{quote(options.service, safe='')}".encode("ascii")
        self._index = 0
        self._places: list[Place] = []

    async def talk(self) -> None:
        """L{Conversation}: one question."""
        wheel = self.findings.wheel
        began = wheel.now()
        asked = [*self._asked, ("index", str(self._index)), ("wait", self._wait)]
        headers = [(b"x-consul-token", self._token)] if self._token else []
        path = self._path + b"?" + urlencode(asked).encode("ascii")
        request = self.question.request(headers=headers, target=target(self.question, path))
        answer = await self.ask(request, self.patience + PATIENCE)
        if answer.status != 200:
            self._index = 0
            if self._place is not None and answer.status in (401, 403):
                self._token = await self.think(secret, self._place)  # it may have been changed
            raise refused(answer)
        given = answer.headers.get(b"x-consul-index") or b""
        index = int(given) if _INDEX(given) else 0
        if not index:
            raise ValueError("it tells no index: this is no Consul")
        if index != self._index:
            places, faults = await self.think(_read, answer.content, self._entry, self._passing)
            self._places = list(places.values())
            self.complain(faults)
        self._index = index if index > self._index else 0 if index < self._index else index
        self.well()
        self.findings.found(self._places)
        await self.sleep(max(began + LEAST - wheel.now(), 0.0))


def _read(content: bytes, entry: Entry, passing: bool) -> Legible:
    """The instances of an answer; in a thread."""
    found = strictjson.value(content)
    if not isinstance(found, list):
        raise ValueError(f"expected a list, got {shown(found)}: this is no Consul")
    instances = [each for each in map(_mapping, found) if passing or not _ails(each)]
    heaviest = max(map(_passing, instances), default=1)
    scale = min(float(WEIGHT), HEAVIEST / heaviest)
    return legible(_entries(instances, scale), entry)


def _entries(instances: list[Mapping[str, Any]], scale: float) -> Iterator[tuple[str, object]]:
    """Each with a name."""
    for each in instances:
        node, service = _mapping(each.get("Node")), _mapping(each.get("Service"))
        host, port = service.get("Address") or node.get("Address"), service.get("Port")
        url = spelled(host, port) if isinstance(host, str) and type(port) is int else ""
        weight = max(round(_passing(each) * scale), 1)
        yield str(service.get("ID", "")), {"url": url, "weight": weight, "zone": _zone(node, service)}


def _mapping(value: object) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise ValueError(f"expected a mapping, got {shown(value)}: this is no Consul")
    return value


def _passing(instance: Mapping[str, Any]) -> int:
    """Its weight in Consul."""
    weights = _mapping(instance.get("Service")).get("Weights")
    weight = weights.get("Passing") if isinstance(weights, dict) else None
    return weight if type(weight) is int and weight > 0 else 1


def _ails(instance: Mapping[str, Any]) -> bool:
    """Whether a check of it fails."""
    checks = instance.get("Checks")
    return any(_mapping(check).get("Status") in _GONE for check in (checks if isinstance(checks, list) else ()))


def _zone(node: Mapping[str, Any], service: Mapping[str, Any]) -> str:
    """Where it is, as far as Consul knows."""
    for each in (service, node):
        for key, name in (("Locality", "Zone"), ("Meta", "zone")):
            inner = each.get(key)
            zone = inner.get(name) if isinstance(inner, dict) else None
            if isinstance(zone, str) and zone:
                return zone
    return ""


@implementer(IDiscoveryFactory)
class ConsulFactory:
    """Makes L{Consul}."""

    name = "consul"
    options = model.Consul

    def build(self, options: model.Consul, entry: Entry) -> Consul:
        """L{IDiscoveryFactory}."""
        question, path = located(options)
        return Consul(question, path, options, entry)
