"""
Every example of the documentation is run, as far as it can be.

- yaml: a configuration, or a part of one; it loads without a fault and without a warning.  A first line C{# name.yaml}
  names the file for the console examples of the same page; one that is named C{broken} has faults, C{doubtful}
  warnings.
- python: run, all of a page in one namespace; test cases that are defined there are run too.  A block with a first line
  C{# path/name.py} is a file of a package instead: it is built, installed, and its tests are run.
- console: C{protogate} for real, C{curl} and C{call} against a gateway with the page's configuration and the demo
  upstream; the output is compared, C{...} stands for anything.  Of other programs only the words are checked.
"""

from __future__ import annotations

import doctest
import io
import os
import re
import shlex
import shutil
import subprocess
import sys
import unittest
import zipfile
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
from twisted.scripts import twistd
from twisted.trial.unittest import SynchronousTestCase

from authority import provide
from neighbours import Neighbours, free_port, need, run
from pages import ALL, DOCS, PAGES, ROOT, Example, examples, of
from protogate import cli
from protogate.build import build
from protogate.config.faults import ConfigFaults
from protogate.testing.simulation import __main__ as simulation

PLAIN = {"text", "json", "{toctree}", "{literalinclude}", "{rules}", "{states}"}
"""What nobody could run, or what is taken from elsewhere."""
UNKNOWN = {"git", "jq", "pip", "kill", "systemctl"}
"""Programs whose words are not checked either."""

BASE = {
    "listeners": 'listeners: [{name: web, address: "127.0.0.1:8080"}]\n',
    "upstreams": 'upstreams: [{name: shop, endpoints: [{url: "http://127.0.0.1:8081"}]}]\n',
    "routes": "routes: [{value: /, matcherType: prefix, routes: [{targets: [{upstream: shop}]}]}]\n",
}
"""What is added to a part of a configuration."""


def whole(text: str) -> str:
    """A configuration, out of a part of one; with upstreams and no routes, each upstream gets one."""
    if re.search(r"^upstreams:", text, re.MULTILINE) and not re.search(r"^routes:", text, re.MULTILINE):
        rule = "  - {{value: /{0}, routes: [{{targets: [{{upstream: {0}}}]}}]}}\n"
        text += "routes:\n" + "".join(map(rule.format, re.findall(r"^  - \{?name: ([\w-]+)", text, re.MULTILINE)))
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
    """Put the files that a page names into a directory, and the examples of the repository."""
    (directory / "examples").symlink_to(ROOT / "examples")
    for example in examples(page):
        if example.name:
            path = directory / example.name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(whole(example.text) if example.language == "yaml" else example.text)
    if not (directory / "gateway.yaml").exists():
        (directory / "gateway.yaml").write_text(whole(""))


def listed(page: Path, directory: Path) -> None:
    """Put the lists that a page names into a directory."""
    for example in examples(page):
        if example.name.endswith(".txt") or (example.name and example.language == "text"):
            (directory / example.name).write_text(example.text)


INSTALLED = {"add-a-protocol.md"}
"""Pages whose commands need what they have installed: see test_resp.py."""
PACKAGED = {example.page for example in of("toml")}
"""Pages whose configurations name a module of their own."""


def test_every_block_says_what_it_is() -> None:
    known = {"yaml", "python", "console", "toml", *PLAIN}
    assert [f"{example}: {example.language}" for example in ALL if example.language not in known] == []


def test_pages_show_something() -> None:
    assert len(of("yaml")) > 5
    assert len(of("console")) > 5
    assert len(of("python")) > 2


