"""
C{compress}: answers that are packed for clients that take them so (RFC 9110, 8.4 and 12.5.3).

Rules
- What an answer is stays what it was: one that is packed already, a part of one (206), or one that says
  C{no-transform} is passed on as it is.
- A strong validator names other bytes now, so it becomes a weak one; C{Vary} says that the answer depends on what the
  client takes, also where this one was not packed.
- Nothing is delayed: what came in a turn of the event loop goes out in it.  Event streams and calls of gRPC are left
  alone all the same: the one is read by whoever waits for each line, the other packs its messages itself.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

from zope.interface import implementer

from protogate.coded import Packed
from protogate.codings import PACKERS
from protogate.governance.negotiation import IDENTITY, LONGEST, coding
from protogate.governance.params import Params, shown
from protogate.governance.recoding import recode
from protogate.governance.stages import PRE_RESPONSE
from protogate.interfaces import IModule, IModuleFactory
from protogate.message import Headers, Request, tunnels

if TYPE_CHECKING:
    from protogate.exchange.exchange import Exchange

LEVELS: Final[Mapping[str, tuple[int, int, int]]] = {"gzip": (1, 9, 5), "br": (0, 11, 4), "zstd": (1, 19, 3)}
"""Least, most and usual level of each coding: about as dear as each other, and as fast as a network."""
ORDER: Final = ("zstd", "br", "gzip")
TYPES: Final = (
    "text/*",
    "application/json",
    "application/*+json",
    "application/javascript",
    "application/xml",
    "application/*+xml",
    "application/manifest+json",
    "application/wasm",
    "image/svg+xml",
    "image/x-icon",
    "font/ttf",
    "font/otf",
)
NEVER: Final = (b"text/event-stream", b"application/grpc")
"""How types begin that are left alone, whatever the configuration says."""
BARE: Final = frozenset((204, 205, 206, 304))
"""Statuses of answers without content, or with a part of one."""
KNOWN: Final = 256
"""Values of C{Accept-Encoding}, and of C{Content-Type}, that are remembered."""


@implementer(IModule)
class Compress:
    """
    @param levels: by the name of the coding, the most welcome first.
    @param types: media types; C{*} at the beginning or the end of the second half is anything.
    @param least: bytes that an answer must have, where that is known.
    @param credentials: whether answers to requests with credentials are packed, too.
    """

    def __init__(self, levels: Mapping[str, int], types: Sequence[str], least: int, credentials: bool) -> None:
        self._make = {name.encode(): partial(PACKERS[name.encode()], level) for name, level in levels.items()}
        self._offered = tuple(self._make)
        self._types, self._least, self._credentials = tuple(types), least, credentials
        self._chosen: dict[bytes, bytes] = {}
        self._fits: dict[bytes, bool] = {}

    def process(self, exchange: Exchange) -> None:
        """Pack the answer, if it is to be packed."""
        request, response = exchange.request, exchange.response
        if response is None or response.body is None or response.status < 200 or response.status in BARE:
            return
        headers = response.headers
        kind = headers.get(b"content-type")
        if kind is None or not self._fitting(kind) or tunnels(request, response):
            return
        if headers.get(b"content-encoding") is not None or _fixed(headers):
            return
        _vary(headers)
        if response.body.length is not None and response.body.length < self._least:
            return
        if not self._credentials and _credential(request):
            return
        name = self._choose(request.headers.all(b"accept-encoding"))
        if name == IDENTITY:
            return
        recode(headers, b"accept-ranges", b"repr-digest")  # of the coding as it was (RFC 9110, 14.3; RFC 9530, 3)
        headers.append((b"content-encoding", name))
        response.body = Packed(response.body, self._make[name], exchange.wheel.soon)

    def _choose(self, lines: Sequence[bytes]) -> bytes:
        if len(lines) != 1:
            return coding(lines, self._offered)
        name = self._chosen.get(lines[0])
        if name is None:
            name = coding(lines, self._offered)
            if len(self._chosen) >= KNOWN:
                self._chosen.clear()
            if len(lines[0]) <= LONGEST:
                self._chosen[lines[0]] = name
        return name

    def _fitting(self, kind: bytes) -> bool:
        fits = self._fits.get(kind)
        if fits is None:
            name = kind.partition(b";")[0].strip(b" \t").lower()
            text = name.decode("latin-1")
            fits = not name.startswith(NEVER) and any(_like(text, wanted) for wanted in self._types)
            if len(self._fits) >= KNOWN:
                self._fits.clear()
            if len(kind) <= LONGEST:
                self._fits[kind] = fits
        return fits


def _like(text: str, wanted: str) -> bool:
    before, star, after = wanted.partition("*")
    return text == wanted if not star else text.startswith(before) and text.endswith(after)


def _fixed(headers: Headers) -> bool:
    """Whether nobody on the way may change the content (RFC 9111, 5.2.2.6)."""
    return any(b"no-transform" in value.lower() for value in headers.all(b"cache-control"))


def _credential(request: Request) -> bool:
    return any(name in (b"cookie", b"authorization") for name, _ in request.headers)


def _vary(headers: Headers) -> None:
    """Say that the answer depends on what the client takes."""
    named = b",".join(headers.all(b"vary")).lower()
    if named.strip() != b"*" and b"accept-encoding" not in [each.strip(b" \t") for each in named.split(b",")]:
        headers.append((b"vary", b"accept-encoding"))


@implementer(IModuleFactory)
class CompressFactory:
    """Makes L{Compress}."""

    name = "compress"
    stages = (PRE_RESPONSE,)
    guards = False

    def build(self, params: Mapping[str, object]) -> Compress:
        """See L{IModuleFactory.build}."""
        reader = Params(params, "codings", "levels", "types", "minLength", "credentials")
        installed = [name for name in ORDER if name.encode() in PACKERS]
        names = []
        for index, name in enumerate(reader.items("codings") if "codings" in reader else installed):
            if name in installed:
                names.append(name)
            elif name in LEVELS:
                reader.fault(f"{name} is not installed: pip install 'protogate[{_EXTRAS[name]}]'", "codings", index)
            else:
                reader.fault(f"expected one of {', '.join(LEVELS)}, got {shown(name)}", "codings", index)
        if not names and not reader.faults:
            reader.fault("expected at least one coding", "codings")
        levels = {name: LEVELS[name][2] for name in names}
        given = params.get("levels", {})
        if not isinstance(given, Mapping):
            reader.fault(f"expected a mapping of codings and levels, got {shown(given)}", "levels")
            given = {}
        for name, level in given.items():
            if name not in levels:
                if levels:
                    reader.fault(f"{shown(name)} is none of the codings: {', '.join(levels)}", "levels", name)
                continue
            low, high, _ = LEVELS[name]
            if type(level) is not int or not low <= level <= high:
                reader.fault(f"expected a number from {low} to {high}, got {shown(level)}", "levels", name)
            else:
                levels[name] = level
        types = _types(reader) if "types" in reader else TYPES
        least = reader.size("minLength", 1024)
        credentials = reader.flag("credentials", True)
        reader.done()
        return Compress(levels, types, least, credentials)


_EXTRAS: Final = {"br": "brotli", "zstd": "zstd"}


_TYPE: Final = re.compile(r"[a-z]+/(?:\*|\*?[-+.0-9a-z]+|[-+.0-9a-z]+\*)").fullmatch


def _types(reader: Params) -> list[str]:
    found = []
    for index, text in enumerate(reader.items("types")):
        if not isinstance(text, str) or not _TYPE(text):
            wanted = "expected a media type such as text/html, text/* or application/*+json"
            reader.fault(f"{wanted}, got {shown(text)}", "types", index)
        elif text.encode("ascii").startswith(NEVER):
            reader.fault(f"{text} is always left alone", "types", index)
        else:
            found.append(text)
    if not found and not reader.faults:
        reader.fault("expected at least one media type", "types")
    return found
