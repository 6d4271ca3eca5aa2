"""The tables of the documentation say what the source says."""

from __future__ import annotations

import ast
import re
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from pages import DOCS, ROOT, codes, table, tables
from protogate.config import model
from protogate.config.load import loads
from protogate.config.schema import configurable
from protogate.config.units import written
from protogate.expression.names import CONDITION, RESPONSE, TEMPLATE
from protogate.governance.stages import STAGES
from protogate.interfaces import IModuleFactory
from protogate.message import Request
from protogate.observe.schema import Durations, Record
from protogate.plugins import find, names
from protogate.routing.rules import forwarded
from protogate.routing.table import TYPES, Router
from protogate.testing.gateway import MemoryGateway
from protogate.testing.upstream import Expect
from protogate.uri import canonical

MODELS = {
    "`gateway`": model.Gateway,
    "`gateway.timeouts`": model.GatewayTimeouts,
    "`gateway.limits`": model.GatewayLimits,
    "`gateway.overload`": model.Overload,
    "`gateway.overload.lag`": model.LagMarks,
    "`gateway.overload.memory`": model.Marks,
    "`gateway.overload.priorities[]`": model.Priority,
    "`listeners`": model.Listener,
    "`listeners[].tls`": model.ListenerTls,
    "`listeners[].tls.certificates[]`": model.CertificateFiles,
    "`listeners[].tls.clientAuth`": model.ClientAuth,
    "`listeners[].proxyProtocol`": model.ProxyProtocol,
    "`upstreams`": model.Upstream,
    "`upstreams[].endpoints[]`": model.Endpoint,
    "`upstreams[].hash`": model.Hash,
    "`upstreams[].zones`": model.Zones,
    "`upstreams[].discovery`": model.Discovery,
    "`upstreams[].discovery.etcd`": model.Etcd,
    "`upstreams[].discovery.consul`": model.Consul,
    "`upstreams[].discovery.etcd.password`": model.Secret,
    "`upstreams[].tls`": model.UpstreamTls,
    "`upstreams[].pool`": model.PoolSettings,
    "`upstreams[].healthCheck`": model.HealthCheck,
    "`upstreams[].outliers`": model.Outliers,
    "`upstreams[].circuitBreaker`": model.CircuitBreaker,
    "`upstreams[].retry`": model.Retry,
    "`upstreams[].hedge`": model.Hedge,
    "`upstreams[].timeouts`": model.UpstreamTimeouts,
    "`routes`": model.Rule,
    "`routes[].routes[]`": model.Entry,
    "`routes[].routes[].targets[]`": model.Target,
    "`routes[].routes[].targets[].hold`": model.Hold,
    "`routes[].routes[].targets[].rewrite`": model.Rewrite,
    "`routes[].routes[].sticky`": model.Sticky,
    "`modules`": model.Module,
    "`accessLog`": model.AccessLog,
    "`admin`": model.Admin,
}
"""Headings of the configuration page, and what their table is about."""


def shown(field: Any) -> str:
    """The default of a key, as its table has it."""
    if field.required:
        return "required"
    default = field.default if field.default is not msgspec.NODEFAULT else field.default_factory()
    if isinstance(default, model.Model):
        return "see below"
    if default is None or default in ("", (), {}):
        return "none"
    if isinstance(default, model.Seconds | model.Bytes):
        text = written(default)
    elif isinstance(default, bool):
        text = str(default).lower()
    elif isinstance(default, tuple):
        text = f"[{', '.join(default)}]"
    else:
        text = f"{default:g}" if isinstance(default, float) else str(default)
    return f"`{text}`"


MODELS |= {f"`codecs.{name}`": kind for name, kind in configurable()}


def models(root: Any) -> set[Any]:
    """Every object of the file."""
    found: set[Any] = set()
    stack = [root]
    while stack:
        one = stack.pop()
        if isinstance(one, type) and issubclass(one, model.Model):
            if one not in found:
                found.add(one)
                stack += list(typing.get_type_hints(one).values())
        else:
            stack += list(typing.get_args(one))
    return found


def test_every_object_of_the_file_has_a_table() -> None:
    described = models(model.Config) | {kind for _, kind in configurable()}
    assert described == {model.Config, *MODELS.values()}


