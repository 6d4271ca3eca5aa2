"""The codec of examples/protogate-resp, as somebody installs it who has protogate: nothing here knows of it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from distributions import EXAMPLES, install
from protogate.build import build
from protogate.config.faults import ConfigFaults

HOME = EXAMPLES / "protogate-resp"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where it is installed."""
    return install("protogate-resp", tmp_path_factory.mktemp("resp") / "site")


def run(site: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """A module of Python's that finds what is installed."""
    environment = os.environ | {"PYTHONPATH": str(site), "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, "-m", *words]
    return subprocess.run(command, cwd=site.parent, env=environment, capture_output=True, text=True, check=False)


def test_it_brings_its_package_and_a_drop_in(site: Path) -> None:
    found = {str(path.relative_to(site)) for path in site.rglob("*.py")}
    modules = {str(path.relative_to(HOME)) for path in (HOME / "protogate_resp").glob("*.py")}
    assert found == {*modules, "twisted/plugins/protogate_resp_plugin.py"}


def test_its_tests_pass(site: Path) -> None:
    (site.parent / "test_resp.py").write_text((HOME / "tests" / "test_resp.py").read_text())
    done = run(site, "pytest", "-q", "-W", "error", "-p", "no:cacheprovider", "--rootdir=.", "test_resp.py")
    assert done.returncode == 0, done.stdout + done.stderr


def test_installing_it_is_all_it_takes(site: Path) -> None:
    configuration = str(HOME / "gateway.yaml")
    with pytest.raises(ConfigFaults, match="no codec named 'resp'"):
        build(configuration)
    done = run(site, "protogate", "check", "-c", configuration)
    assert done.returncode == 0, done.stdout + done.stderr


def test_its_types_hold(site: Path) -> None:
    pytest.importorskip("mypy")
    root = EXAMPLES.parent
    cache = f"--cache-dir={site.parent / 'cache'}"
    words = ["mypy", f"--config-file={root / 'pyproject.toml'}", cache, "--follow-imports=silent"]
    environment = os.environ | {"MYPYPATH": str(root / "codecs")}
    done = subprocess.run(
        [sys.executable, "-m", *words, "protogate_resp"],
        cwd=HOME,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
