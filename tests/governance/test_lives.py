"""Modules that live: started with their configuration, handed what was there before, stopped after it."""

from __future__ import annotations

import pytest
from zope.interface import implementer

from protogate import build as building
from protogate.config.faults import ConfigFaults
from protogate.config.model import Module
from protogate.governance.asking import Question, ask
from protogate.governance.binding import bind
from protogate.governance.lives import Lives
from protogate.interfaces import ILiveModule, IModuleFactory
from protogate.observe.counters import Counters
from protogate.testing.gateway import MemoryGateway
from protogate.testing.upstream import Expect


@implementer(ILiveModule)
class Living:
    """Notes what happens to it."""

    def __init__(self, params):
        self.params, self.asks = params, dict.fromkeys(params.get("ask", ()), ("ask",))
        self.before, self.started, self.stopped = None, 0, 0

    def start(self, means, before):
        self.means, self.before = means, before
        self.started += 1
        if self.params.get("breaks"):
            raise RuntimeError("not today")

    def stop(self):
        self.stopped += 1
        if self.params.get("breaks"):
            raise RuntimeError("nor tomorrow")

    def process(self, exchange):
        return None


@implementer(IModuleFactory)
class Factory:
    name = "living"
    stages = ("PRE_REQUEST", "PRE_UPSTREAM")
    guards = False

    def build(self, params):
        return Living(params)


class Scene:
    """Configurations that follow each other."""

    def __init__(self):
        self.lives, self.counters = Lives(), Counters()

    def take(self, *entries):
        made = [
            Module(
                name="living",
                stage=stage,
                action_param=params,
                condition=more[0] if more else "true",
                shadow=len(more) > 1,
            )
            for stage, params, *more in entries
        ]
        bound = bind(made, lambda interface, name: Factory(), ("shop",))
        self.lives.take(bound, lambda each: each.count, self.counters)
        return [each.module for stage in bound.values() for each in stage]


def test_it_is_started_once_and_stopped_when_another_configuration_is_in_force():
    scene = Scene()
    (first,) = scene.take(("", {}))
    assert (first.started, first.stopped, first.before) == (1, 0, None)
    (second,) = scene.take(("", {}))
    assert (first.stopped, second.started, second.before) == (1, 1, first)
    scene.lives.stop()
    scene.lives.stop()
    assert (first.stopped, second.stopped) == (1, 1)


def test_who_looks_for_what_blocks_the_loop_knows_whose_code_is_whose():
    scene = Scene()
    scene.take(("", {}))
    assert scene.lives.kinds == {__name__: "living"}


def test_who_takes_whose_place():
    scene = Scene()
    a, b, other = scene.take(("", {"x": "a"}), ("", {"x": "b"}), ("PRE_UPSTREAM", {"x": "a"}))
    new, same, changed, moved = scene.take(
        ("", {"x": "c"}), ("", {"x": "b"}), ("", {"x": "d"}), ("PRE_UPSTREAM", {"x": "z"})
    )
    assert same.before is b, "equal parameters"
    assert new.before is a, "what is left, in order"
    assert changed.before is None
    assert moved.before is other


def test_of_several_the_one_with_the_same_name_is_the_heir():
    scene = Scene()
    a, b = scene.take(("", {"name": "a", "x": 1}), ("", {"name": "b", "x": 1}))
    new, second, first = scene.take(("", {"name": "c"}), ("", {"name": "b", "x": 2}), ("", {"name": "a", "x": 2}))
    assert (second.before, first.before, new.before) == (b, a, None)
    (last,) = scene.take(("", {"name": ["a"], "x": 3}))
    assert last.before is new, "no text, no name: the next in order"


def test_of_several_without_a_name_the_one_for_the_same_requests_is_the_heir():
    scene = Scene()
    get, put = "request.method == 'GET'", "request.method == 'PUT'"
    a, b = scene.take(("", {"x": 1}, get), ("", {"x": 1}, put))
    twin_b, twin_a = scene.take(("", {"x": 1}, put), ("", {"x": 1}, get))
    assert (twin_a.before, twin_b.before) == (a, b), "they have changed places"
    new, last_b, last_a = scene.take(("", {"x": 9}), ("", {"x": 2}, put), ("", {"x": 3}, get))
    assert (last_a.before, last_b.before, new.before) == (twin_a, twin_b, None), "one was put in front"


