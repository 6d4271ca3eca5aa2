"""Endpoints behind a name, in a whole gateway: what is old, and what is known of an endpoint meanwhile."""

from __future__ import annotations

from typing import Any

from sightings import Scene, at, config, scene
from twisted.internet.defer import Deferred
from twisted.names.error import DNSQueryTimeoutError

FOUND = {"dns": "up.test:80"}


def two(made: Scene) -> None:
    made.gateway.names.hosts["up.test"] = [at(1), at(2)]
    made.gateway.names.ttl = 5


def deaf(made: Scene) -> None:
    """From now on no name server answers."""

    def lookup(*_: Any) -> Deferred[Any]:
        asked: Deferred[Any] = Deferred()
        made.gateway.service.wheel.after(7, lambda: asked.called or asked.errback(DNSQueryTimeoutError(7)))
        return asked

    made.gateway.names._lookup = lookup  # type: ignore[method-assign]


def test_an_answer_that_grew_old_is_no_trouble_while_a_new_one_comes() -> None:
    with scene(FOUND, before=two) as made:
        made.gateway.advance(60)
        assert made.asked() == {1, 2}
        assert (made.count("discovery_failed"), made.stale) == (0, 0)


def test_silence_of_all_servers_is_noticed_and_bounded() -> None:
    with scene({**FOUND, "staleFor": "30m"}, before=two) as made:
        deaf(made)
        made.gateway.advance(30)
        assert (made.asked(), made.stale) == ({1, 2}, 1)
        assert made.said("no name server answers; what it knew (2 endpoints) is used for up to 30m")
        made.gateway.advance(1830)
        assert made.asked(2) == {"503"}
        assert made.count("discovery_expired") == 1
        del made.gateway.names._lookup  # type: ignore[method-assign]
        made.gateway.advance(15)
        assert (made.asked(), made.stale) == ({1, 2}, 0)


def test_an_old_answer_of_another_upstream_is_better_than_none() -> None:
    other = {"name": "other", "endpoints": [{"url": "http://up.test"}]}
    with scene(FOUND, other, before=two) as made:
        deaf(made)
        made.gateway.advance(30)
        assert made.gateway.reload(config({"dns": "up.test:81"}, other))
        made.gateway.advance(1)
        assert made.stale == 1
        clusters = made.gateway.service.clusters
        assert clusters is not None
        assert [each.address for each in clusters.current["origin"].endpoints] == [f"{at(1)}:81", f"{at(2)}:81"]


def test_what_is_held_against_an_endpoint_outlives_answers_with_any_ttl() -> None:
    with scene(FOUND, before=two) as made:
        clusters = made.gateway.service.clusters
        assert clusters is not None
        cluster = clusters.current["origin"]
        one = cluster.endpoints[0]
        cluster.hold(one, "test", 0.0, "ill")
        assert made.asked() == {2}
        for turn in range(20):
            made.gateway.names.ttl = (0, 30)[turn % 2]
            made.gateway.names.hosts["up.test"].reverse()
            made.gateway.advance(1.1)
            assert made.asked(2) == {2}
        assert one in cluster.endpoints
        assert len(made.gateway.names.asked) <= 2 * 20
        cluster.hold(one, "test", 1.0)
        assert made.asked() == {1, 2}


def test_a_question_that_never_ends_is_silence_too() -> None:
    with scene(FOUND, before=two) as made:
        made.gateway.names._lookup = lambda *_: Deferred()  # type: ignore[method-assign]
        made.gateway.advance(30)
        assert (made.asked(), made.stale) == ({1, 2}, 1)
