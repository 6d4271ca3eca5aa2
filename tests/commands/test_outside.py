"""Commands that distributions add."""

from __future__ import annotations

import os
import subprocess
import sys
from io import StringIO
from pathlib import Path

import pytest
from zope.interface import implementer

import twisted.plugins
from protogate.cli import main, parser
from protogate.commands import outside
from protogate.interfaces import ICommand

DROP_IN = """
from protogate.interfaces import ICommand
from protogate.plugins import Plugin
one = Plugin(ICommand, "{name}", "{path}")
"""
GREETING = """
import sys
from twisted.internet.defer import Deferred
from twisted.internet.task import deferLater
from zope.interface import implementer
from protogate.interfaces import ICommand

@implementer(ICommand)
class Greet:
    name, summary = "greet", "Greet 100 % of somebody."

    def arguments(self, parser):
        parser.add_argument("who")

    def run(self, options, reactor, context, out):
        if options.who == "nobody":
            return 2
        if options.who == "trouble":
            raise LookupError("trouble")
        if options.who == "enough":
            reactor.callLater(0, reactor.stop)
            return Deferred()
        def greet():
            print("hello,", options.who, context.wheel.now() > 0, file=out)
            return 7
        return deferLater(reactor, 0, greet)
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Where Python finds a package of somebody else, with a command."""
    (tmp_path / "twisted" / "plugins").mkdir(parents=True)
    (tmp_path / "greeting.py").write_text(GREETING)
    (tmp_path / "twisted" / "plugins" / "greeting_plugin.py").write_text(
        DROP_IN.format(name="greet", path="greeting.Greet")
    )
    return tmp_path


def protogate(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", "import sys; from protogate.cli import main; sys.exit(main())", *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        env=os.environ | {"PYTHONPATH": str(folder)},
    )


@pytest.mark.parametrize(
    ("who", "status", "out", "error"),
    [
        ("you", 7, "hello, you True\n", ""),
        ("nobody", 2, "", ""),
        ("trouble", 1, "", "LookupError: trouble"),
        ("enough", 130, "", ""),
    ],
)
def test_a_command_from_outside_runs_on_a_reactor(folder: Path, who: str, status: int, out: str, error: str) -> None:
    done = protogate(folder, "greet", who)
    assert (done.returncode, done.stdout) == (status, out), done.stderr
    assert error in done.stderr
    assert bool(error) is bool(done.stderr)


def test_it_is_listed(folder: Path) -> None:
    assert "greet Greet 100 % of somebody." in " ".join(protogate(folder, "--help").stdout.split())


@implementer(ICommand)
class Quiet:
    """A command that must not be reached."""

    name, summary = "check", "Not ours."

    def arguments(self, parser: object) -> None:
        raise AssertionError

    def run(self, options: object, reactor: object, context: object, out: object) -> int:
        raise AssertionError


def test_one_that_is_broken_says_so_and_spoils_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "broken_plugin.py").write_text(DROP_IN.format(name="broken", path="nowhere.At100%All"))
    monkeypatch.setattr(twisted.plugins, "__path__", [*twisted.plugins.__path__, str(tmp_path)])
    assert main(["broken"], StringIO()) == 1
    assert capsys.readouterr().err.startswith(
        "protogate broken: the command named 'broken' cannot be made from nowhere"
    )
    assert main(["codecs"], StringIO()) == 0
    assert "(cannot be used: the command named 'broken'" in " ".join(parser().format_help().split())


def test_nobody_takes_the_place_of_a_command_of_ours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "taking_plugin.py").write_text(DROP_IN.format(name="check", path=f"{__name__}.Quiet"))
    monkeypatch.setattr(twisted.plugins, "__path__", [*twisted.plugins.__path__, str(tmp_path)])
    (tmp_path / "gateway.yaml").write_text("listeners: [{name: web, address: '127.0.0.1:0'}]\n")
    assert main(["check", "-c", str(tmp_path / "gateway.yaml")], StringIO()) == 0


def test_nobody_looks_for_commands_of_others_when_one_of_ours_was_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[object] = []
    monkeypatch.setattr(outside, "register", looked.append)
    with pytest.raises(SystemExit):
        main(["run", "--help"], StringIO())
    assert looked == []
    for arguments in (["greet"], ["--help"], []):
        with pytest.raises(SystemExit):
            main(arguments, StringIO())
    assert len(looked) == 3
