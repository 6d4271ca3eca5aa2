"""protogate modules."""

from __future__ import annotations

from io import StringIO
from pathlib import Path

import pytest

import twisted.plugins
from protogate.cli import main
from protogate.interfaces import IModuleFactory
from protogate.plugins import names


def run() -> tuple[int, list[list[str]]]:
    out = StringIO()
    return main(["modules"], out), [line.split(maxsplit=1) for line in out.getvalue().splitlines()]


def test_every_module_is_listed_with_where_it_runs_and_whether_it_guards() -> None:
    status, lines = run()
    assert status == 0
    assert [name for name, _ in lines] == names(IModuleFactory)
    told = dict(lines)
    assert told["accessList"].split() == [
        *("PRE_REQUEST,", "PRE_UPSTREAM", "guards"),
        "protogate.governance.accesslist.AccessListFactory",
    ]
    assert told["compress"].split()[:2] == ["PRE_RESPONSE", "protogate.governance.compress.CompressFactory"]


def test_one_that_cannot_be_used_is_listed_with_the_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "acme_plugin.py").write_text(
        "from protogate.interfaces import IModuleFactory\nfrom protogate.plugins import Plugin\n"
        'acme = Plugin(IModuleFactory, "acme", "acme_gone.Factory")\n'
    )
    monkeypatch.setattr(twisted.plugins, "__path__", [*twisted.plugins.__path__, str(tmp_path)])
    status, lines = run()
    assert status == 1
    assert dict(lines)["acme"].startswith("unusable  ")
    assert "the module named 'acme' cannot be made from acme_gone.Factory" in dict(lines)["acme"]
