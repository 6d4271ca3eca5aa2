"""The examples of the pages about modules: each loads, and binds without a warning."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from protogate.config.load import loads
from protogate.governance.binding import bind
from protogate.interfaces import IModuleFactory
from protogate.plugins import find, names

PAGES = Path(__file__).parents[2] / "docs" / "modules"
EXAMPLES = [
    (page.stem, example)
    for page in sorted(PAGES.glob("*.md"))
    for example in re.findall(r"^```yaml\n(.*?)^```", page.read_text(), re.DOTALL | re.MULTILINE)
    if re.search(r"^modules:", example, re.MULTILINE)
]
HEAD = 'listeners: [{name: web, address: "127.0.0.1:8080"}]\n'


@pytest.mark.parametrize(("page", "example"), EXAMPLES, ids=[page for page, _ in EXAMPLES])
def test_example_works(page, example, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for block in re.findall(r"^```text\n(.*?)^```", (PAGES / f"{page}.md").read_text(), re.DOTALL | re.MULTILINE):
        if name := re.match(r"# ([\w-]+\.txt)\n", block):
            (tmp_path / name[1]).write_text(block)
    config = loads((HEAD + example).encode(), f"{page}.yaml").config
    stages = bind(config.modules, find, [upstream.name for upstream in config.upstreams])
    bound = [module for stage in stages.values() for module in stage]
    assert {module.name for module in bound} == {page}
    assert [warning for module in bound for warning in module.warnings] == []


@pytest.mark.parametrize("name", names(IModuleFactory))
def test_every_module_has_a_page_that_names_its_stages(name):
    text = (PAGES / f"{name}.md").read_text()
    (row,) = re.findall(r"^\| Stages \| (.*) \|$", text, re.MULTILINE)
    factory = find(IModuleFactory, name)
    assert re.findall(r"`([A-Z_]+)`", row) == list(factory.stages)
    assert any(page == name for page, _ in EXAMPLES)
