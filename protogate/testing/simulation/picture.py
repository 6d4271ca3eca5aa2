"""
Drawings of a tale, as SVG: who was asked how much, what the gateway thought of each endpoint, latencies, errors.

    Path("a.svg").write_text(picture(tale, "An endpoint dies"))

Rules
- The same tale gives the same text, so drawings are kept in the repository, and a test sees that they are still true.
- One picture has one axis of time; what happened in the world is marked on it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from html import escape
from itertools import pairwise
from math import ceil
from typing import Final

from protogate.testing.simulation.clients import Ask
from protogate.testing.simulation.story import Become, Event, Pause
from protogate.testing.simulation.tale import Tale, percentile

WIDTH: Final = 760
LEFT: Final = 64
RIGHT: Final = 96
GAP: Final = 34
COLOURS: Final = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#8a7a00", "#666666")
"""Of endpoints; told apart by those who do not see all colours (Okabe and Ito)."""
GOOD, BAD, LESS = "#b9dfc4", "#d55e00", "#f3cf8a"
INK, FAINT = "#333333", "#dddddd"
Points = Sequence[tuple[float, float]]


class Sheet:
    """
    An SVG with panels below each other, on one axis of time.

    @ivar seconds: that the axis shows.
    """

    def __init__(self, title: str, seconds: float) -> None:
        self.seconds = seconds
        self._title = title
        self._parts: list[str] = []
        self._top = 48.0
        self._marks: list[tuple[float, str]] = []

    def mark(self, at: float, text: str) -> None:
        """Something happened."""
        self._marks.append((at, text))

    def x(self, at: float) -> float:
        """Where a moment is."""
        return LEFT + (WIDTH - LEFT - RIGHT) * min(max(at, 0.0), self.seconds) / self.seconds

    def text(self, x: float, y: float, text: str, anchor: str = "start", colour: str = INK, size: int = 11) -> None:
        """Some words."""
        self._parts.append(
            f'<text x="{x:.1f}" y="{y:.1f}" fill="{colour}" font-size="{size}" text-anchor="{anchor}">'
            f"{escape(text)}</text>"
        )

    def box(self, x: float, y: float, width: float, height: float, colour: str) -> None:
        """A rectangle."""
        if width > 0 and height > 0:
            self._parts.append(
                f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" fill="{colour}"/>'
            )

    def line(self, points: Points, colour: str, dash: str = "", width: float = 1.6) -> None:
        """A line through these, in pixels."""
        if points:
            path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
            dashed = f' stroke-dasharray="{dash}"' if dash else ""
            self._parts.append(
                f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="{width:g}"{dashed}/>'
            )

    def panel(self, title: str, height: float, most: float, unit: str = "") -> Callable[[float], float]:
        """Begin a panel whose values go from 0 to C{most}; gives where a value is."""
        top = self._top + GAP
        self._top = top + height
        self.text(LEFT, top - 9, title, size=12)
        for part in (0.0, 0.5, 1.0):
            y = top + height * (1 - part)
            self.line(((LEFT, y), (WIDTH - RIGHT, y)), FAINT, width=1)
            self.text(LEFT - 6, y + 4, f"{most * part:.4g}{unit}", "end")
        return lambda value: top + height * (1 - min(value / most, 1.0))

    def rows(self, title: str, names: Sequence[str]) -> Mapping[str, float]:
        """Begin a panel with a row of 14 pixels for each of these; gives where each begins."""
        top = self._top + GAP
        self._top = top + 18 * len(names)
        self.text(LEFT, top - 9, title, size=12)
        for index, name in enumerate(names):
            self.text(LEFT - 6, top + 18 * index + 11, name, "end")
        return {name: top + 18 * index for index, name in enumerate(names)}

    def key(self, entries: Iterable[tuple[str, str]], bottom: float | None = None) -> None:
        """What colours mean, right of the panel that ends here."""
        each = list(entries)
        y = (self._top if bottom is None else bottom) - 15 * len(each) + 6
        for name, colour in each:
            self.box(WIDTH - RIGHT + 10, y, 9, 9, colour)
            self.text(WIDTH - RIGHT + 24, y + 9, name)
            y += 15

    def render(self) -> str:
        """The text of it."""
        bottom = self._top
        parts, self._parts = self._parts, []
        self.text(LEFT, 22, self._title, size=14)
        last = -1e9
        row = 0
        for at, text in sorted(self._marks):
            x = self.x(at)
            row = (row + 1) % 2 if x - last < 150 else 0
            last = x
            self.line(((x, 54), (x, bottom)), "#888888", "3 3", 1)
            self.text(min(x + 3, WIDTH - 150), 42 + 12 * row, text, colour="#555555", size=10)
        step = next(each for each in (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000) if self.seconds / each <= 10)
        for tick in range(0, int(self.seconds) + 1, step):
            self.text(self.x(tick), bottom + 16, f"{tick} s", "middle")
        height = ceil(bottom + 26)
        head = (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" '
            'font-family="system-ui, sans-serif" role="img">'
        )
        lines = [
            head,
            f"<title>{escape(self._title)}</title>",
            f'<rect width="{WIDTH}" height="{height}" fill="#fff"/>',
        ]
        return "\n".join([*lines, *parts, *self._parts, "</svg>", ""])


def picture(tale: Tale, title: str, *, step: float = 1.0) -> str:
    """
    A drawing of a tale.

    @param step: seconds that are counted together.
    """
    seconds = tale.story.seconds
    sheet = Sheet(title, seconds)
    for event in tale.story.events:
        if event.at < seconds:
            sheet.mark(event.at, _short(event))
    names = [server.name for server in tale.story.servers]
    colours = {name: COLOURS[index % len(COLOURS)] for index, name in enumerate(names)}
    _served(tale, sheet, colours, step)
    _judged(tale, sheet, names)
    _latency(tale, sheet, step)
    _errors(tale, sheet, step)
    return sheet.render()


def _short(event: Event) -> str:
    if isinstance(event, Become):
        words = [
            value.value if hasattr(value, "value") else f"{name} {value:g}" if isinstance(value, int | float) else name
            for name, value in event.changes.items()
        ]
        return f"{event.server}: {', '.join(words)}"
    if isinstance(event, Pause):
        return f"{event.server} pauses"
    return repr(event).partition(": ")[2]


def _nice(most: float) -> float:
    """A round number that is not less."""
    unit = 1.0
    while most > unit * 10:
        unit *= 10
    while 0 < most <= unit:
        unit /= 10
    return next((unit * each for each in (2, 4, 6, 8, 10) if unit * each >= most), unit)


def _served(tale: Tale, sheet: Sheet, colours: Mapping[str, str], step: float) -> None:
    """Requests per second at each server, upon each other."""
    counts = Counter((int(each.at / step), each.server) for each in tale.served(end=sheet.seconds))
    totals = Counter[int]()
    for (bucket, _), number in counts.items():
        totals[bucket] += number
    where = sheet.panel("requests per second, by endpoint", 120, _nice(max(totals.values(), default=1) / step))
    for bucket in range(ceil(sheet.seconds / step)):
        below = 0.0
        left, right = sheet.x(bucket * step), sheet.x((bucket + 1) * step)
        for name, colour in colours.items():
            value = below + counts[bucket, name] / step
            sheet.box(left, where(value), right - left - 0.6, where(below) - where(value), colour)
            below = value
    sheet.key(colours.items())


def _judged(tale: Tale, sheet: Sheet, names: Sequence[str]) -> None:
    """What the gateway left to each; and the breaker of the whole upstream, where there is one."""
    breaker = _breaker(tale)
    rows = sheet.rows("what the gateway gives each endpoint", [*names, *(["breaker"] if breaker else [])])
    for name, y in rows.items():
        its = [(each.at, each.share) for each in tale.judged if each.server == name] if name in names else breaker
        for (begin, share), (end, _) in pairwise([(0.0, 1.0), *its, (sheet.seconds, 0.0)]):
            colour = GOOD if share >= 1 else BAD if share <= 0 else LESS
            sheet.box(sheet.x(begin), y, sheet.x(end) - sheet.x(begin), 14, colour)
    sheet.key((("its share", GOOD), ("less", LESS), ("nothing", BAD)))


def _breaker(tale: Tale) -> list[tuple[float, float]]:
    """When an upstream's own breaker opened, let probes through, and closed; to half a second."""
    if any("circuitBreaker" in each.by for each in tale.judged):
        return []  # of endpoints
    # Of what happened within one look the last: what is probed may open at once, what is open stays so for longer.
    states = {"breaker_probing": 0.5, "breaker_opened": 0.0, "breaker_closed": 1.0}
    found: dict[float, float] = {}
    for event, state in states.items():
        found.update(
            (at, state) for at, scope, its, _ in tale.counted if its == event and scope.startswith("upstream ")
        )
    return sorted(found.items())


