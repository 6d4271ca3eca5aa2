"""Envoy."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from configuration import NETWORKS, RULES, SHARED, networks, paths
from others.plan import Plan
from processes import binary, free_port

HTTP = "envoy.extensions.filters.http"
OPTIONS = "envoy.extensions.upstreams.http.v3.HttpProtocolOptions"
TLS = "envoy.extensions.transport_sockets.tls.v3.DownstreamTlsContext"


def typed(name: str, kind: str, /, **more: Any) -> dict[str, Any]:
    """An extension and its configuration."""
    return {"name": name, "typed_config": {"@type": f"type.googleapis.com/{kind}", **more}}


def address(port: int) -> dict[str, Any]:
    """Of loopback."""
    return {"socket_address": {"address": "127.0.0.1", "port_value": port}}


def arguments(folder: Path, port: int, plan: Plan) -> list[str]:
    """With one worker thread."""
    manager = typed(
        "envoy.filters.network.http_connection_manager",
        "envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager",
        stat_prefix="in",
        codec_type=plan.front.upper(),
        use_remote_address=True,
        stream_idle_timeout="3600s",
        common_http_protocol_options={"idle_timeout": "3600s"},
        access_log=[
            typed(
                "envoy.access_loggers.file",
                "envoy.extensions.access_loggers.file.v3.FileAccessLog",
                path=f"{folder}/envoy-access.log",
            )
        ],
        route_config={"virtual_hosts": [{"name": "all", "domains": ["*"], **_rules(plan)}]},
        http_filters=[*_denying(plan), typed("envoy.filters.http.router", f"{HTTP}.router.v3.Router")],
    )
    endpoints = [{"lb_endpoints": [{"endpoint": {"address": address(plan.upstream)}}]}]
    limits = {"max_connections": 20_000, "max_pending_requests": 20_000, "max_requests": 20_000}
    cluster: dict[str, Any] = {
        "name": "up",
        "type": "STATIC",
        "connect_timeout": "3s",
        "circuit_breakers": {"thresholds": [limits]},
        "load_assignment": {"cluster_name": "up", "endpoints": endpoints},
    }
    if plan.back == "http2":
        spoken = {"@type": f"type.googleapis.com/{OPTIONS}", "explicit_http_config": {"http2_protocol_options": {}}}
        cluster["typed_extension_protocol_options"] = {OPTIONS: spoken}
    chain = {"filters": [manager], **_secured(plan)}
    listener = {"address": address(port), "tcp_backlog_size": 4096, "filter_chains": [chain]}
    path = folder / "envoy.json"
    whole: dict[str, Any] = {"static_resources": {"listeners": [listener], "clusters": [cluster]}}
    if plan.governed:
        whole["admin"] = {"address": address(free_port())}
    path.write_text(json.dumps(whole))
    options = ["--concurrency", "1", "--disable-hot-restart", "-l", "error"]
    return [binary("envoy") or "envoy", "-c", str(path), *options]


def _secured(plan: Plan) -> dict[str, Any]:
    """TLS, if clients speak it."""
    if plan.identity is None:
        return {}
    files = {"certificate_chain": plan.identity.cert, "private_key": plan.identity.key}
    certificate = {name: {"filename": str(path)} for name, path in files.items()}
    alpn = "h2" if plan.front == "http2" else "http/1.1"
    common = {"tls_certificates": [certificate], "alpn_protocols": [alpn]}
    return {"transport_socket": typed("envoy.transport_sockets.tls", TLS, common_tls_context=common)}


def _route(name: str, /, **match: Any) -> dict[str, Any]:
    return {"name": name, "match": match, "route": {"cluster": "up", "timeout": "0s"}}


def _rules(plan: Plan) -> dict[str, Any]:
    """A route for all, or a tree of paths: a list of routes would be gone through from its beginning."""
    if not plan.governed:
        return {"routes": [_route("all", prefix="/")]}
    append = "OVERWRITE_IF_EXISTS_OR_ADD"
    changed = {
        "request_headers_to_add": [
            {
                "header": {"key": "x-client", "value": "%DOWNSTREAM_REMOTE_ADDRESS_WITHOUT_PORT%"},
                "append_action": append,
            }
        ],
        "response_headers_to_add": [
            {"header": {"key": "x-service-call", "value": "%RESPONSE_DURATION%"}, "append_action": append},
            {"header": {"key": "x-route", "value": "%ROUTE_NAME%"}, "append_action": append},
        ],
    }

    def action(name: str) -> dict[str, Any]:
        get = [{"name": ":method", "string_match": {"exact": "GET"}}]
        internal = _route(name, prefix="/internal/")
        kinds = [internal, {**_route(name, prefix="/", headers=get), **changed}, _route(name, prefix="/")]
        return {"action": typed("route", "envoy.config.route.v3.RouteList", routes=kinds)}

    rules = {path: action(path) for _, path in paths(RULES - 1, SHARED)}
    rules["/"] = action("/")
    by_path = typed("path", "envoy.type.matcher.v3.HttpRequestHeaderMatchInput", header_name=":path")
    return {"matcher": {"matcher_tree": {"input": by_path, "prefix_match_map": {"map": rules}}}}


def _denying(plan: Plan) -> list[dict[str, Any]]:
    """Addresses stand in a trie."""
    if not plan.governed:
        return []
    ranges = [
        {"address_prefix": network.partition("/")[0], "prefix_len": int(network.partition("/")[2])}
        for network in networks(NETWORKS)
    ]
    verdict = typed("action", "envoy.config.rbac.v3.Action", name="denied", action="DENY")
    matcher = typed(
        "ip",
        "xds.type.matcher.v3.IPMatcher",
        range_matchers=[{"ranges": ranges, "on_match": {"action": verdict}}],
    )
    source = typed("source", "envoy.extensions.matching.common_inputs.network.v3.SourceIPInput")
    allowed = typed("action", "envoy.config.rbac.v3.Action", name="allowed", action="ALLOW")
    tree = {"matcher_tree": {"input": source, "custom_match": matcher}, "on_no_match": {"action": allowed}}
    return [typed("envoy.filters.http.rbac", f"{HTTP}.rbac.v3.RBAC", matcher=tree)]
