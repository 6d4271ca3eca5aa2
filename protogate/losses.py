"""
What is lost between two protocols: for each route, what the one side can say and the other cannot.

Rules
- Codecs say themselves what they lack (L{protogate.interfaces.IDescribedCodec}); no protocol is known here.
- Something is lost only where one side says it and the other cannot: what neither can say nobody misses.
- A field can carry a deadline where the configuration has one for it (C{deadlineHeader}).
- What a target's rewrite leaves no room for is lost whatever the codecs can say.
- What depends on the peer at hand is no loss of the configuration; it is told to whoever asks for all.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from protogate.build import Build
from protogate.interfaces import IDescribedCodec, IStreamCodec
from protogate.upstream.endpoint import codec_of, spoken

THERE: Final[Mapping[str, str]] = {
    "trailers": "trailers",
    "continue": "Expect: 100-continue",
    "upgrade": "tunnels",
    "halfclose": "half-closed tunnels",
    "deadline": "deadlines",
    "fields": "header fields",
    "method": "the method",
    "query": "the query",
    "length": "content of unknown length",
}
"""What a client says and an upstream may not understand, by the words of L{protogate.testing.LACKS}."""
BACK: Final[Mapping[str, str]] = {
    "trailers": "trailers",
    "interim": "interim responses",
    "halfclose": "half-closed tunnels",
    "fields": "header fields",
    "status": "which success it was",
    "length": "content of unknown length",
}
"""What an upstream says and a client may not."""


def losses(built: Build, every: bool = False) -> Iterator[str]:
    """
    A line for each way through the gateway on which something is lost.

    @param every: for all ways, and behind each, indented, what only some peers cannot say.
    """
    fronts: dict[str, frozenset[str]] = {}
    for listener in built.config.listeners:
        for protocol in listener.protocols:
            lacks = _lacks(built.codecs[protocol], bool(listener.deadline_header))
            fronts[protocol] = fronts.get(protocol, lacks) & lacks
    upstreams = {upstream.name: upstream for upstream in built.config.upstreams}
    for rule in sorted(built.router.rules, key=lambda rule: rule.index):
        for target in {target.name: target for route in rule.routes for target in route.targets}.values():
            upstream = upstreams.get(target.upstream)
            behind = built.codec(codec_of(target.upstream) if upstream is None else spoken(upstream))
            cannot = _lacks(behind, upstream is not None and bool(upstream.deadline_header))
            if target.rewrite is not None:
                cannot |= target.rewrite.lacks
            for name, lacks in fronts.items():
                lost = "; ".join(_lost(lacks, cannot)) or ("nothing is lost" if every else "")
                if lost:
                    yield f'routes[{rule.index}] rule "{rule.name}", {name} to "{target.name}" ({behind.name}): {lost}'
                if every:
                    front = built.codec(name)
                    yield from (f"    {line}" for line in (*_depends(front, "clients"), *_depends(behind, "servers")))


def _lost(lacks: frozenset[str], cannot: frozenset[str]) -> Iterator[str]:
    """What is lost between who lacks this and who cannot say that, there and back."""
    ways = ((THERE, cannot - lacks, "the upstream never sees"), (BACK, lacks - cannot, "the client never sees"))
    for texts, words, title in ways:
        lost = [text for word, text in texts.items() if word in words]
        if "upgrade" in lacks | cannot:  # then there is none to be half closed
            lost = [text for text in lost if text != texts["halfclose"]]
        if lost:
            yield f"{title} {', '.join(lost)}"


def _depends(codec: IStreamCodec, side: str) -> Iterator[str]:
    """What it cannot say to some of its peers."""
    if not IDescribedCodec.providedBy(codec):
        yield f"the codec {codec.name} does not tell what it lacks"
        return
    texts = {**THERE, **BACK}
    for peers in dict.fromkeys(codec.depends.values()):
        words = [texts[word] for word, who in codec.depends.items() if who == peers and word in texts]
        if words:
            yield f"{peers} as {side} do not know {', '.join(words)}"


def _lacks(codec: IStreamCodec, deadlines: bool) -> frozenset[str]:
    """What it has no words for, where a field may carry deadlines."""
    lacks = frozenset(codec.lacks) if IDescribedCodec.providedBy(codec) else frozenset()
    return lacks - {"deadline"} if deadlines else lacks
