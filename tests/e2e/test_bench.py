"""
The benches that compare: each one in small, and whether what they say can be trusted.

Those with bounds of their own (bodies, idle, soak, reload) are run by test_soak.py.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import calls
import candidates
import compare
import growth
import handshakes
import hotspots
import identity
import inproc
import latency
import load
import memory
import modules
import probe
import releases
import report
import rows
import sotp_load
import steady
import ways
from neighbours import need
from others import nginx
from others.plan import Plan
from processes import Process, cells, free_port, stage
from protogate.interfaces import IModuleFactory
from protogate.message import Response
from protogate.plugins import names
from protogate_sotp import frames
from rows import Options

pytestmark = pytest.mark.unwatched

BENCH = Path(__file__).parent.parent.parent / "bench"
PROGRAMS = sorted(path for path in BENCH.glob("*.py") if "ArgumentParser" in path.read_text())
SMALL = Options(seconds=1, rounds=1, connections=8)
EPOLL = "protogate (epoll)"


@pytest.fixture
def rivals() -> None:
    """What every comparison needs."""
    for program in ("nginx", "wrk", "taskset"):
        need(program)
    if (os.cpu_count() or 1) < 2:
        pytest.skip("two cores are needed")


def few(**more: Any) -> Options:
    """nginx and protogate, in small."""
    return Options(**{"only": ("nginx", EPOLL), "seconds": 1.0, "rounds": 1, "connections": 8, **more})


# -- what is measured


ASK = """
import contextlib, io, json, runpy, sys

usages = {}
for program in sys.argv[1:]:
    sys.argv = [program, "--help"]
    with contextlib.redirect_stdout(io.StringIO()) as said, contextlib.suppress(SystemExit):
        runpy.run_path(program, run_name="__main__")
    usages[program] = said.getvalue()
