"""A gateway and an upstream that many tests share; each test that needs others starts its own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from gateways import Gateway, config, origin, start
from neighbours import Neighbours


@pytest.fixture(scope="module")
def company(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Neighbours]:
    """As C{neighbours}, for all tests of a module."""
    started = Neighbours(tmp_path_factory.mktemp("company"))
    yield started
    started.stop()


@pytest.fixture(scope="session")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """The port of C{origin.js}."""
    started = Neighbours(tmp_path_factory.mktemp("node"))
    yield origin(started, "origin.js").port
    started.stop()


@pytest.fixture(scope="session")
def edge(tmp_path_factory: pytest.TempPathFactory, node: int) -> Iterator[Gateway]:
    """A gateway in front of C{origin.js}."""
    started = Neighbours(tmp_path_factory.mktemp("edge"))
    gateway = start(started, config(node, accessLog={"file": "access.log"}))
    yield gateway
    started.stop()
    gateway.healthy()
