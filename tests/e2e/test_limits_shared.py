"""Limits that gateways share through a real Redis: what its script does, every way to reach it, and its absence."""

from __future__ import annotations

import http.client
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import limits
import overload
from authority import Authority
from gateways import WITHIN, Gateway, eventually, start
from neighbours import Neighbours, free_port, need
from processes import cells
from protogate.governance.gcrascript import GCRA
from protogate.governance.quotascript import QUOTA
from protogate.testing.redis import RedisServer, gcra, quota

redis = pytest.importorskip("redis")

BURST = 0.1
"""Of a second's limit: what the bench of limits allows at once."""


class Store(NamedTuple):
    """
    A Redis that can be reached in every way.

    @ivar home: where its files are.
    """

    port: int
    tls: int
    home: Path

    def client(self) -> Any:
        """The client for Python."""
        return redis.Redis(port=self.port, protocol=2, socket_timeout=WITHIN)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    program = need("redis-server")
    home = tmp_path_factory.mktemp("store")
    started = Neighbours(home)
    issued = Authority(home).issue("localhost", ["localhost", "127.0.0.1"])
    made = Store(free_port(), free_port(), home)
    words = f"--bind 127.0.0.1 --port {made.port} --tls-port {made.tls} --unixsocket {home}/redis.sock"
    words += (
        f" --tls-cert-file {issued[0]} --tls-key-file {issued[1]} --tls-auth-clients no --tls-ca-cert-file {issued[0]}"
    )
    try:
        started.start([program, *words.split(), "--save", "", "--dir", str(home)], port=made.port)
        with made.client() as client:
            client.acl_setuser("limits", enabled=True, passwords=["+s3cret"], keys=["*"], commands=["+@all"])
        yield made
    finally:
        started.stop()


def gateway(neighbours: Neighbours, parameters: dict[str, Any], **more: Any) -> Gateway:
    """One that answers everything itself, if the limit allows it."""
    modules = [
        {"name": "rateLimit", "actionParam": parameters},
        {"name": "respond", "stage": "PRE_REQUEST", "ruleOrder": 1, "actionParam": {"status": 200, "body": "yes"}},
    ]
    listener = {"name": "web", "address": "127.0.0.1:0"}
    return start(neighbours, {"gateway": more, "listeners": [listener], "modules": modules})


def ask(port: int) -> int:
    """The status of an answer."""
    with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=WITHIN)) as connection:
        connection.request("GET", "/")
        with connection.getresponse() as response:
            return response.status


BY_HAND = GCRA.text.replace("redis.call('TIME')", "{ARGV[5], ARGV[6]}")


