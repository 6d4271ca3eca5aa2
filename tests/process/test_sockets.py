"""The listening sockets of a supervisor, real ones."""

from __future__ import annotations

import os
import socket
import stat
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from twisted.internet.address import IPv4Address, UNIXAddress

from neighbours import free_port
from protogate.config.address import Listen
from protogate.config.faults import ConfigFaults
from protogate.config.model import Listener
from protogate.downstream.ports import BACKLOG
from protogate.process import sockets as module
from protogate.process.activation import Inherited
from protogate.process.sockets import Kept, Opening, Sockets


@pytest.fixture
def sockets() -> Iterator[Sockets]:
    made = Sockets()
    yield made
    made.close()


def tcp(name: str = "web", port: int = 0) -> Listener:
    return Listener(name=name, address=f"127.0.0.1:{port}")


def unix(path: Path) -> Listener:
    return Listener(name=path.name, address=f"unix:{path}")


def take(sockets: Sockets, *entries: Listener, workers: int = 2) -> Opening:
    opening = sockets.open(entries, workers)
    sockets.take(opening)
    return opening


def port_of(sockets: Sockets, name: str = "web") -> int:
    address = sockets.addresses[name]
    assert isinstance(address, IPv4Address)
    return address.port


def connects(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), 5).close()
    except ConnectionRefusedError:
        return False
    return True


def test_each_worker_has_a_socket_of_its_own_at_one_address(sockets: Sockets) -> None:
    opening = take(sockets, tcp(), workers=3)
    shares = [opening.share(slot, 3)["web"] for slot in range(3)]
    assert [len(share) for share in shares] == [1, 1, 1]
    assert len({descriptor for share in shares for descriptor in share}) == 3
    (group,) = sockets.groups.values()
    for each in group.sockets:
        assert each.getsockname() == ("127.0.0.1", port_of(sockets))
        assert each.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
        assert not each.getblocking()
        assert not os.get_inheritable(each.fileno())


def test_the_kernel_spreads_connections_over_them(sockets: Sockets) -> None:
    take(sockets, tcp(), workers=2)
    (group,) = sockets.groups.values()
    clients = [socket.create_connection(("127.0.0.1", port_of(sockets)), 5) for _ in range(64)]
    accepted = [0, 0]
    for number, each in enumerate(group.sockets):
        while True:
            try:
                each.accept()[0].close()
            except BlockingIOError:
                break
            accepted[number] += 1
    for client in clients:
        client.close()
    assert sum(accepted) == 64
    assert min(accepted) > 0


def test_a_file_has_one_socket_for_all(sockets: Sockets, tmp_path: Path) -> None:
    path = tmp_path / "a.sock"
    opening = take(sockets, unix(path), workers=3)
    assert len({tuple(opening.share(slot, 3)["a.sock"]) for slot in range(3)}) == 1
    assert stat.S_IMODE(path.stat().st_mode) == 0o666
    assert sockets.addresses == {"a.sock": UNIXAddress(str(path))}
    sockets.close()
    assert list(tmp_path.iterdir()) == []


def test_where_the_kernel_cannot_spread_all_accept_from_one(sockets: Sockets, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "REUSE", False)
    opening = take(sockets, tcp(), workers=3)
    (group,) = sockets.groups.values()
    assert len(group.sockets) == 1
    assert [opening.share(slot, 3)["web"] for slot in range(3)] == [[group.sockets[0].fileno()]] * 3


def test_what_stays_is_not_opened_anew_whatever_its_name(sockets: Sockets) -> None:
    port = free_port()
    before = take(sockets, tcp("web", port)).share(0, 2)["web"]
    after = take(sockets, tcp("other", port)).share(0, 2)["other"]
    assert before == after
    assert set(sockets.addresses) == {"other"}


def test_more_workers_get_more_sockets_and_fewer_share_all_there_are(sockets: Sockets) -> None:
    two = take(sockets, tcp(), workers=2)
    three = take(sockets, tcp(), workers=3)
    assert [three.share(slot, 3)["web"] for slot in range(2)] == [two.share(slot, 2)["web"] for slot in range(2)]
    mine, others = (take(sockets, tcp(), workers=2).share(slot, 2)["web"] for slot in range(2))
    assert mine == three.share(0, 3)["web"] + three.share(2, 3)["web"]
    assert others == three.share(1, 3)["web"]
    (group,) = sockets.groups.values()
    assert len(group.sockets) == 3, "connections may wait in any of them"


def test_more_that_cannot_be_opened_are_done_without(sockets: Sockets, monkeypatch: pytest.MonkeyPatch) -> None:
    take(sockets, tcp(), workers=2)

    def refused(*_: object, **__: object) -> socket.socket:
        raise PermissionError

    monkeypatch.setattr(module, "_tcp", refused)
    opening = take(sockets, tcp(), workers=3)
    assert [len(opening.share(slot, 3)["web"]) for slot in range(3)] == [2, 2, 2], "all accept from those there are"


