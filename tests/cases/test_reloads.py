"""Another configuration under traffic: what is under way ends as it began, what did not change stays, nothing leaks."""

from __future__ import annotations

import gc
import json
import os
import subprocess
import sys
import time
import weakref
from pathlib import Path
from statistics import median

import pytest
from edge import (
    GET,
    HOST,
    OK,
    PORT,
    SCRIPT,
    answer,
    answers,
    config,
    counted,
    fetch,
    heads,
    known,
    logged,
    module,
    rule,
    to,
)

from protogate.observe.accesslog import STOP
from protogate.testing.gateway import MemoryGateway
from protogate.testing.upstream import Do, Expect, Upstream

WS = (
    b"GET /a/ws HTTP/1.1\r\nHost: a.test\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
    b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
)
SWITCHED = (
    b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
    b"Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n"
)
POST = b"POST /a HTTP/1.1\r\nHost: a.test\r\nContent-Length: %d\r\n\r\n"
SIZED = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n"
OTHER = {"name": "other", "endpoints": [{"url": "http://192.0.2.8"}]}


def stamped(text: str, **other):
    """A configuration whose answers say which one they followed."""
    return config(modules=[module("addResponseHeader", **{"x-version": text})], **other)


def test_a_websocket_survives_whatever_else_changes():
    both = [rule("/a"), rule("/b", routes=to("other"))]
    with MemoryGateway(config(both, upstreams=[OTHER])) as gateway:
        origin = gateway.upstream(HOST, PORT, [Expect(b"\r\n\r\n"), SWITCHED, Do.SILENCE])
        client = gateway.client()
        client.send(WS)
        gateway.run()
        assert answer(client.take()).status == 101
        changes = [
            config([rule("/a"), rule("/c", routes=to("other"))], upstreams=[OTHER]),
            config([rule("/a")]),
            config([rule("/b")], [module("respond", "PRE_REQUEST", status=503)]),
            config(both, upstreams=[OTHER], limits={"body": "1KiB"}, timeouts={"clientStall": "1s", "total": "1s"}),
            config([rule("/b")], limits={"connections": 1}),
        ]
        for number, change in enumerate(changes):
            assert gateway.reload(change)
            client.send(b"ping %d" % number)
            gateway.run()
            assert origin.connections[0].received.endswith(b"ping %d" % number)
            origin.connections[0].send(b"pong %d" % number)
            gateway.advance(20)
            assert client.take() == b"pong %d" % number
        assert not gateway.records
        origin.connections[0].close()
        gateway.run()
        client.close()
        gateway.run()
        assert gateway.records[0].status == 101


def test_what_flows_ends_by_the_rules_it_began_with():
    with MemoryGateway(stamped("old", limits={"body": "1MiB"})) as gateway:
        origin = gateway.upstream(HOST, PORT, [Expect(b"\r\n\r\n")])
        down, up = gateway.client(), gateway.client()
        down.send(GET % b"/down")
        up.send(POST % 1000 + b"x" * 500)
        gateway.run()
        download, upload = origin.connections
        download.send(SIZED % 10 + b"12345")
        gateway.run()
        assert gateway.reload(
            stamped(
                "new",
                limits={"body": "100B"},
                timeouts={"clientStall": "1s", "responseStall": "1s", "responseHead": "1s"},
            )
        )
        gateway.advance(10)  # under clocks that would have ended both
        up.send(b"x" * 500)
        gateway.run()
        assert upload.received.endswith(b"x" * 1000)
        gateway.advance(10)
        upload.send(OK)
        download.send(b"67890")
        gateway.run()
        for client, body in ((down, b"1234567890"), (up, b"ok")):
            got = answer(client.take())
            assert (got.status, got.body, got.whole, got["x-version"]) == (200, body, True, "old")
        up.send(POST % 101)  # the same connection, by the new rules
        gateway.run()
        got = answer(up.take())
        assert (got.status, got["x-version"]) == (413, "new")
        assert [each.error for each in gateway.records[:2]] == ["", ""]
        for each in (down, up):
            each.close()
        gateway.run()


