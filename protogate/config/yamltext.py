"""
YAML text → events → values.  libyaml tells the events; what scalars mean is ours (YAML 1.2).

Each event is fetched by a call of its own, so that another thread gets its turn between any two of them: a large file
that is read in a thread does not hold up the event loop.
"""

from __future__ import annotations

from typing import Any, Final

import yaml

from protogate.config import scalar
from protogate.config.builder import Broken, Builder, Position

Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

_SENTENCES: Final = (
    ("mapping values are not allowed", 'unexpected ": "; is the line above complete, or does this text need quotes?'),
    ("block sequence entries are not allowed", 'unexpected "- "; a list starts on a line of its own'),
    ("sequence entries are not allowed", 'unexpected "- "; a list starts on a line of its own'),
    ("could not find expected ':'", 'expected ":" after the key of line {context}'),
    ("expected ',' or ']'", 'expected "," or "]": the list that begins in line {context} is not closed'),
    (
        "did not find expected ',' or '}'",
        'expected "," or "}}": the mapping that begins in line {context} is not closed',
    ),
    ("expected ',' or '}'", 'expected "," or "}}": the mapping that begins in line {context} is not closed'),
    ("did not find expected key", "expected a key: the indentation does not fit, or text needs quotes"),
    (
        "did not find expected '-' indicator",
        'the indentation does not fit the list that begins in line {context}: expected "- "',
    ),
    ("expected <block end>", "the indentation does not fit the lines above, or text needs quotes"),
    ("unknown escape character", "this escape is not known; write \\\\ for a backslash, or use single quotes"),
    ("invalid Unicode character escape", "this escape is no character; write the character itself"),
    ("tab character", "a tab is used for indentation; use spaces"),
    ("alphabetic or numeric character", "expected a name after * or &; text that begins with one of them needs quotes"),
    ("maximum nesting depth", "too many levels deep"),
    ("undefined tag handle", "tags (!) are not used here; text that begins with ! needs quotes"),
    ("<document start>", "unexpected text: the indentation does not fit the lines above, or text needs quotes"),
)


def read(text: str, builder: Builder) -> None:
    """Put the one document of C{text} into C{builder}.  @raise Broken: see there."""
    try:
        _Reader(Loader(text), builder).run()
    except yaml.MarkedYAMLError as error:
        raise _broken(error, text) from None


class _Reader:
    """@ivar documents: how many have begun."""

    def __init__(self, loader: Any, builder: Builder) -> None:
        self._next = loader.get_event
        self._builder = builder
        builder.locate = _at

    def run(self) -> None:
        """Everything up to the end of the stream."""
        builder, fetch = self._builder, self._next
        documents = 0
        while True:
            event = fetch()
            kind = type(event)
            if kind is yaml.ScalarEvent:
                self._scalar(event)
            elif kind is yaml.MappingStartEvent:
                self._open(event, {})
            elif kind is yaml.SequenceStartEvent:
                self._open(event, [])
            elif kind is yaml.MappingEndEvent or kind is yaml.SequenceEndEvent:
                builder.close()
            elif kind is yaml.AliasEvent:
                self._alias(event)
            elif kind is yaml.DocumentStartEvent:
                documents += 1
                if documents > 1:
                    raise builder.broken("a second document begins here; a file is one document", event)
            elif kind is yaml.StreamEndEvent:
                break
        if builder.root is None:
            raise Broken("the file is empty; it needs listeners at least", (1, 1))

    def _scalar(self, event: Any) -> None:
        builder = self._builder
        value: Any = event.value
        if event.tag is not None:
            self._tag(event)
        elif event.implicit[0]:
            try:
                value = scalar.plain(value)
            except ValueError as error:
                builder.fault(str(error), event)
        elif scalar.halves(value):  # libyaml refuses them itself
            builder.fault("this escape is no character; write the character itself", event)
        if not builder.wants_key:
            builder.scalar(value, event, event.anchor)
            return
        if event.anchor is not None:
            builder.fault("an anchor has no place at a key", event)
        if type(value) is not str:
            builder.fault(f"keys are strings: write {scalar.shown(event.value)} in quotes", event)
            builder.bad_key()
        elif value == "<<" and event.implicit[0]:
            builder.fault("YAML 1.2 has no merge keys (<<); write the keys out, or use an alias as a value", event)
            builder.bad_key()
        else:
            builder.key(value, event)

    def _open(self, event: Any, value: list[Any] | dict[str, Any]) -> None:
        if event.tag is not None:
            self._tag(event)
        if self._builder.wants_key:
            self._builder.fault("keys are strings, not lists or mappings", event)
        self._builder.open(value, event, event.anchor)

    def _alias(self, event: Any) -> None:
        if self._builder.wants_key:
            self._builder.fault("an alias has no place at a key", event)
            self._builder.bad_key()
        else:
            self._builder.alias(event.anchor, event)

    def _tag(self, event: Any) -> None:
        tag = event.tag.replace("tag:yaml.org,2002:", "!!")
        self._builder.fault(f"tags are not used here, remove {scalar.shorten(tag)}; quotes make text", event)


def _at(event: Any) -> Position:
    mark = event.start_mark
    return mark.line + 1, mark.column + 1


def _broken(error: yaml.MarkedYAMLError, text: str) -> Broken:
    """libyaml's complaint in our words; in its own where we have none."""
    problem = error.problem or "this is no YAML"
    mark = error.problem_mark or error.context_mark
    context = error.context_mark or mark
    position = (mark.line + 1, mark.column + 1) if mark else (1, 1)
    opened = context.line + 1 if context else 1
    if "cannot start any token" in problem:
        lines = text.split("\n")
        found = lines[position[0] - 1][position[1] - 1 : position[1]] if position[0] <= len(lines) else ""
        if found == "\t":
            return Broken("a tab is used for indentation; use spaces", position)
        return Broken(f"text that begins with {found} needs quotes", position)
    if "unexpected end of stream" in problem and context:
        return Broken("this quote is never closed", (context.line + 1, context.column + 1))
    for words, sentence in _SENTENCES:
        if words in problem:
            return Broken(sentence.format(context=opened), position)
    return Broken(f"this is no YAML: {problem}", position)