@pytest.mark.parametrize("heading", MODELS)
def test_a_table_of_keys_has_every_key_with_its_default(heading: str) -> None:
    (rows,) = [rows for title, rows in tables(DOCS / "configuration.md") if title == heading]
    assert rows[0] == ["Key", "Default", "Meaning"]
    got = {codes(key)[0]: default.replace("`60s`", "`1m`") for key, default, _ in rows[1:]}
    assert got == {field.encode_name: shown(field) for field in msgspec.structs.fields(MODELS[heading])}


def router(type_: str, kind: str, value: str, url: str = "http://x:80") -> Router:
    """Of one rule with one target."""
    rule = {"type": type_, "matcherType": kind, "value": value, "routes": [{"targets": [{"url": url}]}]}
    config = {"listeners": [{"name": "web", "address": "127.0.0.1:8080"}], "routes": [rule]}
    loaded = loads(msgspec.json.encode(config), "test.json").config
    return Router(loaded.routes, loaded.gateway)


class Asked:
    """As much of an exchange as routing wants."""

    def __init__(self, target: str) -> None:
        self.request = Request(b"GET", target.encode("latin-1"), authority=b"a.test")
        self.request.path = canonical(self.request.target.partition(b"?")[0]).path


def sent(made: Router, target: str) -> str | None:
    """What the target of a rule is sent, or None when the rule does not match."""
    asked: Any = Asked(target)
    route = made.route(asked)
    return None if route is None else forwarded(asked.request, route, route.targets[0]).decode("latin-1")


def test_types_stand_in_their_order() -> None:
    text = (DOCS / "routing.md").read_text()
    (line,) = re.findall(r"^2\. the type: (.*);$", text, re.MULTILINE)
    assert tuple(codes(line)) == TYPES
    assert {name for row in table("routing.md", "`type`") for name in codes(row[0])} == set(TYPES)


@pytest.mark.parametrize("row", table("routing.md", "Rule", "Request"), ids=lambda row: row[0])
def test_a_rule_matches_as_its_row_says(row: list[str]) -> None:
    kind, (value,), (target,) = row[0].split()[0], codes(row[0]), codes(row[1])
    assert (sent(router("uri", kind, value), target) is not None) is (row[2] == "yes")


@pytest.mark.parametrize("row", table("routing.md", "The client sends"), ids=lambda row: row[0])
def test_a_path_becomes_what_its_row_says(row: list[str]) -> None:
    (raw,) = codes(row[0])
    if row[1].startswith("400"):
        with pytest.raises(ValueError, match="path"):
            canonical(raw.encode())
        return
    (form,), (upstream,) = codes(row[1]), codes(row[2])
    assert canonical(raw.encode()).path == form
    assert sent(router("uri", "prefix", "/"), raw) == upstream


@pytest.mark.parametrize(
    "row",
    table("routing.md", "Rule", "Target", "Request"),
    ids=lambda row: f"{row[0]} {row[1]}",
)
def test_a_prefix_is_replaced_as_its_row_says(row: list[str]) -> None:
    kind, (value,), (url,), (target,) = row[0].split()[0], codes(row[0]), codes(row[1]), codes(row[2])
    assert sent(router("uri", kind, value, url), target) == codes(row[3])[0]


def leaves(space: Any, prefix: str) -> Iterator[str]:
    """The names of a part of the language."""
    if not isinstance(space, dict):
        yield prefix
        return
    for name, entry in space.items():
        yield from leaves(entry, f"{prefix}.{name}" if prefix else name)


def test_every_name_of_the_language_is_there() -> None:
    text = {name for _, rows in tables(DOCS / "expressions.md") for row in rows for name in codes(row[0])}
    known = {re.sub(r"\['x'\]$", "", name) for name in text}
    names = {*leaves(CONDITION, ""), *leaves(RESPONSE, "response"), *leaves(TEMPLATE, "")}
    assert names - known == set()


def test_every_clock_and_limit_has_a_row() -> None:
    clocks = {name for row in table("timeouts-and-limits.md", "Clock") for name in codes(row[0])}
    assert clocks == {field.encode_name for field in msgspec.structs.fields(model.GatewayTimeouts)}
    limits = {name for row in table("timeouts-and-limits.md", "Limit") for name in codes(row[0])}
    assert limits == {*(field.encode_name for field in msgspec.structs.fields(model.GatewayLimits)), "pool.queue"}