def test_every_request_sees_the_old_or_the_new_rules_and_never_some_of_each():
    def made(number):
        text = str(number)
        return config(
            [rule("/", name=text, routes=to(f"up{text}"))],
            [module("addResponseHeader", **{"x-version": text, "x-route": "${route.name}"})],
            [{"name": f"up{text}", "endpoints": [{"url": f"http://192.0.2.{100 + number % 2}"}]}],
        )

    with MemoryGateway(made(0)) as gateway:
        for last in (100, 101):
            gateway.upstream(f"192.0.2.{last}", 80, [Expect(b"\r\n\r\n"), SIZED % 3 + b"%d" % last])
        client, seen = gateway.client(), []
        for number in range(1, 20):
            gateway.write(made(number))
            gateway.service.reload()
            for _ in range(12):  # some before, some while, some after
                client.send(GET % b"/")
                gateway.reactor.run(rounds=2)
            gateway.run()
            for got in answers(client.take()):
                assert got["x-version"] == got["x-route"]
                assert got.body == b"%d" % (100 + int(got["x-version"]) % 2)
                seen.append(int(got["x-version"]))
        assert seen == sorted(seen)
        assert set(seen) >= set(range(1, 20))
        assert len(seen) == 19 * 12
        client.close()
        gateway.run()


# -- faults


def _bad():
    good = config()
    unknown = config([rule(routes=to("nobody"))])
    module_fault = config(modules=[module("accessList", deny=["10.0.0.0/99"])])
    raising = config(modules=[module("nonsense")])
    taken = {
        **good,
        "listeners": [
            *good["listeners"],
            {"name": "more", "address": "192.0.2.50:81"},
            {"name": "ok", "address": "127.0.0.1:9999"},
        ],
    }
    return {
        "no YAML": ("gateway: {name: [\n", "gateway.yaml"),
        "not a mapping": ("- 1\n", "gateway.yaml"),
        "empty": ("", "gateway.yaml"),
        "unknown upstream": (unknown, "nobody"),
        "module": (module_fault, "10.0.0.0/99"),
        "unknown module": (raising, "nonsense"),
        "port in use": (taken, "192.0.2.50:81"),
        "no listeners": ({**good, "listeners": []}, "listeners"),
        "unwritable log": ({**good, "accessLog": {"file": "/nonexistent/dir/access.log"}}, "accessLog"),
    }


BAD = _bad()


@pytest.mark.parametrize("name", BAD)
def test_a_configuration_with_faults_changes_nothing(name):
    source, told = BAD[name]
    with MemoryGateway(stamped("old")) as gateway:
        gateway.upstream(HOST, PORT, SCRIPT)
        gateway.reactor.listenTCP(81, Upstream(), interface="192.0.2.50")
        plan, ports = gateway.service.plan, set(gateway.reactor.ports)
        busy = gateway.client()
        busy.send(GET % b"/")
        with logged() as lines:
            assert not gateway.reload(source)
        text = "\n".join(lines)
        assert told in text
        assert "stays" in text
        assert gateway.service.plan is plan
        assert set(gateway.reactor.ports) == ports
        assert counted(gateway) == {"reload_failed": 1}
        assert answer(busy.received)["x-version"] == "old"
        assert fetch(gateway)["x-version"] == "old"
        assert gateway.reload(stamped("new"))
        assert fetch(gateway)["x-version"] == "new"
        busy.close()
        gateway.run()


