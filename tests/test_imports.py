"""
Who may import whom.

- The core never imports a codec; a codec knows the seams and the model, nothing else of the core.
- Inside the core imports run downward only, see C{LAYERS}; there are no circles.
- C{exchange} is handed its pipeline's modules, its router and its upstreams: it imports none of their folders.

What stands under C{if TYPE_CHECKING:} is for type checkers and may point anywhere.  An import inside a function counts.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

pytestmark = pytest.mark.unwatched

ROOT = Path(__file__).parent.parent
CORE = ROOT / "protogate"
CODECS = ROOT / "codecs"

LAYERS: list[tuple[str, ...]] = [
    # lowest first; a module may import what is on its own line or above it
    ("errors", "interfaces", "uri", "cohort", "wheel", "signals", "memory", "quiet", "reactor"),
    ("context", "message", "exchange.ledger"),
    # how texts of a configuration are read, shown, and guessed at: whoever builds something of one may ask them
    ("config.scalar", "config.nearest", "config.stamp", "config.forgiven"),
    ("config.address", "config.field", "config.health"),
    (
        "body",
        "promise",
        "config.words",
        "config.discovery",
        "config.overload",
        "config.upstream",
        "config.model",
        "config.faults",
        "plugins",
        "reactor.best",
        "release",
    ),
    ("config.units", "config.watch"),
    ("tls",),
    ("proxyprotocol",),
    ("halves", "clocks", "codings", "coded", "connection", "pings", "expression"),
    ("ordered",),
    ("exchange",),
    ("observe",),
    # what is learnt of how attempts go: modules count by it, too
    ("upstream.outcome", "upstream.seen", "upstream.window", "upstream.breaker", "upstream.door"),
    ("identity",),
    ("caching",),
    ("governance",),
    ("overload",),
    ("routing",),
    ("upstream",),
    ("config",),
    ("discovery",),
    ("downstream",),
    ("process.notify", "process.activation", "admin"),
    ("securing", "codecs"),
    ("build",),
    ("explain", "losses"),
    ("loading", "renewal"),
    ("service",),
    ("process",),
    ("tap", "cli", "commands", "demo", "testing", "__main__", "process.resume"),
]

CODEC_MAY: set[str] = {
    f"protogate.{name}"
    for name in (
        "interfaces",
        "message",
        "body",
        "codings",
        "coded",
        "halves",
        "clocks",
        "connection",
        "pings",
        "errors",
        "config.model",
    )
} | {f"protogate.ordered.{name}" for name in ("client", "fault", "input", "link", "server")}
"""What a codec may import of the core at run time."""


def name_of(path: Path, root: Path) -> str:
    """Dotted name of a source file below a source root."""
    parts = path.relative_to(root).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imports(tree: ast.AST) -> Iterator[str]:
    """Dotted names imported at run time; for C{from a import b} both a and a.b, as b may be a module."""
    if isinstance(tree, ast.If) and ast.unparse(tree.test) in {"TYPE_CHECKING", "typing.TYPE_CHECKING"}:
        for node in tree.orelse:
            yield from imports(node)
    elif isinstance(tree, ast.Import):
        yield from (alias.name for alias in tree.names)
    elif isinstance(tree, ast.ImportFrom):
        assert tree.level == 0, "relative imports hide where a name comes from"
        assert tree.module is not None
        yield tree.module
        yield from (f"{tree.module}.{alias.name}" for alias in tree.names)
    else:
        for child in ast.iter_child_nodes(tree):
            yield from imports(child)


@cache
def graph(root: Path, package: str) -> dict[str, set[str]]:
    """Module → modules of C{protogate} or of C{package} that it imports."""
    files = {name_of(path, root): path for path in sorted((root / package).rglob("*.py"))}
    known = set(files) | {name_of(path, ROOT) for path in CORE.rglob("*.py")}
    return {name: set(imports(ast.parse(path.read_text()))) & known - {name} for name, path in files.items()}


CODEC_PACKAGES = sorted(path.name for path in CODECS.iterdir() if (path / "__init__.py").exists())
MODULES = [name_of(path, ROOT) for path in sorted(CORE.rglob("*.py"))]
PACKAGES = {name.rpartition(".")[0] for name in MODULES}


def imported(module: str) -> set[str]:
    """What a module of the core imports of it; whoever only collects tests has nothing read."""
    return graph(ROOT, "protogate")[module]


def is_in(module: str, name: str) -> bool:
    """Whether a module is C{protogate.name} or below it."""
    return f"{module}.".startswith(f"protogate.{name}.")


def layer(module: str) -> int:
    """Index of the layer; the longest name that fits decides."""
    fits = [(len(name), index) for index, names in enumerate(LAYERS) for name in names if is_in(module, name)]
    assert fits, f"{module} has no place in LAYERS: decide who may import it"
    return max(fits)[1]


def test_the_walker_sees_what_runs_and_nothing_else() -> None:
    source = """
from __future__ import annotations
from typing import TYPE_CHECKING
import a.b
if TYPE_CHECKING:
    import unseen
else:
    import seen
def function():
    from c import d
try:
    import e
except ImportError:
    pass
"""
    found = set(imports(ast.parse(source)))
    assert found >= {"a.b", "seen", "c", "c.d", "e"}
    assert "unseen" not in found


@pytest.mark.parametrize("path", sorted(CORE.rglob("*.py")), ids=lambda path: name_of(path, ROOT))
def test_the_core_never_imports_a_codec(path: Path) -> None:
    assert not {name.partition(".")[0] for name in imports(ast.parse(path.read_text()))} & set(CODEC_PACKAGES)


@pytest.mark.parametrize("module", [module for module in MODULES if module != "protogate"])
def test_imports_of_the_core_run_downward(module: str) -> None:
    above = {other for other in imported(module) - PACKAGES if layer(other) > layer(module)}
    assert not above, f"{module} imports {sorted(above)}, which build on it"


@pytest.mark.parametrize("module", [module for module in MODULES if is_in(module, "exchange")])
def test_the_exchange_is_handed_what_it_uses(module: str) -> None:
    others = {
        other
        for other in imported(module)
        if any(is_in(other, name) for name in ("governance", "routing", "upstream", "downstream", "build", "service"))
    }
    assert not others


def test_no_circles() -> None:
    try:
        TopologicalSorter(graph(ROOT, "protogate")).prepare()
    except CycleError as error:
        pytest.fail(" → ".join(error.args[1]))


@pytest.mark.parametrize("package", CODEC_PACKAGES)
def test_a_codec_imports_only_the_seams_and_the_model(package: str) -> None:
    for module, names in graph(CODECS, package).items():
        core = {name for name in names if name.startswith("protogate.")}
        assert core <= CODEC_MAY, f"{module} imports {sorted(core - CODEC_MAY)}"


@pytest.mark.parametrize("package", CODEC_PACKAGES)
def test_a_codec_has_no_circles(package: str) -> None:
    try:
        TopologicalSorter(graph(CODECS, package)).prepare()
    except CycleError as error:
        pytest.fail(" → ".join(error.args[1]))


def test_packages_do_nothing_when_imported() -> None:
    for path in CORE.rglob("__init__.py"):
        if "testing" not in path.relative_to(CORE).parts:  # its names are public, and it imports them
            assert all(isinstance(node, ast.Expr) for node in ast.parse(path.read_text()).body), path


def test_every_file_of_the_tests_has_a_name_of_its_own() -> None:
    """They find each other by name, whatever folder they are in."""
    names = Counter(path.name for path in (ROOT / "tests").rglob("*.py") if path.name != "conftest.py")
    assert [name for name, count in names.items() if count > 1] == []
