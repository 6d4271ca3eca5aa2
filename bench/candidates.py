"""
The gateways that are compared, each a process of its own on a core of its own.

Rules
- All candidates of a row do the same things: L{Plan} says which, and L{check} sees that they do.
- One that is not installed is left out, never replaced.
"""

from __future__ import annotations

import http.client
import json
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

from twisted.application.reactors import getReactorTypes

import configuration
from others import caddy, envoy, haproxy, nginx
from others.plan import Plan
from processes import Process, binary, free_port

GATEWAY_CORE, LOAD_CORE = "0", "1"
SMALL, LARGE, HUGE = "/api/v1/orders/4711?verbose=1", "/large/100k", "/large/10m"
"""Paths that the upstream knows."""
SAW: Final = "/saw"
"""Answered with what the upstream saw of the fields that a governed gateway sets."""
STATUS: Final = "/status"
"""What the upstream counted."""
ANSWER: Final = json.dumps({"id": 4711, "items": ["a" * 40, "b" * 40, "c" * 40], "note": "x" * 30}).ljust(200)

Command = Callable[[Path, int, Plan], list[str]]


def upstream(folder: Path) -> Process:
    """What all gateways ask: an nginx that answers out of memory, or with files."""
    port, root = free_port(), folder / "html"
    (root / "large").mkdir(parents=True)
    for path, size in ((LARGE, 100 * 1024), (HUGE, 10 << 20)):
        (root / path[1:]).write_bytes(b"0123456789abcde\n" * (size // 16))
    server = f"""
        root {root};
        location / {{ default_type application/json; return 200 '{ANSWER}'; }}
        location = {SAW} {{ return 200 "$http_x_client $http_x_request_id"; }}
        location = {STATUS} {{ stub_status; }}
        location /large/ {{ default_type application/octet-stream; }}
    """
    return Process(nginx.command(folder, "upstream", port, server, log=False), LOAD_CORE, port, folder / "upstream.log")


def settings(folder: Path, name: str, port: int, plan: Plan) -> dict[str, Any]:
    """The configuration of a protogate."""
    patient = {"clientIdle": "1h", "clientHeader": "1h"}
    log = folder / f"{name}-access.log"
    if plan.governed:
        return configuration.governed(port, plan.upstream, free_port(), log=log, timeouts=patient)
    return configuration.plain(port, plan.upstream, log=log, timeouts=patient)


class Build(NamedTuple):
    """One way in which protogate may run."""

    slug: str
    """For names of files."""
    program: Path
    """The command."""
    reactor: str
    """Its name; empty = what C{protogate run} chooses."""


OURS: Final = Path(sys.executable).with_name("protogate")
COMPILED: Final = Path(__file__).parent.parent / "build" / "compiled" / "bin" / "protogate"
"""What C{make compiled} makes."""
BUILDS: Final = {
    "protogate (epoll)": Build("epoll", OURS, "epoll"),
    "protogate (uvloop)": Build("uvloop", OURS, "protogate-uv"),
    "protogate (compiled)": Build("compiled", COMPILED, "protogate-uv"),
}
"""How protogate is measured, as far as it is there."""


def protogate(folder: Path, name: str, configuration: Mapping[str, Any], build: Build | None = None) -> Process:
    """One that runs a configuration, on the core of gateways."""
    path = folder / f"{name}.json"
    path.write_text(json.dumps(configuration))
    program, reactor = (OURS, "") if build is None else (build.program, build.reactor)
    chosen = ["--reactor", reactor] if reactor else []
    arguments = [str(program), "run", *chosen, "-c", str(path)]
    port = int(configuration["listeners"][0]["address"].rpartition(":")[2])
    return Process(arguments, GATEWAY_CORE, port, folder / f"{name}.log")


def _built(build: Build) -> Callable[[Path, Plan], Process]:
    def start(folder: Path, plan: Plan) -> Process:
        name = f"protogate-{build.slug}"
        return protogate(folder, name, settings(folder, name, free_port(), plan), build)

    return start


def _other(name: str, arguments: Command) -> Callable[[Path, Plan], Process]:
    def start(folder: Path, plan: Plan) -> Process:
        port = free_port()
        return Process(arguments(folder, port, plan), GATEWAY_CORE, port, folder / f"{name}.log")

    return start


OTHERS: Final[dict[str, Command]] = {
    "nginx": nginx.arguments,
    "haproxy": haproxy.arguments,
    "envoy": envoy.arguments,
    "caddy": caddy.arguments,
}


def available() -> dict[str, Callable[[Path, Plan], Process]]:
    """What starts each candidate that is installed, by its name, in the order of tables."""
    found: dict[str, Callable[[Path, Plan], Process]] = {
        name: _other(name, arguments) for name, arguments in OTHERS.items() if binary(name)
    }
    known = {reactor.shortName for reactor in getReactorTypes()}
    for label, build in BUILDS.items():
        if build.program.exists() and build.reactor in known:
            found[label] = _built(build)
    return found


def missing() -> list[str]:
    """Candidates that are not installed."""
    return [name for name in (*OTHERS, *BUILDS) if name not in available()]


def get(port: int, path: str, *, method: str = "GET", source: str = "127.0.0.1") -> tuple[int, dict[str, str], bytes]:
    """Status, fields by their lower-case name, and body of one answer."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10, source_address=(source, 0))
    try:
        connection.request(method, path)
        response = connection.getresponse()
        return response.status, {name.lower(): value for name, value in response.getheaders()}, response.read()
    finally:
        connection.close()


def check(name: str, process: Process, plan: Plan) -> None:
    """
    See that a candidate does what is measured, and all of it.

    @raise SystemExit: it does not.
    """

    def must(what: str, holds: bool, found: object) -> None:
        if not holds:
            raise SystemExit(f"{name}: {what}; got {found!r}\n{process.log.read_text()[-1000:]}")

    status, fields, body = get(process.port, SMALL)
    must("the answer of the upstream", status == 200 and body == ANSWER.encode(), (status, body[:80]))
    if not plan.governed:
        return
    must("a field that tells the time of the upstream", bool(fields.get("x-service-call")), fields)
    must("a field that tells the rule", bool(fields.get("x-route")), fields)
    for _, path in configuration.paths(2, configuration.SHARED):
        status, _, _ = get(process.port, path)
        must(f"a rule for {path}", status == 200, status)
    _, _, saw = get(process.port, SAW)
    client, _, request = saw.partition(b" ")
    must("who asks, and an id of the request, for the upstream", client == b"127.0.0.1" and len(request) > 8, saw)
    for path, method in ((SMALL, "POST"), ("/internal/x", "GET")):
        _, fields, _ = get(process.port, path, method=method)
        must(f"the condition does not hold for {method} {path}", "x-service-call" not in fields, fields)
    status, _, _ = get(process.port, SMALL, source=configuration.DENIED)
    must("a denied address is refused", status == 403, status)
