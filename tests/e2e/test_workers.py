"""Several processes behind one address."""

from __future__ import annotations

import http.client
import os
import re
import signal
import socket
import sys
import time
from contextlib import closing, suppress
from pathlib import Path

import pytest
from crowd import alive, begin, crowd, gone, holder, kill, load

from gateways import WITHIN, eventually, wire
from neighbours import Neighbours, free_port, listens, need, run

GET = b"GET /hello HTTP/1.1\r\nHost: a\r\n\r\n"


def ask(port: int, path: str = "/hello") -> tuple[int, http.client.HTTPMessage, bytes]:
    """One request on a connection of its own."""
    with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=WITHIN)) as connection:
        connection.request("GET", path)
        with connection.getresponse() as response:
            return response.status, response.headers, response.read()


def pid_of(head: bytes) -> int:
    """Which worker an answer is from."""
    found = re.search(rb"x-pid: (\d+)", head)
    assert found, head
    return int(found[1])


def test_a_request_stays_in_one_worker_from_accept_to_record(neighbours: Neighbours, node: int) -> None:
    gateway = begin(neighbours, crowd(node, 2))
    workers = gateway.workers()
    assert len(set(workers)) == 2
    assert gateway.running.pid not in workers
    seen: dict[str, int] = {}
    for number in range(400):
        with wire(gateway.port) as client:
            client.send(b"GET /hello?%d HTTP/1.1\r\nHost: a\r\n\r\n" % number)
            head = client.answer()[0]
            pid = pid_of(head)
            assert holder(workers, gateway.port, client.socket.getsockname()[1]) == [pid]
            seen[f"/hello?{number}"] = pid
        if number >= 20 and len(set(seen.values())) == 2:
            break
    assert set(seen.values()) == set(workers), "both have a share"
    eventually(lambda: len(gateway.records()) == len(seen), "every request has its record")
    for record in gateway.records():
        here = record["notes"]["here"]
        assert len(here) == 4, "every stage was run"
        assert len(set(here)) == 1, "on one thread of one process"
        assert here[0].startswith(f"{seen[record['target']]}/")
    assert len({record["id"] for record in gateway.records()}) == len(seen)
    gateway.healthy()


def test_auto_is_a_worker_for_each_core_and_pinning_gives_each_its_own(neighbours: Neighbours, node: int) -> None:
    gateway = begin(neighbours, crowd(node, "auto", gateway={"pinning": True}))
    cores = os.sched_getaffinity(0)
    workers = gateway.workers()
    assert len(workers) == len(cores)
    assert [os.sched_getaffinity(pid) for pid in workers] == [{core} for core in sorted(cores)]
    assert os.sched_getaffinity(gateway.running.pid) == cores
    gateway.healthy()


def test_nothing_is_lost_by_reloads_and_by_kills_only_what_the_killed_one_held(
    neighbours: Neighbours, node: int
) -> None:
    gateway = begin(neighbours, crowd(node, 2))
    with load(gateway.port) as clients:
        began = 2
        for turn, (workers, more) in enumerate(((2, 0), (3, 1), (2, 0), (1, 0), (2, 1))):
            gateway.hangup(crowd(node, workers, f"turn-{turn}"))
            assert ask(gateway.port)[1]["x-mark"] == f"turn-{turn}"
            began += more
            gateway.serving(began)
            clients.goes_on()
        eventually(lambda: gateway.log.count(" has left: exit status 0") == 2, "who is too many leaves")
        clients.goes_on()
        assert clients.lost == []
        killed = []
        for _ in range(3):
            before = gateway.log.count(" serves\n")
            victim = gateway.workers()[0]
            killed.append(victim)
            kill(victim)
            gateway.serving(before + 1)
            clients.goes_on()
        eventually(lambda: gateway.log.count("has ended unasked: signal SIGKILL") == 3, "it is said")
    # A connection whose worker is not known was accepted, and had no answer yet: at most one for each client and kill.
    assert {pid for pid, _ in clients.lost} <= {*killed, 0}, clients.lost
    assert len(clients.lost) <= 3 * len(clients.clients)
    assert clients.answered.total() > 300
    records = gateway.records()
    assert len({record["id"] for record in records}) == len(records)
    gateway.healthy()


