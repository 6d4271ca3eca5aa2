"""The packages of the page about protocols, as its reader makes and installs them: nothing here knows of them."""

from __future__ import annotations

import ast
import doctest
import io
import os
import re
import shlex
import shutil
import subprocess
import sys
import tokenize
from pathlib import Path

import pytest

from distributions import EXAMPLES, install, written
from pages import DOCS, Example, examples
from protogate.build import build
from protogate.config.faults import ConfigFaults

pytestmark = pytest.mark.unwatched

PAGE = DOCS / "add-a-protocol.md"
RESP = EXAMPLES / "protogate-resp"
SHOWN = [example for example in examples(PAGE) if example.language == "console" and "redis-cli" not in example.text]
"""What is said to a Redis, tests/e2e/test_redis.py says."""


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the reader has put the files of the page, and installed in C{site} what they make."""
    home = tmp_path_factory.mktemp("page")
    written(PAGE, home)
    for package in ("protogate-resp", "protogate-lines"):
        # pip builds where the files lie, and leaves things behind.
        shutil.copytree(home / package, home / "built" / package)
        install(home / "built" / package, home / "site" / package)
    return home


def run(home: Path, *words: str, sites: tuple[str, ...] = ("protogate-resp", "protogate-lines")) -> str:
    """What a module of Python's says, which finds what is installed; it must end well."""
    path = os.pathsep.join(str(home / "site" / name) for name in sites)
    environment = os.environ | {"PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1", "COLUMNS": "100"}
    command = [sys.executable, "-m", *words]
    done = subprocess.run(command, cwd=home, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{shlex.join(words)}:\n{done.stdout}{done.stderr}"
    return done.stdout


BLANK = {
    tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER
}  # fmt: skip


def lines_of_code(text: str) -> int:
    """Lines that are neither empty, nor comments, nor docstrings."""
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    found = {line for token in tokens if token.type not in BLANK for line in range(token.start[0], token.end[0] + 1)}
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            found -= set(range(node.lineno, (node.end_lineno or 0) + 1))
    return len(found)


def test_the_example_is_what_the_page_lists(tmp_path: Path) -> None:
    prefix = f"{RESP.name}/"
    listed = {name: text for name, text in written(PAGE, tmp_path).items() if name.startswith(prefix)}
    found = {
        f"{prefix}{path.relative_to(RESP)}": path.read_text()
        for path in RESP.rglob("*")
        if path.suffix in {".py", ".toml", ".yaml"} and not path.name.startswith("test_")
    }
    for name, text in listed.items():
        assert text == (EXAMPLES / name).read_text(), name
    assert set(found) <= set(listed)


def test_they_are_as_short_as_they_should_be(tmp_path: Path) -> None:
    sizes = {name: lines_of_code(text) for name, text in written(PAGE, tmp_path).items() if name.endswith(".py")}
    resp = sum(size for name, size in sizes.items() if name.startswith("protogate-resp/") and "/tests/" not in name)
    assert 150 < resp <= 250
    assert 50 < sizes["protogate-lines/protogate_lines.py"] < 80


@pytest.mark.parametrize("package", ["protogate-resp", "protogate-lines"])
def test_each_brings_its_package_and_a_drop_in(home: Path, package: str) -> None:
    site = home / "site" / package
    made = {
        str(path.relative_to(home / package)) for path in (home / package).rglob("*.py") if "tests" not in path.parts
    }
    assert {str(path.relative_to(site)) for path in site.rglob("*.py")} == made


@pytest.mark.parametrize("example", SHOWN, ids=str)
def test_the_commands_of_the_page_do_what_is_shown(home: Path, example: Example) -> None:
    for part in re.split(r"^\$ ", example.text, flags=re.MULTILINE)[1:]:
        line, _, expected = part.partition("\n")
        program, *words = shlex.split(line)
        if program == "pip":
            assert (words[0], (home / words[1] / "pyproject.toml").exists()) == ("install", True)
        elif (program, words[0]) == ("protogate", "run"):
            assert words[1:] == ["-c", "protogate-resp/gateway.yaml"]  # test_redis.py runs it
        else:
            module = {"protogate": "protogate", "trial": "twisted.trial"}[program]
            out = run(home, module, *words)
            same = doctest.OutputChecker().check_output(expected.rstrip() + "\n", out, doctest.ELLIPSIS)
            assert same or program == "trial", f"{line}:\n{out}"


def test_the_page_shows_commands() -> None:
    assert len(SHOWN) > 4


def test_all_tests_of_the_example_pass(home: Path) -> None:
    quiet = ("-q", "-W", "error", "-p", "no:cacheprovider", "--rootdir=.")
    run(home, "pytest", *quiet, str(RESP / "tests"), sites=("protogate-resp",))


def test_installing_it_is_all_it_takes(home: Path) -> None:
    configuration = str(RESP / "gateway.yaml")
    with pytest.raises(ConfigFaults, match="no codec named 'resp'"):
        build(configuration)
    run(home, "protogate", "check", "-c", configuration, sites=("protogate-resp",))


def test_its_types_hold(home: Path) -> None:
    pytest.importorskip("mypy")
    root = EXAMPLES.parent
    words = ["mypy", f"--config-file={root / 'pyproject.toml'}", f"--cache-dir={home / 'cache'}"]
    done = subprocess.run(
        [sys.executable, "-m", *words, "--follow-imports=silent", "protogate_resp"],
        cwd=RESP,
        env=os.environ | {"MYPYPATH": str(root / "codecs")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