def test_who_asks_for_a_reload_while_another_one_reads_is_told_of_the_file_as_it_is_by_then():
    with MemoryGateway(config()) as gateway:
        told = []
        gateway.write(stamped("${"))
        gateway.service.reload().addCallback(lambda done: told.append(("first", done)))
        gateway.reactor.run(rounds=1)
        gateway.write(stamped("new"))
        for name in ("second", "third"):
            gateway.service.reload().addCallback(lambda done, name=name: told.append((name, done)))
        assert not told, "the file was read, and its faults are not told yet"
        gateway.run()
        assert told == [("first", False), ("second", True), ("third", True)]
        assert gateway.service.reloads == 1


# -- listeners


def listeners(*names, **other):
    made = config(**other)
    made["listeners"] = [{"name": name, "address": f"127.0.0.1:{8080 + int(name)}"} for name in names]
    return made


def test_a_removed_listener_lets_requests_end_and_closes_what_is_idle():
    with MemoryGateway(listeners("1", "2", drain="10s")) as gateway:
        origin = gateway.upstream(HOST, PORT, [Expect(b"\r\n\r\n")])
        idle, busy, stuck, stays = (gateway.client(name) for name in "2221")
        for each in (busy, stuck):
            each.send(GET % b"/")
            gateway.run()
        stayed = gateway.reactor.ports[("127.0.0.1", 8081)]
        assert gateway.reload(listeners("1", drain="10s"))
        assert set(gateway.reactor.ports) == {("127.0.0.1", 8081), (HOST, PORT)}
        assert gateway.reactor.ports[("127.0.0.1", 8081)] is stayed, "it was not bound anew"
        assert not idle.eof, "a request may be on its way"
        gateway.advance(5)
        assert idle.eof
        assert not busy.eof
        assert not stays.eof
        origin.connections[0].send(OK)
        gateway.run()
        got = answer(busy.received)
        assert (got.status, got["connection"]) == (200, "close")
        assert busy.eof
        gateway.advance(4.9)
        assert stuck.lost is None
        gateway.advance(0.3)
        assert stuck.lost is not None, "the time for draining is over"
        assert stuck.received == b""
        assert [each.status for each in gateway.records] == [200, 503]
        assert gateway.records[1].who == "gateway", "it was not the client that left"
        assert not stays.eof
        stays.close()
        gateway.run()


def test_an_added_listener_is_open_and_a_renamed_one_goes_on():
    with MemoryGateway(listeners("1")) as gateway:
        gateway.upstream(HOST, PORT, SCRIPT)
        client = gateway.client()
        new = listeners("1", "2")
        new["listeners"][0]["name"] = "first"
        assert gateway.reload(new)
        assert fetch(gateway, listener="2").status == 200
        client.send(GET % b"/")
        gateway.run()
        assert answer(client.received).status == 200
        assert [each.listener for each in gateway.records] == ["2", "first"]
        client.close()
        gateway.run()


# -- upstreams


def endpoints(*last, **other):
    return config(origin={"endpoints": [{"url": f"http://192.0.2.{each}"} for each in last]}, **other)


def test_a_removed_endpoint_gets_nothing_new_and_finishes_what_it_has():
    with MemoryGateway(endpoints(1, 2)) as gateway:
        one = gateway.upstream("192.0.2.1", 80, [Expect(b"\r\n\r\n")])
        two = gateway.upstream("192.0.2.2", 80, [Expect(b"\r\n\r\n")])
        clients = [gateway.client() for _ in range(6)]
        for each in clients:
            each.send(GET % b"/")
        gateway.run()
        assert (len(one.connections), len(two.connections)) == (3, 3)
        for each in (*one.connections, *two.connections[1:]):
            each.send(OK)
        two.connections[0].send(SIZED % 10 + b"12345")
        gateway.run()
        kept = list(one.connections)
        assert gateway.reload(endpoints(1))
        assert [each.eof for each in two.connections] == [False, True, True], "idle ones are closed at once"
        assert not any(each.eof for each in kept), "and those of the other stay"
        for each in clients:
            if each.received.endswith(b"12345"):
                continue
            each.take()
            each.send(GET % b"/")
        gateway.run()
        assert len(two.connections) == 3
        assert sum(len(heads(each)) for each in two.connections) == 3
        for each in one.connections:
            each.send(OK)
        two.connections[0].send(b"67890")
        gateway.run()
        assert two.connections[0].eof
        assert sorted(answer(each.received).body for each in clients) == [b"1234567890"] + [b"ok"] * 5
        for each in clients:
            each.close()
        gateway.run()


