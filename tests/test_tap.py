"""The twistd plugin."""

from __future__ import annotations

import gc
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from twisted.application.service import IServiceMaker
from twisted.plugin import getPlugins
from twisted.python.usage import UsageError

from protogate.service import GatewayService
from protogate.tap import ForegroundGateway, Options, makeService


@pytest.fixture(autouse=True)
def unfrozen() -> Iterator[None]:
    yield
    gc.unfreeze()


def options(*arguments: str) -> Options:
    made = Options()  # type: ignore[no-untyped-call]
    made.parseOptions(arguments)  # type: ignore[no-untyped-call]
    return made


def test_twistd_finds_it() -> None:
    (maker,) = (maker for maker in getPlugins(IServiceMaker) if maker.tapname == "protogate")
    assert maker.options is Options
    assert maker.makeService is makeService


def test_a_configuration_is_needed() -> None:
    with pytest.raises(UsageError, match="which configuration"):
        options()


def test_a_service_is_made_before_anything_is_opened(tmp_path: Path) -> None:
    path = tmp_path / "gateway.yaml"
    path.write_text('listeners: [{name: web, address: "127.0.0.1:0"}]\n')
    service = makeService(options("-c", str(path)))
    assert isinstance(service, GatewayService)
    assert service.addresses == {}
    assert gc.get_freeze_count() > 0


def test_faults_end_it_with_all_of_them(tmp_path: Path) -> None:
    path = tmp_path / "gateway.yaml"
    path.write_text('listeners: [{name: web, address: "nowhere"}]\nmodules: [{nam: x}]\n')
    with pytest.raises(SystemExit) as ended:
        makeService(options("-c", str(path)))
    assert str(ended.value.code).count("\n") == 1


def test_a_port_in_use_is_said_in_one_line(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        path = tmp_path / "gateway.yaml"
        path.write_text(f'listeners: [{{name: web, address: "127.0.0.1:{port}"}}]\n')
        service = makeService(options("-c", str(path)))
        with pytest.raises(SystemExit) as ended:
            service.privilegedStartService()
    expected = f"{path}:1:34: listeners[0].address: cannot listen on 127.0.0.1:{port}: Address already in use"
    assert str(ended.value.code) == expected


def test_a_socket_in_a_folder_that_is_not_there_is_said_in_one_line(tmp_path: Path) -> None:
    path, where = tmp_path / "gateway.yaml", f"unix:{tmp_path}/none/a.sock"
    path.write_text(f'listeners: [{{name: web, address: "{where}"}}]\n')
    service = makeService(options("-c", str(path)))
    with pytest.raises(SystemExit) as ended:
        service.privilegedStartService()
    expected = f"{path}:1:34: listeners[0].address: cannot listen on {where}: No such file or directory"
    assert str(ended.value.code) == expected


@pytest.mark.parametrize(("nodaemon", "kind"), [(True, ForegroundGateway), (False, GatewayService)])
def test_a_daemon_leaves_it_to_twistd_to_tell(tmp_path: Path, nodaemon: bool, kind: type) -> None:
    path = tmp_path / "gateway.yaml"
    path.write_text('listeners: [{name: web, address: "127.0.0.1:0"}]\n')
    made = options("-c", str(path))
    made.parent = {"nodaemon": nodaemon}
    assert type(makeService(made)) is kind
