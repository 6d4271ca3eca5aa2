"""
Every example of the documentation is run, as far as it can be.

- yaml: a configuration, or a part of one; it loads without a fault and without a warning.  A first line C{# name.yaml}
  names the file for the console examples of the same page.
- python: run, all of a page in one namespace; test cases that are defined there are run too.
- console: C{protogate} for real, C{curl} against a gateway with the page's configuration and the demo upstream; the
  output is compared, C{...} stands for anything.  Of other programs only the words are checked.
"""

from __future__ import annotations

import doctest
import io
import os
import re
import shlex
import sys
import typing
import unittest
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from twisted.scripts import twistd
from twisted.trial.unittest import SynchronousTestCase

from neighbours import Neighbours, free_port, need, run
from protogate import cli
from protogate.build import build
from protogate.config.model import Config

ROOT = Path(__file__).parent.parent
PAGES = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "codecs/README.md")),
    *sorted(path for path in (ROOT / "docs").rglob("*.md") if "_build" not in path.parts),
]
FENCE = re.compile(r"^```(\S*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
NAMED = re.compile(r"# (\S+\.yaml)\n")
PLAIN = {"text", "ini", "json", "{toctree}"}
"""What nobody could run."""
UNKNOWN = {"git", "jq", "pip", "kill"}
"""Programs whose words are not checked either."""

BASE = {
    "listeners": 'listeners: [{name: web, address: "127.0.0.1:8080"}]\n',
    "upstreams": 'upstreams: [{name: shop, endpoints: [{url: "http://127.0.0.1:8081"}]}]\n',
    "routes": "routes: [{value: /, matcherType: prefix, routes: [{targets: [{upstream: shop}]}]}]\n",
}
"""What is added to a part of a configuration."""


@dataclass(frozen=True)
class Example:
    """One fenced block."""

    page: Path
    line: int
    language: str
    text: str

    def __str__(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"


def examples(page: Path) -> Iterator[Example]:
    text = page.read_text()
    for match in FENCE.finditer(text):
        yield Example(page, text.count("\n", 0, match.start()) + 1, match[1], match[2])


ALL = [example for page in PAGES for example in examples(page)]


def of(language: str) -> list[Example]:
    return [example for example in ALL if example.language == language]


def whole(text: str) -> str:
    """A configuration, out of a part of one."""
    return text + "".join(part for key, part in BASE.items() if not re.search(rf"^{key}:", text, re.MULTILINE))


def commands(example: Example) -> Iterator[tuple[list[str], str]]:
    """Words of each command, and the output that stands below it."""
    for part in re.split(r"^\$ ", example.text, flags=re.MULTILINE)[1:]:
        command, _, output = re.sub(r"\\\n\s*", "", part).partition("\n")
        yield shlex.split(command), output.rstrip("\n")


def same(expected: str, got: str) -> None:
    checker = doctest.OutputChecker()
    if not checker.check_output(f"{expected.rstrip()}\n", f"{got.rstrip()}\n", doctest.ELLIPSIS):
        raise AssertionError(f"expected:\n{expected}\n\ngot:\n{got}")


def files(page: Path, directory: Path) -> None:
    """Put the configurations that a page names into a directory."""
    for example in examples(page):
        named = NAMED.match(example.text) if example.language == "yaml" else None
        if named:
            (directory / named[1]).write_text(whole(example.text))


def test_every_block_says_what_it_is() -> None:
    known = {"yaml", "python", "console", *PLAIN}
    assert [f"{example}: {example.language}" for example in ALL if example.language not in known] == []


def test_pages_show_something() -> None:
    assert len(of("yaml")) > 5
    assert len(of("console")) > 5
    assert len(of("python")) > 2


@pytest.mark.parametrize("example", of("yaml"), ids=str)
def test_a_configuration_loads(example: Example, tmp_path: Path) -> None:
    path = tmp_path / "gateway.yaml"
    path.write_text(whole(example.text))
    assert build(str(path)).warnings == ()


@pytest.mark.parametrize("page", sorted({example.page for example in of("python")}), ids=lambda page: page.name)
def test_code_runs(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files(page, tmp_path)
    monkeypatch.chdir(tmp_path)
    module = ModuleType("example")
    monkeypatch.setitem(sys.modules, "example", module)
    for example in examples(page):
        if example.language == "python":
            # Empty lines before it, so that a traceback names the line of the page.
            exec(compile("\n" * example.line + example.text, page, "exec"), module.__dict__)
    cases = [
        value
        for value in vars(module).values()
        if isinstance(value, type) and issubclass(value, unittest.TestCase) and value.__module__ == "example"
    ]
    for case in cases:
        names = unittest.defaultTestLoader.getTestCaseNames(case)
        assert names
        result = unittest.TestResult()
        unittest.defaultTestLoader.loadTestsFromTestCase(case).run(result)
        assert [text for _, text in result.errors + result.failures] == []
        assert issubclass(case, SynchronousTestCase)


@pytest.mark.parametrize("example", of("console"), ids=str)
def test_commands_do_what_is_shown(
    example: Example, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, neighbours: Neighbours
) -> None:
    files(example.page, tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")
    for words, expected in commands(example):
        if words == ["make", "run"]:
            (tmp_path / "gateway.yaml").write_text((ROOT / "examples" / "gateway.yaml").read_text())
        program = Path(words[0]).name
        if program == "protogate" and words[1] != "run":
            out = io.StringIO()
            cli.main(words[1:], out)
            same(expected, out.getvalue())
        elif program == "protogate":
            cli.parser().parse_args(words[1:])
        elif program == "curl":
            same(expected, _curl(words, tmp_path, neighbours))
        elif program == "twistd":
            twistd.ServerOptions().parseOptions(words[1:])
        elif program == "make":
            targets = re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
            assert {word for word in words[1:] if "=" not in word} <= set(targets)
        elif program in {"pytest", "trial"}:
            paths = [word.partition("::")[0] for word in words[1:] if "/" in word]
            assert [path for path in paths if not (ROOT / path).exists()] == []
        else:
            assert program in UNKNOWN, f"{example}: nobody checks {program}"


def _curl(words: list[str], directory: Path, neighbours: Neighbours) -> str:
    """Ask a gateway with the first configuration of the page, in front of the demo upstream."""
    need("curl")
    config = next(iter(sorted(directory.glob("*.yaml"))))
    gateway, demo = free_port(), free_port()
    text = config.read_text().replace("127.0.0.1:8080", f"127.0.0.1:{gateway}")
    config.write_text(text.replace("127.0.0.1:8081", f"127.0.0.1:{demo}"))
    neighbours.python("-m", "protogate.demo", "--port", str(demo), port=demo)
    neighbours.python("-m", "protogate", "run", "-c", str(config), port=gateway)
    words = [word.replace("127.0.0.1:8080", f"127.0.0.1:{gateway}") for word in words]
    done = run([*words, "-s", "-S"])
    assert done.returncode == 0, done.stderr
    return done.stdout.decode().replace("\r", "").replace(f":{gateway}", ":8080").replace(f":{demo}", ":8081")


def _names(model: Any) -> set[str]:
    """Every key that a configuration may have."""
    found: set[str] = set()
    stack = [model]
    seen: set[Any] = set()
    while stack:
        one = stack.pop()
        if one in seen:
            continue
        seen.add(one)
        if hasattr(one, "__struct_encode_fields__"):
            found |= set(one.__struct_encode_fields__)
            stack += list(typing.get_type_hints(one).values())
        else:
            stack += list(getattr(one, "__args__", ()))
    return found


def test_the_configuration_page_has_every_word_of_the_file() -> None:
    text = (ROOT / "docs" / "configuration.md").read_text() + (ROOT / "docs" / "modules.md").read_text()
    missing = sorted(name for name in _names(Config) if not re.search(rf"\b{name}\b", text))
    assert missing == []


def test_the_example_of_the_repository_loads() -> None:
    for path in (ROOT / "examples").glob("*.yaml"):
        assert build(os.fspath(path)).warnings == ()
