"""
In processes of their own: each has a reactor that nobody else uses, and may be stopped.

All that is asserted about times are lower bounds of what was done on purpose, and who did it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from protogate.observe.blocked import Frame, culprit
from protogate.reactor.best import reactors

HERE = Path(__file__).parent
REACTORS = sorted({"epoll", "poll", "select", "asyncio", "protogate-uv"} & set(reactors()))


WAYS = (
    "asleep",
    "again",
    "at_work",
    "in_c",
    "child",
    "collect",
    "stopped",
    "stopped_at_work",
    "stuck",
    "busy",
    "one_of_many",
    "module",
)

Results = dict[str, Any]


@pytest.fixture(scope="module")
def results() -> Iterator[dict[str, Results]]:
    """By reactor: what each way led to, and C{end}, what is left of it all.  All run at once: mostly they wait."""
    environ = os.environ | {"PYTHONPATH": os.fspath(HERE.parent / "cases")}
    program = os.fspath(HERE / "held_up.py")
    running = {
        name: subprocess.Popen(
            [sys.executable, program, name, *(WAYS if name == "epoll" else WAYS[:1])],
            env=environ,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for name in REACTORS
    }
    try:
        found = {}
        for name, one in running.items():
            out, _ = one.communicate(timeout=120)
            assert one.returncode == 0, out
            found[name] = {line["way"]: line for line in map(json.loads, out.splitlines())}
        yield found
    finally:
        for one in running.values():
            one.kill()
            one.communicate()


@pytest.fixture
def epoll(results: dict[str, Results]) -> Results:
    return results["epoll"]


def only(one: Results) -> dict[str, str]:
    """The one thing that was told."""
    (told,) = one["told"]
    return told  # type: ignore[no-any-return]


@pytest.mark.parametrize("reactor", REACTORS)
def test_a_call_that_blocks_is_counted_and_named_on_every_reactor(results: dict[str, Results], reactor: str) -> None:
    one = results[reactor]["asleep"]
    assert one["counts"]["loop_blocked"] == 1
    assert one["counts"]["loop_blocked_seconds"] > 0.15
    assert only(one)["place"].endswith(" asleep")
    assert one["modules"] is None
    assert results[reactor]["end"] == {"way": "end", "left": []}


def test_a_module_that_sleeps_is_named_with_its_line_and_stack(epoll: Results) -> None:
    one = epoll["module"]
    assert one["counts"]["loop_blocked"] >= 1
    (told,) = (told for told in one["told"] if told["place"].endswith("acme_slow.py:5 fetch"))
    assert told["place"].startswith("module slow: ")
    assert one["modules"]["slow"]["loop_blocked"] >= 1
    assert one["modules"]["slow"]["loop_blocked_seconds"] > 0.15
    assert "in process\n" in told["text"]
    assert "    time.sleep(seconds)" in told["text"]
    assert "protogate/exchange/pipeline.py" in told["text"]
    assert "epollreactor" not in told["text"]


@pytest.mark.parametrize("way", ["at_work", "child"])
def test_work_and_other_processes_are_named_where_they_were_called(epoll: Results, way: str) -> None:
    assert epoll[way]["counts"]["loop_blocked"] >= 1
    assert any(told["place"].endswith(f" {way}") for told in epoll[way]["told"])


def test_what_lets_nobody_look_is_found_out_about_afterwards(epoll: Results) -> None:
    assert epoll["in_c"]["counts"]["loop_blocked"] >= 1
    assert epoll["in_c"]["counts"]["loop_blocked_seconds"] > 0.1
    # On a busy machine the loop may have gone on by the time of the look.
    assert {told["place"].rpartition(" ")[2] for told in epoll["in_c"]["told"]} & {"in_c", "thread"}


def test_the_collector_is_told_apart(epoll: Results) -> None:
    assert "the garbage collector" in [told["place"] for told in epoll["collect"]["told"]]


def test_a_process_that_was_stopped_blocked_nothing(epoll: Results) -> None:
    counts = epoll["stopped"]["counts"]
    assert counts["loop_suspended"] >= 1
    assert counts.get("loop_blocked_seconds", 0) < 0.3  # it stood still for 0.5 s


def test_the_time_in_which_it_stood_still_is_left_out(epoll: Results) -> None:
    counts = epoll["stopped_at_work"]["counts"]
    assert counts["loop_suspended"] >= 1
    assert counts["loop_blocked"] >= 1
    assert counts["loop_blocked_seconds"] < 0.6  # it slept for 0.7 s, in which it stood still for 0.5 s


def test_a_long_turn_of_many_exchanges_is_no_call_that_blocks(epoll: Results) -> None:
    # It lasts for 0.32 s; on a busy machine one of its naps may be a long one.
    assert epoll["busy"]["counts"].get("loop_blocked_seconds", 0) < 0.2


def test_a_call_that_blocks_is_noticed_among_many(epoll: Results) -> None:
    # It lasts for 0.6 s, and what comes behind it for 0.32 s.
    assert 0.15 < epoll["one_of_many"]["counts"]["loop_blocked_seconds"] < 0.8


def test_a_long_one_is_told_while_it_lasts_and_only_once(epoll: Results) -> None:
    assert epoll["meanwhile"]["told"] == 1
    assert "so far" in only(epoll["stuck"])["text"]
    assert epoll["stuck"]["counts"]["loop_blocked"] == 1
    assert epoll["stuck"]["counts"]["loop_blocked_seconds"] > 1


def test_the_same_place_is_told_once_a_minute_and_counted_each_time(epoll: Results) -> None:
    assert epoll["again"]["counts"]["loop_blocked"] == 1
    assert epoll["again"]["told"] == []


# -- who is to be named


def stack(*modules: str) -> tuple[Frame, ...]:
    return tuple(Frame(module, f"{module}.py", at, "call") for at, module in enumerate(modules))


@pytest.mark.parametrize(
    ("modules", "named"),
    [
        (["twisted.python.log", "acme_codec.server", "protogate.exchange.pipeline", "acme.auth", "time"], "acme.auth"),
        (["protogate.exchange.pipeline", "acme.auth", "acme.ldap", "ldap3.core", "socket", "ssl"], "acme.ldap"),
        (["twisted.internet.defer", "acme.auth", "requests.api", "urllib3.pool", "socket"], "acme.auth"),
        (["protogate.downstream.listener", "acme_codec.server", "json"], "acme_codec.server"),
        (["twisted.python.log", "protogate.upstream.pool", "json.decoder"], "protogate.upstream.pool"),
        (["twisted.python.log", "twisted.internet.tcp", "socket"], "twisted.internet.tcp"),
        (["json", "json.decoder"], "json.decoder"),
    ],
)
def test_who_was_called_by_the_gateway_is_named(modules: list[str], named: str) -> None:
    found = culprit(stack(*modules))
    assert found is not None
    assert found.module == named


def test_without_a_stack_nobody_is() -> None:
    assert culprit(()) is None
