"""C{protogate switch}: what is on, and who may turn it."""

from __future__ import annotations

import io
import os
import stat
from pathlib import Path

import pytest

from protogate import cli
from protogate.commands import switch
from protogate.governance.degradewhen import switches

CONFIG = """
listeners: [{name: web, address: "127.0.0.1:8080"}]
upstreams: [{name: shop, endpoints: [{url: "http://192.0.2.7:80"}]}]
routes: [{value: /, matcherType: prefix, routes: [{targets: [{upstream: shop}]}]}]
modules:
"""
ENTRY = """  - name: degrade
    actionParam: {{name: {0}, when: {{switch: {1}}}, switches: {2}, give: [{{answer: {{text: later}}}}]}}
"""
LISTED = "{file: switches.txt}"


class Site:
    def __init__(self, folder: Path, *entries: tuple[str, str, str], text: str = "# none\n") -> None:
        self.config, self.list = folder / "gateway.yaml", folder / "switches.txt"
        self.config.write_text(CONFIG + "".join(ENTRY.format(*entry) for entry in entries))
        self.list.write_text(text)

    def run(self, *words: str) -> tuple[int, str]:
        out = io.StringIO()
        return cli.main(["switch", "-c", str(self.config), *words], out), out.getvalue()


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path, ("search", "b", LISTED), ("shop", "a", LISTED), ("cart", "a", LISTED))


def test_it_shows_what_there_is(site: Site) -> None:
    site.list.write_text("a # since noon\n")
    assert site.run() == (0, "a  on   used by: shop, cart\nb  off  used by: search\n")
    assert site.run("b") == (0, "b  off  used by: search\n")


def test_it_says_that_there_is_none(tmp_path: Path) -> None:
    site = Site(tmp_path)
    site.config.write_text(CONFIG.removesuffix("modules:\n"))
    status, text = site.run()
    assert status == 0
    assert text == f"{tmp_path / 'gateway.yaml'}: no entry has a switch (degrade, when: {{switch: NAME}})\n"


def test_it_turns_one_and_leaves_the_rest_alone(site: Site) -> None:
    site.list.write_text("# ours\nb  # for a while\n")
    assert site.run("a", "on") == (0, "a  on   used by: shop, cart\n")
    first, second, third = site.list.read_text().splitlines()
    assert (first, second, third.partition(" ")[0]) == ("# ours", "b  # for a while", "a")
    assert site.run("a", "on")[0] == 0
    assert len(site.list.read_text().splitlines()) == 3
    assert site.run("b", "off") == (0, "b  off  used by: search\n")
    assert switches(site.list.read_bytes()) == {"a"}
    assert site.run("b", "off")[0] == 0


def test_the_list_keeps_its_mode_and_its_place(site: Site, tmp_path: Path) -> None:
    site.list.chmod(0o640)
    real = tmp_path / "real.txt"
    site.list.rename(real)
    site.list.symlink_to(real)
    assert site.run("a", "on")[0] == 0
    assert site.list.is_symlink()
    assert stat.S_IMODE(real.stat().st_mode) == 0o640
    assert sorted(each.name for each in tmp_path.iterdir()) == ["gateway.yaml", "real.txt", "switches.txt"]


def test_one_that_nobody_uses_is_none(site: Site, capsys: pytest.CaptureFixture[str]) -> None:
    assert site.run("c", "on") == (2, "")
    assert "there are: a, b" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        site.run("a", "maybe")


def test_a_configuration_with_faults_says_so(site: Site) -> None:
    site.list.write_text("a b\n")
    status, text = site.run("a", "on")
    assert status == 1
    assert "line 1" in text


def test_where_nobody_can_write_it_says_who_does(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    site = Site(tmp_path, ("shop", "a", "{url: {upstream: shop, path: /switches}}"))
    assert site.run() == (0, "a  ?    used by: shop\n")
    assert site.run("a", "on") == (2, "")
    assert "shop/switches" in capsys.readouterr().err


def test_a_list_that_cannot_be_written_stays(
    site: Site, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(*args: object) -> None:
        raise PermissionError(13, "no")

    monkeypatch.setattr(os, "replace", refuse)
    assert site.run("a", "on") == (1, "")
    assert "no" in capsys.readouterr().err
    assert site.list.read_text() == "# none\n"
    assert len(list(site.list.parent.iterdir())) == 2


def test_a_list_that_is_gone_meanwhile(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"gone\.txt"):
        switch.write(str(tmp_path / "gone.txt"), "a", True)


def test_two_lists_of_one_switch_may_differ(tmp_path: Path) -> None:
    site = Site(tmp_path, ("shop", "a", LISTED), ("cart", "a", "{file: more.txt}"), text="a\n")
    (tmp_path / "more.txt").write_text("")
    assert site.run() == (0, "a  both  used by: shop, cart\n")
    assert site.run("a", "off") == (0, "a  off  used by: shop, cart\n")