CONFIG = """
gateway:
  limits: {requestLine: 200B, headerLine: 200B, headers: 400B, headerCount: 5, body: 10B, responseHeaders: 128B}
listeners: [{name: web, address: "127.0.0.1:8080"}]
upstreams: [{name: shop, endpoints: [{url: "http://192.0.2.7:80"}]}]
routes: [{value: /, matcherType: prefix, routes: [{targets: [{upstream: shop}]}]}]
"""
HEAD = b"GET / HTTP/1.1\r\nHost: a.test\r\n"
OVER = {
    "request_line_too_long": b"GET /%b HTTP/1.1\r\nHost: a.test\r\n\r\n" % (b"x" * 200),
    "header_line_too_long": HEAD + b"x-a: %b\r\n\r\n" % (b"x" * 200),
    "headers_too_large": HEAD + b"x-a: %b\r\n" % (b"x" * 150) * 3 + b"\r\n",
    "too_many_headers": HEAD + b"x-a: 1\r\n" * 5 + b"\r\n",
    "body_too_large": b"POST / HTTP/1.1\r\nHost: a.test\r\nContent-Length: 11\r\n\r\n",
    "response_headers_too_large": HEAD + b"\r\n",
}


@pytest.mark.parametrize("event", OVER)
def test_a_limit_answers_and_counts_as_its_row_says(event: str) -> None:
    (row,) = [row for row in table("timeouts-and-limits.md", "Limit") if codes(row[-1]) == [event]]
    with MemoryGateway(CONFIG) as gateway:
        large = b"HTTP/1.1 204 No Content\r\nx-a: %b\r\n\r\n" % (b"x" * 128)
        gateway.upstream("192.0.2.7", 80, [Expect(b"\r\n\r\n"), large])
        client = gateway.client()
        client.send(OVER[event])
        gateway.run()
        status, closed = client.received[9:12].decode(), client.eof
        assert (status, closed) == (row[2][:3], "closed" in row[2])
        assert gateway.service.counters.counts[event] == 1
        assert len(gateway.records) == 1


REFUSED = {
    "bad_framing": b"POST / HTTP/1.1\r\nHost: a.test\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
    "malformed_head": HEAD + b"x-a : 1\r\n\r\n",
    "malformed_body": b"POST / HTTP/1.1\r\nHost: a.test\r\nTransfer-Encoding: chunked\r\n\r\n+1\r\na\r\n0\r\n\r\n",
    "bad_host": b"GET / HTTP/1.1\r\n\r\n",
    "bad_target": b"GET x HTTP/1.1\r\nHost: a.test\r\n\r\n",
    "unknown_transfer_coding": b"POST / HTTP/1.1\r\nHost: a.test\r\nTransfer-Encoding: gzip, chunked\r\n\r\n",
    "unknown_expectation": HEAD + b"Expect: more\r\n\r\n",
    "http_version_not_supported": b"GET / HTTP/2.0\r\nHost: a.test\r\n\r\n",
}


@pytest.mark.parametrize("event", REFUSED)
def test_what_is_refused_answers_and_counts_as_its_row_says(event: str) -> None:
    rows = [row for row in table("security.md", "What") if event in codes(row[-1])]
    assert rows
    with MemoryGateway(CONFIG) as gateway:
        client = gateway.client()
        client.send(REFUSED[event])
        gateway.run()
        assert all(client.received[9:12].decode() in row[2] for row in rows)
        assert client.eof
        assert gateway.service.counters.counts[event] == 1
        assert [record.malformed for record in gateway.records] == [True]


def test_every_field_of_a_record_is_there() -> None:
    rows = [row for _, rows in tables(DOCS / "operations.md") for row in rows]
    named = {name for row in rows for name in codes(row[0])}
    fields = {field.encode_name for kind in (Record, Durations) for field in msgspec.structs.fields(kind)}
    assert fields - named == set()


_TYPES = """
    dns_timeout dns_error destination_not_found destination_unavailable destination_ip_prohibited
    destination_ip_unroutable connection_refused connection_terminated connection_timeout connection_read_timeout
    connection_write_timeout connection_limit_reached tls_protocol_error tls_certificate_error tls_alert_received
    http_request_error http_request_denied http_response_incomplete http_response_header_section_size
    http_response_header_size http_response_body_size http_response_trailer_section_size http_response_trailer_size
    http_response_transfer_coding http_response_content_coding http_response_timeout http_upgrade_failed
    http_protocol_error proxy_internal_response proxy_internal_error proxy_configuration_error proxy_loop_detected
"""
PROXY_STATUS = frozenset(_TYPES.split())
"""The registered error types (RFC 9209, 2.3)."""


