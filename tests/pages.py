"""The pages of the documentation: their fenced blocks and their tables."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
PAGES = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "codecs/README.md")),
    *sorted(path for path in DOCS.rglob("*.md") if "_build" not in path.parts),
]
FENCE = re.compile(r"^```([^\s`]*)([^\n`]*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
NAMED = re.compile(r"# ([\w./-]+\.(?:yaml|py|toml|txt))\n")


@dataclass(frozen=True)
class Example:
    """One fenced block."""

    page: Path
    line: int
    language: str
    arguments: str
    text: str

    @property
    def name(self) -> str:
        """The path that its first line names, or empty."""
        match = NAMED.match(self.text)
        return match[1] if match else ""

    def __str__(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"


def examples(page: Path) -> Iterator[Example]:
    """The fenced blocks of a page."""
    text = page.read_text()
    for match in FENCE.finditer(text):
        yield Example(page, text.count("\n", 0, match.start()) + 1, match[1], match[2].strip(), match[3])


ALL = [example for page in PAGES for example in examples(page)]


def of(language: str) -> list[Example]:
    """The blocks in one language."""
    return [example for example in ALL if example.language == language]


def tables(page: Path) -> Iterator[tuple[str, list[list[str]]]]:
    """Each table of a page: the heading above it, and its rows, the first of which has the titles of the columns."""
    heading = ""
    rows: list[list[str]] = []
    for line in [*FENCE.sub("", page.read_text()).splitlines(), ""]:
        if line.startswith("|"):
            rows.append([cell.strip() for cell in line.strip("|").split("|")])
            continue
        if rows:
            yield heading, [rows[0], *rows[2:]]
            rows = []
        if line.startswith("#"):
            heading = line.lstrip("# ").strip()


def table(page: str, *titles: str) -> list[list[str]]:
    """The rows of the one table of a page whose first columns have these titles."""
    (rows,) = [rows[1:] for _, rows in tables(DOCS / page) if rows[0][: len(titles)] == list(titles)]
    return rows


def codes(cell: str) -> list[str]:
    """What stands between backticks in a cell."""
    return re.findall(r"`([^`]+)`", cell)