def _latency(tale: Tale, sheet: Sheet, step: float) -> None:
    """Percentiles of what went well."""
    buckets: dict[int, list[float]] = {}
    for ask in tale.asked(end=sheet.seconds):
        if ask.well:
            buckets.setdefault(int(ask.began / step), []).append(ask.latency * 1000)
    lines = ((50, "median", COLOURS[0]), (99, "99th", COLOURS[5]))
    drawn = {
        percent: [(at, percentile(each, percent)) for at, each in sorted(buckets.items())] for percent, _, _ in lines
    }
    most = max((value for _, value in drawn[99]), default=1.0)
    where = sheet.panel("latency of answers that were well", 90, _nice(most), " ms")
    for percent, _, colour in lines:
        points: list[tuple[float, float]] = []
        last = -1
        for at, value in drawn[percent]:
            if at != last + 1:  # nothing went well in between
                sheet.line(points, colour)
                points = []
            points.append((sheet.x((at + 0.5) * step), where(value)))
            last = at
        sheet.line(points, colour)
    sheet.key((name, colour) for _, name, colour in lines)


def _errors(tale: Tale, sheet: Sheet, step: float) -> None:
    """What clients did not get."""
    kinds: tuple[tuple[str, str, Callable[[Ask], bool]], ...] = (
        ("4xx", "#56b4e9", lambda ask: ask.whole and 400 <= ask.status < 500),
        ("5xx", "#d55e00", lambda ask: ask.whole and ask.status >= 500),
        ("left", "#e69f00", lambda ask: ask.left),
        ("broken", "#333333", lambda ask: not ask.whole and not ask.left),
    )
    counts = Counter[tuple[int, str]]()
    totals = Counter[int]()
    for ask in tale.asked(end=sheet.seconds):
        kind = next((name for name, _, holds in kinds if holds(ask)), None)
        if kind is not None:
            counts[int(ask.began / step), kind] += 1
            totals[int(ask.began / step)] += 1
    where = sheet.panel("errors per second", 60, _nice(max(totals.values(), default=1) / step))
    for bucket in totals:
        below = 0.0
        left, right = sheet.x(bucket * step), sheet.x((bucket + 1) * step)
        for name, colour, _ in kinds:
            value = below + counts[bucket, name] / step
            sheet.box(left, where(value), right - left - 0.6, where(below) - where(value), colour)
            below = value
    sheet.key((name, colour) for name, colour, _ in kinds)
