"""Which reactor a gateway gets."""

from __future__ import annotations

import importlib.util
import subprocess
import sys

import pytest

INSTALL = "from protogate.reactor.best import install_best; first = install_best(); print(type(first).__name__)"
AGAIN = "; from twisted.internet import reactor; print(install_best() is first is reactor)"


def said(source: str) -> str:
    """What an interpreter says."""
    return subprocess.run([sys.executable, "-c", source], capture_output=True, text=True, timeout=60, check=True).stdout


@pytest.mark.skipif(importlib.util.find_spec("uvloop") is None, reason="there is no uvloop")
def test_uvloop_is_best() -> None:
    assert said(INSTALL + AGAIN) == "UVReactor\nTrue\n"


def test_without_uvloop_it_is_twisteds_choice() -> None:
    default = said("from twisted.internet import reactor; print(type(reactor).__name__)")
    assert said("import sys; sys.modules['uvloop'] = None; " + INSTALL + AGAIN) == f"{default}True\n"


def test_a_reactor_that_is_installed_stays() -> None:
    assert said("from twisted.internet import selectreactor as s; s.install(); " + INSTALL) == "SelectReactor\n"


def test_who_asks_for_it_by_name_without_uvloop_is_told_what_is_missing() -> None:
    source = (
        "import sys; sys.modules['uvloop'] = None\n"
        "try:\n    import protogate.reactor.uv\nexcept ImportError as error:\n    print(error)"
    )
    assert "pip install uvloop" in said(source)
