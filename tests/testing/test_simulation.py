"""The means of simulations: what they are made of, and that they notice what does not hold."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from protogate.testing.simulation import (
    Always,
    Become,
    Between,
    Call,
    Clients,
    Conduct,
    Either,
    Pause,
    Reach,
    Reload,
    Server,
    Spread,
    Story,
    asked,
    attempts,
    balanced,
    check,
    counted,
    dying,
    errors,
    farm,
    faults,
    flapping,
    gateway,
    judged,
    latency,
    left_alone,
    percentile,
    share,
    tell,
)
from protogate.testing.simulation.__main__ import main
from protogate.testing.simulation.chance import EPOCH, replayed
from protogate.testing.simulation.gallery import PICTURES, draw
from protogate.testing.simulation.network import Hours, QuickReactor
from protogate.testing.simulation.run import Broken
from protogate.testing.simulation.stories.anything import anything
from protogate.testing.simulation.stories.endpoints import a_dead_endpoint, weighted_shares

A = Server("a", "http://10.0.0.1:80", Conduct(latency=Always(0.02)))
B = Server("b", "http://10.0.0.2:80", Conduct(latency=Always(0.02)))
SOME = Clients(rate=20)


def told(*servers, clients=(SOME,), events=(), holds=(), seconds=5.0, **config):
    """One small story."""
    return lambda dice: Story(gateway(servers, **config), servers, clients, events, holds, seconds=seconds)


# -- chance and time


def test_dice_and_the_time_of_day_are_the_seeds_and_given_back():
    before = random.getstate()
    drawn = []
    for _ in range(2):
        with replayed(7, lambda: 5.0):
            drawn.append((random.SystemRandom().random(), random.SystemRandom().randrange(9**9), random.random()))
            drawn[-1] += (os.urandom(4), random.SystemRandom().randbytes(3), time.time())
    assert drawn[0] == drawn[1]
    assert drawn[0][-1] == EPOCH + 5.0
    assert random.getstate() == before
    assert abs(time.time() - EPOCH) > 5.0
    assert random.SystemRandom().random() != random.SystemRandom().random()


def test_waits_are_what_they_say():
    dice = random.Random(1)
    assert Always(0.5)(dice) == 0.5
    assert all(0.1 <= Between(0.1, 0.2)(dice) <= 0.2 for _ in range(100))
    spread = sorted(Spread(0.1, 0.5)(dice) for _ in range(2001))
    assert 0.09 < spread[1000] < 0.11
    assert 0.25 < spread[1980] < 0.45
    either = [Either(0.25, Always(1.0), Always(0.0))(dice) for _ in range(1000)]
    assert 200 < sum(either) < 300
    assert percentile([3.0, 1.0, 2.0], 50) == 2.0
    assert percentile([], 50) == 0.0


def test_the_quick_clock_does_what_twisteds_does():
    clock, made = Hours(), []
    start = clock.seconds()
    late = clock.callLater(3, made.append, "late")
    soon = clock.callLater(2, made.append, "soon")
    gone = clock.callLater(1, made.append, "gone")
    gone.cancel()
    late.reset(1)
    soon.delay(3)
    assert {call.getTime() - start for call in clock.getDelayedCalls()} == {1, 5}
    clock.advance(1)
    assert made == ["late"]
    clock.advance(3)
    assert made == ["late"]
    clock.advance(1)
    assert made == ["late", "soon"]
    assert clock.getDelayedCalls() == []
    assert clock.next() is None


def test_the_quick_reactor_goes_from_call_to_call():
    reactor, made = QuickReactor(), []
    start = reactor.seconds()
    for seconds in (0.001, 2.0, 7.0):
        reactor.callLater(seconds, lambda: made.append(round(reactor.seconds() - start, 3)))
    reactor.advance(5)
    assert made == [0.001, 2.0]
    assert reactor.seconds() == start + 5
    forever = []
    reactor.callLater(0, lambda: forever.append(reactor.callLater(0, forever[0].func)) if forever else None)
    reactor.run()


# -- replay


def test_a_seed_tells_the_same_tale_each_time_and_others_other_ones():
    first, other, second = (tell(a_dead_endpoint, seed).digest() for seed in (1, 2, 1))
    assert first == second != other


def test_a_seed_tells_the_same_tale_in_every_process():
    command = [sys.executable, "-m", "protogate.testing.simulation", "--story", "anything", "--seed", "2"]
    environment = {**os.environ, "PYTHONHASHSEED": "1"}
    made = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
    assert f"digest {tell(anything, 2).digest()}" in made.stdout


# -- servers


def outcome(conduct, *, seconds=5.0, events=(), clients=(SOME,), settings=None):
    """What became of asking one server."""
    server = replace(A, conduct=conduct)
    return tell(told(server, clients=clients, events=events, seconds=seconds, settings=settings), 1)


def kinds(tale):
    return {(ask.status, ask.whole, ask.left) for ask in tale.asks}


def test_a_server_that_is_well():
    tale = outcome(Conduct(latency=Always(0.05)))
    assert kinds(tale) == {(200, True, False)}
    assert {ask.server for ask in tale.asks} == {"a"}
    assert all(0.0499 < ask.latency < 0.06 for ask in tale.asks)
    assert faults(tale) == []
    assert 60 < len(tale.asks) < 140
    assert len(tale.records) == len(tale.asks) == len(tale.served())


@pytest.mark.parametrize(
    ("conduct", "status", "whole"),
    [
        (Conduct(errors=1.0, status=500), 500, True),
        (Conduct(hangs=1.0), 504, True),
        (Conduct(stalls=1.0), 200, False),
        (Conduct(breaks=1.0), 502, True),
        (Conduct(reach=Reach.REFUSES), 502, True),
        (Conduct(reach=Reach.SILENT), 504, True),
        (Conduct(reach=Reach.MUTE), 504, True),
        (Conduct(reach=Reach.LEAVES), 502, True),
    ],
)
def test_a_server_that_is_not(conduct, status, whole):
    clocks = {"timeouts": {"responseHead": "2s", "responseStall": "2s", "connect": "1s", "queue": "1s"}}
    tale = outcome(conduct, settings=clocks, seconds=2.0)
    also = {(503, True, False)} if conduct.reach is Reach.SILENT else set()  # who waits for one that is being connected
    assert kinds(tale) - also == {(status, whole, False)}
    assert faults(tale) == []


def test_a_server_with_few_slots_lets_others_wait_so_that_latency_grows_with_load():
    slow = outcome(Conduct(latency=Always(0.1), slots=1), clients=(Clients(rate=8),), seconds=20.0)
    quick = outcome(Conduct(latency=Always(0.1), slots=1), clients=(Clients(rate=1),), seconds=20.0)
    assert percentile([ask.latency for ask in slow.asks], 90) > 2 * percentile([ask.latency for ask in quick.asks], 90)


def test_work_that_nobody_waits_for_is_given_up_or_not():
    hasty = (Clients(rate=20, patience=Always(0.3)),)
    notices = outcome(Conduct(latency=Always(0.2), slots=1), clients=hasty)
    stubborn = outcome(Conduct(latency=Always(0.2), slots=1, notices=False), clients=hasty)
    assert sum(ask.well for ask in stubborn.asks) <= sum(ask.well for ask in notices.asks)
    assert any(ask.left for ask in notices.asks)
    assert faults(notices) == faults(stubborn) == []


def test_a_pause_holds_everything_up_and_then_all_goes_on():
    tale = outcome(Conduct(latency=Always(0.02)), events=[Pause(2.0, "a", 1.0)])
    during = tale.asked(2.0, 2.9)
    assert during
    assert all(ask.well and ask.began + ask.latency >= 3.0 for ask in during)
    assert all(ask.latency < 0.1 for ask in tale.asked(3.1))


def test_servers_die_and_come_back():
    for reach in (Reach.REFUSES, Reach.SILENT, Reach.MUTE, Reach.LEAVES):
        settings = {"timeouts": {"connect": "500ms", "responseHead": "500ms", "queue": "1s"}}
        tale = outcome(Conduct(), events=dying("a", 2.0, 3.0, reach), settings=settings)
        if reach is not Reach.LEAVES:  # which answers what may be on its way
            assert not any(ask.well for ask in tale.asked(2.0, 2.5)), reach
        assert all(ask.well for ask in tale.asked(4.0)), reach
        assert faults(tale) == [], reach
    events = flapping("a", 1.0, 4.0, 1.0, errors=1.0)
    assert [event.at for event in events] == [1.0, 1.5, 2.0, 2.5, 3.0, 3.5]
    assert all(ask.well for ask in outcome(Conduct(), events=events).asked(3.6))


# -- clients


def test_impatient_clients_leave_and_ask_again():
    clients = (Clients(rate=10, patience=Always(0.1), retries=2, backoff=Always(0.05)),)
    tale = outcome(Conduct(latency=Always(0.2)), clients=clients)
    assert kinds(tale) == {(0, False, True)}
    assert {ask.turn for ask in tale.asks} == {0, 1, 2}
    assert {record.status for record in tale.records} == {499}
    assert faults(tale) == []


@pytest.mark.parametrize("protocol", ["http1", "http2", "sotp"])
def test_clients_of_each_protocol_with_content(protocol):
    clients = (Clients(rate=20, protocol=protocol, method="POST", size=1000, targets=("/7/a", "/7/b"), addresses=3),)
    tale = outcome(Conduct(), clients=clients)
    assert kinds(tale) == {(200, True, False)}
    assert {record.received for record in tale.records} == {1000}
    assert {record.client for record in tale.records} == {"192.0.2.1", "192.0.2.2", "192.0.2.3"}
    assert {ask.target for ask in tale.asks} == {"/7/a", "/7/b"}
    assert faults(tale) == []


# -- holds


def test_what_does_not_hold_is_told_with_the_command_that_repeats_it():
    def broken(dice):
        return told(A, B, holds=(errors(0), asked("b", 0)), events=[Become(1.0, "a", errors=1.0)])(dice)

    with pytest.raises(Broken) as caught:
        check(broken, 5)
    text = str(caught.value)
    assert "asks went wrong from 0 s on: client-" in text
    assert "b was asked" in text
    assert "1 s: a becomes errors=1.0" in text
    assert f"--stories {__name__} --story broken --seed 5" in text


@pytest.mark.parametrize(
    ("hold", "expected"),
    [
        (errors(0), "went wrong"),
        (errors(0.01), "went wrong"),
        (asked("a", 1), "a was asked"),
        (share("a", 0.1), "a got 0."),
        (attempts(0.5), "attempts"),
        (latency(50, 0.001), "percentile"),
        (judged("a", within=(0, 9), well=False), "not found unwell"),
        (counted("exchanges", 0, 1), "exchanges was counted"),
        (balanced(0.01, least=1), "not about"),
    ],
)
def test_each_hold_notices(hold, expected):
    tale = tell(told(A, B, holds=(hold,), events=[Become(1.0, "a", errors=1.0)]), 1)
    if expected == "not about":
        tale.seen = [each for each in tale.seen if each.server == "b"] + tale.seen[:10]
    assert expected in " ".join(faults(tale))


def test_a_server_that_is_held_back_and_asked_is_noticed():
    tale = tell(told(A, B), 1)
    assert list(left_alone()(tale)) == []
    for each in tale.seen[:7]:
        each.share, each.since = 0.0, each.at - 1.0
    assert "7 times" in " ".join(left_alone()(tale))


def test_invariants_notice():
    tale = tell(told(A), 1)
    assert faults(tale) == []
    record = tale.records.pop()
    assert f"{record.agent} has no record" in faults(tale)[0]
    tale.records += [record, record]
    assert f"{record.agent} has 2 records" in faults(tale)[0]
    tale.records.pop()
    tale.asks[0].status = 201
    assert "it was answered 201" in faults(tale)[0]
    tale.asks[0].status = 200
    tale.seen[0].target = "/other"
    assert "was asked for /other" in faults(tale)[0]
    tale.seen.append(tale.seen[0])
    assert any("was seen 2 times" in text for text in faults(tale))
    tale.left.append("something")
    tale.failures.append("a failure")
    tale.unsettled.append("an ask")
    assert len(faults(tale)) >= 5


# -- events


def test_other_events_and_reloads():
    def story(dice):
        other = gateway([B])
        events = [Reload(2.0, other), Call(3.0, "b ends", lambda world: world.origins["b"].become(Conduct(errors=1.0)))]
        return Story(gateway([A]), [A, B], [SOME], events, seconds=4.0)

    tale = check(story, 1)
    assert {ask.server for ask in tale.asked(0, 1.9)} == {"a"}
    assert {ask.server for ask in tale.asked(2.2)} == {"b"}
    assert any(ask.status == 503 for ask in tale.asked(3.1))
    assert [repr(event) for event in tale.story.events] == ["2 s: another configuration", "3 s: b ends"]


def test_a_reload_with_faults_is_noticed():
    def story(dice):
        return Story(gateway([A]), [A], [SOME], [Reload(1.0, "nonsense: 1")], seconds=3.0)

    assert any("was not taken" in text for text in faults(tell(story, 1)))


def test_a_misspelled_conduct_is_told_at_once():
    with pytest.raises(TypeError):
        Become(1.0, "a", latencies=Always(1.0))
    assert len(farm(random.Random(1), 3, 3)) == 3


# -- the command


def test_the_command(capsys, tmp_path):
    assert main(["--list"]) == 0
    assert "a_dead_endpoint: A process dies" in capsys.readouterr().out
    assert main(["--story", "weighted_shares", "--seeds", "2", "--jobs", "1"]) == 0
    assert "weighted_shares: 2 seeds, 0 failed" in capsys.readouterr().out
    drawing = tmp_path / "a.svg"
    assert main(["--story", "a_dead_endpoint", "--seed", "3", "--picture", str(drawing)]) == 0
    assert "healthCheck" in capsys.readouterr().out
    assert drawing.read_text(encoding="utf-8").startswith("<svg ")
    with pytest.raises(SystemExit):
        main(["--story", "nonsense"])
    assert "there are " in capsys.readouterr().err


def wrong(dice):
    """A story that does not hold."""
    return told(A, holds=(asked("a", 0),))(dice)


STORIES = (wrong, weighted_shares)


def test_the_command_tells_what_does_not_hold(capsys):
    assert main(["--stories", __name__, "--story", "wrong", "--seeds", "12", "--jobs", "1"]) == 1
    out = capsys.readouterr().out
    assert "wrong: 12 seeds, 12 failed" in out
    assert f"again: python -m protogate.testing.simulation --stories {__name__} --story wrong --seed 3" in out
    assert "and wrong 10, wrong 11" in out
    assert main(["--stories", __name__, "--story", "wrong", "--seed", "3"]) == 1


# -- pictures


def test_a_picture_is_the_same_each_time_and_has_what_happened():
    name, (_, _, title) = next(iter(PICTURES.items()))
    drawn = draw(name)
    assert drawn == draw(name)
    assert title in drawn
    assert ": refuses</text>" in drawn


def test_the_pictures_of_the_documentation_are_what_is_drawn():
    images = Path(__file__).parents[2] / "docs" / "images"
    assert {path.stem for path in images.glob("*.svg")} >= set(PICTURES)
    again = "python -m protogate.testing.simulation --draw docs/images"
    assert (images / "dead-endpoint.svg").read_text(encoding="utf-8") == draw("dead-endpoint"), f"draw them: {again}"
