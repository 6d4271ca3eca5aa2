"""
The compiled build: that nobody gets it unasked, what it says when it cannot be made, and what could break in it alone.

The second half is skipped where the source is what runs: C{make compiledtests} runs it, with the suites of the seams.
"""

from __future__ import annotations

import ast
import gc
import os
import subprocess
import sys
import tarfile
import weakref
import zipfile
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from compiling import ROOT, compiled_modules
from protogate.config.model import PoolSettings
from protogate.context import Context
from protogate.halves import Serving
from protogate.message import Request
from protogate.release import compiled
from protogate.testing.gateway import MemoryGateway
from protogate.testing.upstream import Expect
from protogate.upstream.link import Gate
from protogate.upstream.pool import Pool
from protogate_http.wire1 import Bad

native = pytest.mark.skipif(not compiled(), reason="of the compiled build")

CONFIG = """
listeners: [{name: web, address: "127.0.0.1:8080"}]
routes: [{value: /, matcherType: prefix, routes: [{targets: [{url: "http://192.0.2.7:80"}]}]}]
"""
GET = b"GET /x HTTP/1.1\r\nHost: a.test\r\n\r\n"
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


# -- the build


def build(target: str, directory: Path, **environ: str) -> subprocess.CompletedProcess[str]:
    """Ask hatchling for a wheel or an sdist."""
    return subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", target, "-d", directory],
        cwd=ROOT, env={**os.environ, **environ}, capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip


def test_nobody_gets_it_unasked(tmp_path: Path) -> None:
    assert build("wheel", tmp_path).returncode == 0
    (wheel,) = tmp_path.glob("*.whl")
    assert wheel.name.endswith("-py3-none-any.whl")
    with zipfile.ZipFile(wheel) as archive:
        assert not [name for name in archive.namelist() if name.endswith((".so", ".pyd", ".c"))]


def test_the_source_distribution_can_build_it(tmp_path: Path) -> None:
    assert build("sdist", tmp_path).returncode == 0
    (path,) = tmp_path.glob("*.tar.gz")
    with tarfile.open(path) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert "hatch_build.py" in names
    assert {name.replace(".", "/") + ".py" for name in compiled_modules()} <= {
        name.removeprefix("codecs/") for name in names
    }
    assert not [name for name in names if name.startswith("build/")]