def sources() -> list[Path]:
    """All of the gateway and its codecs, without the test kit."""
    paths = [*(ROOT / "protogate").rglob("*.py"), *(ROOT / "codecs").rglob("*.py")]
    return [path for path in paths if "testing" not in path.parts]


CALLS = ("count", "_count", "Bad", "Flood")
"""What is told the name of an event."""


def _text(node: Any) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


MODULES = ("governance", "identity", "pipeline.py")
"""Where modules count, each in a scope of its own."""


def events(modules: bool) -> set[str]:
    """
    Every name that the source counts by: what is handed to C{count()} or C{Bad()}, and what is kept for them.

    @param modules: what modules count, or everything else.
    """
    found: set[str] = set()
    for path in (each for each in sources() if any(part in MODULES for part in each.parts) is modules):
        for node in ast.walk(ast.parse(path.read_text())):
            strings: list[Any] = []
            if isinstance(node, ast.Call) and getattr(node.func, "attr", getattr(node.func, "id", "")) in CALLS:
                strings = [
                    each
                    for argument in node.args
                    for each in ((argument.body, argument.orelse) if isinstance(argument, ast.IfExp) else (argument,))
                ]
            elif isinstance(node, ast.AnnAssign) and getattr(node.target, "id", "") in ("_FAULTS", "_EVENTS"):
                strings = list(ast.walk(node))
            elif isinstance(node, ast.FunctionDef):
                strings = node.args.defaults if "event" in [each.arg for each in node.args.args] else []
            found |= {each.value for each in strings if _text(each)}
    return {name for name in found if re.fullmatch(r"[a-z]+(_[a-z]+)*", name)}


def test_every_counter_is_there_and_no_other() -> None:
    rows = [name for row in table("operations.md", "Name") for name in codes(row[0])]
    assert len(rows) == len(set(rows))
    counted = events(modules=False)
    made = {
        "tls_timeout",
        "dns_timeout",
        "connect_timeout",
        "failed_client",
        "failed_gateway",
        "failed_upstream",
    }  # f-strings
    assert counted - set(rows) == set()
    assert set(rows) - counted - made == set()


def test_every_event_of_modules_is_told() -> None:
    pages = [DOCS / "modules.md", *(DOCS / "modules").glob("*.md")]
    told = {name for page in pages for name in re.findall(r"`(\w+)`", page.read_text())}
    assert events(modules=True) - told == set()


def test_every_error_type_is_there() -> None:
    named = {name for row in table("timeouts-and-limits.md", "Status") for name in codes(row[2])}
    constants = (node.value for path in sources() for node in ast.walk(ast.parse(path.read_text())) if _text(node))
    types = PROXY_STATUS & set(constants)
    assert types - named == {"connection_read_timeout"}  # an answer that broke off: nothing is sent any more
    assert named <= types


def test_stages_stand_in_their_order() -> None:
    assert tuple(name for row in table("modules.md", "Stage") for name in codes(row[0])) == STAGES


def test_every_module_is_in_the_list_with_where_it_runs() -> None:
    rows = {re.findall(r"modules/(\w+)\.md", row[1])[0]: tuple(codes(row[3])) for row in table("modules.md", "To")}
    assert rows == {name: find(IModuleFactory, name).stages for name in names(IModuleFactory)}


def test_states_are_drawn_from_their_table(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(DOCS / "_ext"))
    import fromsource

    drawn = fromsource.drawn(("A", "BB", "C"), {0: (0, 1, 2), 1: (0,), 2: (2,)})
    assert drawn.splitlines() == [
        "A  ↺ ─┬──▶ BB",
        "      └──▶ C",
        "BB   ────▶ A",
        "C  ↺ ────▶ (the end)",
    ]


def test_rules_lose_their_mark_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(DOCS / "_ext"))
    import fromsource

    text = fromsource.rules("protogate.governance.params")
    assert text.startswith("How built-in modules read their actionParam: strictly")