def test_a_port_that_somebody_has_is_a_fault_although_he_would_share_it(sockets: Sockets) -> None:
    with socket.socket() as taken:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(ConfigFaults) as raised:
            sockets.open([tcp("free"), tcp("web", port)], 2)
    (fault,) = raised.value.faults
    assert fault.path == ("listeners", 1, "address")
    assert fault.message == f"cannot listen on 127.0.0.1:{port}: Address already in use"
    assert sockets.groups == {}


@pytest.mark.parametrize("workers", [1, 2])
def test_every_address_of_both_kinds_is_one_listener_and_whoever_writes_two_is_told(
    sockets: Sockets, workers: int
) -> None:
    port = free_port()
    entries = [Listener(name=host, address=f"{host}:{port}") for host in ("0.0.0.0", "[::]")]
    with pytest.raises(ConfigFaults) as raised:
        sockets.open([tcp("web", free_port()), *entries], workers)
    (fault,) = raised.value.faults
    assert fault.message == (
        f"cannot listen on [::]:{port}: Address already in use; listeners[1] has the port: [::] takes IPv4 as well, "
        "so leave 0.0.0.0 out"
    )
    take(sockets, entries[1])
    with socket.create_connection(("127.0.0.1", port)):
        pass


def test_what_is_not_taken_is_closed_and_what_was_open_stays(sockets: Sockets, tmp_path: Path) -> None:
    take(sockets, tcp())
    opening = sockets.open([tcp(), tcp("more"), unix(tmp_path / "a.sock")], 3)
    more = opening.groups[Listen("127.0.0.1", 0), "more"].sockets[0].getsockname()[1]
    assert connects(more)
    sockets.forget(opening)
    assert not connects(more)
    assert list(tmp_path.iterdir()) == []
    assert connects(port_of(sockets))
    (group,) = sockets.groups.values()
    assert len(group.sockets) == 2


def test_what_is_gone_is_closed_when_the_rest_is_taken(sockets: Sockets, tmp_path: Path) -> None:
    take(sockets, tcp(), tcp("more"), unix(tmp_path / "a.sock"))
    more = port_of(sockets, "more")
    take(sockets, tcp())
    assert not connects(more)
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_somebody_has_the_lock_of_stays_his(sockets: Sockets, tmp_path: Path) -> None:
    path = tmp_path / "a.sock"
    take(sockets, unix(path))
    other = Sockets()
    with pytest.raises(ConfigFaults, match=r"cannot listen on unix:.*: Cannot acquire lock"):
        other.open([unix(path)], 1)
    assert path.is_socket()


def test_a_socket_that_was_left_behind_is_no_hindrance_and_a_file_is(sockets: Sockets, tmp_path: Path) -> None:
    path, file = tmp_path / "a.sock", tmp_path / "b.sock"
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(path))
    os.symlink("999999999", f"{path}.lock")  # of a process that is gone
    take(sockets, unix(path))
    file.write_text("something else")
    with pytest.raises(ConfigFaults, match="Address already in use"):
        sockets.open([unix(file)], 1)
    assert file.read_text() == "something else"
    assert not Path(f"{file}.lock").is_symlink()


def test_one_that_was_handed_over_is_for_all(tmp_path: Path) -> None:
    handed = socket.create_server(("127.0.0.1", 0))
    port = handed.getsockname()[1]
    sockets = Sockets([Inherited(handed, "", Listen("127.0.0.1", port))])
    opening = take(sockets, tcp("web", port), tcp("more"), workers=2)
    assert [opening.share(slot, 2)["web"] for slot in range(2)] == [[handed.fileno()]] * 2
    assert len(opening.groups[Listen("127.0.0.1", 0), "more"].sockets) == 2
    sockets.close()


def test_the_next_program_has_them_all(tmp_path: Path) -> None:
    sockets = Sockets()
    port = free_port()
    entries = [tcp("web", port), tcp("any"), unix(tmp_path / "a.sock")]
    take(sockets, *entries, workers=2)
    before = sockets.addresses
    kept = msgspec.msgpack.decode(msgspec.msgpack.encode(sockets.keep()), type=list[Kept])
    for each in kept:  # what it is for the program before
        each.descriptors = [os.dup(descriptor) for descriptor in each.descriptors]
    after = Sockets()
    found = after.find(kept)
    assert after.addresses == before
    assert [len(found.share(slot, 2)["web"]) for slot in range(2)] == [1, 1]
    again = take(after, *entries, workers=2)
    assert again.fresh == []
    assert again.share(1, 2) == found.share(1, 2)
    after.close()
    assert list(tmp_path.iterdir()) == []
    for group in sockets.groups.values():
        for each in group.sockets:  # type: ignore[assignment]
            each.close()  # type: ignore[attr-defined]


def test_as_many_may_wait_as_the_kernel_allows(sockets: Sockets) -> None:
    take(sockets, tcp(), workers=1)
    limit = int(Path("/proc/sys/net/core/somaxconn").read_text())
    table = Path("/proc/net/tcp").read_text()
    assert f"0100007F:{port_of(sockets):04X} 00000000:0000 0A" in table
    assert min(limit, BACKLOG) > 128 or limit <= 128