print(json.dumps(usages))
"""


@pytest.fixture(scope="module")
def usages() -> dict[str, str]:
    """What each program says it takes; one process asks all, since what they import is dear, and the same."""
    done = subprocess.run(
        [sys.executable, "-c", ASK, *map(str, PROGRAMS)],
        env={**os.environ, "PYTHONPATH": str(BENCH)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    said: dict[str, str] = json.loads(done.stdout)
    return said


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda path: path.name)
def test_a_bench_says_what_it_takes(usages: dict[str, str], program: Path) -> None:
    assert usages[str(program)].startswith(f"usage: {program.name}")


@pytest.mark.usefixtures("rivals")
@pytest.mark.parametrize("governed", [False, True], ids=["plain", "governed"])
def test_every_candidate_does_all_that_is_compared(governed: bool) -> None:
    with stage() as (folder, processes):
        processes.append(up := candidates.upstream(folder))
        started = rows.line_up(folder, Plan(up.port, governed), SMALL, processes)
    assert {"nginx", EPOLL} <= set(started)


@pytest.mark.usefixtures("rivals")
@pytest.mark.parametrize(
    ("front", "back", "secure"),
    [("http1", "http1", True), ("http2", "http1", True), ("http2", "http2", False)],
    ids=["https", "http2", "grpc"],
)
def test_every_candidate_speaks_what_is_compared(front: str, back: str, secure: bool) -> None:
    with stage() as (folder, processes):
        processes.append(up := candidates.upstream(folder, back))
        plan = Plan(up.port, False, front, back, identity.made(folder) if secure else None)
        started = rows.line_up(folder, plan, SMALL, processes)
    assert "nginx" in started
    assert (EPOLL in started) is candidates.speaks(EPOLL, plan)


def test_a_candidate_that_does_not_speak_what_is_compared_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "protogate"
    program.write_text("#!/bin/sh\nprintf 'http1\\n  made by somebody\\nsotp\\n'\n")
    program.chmod(0o755)
    monkeypatch.setitem(candidates.BUILDS, "old", candidates.Build("old", program, "epoll"))  # type: ignore[misc]
    assert candidates.codecs(program) == {"http1", "sotp"}
    assert candidates.speaks("old", Plan(1, front="sotp"))
    assert not candidates.speaks("old", Plan(1, front="http2"))
    assert not candidates.speaks("nginx", Plan(1, back="sotp"))


@pytest.mark.usefixtures("rivals")
def test_a_candidate_that_agrees_to_another_protocol_is_not_compared() -> None:
    with stage() as (folder, processes):
        processes.append(up := candidates.upstream(folder))
        who = identity.made(folder)
        processes.append(process := candidates.available()["nginx"](folder, Plan(up.port, identity=who)))
        with pytest.raises(SystemExit, match="no application protocol"):
            candidates.check("nginx", process, Plan(up.port, front="http2", identity=who))


def test_what_was_started_ends_also_when_the_bench_is_ended(tmp_path: Path) -> None:
    script = tmp_path / "bench.py"
    script.write_text(
        "import sys, time\n"
        f"sys.path.insert(0, {str(BENCH)!r})\n"
        "from processes import Process, free_port, stage\n"
        "with stage() as (folder, processes):\n"
        "    port = free_port()\n"
        "    server = [sys.executable, '-m', 'http.server', '--bind', '127.0.0.1', str(port)]\n"
        "    processes.append(Process(server, '', port, folder / 'log'))\n"
        "    print(processes[0].child.pid, flush=True)\n"
        "    time.sleep(60)\n"
    )
    with subprocess.Popen([sys.executable, str(script)], stdout=subprocess.PIPE, text=True) as bench:
        assert bench.stdout is not None
        pid = int(bench.stdout.readline())
        assert Path(f"/proc/{pid}").exists()
        bench.terminate()
        assert bench.wait(20) == 1
    assert not Path(f"/proc/{pid}").exists()


@pytest.mark.usefixtures("rivals")
def test_a_candidate_that_does_less_is_not_compared() -> None:
    with stage() as (folder, processes):
        processes.append(up := candidates.upstream(folder))
        processes.append(process := candidates.available()["nginx"](folder, Plan(up.port)))
        candidates.check("nginx", process, Plan(up.port))
        with pytest.raises(SystemExit, match="a field that tells the time"):
            candidates.check("nginx", process, Plan(up.port, governed=True))


@pytest.mark.usefixtures("rivals")
@pytest.mark.parametrize("name", ["post", "huge", "https"])
def test_candidates_are_compared_request_by_request(name: str) -> None:
    table = rows.measure(name, few())
    head, *found = table.rows
    assert head[2] == "× nginx"
    assert [row[0] for row in found] == ["nginx", EPOLL]
    assert found[0][2] == "1.00"
    assert float(str(found[1][2])) > 0.05
    assert [row[-1] for row in found] == [0, 0]  # errors


@pytest.mark.usefixtures("rivals")
@pytest.mark.parametrize("name", ["handshakes", "resumptions"])
def test_connections_that_are_made_anew_are_compared(name: str) -> None:
    table = rows.measure(name, few(seconds=0.5))
    assert {row[0]: row[-1] for row in table.rows[1:]} == {"nginx": 0, EPOLL: 0}


@pytest.mark.usefixtures("rivals")
@pytest.mark.parametrize("name", ["http2both", "grpc"])
def test_requests_that_share_connections_are_compared(name: str) -> None:
    need("h2load")
    table = rows.measure(name, few())
    wanted = ["nginx", *([EPOLL] if candidates.speaks(EPOLL, Plan(1, front="http2")) else [])]
    assert [(row[0], row[-1]) for row in table.rows[1:]] == [(each, 0) for each in wanted]
    assert "1 connections with 8 requests each" in table.title


@pytest.mark.usefixtures("rivals")
def test_a_codec_is_compared_with_http1_on_either_side() -> None:
    table = ways.measure(few(only=(EPOLL,)), [("http1", "http1"), ("sotp", "sotp")])
    assert [row[:2] for row in table.rows[1:]] == [(EPOLL, "HTTP/1 → HTTP/1"), (EPOLL, "SOTP → SOTP")]
    assert table.rows[1][3] == "1.00"
    assert [row[-1] for row in table.rows[1:]] == [0, 0]


@pytest.mark.usefixtures("rivals")
def test_cost_is_told_by_number_of_modules() -> None:
    table = growth.measure("modules", few(), (0, 2))
    assert [row[0] for row in table.rows[1:]] == ["0", "2", "µs per module"]
    assert [row[-1] for row in table.rows[1:-1]] == [0, 0]


@pytest.mark.usefixtures("rivals")
def test_connections_are_counted_when_all_are_open() -> None:
    table = growth.measure("connections", few(), (20,))
    assert [row[0] for row in table.rows[1:]] == ["20", "µs for ten times as many"]
    assert table.rows[1][-1] == 0


@pytest.mark.usefixtures("rivals")
def test_latency_is_told_at_one_rate() -> None:
    table = latency.measure(few(seconds=0.5, rate=200.0))
    answers = {row[0]: (row[-2], row[-1]) for row in table.rows[1:]}
    assert answers == dict.fromkeys((latency.DIRECT, "nginx", EPOLL), ("100", 0))


@pytest.mark.usefixtures("rivals")
def test_memory_is_told_for_each_connection() -> None:
    table = memory.measure(few(seconds=0.2), 300)
    each = {row[0]: float(str(row[2]).removesuffix(" KiB")) for row in table.rows[1:]}
    assert set(each) == {"nginx", EPOLL}
    assert 0.5 < each[EPOLL] < 64


@pytest.mark.usefixtures("rivals")
def test_a_request_costs_two_reads_and_two_writes() -> None:
    need("strace")
    table = calls.measure(few())
    found = {row[0]: [float(str(cell)) for cell in row[1:3]] for row in table.rows[1:]}
    assert set(found) == {"nginx", EPOLL}
    for reads, writes in found.values():
        assert 2.0 <= reads < 2.5
        assert 2.0 <= writes < 3.0


def test_a_request_is_timed_without_kernel() -> None:
    found = inproc.times(list(inproc.ROWS), connections=4, requests=40, rounds=1)
    assert [row.name for row in found] == list(inproc.ROWS)
    assert all(0 < row.took < 0.1 for row in found)


@pytest.mark.parametrize("name", ["get", "http2", "http2both"])
def test_a_request_that_is_not_answered_is_no_figure(name: str) -> None:
    row = inproc.ready(name, 2, time.monotonic)
    row._origins.clear()
    with pytest.raises(SystemExit, match="a request was not answered"):
        row.turns(1)


def test_instructions_are_counted_for_each_request(tmp_path: Path) -> None:
    need("valgrind")
    kept = tmp_path / "callgrind.out"
    each = inproc.instructions("codecs", 4, 40, str(kept))
    assert 20_000 < each < 2_000_000
    # The whole profile has besides only what tells callgrind to begin and to end.
    match = re.search(r"^(?:summary|totals): (\d+)", kept.read_text(), re.MULTILINE)
    assert match is not None
    assert int(match[1]) == pytest.approx(40 * each, rel=0.5)


# -- the load at a fixed rate


@pytest.fixture
def slow() -> Iterator[int]:
    """A server that takes 20 ms for each request, one connection; its port."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            line, _ = server.accept()
            with line:
                while line.recv(4096):
                    time.sleep(0.02)
                    line.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")

        server.settimeout(10)
        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield int(server.getsockname()[1])
        thread.join()


