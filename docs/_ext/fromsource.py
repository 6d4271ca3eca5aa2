"""
What the documentation takes out of the source when it is built, so that the two cannot part.

C{rules}: the docstring of a module, as it stands::

    ```{rules} protogate.halves
    ```

C{states}: a table of states, state → those that may follow, drawn::

    ```{states} protogate_http.wire1 STATES TRANSITIONS
    ```
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping, Sequence
from importlib import import_module
from typing import Any, ClassVar

from docutils import nodes
from docutils.parsers.rst import Directive


def rules(name: str) -> str:
    """The docstring of a module, without the mark-up that only pydoctor reads."""
    text = inspect.getdoc(import_module(name))
    if not text:
        raise ValueError(f"{name} has no docstring")
    for mark in ("C{", "L{"):
        while mark in text:
            before, _, rest = text.partition(mark)
            text = before + _inner(rest)
    return text


def _inner(rest: str) -> str:
    """What follows an opening brace, without the one that closes it."""
    depth = 1
    for at, character in enumerate(rest):
        depth += (character == "{") - (character == "}")
        if not depth:
            return rest[:at] + rest[at + 1 :]
    raise ValueError(f"never closed: {rest[:40]!r}")


def drawn(names: Sequence[str], table: Mapping[int, Sequence[int]]) -> str:
    """A table of states as text: each state, and an arrow to each that may follow."""
    return "\n".join(_lines(names, table))


def _lines(names: Sequence[str], table: Mapping[int, Sequence[int]]) -> Iterator[str]:
    width = max(map(len, names))
    for state, following in table.items():
        others = [names[other] for other in following if other != state]
        stays = " ↺" if state in following else "  "
        for place, other in enumerate(others or ["(the end)"]):
            last = place == len(others) - 1 or not others
            fork = ("──" if len(others) < 2 else "┬─") if not place else ("└─" if last else "├─")
            label = names[state].ljust(width) + stays + " ─" if not place else " " * (width + 4)
            yield f"{label}{fork}─▶ {other}"


class Rules(Directive):
    """See the module."""

    required_arguments = 1
    has_content = False

    def run(self) -> list[nodes.Node]:
        """docutils."""
        text = rules(self.arguments[0])
        return [nodes.container("", nodes.literal_block(text, text, language="none"), classes=["rules"])]


class States(Directive):
    """See the module."""

    required_arguments = 3
    has_content = False
    option_spec: ClassVar[dict[str, Any]] = {}

    def run(self) -> list[nodes.Node]:
        """docutils."""
        module = import_module(self.arguments[0])
        text = drawn(getattr(module, self.arguments[1]), getattr(module, self.arguments[2]))
        return [nodes.literal_block(text, text, language="none")]


def setup(app: Any) -> dict[str, Any]:
    """Sphinx."""
    app.add_directive("rules", Rules)
    app.add_directive("states", States)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