def test_what_waits_for_a_worker_that_was_killed_is_served_by_the_next_one(neighbours: Neighbours, node: int) -> None:
    gateway = begin(neighbours, crowd(node, 1, gateway={"hangTimeout": 0}))
    (worker,) = gateway.workers()
    kill(worker, signal.SIGSTOP)
    with wire(gateway.port) as first, wire(gateway.port) as second:
        for client in (first, second):
            client.send(GET)
        kill(worker)
        for client in (first, second):
            head, body = client.answer()
            assert body == b"hello\n"
            assert pid_of(head) not in {worker, gateway.running.pid}
    gateway.says("It is replaced at once.")
    gateway.healthy()


def test_one_that_is_told_to_go_is_replaced_while_it_ends_what_it_has(neighbours: Neighbours, node: int) -> None:
    gateway = begin(neighbours, crowd(node, 1, gateway={"drain": "10m"}))
    (worker,) = gateway.workers()
    with wire(gateway.port) as download:
        download.send(b"GET /hold/told HTTP/1.1\r\nHost: a\r\n\r\n")
        download.until(b"first\n")
        kill(worker, signal.SIGTERM)
        gateway.serving(2)
        assert ask(gateway.port)[1]["x-pid"] == str(gateway.workers()[0])
        assert alive(worker)
        assert ask(node, "/release/told")[2] == b"yes\n"
        assert download.rest() == b"\r\n5\r\nlast\n\r\n0\r\n\r\n"
    gone(worker)
    gateway.healthy()


def test_one_that_ends_again_and_again_is_started_ever_later(neighbours: Neighbours, node: int) -> None:
    gateway = begin(neighbours, crowd(node, 1))
    for number in (2, 3):
        kill(gateway.workers()[0])
        gateway.serving(number)
    kill(gateway.workers()[0])
    gateway.says("It is replaced in 1 s.")
    assert re.findall(r"It is replaced (.*)\.\n", gateway.log) == ["at once", "in 0.5 s", "in 1 s"]
    gateway.healthy()


def test_one_that_hangs_is_told_from_one_that_waits_and_is_replaced(neighbours: Neighbours, node: int) -> None:
    gateway = begin(neighbours, crowd(node, 2, gateway={"hangTimeout": "3s"}))
    before = gateway.workers()
    with wire(gateway.port) as client:
        client.send(b"GET /hang HTTP/1.1\r\nHost: a\r\n\r\n")
        gateway.says("has said nothing for 3 s, it is killed")
        with suppress(ConnectionResetError):
            assert client.rest() == b""
    gateway.serving(3)
    (well,) = set(gateway.workers()) & set(before)
    assert alive(well)
    (stuck,) = set(before) - {well}
    gone(stuck)
    gateway.says("has ended unasked: signal SIGABRT, its last words:")
    assert re.search(r'whereabouts\.py", line \d+ in process', gateway.log), "it is said where it was"
    gateway.healthy()


def test_workers_do_not_outlive_their_supervisor_but_end_what_they_have(neighbours: Neighbours, node: int) -> None:
    gateway = begin(neighbours, crowd(node, 2))
    workers = gateway.workers()
    with wire(node) as behind, wire(gateway.port) as download:
        download.send(b"GET /hold/orphan HTTP/1.1\r\nHost: a\r\n\r\n")
        download.until(b"first\n")
        gateway.running.signal(signal.SIGKILL)
        gateway.running.wait()
        eventually(lambda: not listens(gateway.port), "nobody accepts")
        behind.send(b"GET /release/orphan HTTP/1.1\r\nHost: a\r\n\r\n")
        assert behind.answer()[1] == b"yes\n"
        assert download.rest() == b"\r\n5\r\nlast\n\r\n0\r\n\r\n"
    gone(*workers)