def test_a_request_that_had_to_wait_is_timed_from_when_it_was_due(slow: int) -> None:
    asked = steady.Load(slow, "/", 1)
    asked.run(rate=100, seconds=0.5)
    asked.close()
    # 50 requests, due every 10 ms, take 20 ms each: the last one waits for half a second.
    assert len(asked.took) == 50
    assert asked.errors == 0
    assert asked.took == sorted(asked.took)
    assert asked.took[0] >= 0.02
    assert asked.took[-1] >= 0.5


def test_answers_that_are_none_are_errors() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            for _ in range(2):  # the connection, and the one in its place
                line, _ = server.accept()
                with line:
                    if line.recv(4096):
                        line.sendall(b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n")

        server.settimeout(10)
        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        asked = steady.Load(server.getsockname()[1], "/", 1)
        asked.run(rate=100, seconds=0.01)
        asked.close()
        thread.join()
    assert (asked.took, asked.errors) == ([], 1)


def test_quantiles() -> None:
    values = [float(value) for value in range(1000)]
    assert [steady.quantile(values, part) for part in (0.5, 0.99, 0.999, 1.0)] == [500, 990, 999, 999]
    assert steady.quantile([], 0.5) == 0.0


# -- the load that keeps account

WHOLE = b"HTTP/1.1 200 OK\r\nContent-Length: 200\r\n\r\n" + candidates.ANSWER.encode()


def played(answers: list[bytes]) -> releases.Account:
    """What our client's account is when each of its connections is answered so, and then closed."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(10)
        client = releases.Client(server.getsockname()[1], 1)
        for answer in answers:
            line, _ = server.accept()
            with line:
                assert line.recv(4096).startswith(b"GET ")
                line.sendall(answer)
                if answer is WHOLE:
                    assert line.recv(4096).startswith(b"GET ")
                    line.sendall(WHOLE.replace(b"OK\r\n", b"OK\r\nConnection: close\r\n"))
        client.over = True
    return client.stop()


def test_each_request_is_answered_or_lost() -> None:
    account = played([WHOLE, b"", WHOLE[:30], b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n", WHOLE])
    assert (account.answered, account.closed) == (4, 2)
    # One more may have been on its way when the server ended.
    for why in ("closed after 0 bytes", "closed after a part of the answer", "status 503"):
        assert account.lost[why] == 1, account
    assert account.asked == account.answered + account.lost.total()
    assert account.faults() == []


def test_a_request_of_which_nothing_is_known_is_a_fault_of_the_account() -> None:
    assert releases.Account(asked=3, answered=1).faults() == ["2 of 3 requests are neither answered nor lost"]


def test_losses_beyond_the_bound_are_faults() -> None:
    account = releases.Account(asked=12, answered=10, lost=Counter({"closed after 0 bytes": 2}), refused=1)
    figure = releases.Figure("reload", 1, 0.1, (100, 3), account)
    assert releases.judged(figure, 0) == [
        "2 requests lost, 0 may be",
        "1 connections could not be made",
        "wrk counts 3 errors, 0 may be",
    ]
    assert releases.judged(figure, 3) == ["1 connections could not be made"]


@pytest.mark.usefixtures("rivals")
def test_releases_lose_nothing_and_kills_only_what_a_worker_held() -> None:
    figures, faults = releases.run(reloads=1, upgrades=1, kills=1, connections=4, warm=0.3)
    assert faults == [], cells(releases.HEADINGS, *(figure.row() for figure in figures))
    assert [figure.name for figure in figures] == ["nothing", "reload", "upgrade", "kill of a worker"]
    assert all(figure.account.answered > 20 for figure in figures)


@pytest.mark.usefixtures("rivals")
def test_all_loads_offer_the_same_cryptography() -> None:
    need("h2load")
    with stage() as (folder, processes):
        who, port, log = identity.made(folder), free_port(), folder / "offered"
        server = f"""
            ssl_certificate {who.cert}; ssl_certificate_key {who.key}; ssl_protocols TLSv1.2 TLSv1.3;
            access_log {log} offered; location / {{ return 200 ok; }}
        """
        form = "log_format offered '$server_protocol $ssl_protocol $ssl_cipher $ssl_curve';"
        command = nginx.command(folder, "offered", port, server, form, listen="ssl http2")
        processes.append(up := Process(command, "", port, folder / "log"))
        load.ask(up, "/", 1, 2, identity=who)
        load.multiplexed(up, "/", 1, 1, 2, identity=who)
        told = set(log.read_text().splitlines())
        log.write_text("")
        load.anew(up, "/", 0.2, 1, False, who)
        anew = set(log.read_text().splitlines())
    assert told == {f"HTTP/{version} TLSv1.3 TLS_AES_128_GCM_SHA256 X25519" for version in ("1.1", "2.0")}
    assert anew == {"HTTP/1.1 TLSv1.3 TLS_AES_128_GCM_SHA256 X25519"}


# -- the loads that are programs of our own


@pytest.fixture
def secured(tmp_path: Path) -> Iterator[tuple[int, identity.Identity, ssl.SSLContext]]:
    """A server that answers one request on each connection; its port, certificate and context."""
    who = identity.made(tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(who.cert, who.key)
    over = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            while not over.is_set():
                line, _ = server.accept()
                with line, contextlib.suppress(OSError), context.wrap_socket(line, server_side=True) as spoken:
                    if b"/half" in spoken.recv(4096):
                        spoken.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 200\r\n\r\nhalf")
                    else:
                        spoken.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")

        server.settimeout(20)
        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        port = server.getsockname()[1]
        yield port, who, context
        over.set()
        socket.create_connection(("127.0.0.1", port), 5).close()
        thread.join()


def shaken(port: int, who: identity.Identity, path: str, resume: bool) -> handshakes.Account:
    """What one thread of the load does in half a second."""
    return handshakes.run(port, path, str(who.cert), resume, time.monotonic() + 0.5)


def test_handshakes_are_of_the_kind_that_is_wanted(secured: tuple[int, identity.Identity, ssl.SSLContext]) -> None:
    port, who, context = secured
    for resume in (True, False):
        account = shaken(port, who, "/", resume)
        assert account.answers > 2
        assert (account.other, account.errors.total()) == (0, 0)
    context.num_tickets = 0  # from here on nobody can resume
    account = shaken(port, who, "/", True)
    assert account.answers > 2
    assert account.other == account.answers - 1


def test_an_answer_that_is_not_whole_is_none(secured: tuple[int, identity.Identity, ssl.SSLContext]) -> None:
    port, who, _ = secured
    account = shaken(port, who, "/half", False)
    assert account.answers == 0
    assert set(account.errors) == {"a part of an answer"}


def test_answers_of_sotp_that_are_not_well_are_errors() -> None:
    bad, given_up = 18, frames.cancel(5, 4)  # BAD_GATEWAY, INTERNAL
    answers = (
        frames.frame(frames.RESPONSE, frames.END, 1, bytes(10))
        + frames.frame(frames.RESPONSE, frames.END, 3, bytes([0, bad, *bytes(8)]))
        + given_up
    )
    with socket.create_server(("127.0.0.1", 0)) as server:
        link = sotp_load.Link(server.getsockname()[1], probe.get("GET", "/"), 3)
        line, _ = server.accept()
        with line:
            line.sendall(sotp_load.HELLO.pack() + answers)
            while link.answers + link.errors < 3:
                link.read()
            reader, asked = frames.Reader(sotp_load.HELLO.sizes), list[int]()
            while len(asked) < 6:
                asked += [stream for kind, _, stream, _ in reader.feed(line.recv(65536)) if kind == frames.REQUEST]
        assert (link.answers, link.errors) == (1, 2)
        assert asked == [1, 3, 5, 7, 9, 11]  # one anew for each that has ended
        with pytest.raises(SystemExit, match="closed"):
            link.read()
        link.socket.close()


def test_the_upstream_of_sotp_keeps_to_its_credit() -> None:
    with stage() as (folder, processes):
        processes.append(up := candidates.upstream(folder, "sotp"))
        room = frames.LEAST.total // len(candidates.ANSWER)
        with socket.create_connection(("127.0.0.1", up.port), 10) as line:
            request = probe.get("GET", "/")
            asks = [frames.frame(frames.REQUEST, frames.END, 2 * at + 1, request) for at in range(room + 1)]
            line.sendall(frames.LEAST.pack() + b"".join(asks))
            reader, seen = frames.Reader(frames.Hello().sizes), Counter[tuple[int, int]]()

            def until(kind: int, flags: int, count: int) -> None:
                while seen[kind, flags] < count:
                    seen.update((found, had) for found, had, *_ in reader.feed(line.recv(65536)))

            until(frames.DATA, frames.END, room)
            line.sendall(frames.frame(frames.PING, 0, 0, b"any more"))
            until(frames.PONG, 0, 1)
            assert seen[frames.DATA, frames.END] == room
            line.sendall(frames.credited(0, len(candidates.ANSWER)))
            until(frames.DATA, frames.END, room + 1)


# -- what other programs say

WRK = """Running 1s test @ http://127.0.0.1:1/
  1 threads and 8 connections
  Thread Stats   Avg      Stdev     Max   +/- Stdev
    Latency     1.60ms    1.34ms  11.28ms   90.12%
  5421 requests in 1.10s, 1.50GB read
{}Requests/sec:   4927.15
"""


def test_what_wrk_says_is_understood() -> None:
    assert load.counted(WRK.format("")) == (5421, 0)
    socket_errors = "  Socket errors: connect 1, read 2, write 3, timeout 4\n"
    assert load.counted(WRK.format(socket_errors + "  Non-2xx or 3xx responses: 100\n")) == (5421, 110)
    assert load.counted(WRK.format(""), size=1 << 20) == (1536, 0)
    slow = "  0 requests in 1.04s, 64.00MB read\n"
    assert [load.counted(slow, size)[0] for size in (0, 16 << 20, 128 << 20)] == [0, 4, 0]
    assert load.counted("unable to connect to 127.0.0.1:1 Connection refused") == (0, 0)


H2LOAD = """starting benchmark...
finished in {}, 24514.00 req/s, 6.53MB/s
requests: 24600 total, 24640 started, 24600 done, 24514 succeeded, 86 failed, 6 errored, 2 timeout
status codes: 24514 2xx, 0 3xx, 0 4xx, 80 5xx
"""


def test_what_h2load_says_is_understood() -> None:
    assert load.counted_streams(H2LOAD.format("1.25s")) == (24514, 88, 1.25)
    assert load.counted_streams(H2LOAD.format("950.10ms")) == (24514, 88, pytest.approx(0.9501))
    assert load.counted_streams("failed to resolve remote address") == (0, 0, 0)


def test_what_programs_of_our_own_say_is_understood() -> None:
    assert load.told('{"seconds": 2.5, "answers": 10, "other": 2, "errors": 3, "why": "x"}') == (10, 5, 2.5)
    assert load.told("") == (0, 0, 0)


def test_what_strace_says_is_understood() -> None:
    text = """% time     seconds  usecs/call     calls    errors syscall
------ ----------- ----------- --------- --------- ----------------
 50.13    0.024931           9      2560           sendto
 48.52    0.024130           9      2600        40 recvfrom
  1.20    0.000012           9       320           futex
------ ----------- ----------- --------- --------- ----------------
100.00    0.049733           9      5480        40 total
"""
    found = calls.parsed(text)
    assert found == Counter(sendto=2560, recvfrom=2600, futex=320)
    assert calls.row(found, 1280) == ("2.03", "2.00", "0.25", "0.00", "–")


def test_what_profilers_say_is_understood() -> None:
    parts, symbols = hotspots.objects(
        "        7f35d5b36ac0 _PyEval_EvalFrameDefault+0x10 (/usr/lib/libpython3.11.so.1.0)\n"
        "        ffffffff81e00 tcp_sendmsg_locked+0x33 ([kernel.kallsyms])\n"
        "        7f35d5b36ac1 [unknown] (/usr/lib/libpython3.11.so.1.0)\n"
    )
    assert parts == Counter({"libpython3.11.so.1.0": 2, "kernel": 1})
    assert symbols["tcp_sendmsg_locked (kernel)"] == 1
    root = BENCH.parent
    own, within, files = hotspots.functions(
        f"run (/x/site-packages/twisted/internet/base.py:1);loop ({root}/codecs/protogate_http/stream1.py:7) 3\n"
        "run (/x/site-packages/twisted/internet/base.py:2) 2\n"
        "Thread.run (threading.py:1002);Condition.wait (threading.py:331) 40\n"
    )
    assert own == Counter({"loop (protogate_http/stream1.py)": 3, "run (twisted/internet/base.py)": 2})
    assert within["run (twisted/internet/base.py)"] == 5
    assert files == Counter({"protogate_http/stream1.py": 3, "twisted/internet/base.py": 2})


# -- what is told


def test_a_slope_is_that_of_the_nearest_line() -> None:
    assert growth.slope([0, 1, 5, 10], [80, 81.5, 87.5, 95]) == pytest.approx(1.5)
    assert growth.slope([3], [80]) == 0.0


def test_ratios_are_those_of_medians() -> None:
    found = {"nginx": [10.0, 12.0, 90.0], "envoy": [24.0], "other": [6.0]}
    assert report.bases(list(found)) == ["nginx", "envoy"]
    assert report.bases(["other", "more"]) == ["other"]
    ratio = report.ratios(found, ["nginx", "envoy"])
    assert ratio("other") == ("0.50", "0.25")
    assert report.spread(found["nginx"]) == "12.0 (10.0–90.0)"


def test_only_what_stands_between_marks_is_replaced(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("prose\n<!-- begin get -->\nold\n<!-- end get -->\nmore prose\n")
    report.write(page, {"get": "| new |\n"})
    assert page.read_text() == "prose\n<!-- begin get -->\n\n| new |\n\n<!-- end get -->\nmore prose\n"
    report.write(page, {"get": "| newer |"})
    assert page.read_text() == "prose\n<!-- begin get -->\n\n| newer |\n\n<!-- end get -->\nmore prose\n"
    with pytest.raises(SystemExit, match="begin post"):
        report.write(page, {"get": "| lost |", "post": "| lost |"})
    assert "lost" not in page.read_text()


def test_the_page_has_a_place_for_every_row() -> None:
    text = (BENCH.parent / "docs/performance.md").read_text()
    wanted = sorted(["machine", *compare.ROWS])
    for mark in ("begin", "end"):
        assert sorted(re.findall(rf"<!-- {mark} (\w+) -->", text)) == wanted


def test_each_module_is_measured_off_and_on_and_makes_no_deferred_while_nothing_waits() -> None:
    table, chain = modules.measure(sorted(modules.SETTINGS), exchanges=5, rounds=12)  # others may spoil some
    titles, *rows = table.rows
    assert titles == ("module", "off", "on", "Deferreds", "")
    assert [row[0] for row in rows] == [*sorted(modules.SETTINGS), "a chain of ten", "a chain of ten, in a gateway"]
    assert {row[0] for row in rows[:-1] if row[3] != "0"} <= {"cache"}  # for those who may want the same meanwhile
    assert chain > 0
    assert {setting.module or name for name, setting in modules.SETTINGS.items()} == set(names(IModuleFactory))


def test_what_is_kept_is_answered() -> None:
    row = "cache: a hit"
    one = modules.Chain([modules.entry(row, Path())], modules.SETTINGS[row])
    one.warm()
    ((made, _),) = one.exchanges(1)
    answer = modules.run(one.before[0], made)
    assert isinstance(answer, Response)
    assert answer.headers.get(b"age") is not None
