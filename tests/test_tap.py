"""The twistd plugin."""

from __future__ import annotations

import gc
import socket
from pathlib import Path

import pytest
from twisted.application.service import IServiceMaker, Service
from twisted.plugin import getPlugins
from twisted.python.usage import UsageError

from protogate.process.supervisor import Supervisor
from protogate.service import GatewayService
from protogate.tap import ForegroundGateway, ForegroundSupervisor, Options, makeService


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


def test_a_configuration_is_named_by_an_option() -> None:
    with pytest.raises(UsageError, match=r"'gateway\.yaml' is no option; the configuration is named by -c FILE"):
        options("gateway.yaml")


def test_a_service_is_made_before_anything_is_opened(tmp_path: Path) -> None:
    path = tmp_path / "gateway.yaml"
    path.write_text('listeners: [{name: web, address: "127.0.0.1:0"}]\n')
    gc.unfreeze()
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


@pytest.mark.parametrize(("nodaemon", "kind"), [(True, ForegroundSupervisor), (False, Supervisor)])
def test_workers_have_a_supervisor(tmp_path: Path, nodaemon: bool, kind: type) -> None:
    path = tmp_path / "gateway.yaml"
    path.write_text('gateway: {workers: 2}\nlisteners: [{name: web, address: "127.0.0.1:0"}]\n')
    made = options("-c", str(path))
    made.parent = {"nodaemon": nodaemon}
    assert type(makeService(made)) is kind


def test_a_port_in_use_is_said_in_one_line_by_a_supervisor_too(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        path = tmp_path / "gateway.yaml"
        path.write_text(f'gateway: {{workers: 2}}\nlisteners: [{{name: web, address: "127.0.0.1:{port}"}}]\n')
        service = makeService(options("-c", str(path)))
        with pytest.raises(SystemExit, match="Address already in use"):
            service.privilegedStartService()


def test_a_reactor_for_workers_that_nobody_has(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "gateway.yaml"
    path.write_text('listeners: [{name: web, address: "127.0.0.1:0"}]\n')
    monkeypatch.setenv("PROTOGATE_REACTOR", "nonsense")
    with pytest.raises(SystemExit, match=r"no reactor named 'nonsense' for workers; installed: .*epoll"):
        makeService(options("-c", str(path)))


def test_what_was_made_already_is_run(tmp_path: Path) -> None:
    made = options("-c", str(tmp_path / "none.yaml"))
    made.made = made_before = Service()
    assert makeService(made) is made_before


@pytest.mark.parametrize(("nodaemon", "kind"), [(True, ForegroundGateway), (False, GatewayService)])
def test_a_daemon_leaves_it_to_twistd_to_tell(tmp_path: Path, nodaemon: bool, kind: type) -> None:
    path = tmp_path / "gateway.yaml"
    path.write_text('listeners: [{name: web, address: "127.0.0.1:0"}]\n')
    made = options("-c", str(path))
    made.parent = {"nodaemon": nodaemon}
    assert type(makeService(made)) is kind
