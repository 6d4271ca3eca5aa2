"""What is lost between two protocols, by what their codecs tell."""

from __future__ import annotations

from pathlib import Path

import pytest
from zope.interface import directlyProvides

import protogate.plugins
from protogate.build import build
from protogate.interfaces import IDescribedCodec, IStreamCodec
from protogate.losses import losses
from protogate.testing.matrix import LACKS


class Codec:
    """One that tells, or does not."""

    alpn = ()
    distribution = "none"

    def __init__(self, name, lacks=None, depends=None):
        self.name, self.lacks, self.depends = name, frozenset(lacks or ()), depends or {}
        directlyProvides(self, IStreamCodec if lacks is None else IDescribedCodec)


CODECS = {
    "all": Codec("all", ()),
    "mute": Codec("mute", LACKS),
    "quiet": Codec("quiet", ("interim", "continue")),
    "late": Codec("late", (), {"trailers": "old peers", "continue": "old peers", "upgrade": "small peers"}),
    "silent": Codec("silent"),
}


def ways(
    tmp_path: Path,
    monkeypatch,
    front: str,
    behind: str,
    every: bool = False,
    more: str = "",
    told: str = "",
    as_: str = "",
) -> list[str]:
    """The report on one rule, for one front and one codec behind; the rest are further keys of the three."""
    for name, codec in CODECS.items():
        key = (IStreamCodec, name, protogate.plugins.twisted.plugins)
        monkeypatch.setitem(protogate.plugins._parts, key, codec)
    path = tmp_path / "gateway.yaml"
    path.write_text(
        f"""
listeners: [{{name: web, address: "127.0.0.1:0", protocols: [{front}]{more}}}]
upstreams: [{{name: shop, protocol: {behind}, endpoints: [{{url: "http://127.0.0.1:9"}}]{told}}}]
routes:
  - name: everything
    value: /
    matcherType: prefix
    routes:
      - {{condition: "request.method == 'GET'", targets: [{{upstream: shop{as_}}}]}}
      - {{targets: [{{upstream: shop{as_}}}]}}
"""
    )
    return list(losses(build(str(path)), every))


HEAD = "header fields, the method, the query, content of unknown length"
ANSWER = "header fields, which success it was, content of unknown length"
WAY = 'routes[0] rule "everything", {} to "shop" ({}): '


@pytest.mark.parametrize(
    ("front", "behind", "text"),
    [
        ("all", "mute", "the upstream never sees trailers, Expect: 100-continue, tunnels, deadlines, " + HEAD),
        ("mute", "all", "the client never sees trailers, interim responses, " + ANSWER),
        ("all", "quiet", "the upstream never sees Expect: 100-continue"),
        ("quiet", "all", "the client never sees interim responses"),
        ("quiet", "mute", "the upstream never sees trailers, tunnels, deadlines, " + HEAD),
    ],
)
def test_a_loss_is_told_once_for_each_way(tmp_path, monkeypatch, front, behind, text) -> None:
    assert ways(tmp_path, monkeypatch, front, behind) == [WAY.format(front, behind) + text]


@pytest.mark.parametrize(
    ("front", "behind"), [("all", "all"), ("mute", "mute"), ("late", "late"), ("silent", "silent"), ("all", "late")]
)
def test_what_neither_can_say_or_only_some_cannot_is_no_loss(tmp_path, monkeypatch, front, behind) -> None:
    assert ways(tmp_path, monkeypatch, front, behind) == []


def test_whoever_asks_for_all_is_told_what_depends_on_the_peer(tmp_path, monkeypatch) -> None:
    assert ways(tmp_path, monkeypatch, "silent", "late", every=True) == [
        WAY.format("silent", "late") + "nothing is lost",
        "    the codec silent does not tell what it lacks",
        "    old peers as servers do not know trailers, Expect: 100-continue",
        "    small peers as servers do not know tunnels",
    ]


def test_a_half_closed_tunnel_is_missed_only_where_there_are_tunnels(tmp_path, monkeypatch) -> None:
    monkeypatch.setitem(CODECS, "mute", Codec("mute", ("halfclose",)))
    assert ways(tmp_path, monkeypatch, "mute", "all") == [
        WAY.format("mute", "all") + "the client never sees half-closed tunnels"
    ]


FIELD = ", deadlineHeader: x-wait"


@pytest.mark.parametrize(
    ("front", "behind", "more", "told", "lost"),
    [
        ("all", "timeless", "", "", True),
        ("all", "timeless", "", FIELD, False),
        ("timeless", "timeless", "", "", False),
        ("timeless", "timeless", FIELD, "", True),
        ("timeless", "timeless", FIELD, FIELD, False),
        ("timeless", "all", FIELD, "", False),
    ],
)
def test_a_field_can_carry_deadlines(tmp_path, monkeypatch, front, behind, more, told, lost) -> None:
    monkeypatch.setitem(CODECS, "timeless", Codec("timeless", ("deadline",)))
    expected = [WAY.format(front, behind) + "the upstream never sees deadlines"] if lost else []
    assert ways(tmp_path, monkeypatch, front, behind, more=more, told=told) == expected


@pytest.mark.parametrize(
    ("rewrite", "shown", "lost"),
    [
        ("{path: /x}", "/x", ""),
        ("{method: PUT}", "PUT", "tunnels"),
        ("{query: {a: b}}", "?a=b", ""),
        ('{service: "7", operation: x}', "service 7, operation x", "tunnels, the method, the query"),
    ],
)
def test_what_a_rewrite_leaves_no_room_for_is_lost(tmp_path, monkeypatch, rewrite, shown, lost) -> None:
    way = f'routes[0] rule "everything", all to "shop as {shown}" (all): '
    expected = [f"{way}the upstream never sees {lost}"] if lost else []
    assert ways(tmp_path, monkeypatch, "all", "all", as_=f", rewrite: {rewrite}") == expected


def test_the_codecs_that_we_bring_lose_nothing_of_each_other_but_deadlines(tmp_path, monkeypatch) -> None:
    for front in ("http1", "sotp"):
        for behind in ("http1", "sotp"):
            lost = [WAY.format(front, behind) + "the upstream never sees deadlines"]
            assert ways(tmp_path, monkeypatch, front, behind) == lost * ((front, behind) == ("sotp", "http1"))
            line, *depends = ways(tmp_path, monkeypatch, front, behind, every=True, told=FIELD)
            assert line.endswith(": nothing is lost")
            assert [text.split()[3] for text in depends] == ["clients"] * (front == "http1") + ["servers"] * (
                behind == "http1"
            )
