"""
The gateways that are compared, each a process of its own on a core of its own.

Rules
- All candidates of a row do the same things: L{Plan} says which, and L{check} sees that they do.
- One that is not installed is left out, never replaced.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any, Final, NamedTuple

from twisted.application.reactors import getReactorTypes

import configuration
import probe
from others import caddy, envoy, haproxy, nginx
from others.plan import Plan
from processes import HERE, Process, binary, free_port

GATEWAY_CORE, LOAD_CORE = "0", "1"
SMALL, LARGE, HUGE = "/api/v1/orders/4711?verbose=1", "/large/100k", "/large/10m"
"""Paths that the upstream knows."""
GRPC: Final = "/bench.Orders/Get"
"""A method of gRPC that the upstream answers, if it speaks HTTP/2."""
GRPC_FIELDS: Final = {"content-type": "application/grpc", "te": "trailers"}
MESSAGE: Final = b"\0\0\0\0\x64" + b"\x0a\x62" + b"m" * 98
"""What it is asked and what it answers: one message of 100 bytes, a field of text."""
SAW: Final = "/saw"
"""Answered with what the upstream saw of the fields that a governed gateway sets."""
STATUS: Final = "/status"
"""What the upstream counted."""
ANSWER: Final = json.dumps({"id": 4711, "items": ["a" * 40, "b" * 40, "c" * 40], "note": "x" * 30}).ljust(200)

Command = Callable[[Path, int, Plan], list[str]]


def upstream(folder: Path, speaks: str = "http1") -> Process:
    """
    What all gateways ask: an nginx that answers out of memory, or with files.

    @param speaks: C{http1}, C{http2}, or C{sotp}: then it is L{sotp_origin}, which has one answer for all.
    """
    port, root, name = free_port(), folder / speaks, f"upstream-{speaks}"
    if speaks == "sotp":
        arguments = [sys.executable, str(HERE / "sotp_origin.py"), f"--port={port}"]
        return Process(arguments, LOAD_CORE, port, folder / f"{name}.log")
    repeated = b"0123456789abcde\n"
    for path, data in ((LARGE, repeated * 6400), (HUGE, repeated * (10 << 16)), (GRPC, MESSAGE)):
        (root / path[1:]).parent.mkdir(parents=True, exist_ok=True)
        (root / path[1:]).write_bytes(data)
    server = f"""
        root {root};
        location / {{ default_type application/json; return 200 '{ANSWER}'; }}
        location = {SAW} {{ return 200 "$http_x_client $http_x_request_id"; }}
        location = {STATUS} {{ stub_status; }}
        location /large/ {{ default_type application/octet-stream; }}
        location = {GRPC} {{
            mirror /read;  # or it would answer before it has the message, which no server of gRPC does
            default_type application/grpc; error_page 405 =200 {GRPC}; add_trailer grpc-status 0;
        }}
        location = /read {{ internal; return 204; }}
    """
    command = nginx.command(folder, name, port, server, listen="http2" if speaks == "http2" else "", log=False)
    return Process(command, LOAD_CORE, port, folder / f"{name}.log")


def settings(folder: Path, name: str, port: int, plan: Plan) -> dict[str, Any]:
    """The configuration of a protogate."""
    more: dict[str, Any] = {
        "log": folder / f"{name}-access.log",
        "timeouts": {"clientIdle": "1h", "clientHeader": "1h"},
        "front": plan.front,
        "back": plan.back,
        "identity": plan.identity,
    }
    if plan.governed:
        return configuration.governed(port, plan.upstream, free_port(), **more)
    return configuration.plain(port, plan.upstream, **more)


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


@cache
def codecs(program: Path) -> frozenset[str]:
    """What a protogate can speak; one that was built long ago and cannot tell, nothing."""
    done = subprocess.run([str(program), "codecs"], capture_output=True, text=True, check=False, timeout=60)
    return frozenset(line for line in done.stdout.splitlines() if line and not line.startswith(" "))


def speaks(name: str, plan: Plan) -> bool:
    """Whether a candidate that is there speaks what is to be spoken."""
    wanted = {plan.front, plan.back}
    build = BUILDS.get(name)
    if wanted == {"http1"} and plan.identity is None:
        return True
    return wanted <= ({"http1", "http2"} if build is None else codecs(build.program))


def check(name: str, process: Process, plan: Plan) -> None:
    """
    See that a candidate does what is measured, and all of it.

    @raise SystemExit: it does not.
    """

    def must(what: str, holds: bool, found: object) -> None:
        if not holds:
            raise SystemExit(f"{name}: {what}; got {found!r}\n{process.log.read_text()[-1000:]}")

    def get(path: str, **more: Any) -> probe.Answer:
        try:
            return probe.ask(process.port, path, plan, **more)
        except OSError as why:
            raise SystemExit(f"{name}: {why}\n{process.log.read_text()[-1000:]}") from why

    found = get(SMALL)
    must("the answer of the upstream", found.status == 200 and found.body == ANSWER.encode(), found)
    if plan.front == plan.back == "http2":
        found = get(GRPC, method="POST", fields=GRPC_FIELDS, body=MESSAGE)
        must("a message", found.status == 200 and found.body == MESSAGE, found)
        must("trailers", found.trailers.get("grpc-status") == "0", found)
    if not plan.governed:
        return
    must("a field that tells the time of the upstream", bool(found.fields.get("x-service-call")), found)
    must("a field that tells the rule", bool(found.fields.get("x-route")), found)
    for _, path in configuration.paths(2, configuration.SHARED):
        found = get(path)
        must(f"a rule for {path}", found.status == 200, found)
    saw = get(SAW).body
    client, _, request = saw.partition(b" ")
    must("who asks, and an id of the request, for the upstream", client == b"127.0.0.1" and len(request) > 8, saw)
    for path, method in ((SMALL, "POST"), ("/internal/x", "GET")):
        found = get(path, method=method)
        must(f"the condition does not hold for {method} {path}", "x-service-call" not in found.fields, found)
    found = get(SMALL, source=configuration.DENIED)
    must("a denied address is refused", found.status == 403, found)