def test_upstreams_that_did_not_change_keep_their_connections_and_new_rules_use_them():
    with MemoryGateway(config()) as gateway:
        origin = gateway.upstream(HOST, PORT, SCRIPT)
        for number in range(5):
            assert fetch(gateway, f"/{number}").status == 200
            assert gateway.reload(stamped(str(number), limits={"body": f"{number + 1}MiB"}))
        assert len(origin.connections) == 1


def test_a_removed_upstream_closes_its_connections_after_a_while():
    with MemoryGateway(config([rule("/", routes=to("other"))], upstreams=[OTHER])) as gateway:
        other = gateway.upstream("192.0.2.8", 80, SCRIPT)
        assert fetch(gateway).status == 200
        assert gateway.reload(config())
        gateway.advance(6)
        assert other.connections[0].eof


# -- memory


@pytest.mark.interpreted(reason="has a weak reference to a compiled Router")
def test_the_old_plan_goes_with_its_last_exchange():
    with MemoryGateway(config()) as gateway:
        origin = gateway.upstream(HOST, PORT, [Expect(b"\r\n\r\n")])
        client = gateway.client()
        client.send(GET % b"/")
        gateway.run()
        gc.collect()
        gc.disable()
        try:
            life, router = weakref.ref(gateway.service.plan.life), weakref.ref(gateway.service.plan.router)
            first = gateway.service.built.router.rules[0]
            assert gateway.reload(stamped("new"))
            assert life() is not None, "somebody follows it"
            origin.connections[0].send(OK)
            gateway.run()
            assert answer(client.received).status == 200
            assert life() is None
            assert router() is None
            assert sys.getrefcount(first) == 2, "nothing else has the rules, not even garbage"
            assert not gateway.service._old
        finally:
            gc.enable()
        client.close()
        gateway.run()


def test_a_hundred_reloads_leak_nothing():
    with MemoryGateway(stamped("0")) as gateway:
        gateway.upstream(HOST, PORT, SCRIPT)
        other = gateway.upstream("192.0.2.8", 80, SCRIPT)
        service = gateway.service

        def turn(number):
            named = {"name": f"up{number}", "endpoints": [{"url": "http://192.0.2.8"}]}
            made = config(
                [rule("/", routes=to(f"up{number}")), rule("/x", "regex" if number % 2 else "exact")],
                [module("addResponseHeader", **{"x-version": "${route.name}" + str(number)})],
                [named],
            )
            made["listeners"].append({"name": f"l{number}", "address": f"127.0.0.1:{9000 + number}"})
            assert gateway.reload(made)
            assert not gateway.reload(config([rule(routes=to("nobody"))]))
            assert fetch(gateway, listener=f"l{number}").status == 200
            gateway.advance(6)
            *gone, last = other.connections
            for each in gone:
                assert each.eof, "its upstream is gone from the configuration"
                each.close()
            gateway.run()
            other.connections[:] = [last]
            gateway.reactor.links.clear()
            gateway.records.clear()

        def size():
            gc.unfreeze()
            gc.collect()
            return len(gc.get_objects())

        for number in range(10):
            turn(number)
        objects, timers, links = size(), known(service.wheel), len(gateway.reactor.net.links)
        scopes = len(service.counters._scopes)
        for number in range(10, 110):
            turn(number)
        assert size() - objects < 300, "three objects a reload would be a leak"
        assert known(service.wheel) <= timers + 2
        assert len(gateway.reactor.net.links) <= links
        assert len(service.counters._scopes) == scopes
        assert not service.clusters.leaving
        assert not service.ports.retired
        assert not service._old
        gc.freeze()


