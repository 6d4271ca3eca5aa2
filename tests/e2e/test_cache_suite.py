"""
cache, judged by a suite of others: http-cache-tests (https://cache-tests.fyi), which plays both ends.

npm installs it into C{build/npm}, once.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from gateways import ROOT, config, start
from neighbours import Neighbours, free_port, need

DIFFERS = {
    # RFC 9111, 5.1: an Age that is none is ignored, and of several the first counts; the suite wants them to be stale.
    *(f"age-parse-{name}" for name in ("dup-0", "dup-0-twoline", "dup-old", "float", "negative", "nonnumeric")),
    *(f"age-parse-{name}" for name in ("numeric-parameter", "parameter", "prefix-twoline")),
    # It takes an answer of the gateway's own, 502, for one that was kept.
    *(f"stale-close-{name}" for name in ("must-revalidate", "no-cache", "proxy-revalidate", "s-maxage=2")),
    # What sets a cookie is not kept.
    *("headers-store-Set-Cookie", "304-etag-update-response-Set-Cookie"),
    # The codec refuses an answer with a broken Transfer-Encoding.
    "headers-store-Transfer-Encoding",
    # A 304 about another entity tag: what is kept is given once more, and then forgotten.
    "304-etag-update-response-ETag",
}
"""Required tests that fail, and why."""

LIST = """
import suites from './tests/index.mjs'
const all = suites.flatMap(suite => suite.tests).filter(test => !test.browser_only)
console.log(JSON.stringify(all.filter(test => !test.kind || test.kind === 'required').map(test => test.id)))
"""


SUITE = "http-cache-tests@0.4.5"


@pytest.fixture(scope="module")
def folder() -> Path:
    """Where the suite is."""
    prefix = ROOT / "build" / "npm"
    found = prefix / "node_modules" / SUITE.partition("@")[0]
    if not found.exists():
        fresh = prefix.with_name(f"npm-{os.getpid()}")  # what breaks off leaves nothing that looks as if it were whole
        words = [need("npm"), "install", "--ignore-scripts", "--no-audit", "--no-fund", "--prefix", str(fresh), SUITE]
        try:
            fresh.mkdir(parents=True)
            subprocess.run(words, cwd=fresh, check=True, capture_output=True, timeout=240)
            shutil.rmtree(prefix, ignore_errors=True)
            fresh.rename(prefix)
        finally:
            shutil.rmtree(fresh, ignore_errors=True)
    return found


@pytest.mark.unwatched
def test_what_others_require(tmp_path: Path, neighbours: Neighbours, folder: Path) -> None:
    node, port = need("node"), free_port()
    env = {f"npm_package_config_{name}": "" for name in ("id", "base")} | {
        "npm_config_protocol": "http",
        "npm_config_port": str(port),
        "npm_config_pidfile": str(tmp_path / "pid"),
    }
    modules = [{"name": "cache", "actionParam": {"heuristic": 10}}]
    neighbours.start([node, "server/server.mjs"], port=port, env=env, cwd=folder)
    gateway = start(neighbours, config(port, modules=modules))
    words = [node, "--no-warnings", "cli.mjs"]
    env["npm_config_base"] = gateway.url
    done = subprocess.run(words, cwd=folder, env=os.environ | env, capture_output=True, timeout=240, check=True)
    gateway.healthy()
    words = [node, "--no-warnings", "--input-type=module", "-e", LIST]
    listed = subprocess.run(words, cwd=folder, capture_output=True, timeout=60, check=True)
    results, required = json.loads(done.stdout), json.loads(listed.stdout)
    failed = {name for name in required if results.get(name) is not True}
    assert len(required) > 150
    assert {name: results.get(name) for name in failed - DIFFERS} == {}
    assert failed >= DIFFERS, "what holds by now stands there no longer"
