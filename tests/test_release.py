"""How the command tells which build it is: the suites that run against the compiled one see the other answer."""

from __future__ import annotations

from importlib.machinery import EXTENSION_SUFFIXES
from importlib.metadata import version

import pytest

from compiling import is_compiled
from protogate import message
from protogate.cli import main
from protogate.release import compiled, release


def shown(capsys: pytest.CaptureFixture[str]) -> str:
    """What C{protogate --version} prints."""
    with pytest.raises(SystemExit) as ended:
        main(["--version"])
    assert ended.value.code == 0
    return capsys.readouterr().out


def test_the_version_tells_what_is_installed_here(capsys: pytest.CaptureFixture[str]) -> None:
    assert compiled() is is_compiled("protogate.message")
    assert shown(capsys) == f"protogate {release()}\n"


@pytest.mark.parametrize(("suffix", "wanted"), [(EXTENSION_SUFFIXES[0], " (compiled)"), (".py", ""), (".pyc", "")])
def test_extension_modules_make_it_the_compiled_one(monkeypatch: pytest.MonkeyPatch, suffix: str, wanted: str) -> None:
    monkeypatch.setattr(message, "__file__", f"/somewhere/protogate/message{suffix}")
    assert release() == version("protogate") + wanted
