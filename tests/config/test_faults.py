from __future__ import annotations

from protogate.config.faults import AtKey, ConfigFaults, Located, dotted, line, under
from protogate.errors import ConfigError


def test_several_faults_are_one_text() -> None:
    faults = ConfigFaults([ConfigError("bad", ("a", 0)), ConfigError("worse")])
    assert faults.lines == ["a[0]: bad", "worse"]
    assert str(faults) == "a[0]: bad\nworse"
    assert [fault.message for fault in faults.faults] == ["bad", "worse"]


def test_lines_may_be_better_known_elsewhere() -> None:
    assert str(ConfigFaults([ConfigError("bad")], ["f:1:1: bad"])) == "f:1:1: bad"


def test_paths_are_written_as_one_would() -> None:
    assert dotted(("routes", 3, "targets", 0, "weight")) == "routes[3].targets[0].weight"
    assert dotted((3, "a")) == "[3].a"
    assert dotted(()) == ""


def test_a_fault_seen_from_further_up() -> None:
    assert under(ConfigError("bad", ("b",)), "a", 1).path == ("a", 1, "b")
    located = under(Located("bad", ("b",), (2, 3)), "a")
    assert isinstance(located, Located)
    assert (located.path, located.position) == (("a", "b"), (2, 3))
    assert isinstance(under(AtKey("bad", ("b",)), "a"), AtKey)


def test_a_fault_stays_on_its_line() -> None:
    assert line(ConfigError("a\r\nb\x1b[2J\u2028\ud800é", ("x\ny",))) == "x\\ny: a\\r\\nb\\x1b[2J\\u2028\\ud800é"
