"""Distributions of other people, which the examples stand for: installed where nothing but a test sees them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from pages import examples

EXAMPLES = Path(__file__).parent.parent / "examples"


def written(page: Path, home: Path) -> dict[str, str]:
    """
    Put the files that a page lists into a directory, as its reader would.

    @return: each file by its path in there; the line that names it is no part of it.
    """
    found = {example.name: example.text.partition("\n")[2] for example in examples(page) if example.name}
    for name, text in found.items():
        path = home / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return found


def install(name: str | Path, site: Path) -> Path:
    """
    Install a distribution into a directory of its own, as C{pip install} does; needs no network.

    @param name: one of the examples, or where another one lies.
    """
    quiet = ["--quiet", "--disable-pip-version-check", "--no-input", "--no-compile"]
    offline = ["--no-index", "--no-deps", "--no-build-isolation"]
    words = [sys.executable, "-m", "pip", "install", *quiet, *offline, "--target", str(site), str(EXAMPLES / name)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return site
