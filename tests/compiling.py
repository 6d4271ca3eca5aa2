"""What of this package is compiled: by the settings of the build, and as it is installed here."""

from __future__ import annotations

import tomllib
from importlib import import_module
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

ROOT = Path(__file__).parent.parent


def compiled_modules() -> list[str]:
    """Names of the modules that a compiled wheel has as extension modules."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    paths: list[str] = settings["tool"]["hatch"]["build"]["targets"]["wheel"]["hooks"]["custom"]["modules"]
    return [path.removeprefix("codecs/").removesuffix(".py").replace("/", ".") for path in paths]


def is_compiled(name: str) -> bool:
    """Whether the module that is imported here is an extension module."""
    return str(import_module(name).__file__).endswith(tuple(EXTENSION_SUFFIXES))
