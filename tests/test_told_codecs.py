"""protogate.codecs: what a configuration tells the codecs that it names."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any

import pytest
from zope.interface import implementer

import twisted.plugins
from protogate.build import Build, build
from protogate.config.faults import ConfigFaults
from protogate.config.model import Bytes, Model, Seconds, within
from protogate.errors import ConfigError
from protogate.interfaces import IConfigurableCodec, IStreamCodec
from protogate.plugins import find
from protogate.testing.gateway import MemoryGateway
from protogate.testing.upstream import Do, Expect
from protogate_http.http1 import Http1
from protogate_sotp.frames import HELLO, Reader, hello
from protogate_sotp.frames import Hello as Said

CONFIG = """
listeners: [{{name: web, address: "127.0.0.1:8080", protocols: [{name}]}}]
codecs: {codecs}
"""


class Told(Model, frozen=True, kw_only=True):
    """Options of a codec of somebody else's."""

    pause: Annotated[Seconds, within(1, 60, off=True)] = Seconds(5)
    """How long it rests."""
    room: Annotated[Bytes, within(1024, 4096)] = Bytes(2048)
    """How much it takes."""
    words: tuple[str, ...] = ("a", "b")
    """What it says."""


@implementer(IConfigurableCodec)
class Theirs(Http1):
    """A codec that can be told something."""

    name = "theirs"
    options = Told

    def __init__(self, told: Told | None = None) -> None:
        self.told = told

    def configure(self, options: Told) -> Theirs:
        if "no" in options.words:
            raise ConfigError("expected other words", ("words", options.words.index("no")))
        return Theirs(options)


