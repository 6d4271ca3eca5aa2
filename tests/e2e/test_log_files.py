"""The access log on real files, under real traffic."""

from __future__ import annotations

import os
import re
import stat
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from gateways import Gateway, command, config, eventually, records, replace, start, wire
from neighbours import Neighbours, need, run


def load(gateway: Gateway, seconds: int = 1) -> int:
    """Requests that wrk had answered; no error among them."""
    done = run([need("wrk"), "-t1", "-c8", f"-d{seconds}s", "--timeout", "20s", f"{gateway.url}/hello"])
    told = done.stdout.decode()
    assert "Non-2xx" not in told
    assert "Socket errors" not in told
    found = re.search(r"(\d+) requests in", told)
    assert found, told
    return int(found[1])


def fetch(gateway: Gateway, targets: Sequence[str]) -> None:
    """Requests one after the other on one connection."""
    with wire(gateway.port) as client:
        for target in targets:
            client.send(f"GET {target} HTTP/1.1\r\nHost: a\r\n\r\n".encode())
            assert client.answer()[0].startswith(b"HTTP/1.1 200 ")


def test_rotation_by_rename_loses_no_line(neighbours: Neighbours, node: int) -> None:
    gateway = start(neighbours, config(node, accessLog={"file": "access.log"}), "twistd")
    home = gateway.file.parent
    file = home / "access.log"
    parts = []
    for turn in range(4):
        fetch(gateway, [f"/hello?{turn}-{index}" for index in range(100)])
        if turn < 3:
            eventually(lambda: file.exists() and file.stat().st_size > 0, "the log is written")
            parts.append(file.rename(home / f"access.log.{turn}"))
            fetch(gateway, [f"/hello?{turn}-{index}" for index in range(100, 200)])
            eventually(file.exists, "a new file is opened")
    parts.append(file)
    wanted = Counter(f"/hello?{turn}-{index}" for turn in range(4) for index in range(200 if turn < 3 else 100))

    def logged() -> Counter[str]:
        return Counter(record["target"] for part in parts for record in records(part))

    eventually(lambda: logged() == wanted, "every line, once")
    assert not stat.S_IMODE(file.stat().st_mode) & 0o007
    gateway.healthy()


def test_every_answered_request_of_a_load_has_its_line(neighbours: Neighbours, node: int) -> None:
    gateway = start(neighbours, config(node, accessLog={"file": "access.log", "queue": 1_000_000}))
    answered = load(gateway)
    gateway.stop()
    lines = gateway.records()
    complete = [record for record in lines if record["status"] == 200]
    # wrk leaves its last requests, at most one for each connection, without counting them.
    assert answered <= len(complete) <= len(lines) <= answered + 8
    assert len({record["id"] for record in lines}) == len(lines)


def test_a_fifo_that_nobody_reads_holds_nothing_up(neighbours: Neighbours, node: int, tmp_path: Path) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    gateway = start(neighbours, config(node, accessLog={"file": str(fifo), "queue": 100}))
    assert load(gateway) > 100
    gateway.says("records are dropped")
    # A reader comes, does not read, and the pipe is full: the same.
    reader = os.open(fifo, os.O_RDONLY | os.O_NONBLOCK)
    try:
        assert load(gateway) > 100
        gateway.says("it is written again")
        first = eventually(lambda: read(reader), "a line")
        assert first.startswith(b'{"time":')
    finally:
        os.close(reader)
    fetch(gateway, ["/hello"])
    gateway.healthy()


def read(descriptor: int) -> bytes:
    """What is there, perhaps nothing."""
    try:
        return os.read(descriptor, 65536)
    except BlockingIOError:
        return b""


def test_a_full_disk_holds_nothing_up(neighbours: Neighbours, node: int) -> None:
    gateway = start(neighbours, config(node, accessLog={"file": "/dev/full", "queue": 100}), "twistd")
    assert load(gateway) > 100
    gateway.says("No space left on device; records wait, then they are dropped")
    gateway.says("records are dropped")
    fetch(gateway, ["/hello"])
    gateway.healthy()


def test_a_log_that_cannot_be_opened_is_a_fault_of_the_configuration(tmp_path: Path) -> None:
    file = tmp_path / "gateway.yaml"
    replace(file, config(1, accessLog={"file": "missing/access.log"}))
    done = run(command("protogate", file))
    told = (done.stdout + done.stderr).decode()
    assert done.returncode == 1, told
    assert "accessLog.file: cannot be opened: No such file or directory" in told
    assert "Traceback" not in told


def test_standard_output_has_the_lines_among_the_events(neighbours: Neighbours, node: int) -> None:
    gateway = start(neighbours, config(node, accessLog={"file": "-"}))
    fetch(gateway, ["/hello?one", "/hello?two"])
    gateway.says('"target":"/hello?one"')
    gateway.says('"target":"/hello?two"')
    gateway.healthy()
