"""
Regular expressions of the configuration: RE2's syntax (https://github.com/google/re2/wiki/Syntax), run by C{re}.

Rules
- What RE2 refuses is refused here too: backreferences, lookaround, possessive and atomic groups.  Of what RE2 knows,
  C{\\p{…}} and the flag U are refused, because C{re} has no such thing.
- Meanings are RE2's where C{re}'s differ: C{$} is the end of the text and not a place before a last line feed,
  C{\\d \\w \\s \\b} know ASCII only, C{[[:alpha:]]} is a class.  Each atom is translated, so no flag is in force.
- C{re} tries ways to match one after the other, and an attacker chooses the text.  A pattern for which the tries can
  grow with the third power of the text, or worse, is refused: see L{protogate.expression.ambiguity}.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from protogate.errors import ConfigError
from protogate.expression import ambiguity
from protogate.expression.ambiguity import Alternatives, Assertion, Characters, Node, Repeat, Sequence

MAX_LENGTH: Final = 4096
MAX_DEPTH: Final = 32
MAX_REPEAT: Final = 1000
"""As RE2's."""

Ranges = tuple[tuple[int, int], ...]

_TOP: Final = 0x10FFFF
_DIGIT: Final[Ranges] = ((48, 57),)
_WORD: Final[Ranges] = ((48, 57), (65, 90), (95, 95), (97, 122))
_SPACE: Final[Ranges] = ((9, 10), (12, 13), (32, 32))
_PERL: Final = {"d": _DIGIT, "w": _WORD, "s": _SPACE}
_POSIX: Final[dict[str, Ranges]] = {
    "alnum": ((48, 57), (65, 90), (97, 122)),
    "alpha": ((65, 90), (97, 122)),
    "ascii": ((0, 127),),
    "blank": ((9, 9), (32, 32)),
    "cntrl": ((0, 31), (127, 127)),
    "digit": _DIGIT,
    "graph": ((33, 126),),
    "lower": ((97, 122),),
    "print": ((32, 126),),
    "punct": ((33, 47), (58, 64), (91, 96), (123, 126)),
    "space": ((9, 13), (32, 32)),
    "upper": ((65, 90),),
    "word": _WORD,
    "xdigit": ((48, 57), (65, 70), (97, 102)),
}
_CONTROLS: Final = {"a": 7, "f": 12, "t": 9, "n": 10, "r": 13, "v": 11}
_ORBIT: Final = {"k": "\u212a", "s": "\u017f", "\u212a": "kK", "\u017f": "sS"}
"""Letters that fold to ASCII ones."""
_COUNT: Final = re.compile(r"\{([0-9]{1,9})(?:(,)([0-9]{1,9})?)?\}")
_HEX: Final = re.compile(r"x(?:([0-9a-fA-F]{2})|\{([0-9a-fA-F]{1,8})\})")
_OCTAL: Final = re.compile(r"0[0-7]{0,2}|[1-7][0-7]{1,2}")
_NAMED: Final = re.compile(r"\[:(\^?)([A-Za-z]+):\]")
_GROUP: Final = re.compile(r"\?P?<([A-Za-z_][A-Za-z_0-9]*)>")
_FLAGS: Final = re.compile(r"\?([a-zA-Z]*)(?:-([a-zA-Z]*))?([:)])")
_ENDS: Final = "|)"


@dataclass(frozen=True, slots=True)
class _Flags:
    ignore: bool = False
    multiline: bool = False
    dotall: bool = False


@lru_cache(maxsize=1024)
def compile(pattern: str, *, anchored: bool = False) -> re.Pattern[str]:  # noqa: A001
    """
    The pattern, checked.  C{search()} is what CEL's matches() does.

    @param anchored: it will be used with C{match()} or C{fullmatch()}, so a search does not multiply the tries.
    @raise ConfigError: with what is wrong and the place in the pattern.
    """
    if len(pattern) > MAX_LENGTH:
        raise ConfigError(f"the pattern is longer than {MAX_LENGTH} characters")
    parser = _Parser(pattern)
    node, text = parser.whole()
    reason = ambiguity.reason(node, searched=not anchored)
    if reason:
        raise ConfigError(f'the pattern "{pattern}" can take too long: {reason}')
    return re.compile(text)


