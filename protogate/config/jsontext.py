"""
JSON text (RFC 8259) → values, with duplicate keys as faults and every fault at its line and column.

The scanner is a regular expression per token and a table of what may come next; it never recurses.
"""

from __future__ import annotations

import json
import re
from bisect import bisect_right
from typing import Final

from protogate.config import scalar
from protogate.config.builder import Broken, Builder, Position

_TOKEN: Final = re.compile(
    r"""[ \t\n\r]*(?:
      (?P<mark>[{}\[\],:])
    | "(?P<text>[^"\\\x00-\x1f]*)"
    | (?P<escaped>"(?:[^"\\\x00-\x1f]|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*")
    | (?P<whole>-?(?:0|[1-9][0-9]*))(?![\w.+-])
    | (?P<real>-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?)(?![\w.+-])
    | (?P<word>true|false|null)(?!\w)
    )""",
    re.ASCII | re.VERBOSE,
)
_SPACE: Final = re.compile(r"[ \t\n\r]*", re.ASCII)
_RUN: Final = re.compile(r"""[^\s,:\[\]{}"]+|.""", re.ASCII | re.DOTALL)
_WORDS: Final[dict[str, bool | None]] = {"true": True, "false": False, "null": None}

_VALUE, _FIRST, _KEY, _FIRST_KEY, _COLON, _NEXT, _DONE = range(7)
_EXPECTED: Final = {
    _VALUE: "a value",
    _FIRST: 'a value or "]"',
    _KEY: "a key in double quotes",
    _FIRST_KEY: 'a key in double quotes or "}"',
    _COLON: '":"',
    _DONE: "nothing more",
}


def read(text: str, builder: Builder) -> None:
    """Put the one value of C{text} into C{builder}.  @raise Broken: see there."""
    _Reader(text, builder).run()


class _Reader:
    def __init__(self, text: str, builder: Builder) -> None:
        self._text, self._builder = text, builder
        self._at = builder.locate = _Lines(text).at
        self._open: list[tuple[str, int]] = []  # closing mark and offset of what is open

    def run(self) -> None:
        """Up to the end of the text."""
        text, builder, token = self._text, self._builder, _TOKEN.match
        state, offset, length = _VALUE, 0, len(text)
        while True:
            match = token(text, offset)
            if match is None:
                start = _SPACE.match(text, offset).end()  # type: ignore[union-attr]
                if start == length and state == _DONE:
                    return
                raise self._unexpected(state, start)
            kind = match.lastgroup
            start = match.start(match.lastindex or 0)
            if kind == "mark":
                state = self._mark(state, match["mark"], start)
            elif kind in ("text", "escaped"):
                start -= kind == "text"
                value = match["text"] if kind == "text" else self._string(match["escaped"], start)
                if state in (_KEY, _FIRST_KEY):
                    builder.key(value, start)
                    state = _COLON
                else:
                    state = self._scalar(state, value, start)
            elif kind == "word":
                state = self._scalar(state, _WORDS[match["word"]], start)
            else:
                try:
                    number = scalar.whole(match["whole"], 10) if kind == "whole" else scalar.real(match["real"])
                except ValueError as error:
                    builder.fault(str(error), start)
                    number = 0
                state = self._scalar(state, number, start)
            offset = match.end()

    def _scalar(self, state: int, value: object, start: int) -> int:
        if state not in (_VALUE, _FIRST):
            raise self._unexpected(state, start)
        self._builder.scalar(value, start)
        return _NEXT if self._open else _DONE

    def _string(self, token: str, start: int) -> str:
        value: str = json.loads(token)
        if scalar.halves(value):
            self._builder.fault("half a character: \\ud800 to \\udfff come in pairs", start)
        return value

    def _mark(self, state: int, mark: str, start: int) -> int:
        builder, opened = self._builder, self._open
        if mark in "{[":
            if state not in (_VALUE, _FIRST):
                raise self._unexpected(state, start)
            builder.open({} if mark == "{" else [], start)
            opened.append(("}" if mark == "{" else "]", start))
            return _FIRST_KEY if mark == "{" else _FIRST
        if mark in "}]":
            if not opened or mark != opened[-1][0] or state not in (_NEXT, _FIRST if mark == "]" else _FIRST_KEY):
                raise self._unexpected(state, start)
            opened.pop()
            builder.close()
            return _NEXT if opened else _DONE
        if mark == "," and state == _NEXT:
            return _KEY if opened[-1][0] == "}" else _VALUE
        if mark == ":" and state == _COLON:
            return _VALUE
        raise self._unexpected(state, start)

    def _unexpected(self, state: int, start: int) -> Broken:
        text = self._text
        at = self._at(start)
        if start == len(text):
            if not self._open:
                return Broken("the file is empty; it needs listeners at least", (1, 1))
            mark, opened = self._open[-1]
            return Broken(f'the text ends before the "{mark}" that belongs to line {self._at(opened)[0]}', at)
        expected = f'"," or "{self._open[-1][0]}"' if state == _NEXT else _EXPECTED[state]
        found = _RUN.match(text, start)[0]  # type: ignore[index]
        hint = ""
        if found in "}]" and state in (_KEY, _VALUE) and self._open and found == self._open[-1][0]:
            hint = "; the comma before it is one too many"
        elif found == '"' and _TOKEN.match(text, start) is None:
            return Broken("this string is never closed, or holds a line break, a tab or an unknown escape", at)
        elif found.startswith(("#", "//", "/*")):
            hint = "; JSON has no comments"
        elif found.startswith("'"):
            hint = "; strings need double quotes"
        elif found in ("True", "False", "None"):
            hint = f"; write {'null' if found == 'None' else found.lower()}"
        elif found == '"':
            found = _TOKEN.match(text, start)[0]  # type: ignore[index]
        return Broken(f"expected {expected}, got {scalar.shorten(found)}{hint}", at)


class _Lines:
    """Offsets as lines and columns.  Apart from the reader: a builder that refers to its reader would be a cycle."""

    __slots__ = ("_starts", "_text")

    def __init__(self, text: str) -> None:
        self._text = text
        self._starts: list[int] = []  # offset of each line, once it is needed

    def at(self, offset: int) -> Position:
        if not self._starts:
            self._starts = [0, *(match.end() for match in re.finditer("\n", self._text))]
        line = bisect_right(self._starts, offset)
        return line, offset - self._starts[line - 1] + 1