def test_a_reload_that_fails_does_not_wait_for_the_log_that_it_opened(tmp_path):
    log = tmp_path / "log"
    os.mkfifo(log)
    with MemoryGateway(config()) as gateway:
        gateway.upstream(HOST, PORT, SCRIPT)
        new = config()
        new["accessLog"] = {"file": str(log)}
        new["listeners"].append({"name": "taken", "address": f"{HOST}:{PORT}"})
        began = time.monotonic()
        assert not gateway.reload(new)
        assert time.monotonic() - began < STOP / 2
        assert fetch(gateway).status == 200


# -- the end


def test_stopping_lets_requests_end_closes_what_is_idle_and_aborts_at_the_deadline():
    with MemoryGateway(config(drain="10s")) as gateway:
        origin = gateway.upstream(HOST, PORT, [Expect(b"\r\n\r\n")])
        idle, quick, slow = (gateway.client() for _ in range(3))
        quick.send(GET % b"/quick")
        gateway.run()
        slow.send(GET % b"/slow")
        gateway.run()
        stopped = []
        gateway.service.stopService().addCallback(stopped.append)
        gateway.run()
        assert set(gateway.reactor.ports) == {(HOST, PORT)}
        assert not idle.eof, "a request may be on its way"
        assert not stopped
        origin.connections[0].send(OK)
        gateway.advance(1)
        got = answer(quick.received)
        assert (got.status, got["connection"]) == (200, "close")
        origin.connections[1].send(SIZED % 10 + b"12345")
        gateway.advance(8.9)
        assert idle.eof
        assert slow.lost is None
        gateway.advance(0.3)
        assert slow.lost is not None
        assert not answer(slow.received).whole
        quick.close()
        idle.close()
        gateway.advance(1)
        assert stopped
        assert all(each.eof for each in origin.connections)
        assert [each.status for each in gateway.records] == [200, 200]
        assert not gateway.reactor.getDelayedCalls()
        gateway._folder.cleanup()


def test_the_deadline_of_a_stop_is_for_what_an_earlier_configuration_gave_more_time_too():
    with MemoryGateway(listeners("1", "2", drain="100s")) as gateway:
        gateway.upstream(HOST, PORT, [Expect(b"\r\n\r\n")])
        stuck = gateway.client("2")
        stuck.send(GET % b"/")
        gateway.run()
        assert gateway.reload(listeners("1", drain="100s"))
        assert gateway.reload(listeners("1", drain="10s"))
        stopped = []
        gateway.service.stopService().addCallback(stopped.append)
        gateway.advance(9.9)
        assert stuck.lost is None
        gateway.advance(0.3)
        assert stuck.lost is not None
        assert stopped
        assert not gateway.reactor.getDelayedCalls()
        gateway._folder.cleanup()


def test_stopping_while_nothing_happens_takes_no_time():
    with MemoryGateway(config(drain="100s")) as gateway:
        gateway.upstream(HOST, PORT, SCRIPT)
        fetch(gateway)
        stopped = []
        gateway.service.stopService().addCallback(stopped.append)
        gateway.run()
        assert stopped
        gateway._folder.cleanup()


# -- the loop


def test_the_loop_goes_on_while_a_large_configuration_is_loaded():
    """20 ms are promised; what any machine can show is that the loop is never away for more than a small share."""
    done = subprocess.run(
        [sys.executable, str(Path(__file__).with_name("loop_gap.py")), "3000", "3"],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    found = json.loads(done.stdout)
    assert [each["done"] for each in found] == [True, True, False], done.stdout
    shares = [each["cpu"] / each["seconds"] for each in found]
    assert median(shares) < 1 / 20, done.stdout
    assert shares[2] < 1 / 10, f"faults: {done.stdout}"