def test_a_stop_lets_requests_end_and_then_the_processes(neighbours: Neighbours, node: int) -> None:
    gateway = begin(neighbours, crowd(node, 2))
    workers = gateway.workers()
    with wire(node) as behind, wire(gateway.port) as idle, wire(gateway.port) as download:
        idle.send(GET)
        idle.answer()
        download.send(b"GET /hold/stop HTTP/1.1\r\nHost: a\r\n\r\n")
        download.until(b"first\n")
        gateway.running.signal(signal.SIGTERM)
        eventually(lambda: not listens(gateway.port), "the port is closed")
        idle.send(GET)  # it was on its way
        assert b"\r\nconnection: close\r\n" in idle.answer()[0]
        assert idle.rest() == b""
        behind.send(b"GET /release/stop HTTP/1.1\r\nHost: a\r\n\r\n")
        assert behind.answer()[1] == b"yes\n"
        assert download.rest() == b"\r\n5\r\nlast\n\r\n0\r\n\r\n"
    assert gateway.running.wait() == 0
    assert not any(map(alive, workers))
    # Each worker writes its own, when it comes to it.
    assert sorted(record["target"] for record in gateway.records()) == ["/hello", "/hello", "/hold/stop"]
    gateway.healthy()


@pytest.mark.parametrize("workers", [0, 2])
def test_readiness_fails_first_and_then_the_port(neighbours: Neighbours, node: int, workers: int) -> None:
    admin = free_port()
    parts = {"admin": {"address": f"127.0.0.1:{admin}"}}
    gateway = begin(neighbours, crowd(node, workers, gateway={"drainDelay": "2s"}, **parts))
    eventually(lambda: ask(admin, "/readyz")[0] == 200, "it is ready")
    asked = time.monotonic()
    gateway.running.signal(signal.SIGTERM)
    eventually(lambda: ask(admin, "/readyz")[0] == 503, "it is not ready any more")
    assert ask(admin, "/readyz")[2] == b"not ready: it stops: requests under way end\n"
    assert ask(gateway.port)[0] == 200
    assert gateway.running.wait() == 0
    assert time.monotonic() - asked > 2
    gateway.healthy()


def test_counters_of_all_workers_are_one_and_never_go_down(neighbours: Neighbours, node: int) -> None:
    admin = free_port()
    pages = {"address": f"127.0.0.1:{admin}"}
    gateway = begin(neighbours, crowd(node, 2, admin=pages))

    def counted(name: str) -> float:
        text = ask(admin, "/metrics")[2].decode()
        found = re.search(rf"^{re.escape(name)} (\S+)$", text, re.MULTILINE)
        return float(found[1]) if found else -1.0

    for _ in range(40):
        assert ask(gateway.port)[0] == 200
    assert counted('protogate_exchanges_total{outcome="ok"}') == 40
    assert counted("protogate_workers") == 2
    gateway.hangup(crowd(node, 1, admin=pages))
    eventually(lambda: " has left" in gateway.log, "one leaves")
    assert counted('protogate_exchanges_total{outcome="ok"}') == 40
    assert counted('protogate_reloads_total{result="ok"}') == 1
    kill(gateway.workers()[0])
    gateway.serving(3)
    assert counted('protogate_exchanges_total{outcome="ok"}') == 40
    assert counted("protogate_worker_restarts_total") == 1
    gateway.healthy()