def test_one_in_the_shadow_takes_nothing_from_one_that_is_not():
    scene = Scene()
    (real,) = scene.take(("", {"x": 1}))
    shadow, same = scene.take(("", {"x": 1}, "true", True), ("", {"x": 1}))
    assert (shadow.before, same.before) == (None, real)
    changed, stays = scene.take(("", {"x": 2}, "true", True), ("", {"x": 3}))
    assert (changed.before, stays.before) == (shadow, same)
    (promoted,) = scene.take(("", {"x": 2}))
    assert promoted.before is stays
    scene = Scene()
    (tried,) = scene.take(("", {"x": 1}, "true", True))
    (promoted,) = scene.take(("", {"x": 1}))
    assert promoted.before is tried, "there is nobody else"


def test_what_modules_have_is_added_up_while_they_run():
    scene = Scene()
    entries = [Module(name="living", action_param={"x": x}) for x in (1, 2)]
    bound = bind(entries, lambda interface, name: Factory(), ())
    for number, each in enumerate(bound["PRE_REQUEST"], 1):
        each.gauges["bytes"] = lambda number=number: number
    bound["PRE_REQUEST"][0].gauges["answers"] = lambda: 7
    scene.lives.take(bound, lambda each: each.count, scene.counters)
    assert scene.lives.gauges() == {"living": {"bytes": 3, "answers": 7}}
    scene.take(("", {}))
    assert scene.lives.gauges() == {}


def test_one_that_breaks_keeps_no_configuration_from_being_in_force(flush_errors):
    scene = Scene()
    broken, sound = scene.take(("", {"breaks": "yes"}), ("", {}))
    scene.lives.stop()
    assert (broken.started, sound.started, broken.stopped, sound.stopped) == (1, 1, 1, 1)
    assert [str(failure.value) for failure in flush_errors(RuntimeError)] == ["not today", "nor tomorrow"]
    assert scene.counters.snapshot()["counts"]["module"] == {"living": {"failed": 1}}


def test_whom_it_asks_must_be_there():
    with pytest.raises(ConfigFaults) as caught:
        bind([Module(name="living", action_param={"ask": ["shpo"]})], lambda interface, name: Factory(), ("shop",))
    (fault,) = caught.value.faults
    assert fault.path == ("modules", 0, "actionParam", "ask")
    assert "shpo" in fault.message
    assert "shop" in fault.message


CONFIG = """
listeners: [{name: web, address: "127.0.0.1:8080"}]
upstreams: [{name: shop, endpoints: [{url: "http://192.0.2.7:80"}]}]
routes: [{value: /, matcherType: prefix, routes: [{targets: [{upstream: shop}]}]}]
modules: [{name: living, actionParam: {ask: ["http://192.0.2.9:81"]}}]
"""


def test_an_origin_that_no_rule_knows_is_asked_through_the_gateway_s_own_connections(monkeypatch):
    made = []

    class Noted(Factory):
        def build(self, params):
            made.append(Living(params))
            return made[-1]

    find = building.find
    monkeypatch.setattr(building, "find", lambda kind, name: Noted() if name == "living" else find(kind, name))
    with MemoryGateway(CONFIG) as gateway:
        origin = gateway.upstream(
            "192.0.2.9", 81, [Expect(b"\r\n\r\n"), b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n[]"]
        )
        (module,) = made
        question, answers = Question.of_url("http://192.0.2.9:81/list"), []
        service = module.means.service(question.service)
        ask(service, question.request(), module.means.wheel, 5.0).addCallback(answers.append)
        gateway.run()
        assert answers[0].content == b"[]"
        (received,) = origin.received
        assert received.startswith(b"GET /list HTTP/1.1\r\n")
        assert b"\r\nhost: 192.0.2.9:81\r\n" in received.lower()
        assert gateway.reload(CONFIG)
        assert (module.stopped, made[1].before) == (1, module)
    assert made[1].stopped == 1
