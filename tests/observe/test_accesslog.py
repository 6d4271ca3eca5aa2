from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import pytest_twisted
from twisted.internet import reactor
from twisted.internet.task import Clock
from twisted.logger import capturedLogs

from protogate.errors import ConfigError
from protogate.observe import accesslog, record
from protogate.observe.accesslog import MODE, STDOUT, AccessLog
from protogate.observe.schema import Durations, Record

WAIT = 10.0
"""Seconds within which the thread must have done what it should."""


def line(number: int, **values: Any) -> Record:
    plain: dict[str, Any] = {
        "time": "",
        "trace": "",
        "gateway": "",
        "listener": "",
        "protocol": "",
        "client": "",
        "client_port": 0,
        "method": "GET",
        "host": "",
        "target": "/",
        "status": 200,
        "received": 0,
        "delivered": 0,
        "ms": Durations(total=1.0),
    }
    return Record(id=str(number), **{**plain, **values})


def ids(data: bytes) -> list[int]:
    """Of the whole lines that a reader sees; one that is no JSON fails."""
    return [int(json.loads(text)["id"]) for text in data.splitlines()]


def until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + WAIT
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.002)


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """The thread looks, and tries again, more often."""
    monkeypatch.setattr(accesslog, "TICK", 0.005)
    monkeypatch.setattr(accesslog, "RETRY", 0.02)


@pytest.fixture
def logs() -> Iterator[Callable[..., AccessLog]]:
    """Makes logs that end with the test, and their threads with them."""
    made: list[AccessLog] = []

    def make(file: object, **settings: Any) -> AccessLog:
        made.append(AccessLog(str(file), **settings))
        return made[-1]

    yield make
    for log in made:
        log.close(0.2)
        assert not log._thread.is_alive()


def test_records_are_lines_in_order(tmp_path: Path, logs: Callable[..., AccessLog]) -> None:
    file = tmp_path / "access.log"
    log = logs(file)
    for number in range(1000):
        log.write(line(number))
    log.close()
    assert ids(file.read_bytes()) == list(range(1000))
    assert (log.written, log.lost, log.dropped) == (1000, 0, 0)


def test_an_existing_file_is_continued(tmp_path: Path, logs: Callable[..., AccessLog]) -> None:
    file = tmp_path / "access.log"
    file.write_bytes(b'{"id":"0"}\n')
    log = logs(file)
    log.write(line(1))
    log.close()
    assert ids(file.read_bytes()) == [0, 1]


def test_a_new_file_is_not_for_everybody(tmp_path: Path, logs: Callable[..., AccessLog]) -> None:
    logs(tmp_path / "access.log")
    assert (tmp_path / "access.log").stat().st_mode & 0o777 & ~MODE == 0


@pytest.mark.parametrize("place", ["missing/access.log", "."])
def test_a_file_that_cannot_be_opened_shows_at_start(tmp_path: Path, place: str) -> None:
    with pytest.raises(OSError, match=r"No such file|Is a directory"):
        AccessLog(str(tmp_path / place))


def test_lines_are_written_without_a_stop(tmp_path: Path, logs: Callable[..., AccessLog]) -> None:
    file = tmp_path / "access.log"
    log = logs(file)
    log.write(line(1))
    until(lambda: file.read_bytes().endswith(b"\n"))
    log.write(line(2))
    until(lambda: ids(file.read_bytes()) == [1, 2])


def test_a_file_that_was_renamed_is_opened_anew(tmp_path: Path, logs: Callable[..., AccessLog]) -> None:
    file, rotated = tmp_path / "access.log", tmp_path / "access.log.1"
    log = logs(file)
    log.write(line(1))
    until(lambda: log.written == 1)
    file.rename(rotated)
    until(file.exists)
    log.write(line(2))
    until(lambda: log.written == 2)
    assert ids(rotated.read_bytes()) == [1]
    assert ids(file.read_bytes()) == [2]


def test_a_file_that_was_replaced_is_opened_anew(tmp_path: Path, logs: Callable[..., AccessLog]) -> None:
    file = tmp_path / "access.log"
    log = logs(file)
    (tmp_path / "new").touch()
    (tmp_path / "new").rename(file)
    until(lambda: log._writer._identity == (file.stat().st_dev, file.stat().st_ino))
    log.write(line(1))
    log.close()
    assert ids(file.read_bytes()) == [1]


