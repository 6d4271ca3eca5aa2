"""
What the benches found, as Markdown: one table for one question, and a page that keeps them between marks.

Rules
- A figure stands with its spread, and beside what it is compared with.
- Of a page only what stands between two marks is replaced; the prose around them is people's.
"""

from __future__ import annotations

import os
import platform
import re
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from processes import binary, cells, output

BASES: Final = ("nginx", "envoy")
"""What others are divided by, as far as they take part."""


@dataclass(frozen=True, slots=True)
class Table:
    """
    @ivar name: of the marks in the page.
    @ivar title: the question.
    @ivar rows: the first names the columns.
    @ivar note: what the reader must know of these figures.
    """

    name: str
    title: str
    rows: Sequence[tuple[object, ...]]
    note: str = ""

    def text(self) -> str:
        """Without the title."""
        return cells(*self.rows) + (f"\n{self.note}\n" if self.note else "")


def spread(values: Sequence[float], form: str = ",.1f") -> str:
    """Median, least and most."""
    return f"{statistics.median(values):{form}} ({min(values):{form}}–{max(values):{form}})"


def ratios(found: Mapping[str, Sequence[float]], bases: Sequence[str]) -> Callable[[str], tuple[str, ...]]:
    """
    How many times the median of each base a median is.

    @return: for the name of a row, one cell for each base.
    """
    middles = {name: statistics.median(values) for name, values in found.items()}
    return lambda name: tuple(f"{middles[name] / middles[base]:.2f}" for base in bases)


def bases(names: Sequence[str]) -> list[str]:
    """Which of L{BASES} take part; the first of all when none does."""
    return [base for base in BASES if base in names] or list(names[:1])


def machine() -> str:
    """What the figures of a page were measured on, in a paragraph."""
    model = re.search(r"^model name\s*: (.*)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    python = f"{platform.python_implementation()} {platform.python_version()}"
    asked = {
        "nginx": ("nginx", "-v"),
        "HAProxy": ("haproxy", "-v"),
        "Envoy": ("envoy", "--version"),
        "Caddy": ("caddy", "version"),
    }
    versions = []
    for title, (name, option) in asked.items():
        if binary(name):
            version = re.search(r"\d+\.\d+\.\d+", output(binary(name) or name, option))
            versions.append(f"{title} {version[0] if version else '?'}")
    cpu = model[1].strip() if model else platform.machine()
    return f"{os.cpu_count()} × {cpu}, Linux {platform.release()}; {', '.join([python, *versions])}."


def mark(name: str) -> tuple[str, str]:
    """Begin and end of a part of a page."""
    return f"<!-- begin {name} -->", f"<!-- end {name} -->"


def write(path: Path, parts: Mapping[str, str]) -> None:
    """
    Replace the parts of a page, by the names of their marks.

    @raise SystemExit: a mark is missing; then nothing is written.
    """
    text = path.read_text(encoding="utf-8")
    for name, new in parts.items():
        begin, end = mark(name)
        before, found, rest = text.partition(begin)
        _, ended, after = rest.partition(end)
        if not found or not ended:
            raise SystemExit(f"{path} has no {begin} … {end}")
        text = f"{before}{begin}\n\n{new.strip()}\n\n{end}{after}"
    new_file = path.with_suffix(".new")
    new_file.write_text(text, encoding="utf-8")
    new_file.replace(path)
