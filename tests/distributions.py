"""Distributions of other people, which the examples stand for: installed where nothing but a test sees them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

EXAMPLES = Path(__file__).parent.parent / "examples"


def install(name: str, site: Path) -> Path:
    """Install one of the examples into a directory of its own, as C{pip install} does; needs no network."""
    quiet = ["--quiet", "--disable-pip-version-check", "--no-input", "--no-compile"]
    offline = ["--no-index", "--no-deps", "--no-build-isolation"]
    words = [sys.executable, "-m", "pip", "install", *quiet, *offline, "--target", str(site), str(EXAMPLES / name)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return site
