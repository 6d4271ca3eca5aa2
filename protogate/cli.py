"""The C{protogate} command: run, upgrade, check, routes, explain; L{protogate.commands} has the others."""

from __future__ import annotations

import argparse
import os
import re
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, TextIO

from twisted.application.reactors import NoSuchReactor
from twisted.logger import Logger, globalLogBeginner, textFileLogObserver

from protogate.build import Build, build
from protogate.commands import codec, codecs, credential, decode, modules, outside, switch
from protogate.commands.registry import add, complain
from protogate.config.faults import ConfigFaults
from protogate.explain import Question, explain, releases, routes
from protogate.losses import losses
from protogate.process.upgrade import Begin
from protogate.reactor.best import install, reactors
from protogate.release import release
from protogate.tap import REACTOR, make

_log = Logger()

_PROCESS: Final = re.compile(r"\s*([1-9][0-9]{0,8})\s*", re.ASCII)

EPILOG = """\
examples:
  protogate check -c gateway.yaml
  protogate explain -c gateway.yaml 'GET http://shop.example/cart'
  protogate run -c gateway.yaml
  twistd --nodaemon protogate -c gateway.yaml     the same, by Twisted's own tool

protogate COMMAND --help tells the options of a command.

exit status: 0 = fine, 1 = the configuration has faults, 2 = the command was not understood
"""
RUN = """\
signals:
  SIGHUP             load the configuration anew, as a change of the file does
  SIGUSR2            with workers: take the code that is installed now, as protogate upgrade does
  SIGTERM, SIGINT    end what is under way, and stop; SIGINT once more: now
"""
EXPLAIN = """\
examples:
  protogate explain -c gateway.yaml /cart
  protogate explain -c gateway.yaml 'POST http://shop.example/cart' -H 'x-version: next' --from 203.0.113.9
  protogate explain -c gateway.yaml 'GET https://shop.example/cart' --user alice --claim 'groups=["staff"]'
  protogate explain -c gateway.yaml 'GET http://shop.example/cart' --status 503
"""