class _Parser:
    def __init__(self, pattern: str) -> None:
        self.pattern = pattern
        self.at = 0
        self._depth = 0
        self._names: set[str] = set()
        self._flags = _Flags()

    def _fault(self, message: str, at: int | None = None) -> ConfigError:
        place = (self.at if at is None else at) + 1
        return ConfigError(f'the pattern "{self.pattern}" is wrong at character {place}: {message}')

    def _peek(self) -> str:
        return self.pattern[self.at : self.at + 1]

    def whole(self) -> tuple[Node, str]:
        """The tree of the whole pattern, and how C{re} spells it."""
        node, text = self._alternatives()
        if self.at < len(self.pattern):
            raise self._fault('")" closes nothing; for the character write "\\)"')
        return node, text

    def _alternatives(self) -> tuple[Node, str]:
        nodes: list[Node] = []
        texts: list[str] = []
        while True:
            node, text = self._sequence()
            nodes.append(node)
            texts.append(text)
            if self._peek() != "|":
                break
            self.at += 1
        return (nodes[0] if len(nodes) == 1 else Alternatives(tuple(nodes))), "|".join(texts)

    def _sequence(self) -> tuple[Node, str]:
        nodes: list[Node] = []
        texts: list[str] = []
        while (character := self._peek()) and character not in _ENDS:
            start = self.at
            if self.pattern.startswith("\\Q", start):
                quoted = self._quoted()
                if not quoted:
                    continue
                for node, text in quoted[:-1]:
                    nodes.append(node)
                    texts.append(text)
                node, text = quoted[-1]  # what follows repeats the last one
            else:
                atom = self._atom()
                if atom is None:
                    continue  # (?i): flags for what follows
                node, text = atom
            node, text = self._repeated(node, text, start)
            nodes.append(node)
            texts.append(text)
        return Sequence(tuple(nodes)), "".join(texts)

    def _quoted(self) -> list[tuple[Node, str]]:
        r"""C{\Q…\E}: characters that mean themselves."""
        end = self.pattern.find("\\E", self.at + 2)
        body = self.pattern[self.at + 2 : end if end >= 0 else None]
        self.at = len(self.pattern) if end < 0 else end + 2
        return [self._characters(((ord(character), ord(character)),)) for character in body]

    def _repeated(self, node: Node, text: str, start: int) -> tuple[Node, str]:
        low = 1
        high: int | None = 1
        sign = self._peek()
        at = self.at
        if sign and sign in "*+?":
            self.at += 1
            low, high = (1 if sign == "+" else 0), (1 if sign == "?" else None)
        elif sign == "{" and (match := _COUNT.match(self.pattern, at)) is not None:
            self.at = match.end()
            low = int(match[1])
            high = low if match[2] is None else None if match[3] is None else int(match[3])
            if low > MAX_REPEAT or (high or 0) > MAX_REPEAT:
                raise self._fault(f"more than {MAX_REPEAT} repetitions", at)
            if high is not None and high < low:
                raise self._fault(f"{match[0]} has its numbers the wrong way round", at)
        else:
            return node, text
        if isinstance(node, Assertion):
            raise self._fault("a place cannot be repeated", start)
        text += self.pattern[at : self.at]
        if self._peek() == "?":
            self.at += 1
            text += "?"
        following = self._peek()
        if (following and following in "*+?") or (following == "{" and _COUNT.match(self.pattern, self.at)):
            raise self._fault("a repetition is repeated; possessive ones are not in RE2")
        return Repeat(node, low, high), text

    def _atom(self) -> tuple[Node, str] | None:  # noqa: PLR0911
        character = self.pattern[self.at]
        match character:
            case "(":
                return self._group()
            case "[":
                ranges = self._class()
                return self._exactly(ranges)
            case "\\":
                return self._escape()
            case "*" | "+" | "?":
                raise self._fault(f'nothing stands before "{character}" to be repeated')
        self.at += 1
        match character:
            case ".":
                if self._flags.dotall:
                    return Characters(((0, _TOP),)), "(?s:.)"
                return Characters(((0, 9), (11, _TOP))), "."
            case "^":
                return (Assertion(), "(?m:^)") if self._flags.multiline else (Assertion(begin=True), r"\A")
            case "$":
                return Assertion(), "(?m:$)" if self._flags.multiline else r"\Z"
        return self._characters(((ord(character), ord(character)),))

    def _characters(self, ranges: Ranges) -> tuple[Node, str]:
        """One of these, in either case if the flag i says so."""
        return self._exactly(_merged(_folded(ranges)) if self._flags.ignore else ranges)

    @staticmethod
    def _exactly(ranges: Ranges) -> tuple[Node, str]:
        return Characters(ranges), _spelled(ranges)

    def _group(self) -> tuple[Node, str] | None:
        opened = self.at
        self.at += 1
        flags = self._flags
        opening = "("
        if self._peek() == "?":
            if (named := _GROUP.match(self.pattern, self.at)) is not None:
                if named[1] in self._names:
                    raise self._fault(f'the group name "{named[1]}" is used twice', opened)
                self._names.add(named[1])
                opening = f"(?P<{named[1]}>"
                self.at = named.end()
            elif (given := _FLAGS.match(self.pattern, self.at)) is not None:
                self._set(given)
                self.at = given.end()
                if given[3] == ")":
                    return None
                opening = "(?:"
            else:
                raise self._fault(self._refused(), opened)
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise self._fault(f"groups are nested more than {MAX_DEPTH} deep", opened)
        node, text = self._alternatives()
        if self._peek() != ")":
            raise self._fault('"(" is never closed', opened)
        self.at += 1
        self._depth -= 1
        self._flags = flags
        return node, f"{opening}{text})"

    def _refused(self) -> str:
        rest = self.pattern[self.at + 1 :]
        if rest.startswith(("=", "!", "<=", "<!")):
            return "lookaround is not in RE2"
        if rest.startswith("P="):
            return "backreferences are not in RE2"
        if rest.startswith(">"):
            return "atomic groups are not in RE2"
        return "this kind of group is unknown"

    def _set(self, given: re.Match[str]) -> None:
        """Flags that are in force up to the end of the group."""
        values = {"i": self._flags.ignore, "m": self._flags.multiline, "s": self._flags.dotall}
        for group, value in ((1, True), (2, False)):
            for offset, letter in enumerate(given[group] or ""):
                if letter not in values:
                    at = given.start(group) + offset
                    raise self._fault(f'the flag "{letter}" is not supported, only i, m and s are', at)
                values[letter] = value
        self._flags = _Flags(values["i"], values["m"], values["s"])

    def _escape(self) -> tuple[Node, str]:
        start = self.at
        letter = self.pattern[start + 1 : start + 2]
        places = {
            "A": (Assertion(begin=True), r"\A"),
            "z": (Assertion(), r"\Z"),
            "b": (Assertion(), r"(?a:\b)"),
            "B": (Assertion(), r"(?a:\B)"),
        }
        if letter and letter in places:
            self.at += 2
            return places[letter]
        if letter and letter.lower() in _PERL:
            self.at += 2
            return self._exactly(_perl(letter))
        number = self._escaped()
        return self._characters(((number, number),))

    def _escaped(self) -> int:
        """The character that an escape means."""
        start = self.at
        letter = self.pattern[start + 1 : start + 2]
        if not letter:
            raise self._fault('"\\" stands at the end; for the character write two')
        self.at += 2
        if letter in _CONTROLS:
            return _CONTROLS[letter]
        if (match := _HEX.match(self.pattern, start + 1)) is not None:
            self.at = match.end()
            number = int(match[1] or match[2], 16)
            if number > _TOP:
                raise self._fault(f'"\\{match[0]}" is no character', start)
            return number
        if (match := _OCTAL.match(self.pattern, start + 1)) is not None:
            self.at = match.end()
            return int(match[0], 8)
        if letter.isascii() and letter.isalnum():
            if letter.isdigit():
                raise self._fault("backreferences are not in RE2", start)
            if letter in "pP":
                raise self._fault("Unicode classes are not supported; name the characters", start)
            raise self._fault(f'the escape "\\{letter}" is unknown', start)
        return ord(letter)

    def _class(self) -> Ranges:
        opened = self.at
        self.at += 1
        negated = self._peek() == "^"
        self.at += negated
        literal: list[tuple[int, int]] = []
        fixed: list[tuple[int, int]] = []
        first = True
        while first or self._peek() != "]":
            first = False
            if not self._peek():
                raise self._fault('"[" is never closed', opened)
            if (named := _NAMED.match(self.pattern, self.at)) is not None:
                ranges = _POSIX.get(named[2])
                if ranges is None:
                    raise self._fault(f'the class "{named[0]}" is unknown')
                self.at = named.end()
                literal += _complement(ranges) if named[1] else ranges
                continue
            letter = self.pattern[self.at + 1 : self.at + 2]
            if self._peek() == "\\" and letter and letter.lower() in _PERL:
                self.at += 2
                fixed += _perl(letter)
                continue
            literal.append(self._range())
        self.at += 1
        ranges = _merged((*(_folded(tuple(literal)) if self._flags.ignore else literal), *fixed))
        return _complement(ranges) if negated else ranges

    def _range(self) -> tuple[int, int]:
        start = self.at
        low = self._member()
        if self._peek() != "-" or self.pattern[self.at + 1 : self.at + 2] in ("]", ""):
            return low, low
        self.at += 1
        high = self._member()
        if high < low:
            raise self._fault(f'the range "{self.pattern[start : self.at]}" has its ends the wrong way round', start)
        return low, high

    def _member(self) -> int:
        if self._peek() == "\\":
            return self._escaped()
        self.at += 1
        return ord(self.pattern[self.at - 1])


