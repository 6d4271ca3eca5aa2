"""
C{Cache-Control} (RFC 9111, 5.2), and targeted fields such as C{CDN-Cache-Control} (RFC 9213).

Rules
- What can be read two ways is read as the stricter one: of two values the smaller holds, a number that is none is 0 in
  an answer and nothing in a request, C{private="x"} is C{private}, C{no-cache="x"} is C{no-cache}.
- A targeted field is a dictionary of RFC 9651: where it is none, it is as if it were not there.
- The same few texts come again and again: each is read once.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

FOREVER: Final = 1 << 31
"""Seconds; what a larger number means (RFC 9111, 1.2.2)."""
KNOWN: Final = 1024
"""Texts whose reading is remembered; all are forgotten when there are more."""
LONGEST: Final = 256
"""Bytes of a text whose reading is remembered."""

_DIRECTIVE: Final = re.compile(
    rb"([!#$%&'*+\-.^_`|~0-9A-Za-z]++)(?:(=)(?:\"((?:[^\"\\]|\\.)*+)\"|([^,\" \t]*+)))?+([^,]*+)",
    re.DOTALL,
)
_BETWEEN: Final = re.compile(rb"[ \t,]*+")
_DIGITS: Final = re.compile(rb"[0-9]++").fullmatch
_TARGETED: Final = re.compile(
    rb"([a-z*][a-z0-9_.*-]*+)"
    rb"(?:=(?:(-?[0-9]{1,15}(?:\.[0-9]{1,3})?+)|\"(?:[\x20\x21\x23-\x5b\x5d-\x7e]|\\[\"\\])*+\""
    rb"|:[A-Za-z0-9+/]*+={0,2}:|\?([01])|([A-Za-z*][!#$%&'*+\-.^_`|~0-9A-Za-z:/]*+)))?+"
    rb"(?:;[ ]*+[a-z*][a-z0-9_.*-]*+(?:=[^,;\"]*+|=\"[^\"]*+\")?+)*+"
)
_COMMA: Final = re.compile(rb"[ \t]*+,[ \t]*+")


@dataclass(frozen=True, slots=True)
class Control:
    """
    What directives say.  Seconds are None where nothing is said.

    @ivar revalidate: C{must-revalidate} or C{proxy-revalidate}: never served stale.
    @ivar max_stale: of a request: seconds, L{FOREVER} without a number.
    """

    no_store: bool = False
    no_cache: bool = False
    private: bool = False
    public: bool = False
    revalidate: bool = False
    must_revalidate: bool = False
    must_understand: bool = False
    only_if_cached: bool = False
    max_age: int | None = None
    s_maxage: int | None = None
    min_fresh: int | None = None
    max_stale: int | None = None
    stale_while_revalidate: int | None = None
    stale_if_error: int | None = None

    @property
    def shared(self) -> bool:
        """Others may have it, whoever asked for it (RFC 9111, 3.5)."""
        return self.public or self.s_maxage is not None or self.must_revalidate


NOTHING: Final = Control()
NO_CACHE: Final = Control(no_cache=True)
"""What C{Pragma: no-cache} means where there is no C{Cache-Control} (RFC 9111, 5.4)."""

_FLAGS: Final = {
    b"no-store": "no_store",
    b"no-cache": "no_cache",
    b"private": "private",
    b"public": "public",
    b"must-revalidate": "must_revalidate",
    b"proxy-revalidate": "revalidate",
    b"must-understand": "must_understand",
    b"only-if-cached": "only_if_cached",
}
_SECONDS: Final = {
    b"max-age": "max_age",
    b"s-maxage": "s_maxage",
    b"min-fresh": "min_fresh",
    b"max-stale": "max_stale",
    b"stale-while-revalidate": "stale_while_revalidate",
    b"stale-if-error": "stale_if_error",
}
_known: Final[dict[tuple[str, bytes], Control | None]] = {}


def seconds(text: bytes) -> int | None:
    """C{delta-seconds} (RFC 9111, 1.2.2); None when it is none."""
    if not _DIGITS(text):
        return None
    return min(int(text), FOREVER) if len(text) < 12 else FOREVER


def of_answer(values: list[bytes]) -> Control:
    """What the C{Cache-Control} lines of an answer say."""
    return _remembered("answer", values) if values else NOTHING


def of_request(values: list[bytes]) -> Control:
    """What the C{Cache-Control} lines of a request say."""
    return _remembered("request", values) if values else NOTHING


def targeted(values: list[bytes]) -> Control | None:
    """What the lines of a targeted field say; None when that is nothing, or when they are no dictionary."""
    text = b", ".join(values)
    key = ("targeted", text)
    if key in _known:
        return _known[key]
    return _keep(key, _dictionary(text))


def _remembered(kind: str, values: list[bytes]) -> Control:
    text = values[0] if len(values) == 1 else b",".join(values)
    found = _known.get((kind, text))
    if found is None:
        found = _lenient(text, 0 if kind == "answer" else None)
        _keep((kind, text), found)
    return found


def _keep(key: tuple[str, bytes], control: Control | None) -> Control | None:
    if len(key[1]) <= LONGEST:
        if len(_known) >= KNOWN:
            _known.clear()
        _known[key] = control
    return control


def _lenient(text: bytes, wrong: int | None) -> Control:
    """
    Directives as they are written in practice.

    @param wrong: what a number means that is none.
    """
    found: dict[str, int] = {}
    at = 0
    while at < len(text):
        at = _end(_BETWEEN, text, at)
        match = _DIRECTIVE.match(text, at)
        if match is None:  # nothing that is one, up to the next comma
            at = text.find(b",", at) + 1 or len(text)
            continue
        at = match.end()
        name, given, quoted, plain, rest = match.groups()
        name = name.lower()
        if name in _FLAGS:
            found[_FLAGS[name]] = True
        elif name in _SECONDS:
            value = seconds(quoted if quoted is not None else plain or b"")
            if given is None:
                value = FOREVER if name == b"max-stale" else wrong
            elif value is None or rest.strip(b" \t"):
                value = wrong
            if value is not None:
                _least(found, _SECONDS[name], value)
    return _made(found)


def _dictionary(text: bytes) -> Control | None:
    """Directives of a dictionary (RFC 9651, 4.2.2): of a key that is there twice the last holds."""
    found: dict[str, int] = {}
    text = text.strip(b" ")
    at = 0
    while at < len(text):
        match = _TARGETED.match(text, at)
        if match is None:
            return None
        name, number, boolean, _ = match.groups()
        bare = b"=" not in match[0].partition(b";")[0]
        if name in _FLAGS:
            found.pop(_FLAGS[name], None)
            if boolean != b"0":
                found[_FLAGS[name]] = True
        elif name in _SECONDS:
            found.pop(_SECONDS[name], None)
            value = None if number is None or bare else seconds(number)
            if value is not None:
                found[_SECONDS[name]] = value
            elif number is not None:  # less than nothing, or a fraction
                found[_SECONDS[name]] = 0
        at = match.end()
        if at == len(text):
            return _made(found)
        comma = _COMMA.match(text, at)
        if comma is None or comma.end() == len(text):
            return None
        at = comma.end()
    return None


def _end(pattern: re.Pattern[bytes], text: bytes, at: int) -> int:
    match = pattern.match(text, at)
    return at if match is None else match.end()


def _least(found: dict[str, int], name: str, value: int) -> None:
    found[name] = min(value, found.get(name, value))


def _made(found: dict[str, int]) -> Control:
    if found.get("must_revalidate"):
        found["revalidate"] = True
    made: dict[str, object] = dict(found)
    return Control(**made)  # type: ignore[arg-type]  # the names are those of the class
