"""Discovery of codecs and modules."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
from zope.interface import implementer

from protogate.interfaces import IModule, IModuleFactory, IStreamCodec
from protogate.plugins import PluginError, declared, find, names


@implementer(IModuleFactory)
class Proper:
    name, stages, guards = "proper", ("PRE_REQUEST",), False

    def build(self, params: object) -> IModule:
        raise AssertionError


class NoFactory:
    pass


class Broken:
    def __init__(self) -> None:
        raise ValueError("no luck")


DROPIN = f"""
from protogate.interfaces import IModuleFactory
from protogate.plugins import Plugin

proper = Plugin(IModuleFactory, "proper", "{__name__}.Proper")
none = Plugin(IModuleFactory, "none", "{__name__}.NoFactory")
broken = Plugin(IModuleFactory, "broken", "{__name__}.Broken")
missing = Plugin(IModuleFactory, "missing", "no.such.thing")
twice = Plugin(IModuleFactory, "twice", "{__name__}.Proper")
again = Plugin(IModuleFactory, "twice", "{__name__}.NoFactory")
"""


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    folder = tmp_path / "dropins_for_test"
    folder.mkdir()
    (folder / "__init__.py").write_text("")
    (folder / "here.py").write_text(DROPIN)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setitem(sys.modules, __name__, sys.modules[__name__])
    yield __import__("dropins_for_test")
    for name in [name for name in sys.modules if name.startswith("dropins_for_test")]:
        del sys.modules[name]


def test_a_part_is_made_and_verified(package: ModuleType) -> None:
    assert isinstance(find(IModuleFactory, "proper", package), Proper)


def test_a_drop_in_that_was_replaced_is_read_anew_and_cached_so(package: ModuleType) -> None:
    before = names(IModuleFactory, package)
    path = Path(str(package.__file__)).parent / "here.py"
    path.write_text(DROPIN + f'late = Plugin(IModuleFactory, "late", "{__name__}.Proper")\n')
    assert names(IModuleFactory, package) == sorted([*before, "late"])
    look = "import sys, dropins_for_test; from protogate.plugins import names; from protogate.interfaces import *\n"
    look += "print(*names(IModuleFactory, dropins_for_test)); print('dropins_for_test.here' in sys.modules)"
    os.utime(path, (0, 0))  # older than the cache: others believe that
    found = subprocess.run(
        [sys.executable, "-c", look],
        env={**os.environ, "PYTHONPATH": str(path.parent.parent)},
        capture_output=True,
        check=True,
    )
    assert "late" in found.stdout.decode().split(), found.stderr


def test_the_same_part_is_found_each_time(package: ModuleType) -> None:
    assert find(IModuleFactory, "proper", package) is find(IModuleFactory, "proper", package)
    # Upstreams keep their connections as long as they are spoken to by the same codec.
    assert find(IStreamCodec, "http1") is find(IStreamCodec, "http1")


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("nobody", "no module named 'nobody'; installed: broken, missing, none, proper, twice, twice"),
        ("propper", "no module named 'propper'; did you mean \"proper\"\\?"),
        ("none", "NoFactory is not a proper IModuleFactory"),
        ("broken", "cannot be made from .*Broken: ValueError"),
        ("missing", "cannot be made from no.such.thing"),
        ("twice", "two parts claim to be the module named 'twice': .*Proper and .*NoFactory"),
    ],
)
def test_what_is_wrong_is_said(package: ModuleType, name: str, text: str) -> None:
    with pytest.raises(PluginError, match=text):
        find(IModuleFactory, name, package)


def test_nothing_installed_is_said_too(package: ModuleType) -> None:
    with pytest.raises(PluginError, match="no codec named 'x'; installed: none"):
        find(IStreamCodec, "x", package)


def test_asking_for_names_imports_nothing_declared(package: ModuleType) -> None:
    assert [plugin.name for plugin in declared(IModuleFactory, package)].count("missing") == 1


LOUD = """
import warnings

from protogate.interfaces import IModuleFactory
from protogate.plugins import Plugin

warnings.warn("this is going away", DeprecationWarning, stacklevel=1)
warnings.warn("and this is slow", RuntimeWarning, stacklevel=1)
loud = Plugin(IModuleFactory, "loud", "nobody.asks.for.it")
"""


def test_what_a_drop_in_warns_of_is_no_fault_and_not_said(tmp_path: Path) -> None:
    # As in a container: no cache is there, nor can be made, so each look imports all drop-ins.  As root writes anyway,
    # a folder is in the way.
    folder = tmp_path / "twisted" / "plugins"
    (folder / "dropin.cache").mkdir(parents=True)
    (folder / "loud_for_test.py").write_text(LOUD)
    look = (
        "from protogate.interfaces import IModuleFactory; from protogate.plugins import find, names; "
        "from protogate.reactor.best import reactors; "
        "print('loud' in names(IModuleFactory), find(IModuleFactory, 'cors').name, 'select' in reactors())"
    )
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", look],
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.stdout, done.stderr) == ("True cors True\n", "")


def test_every_part_that_protogate_brings_can_be_made() -> None:
    assert "http1" in names(IStreamCodec)
    for interface in (IStreamCodec, IModuleFactory):
        for name in names(interface):
            assert find(interface, name).name == name