@pytest.fixture
def theirs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is installed."""
    folder = tmp_path / "plugins"
    folder.mkdir()
    name = f"{tmp_path.name.replace('-', '_')}_codec_plugin"
    (folder / f"{name}.py").write_text(
        "from protogate.interfaces import IStreamCodec\nfrom protogate.plugins import Plugin\n"
        f'theirs = Plugin(IStreamCodec, "theirs", "{__name__}.Theirs")\n'
    )
    monkeypatch.setitem(sys.modules, __name__, sys.modules[__name__])
    monkeypatch.setattr(twisted.plugins, "__path__", [*twisted.plugins.__path__, str(folder)])


Built = Callable[..., Build]


@pytest.fixture
def built(tmp_path: Path) -> Built:
    """Builds a configuration whose listener speaks C{name} and which tells codecs that."""

    def make(codecs: str, name: str = "theirs") -> Build:
        file = tmp_path / "gateway.yaml"
        file.write_text(CONFIG.format(name=name, codecs=codecs), encoding="utf-8")
        return build(str(file))

    return make


def test_a_codec_of_a_stranger_is_told_by_its_own_class(theirs: None, built: Built) -> None:
    codec: Any = built("{theirs: {pause: 1.5s, room: 4KiB, words: [x]}}").codec("theirs")
    assert codec.told == Told(pause=Seconds(1.5), room=Bytes(4096), words=("x",))
    assert type(codec.told.pause) is Seconds


def test_one_that_is_told_nothing_new_is_the_one_of_the_process(theirs: None, built: Built) -> None:
    plain = find(IStreamCodec, "theirs")
    for text in ("{}", "{theirs: {}}", "{theirs: {pause: 5s, room: 2048B}}"):
        assert built(text).codec("theirs") is plain


def test_one_that_is_told_the_same_again_is_the_same_one(theirs: None, built: Built) -> None:
    one, other = built("{theirs: {pause: 60s}}"), built("{theirs: {pause: 2s}}")
    assert built("{theirs: {pause: 1m, words: [a, b]}}").codec("theirs") is one.codec("theirs")
    assert other.codec("theirs") is not one.codec("theirs")


@pytest.mark.parametrize(
    ("told", "line"),
    [
        ("{paus: 1s}", '3:19: codecs.theirs.paus: unknown key; did you mean "pause"?'),
        ("{pause: 500ms}", "3:26: codecs.theirs.pause: expected 0, or 1s to 1m, got 500ms"),
        ("{pause: 61s}", "3:26: codecs.theirs.pause: expected 0, or 1s to 1m, got 61s"),
        ("{room: 0}", "3:25: codecs.theirs.room: expected 1KiB to 4KiB, got 0"),
        ("{room: 1023B}", "3:25: codecs.theirs.room: expected 1KiB to 4KiB, got 1023B"),
        ("{words: [a, no]}", "3:30: codecs.theirs.words[1]: expected other words"),
        ("{words: a}", '3:26: codecs.theirs.words: expected a list, got "a"; a list of one is written ["a"]'),
        ("3s", '3:18: codecs.theirs: expected a mapping, got "3s"'),
    ],
)
def test_what_it_does_not_understand_is_a_fault_of_that_place(theirs: None, built: Built, told: str, line: str) -> None:
    with pytest.raises(ConfigFaults) as caught:
        built(f"{{theirs: {told}}}")
    assert [text.partition(".yaml:")[2] for text in caught.value.lines] == [line]


def test_bounds_take_their_ends_and_what_switches_off(theirs: None, built: Built) -> None:
    for told in ("{pause: 0}", "{pause: 1s}", "{pause: 60s}", "{room: 1KiB}", "{room: 4KiB}"):
        built(f"{{theirs: {told}}}")


def test_options_of_a_codec_that_nobody_speaks_are_doubtful(theirs: None, built: Built) -> None:
    made = built("{theirs: {pause: 2s}}", "http1")
    assert [text.partition(".yaml:")[2] for text in made.warnings] == [
        '3:10: codecs.theirs: no listener and no upstream speaks "theirs"'
    ]
    assert set(made.codecs) == {"http1"}


def test_but_wrong_ones_are_a_fault(theirs: None, built: Built) -> None:
    with pytest.raises(ConfigFaults, match="unknown key"):
        built("{theirs: {nothing: 1}}", "http1")


# -- in a gateway


def config(streams: int, **more: Any) -> Mapping[str, Any]:
    return {
        "listeners": [{"name": "apps", "address": "127.0.0.1:8080", "protocols": ["sotp"]}],
        "upstreams": [{"name": "shop", "endpoints": [{"url": "http://192.0.2.7:80"}], "protocol": "sotp"}],
        "routes": [{"value": "/", "matcherType": "prefix", "routes": [{"targets": [{"upstream": "shop"}]}]}],
        "codecs": {"sotp": {"streams": streams, **more}},
    }


GREETING = Said(heartbeat=0).pack()
SCRIPT = [Expect(GREETING[:5]), GREETING, Do.SILENCE]


def greeted(gateway: MemoryGateway) -> tuple[Any, Said]:
    """A client, and what it is told."""
    client = gateway.client()
    client.send(GREETING)
    gateway.run()
    return client, said(client.received)


def said(data: bytes) -> Said:
    (first, *_) = Reader(Said(data=1 << 20, heads=1 << 20).sizes).feed(data)
    assert first[0] == HELLO
    return hello(first[3])


def test_a_reload_tells_new_connections_and_leaves_those_that_are_there() -> None:
    with MemoryGateway(config(7)) as gateway:
        first, told = greeted(gateway)
        assert told.streams == 7
        assert gateway.reload(config(9, window="128KiB", heartbeat="30s", frame="32KiB", compression=False))
        second, told = greeted(gateway)
        assert (told.streams, told.window, told.heartbeat) == (9, 131072, 30)
        assert (told.data, told.capabilities, told.total) == (32768, 0, 9 * 131072)
        assert first.lost is None
        for client in (first, second):
            client.close()
        gateway.run()


def test_a_reload_that_tells_an_upstream_the_same_keeps_its_connections_and_one_that_does_not_makes_new_ones() -> None:
    from protogate.message import Request
    from protogate_sotp.frames import END, REQUEST, frame
    from protogate_sotp.heads import write_request

    asked = frame(REQUEST, END, 1, write_request(Request(b"POST", b"/1/a", authority=b"1"), 0, [].append))
    with MemoryGateway(config(7)) as gateway:
        origin = gateway.upstream("192.0.2.7", 80, SCRIPT, SCRIPT)
        made = []
        for streams, connections in ((7, 1), (7, 1), (8, 2)):
            assert gateway.reload(config(streams))
            client, _ = greeted(gateway)
            client.send(asked)
            gateway.run()
            made.append(client)
            assert len(origin.connections) == connections
            assert said(origin.received[-1]).streams == streams
        for client in made:
            client.close()
        gateway.run()