def test_a_directory_that_is_gone_costs_nothing_once_it_is_back(tmp_path: Path, logs: Callable[..., AccessLog]) -> None:
    directory = tmp_path / "logs"
    directory.mkdir()
    file = directory / "access.log"
    log = logs(file)
    with capturedLogs() as events:
        file.unlink()
        directory.rmdir()
        until(lambda: [event for event in events if event.get("why") == os.strerror(errno.ENOENT)])
        log.write(line(1))
        directory.mkdir()
        until(lambda: log.written == 1)
        until(lambda: "written again" in events[-1]["log_format"])
    assert ids(file.read_bytes()) == [1]


def test_no_descriptor_is_left_open(tmp_path: Path, logs: Callable[..., AccessLog]) -> None:
    before = set(os.listdir("/proc/self/fd"))
    file = tmp_path / "access.log"
    log = logs(file)
    for number in range(3):
        log.write(line(number))
        until(lambda: log.written == number + 1)  # noqa: B023 - called at once
        file.unlink()
        until(file.exists)
    log.close()
    assert set(os.listdir("/proc/self/fd")) == before


# -- a FIFO


def test_it_is_told_when_a_reader_takes_a_part(tmp_path: Path, logs: Callable[..., AccessLog]) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    with capturedLogs() as events:
        log = logs(fifo)
        for number in range(2000):  # more than a pipe holds
            log.write(line(number))
        until(lambda: [event for event in events if event.get("why") == "nobody reads this FIFO"])
        reader = os.open(fifo, os.O_RDONLY | os.O_NONBLOCK)
        try:
            until(lambda: "written again" in events[-1]["log_format"])
            assert 0 < log.written < 2000
        finally:
            os.close(reader)
        log.close(0.05)


# -- a full disk


def test_on_a_full_disk_records_wait_and_then_are_dropped_and_counted(logs: Callable[..., AccessLog]) -> None:
    counted: list[str] = []
    with capturedLogs() as events:
        log = logs("/dev/full", queue=10, count=counted.append)
        log.write(line(0))
        until(lambda: [event for event in events if event.get("why") == os.strerror(errno.ENOSPC)])
        began = time.monotonic()
        for number in range(1000):
            log.write(line(number))
        assert time.monotonic() - began < 1.0
        log.close(0.05)
        until(lambda: log.dropped + log.lost == 1001)
    assert log.dropped >= 980
    assert counted == ["access_log_dropped"] * log.dropped
    assert log.dropped + log.lost == 1001
    assert log.written == 0
    texts = [event["log_format"] for event in events]
    assert len([text for text in texts if "dropped; {dropped} so far" in text]) == 1
    assert len([text for text in texts if "{why}" in text]) == 1


def test_a_line_cut_by_a_full_disk_is_completed_when_there_is_room(tmp_path: Path) -> None:
    # In a process of its own: the limit on file sizes is the process's.
    file = tmp_path / "access.log"
    script = f"""
import resource, sys, time
sys.path.insert(0, {str(Path(__file__).parent)!r})
from test_accesslog import AccessLog, accesslog, line, until
accesslog.TICK, accesslog.RETRY = 0.005, 0.01
hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, hard))
log = AccessLog({str(file)!r})
for number in range(20):
    log.write(line(number))
import os
until(lambda: os.path.getsize({str(file)!r}) == 1000)
resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
until(lambda: log.written == 20)
log.close()
assert log.lost == 0
"""
    subprocess.run([sys.executable, "-c", script], check=True, timeout=60)
    assert ids(file.read_bytes()) == list(range(20))


