"""Endpoints in an etcd, in a whole gateway: changes, breaks, compaction, restores, passwords, garbage."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from sightings import ETCD, PREFIX, Scene, at, config, etcd_at, scene
from twisted.internet.defer import Deferred

from protogate.body import Whole
from protogate.discovery.etcd import LONGEST, SILENCE, _end
from protogate.message import Response
from protogate.testing.bodies import Giver
from protogate.testing.catalogues import coded
from protogate.testing.cell import read_then

RANGE, WATCH = (b"POST", b"/v3/kv/range"), (b"POST", b"/v3/watch")


def two(made: Scene) -> None:
    for number in (1, 2):
        made.etcd.put(f"{PREFIX}{number}", f"{at(number)}:80")


def test_what_is_written_is_found_and_followed() -> None:
    with scene(etcd_at(), before=two) as made:
        assert made.asked() == {1, 2}
        made.etcd.put(PREFIX + "3", json.dumps({"url": f"http://{at(3)}", "weight": 200, "zone": "b", "more": [1]}))
        made.gateway.run()
        answers = [made.ask() for _ in range(8)]
        assert (answers.count(3), answers.count(1)) == (4, 2)
        made.etcd.put(PREFIX + "4", json.dumps({"Op": 0, "Addr": f"{at(4)}:80", "Metadata": None}))
        made.etcd.delete(PREFIX + "1")
        made.etcd.put("/services/other/1", at(1))
        made.gateway.run()
        assert made.asked(12) == {2, 3, 4}
        assert made.etcd.asked == [RANGE, WATCH], "it is watched, and not asked again"


def test_a_watch_that_is_silent_is_begun_anew_and_nothing_is_read_twice() -> None:
    with scene(etcd_at(), before=two) as made:
        for _ in range(3):
            made.gateway.advance(SILENCE + 1)
        assert made.etcd.asked == [RANGE, *[WATCH] * 4]
        assert (made.etcd.watches, made.count("discovery_failed")) == (1, 0)
        made.etcd.delete(PREFIX + "1")
        made.gateway.run()
        assert made.asked() == {2}


def test_clocks_of_the_upstream_that_are_shorter_are_silence_as_well() -> None:
    hub = {"name": "hub", "endpoints": [{"url": f"http://{ETCD[0]}:{ETCD[1]}"}], "timeouts": {"responseStall": "10s"}}
    with scene({"etcd": {"upstream": "hub", "prefix": PREFIX}}, hub, before=two) as made:
        made.gateway.advance(35)
        assert made.etcd.asked == [RANGE, *[WATCH] * 4]
        assert made.count("discovery_failed") == 0


def test_a_watch_that_breaks_is_taken_up_where_it_was() -> None:
    with scene(etcd_at(), before=two) as made:
        made.etcd.away = True
        made.gateway.advance(5)
        assert made.asked() == {1, 2}
        assert (made.stale, made.said("what it knew (2 endpoints) is used for up to 72h")) == (1, True)
        made.etcd.delete(PREFIX + "1")
        made.etcd.put(PREFIX + "3", f"http://{at(3)}:80")
        made.etcd.away = False
        made.gateway.advance(10)
        assert made.asked() == {2, 3}
        assert made.etcd.asked.count(RANGE) == 1
        assert (made.stale, made.said("etcd (/services/shop/) answers")) == (0, True)
        assert len([line for line in made.logged if "is used for" in line]) == 2, "each reason is told once"


def test_attempts_come_less_and_less_often_and_soon_again_after_a_success() -> None:
    with scene(etcd_at(), before=two) as made:
        made.etcd.away = True
        made.gateway.advance(60)
        asked = len(made.etcd.asked)
        assert 6 <= asked - 2 <= 14
        made.gateway.advance(300)
        assert 9 <= len(made.etcd.asked) - asked <= 16
        made.etcd.away = False
        made.gateway.advance(31)
        assert made.etcd.watches == 1
        asked = len(made.etcd.asked)
        made.etcd.cut()
        made.gateway.advance(0.7)
        assert len(made.etcd.asked) == asked + 1


def test_what_was_compacted_is_read_anew() -> None:
    with scene(etcd_at(), before=two) as made:
        made.etcd.away = True
        made.etcd.delete(PREFIX + "1")
        made.etcd.elsewhere()
        made.etcd.compact()
        made.etcd.away = False
        made.gateway.advance(2)
        assert made.asked() == {2}
        assert made.etcd.asked.count(RANGE) == 2
        assert made.count("discovery_failed") == 1, "compaction is no failure"


def test_one_that_was_set_up_anew_is_read_anew() -> None:
    with scene(etcd_at(), before=two) as made:
        made.etcd.restore()
        made.etcd.put(PREFIX + "x", f"{at(3)}:80")
        made.gateway.advance(2)
        assert made.asked() == {3}


def test_progress_keeps_the_watch_behind_what_is_compacted() -> None:
    with scene(etcd_at(), before=two) as made:
        for _ in range(5):
            made.etcd.elsewhere()
        made.etcd.progress()
        made.gateway.run()
        made.etcd.compact()
        made.gateway.advance(SILENCE + 1)
        assert made.etcd.asked.count(RANGE) == 1


def test_a_watch_that_ends_well_is_no_failure_unless_it_ends_at_once() -> None:
    with scene(etcd_at(), before=two) as made:
        made.gateway.advance(5)
        made.etcd.end()
        made.gateway.advance(0.1)
        assert (made.etcd.watches, made.count("discovery_failed")) == (1, 0)
        made.etcd.end()
        made.gateway.advance(0.1)
        assert made.count("discovery_failed") == 1


def test_one_entry_that_cannot_be_read_harms_no_other() -> None:
    with scene(etcd_at(), before=two) as made:
        made.etcd.put(PREFIX + "1", "{")
        made.etcd.put(PREFIX + "bad", b"\xff\xfe")
        made.gateway.run()
        assert made.asked() == {2}
        assert made.count("discovery_illegible") == 2
        assert made.said("/services/shop/1: expected host:port, a URL, or a JSON object with url")
        made.etcd.put(PREFIX + "1", f"{at(1)}:80")
        made.gateway.run()
        assert made.asked() == {1, 2}


def test_entries_that_nobody_can_read_do_not_count_as_none() -> None:
    with scene(etcd_at(), before=two) as made:
        made.etcd.away = True
        for number in (1, 2):
            made.etcd.put(f"{PREFIX}{number}", "https://secure.test")
        made.etcd.compact()
        made.etcd.away = False
        made.gateway.advance(5)
        assert made.asked() == {1, 2}
        assert made.said("none of 2 endpoints can be read")


def test_all_keys_gone_is_doubted_for_a_while() -> None:
    with scene(etcd_at(), before=two) as made:
        for number in (1, 2):
            made.etcd.delete(f"{PREFIX}{number}")
        made.gateway.advance(50)
        assert made.asked() == {1, 2}
        made.gateway.advance(11)
        assert made.asked() == {"503"}
        assert (made.count("discovery_empty"), made.stale) == (1, 0)
        made.etcd.put(PREFIX + "3", f"{at(3)}:80")
        made.gateway.run()
        assert made.asked() == {3}


def test_a_gateway_that_starts_without_it_answers_503_and_finds_it_later() -> None:
    def away(made: Scene) -> None:
        two(made)
        made.etcd.away = True

    with scene(etcd_at(), before=away) as made:
        assert made.asked(2) == {"503"}
        assert made.gateway.records[-1].phase == "dns"
        made.etcd.away = False
        made.gateway.advance(2)
        assert made.asked() == {1, 2}


def test_what_was_found_is_not_used_for_ever() -> None:
    with scene(etcd_at(staleFor="10m"), before=two) as made:
        made.etcd.away = True
        made.gateway.advance(590)
        assert made.asked() == {1, 2}
        made.gateway.advance(20)
        assert made.asked() == {"503"}
        assert (made.count("discovery_expired"), made.stale) == (1, 0)
        made.etcd.away = False
        made.gateway.advance(31)
        assert made.asked() == {1, 2}


def test_one_that_takes_questions_and_never_answers_is_away() -> None:
    with scene(etcd_at(), before=two) as made:
        made.etcd.broken = lambda request: Deferred()  # as a process that was stopped
        made.gateway.advance(SILENCE + 25)
        assert made.stale == 0
        made.gateway.advance(10)
        assert (made.asked(), made.stale) == ({1, 2}, 1)
        made.etcd.broken = None
        made.gateway.advance(35)
        assert made.stale == 0


def test_a_watch_that_never_begins_is_trouble() -> None:
    with scene(etcd_at(), before=two) as made:
        made.etcd.broken = lambda request: Response(200, body=Giver(close=False).body)
        made.gateway.advance(2 * SILENCE + 5)
        assert made.stale == 1
        assert made.said("the watch says nothing for 45 s")


# -- who may ask


def guarded(made: Scene) -> None:
    two(made)
    made.etcd.users = {"gateway": "secret"}


def test_a_token_is_asked_for_and_renewed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ETCD_PASSWORD", "secret")
    found = etcd_at(username="gateway", password={"env": "ETCD_PASSWORD"})
    with scene(found, before=guarded) as made:
        assert made.asked() == {1, 2}
        made.etcd.tokens.clear()
        made.gateway.advance(SILENCE + 1)  # the next watch is refused, and begun anew with another token
        assert (made.etcd.watches, made.count("discovery_failed")) == (1, 0)
        assert made.etcd.asked.count((b"POST", b"/v3/auth/authenticate")) == 2
        made.etcd.tokens.clear()
        made.etcd.delete(PREFIX + "1")
        made.etcd.compact()
        made.etcd.cut()
        made.gateway.advance(3)
        assert made.asked() == {2}


def test_a_password_that_was_changed_is_read_anew(tmp_path: Path) -> None:
    path = tmp_path / "password"
    path.write_text("wrong\n")
    with scene(etcd_at(username="gateway", password={"file": str(path)}), before=guarded) as made:
        assert made.asked(2) == {"503"}
        path.write_text("secret\n")
        made.gateway.advance(5)
        assert made.asked() == {1, 2}
        assert not any("wrong" in line or "secret" in line for line in made.logged)


def test_a_token_of_somebody_else_is_read_anew_when_it_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text("first\n")

    def guarded_by_token(made: Scene) -> None:
        guarded(made)
        made.etcd.tokens = {"first"}

    with scene(etcd_at(token={"file": str(path)}), before=guarded_by_token) as made:
        assert made.asked() == {1, 2}
        path.write_text("second\n")
        made.etcd.tokens = {"second"}
        made.gateway.advance(SILENCE + 1)
        assert (made.etcd.watches, made.count("discovery_failed")) == (1, 0)
        assert RANGE in made.etcd.asked
        assert (b"POST", b"/v3/auth/authenticate") not in made.etcd.asked
        path.unlink()
        made.etcd.tokens = {"third"}
        made.gateway.advance(SILENCE + 1)
        assert made.said("No such file")
        path.write_text("third\n")
        made.gateway.advance(31)
        assert (made.etcd.watches, made.stale) == (1, 0)


def test_who_is_refused_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    with scene(etcd_at(), before=guarded) as made:
        assert made.asked(2) == {"503"}
        assert "it answered 401" in str(made.gateway.records[-1].error)


@pytest.mark.parametrize("token", [None, 5, "", "to\nken", "t\u00f6ken"])
def test_a_token_that_is_none_is_refused(token: object, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(made: Scene) -> None:
        made.etcd.broken = lambda request: whole({"token": token})

    monkeypatch.setenv("ETCD_PASSWORD", "secret")
    with scene(etcd_at(username="gateway", password={"env": "ETCD_PASSWORD"}), before=broken) as made:
        assert made.asked(1) == {"503"}
        assert "it gave no token" in str(made.gateway.records[-1].error)


# -- nonsense


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (lambda: Response(503, body=Whole(b"busy")), "it answered 503 to a watch"),
        (lambda: Response(503), "it answered 503 to a watch"),
        (lambda: Response(200), "it answered a watch with nothing"),
    ],
)
def test_an_answer_that_is_no_watch_is_told(answer: Callable[[], Response], why: str) -> None:
    def only(made: Scene) -> None:
        two(made)
        whole = read_then(made.etcd.answer)
        made.etcd.broken = lambda request: answer() if request.target == b"/v3/watch" else whole(request)

    with scene(etcd_at(), before=only) as made:
        made.gateway.advance(1)
        assert made.asked() == {1, 2}
        assert made.count("discovery_failed") >= 1
        clusters = made.gateway.service.clusters
        assert clusters is not None
        assert why in clusters.current["origin"]._discovery._said  # type: ignore[union-attr]


def test_a_reload_while_a_watch_is_asked_for_leaves_nothing() -> None:
    with scene(etcd_at(), before=two) as made:
        asked: list[Deferred[Response]] = []

        def later(request: object) -> Deferred[Response]:
            asked.append(Deferred())
            return asked[-1]

        made.etcd.broken = later
        made.etcd.end()
        made.gateway.advance(3)
        assert asked
        assert made.gateway.reload(config({"dns": "nobody.test:1"}))
        made.gateway.advance(10)
        assert made.etcd.watches == 0


def test_more_than_can_be_are_too_many_in_a_watch_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("protogate.discovery.etcd.MOST", 3)
    with scene(etcd_at(), before=two) as made:
        made.etcd.put(PREFIX + "3", f"{at(3)}:80")
        made.etcd.put(PREFIX + "4", f"{at(4)}:80")
        made.gateway.run()
        assert made.said("more than 3 endpoints")
        assert made.asked(9) <= {1, 2, 3}


@pytest.mark.parametrize(
    "message",
    [
        b"not json\n",
        b"[]\n",
        b"{}\n",
        {"error": {"grpc_code": 14, "message": "etcdserver: no leader"}},
        {"result": {"header": {"revision": "9" * 30}}},
        {"result": {"header": {"revision": "9"}, "events": {}}},
        {"result": {"header": {"revision": "9"}, "events": [{"kv": {"key": 5}}]}},
        {"result": {"header": {"revision": "9"}, "canceled": True, "cancel_reason": "because"}},
        b"[" * 30_000 + b"\n",
    ],
)
def test_a_watch_that_says_nonsense_is_begun_anew(message: object) -> None:
    with scene(etcd_at(), before=two) as made:
        made.etcd.say(message)
        made.gateway.advance(3)
        assert made.count("discovery_failed") == 1
        assert (made.etcd.watches, made.asked()) == (1, {1, 2})
        assert not made.said("Traceback")


def test_a_message_that_is_too_long_has_all_read_anew() -> None:
    with scene(etcd_at(), before=two) as made:
        made.etcd.put(PREFIX + "3", json.dumps({"url": f"http://{at(3)}", "more": "x" * LONGEST}))
        made.gateway.advance(2)
        assert made.asked() == {1, 2, 3}
        assert made.etcd.asked.count(RANGE) == 2
        assert made.count("discovery_failed") == 0


def whole(value: object) -> Response:
    return Response(200, body=Whole(json.dumps(value).encode()))


@pytest.mark.parametrize(
    ("value", "why"),
    [
        ({"kvs": []}, "expected a number, got nothing"),
        ({"header": {"revision": "0"}}, "it tells no revision"),
        ({"header": {"revision": "5"}, "kvs": {}}, "expected a list"),
        ({"header": {"revision": "5"}, "kvs": [{"key": "?"}]}, "Only base64 data"),
        (
            {
                "header": {"revision": "5"},
                "kvs": [{"key": coded(str(each)), "value": coded("a:1")} for each in range(10_001)],
            },
            "more than 10000 endpoints",
        ),
        ([], "it is no object"),
    ],
)
def test_an_answer_that_is_none_is_told_and_asked_for_again(value: object, why: str) -> None:
    def broken(made: Scene) -> None:
        two(made)
        made.etcd.broken = lambda request: whole(value)

    with scene(etcd_at(), before=broken) as made:
        assert made.asked(1) == {"503"}
        error = str(made.gateway.records[-1].error)
        assert why in error
        made.etcd.broken = None
        made.gateway.advance(5)
        assert made.asked() == {1, 2}


def test_an_answer_without_end_is_cut_off() -> None:

    def broken(made: Scene) -> None:
        made.etcd.broken = lambda request: Response(200, body=Whole(b"x" * ((16 << 20) + 1)))

    with scene(etcd_at(), before=broken) as made:
        assert made.asked(1) == {"503"}
        assert "the answer is too long" in str(made.gateway.records[-1].error)


def test_a_reload_goes_on_with_the_watch_that_is_there() -> None:
    with scene(etcd_at(), before=two) as made:
        assert made.asked() == {1, 2}
        connections = [len(made.servers[number].connections) for number in (1, 2)]
        again = config(etcd_at(staleFor="1h"), timeouts={"connect": "1s"})
        assert made.gateway.reload(again)
        made.gateway.advance(1)
        assert made.asked() == {1, 2}
        assert made.etcd.asked == [RANGE, WATCH]
        assert [len(made.servers[number].connections) for number in (1, 2)] == connections
        assert made.gateway.reload(config({"etcd": {**etcd_at()["etcd"], "prefix": "/elsewhere/"}}))
        made.gateway.advance(1)
        assert (made.etcd.watches, made.asked(1)) == (1, {"503"})


def test_the_end_of_a_prefix() -> None:
    assert [_end(each) for each in (b"/a/", b"a\xff", b"\xff")] == [b"/a0", b"b", b"\x00"]