@pytest.mark.parametrize("example", [example for example in of("yaml") if example.page not in PACKAGED], ids=str)
def test_a_configuration_loads(example: Example, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "gateway.yaml"
    listed(example.page, tmp_path)
    monkeypatch.chdir(tmp_path)
    path.write_text(whole(example.text) if example.name != "broken.yaml" else example.text)
    provide(example.text, tmp_path)
    if example.name == "broken.yaml":
        with pytest.raises(ConfigFaults):
            build(str(path))
    else:
        assert bool(build(str(path)).warnings) is (example.name == "doubtful.yaml")


@pytest.mark.parametrize(
    "page", sorted({example.page for example in of("python") if not example.name}), ids=lambda page: page.name
)
def test_code_runs(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files(page, tmp_path)
    monkeypatch.chdir(tmp_path)
    module = ModuleType("example")
    monkeypatch.setitem(sys.modules, "example", module)
    for example in examples(page):
        if example.language == "python" and not example.name:
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


def packaged(page: str, name: str, directory: Path) -> Path:
    """The package that a page makes, built, and put where Python finds it; beside it its tests."""
    files(DOCS / page, directory)
    (directory / name / "__init__.py").touch()
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", "dist"]
    subprocess.run(build, cwd=directory, check=True, capture_output=True)
    (wheel,) = (directory / "dist").glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(directory / "site")
    for folder in (name, "twisted"):
        shutil.rmtree(directory / folder)
    return directory


def works(package: Path, words: list[str]) -> None:
    """Run something where that package is installed."""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(map(str, (package / "site", package)))}
    done = subprocess.run(words, cwd=package, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """That of the page about modules."""
    return packaged("write-a-module.md", "acme_gateway", tmp_path_factory.mktemp("package"))


@pytest.mark.parametrize(
    "words",
    [
        [sys.executable, "-m", "twisted.trial", "tests.test_maintenance"],
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests/test_maintenance.py"],
        [sys.executable, "-m", "protogate", "check", "-c", "gateway.yaml"],
    ],
    ids=["trial", "pytest", "check"],
)
def test_the_package_of_the_page_about_modules(package: Path, words: list[str]) -> None:
    works(package, words)


def test_the_package_of_the_page_about_discoveries(tmp_path: Path) -> None:
    made = packaged("write-a-discovery.md", "acme_nacos", tmp_path)
    works(made, [sys.executable, "-m", "twisted.trial", "tests.test_nacos"])
    works(made, [sys.executable, "-m", "protogate", "check", "-c", "gateway.yaml"])


@pytest.mark.parametrize(
    "example", [example for example in of("console") if example.page.name not in INSTALLED], ids=str
)
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
        if program == "protogate" and words[2:3] == ["call"]:
            same(expected, _asked([sys.executable, "-m", *words], tmp_path, neighbours))
        elif program == "protogate" and words[1] not in {"run", "upgrade"}:
            out = io.StringIO()
            into = words.index(">>") if ">>" in words else len(words)
            assert cli.main(words[1:into], out) in {0, 1}, example
            same(expected, "" if into < len(words) else out.getvalue())
        elif program == "protogate":
            cli.parser().parse_args(words[1:])
        elif program == "curl":
            need("curl")
            same(expected, _asked([*words, "-s", "-S"], tmp_path, neighbours))
        elif program == "twistd":
            twistd.ServerOptions().parseOptions([re.sub(r"^(--[ug]id)=\w+", r"\1=0", word) for word in words[1:]])
        elif program == "make":
            targets = re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
            assert {word for word in words[1:] if "=" not in word} <= set(targets)
        elif program == "python":
            assert words[1:3] == ["-m", "protogate.testing.simulation"], f"{example}: nobody checks {words}"
            simulation.parser().parse_args(words[3:])
        elif program == "python3":
            assert words[1:3] == ["-m", "venv"], f"{example}: nobody checks {words}"
        elif program in {"pytest", "trial"}:
            paths = [word.partition("::")[0] for word in words[1:] if "/" in word]
            assert [path for path in paths if not (ROOT / path).exists() and not (tmp_path / path).exists()] == []
        else:
            assert program in UNKNOWN, f"{example}: nobody checks {program}"


def _asked(words: list[str], directory: Path, neighbours: Neighbours) -> str:
    """Ask a gateway with the first configuration of the page, in front of the demo upstream; both of its outputs."""
    config = next(iter(sorted(directory.glob("*.yaml"))))
    gateway, demo, admin = free_port(), free_port(), free_port()
    text = config.read_text().replace("127.0.0.1:8080", f"127.0.0.1:{gateway}")
    text = text.replace("127.0.0.1:9901", f"127.0.0.1:{admin}")
    config.write_text(text.replace("127.0.0.1:8081", f"127.0.0.1:{demo}"))
    neighbours.python("-m", "protogate.demo", "--port", str(demo), port=demo)
    neighbours.python("-m", "protogate", "run", "-c", str(config), port=gateway)
    words = [word.replace("127.0.0.1:8080", f"127.0.0.1:{gateway}") for word in words]
    words = [word.replace("127.0.0.1:9901", f"127.0.0.1:{admin}") for word in words]
    done = run(words)
    assert done.returncode == 0, done.stderr
    return (
        (done.stderr + done.stdout)
        .decode()
        .replace("\r", "")
        .replace(f":{gateway}", ":8080")
        .replace(f":{demo}", ":8081")
    )


@pytest.mark.parametrize("path", sorted((ROOT / "examples").glob("*.yaml")), ids=lambda path: path.name)
def test_the_examples_of_the_repository_load(path: Path) -> None:
    assert build(os.fspath(path)).warnings == ()


def test_the_examples_of_the_repository_are_shown() -> None:
    for path in (ROOT / "examples").iterdir():
        shown = [page.name for page in DOCS.glob("*.md") if f"../examples/{path.name}" in page.read_text()]
        assert shown, f"no page shows {path.name}"
        assert path.name in (ROOT / "README.md").read_text() or path.suffix == ".logrotate"


def test_the_news_can_be_built() -> None:
    pytest.importorskip("towncrier")
    words = [sys.executable, "-m", "towncrier", "build", "--draft", "--version", "9.9.9"]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    fragments = (ROOT / "news").glob("+*.md")
    assert [path.name for path in fragments if f"- {path.read_text().strip()}\n" not in done.stdout] == []


@pytest.mark.parametrize("page", ["add-a-protocol.md", "write-a-module.md", "write-a-discovery.md"])
def test_pages_for_whoever_extends_it_use_nothing_but_the_seams(page: str) -> None:
    text = (DOCS / "seams.md").read_text()
    named = {"protogate.interfaces", *re.findall(r"protogate(?:\.[a-z]+)+", text)}
    used = {
        name
        for example in examples(DOCS / page)
        if example.language == "python"
        for name in re.findall(r"^from (protogate\.[\w.]+) import", example.text, re.MULTILINE)
    }
    assert used
    assert [name for name in used if not any(f"{name}.".startswith(f"{known}.") for known in named)] == []


def test_links_between_pages_lead_somewhere() -> None:
    """Sphinx checks those of the docs; those of README and CONTRIBUTING it never sees."""
    for page in PAGES[:3]:
        for link in re.findall(r"\]\(([^)#]+)[^)]*\)", page.read_text()):
            assert "://" in link or (page.parent / link).exists(), f"{page}: {link}"
