"""What a user installs: the wheel's contents, and that Twisted finds the command from anywhere."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
import zipfile
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
CODEC_PACKAGES = sorted(path.parent.name for path in (ROOT / "codecs").glob("*/__init__.py"))


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> frozenset[str]:
    """Names of the files in a freshly built wheel."""
    directory = tmp_path_factory.mktemp("wheel")
    done = subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", directory],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    (path,) = directory.glob("*.whl")
    with zipfile.ZipFile(path) as archive:
        return frozenset(archive.namelist())


def test_the_wheel_brings_the_drop_in_and_no_other_file_of_twisted(wheel: frozenset[str]) -> None:
    assert {name for name in wheel if name.startswith("twisted/")} == {"twisted/plugins/protogate_plugin.py"}


@pytest.mark.parametrize("package", CODEC_PACKAGES)
def test_the_wheel_brings_every_codec_as_a_package_of_its_own(wheel: frozenset[str], package: str) -> None:
    assert {f"{package}/__init__.py", f"{package}/py.typed"} <= wheel


def test_the_wheel_does_not_shadow_the_standard_library(wheel: frozenset[str]) -> None:
    assert {name.partition("/")[0] for name in wheel} == {
        "protogate",
        "twisted",
        *CODEC_PACKAGES,
        f"protogate-{PROJECT['version']}.dist-info",
    }


def test_the_wheel_has_every_module_of_the_source(wheel: frozenset[str]) -> None:
    sources = {str(path.relative_to(ROOT)) for path in (ROOT / "protogate").rglob("*.py")}
    sources |= {str(path.relative_to(ROOT / "codecs")) for path in (ROOT / "codecs").rglob("*.py")}
    assert sources <= wheel


@pytest.mark.parametrize("wanted", [r"protogate/py\.typed", r"protogate/(\w+/)*schema\.json", r".*/licenses/LICENSE"])
def test_the_wheel_has_what_is_not_code(wheel: frozenset[str], wanted: str) -> None:
    assert [name for name in wheel if re.fullmatch(wanted, name)]


def test_codecs_is_a_source_root_and_no_package() -> None:
    assert not (ROOT / "codecs" / "__init__.py").exists()


def test_the_drop_in_directory_is_no_package() -> None:
    assert not (ROOT / "twisted" / "__init__.py").exists()
    assert not (ROOT / "twisted" / "plugins" / "__init__.py").exists()


def test_twistd_knows_the_command_from_any_directory() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "twisted", "--help"],
        cwd="/",
        env={**os.environ, "PYTHONWARNINGS": "ignore"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert re.search(r"^\s+protogate\s+\S", done.stdout, re.MULTILINE), done.stdout


def test_extras_are_listed_by_purpose_and_all_holds_each() -> None:
    extras = dict(PROJECT["optional-dependencies"])
    (everything,) = extras.pop("all")
    assert everything == f"protogate[{','.join(sorted(extras))}]"


def test_a_compiled_build_has_all_extras_whose_types_it_reads() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    extras = project["project"]["optional-dependencies"]
    brought_by = packages_distributions()
    needed = set()
    for path in (path for folder in ("protogate", "codecs") for path in (ROOT / folder).rglob("*.py")):
        for package in re.findall(r"^ *(?:import|from) ([a-z_0-9]+)", path.read_text(), re.M):
            for distribution in brought_by.get(package, ()):
                of = {name for name, lines in extras.items() if distribution in map(_name, lines)}
                needed |= of - {"all", "bench", "dev", "docs", "test"}
    assert needed
    hook = project["tool"]["hatch"]["build"]["targets"]["wheel"]["hooks"]["custom"]
    assert needed <= set(hook["require-runtime-features"])


def _name(requirement: str) -> str:
    """Of a distribution: of C{ngh2>=0.3}."""
    (name,) = re.findall(r"^[A-Za-z0-9._-]+", requirement)
    return str(name)