@settings(max_examples=60, deadline=None)
@given(
    st.integers(1, 1_000_000),
    st.integers(1, 1000),
    st.lists(st.tuples(st.integers(0, 3_000_000), st.integers(1, 50), st.integers(1, 5)), min_size=1, max_size=40),
)
def test_the_script_does_what_its_twin_does(
    store: Store, each: int, burst: int, steps: list[tuple[int, int, int]]
) -> None:
    """The twin is what all other tests have in its place.  Its time is handed in; rounding may cost a microsecond."""
    assert GCRA.text != BY_HAND
    now = 1_700_000_000_000_000
    twin = RedisServer(lambda: now / 1e6)
    with store.client() as client:
        client.flushall()
        script = client.register_script(BY_HAND)
        for wait, wanted, least in steps:
            now += wait
            numbers = [each, burst, max(wanted, least), least]
            found = script(["k"], [*numbers, now // 1_000_000, now % 1_000_000])
            expected = gcra(twin, [b"k"], [b"%d" % number for number in numbers])
            assert found[0] == expected[0]
            assert found[1] == pytest.approx(expected[1], abs=2)
            assert found[2] == pytest.approx(expected[2], abs=1)


@settings(max_examples=60, deadline=None)
@given(
    st.integers(1, 300),
    st.lists(st.tuples(st.integers(-60, 50), st.integers(1, 5)), min_size=1, max_size=40),
)
def test_the_script_of_quotas_does_what_its_twin_does(store: Store, limit: int, steps: list[tuple[int, int]]) -> None:
    until = int(time.time()) + 1000
    twin = RedisServer(time.time)
    with store.client() as client:
        client.flushall()
        script = client.register_script(QUOTA.text)
        for wanted, least in steps:
            numbers = [limit, until, max(wanted, least) if wanted > 0 else wanted, least if wanted > 0 else 0]
            assert script(["k"], numbers) == quota(twin, [b"k"], [b"%d" % number for number in numbers])
        if twin.get(b"k"):
            assert client.get("k") == b"%d" % twin.get(b"k")
            assert 900 < client.ttl("k") <= 1000


def test_another_rate_in_the_script_keeps_what_was_used(store: Store) -> None:
    with store.client() as client:
        client.flushall()
        script = client.register_script(GCRA.text)
        assert script(["k"], [60_000_000, 100, 80, 1]) == [80, 0, 20]
        assert script(["k"], [6_000_000, 100, 30, 1])[0] == 20
        assert script(["k"], [6_000_000, 200, 100, 1])[0] == 100
        assert 0 < client.pttl("k") <= 200 * 6_000 + 1_000, "it goes away by itself"


@pytest.mark.parametrize("way", ["tcp", "password", "tls", "unix"])
def test_two_gateways_share_a_limit_over(store: Store, neighbours: Neighbours, tmp_path: Path, way: str) -> None:
    secret = tmp_path / "password"
    secret.write_text("s3cret\n")
    settings = {
        "tcp": {"url": f"redis://127.0.0.1:{store.port}/1"},
        "password": {
            "url": f"redis://localhost:{store.port}/2",
            "username": "limits",
            "password": {"file": str(secret)},
        },
        "tls": {"url": f"rediss://localhost:{store.tls}/3", "ca": {"file": str(store.home / "authority.pem")}},
        "unix": {"url": f"unix://{store.home}/redis.sock"},
    }[way]
    with store.client() as client:
        client.flushall()
    parameters = {"limit": "7/d", "name": way, "whenStoreFails": "closed", "redis": {**settings, "timeout": "1s"}}
    both = [gateway(neighbours, parameters, workers=2 if way == "tcp" else 0) for _ in range(2)]
    passed = [0, 0]

    def seven() -> bool:
        for index, one in enumerate(both):
            passed[index] += ask(one.port) == 200
        return sum(passed) >= 7

    eventually(seven, "seven requests pass")
    assert [ask(one.port) for one in (*both, *both)] == [429] * 4
    assert sum(passed) == 7
    for one in both:
        one.healthy()
        assert "s3cret" not in one.log


def test_a_redis_that_cannot_prove_who_it_is_is_none(store: Store, neighbours: Neighbours, tmp_path: Path) -> None:
    other = Authority(tmp_path)
    settings = {"url": f"rediss://localhost:{store.tls}", "ca": {"file": str(other.file)}}
    parameters = {"limit": "7/d", "name": "x", "whenStoreFails": "closed", "redis": settings}
    one = gateway(neighbours, parameters)
    one.says("certificate verify failed")
    assert ask(one.port) == 429
    one.healthy()


@pytest.mark.unwatched
def test_an_upstream_that_gets_too_much_answers_as_many_and_sooner() -> None:
    figures, _ = overload.run(places=2, over=3, seconds=4)  # so few that a busy machine can ask them all
    told = cells(overload.HEADINGS, *(figure.row() for figure in figures))
    nothing, right, learnt = figures
    assert (nothing.refused, min(right.refused, learnt.refused) > 0) == (0, True), told
    assert learnt.answered > nothing.answered / 2, told
    assert learnt.middle < nothing.middle, told


@pytest.mark.unwatched
def test_the_limit_holds_under_load_and_redis_may_come_and_go() -> None:
    """A small run of the bench.  What the machine does to the clock is not ours: the large one says more."""
    need("redis-server")
    figures, _ = limits.run(limit=100, workers=2, seconds=2, settle=2.5)
    told = cells(limits.HEADINGS, *(figure.row() for figure in figures))
    assert [figure.strange for figure in figures] == [0] * len(figures), told
    for figure in figures:
        if figure.due:
            # Where the machine holds requests up they come in lumps, and a lump passes no more than a burst.
            least = 0.85 if figure.latency < BURST else 0.5
            assert least < figure.share < 1.15, told
    assert all(figure.passed > 0 for figure in figures), told