def _perl(letter: str) -> Ranges:
    ranges = _PERL[letter.lower()]
    return ranges if letter.islower() else _complement(ranges)


def _merged(ranges: tuple[tuple[int, int], ...]) -> Ranges:
    """Sorted, and without overlap."""
    out: list[tuple[int, int]] = []
    for low, high in sorted(ranges):
        if out and low <= out[-1][1] + 1:
            out[-1] = (out[-1][0], max(high, out[-1][1]))
        else:
            out.append((low, high))
    return tuple(out)


def _complement(ranges: Ranges) -> Ranges:
    out: list[tuple[int, int]] = []
    at = 0
    for low, high in ranges:
        if at < low:
            out.append((at, low - 1))
        at = high + 1
    if at <= _TOP:
        out.append((at, _TOP))
    return tuple(out)


def _folded(ranges: Ranges) -> Ranges:
    """
    The ranges, and the other case of what is in them: of each character in a range of up to 1000, and of ASCII letters.
    """
    out = list(ranges)
    for low, high in ranges:
        numbers = list(range(low, min(high, 127) + 1))
        if high - low < 1000:
            numbers += range(max(low, 128), high + 1)
        for character in map(chr, numbers):
            cases = character.lower(), character.upper(), *_ORBIT.get(character.lower(), ""), *_ORBIT.get(character, "")
            out += [(ord(case), ord(case)) for case in cases if len(case) == 1]
    return tuple(out)


def _spelled(ranges: Ranges) -> str:
    """How C{re} writes a set."""
    if not ranges:
        return "(?!)"
    if len(ranges) == 1 and ranges[0][0] == ranges[0][1]:
        return _character(ranges[0][0])
    others = _complement(ranges)
    sign, shorter = ("^", others) if 0 < len(others) < len(ranges) else ("", ranges)
    parts = [_character(low) if low == high else f"{_character(low)}-{_character(high)}" for low, high in shorter]
    return f"[{sign}{''.join(parts)}]"


def _character(number: int) -> str:
    character = chr(number)
    if character.isascii():
        return character if character.isalnum() or character in "/_ " else f"\\x{number:02x}"
    return f"\\u{number:04x}" if number <= 0xFFFF else f"\\U{number:08x}"
