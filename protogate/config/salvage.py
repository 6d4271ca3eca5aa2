"""
What is left of a configuration when its faulty values are taken out: so that the parts which look further (expressions,
rules, modules, codecs) can tell their faults in the same report.

Rules
- Only ever for telling more faults: nothing is served by what is left.
- No fault may follow from what was taken out.  A value without which others are judged wrongly takes them along: a
  module without its stage, a rule without its matcher.
- Lists become shorter, so places are counted back to those of the file.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from typing import Any, Final

from protogate.config.convert import convert
from protogate.config.model import Config
from protogate.errors import ConfigError

Path = tuple[str | int, ...]

ROUNDS: Final = 16
"""How often something may be taken out: what is left of a thing may be nothing without it."""
_NEUTRAL: Final = {"listeners": [{"name": "none", "address": "127.0.0.1:0"}]}
"""For a file that has no listener left."""
_VITAL: Final[dict[str, frozenset[str]]] = {
    "modules": frozenset(("name", "stage", "actionParam")),
    "routes": frozenset(("type", "value", "matcherType")),
}
"""Keys of an entry without which the rest of it would be misunderstood."""


class Salvage:
    """
    @ivar config: what is left, or None when too little is.
    """

    def __init__(self, value: Any, faults: Sequence[ConfigError]) -> None:
        """
        @param value: of the document.  It is not changed.
        @param faults: what is wrong with it; paths from its root.
        """
        self._value = deepcopy(value)
        self._left: dict[int, list[int]] = {}  # id of a list that became shorter -> places that its entries had
        self.config: Config | None = None
        paths = {fault.path for fault in faults}
        for _ in range(ROUNDS if isinstance(value, dict) else 0):
            whole = {self._whole(path) for path in paths} - {()}
            self._take_out(whole)
            self.config, more = convert({**_NEUTRAL, **self._value})
            if self.config is not None:
                break
            paths = {fault.path for fault in more}

    def place(self, path: Path) -> Path:
        """Where in the file something of L{config} stands."""
        value, out = self._value, []
        for step in path:
            places = self._left.get(id(value)) if isinstance(step, int) else None
            out.append(step if places is None else places[step])  # type: ignore[index]
            value = self._inner(value, step)
        return tuple(out)

    @staticmethod
    def _inner(value: Any, step: str | int) -> Any:
        if isinstance(value, list) and isinstance(step, int) and step < len(value):
            return value[step]
        return value.get(step) if isinstance(value, dict) else None

    def _take_out(self, paths: set[Path]) -> None:
        """Take out what stands at each path."""
        # Entries of a list from behind, so that the places of the others stay what they are.
        for path in sorted(paths, key=lambda path: tuple(map(_order, path)), reverse=True):
            *outer, last = path
            value = self._value
            for step in outer:
                value = self._inner(value, step)
            if last in ("upstream", "url") and outer[:1] == ["routes"]:
                value.update(upstream="none", url=None)  # a rule may lead anywhere, but it leads somewhere
            elif isinstance(value, dict):
                value.pop(last, None)
            elif isinstance(value, list) and isinstance(last, int) and last < len(value):
                self._left.setdefault(id(value), list(range(len(value)))).pop(last)
                del value[last]

    def _whole(self, path: Path) -> Path:
        """What has to go because of a fault there: itself, or what is nothing without it."""
        value: Any = self._value
        for at, step in enumerate(path):
            if at == 2 and step in _VITAL.get(str(path[0]), ()):
                return path[:2]
            inner = self._inner(value, step)
            if inner is None and not (isinstance(value, dict) and step in value):
                return path[:at]  # a key that is missing
            value = inner
        return path


def _order(step: str | int) -> tuple[int, str]:
    return (step, "") if isinstance(step, int) else (-1, step)
