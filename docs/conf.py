"""Sphinx, with Markdown.  `make docs` builds; tests/test_docs.py runs the examples."""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "_ext"))

project = "protogate"
author = "the protogate authors"
project_copyright = "2026, the protogate authors"
release = tomllib.loads((Path(__file__).parent.parent / "pyproject.toml").read_text())["project"]["version"]
version = release

extensions = ["myst_parser", "fromsource"]
source_suffix = {".md": "markdown"}
exclude_patterns = ["_build", "_ext"]
myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 3

html_theme = "furo"
html_title = f"protogate {release}"
html_copy_source = False
html_static_path = ["_static"]
html_css_files = ["wide.css"]
pygments_style = "friendly"
nitpicky = True
suppress_warnings: list[str] = []