def test_after_a_rotation_the_rest_of_a_cut_line_is_left_out(
    tmp_path: Path, logs: Callable[..., AccessLog], monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "access.log"
    room = [100]
    real = os.write

    def write(descriptor: int, data: Any) -> int:
        if threading.current_thread() is threading.main_thread():
            return real(descriptor, data)
        if not room[0]:
            raise OSError(errno.ENOSPC, "full")
        taken = real(descriptor, bytes(data)[: room[0]])
        room[0] -= taken
        return taken

    monkeypatch.setattr(os, "write", write)
    log = logs(file)
    for number in range(3):
        log.write(line(number))
    until(lambda: file.stat().st_size == 100)
    file.rename(tmp_path / "rotated")
    until(file.exists)
    room[0] = 10_000
    until(lambda: log.written + log.lost == 3)
    assert ids(file.read_bytes()) == [1, 2]
    assert log.lost == 1


# -- a FIFO


@pytest.fixture
def fifo(tmp_path: Path) -> Path:
    path = tmp_path / "fifo"
    os.mkfifo(path)
    return path


def test_a_fifo_that_nobody_reads_holds_up_nobody(fifo: Path, logs: Callable[..., AccessLog]) -> None:
    with capturedLogs() as events:
        log = logs(fifo, queue=5)
        for number in range(100):
            log.write(line(number))
        until(lambda: [event for event in events if event.get("why") == "nobody reads this FIFO"])
    assert log.dropped == 95
    log.close(0.05)  # waits no longer, but a thread on a busy machine may take longer to say so
    until(lambda: log.lost == 5)


def read_some(descriptor: int) -> bytes:
    """What is in a FIFO; nothing where it is empty."""
    try:
        return os.read(descriptor, 1 << 20)
    except BlockingIOError:
        return b""


def read_until(descriptor: int, done: Callable[[], bool]) -> bytes:
    """What comes out of a FIFO until all was written to it."""
    seen = bytearray()

    def more() -> bool:
        last = done()
        seen.extend(read_some(descriptor))
        return last

    until(more)
    return bytes(seen)


def test_a_fifo_is_written_as_soon_as_somebody_reads(fifo: Path, logs: Callable[..., AccessLog]) -> None:
    log = logs(fifo)
    log.write(line(1))
    reader = os.open(fifo, os.O_RDONLY | os.O_NONBLOCK)
    try:
        until(lambda: log.written == 1)
        assert ids(read_some(reader)) == [1]
    finally:
        os.close(reader)


def test_a_reader_that_stops_reading_gets_whole_lines_later(fifo: Path, logs: Callable[..., AccessLog]) -> None:
    reader = os.open(fifo, os.O_RDONLY | os.O_NONBLOCK)
    try:
        log = logs(fifo)
        for number in range(3000):
            log.write(line(number))
        until(lambda: log.written > 100)
        assert ids(read_until(reader, lambda: log.written == 3000)) == list(range(3000))
    finally:
        os.close(reader)


def test_the_next_reader_of_a_fifo_begins_with_a_whole_line(fifo: Path, logs: Callable[..., AccessLog]) -> None:
    reader = os.open(fifo, os.O_RDONLY | os.O_NONBLOCK)
    log = logs(fifo)
    for number in range(3000):
        log.write(line(number))
    until(lambda: log.written > 100)
    os.close(reader)
    until(lambda: log._writer._failing)
    reader = os.open(fifo, os.O_RDONLY | os.O_NONBLOCK)
    try:
        numbers = ids(read_until(reader, lambda: log.written + log.lost == 3000))
        assert numbers == list(range(numbers[0], 3000))
    finally:
        os.close(reader)


# -- standard output


def test_a_dash_is_standard_output(capfd: pytest.CaptureFixture[str], logs: Callable[..., AccessLog]) -> None:
    log = logs(STDOUT)
    for number in range(3):
        log.write(line(number))
    log.close()
    assert ids(capfd.readouterr().out.encode()) == [0, 1, 2]
    os.fstat(1)  # still open


def test_standard_output_that_is_gone_is_trouble_and_no_failure(
    logs: Callable[..., AccessLog], monkeypatch: pytest.MonkeyPatch
) -> None:
    def write(descriptor: int, data: object) -> int:
        raise BrokenPipeError(errno.EPIPE, "gone")

    monkeypatch.setattr(os, "write", write)
    with capturedLogs() as events:
        log = logs(STDOUT)
        log.write(line(1))
        until(lambda: [event for event in events if "why" in event])
        log.close(0.05)
    until(lambda: log.lost == 1)
    os.fstat(1)


# -- what is logged


def asked(number: int) -> Any:
    """An exchange, for a sample."""
    return SimpleNamespace(id=f"{number:032x}")


def test_a_sample_is_the_same_each_time(tmp_path: Path, logs: Callable[..., AccessLog]) -> None:
    log = logs(tmp_path / "a", sample=0.25)
    exchanges = [asked(number) for number in range(4000)]
    first = [log.wants(exchange) for exchange in exchanges]
    assert first == [log.wants(exchange) for exchange in exchanges]
    assert 850 < sum(first) < 1150
    log.sample = 0.5
    assert all(log.wants(exchange) for exchange, before in zip(exchanges, first, strict=True) if before)


@pytest.mark.parametrize(("sample", "expected"), [(0.0, 0), (1.0, 100)])
def test_a_sample_may_be_nothing_or_all(
    tmp_path: Path, logs: Callable[..., AccessLog], sample: float, expected: int
) -> None:
    log = logs(tmp_path / "a", sample=sample)
    assert sum(log.wants(asked(number)) for number in range(100)) == expected


def test_what_always_says_is_logged_whatever_the_sample_says(tmp_path: Path, logs: Callable[..., AccessLog]) -> None:
    log = logs(tmp_path / "a", sample=0.0, always=lambda exchange: exchange.id.endswith("7"))
    assert [number for number in range(16) if log.wants(asked(number))] == [7]


def test_a_condition_that_fails_costs_no_record(
    tmp_path: Path, logs: Callable[..., AccessLog], flush_errors: Callable[..., list[Any]]
) -> None:
    def always(exchange: object) -> bool:
        raise ConfigError("oops")

    log = logs(tmp_path / "a", sample=0.0, always=always)
    assert log.wants(asked(1))
    assert log.wants(asked(2))
    assert len(flush_errors(ConfigError)) == 1


def test_a_record_that_cannot_be_encoded_costs_no_other(
    tmp_path: Path, logs: Callable[..., AccessLog], flush_errors: Callable[..., list[Any]]
) -> None:
    file = tmp_path / "a"
    log = logs(file)
    log.write(line(1))
    log.write(line(2, host="\ud800"))
    log.write(line(3))
    log.close()
    assert ids(file.read_bytes()) == [1, 3]
    assert log.lost == 1
    assert len(flush_errors(UnicodeEncodeError)) == 1


def test_encoding_is_not_done_where_records_are_written(
    tmp_path: Path, logs: Callable[..., AccessLog], monkeypatch: pytest.MonkeyPatch
) -> None:
    threads: set[str] = set()

    def encode(made: Record) -> bytes:
        threads.add(threading.current_thread().name)
        return record.encode(made)

    monkeypatch.setattr(accesslog, "encode", encode)
    log = logs(tmp_path / "a")
    log.write(line(1))
    log.close()
    assert threads == {"protogate access log"}


# -- the end


@pytest_twisted.ensureDeferred
async def test_a_stop_waits_for_the_last_line(tmp_path: Path) -> None:
    file = tmp_path / "a"
    log = AccessLog(str(file))
    for number in range(5000):
        log.write(line(number))
    await log.stop()
    assert ids(file.read_bytes()) == list(range(5000))


@pytest_twisted.ensureDeferred
async def test_a_stop_gives_up_what_cannot_be_written() -> None:
    log = AccessLog("/dev/full", reactor=reactor)
    log.write(line(1))
    with capturedLogs() as events:
        await log.stop(0.05)
    assert log.lost == 1
    assert "could not be written" in events[-1]["log_format"]


def test_a_stop_does_not_wait_for_a_thread_that_is_stuck(
    logs: Callable[..., AccessLog], monkeypatch: pytest.MonkeyPatch
) -> None:
    class Reactor(Clock):
        def callFromThread(self, function: Callable[[], object]) -> None:
            called.append(function)

    called: list[Callable[[], object]] = []
    entered, leave = threading.Event(), threading.Event()

    def write(descriptor: int, data: Any) -> int:
        entered.set()
        assert leave.wait(WAIT)
        return len(data)

    monkeypatch.setattr(os, "write", write)
    clock = Reactor()
    log = logs(STDOUT, reactor=clock)
    log.write(line(1))
    assert entered.wait(WAIT)
    done: list[object] = []
    log.stop(1.0).addBoth(done.append)
    clock.advance(0.9)
    assert done == []
    clock.advance(0.2)
    assert done == [None]
    leave.set()
    log._thread.join(WAIT)
    assert called == []
    assert log.written == 1


def test_a_thread_that_fails_says_so(
    tmp_path: Path,
    logs: Callable[..., AccessLog],
    monkeypatch: pytest.MonkeyPatch,
    flush_errors: Callable[..., list[Any]],
) -> None:
    def stat(path: object) -> object:
        raise ValueError("on purpose")

    log = logs(tmp_path / "a")
    with monkeypatch.context() as patch:
        patch.setattr(os, "stat", stat)
        log._thread.join(WAIT)
    assert len(flush_errors(ValueError)) == 1
    log.write(line(1))


def test_what_is_written_at_once_to_a_pipe_stays_together() -> None:
    """Others may write to it, too.  A pipe of packets shows what was one write."""
    reads, writes = os.pipe2(os.O_DIRECT)
    log = AccessLog(f"/proc/self/fd/{writes}", descriptor=writes)
    lengths = (10, 3000, 1500, 2000, 6000, 10, 10, 3500)
    for number, length in enumerate(lengths):
        log.write(line(number, target="/" + "x" * length))
    until(lambda: log.written == len(lengths))
    log.close()
    packets: list[bytes] = []
    while packet := os.read(reads, 65536):
        packets.append(packet)
    os.close(reads)
    assert ids(b"".join(packets)) == list(range(len(lengths)))
    # 6000 bytes are too many for one packet, whatever we do: the kernel makes two of one write.
    assert [len(packet) <= accesslog.PIPE for packet in packets] == [True] * len(packets)
    assert sum(not packet.endswith(b"\n") for packet in packets) == 1
    assert len(packets) <= 7
