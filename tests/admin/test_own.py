"""What a gateway in one process shows of itself."""

from __future__ import annotations

from typing import Any

from protogate.admin.own import Own
from protogate.observe.snapshot import Snapshot
from protogate.testing.gateway import MemoryGateway
from protogate.testing.upstream import Do, Expect

CONFIG = """
listeners:
  - {name: web, address: "127.0.0.1:8080"}
  - {name: more, address: "127.0.0.1:8081"}
admin: {address: "127.0.0.1:9901"}
upstreams: [{name: shop, endpoints: [{url: "http://192.0.2.7:80"}]}]
routes: [{value: /, matcherType: prefix, routes: [{targets: [{upstream: shop}]}]}]
"""
GET = b"GET / HTTP/1.1\r\nHost: a.test\r\n\r\n"


def gauge(taken: Snapshot, kind: str, name: str) -> dict[str, Any]:
    return taken["gauges"][kind][name]


def test_connections_and_requests_are_those_of_now() -> None:
    with MemoryGateway(CONFIG) as gateway:
        gateway.upstream("192.0.2.7", 80, [Expect(b"\r\n\r\n"), Do.SILENCE])
        own = Own(gateway.service)
        idle, busy = gateway.client("web"), gateway.client("web")
        busy.send(GET)
        gateway.run()
        taken = own.snapshot()
        assert gauge(taken, "listener", "web") == {"connections": 2, "requests": 1, "paused": 0}
        assert gauge(taken, "listener", "more") == {"connections": 0, "requests": 0, "paused": 0}
        assert gauge(taken, "upstream", "shop") == {"connections": 1, "idle": 0, "waiting": 0}
        idle.close()
        busy.reset()
        gateway.run()
        taken = own.snapshot()
        assert gauge(taken, "listener", "web") == {"connections": 0, "requests": 0, "paused": 0}
        assert gauge(taken, "upstream", "shop")["connections"] == 0
        assert taken["counts"]["listener"]["web"]["connections_accepted"] == 2


def test_what_is_on_its_way_out_is_still_there() -> None:
    with MemoryGateway(CONFIG) as gateway:
        gateway.upstream("192.0.2.7", 80, [Expect(b"\r\n\r\n"), Do.SILENCE])
        client = gateway.client("more")
        client.send(GET)
        gateway.run()
        assert gateway.reload("\n".join(line for line in CONFIG.splitlines() if "name: more" not in line))
        assert gauge(Own(gateway.service).snapshot(), "listener", "more") == {
            "connections": 1,
            "requests": 1,
            "paused": 0,
        }
        client.reset()
        gateway.run()
        assert "more" not in Own(gateway.service).snapshot()["gauges"]["listener"]


def test_it_is_ready_between_its_start_and_its_stop() -> None:
    with MemoryGateway(CONFIG) as gateway:
        own = Own(gateway.service)
        assert own.unready() == ""
        ports, plan = gateway.service.ports.opened, gateway.service.plan
        gateway.service.ports.opened = {}
        assert own.unready() == "no port is open"
        gateway.service.ports.opened = ports
        gateway.service.plan = None  # type: ignore[assignment]
        assert own.unready() == "no configuration is in force yet"
        gateway.service.plan = plan
        gateway.service.running = 0
        assert own.unready() == "it stops: requests under way end"
        gateway.service.running = 1


def test_what_modules_have_right_now() -> None:
    modules = "modules: [{name: concurrencyLimit, actionParam: {limit: 3}}, {name: cache}]"
    with MemoryGateway(CONFIG + modules) as gateway:
        gateway.upstream("192.0.2.7", 80, [Expect(b"\r\n\r\n"), Do.SILENCE])
        client = gateway.client("web")
        client.send(GET)
        gateway.run()
        own = Own(gateway.service)
        assert own.snapshot()["gauges"]["module"] == {
            "concurrencyLimit": {"busy": 1, "waiting": 0},
            "cache": {"bytes": 0, "answers": 0},
        }
        client.reset()
        gateway.run()
        assert gauge(own.snapshot(), "module", "concurrencyLimit")["busy"] == 0


def test_what_the_breaker_of_an_upstream_lets_through() -> None:
    breaker = ", circuitBreaker: {scope: upstream, consecutive: 2, open: 5s}}]"
    with MemoryGateway(CONFIG.replace('192.0.2.7:80"}]}]', f'192.0.2.7:80"}}]{breaker}')) as gateway:
        own = Own(gateway.service)
        assert own.endpoints()["shop"]["*"] == {"share": 1.0, "held": {}}
        for _ in range(2):
            gateway.ask(GET)
        assert own.snapshot()["endpoints"]["shop"]["*"] == {"": 0.0, "circuitBreaker": 0.0}
        held = own.endpoints()["shop"]["*"]["held"]["circuitBreaker"]
        assert held == {"share": 0.0, "why": "2 failures in a row"}
        gateway.advance(5.2)
        assert own.snapshot()["endpoints"]["shop"] == {
            "192.0.2.7:80": {"": 1.0},
            "*": {"": 0.05, "circuitBreaker": 0.05},
        }


def test_what_is_left_to_endpoints_that_are_judged() -> None:
    check = ", healthCheck: {type: connect, interval: 1s, timeout: 1s, fall: 1, rise: 1}}]"
    with MemoryGateway(CONFIG) as gateway:
        own = Own(gateway.service)
        assert "endpoints" not in own.snapshot(), "nobody judges"
        assert gateway.reload(CONFIG.replace('192.0.2.7:80"}]}]', f'192.0.2.7:80"}}]{check}'))
        assert own.snapshot()["endpoints"] == {"shop": {"192.0.2.7:80": {"": 1.0}}}
        gateway.advance(1.2)
        assert own.snapshot()["endpoints"] == {"shop": {"192.0.2.7:80": {"": 0.0, "healthCheck": 0.0}}}
        why = own.endpoints()["shop"]["192.0.2.7:80"]["held"]["healthCheck"].pop("why")
        assert why.startswith("cannot connect to 192.0.2.7:80")
        told = {"shop": {"192.0.2.7:80": {"share": 0.0, "held": {"healthCheck": {"share": 0.0, "why": why}}}}}
        assert own.endpoints() == told
        gateway.upstream("192.0.2.7", 80, *[[Do.SILENCE]] * 9)
        gateway.advance(1.2)
        assert own.snapshot()["endpoints"] == {"shop": {"192.0.2.7:80": {"": 1.0}}}