def parser(first: str = "") -> argparse.ArgumentParser:
    """
    The whole command line.

    @param first: the command that was asked for.  When it is ours nobody looks for those of others: that would load
        drop-ins, and one that imports a reactor would choose it for C{protogate run}.
    """
    top = argparse.ArgumentParser(
        prog="protogate",
        description="A protocol-agnostic API gateway with pluggable codecs.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    top.add_argument("--version", action="version", version=f"protogate {release()}")
    commands = top.add_subparsers(dest="command", required=True, metavar="COMMAND")

    def command(name: str, text: str, more: str = "") -> argparse.ArgumentParser:
        made = add(commands, name, text, None, more)
        made.add_argument("-c", "--config", required=True, metavar="FILE", help="the configuration, YAML or JSON")
        return made

    run = command("run", "Run a gateway in the foreground.", RUN)
    run.add_argument("--reactor", metavar="NAME", help="Twisted reactor to run on, workers, too (default: the best)")
    renew = commands.add_parser(
        "upgrade",
        help="Have a running gateway with workers take the code that is installed now.",
        description="Have a running gateway with workers take the code that is installed now; see its log.",
    )
    which = renew.add_mutually_exclusive_group(required=True)
    which.add_argument("--pid", type=process, metavar="PID", help="of the gateway")
    which.add_argument("--pidfile", metavar="FILE", help="of the gateway")
    checked = command("check", "Check a configuration: print every fault and every warning.")
    checked.add_argument(
        "--losses", action="store_true", help="print for every route what may be lost between two protocols"
    )
    checked.add_argument("--strict", action="store_true", help="exit with 1 where there is a warning, too")
    command("routes", "Print the rules in the order in which they are considered.")
    asked = command("explain", "Show, offline, what would become of a request: rules, targets, modules.", EXPLAIN)
    asked.add_argument(
        "request",
        metavar="REQUEST",
        help="method and URL, e.g. 'GET http://a.test/hotel/order/1'; without a method GET",
    )
    asked.add_argument("-H", "--header", action="append", default=[], metavar="'NAME: VALUE'", help="a request header")
    asked.add_argument("--from", dest="source", default="127.0.0.1", metavar="IP", help="where it comes from")
    asked.add_argument("--tls", action="store_true", help="as if it came over TLS")
    asked.add_argument(
        "--certificate", default="", metavar="FILE", help="as if the client had shown that certificate, over TLS"
    )
    asked.add_argument("--user", default="", metavar="NAME", help="as if a module had found out that it is somebody")
    asked.add_argument(
        "--claim", action="append", default=[], metavar="'NAME=VALUE'", help="what is known about him; text or JSON"
    )
    asked.add_argument(
        "--service",
        default="",
        metavar="NAME",
        help="the service it is for (default: what the listeners' codecs find)",
    )
    asked.add_argument(
        "--protocol", default="HTTP/1.1", metavar="NAME", help="what the client speaks (default: HTTP/1.1)"
    )
    asked.add_argument(
        "--status", type=int, default=200, help="the status that the upstream would answer (default: 200)"
    )
    asked.add_argument(
        "--response-header",
        action="append",
        default=[],
        metavar="'NAME: VALUE'",
        help="a header that the upstream would answer with",
    )
    for other in (codecs, codec, modules, credential, decode, switch):
        other.register(commands)
    if first not in commands.choices:
        outside.register(commands)
    return top


def main(arguments: Sequence[str] | None = None, out: TextIO | None = None) -> int:
    """Run a command; returns its exit status."""
    arguments = sys.argv[1:] if arguments is None else arguments
    options = parser("".join(arguments[:1])).parse_args(arguments)
    out = sys.stdout if out is None else out
    if hasattr(options, "function"):
        return int(options.function(options, out))
    if options.command == "run":
        return run(options.config, options.reactor)
    if options.command == "upgrade":
        return upgrade(options.pid, options.pidfile, out)
    return ask(options, out)


def ask(options: argparse.Namespace, out: TextIO) -> int:
    """The commands that answer a question about a configuration."""
    try:
        built = build(options.config)
    except ConfigFaults as faults:
        print(faults, file=out)
        count = len(faults.faults)
        print(f"{options.config}: {count} fault{'s' if count != 1 else ''}", file=out)
        return 1
    if options.command == "check":
        check(built, options.config, options.losses, out)
        return 1 if options.strict and built.warnings else 0
    if options.command == "routes":
        print(routes(built), file=out)
        return 0
    try:
        question = Question.parse(
            options.request,
            options.header,
            options.source,
            options.tls,
            options.status,
            options.response_header,
            options.certificate,
            options.user,
            options.claim,
            options.service,
            options.protocol,
        )
    except ValueError as error:
        return complain("explain", error)
    print(explain(built, question), file=out)
    return 0


def check(built: Build, path: str, every: bool, out: TextIO) -> None:
    """C{protogate check}, when there is no fault."""
    for warning in built.warnings:
        print(f"{warning} (warning)", file=out)
    for line in (*losses(built, every), *releases(built)):
        print(line, file=out)
    config = built.config
    parts = (
        (len(config.listeners), "listener"),
        (len(config.upstreams), "upstream"),
        (len(config.routes), "route"),
        (len(config.modules), "module"),
    )
    text = ", ".join(f"{count} {noun}{'s' if count != 1 else ''}" for count, noun in parts)
    warnings = len(built.warnings)
    print(
        f"{path}: fine: {text}" + (f"; {warnings} warning{'s' if warnings != 1 else ''}" if warnings else ""), file=out
    )


def upgrade(pid: int | None, file: str | None, out: TextIO) -> int:
    """C{protogate upgrade}: SIGUSR2, but for a process that it would end."""
    try:
        if file is not None:
            pid = process(Path(file).read_text("ascii", "replace"))
        assert pid is not None
        if not catches(pid, signal.SIGUSR2):
            return complain("upgrade", f"process {pid} is no gateway", 1)
        os.kill(pid, signal.SIGUSR2)
    except ValueError as error:
        return complain("upgrade", f"{file}: {error}", 1)
    except OSError as error:
        # Of a file it says by itself which.
        return complain("upgrade", error if error.filename else f"process {pid}: {error.strerror}", 1)
    print(f"process {pid} was asked; its log says how it went", file=out)
    return 0


def process(text: str) -> int:
    """
    The id of a process.  Zero and negative numbers are none: kill(2) takes them for a group, or for everybody.

    @raise ValueError: it is none.
    """
    found = _PROCESS.fullmatch(text)
    if found is None:
        raise ValueError(f"{text[:20]!r} is not the id of a process")
    return int(found[1])


def catches(pid: int, number: int) -> bool:
    """
    Whether a process has a handler for a signal; True where the system does not tell.

    @raise OSError: there is no such process.
    """
    os.kill(pid, 0)
    try:
        status = Path(f"/proc/{pid}/status").read_text("utf-8", "replace")
    except FileNotFoundError:
        return True
    caught = re.search(r"^SigCgt:\s*([0-9a-f]+)$", status, re.MULTILINE)
    return caught is None or bool(int(caught[1], 16) >> (number - 1) & 1)


def run(path: str, name: str | None) -> int:
    """
    C{protogate run}: what C{twistd -n protogate} does, logging to standard output.

    It ends with status 0 when a signal ended it: who asked with SIGTERM and got all that was asked for should not read
    of a failure, as twistd's 143 does in a container.
    """
    try:
        reactor: Any = install(name or "")
    except NoSuchReactor:
        return complain("run", f"no reactor named {name!r}; installed: {', '.join(reactors())}")
    begin = Begin(twistd=False, reactor=name or os.environ.get(REACTOR, ""))
    return serve(make(path, begin), reactor)


def serve(service: Any, reactor: Any) -> int:
    """Run a service to its end, in the foreground."""
    globalLogBeginner.beginLoggingTo([textFileLogObserver(sys.stdout)])
    _log.info("protogate {version} on {reactor}", version=release(), reactor=type(reactor).__name__)
    service.privilegedStartService()
    service.startService()
    reactor.addSystemEventTrigger("before", "shutdown", service.stopService)
    reactor.run()
    return 0
