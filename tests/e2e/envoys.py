"""Envoy beside a gateway: the parts of its configuration that tests put together."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from authority import Issued
from gateways import program
from neighbours import Neighbour, Neighbours

_EXTENSIONS = "type.googleapis.com/envoy.extensions"
_HTTP = f"{_EXTENSIONS}.filters.network.http_connection_manager.v3.HttpConnectionManager"
_OPTIONS = "envoy.extensions.upstreams.http.v3.HttpProtocolOptions"
_SOCKETS = f"{_EXTENSIONS}.transport_sockets"


def _typed(name: str, kind: str, /, **more: Any) -> dict[str, Any]:
    return {"name": name, "typed_config": {"@type": kind, **more}}


def _at(port: int) -> dict[str, Any]:
    return {"socket_address": {"address": "127.0.0.1", "port_value": port}}


def listener(port: int, cluster: str, issued: Issued | None = None) -> dict[str, Any]:
    """
    It takes HTTP/2, and tunnels of WebSocket; all goes to one cluster.

    It asks again after a reset, too: what the kernel had accepted for a server that closes its port, and the server had
    not, is reset.
    """
    again = {
        "retry_on": "refused-stream,connect-failure,reset",
        "num_retries": 3,
        "retry_host_predicate": [
            _typed(
                "envoy.retry_host_predicates.previous_hosts",
                f"{_EXTENSIONS}.retry.host.previous_hosts.v3.PreviousHostsPredicate",
            )
        ],
        "host_selection_retry_max_attempts": 5,
    }
    route = {"cluster": cluster, "timeout": "0s", "retry_policy": again}
    manager = _typed(
        "envoy.filters.network.http_connection_manager",
        _HTTP,
        stat_prefix=cluster,
        codec_type="AUTO",
        use_remote_address=True,
        http2_protocol_options={"allow_connect": True},
        upgrade_configs=[{"upgrade_type": "websocket"}],
        proxy_100_continue=True,
        route_config={
            "virtual_hosts": [{"name": "all", "domains": ["*"], "routes": [{"match": {"prefix": "/"}, "route": route}]}]
        },
        http_filters=[_typed("envoy.filters.http.router", f"{_EXTENSIONS}.filters.http.router.v3.Router")],
    )
    chain: dict[str, Any] = {"filters": [manager]}
    if issued is not None:
        files = {"certificate_chain": issued.cert, "private_key": issued.key}
        common = {
            "tls_certificates": [{name: {"filename": str(path)} for name, path in files.items()}],
            "alpn_protocols": ["h2", "http/1.1"],
        }
        chain["transport_socket"] = _typed(
            "envoy.transport_sockets.tls", f"{_SOCKETS}.tls.v3.DownstreamTlsContext", common_tls_context=common
        )
    return {"address": _at(port), "filter_chains": [chain]}


def cluster(name: str, *ports: int, ca: Path | None = None, version: int = 2, proxy: bool = False) -> dict[str, Any]:
    """Servers that speak HTTP of that version; over TLS if C{ca} is to be trusted; after a PROXY header if asked."""
    spoken = {"http2_protocol_options": {"allow_connect": True}} if version == 2 else {"http_protocol_options": {}}
    made: dict[str, Any] = {
        "name": name,
        "type": "STATIC",
        "connect_timeout": "3s",
        "circuit_breakers": {"thresholds": [{"max_retries": 1000}]},
        "load_assignment": {
            "cluster_name": name,
            "endpoints": [{"lb_endpoints": [{"endpoint": {"address": _at(port)}} for port in ports]}],
        },
        "typed_extension_protocol_options": {
            _OPTIONS: {"@type": f"type.googleapis.com/{_OPTIONS}", "explicit_http_config": spoken}
        },
    }
    inside = _typed("envoy.transport_sockets.raw_buffer", f"{_SOCKETS}.raw_buffer.v3.RawBuffer")
    if ca is not None:
        common = {"alpn_protocols": ["h2"], "validation_context": {"trusted_ca": {"filename": str(ca)}}}
        inside = _typed(
            "envoy.transport_sockets.tls",
            f"{_SOCKETS}.tls.v3.UpstreamTlsContext",
            common_tls_context=common,
            sni="shop.test",
        )
    if proxy:
        inside = _typed(
            "envoy.transport_sockets.upstream_proxy_protocol",
            f"{_SOCKETS}.proxy_protocol.v3.ProxyProtocolUpstreamTransport",
            config={"version": "V2"},
            transport_socket=inside,
        )
    return {**made, "transport_socket": inside}


def envoy(company: Neighbours, *pairs: tuple[dict[str, Any], dict[str, Any]]) -> Neighbour:
    """Start it with listeners and their clusters, on one thread."""
    listeners, clusters = [each for each, _ in pairs], [each for _, each in pairs]
    port = listeners[0]["address"]["socket_address"]["port_value"]
    path = company.directory / f"envoy-{port}.json"
    path.write_text(json.dumps({"static_resources": {"listeners": listeners, "clusters": clusters}}))
    options = ["--concurrency", "1", "--disable-hot-restart", "-l", "warning"]
    return company.start([program("envoy"), "-c", str(path), *options], port=port)
