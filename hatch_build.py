"""
The optional compiled wheel: the modules of the hot path as extension modules, made by mypyc.

    HATCH_BUILD_HOOK_ENABLE_CUSTOM=true pip install .
    python hatch_build.py       says what is missing for that, with status 1 if anything is

- Off unless that variable asks for it, and never for an editable install, whose source would not be what runs.
- Which modules: C{modules} of this hook in C{pyproject.toml}, and nowhere else.
- Nothing is written but below C{build/mypyc}, which is kept: a second build compiles only what has changed.
- C{MYPYC_OPT_LEVEL=g} in the environment has the C compiler use C{-Og} in place of C{-O3}: it takes two fifths of the
  time, and what it makes does the same, only slower.
- Every C{.py} goes into the wheel as always.  Python prefers an extension module that stands beside it; the source is
  what a traceback shows.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import sysconfig
from pathlib import Path
from typing import Any, Final

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

WORK: Final = Path("build", "mypyc")
LEVEL: Final = os.environ.get("MYPYC_OPT_LEVEL") or "3"
MADE: Final = WORK / f"O{LEVEL}"
GROUP: Final = "protogate"
"""All modules share one library, C{protogate__mypyc}: they call each other without passing through the interpreter."""


class CompiledBuildHook(BuildHookInterface[Any]):
    """What hatchling calls, before it packs the wheel."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """
        Compile, and have the wheel take what came of it.

        @param version: C{"standard"} or C{"editable"}.
        @raise RuntimeError: there is no compiler, no header file of Python, or a module cannot be compiled.
        """
        if version == "editable":
            self.app.display_warning("an editable install runs the source: nothing is compiled")
            return
        root = Path(self.root)
        with contextlib.chdir(root):
            if lack := missing():
                raise RuntimeError(f"{lack}. Without HATCH_BUILD_HOOK_ENABLE_CUSTOM it is installed uncompiled.")
            made = compiled([str(name) for name in self.config["modules"]])
        build_data["pure_python"] = False
        build_data["infer_tag"] = True
        build_data["force_include"].update({str(root / path): name for name, path in made.items()})


def missing() -> str:
    """What must be installed first, or nothing; asked before minutes are spent."""
    program, *_ = shlex.split(os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc")
    header = Path(sysconfig.get_path("include"), "Python.h")
    lacks = []
    if os.name == "posix" and shutil.which(program) is None:  # elsewhere setuptools knows where to look
        lacks.append(f"a C compiler ({program}; Debian: apt-get install gcc libc6-dev)")
    if not header.exists():
        lacks.append(f"the header files of Python ({header}; Debian: apt-get install python3-dev)")
    return f"the compiled build of protogate needs {' and '.join(lacks)}" if lacks else ""


def compiled(modules: list[str]) -> dict[str, Path]:
    """
    Compile modules, given as paths below the working directory.

    @return: the library and a small extension module for each: path in the wheel to the file.
    @raise RuntimeError: one does not pass mypy, or uses what mypyc cannot compile; it is printed which.
    """
    from mypyc.build import mypycify  # noqa: PLC0415 - they are there only when the hook is on
    from setuptools import Distribution  # noqa: PLC0415

    options = ["--config-file", "pyproject.toml", "--cache-dir", str(WORK / "mypy"), *modules]
    try:
        extensions = mypycify(
            options, opt_level=LEVEL, debug_level="0", group_name=GROUP, target_dir=str(WORK / "source")
        )
        if os.name == "posix":
            # Who may be replaced by a symbol of others can be called, but not inlined.  What a compiler says of what
            # mypyc wrote depends on how it optimizes, and is no reason to have nothing.
            for extension in extensions:
                extension.extra_compile_args = [*extension.extra_compile_args, "-fvisibility=hidden", "-Wno-error"]
        build = Distribution({"name": GROUP, "ext_modules": extensions}).get_command_obj("build_ext")
        build.build_lib, build.build_temp = str(MADE / "lib"), str(MADE / "objects")
        build.ensure_finalized()
        build.run()
    except SystemExit as error:  # so mypyc ends
        raise RuntimeError(f"mypyc: {error}") from error
    names = [build.get_ext_filename(build.get_ext_fullname(extension.name)) for extension in build.extensions]
    return {Path(name).as_posix(): MADE / "lib" / name for name in names}


if __name__ == "__main__":
    raise SystemExit(missing() or 0)