def test_without_a_compiler_it_says_so_and_what_to_do(tmp_path: Path) -> None:
    done = build("wheel", tmp_path, HATCH_BUILD_HOOK_ENABLE_CUSTOM="true", CC="no-such-cc -O2")
    assert done.returncode != 0
    assert "needs a C compiler (no-such-cc; Debian: apt-get install gcc libc6-dev)" in done.stderr
    assert "Without HATCH_BUILD_HOOK_ENABLE_CUSTOM it is installed uncompiled" in done.stderr
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(("compiler", "status"), [("no-such-cc", 1), (f"'{sys.executable}'", 0)])
def test_what_is_missing_can_be_asked_for(compiler: str, status: int) -> None:
    done = subprocess.run(
        [sys.executable, ROOT / "hatch_build.py"],
        env={**os.environ, "CC": compiler}, capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    if status == 0 and "header files" in done.stderr:
        pytest.skip("no header files of Python here")
    assert (done.returncode, "no-such-cc" in done.stderr) == (status, bool(status))


def test_every_module_of_the_list_is_there() -> None:
    names = compiled_modules()
    assert len(names) == len(set(names)) > 20
    assert all(import_module(name) for name in names)


def traits() -> Iterator[ast.ClassDef]:
    """Every trait of the modules that are compiled."""
    for name in compiled_modules():
        path = name.replace(".", "/") + ".py"
        source = next(each for each in (ROOT / path, ROOT / "codecs" / path) if each.exists())
        for node in ast.walk(ast.parse(source.read_text("utf-8"))):
            if isinstance(node, ast.ClassDef) and any(ast.unparse(each) == "trait" for each in node.decorator_list):
                yield node


def test_no_trait_has_or_sets_what_mypyc_cannot_keep_in_one() -> None:
    # It ends with "ValueError: value is not in list" for a float, whether declared or only set.
    found = list(traits())
    assert found
    for node in found:
        declared = {ast.unparse(each.target): each.annotation for each in node.body if isinstance(each, ast.AnnAssign)}
        assert not [name for name, kind in declared.items() if "float" in ast.unparse(kind)], node.name
        stored = [
            each for each in ast.walk(node) if isinstance(each, ast.Attribute) and isinstance(each.ctx, ast.Store)
        ]
        assert {each.attr for each in stored if ast.unparse(each.value) == "self"} <= set(declared), node.name


# -- what runs


@native
def test_every_process_runs_it(tmp_path: Path) -> None:
    for words in (["-m", "protogate", "--version"], ["-c", "import protogate.cli as c; c.main(['--version'])"]):
        done = subprocess.run(
            [sys.executable, *words], cwd=tmp_path, capture_output=True, text=True, check=True, timeout=60
        )
        assert done.stdout.endswith(" (compiled)\n")


def classes() -> Iterator[type]:
    """Every class of a compiled module."""
    for name in compiled_modules():
        for made in vars(import_module(name)).values():
            if isinstance(made, type) and made.__module__ == name:
                yield made


def is_native(made: type) -> bool:
    """Whether mypyc made it a struct of C."""
    return "__mypyc_attrs__" in vars(made)


@native
def test_no_native_class_lets_a_weak_reference_dangle() -> None:
    # mypyc 2.4 frees an object without clearing its weak references where a base of the interpreter's gave room for
    # them: the next look at one is a crash.
    found = list(classes())
    assert sum(map(is_native, found)) > 40
    assert [made for made in found if is_native(made) and (made.__weakrefoffset__ or made.__dictoffset__)] == []
    with pytest.raises(TypeError, match="cannot create weak reference"):
        weakref.ref(Request(b"GET", b"/"))  # type: ignore[arg-type]


def test_a_weak_reference_to_what_is_no_native_class_ends_with_it() -> None:
    class Mine(Serving):
        """A class of a third party."""

    with MemoryGateway(CONFIG) as gateway:
        pool = Pool(None, Context(gateway.service.wheel), PoolSettings())  # type: ignore[arg-type]
        for make in (lambda: Bad("x"), lambda: Gate(pool, Request(b"GET", b"/"), 0.0), lambda: Mine.__new__(Mine)):
            ended: list[object] = []
            made: Any = make()
            watch = weakref.ref(made, ended.append)
            assert watch() is made
            del made
            assert watch() is None
            assert ended == [watch]


# -- what could break


@pytest.fixture
def gateway() -> Iterator[MemoryGateway]:
    """One with an upstream that answers whatever it is asked."""
    with MemoryGateway(CONFIG) as made:
        made.upstream("192.0.2.7", 80, [Expect(b"\r\n\r\n"), OK] * 100)
        yield made


def test_requests_leave_no_garbage(gateway: MemoryGateway) -> None:
    client = gateway.client()
    for _ in range(5):
        client.send(GET)
        gateway.run()
    gateway.service.counters.snapshot()
    gc.collect()
    before = _counted()
    gc.disable()
    try:
        for _ in range(50):
            client.send(GET)
            gateway.run()
        gateway.records.clear()
        assert gc.collect() == 0
        assert {kind: number for kind, number in _counted().items() if number > before.get(kind, 0)} == {}
    finally:
        gc.enable()
    assert client.received.count(b" 200 ") == 55
    client.close()
    gateway.run()


def _counted() -> dict[type, int]:
    """How many objects of each of our classes there are."""
    ours = set(classes())
    found: dict[type, int] = {}
    for each in gc.get_objects():
        if type(each) in ours:
            found[type(each)] = found.get(type(each), 0) + 1
    return found


@pytest.mark.parametrize("where", ["rewrite", "record"])
@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit, MemoryError, RecursionError, ZeroDivisionError])
def test_what_is_raised_within_an_exchange_harms_no_other(
    gateway: MemoryGateway, kind: type[BaseException], where: str, flush_errors: Any
) -> None:
    other = gateway.client()
    other.send(GET)
    gateway.run()
    plan, raised = gateway.service.plan, []
    before = getattr(plan, where)

    def fails(*arguments: Any) -> Any:
        raised.append(arguments)
        raise kind("on purpose")

    broken = gateway.client()
    object.__setattr__(plan, where, fails)
    try:
        broken.send(GET)
        gateway.run()
    except (KeyboardInterrupt, SystemExit):
        assert not issubclass(kind, Exception)
    finally:
        object.__setattr__(plan, where, before)
    gateway.run()
    assert len(raised) == 1
    other.send(GET)
    gateway.run()
    assert other.received.count(b" 200 ") == 2
    for client in (broken, other):
        client.close()
    gateway.run()
    flush_errors()
