from __future__ import annotations

from protogate.config.nearest import LISTED, hint, nearest


def test_the_nearest_name_is_found_whatever_its_spelling() -> None:
    known = ["matcherType", "methods", "ruleOrder"]
    assert nearest("matchertype", known) == "matcherType"
    assert nearest("rule_order", known) == "ruleOrder"
    assert nearest("metods", known) == "methods"
    assert nearest("circuitBreaker", known) == ""


def test_a_hint_names_the_nearest_or_what_there_is() -> None:
    assert hint("wieght", ["weight", "zone"]) == 'did you mean "weight"?'
    assert hint("x", ["weight", "zone"]) == "known: weight, zone"
    assert hint("x", []) == "none is known"


def test_a_long_list_is_cut() -> None:
    names = [f"name{index}" for index in range(LISTED + 1)]
    assert hint("qqq", names).endswith(f"name{LISTED - 1}, …")
    assert hint("qqq", names[:LISTED]).endswith(f"name{LISTED - 1}")
