"""
What only the whole file can tell: names that are given twice, names that are not known, listeners in each other's way.

The checks look at plain values and pass over whatever has the wrong type, for L{protogate.config.convert} reports that:
so an operator gets these faults in the same go.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

from protogate.config import address, units
from protogate.config.model import Discovery, ProxyProtocol, Target, Upstream
from protogate.config.nearest import hint
from protogate.config.scalar import shown
from protogate.errors import ConfigError

LEAST: Final = 128
"""Bytes that a limit must allow: below it every request would be refused."""

EVERYBODY: Final = ("0.0.0.0/0", "::/0")

_UPSTREAM_KEYS: Final = frozenset(Upstream.__struct_encode_fields__)
_DISCOVERY_KEYS: Final = frozenset(Discovery.__struct_encode_fields__)
_SOURCES: Final = ("dns", "file", "etcd", "consul", "plugin")
_PROXY_KEYS: Final = frozenset(ProxyProtocol.__struct_encode_fields__)
_TARGET_KEYS: Final = frozenset(Target.__struct_encode_fields__)

_PLACEHOLDER: Final = re.compile(r"/\{[^/{}]+\}(?:/|\Z)|/\*\*?/")

Path = tuple[str | int, ...]
Faults = list[ConfigError]
Seen = list[tuple[str | int, str, address.Listen]]
"""Index among the listeners, address as it is written, its parts."""


def _believed(value: dict[str, Any], warnings: Faults) -> None:
    """Whether everybody is believed who he is."""
    gateway = value.get("gateway")
    trusted = gateway.get("trustedProxies") if isinstance(gateway, dict) else None
    for index, text in enumerate(trusted if isinstance(trusted, list) else ()):
        if text in EVERYBODY:
            message = f"whoever connects is believed who he is: write the networks of your proxies, not {text}"
            warnings.append(ConfigError(message, ("gateway", "trustedProxies", index)))


def check(value: Any) -> tuple[Faults, Faults]:
    """Faults and warnings."""
    faults: Faults = []
    warnings: Faults = []
    if isinstance(value, dict):
        _limits(value, faults)
        _believed(value, warnings)
        _listeners(value, faults)
        _upstreams(value, faults, warnings)
        _targets(value, faults, warnings)
    return faults, warnings


def _limits(value: dict[str, Any], faults: Faults) -> None:
    gateway = value.get("gateway")
    limits = gateway.get("limits") if isinstance(gateway, dict) else None
    if not isinstance(limits, dict):
        return
    for name in ("requestLine", "headerLine", "headers", "responseHeaders"):
        if name in limits:
            try:
                size = units.size(limits[name])
            except ConfigError:
                continue
            if size < LEAST:
                message = f"expected at least {LEAST}B, got {shown(limits[name])}: every message would be refused"
                faults.append(ConfigError(message, ("gateway", "limits", name)))


def _listeners(value: dict[str, Any], faults: Faults) -> None:
    _unique(value, "listeners", faults)
    seen: Seen = []
    for index, item in _mappings(value, "listeners"):
        protocols = item.get("protocols")
        if isinstance(protocols, list):
            for place, name in enumerate(protocols):
                if isinstance(name, str) and name in protocols[:place]:
                    message = f"{shown(name)} is given twice"
                    faults.append(ConfigError(message, ("listeners", index, "protocols", place)))
        _beside(item, ("listeners", index), seen, faults)
        _proxies(item, ("listeners", index, "proxyProtocol"), faults)
    admin = value.get("admin")
    if isinstance(admin, dict):
        _beside(admin, ("admin",), seen, faults)


def _proxies(item: dict[str, Any], path: Path, faults: Faults) -> None:
    """Whether anybody may speak the PROXY protocol where it is spoken."""
    given, text = item.get("proxyProtocol"), item.get("address")
    if not isinstance(given, dict) or given.get("trusted", []) != [] or not isinstance(text, str):
        return
    if not set(given) - _PROXY_KEYS and not text.startswith("unix:"):
        message = "nobody is trusted here: write the networks of your proxies, e.g. 10.0.0.0/8"
        faults.append(ConfigError(message, (*path, "trusted") if "trusted" in given else path))


def _beside(item: dict[str, Any], path: Path, seen: Seen, faults: Faults) -> None:
    """Whether what listens here can be open beside those that were seen; then it is one of them."""
    text = item.get("address")
    if not isinstance(text, str):
        return
    try:
        parts = address.listen(text)
    except ConfigError:
        return
    for index, its, known in seen:
        if known.covers(parts):
            message = f"{shown(text)} cannot be open beside {shown(its)} of listeners[{index}]"
            faults.append(ConfigError(message, (*path, "address")))
            return
    seen.append((path[-1], text, parts))


def _upstreams(value: dict[str, Any], faults: Faults, warnings: Faults) -> None:
    _unique(value, "upstreams", faults)
    for index, item in _mappings(value, "upstreams"):
        path: Path = ("upstreams", index)
        endpoints = item.get("endpoints")
        bare = item.get("discovery") is None and ("endpoints" not in item or endpoints == [])
        if bare and not set(item) - _UPSTREAM_KEYS:  # else: an unknown key, reported as such
            message = "an upstream needs endpoints or discovery"
            faults.append(ConfigError(message, (*path, "endpoints") if "endpoints" in item else path))
        _discovery(item, (*path, "discovery"), faults)
        protocol = item.get("protocol")
        scheme = protocol if isinstance(protocol, str) else ""
        seen: dict[tuple[str, int], int] = {}
        for place, endpoint in _mappings(item, "endpoints"):
            text = endpoint.get("url")
            if not isinstance(text, str):
                continue
            where = (*path, "endpoints", place, "url")
            try:
                parts = address.origin(text, scheme=scheme)
            except ConfigError as error:
                faults.append(ConfigError(error.message, where))
                continue
            first = seen.setdefault((parts.host, parts.port), place)
            if first != place:
                message = f"{shown(text)} is endpoints[{first}] already; give that one the weight of both"
                faults.append(ConfigError(message, where))
        if item.get("discovery") is None and _weightless(item, "endpoints"):
            message = "every endpoint has weight 0: this upstream gets no request"
            warnings.append(ConfigError(message, (*path, "endpoints")))
        if item.get("discovery") is None and item.get("outliers") is not None and len(seen) == 1:
            message = "there is one endpoint, and the only one is never left alone: a circuitBreaker is for that"
            warnings.append(ConfigError(message, (*path, "outliers")))


def _discovery(item: dict[str, Any], path: Path, faults: Faults) -> None:
    """Whether endpoints are found in one way."""
    given = item.get("discovery")
    if not isinstance(given, dict) or set(given) - _DISCOVERY_KEYS:
        return
    named = [key for key in _SOURCES if given.get(key) not in (None, "", {})]
    if len(named) != 1:
        got = " and ".join(named) or "none"
        faults.append(ConfigError(f"expected exactly one of {', '.join(_SOURCES)}, got {got}", path))
    elif named == ["plugin"] and isinstance(given["plugin"], dict) and len(given["plugin"]) > 1:
        faults.append(ConfigError("expected one name, and what it is told", (*path, "plugin")))


def _targets(value: dict[str, Any], faults: Faults, warnings: Faults) -> None:
    upstreams = [(index, item.get("name")) for index, item in _mappings(value, "upstreams")]
    names = {name for _, name in upstreams if isinstance(name, str)}
    # One whose name cannot be read, which is a fault already, may be the one that is meant.
    listed = value.get("upstreams", [])
    known = isinstance(listed, list) and all(
        isinstance(item, dict) and isinstance(item.get("name"), str) for item in listed
    )
    used = _asked(value)
    for index, rule in _mappings(value, "routes"):
        _pattern(rule, ("routes", index, "value"), warnings)
        for place, entry in _mappings(rule, "routes"):
            path: Path = ("routes", index, "routes", place, "targets")
            for number, target in _mappings(entry, "targets"):
                name, url = target.get("upstream"), target.get("url")
                where = (*path, number)
                if name is None and url is None:
                    if not set(target) - _TARGET_KEYS:
                        faults.append(ConfigError("a target needs an upstream or a url", where))
                elif name is not None and url is not None:
                    faults.append(ConfigError("a target has an upstream or a url, not both", where))
                if "weight" in target and (target.get("gray") is not None or target.get("when") is not None):
                    message = "a target with gray or when is for these requests alone: its weight counts for nothing"
                    warnings.append(ConfigError(message, (*where, "weight")))
                if not isinstance(name, str):
                    continue
                used.add(name)
                if name not in names and known:
                    message = f"there is no upstream {shown(name)}; {hint(name, sorted(names))}"
                    faults.append(ConfigError(message, (*where, "upstream")))
            if _weightless(entry, "targets"):
                message = "every target has weight 0: requests that come here are answered with 503"
                warnings.append(ConfigError(message, path))
    for index, name in upstreams:
        if isinstance(name, str) and name not in used:
            message = f"no route sends anything to the upstream {shown(name)}, and no module asks it"
            warnings.append(ConfigError(message, ("upstreams", index, "name")))


def _pattern(rule: dict[str, Any], path: Path, warnings: Faults) -> None:
    """Whether a path is compared as it stands though it looks like a pattern."""
    text, kind = rule.get("value"), rule.get("matcherType", "exact")
    if rule.get("type", "uri") != "uri" or kind not in ("exact", "prefix") or not isinstance(text, str):
        return
    if text.endswith("/*"):
        below = text[:-2] or "/"
        message = f"the * stands for itself: for every path below it write {shown(below)} with matcherType: prefix"
        warnings.append(ConfigError(message, path))
    elif _PLACEHOLDER.search(text):
        message = "it is compared as it stands: for a placeholder write {name}, and matcherType: template"
        warnings.append(ConfigError(message, path))


def _asked(value: dict[str, Any]) -> set[str]:
    """Upstreams that parameters of modules, or sources of endpoints, name: C{upstream: name}, at any depth."""
    found: set[str] = set()
    left: list[Any] = [entry.get("actionParam") for _, entry in _mappings(value, "modules")]
    left += [entry.get("discovery") for _, entry in _mappings(value, "upstreams")]
    while left:
        each = left.pop()
        if isinstance(each, dict):
            name = each.get("upstream")
            if isinstance(name, str):
                found.add(name)
            left += each.values()
        elif isinstance(each, list):
            left += each
    return found


def _unique(value: dict[str, Any], key: str, faults: Faults) -> None:
    seen: dict[str, int] = {}
    for index, item in _mappings(value, key):
        name = item.get("name")
        if isinstance(name, str):
            first = seen.setdefault(name, index)
            if first != index:
                message = f"{shown(name)} is the name of {key}[{first}] already"
                faults.append(ConfigError(message, (key, index, "name")))


def _weightless(value: dict[str, Any], key: str) -> bool:
    weights = [item.get("weight", 100) for _, item in _mappings(value, key)]
    return bool(weights) and all(type(weight) is int and weight == 0 for weight in weights)


def _mappings(value: dict[str, Any], key: str) -> Iterator[tuple[int, dict[str, Any]]]:
    items = value.get(key)
    if isinstance(items, list):
        for index, item in enumerate(items):
            if isinstance(item, dict):
                yield index, item
