"""What a C{discovery} may say, and what is wrong with one before anything is asked."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from sightings import PREFIX, Scene, at, config, etcd_at, scene
from twisted.internet.defer import Deferred
from zope.interface import implementer

from protogate.config import model
from protogate.config.faults import ConfigFaults
from protogate.discovery import sources
from protogate.discovery.conversation import Conversation
from protogate.discovery.entries import Entries
from protogate.errors import ConfigError
from protogate.governance.asking import Question
from protogate.interfaces import IDiscovery, IDiscoveryFactory
from protogate.plugins import PluginError, find
from protogate.testing.gateway import MemoryGateway
from protogate.upstream.endpoint import Place

HUB = {"name": "hub", "endpoints": [{"url": "http://192.0.2.91:2379"}]}


def faults(discovery: dict[str, Any], *more: dict[str, Any], **origin: Any) -> list[str]:
    with pytest.raises(ConfigFaults) as caught:
        MemoryGateway(config(discovery, *more, **origin))
    return [line.partition(": ")[2].removeprefix("upstreams[0].discovery") for line in caught.value.lines]


@pytest.mark.parametrize(
    ("discovery", "fault"),
    [
        ({}, ": expected exactly one of dns, file, etcd, consul, plugin, got none"),
        ({"scheme": "http"}, ": expected exactly one of dns, file, etcd, consul, plugin, got none"),
        ({"dns": "a:1", "file": "x"}, ": expected exactly one of dns, file, etcd, consul, plugin, got dns and file"),
        ({"plugin": {"a": {}, "b": {}}}, ".plugin: expected one name, and what it is told"),
        ({"dsn": "a:1"}, '.dsn: unknown key; did you mean "dns"?'),
        ({"dns": "a"}, ".dns: expected host:port, or _service._tcp.host for SRV"),
        ({"plugin": {"nacos": {}}}, ".plugin.nacos: no discovery named 'nacos'; installed: consul, dns, etcd, file"),
        ({"plugin": {"dns": {}}}, ".plugin.dns: expected a text, got an empty mapping"),
        ({"etcd": {"prefix": "/a/"}}, ".etcd: expected exactly one of upstream and url"),
        ({"etcd": {"prefix": "", "url": "http://a"}}, ".etcd.prefix: expected a string that is not empty"),
        ({"etcd": {"prefix": "/a/", "url": "http://a", "username": "u"}}, ".etcd: a username and a password belong"),
        (
            {"etcd": {"prefix": "/a/", "url": "http://a", "username": "u", "password": {}}},
            ".etcd.password: a secret is not written here",
        ),
        (
            {"etcd": {"prefix": "/a/", "url": "http://a", "username": "u", "password": {"env": "NOBODY_SET_IT"}}},
            ".etcd.password.env: NOBODY_SET_IT: this variable of the environment is not set, or empty",
        ),
        (
            {
                "etcd": {
                    "prefix": "/a/",
                    "url": "http://a",
                    "username": "u",
                    "password": {"env": "HOME"},
                    "token": {"env": "HOME"},
                }
            },
            ".etcd.token: who has a token needs no password",
        ),
        (
            {"etcd": {"prefix": "/a/", "url": "http://a", "token": {"env": "NOBODY_SET_IT"}}},
            ".etcd.token.env: NOBODY_SET_IT",
        ),
        (
            {"consul": {"service": "shop", "url": "http://a", "token": {"file": "/nonexistent/token"}}},
            ".consul.token.file: /nonexistent/token: No such file or directory",
        ),
        ({"consul": {"service": "shop", "url": "http://a", "wait": "1h"}}, ".consul.wait: expected 1s to 10m"),
        ({"etcd": {"prefix": "/a/", "upstream": "origin"}}, '.etcd.upstream: to find the upstream "origin", "origin"'),
        ({"etcd": {"prefix": "/a/", "upstream": "hbu"}}, '.etcd.upstream: there is no upstream "hbu"; did you mean'),
    ],
)
def test_what_is_wrong_is_told_at_its_place(discovery: dict[str, Any], fault: str) -> None:
    (found,) = [line for line in faults(discovery, HUB) if not line.startswith("upstreams[1].name")]
    assert found.startswith(fault), found


def test_upstreams_that_find_each_other_find_nobody() -> None:
    other = {"name": "other", "discovery": {"etcd": {"prefix": "/a/", "upstream": "origin"}}}
    found = faults({"etcd": {"prefix": "/a/", "upstream": "other"}}, other)
    assert len(found) == 2
    assert all("would have to be asked" in line for line in found)


def test_whoever_is_asked_is_in_use() -> None:
    with MemoryGateway(config({"etcd": {"prefix": PREFIX, "upstream": "hub"}}, HUB)) as gateway:
        assert gateway.service.built.warnings == ()
        assert set(gateway.service.built.destinations) == {"origin", "hub"}
    with MemoryGateway(config(etcd_at())) as gateway:
        assert "http://192.0.2.91:2379" in gateway.service.built.destinations


def test_what_comes_without_tls_is_warned_of() -> None:
    def warnings(**more: Any) -> list[str]:
        with MemoryGateway(config(etcd_at(**more))) as gateway:
            return [line.partition("upstreams[0].")[2] for line in gateway.service.built.warnings]

    (line,) = warnings()
    assert line.startswith("discovery.etcd.url: endpoints come without TLS")
    assert warnings(url="http://127.0.0.1:2379") == warnings(url="https://192.0.2.91:2379") == []
    (line,) = warnings(username="me", password={"env": "PATH"})
    assert line.startswith("discovery.etcd.url: credentials are sent without TLS")


def test_upstreams_that_do_not_agree_on_a_codec_have_that_fault_only() -> None:
    (found,) = faults({"dns": "a:1", "scheme": "h2c"}, endpoints=[{"url": "ws://a"}])
    assert "means http2, but another endpoint means http1" in found


def entries(scheme: str = "http", protocol: str = "") -> Entries:
    discovery = model.Discovery(dns="a:1", scheme=scheme)  # type: ignore[arg-type]
    return Entries(model.Upstream(name="up", protocol=protocol, discovery=discovery))


@pytest.mark.parametrize(
    ("entry", "value", "address", "tls"),
    [
        (entries(), "a:81", "a:81", False),
        (entries(), "http://a", "a:80", False),
        (entries("https"), "a:443", "a:443", True),
        (entries("https"), "wss://a", "a:443", True),
        (entries("h2c"), "grpc://[2001:db8::1]:5", "[2001:db8::1]:5", False),
        (entries("h2c"), "http://a", "a:80", False),
        (entries(protocol="sotp"), "sotp://a:5", "a:5", False),
        (entries("tls", "sotp"), "a:5", "a:5", True),
    ],
)
def test_entries_are_spoken_to_as_the_discovery_says(entry: Entries, value: object, address: str, tls: bool) -> None:
    place = entry({"url": value, "weight": 7, "zone": "z", "version": 3})
    assert (place.address, place.tls, place.weight, place.zone) == (address, tls, 7, "z")
    assert entry(value).weight == 100


@pytest.mark.parametrize(
    ("entry", "value"),
    [
        (entries(), "https://a"),
        (entries(), "h2c://a"),
        (entries("h2c"), "ws://a"),
        (entries("https"), "http://a"),
        (entries(), "http://a/path"),
        (entries(), "a"),
        (entries(), ""),
        (entries(), None),
        (entries(), {}),
        (entries(), {"url": "a:1", "weight": -1}),
        (entries(), {"url": "a:1", "weight": True}),
    ],
)
def test_entries_that_cannot_be_used_are_refused(entry: Entries, value: object) -> None:
    with pytest.raises(ConfigError):
        entry(value)


# -- those of others


class Options(model.Model, frozen=True, kw_only=True):
    """What it is told."""

    file: str = ""
    every: model.Seconds = model.Seconds(10)


class Told(Conversation):
    """Tells what a test wants."""

    def __init__(self, question: Question, entry: Callable[[object], Place]) -> None:
        super().__init__(question, ("url",))
        self.entry = entry
        self.turns: list[Callable[[], Any]] = []
        self.talks = 0

    async def talk(self) -> None:
        self.talks += 1
        if self.turns:
            done = self.turns.pop(0)()
            if isinstance(done, Deferred):
                await done
        else:
            await self.sleep(1000)


@implementer(IDiscoveryFactory)
class ToldFactory:
    name = "told"
    options = Options

    def __init__(self) -> None:
        self.made: list[Told] = []
        self.told: list[Options] = []

    def build(self, options: Options, entry: Callable[[object], Place]) -> IDiscovery:
        if options.every > 60:
            raise ConfigError("too rarely", ("every",))
        self.told.append(options)
        self.made.append(Told(Question.of_upstream("hub", "/"), entry))
        return self.made[-1]


@pytest.fixture
def factory(monkeypatch: pytest.MonkeyPatch) -> ToldFactory:
    factory = ToldFactory()

    def finding(interface: Any, name: str) -> Any:
        return factory if (interface, name) == (IDiscoveryFactory, "told") else find(interface, name)

    monkeypatch.setattr("protogate.build.find", finding)
    return factory


def test_one_of_others_is_told_its_options(factory: ToldFactory, tmp_path: Path) -> None:
    assert faults({"plugin": {"told": {"evry": "5s"}}}, HUB)[0].startswith(".plugin.told.evry: unknown key")
    assert faults({"plugin": {"told": {"every": "5m"}}}, HUB)[0] == ".plugin.told.every: too rarely"
    with scene({"plugin": {"told": {"file": str(tmp_path / "x"), "every": "5s"}}}, HUB) as made:
        assert factory.told[-1] == Options(file=str(tmp_path / "x"), every=model.Seconds(5))
        source = factory.made[-1]
        source.findings.found([source.entry(f"{at(1)}:80")])
        assert made.asked(2) == {1}
        folder = Path(made.gateway._path).parent
        assert made.gateway.reload(config({"plugin": {"told": {"file": "x", "every": "5s"}}}, HUB))
        assert factory.told[-1].file == str(folder / "x")


def broken() -> None:
    raise ZeroDivisionError("a fault of its author")


def test_a_conversation_that_breaks_is_told_and_goes_on(
    factory: ToldFactory, flush_errors: Callable[..., list[Any]]
) -> None:
    with scene({"plugin": {"told": {}}}, HUB) as made:
        source = factory.made[-1]
        source.turns = [broken, lambda: source.findings.found([source.entry(f"{at(2)}:80")])]
        source._talking.cancel()  # type: ignore[union-attr]
        source._begin()
        made.gateway.advance(2)
        assert made.asked(2) == {2}
        assert len(flush_errors(ZeroDivisionError)) == 1


def test_a_conversation_that_is_given_up_inside_goes_on(factory: ToldFactory) -> None:
    with scene({"plugin": {"told": {}}}, HUB) as made:
        source = factory.made[-1]
        given_up: Deferred[None] = Deferred()
        source.turns = [lambda: given_up, lambda: source.findings.found([source.entry(f"{at(2)}:80")])]
        source._talking.cancel()  # type: ignore[union-attr]
        source._begin()
        given_up.cancel()
        made.gateway.advance(2)
        assert made.asked(2) == {2}


def test_a_conversation_that_waits_for_nothing_holds_nobody_up(factory: ToldFactory) -> None:
    with scene({"plugin": {"told": {}}}, HUB) as made:
        source = factory.made[-1]
        source.turns = [lambda: None] * 1000
        source._talking.cancel()  # type: ignore[union-attr]
        source._begin()
        before = source.talks
        made.gateway.advance(1)
        assert source.talks - before <= 22


def test_a_conversation_can_be_stopped_before_it_has_begun() -> None:
    class Soon:
        def __init__(self) -> None:
            self.calls: list[Callable[[], object]] = []

        soon = property(lambda self: self.calls.append)
        now = staticmethod(lambda: 0.0)

    class Findings:
        wheel = Soon()

    source = Told(Question.of_upstream("hub", "/"), entries())
    source.start(Findings())  # type: ignore[arg-type]
    source.stop()
    Findings.wheel.calls[0]()
    assert source._talking is None
    assert source.talks == 0


def test_whoever_asks_for_one_source_gets_it() -> None:
    assert sources.source(model.Upstream(name="up"), find) is None
    with pytest.raises(ConfigFaults, match=r"discovery\.plugin\.nobody: no discovery named"):
        sources.source(model.Upstream(name="up", discovery=model.Discovery(plugin={"nobody": {}})), find)
    with pytest.raises(PluginError):
        find(IDiscoveryFactory, "nobody")


def test_the_end_of_the_gateway_is_no_trouble_of_its_sources() -> None:
    def two(made: Scene) -> None:
        made.etcd.put(PREFIX + "1", f"{at(1)}:80")

    with scene({"etcd": {"prefix": PREFIX, "upstream": "hub"}}, HUB, before=two) as made:
        assert made.asked(2) == {1}
        made.gateway.stop()
        assert made.count("discovery_failed") == 0


def test_an_upstream_that_leaves_looks_no_more() -> None:
    with scene({"etcd": {"prefix": PREFIX, "upstream": "hub"}}, HUB) as made:
        assert made.etcd.watches == 1
        assert made.gateway.reload(config({"dns": "nobody.test:1"}))
        made.gateway.advance(0.1)
        assert made.etcd.watches == 0
        made.gateway.advance(10)
        assert made.count("discovery_failed") == 0