def test_a_fault_is_found_once_and_keeps_the_old_one_in_all(neighbours: Neighbours, node: int) -> None:
    gateway = begin(neighbours, crowd(node, 2, "good"))
    taken = free_port()
    neighbours.python("-m", "http.server", "--bind", "127.0.0.1", str(taken), port=taken)
    web = {"name": "web", "address": "127.0.0.1:0"}
    faulty = [
        ("listeners: [}\n", "the configuration in force stays"),
        (
            crowd(node, 2, "bad", listeners=[web, {"name": "b", "address": f"127.0.0.1:{taken}"}]),
            f"cannot listen on 127.0.0.1:{taken}: Address already in use",
        ),
        (crowd(node, 0, "bad"), "gateway.workers: from 0 to other numbers, or back, takes a restart"),
    ]
    for number, (settings, told) in enumerate(faulty, 1):
        gateway.write(settings)
        gateway.running.signal(signal.SIGHUP)
        gateway.says("the configuration in force stays", number)
        gateway.says(told)
    assert {ask(gateway.port)[1]["x-mark"] for _ in range(30)} == {"good"}
    gateway.hangup(crowd(node, 2, "better"))
    assert {ask(gateway.port)[1]["x-mark"] for _ in range(30)} == {"better"}
    assert gateway.log.count(" has started") == 2
    gateway.healthy()


def test_listeners_come_and_go_in_all_workers(neighbours: Neighbours, node: int, tmp_path: os.PathLike[str]) -> None:
    path, more = f"{os.fspath(tmp_path)}/web.sock", free_port()
    web = {"name": "web", "address": "127.0.0.1:0"}
    gateway = begin(neighbours, crowd(node, 2))
    local, other = {"name": "local", "address": f"unix:{path}"}, {"name": "other", "address": f"127.0.0.1:{more}"}
    gateway.hangup(crowd(node, 2, listeners=[web, local, other]))
    done = run([need("curl"), "-sS", "--unix-socket", path, "http://a/hello"])
    assert done.stdout == b"hello\n"
    assert len({ask(more)[1]["x-pid"] for _ in range(100)}) == 2
    gateway.hangup(crowd(node, 2, listeners=[web]))
    eventually(lambda: not listens(more), "the port is closed")
    assert not os.path.exists(path)
    assert not os.path.exists(f"{path}.lock")
    assert ask(gateway.port)[0] == 200
    gateway.healthy()


def nobody_may() -> bool:
    """Whether we can become somebody else, and he can run this interpreter."""
    if os.geteuid() != 0:
        return False
    program = Path(sys.executable)
    while program.is_symlink():
        program = program.parent / program.readlink()
        if not all(folder.stat().st_mode & 0o001 for folder in program.parents):
            return False
    return True


@pytest.mark.skipif(not nobody_may(), reason="takes root, and an interpreter that is for everybody")
def test_another_user_serves_what_root_opened(neighbours: Neighbours, node: int) -> None:
    settings = crowd(node, 2, listeners=[{"name": "web", "address": "127.0.0.1:0"}])
    home = neighbours.directory
    for folder in (home, *home.parents[:3]):
        with suppress(OSError):
            folder.chmod(folder.stat().st_mode | 0o055)
    gateway = begin(neighbours, settings, "nobody")
    assert {os.stat(f"/proc/{pid}").st_uid for pid in gateway.workers()} != {0}
    assert ask(gateway.port)[0] == 200
    kill(gateway.workers()[0])
    gateway.serving(3)
    assert ask(gateway.port)[0] == 200
    gateway.hangup(crowd(node, 3, "more", listeners=[{"name": "web", "address": "127.0.0.1:0"}]))
    gateway.serving(4)
    assert ask(gateway.port)[1]["x-mark"] == "more"
    gateway.healthy()


def test_the_service_manager_hears_when_all_workers_serve(neighbours: Neighbours, node: int) -> None:
    where = f"\0protogate-test-{os.getpid()}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(where)
        manager.settimeout(WITHIN)
        gateway = begin(neighbours, crowd(node, 2), NOTIFY_SOCKET="@" + where[1:])
        assert manager.recv(4096).decode().startswith("READY=1")
        gateway.hangup(crowd(node, 2, "two"))
        assert manager.recv(4096).decode().startswith("RELOADING=1\nMONOTONIC_USEC=")
        assert manager.recv(4096).decode().startswith("READY=1")
        gateway.running.signal(signal.SIGTERM)
        assert manager.recv(4096).decode().startswith("STOPPING=1")
    assert gateway.running.wait() == 0
    gateway.healthy()
