"""
Text → tokens, by one regular expression (CEL's lexis: https://github.com/google/cel-spec/blob/master/doc/langdef.md).

Tokens are made one by one as the parser asks: in a template the text behind the closing brace is no longer ours.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from protogate.expression.tree import Fault

END: Final = "end"

_TOKEN: Final = re.compile(
    r"""
      (?P<space>   (?: [\t\n\f\r\x20]+ | //[^\n]* )+ )
    | (?P<string>  (?P<prefix> [rRbB]{0,2} ) (?P<quote> \"\"\" | ''' | " | ' ) )
    | (?P<double>  [0-9]+\.[0-9]+ (?:[eE][+-]?[0-9]+)? | [0-9]+[eE][+-]?[0-9]+ | \.[0-9]+ (?:[eE][+-]?[0-9]+)? )
    | (?P<int>     (?: 0x[0-9a-fA-F]+ | [0-9]+ ) [uU]? )
    | (?P<name>    [A-Za-z_][A-Za-z_0-9]* )
    | (?P<mark>    == | != | <= | >= | && | \|\| | [<>!?:.,()\[\]{}+*/%-] )
    """,
    re.VERBOSE,
)
_COOKED: Final = {
    # What may stand behind an opening quote, up to the closing one.
    "'": re.compile(r"(?:[^\\'\n\r]|\\.)*'"),
    '"': re.compile(r'(?:[^\\"\n\r]|\\.)*"'),
    "'''": re.compile(r"(?:\\.|(?!''')[^\\])*'''", re.DOTALL),
    '"""': re.compile(r'(?:\\.|(?!""")[^\\])*"""', re.DOTALL),
}
_RAW: Final = {
    "'": re.compile(r"[^'\n\r]*'"),
    '"': re.compile(r'[^"\n\r]*"'),
    "'''": re.compile(r".*?'''", re.DOTALL),
    '"""': re.compile(r'.*?"""', re.DOTALL),
}
_ESCAPE: Final = re.compile(
    r"\\(?:([abfnrtv\\'\"`?])|[xX]([0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|([0-3][0-7]{2})|(.?))", re.DOTALL
)
_INSTEAD: Final = {
    "=": '; did you mean "=="?',
    "&": '; did you mean "&&"?',
    "|": '; did you mean "||"?',
    "$": '; an expression stands without "${" and "}"',
} | dict.fromkeys("\u2018\u2019\u201c\u201d\u201e\u00ab\u00bb", "; strings stand between ' or \"")
_ESCAPES: Final = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}


@dataclass(frozen=True, slots=True)
class Token:
    """
    @ivar kind: C{int double string name}, the mark itself (C{"=="}), or L{END}.
    @ivar text: as it stands there; of a string its value.
    @ivar at: offset into the text.
    """

    kind: str
    text: str
    at: int

    def __str__(self) -> str:
        return "the end" if self.kind is END else "a string" if self.kind == "string" else f'"{self.text}"'


def tokens(text: str, at: int = 0) -> Iterator[Token]:
    """The tokens of C{text} from offset C{at}; then L{END} for ever."""
    while True:
        match = _TOKEN.match(text, at)
        if match is None:
            break
        kind = match.lastgroup
        start, at = at, match.end()
        if kind == "space":
            continue
        if match["string"] is not None:
            value, at = _string(text, start, at, match["prefix"].lower(), match["quote"])
            yield Token("string", value, start)
        elif match["mark"] is not None:
            yield Token(match["mark"], match["mark"], start)
        else:
            following = text[at : at + 1]
            if kind != "name" and (following in (".", "_") or (following.isascii() and following.isalnum())):
                raise Fault(f'"{match[0]}{following}" is no number', start)
            yield Token(str(kind), match[0], start)
    if at < len(text):
        raise Fault(f"unexpected character {_shown(text[at])}{_INSTEAD.get(text[at], '')}", at)
    while True:
        yield Token(END, "", at)


def _shown(character: str) -> str:
    return f'"{character}"' if character.isprintable() else f"U+{ord(character):04X}"


def _string(text: str, start: int, at: int, prefix: str, quote: str) -> tuple[str, int]:
    """The value of the string whose opening quote ends at C{at}, and where it ends."""
    if "b" in prefix:
        raise Fault("bytes are not in the language; write a string", start)
    raw = prefix == "r"
    if prefix not in ("", "r"):
        raise Fault(f'"{prefix}" cannot stand before a string', start)
    match = (_RAW if raw else _COOKED)[quote].match(text, at)
    if match is None:
        raise Fault(f"the string that begins here has no closing {quote}", start)
    body = text[at : match.end() - len(quote)]
    if not raw and "\\" in body:
        body = _ESCAPE.sub(lambda escape: _unescape(escape, at), body)
    return body, match.end()


def _unescape(match: re.Match[str], at: int) -> str:
    simple, byte, short, long, octal, _ = match.groups()
    if simple is not None:
        return _ESCAPES.get(simple, simple)
    number = int(octal, 8) if octal else int(byte or short or long or "110000", 16)
    if number > 0x10FFFF or 0xD800 <= number < 0xE000:
        what = "is no character" if long or short else "is no escape; for a backslash write two, or a raw string: r'…'"
        raise Fault(f'"{match[0]}" {what}', at + match.start())
    return chr(number)
