"""Who asks, and for which host: everybody in the gateway and behind it hears the same."""

from __future__ import annotations

import pytest
from edge import HOST, PORT, SCRIPT, answer, answers, config, fetch, fields, heads, installed, module, rule, to

from protogate.testing.gateway import MemoryGateway

PROXY, STRANGER = ("10.0.0.5", 4000), ("203.0.113.66", 4001)
TRUSTED = {"trustedProxies": ["10.0.0.0/8", "2001:db8:1::/48"]}


@pytest.fixture
def seen():
    """Address, host and scheme that modules saw."""
    found = []

    def spy(exchange):
        found.append((exchange.source.ip, exchange.request.host, exchange.request.scheme))

    with installed(spy=spy):
        yield found


def told(gateway, origin, address, *lines):
    """Ask from that address; the fields that the origin got."""
    assert fetch(gateway, "/", *lines, address=address).status == 200
    return fields(heads(origin.connections[-1])[-1])


XFF = [
    # of the client; the address that counts, and what the upstream is told
    ((), "10.0.0.5", "10.0.0.5"),
    ((b"198.51.100.9",), "198.51.100.9", "198.51.100.9, 10.0.0.5"),
    ((b"10.0.0.1, 198.51.100.9",), "198.51.100.9", "198.51.100.9, 10.0.0.5"),
    ((b"127.0.0.1, 198.51.100.9, 10.9.9.9",), "198.51.100.9", "198.51.100.9, 10.9.9.9, 10.0.0.5"),
    ((b"6.6.6.6", b"198.51.100.9"), "198.51.100.9", "198.51.100.9, 10.0.0.5"),
    ((b"198.51.100.9:1234",), "198.51.100.9", "198.51.100.9, 10.0.0.5"),
    ((b"[2001:DB8:2::0001]:80",), "2001:db8:2::1", "2001:db8:2::1, 10.0.0.5"),
    ((b"::ffff:198.51.100.9",), "198.51.100.9", "198.51.100.9, 10.0.0.5"),
    ((b"not-an-ip, 198.51.100.9",), "198.51.100.9", "198.51.100.9, 10.0.0.5"),
    ((b"198.51.100.9, not-an-ip",), "10.0.0.5", "10.0.0.5"),
    ((b"198.51.100.9, ",), "10.0.0.5", "10.0.0.5"),
    ((b"198.51.100.9, 010.0.0.1",), "10.0.0.5", "10.0.0.5"),
    ((b"198.51.100.9, not-an-ip, 10.1.1.1",), "10.1.1.1", "10.1.1.1, 10.0.0.5"),
    ((b"10.1.1.1, 10.2.2.2",), "10.1.1.1", "10.1.1.1, 10.2.2.2, 10.0.0.5"),
    ((b'"198.51.100.9',), "10.0.0.5", "10.0.0.5"),
    ((b"198.51.100.9%eth0",), "10.0.0.5", "10.0.0.5"),
]


def test_addresses_are_believed_from_the_right_and_only_from_proxies(seen):
    guard = module("accessList", "PRE_REQUEST", deny=["6.6.6.6", "127.0.0.0/8"])
    with MemoryGateway(config(modules=[guard, module("spy", "PRE_UPSTREAM")], **TRUSTED)) as gateway:
        origin = gateway.upstream(HOST, PORT, SCRIPT)
        for lines, ip, chain in XFF:
            got = told(gateway, origin, PROXY, *(b"X-Forwarded-For: " + line for line in lines))
            assert seen.pop()[0] == ip, lines
            assert got["x-forwarded-for"] == [chain]
            assert gateway.records[-1].client == ip
            assert gateway.records[-1].peer == ("" if ip == PROXY[0] else PROXY[0])
        for lines, _, _ in XFF:  # the same from a stranger: nothing of it counts
            sent = [b"X-Forwarded-For: " + line for line in lines]
            got = told(gateway, origin, STRANGER, *sent, b"X-Real-IP: 10.0.0.1", b"X-Forwarded-Proto: https")
            assert seen.pop() == ("203.0.113.66", "a.test", b"http")
            assert got["x-forwarded-for"] == ["203.0.113.66"]
            assert got["x-forwarded-proto"] == ["http"]
            assert "x-real-ip" not in got
        assert fetch(gateway, "/", b"X-Forwarded-For: 6.6.6.6", address=PROXY).status == 403
        assert fetch(gateway, "/", b"X-Forwarded-For: 6.6.6.6", address=STRANGER).status == 200
        assert fetch(gateway, "/", address=("6.6.6.6", 1)).status == 403


FORWARDED = [
    (b"for=198.51.100.9", "198.51.100.9"),
    (b'for=injected;by=", for=198.51.100.9', "198.51.100.9"),
    (b"for=10.0.0.1, for=198.51.100.9;proto=https", "198.51.100.9"),
    (b'for="[2001:db8:2::1]:99"', "2001:db8:2::1"),
    (b"for=198.51.100.9, for=unknown", "10.0.0.5"),
    (b"for=198.51.100.9, for=_hidden", "10.0.0.5"),
    (b'for=198.51.100.9, for="', "10.0.0.5"),
    (b'for="198.51.100.9, for=6.6.6.6"', "10.0.0.5"),
    (b"for=198.51.100.9, proto=https", "10.0.0.5"),
]


def test_a_broken_element_ends_the_walk_and_never_gives_way_to_the_left(seen):
    settings = config(modules=[module("spy", "PRE_UPSTREAM")], trustedHeader="forwarded", **TRUSTED)
    with MemoryGateway(settings) as gateway:
        origin = gateway.upstream(HOST, PORT, SCRIPT)
        for line, ip in FORWARDED:
            got = told(gateway, origin, PROXY, b"Forwarded: " + line, b"X-Forwarded-For: 6.6.6.6")
            assert seen.pop()[0] == ip, line
            assert len(got["forwarded"]) == 1
            assert got["forwarded"][0].count("for=") == (1 if ip == PROXY[0] else 2)
            assert "6.6.6.6" not in str(got), "the list that is not believed is not passed on either"
            assert "injected" not in str(got)


def test_conditions_and_routes_see_the_believed_address():
    inner = rule(routes=to("origin", condition="inCidr(source.ip, '198.51.100.0/24')"))
    with MemoryGateway(config([inner], **TRUSTED)) as gateway:
        gateway.upstream(HOST, PORT, SCRIPT)
        line = b"X-Forwarded-For: 198.51.100.9"
        assert fetch(gateway, "/", line, address=PROXY).status == 200
        assert fetch(gateway, "/", line, address=STRANGER).status == 404
        assert fetch(gateway, "/", address=("198.51.100.20", 1)).status == 200


# -- hosts

AGREED = [
    # target, Host; host as everybody sees it, authority that is forwarded
    ("/x", "a.test", "a.test", "a.test"),
    ("/x", "A.TEST", "a.test", "A.TEST"),
    ("/x", "a.test:8080", "a.test", "a.test:8080"),
    ("/x", "a.test.", "a.test", "a.test."),
    ("http://b.test/x", "a.test", "b.test", "b.test"),
    ("http://b.test:81/x", "a.test:82", "b.test", "b.test:81"),
    ("HTTP://B.test/x", "a.test", "b.test", "B.test"),
    ("http://[::1]:80/x", "a.test", "::1", "[::1]:80"),
    ("/x", "[::1]", "::1", "[::1]"),
    ("/x", "[::1]:8080", "::1", "[::1]:8080"),
    ("/x", "[2001:DB8:0::1]", "2001:db8::1", "[2001:DB8:0::1]"),
    ("/x", "192.0.2.1:80", "192.0.2.1", "192.0.2.1:80"),
]
NO_HOST = [
    "::1",
    "[::1",
    "[::1]x",
    "::1]",
    "[::1]:",
    "[::1]:x",
    "[fe80::1%25eth0]",
    "[fe80::1%eth0]",
    "[v1.x]",
    "a:",
    "a:65536",
    "a:99999999999999999999",
    "a:+80",
    "a:-1",
    "a: 80",
    "a:80:80",
    "a:８０",
    "a:8O",
    "",
    ":80",
    "a/b",
    "a@b",
    "a b",
    "a..b",
    ".a",
    "a%2eb",
    "a\\b",
    "a?b",
    "a#b",
]


def test_router_conditions_modules_and_upstream_see_one_host(seen):
    rules = [
        rule(
            "/",
            name=host,
            hosts=[f"[{host}]" if ":" in host else host],
            routes=to("origin", condition=f"request.host == '{host}'"),
        )
        for host in ("a.test", "b.test", "::1", "2001:db8::1", "192.0.2.1")
    ]
    adds = module("addResponseHeader", **{"x-host": "${request.host}"})
    with MemoryGateway(config(rules, [module("spy", "PRE_UPSTREAM"), adds])) as gateway:
        origin = gateway.upstream(HOST, PORT, SCRIPT)
        for target, line, host, authority in AGREED:
            client = gateway.client()
            client.send(f"GET {target} HTTP/1.1\r\nHost: {line}\r\n\r\n".encode())
            gateway.run()
            got = answer(client.received)
            assert (got.status, got["x-host"]) == (200, host), (target, line)
            assert seen.pop()[1] == host
            assert gateway.records[-1].route == host
            head = heads(origin.connections[-1])[-1]
            assert head.startswith(b"GET /x HTTP/1.1\r\n")
            sent = fields(head)
            assert sent["host"] == sent["x-forwarded-host"] == [authority]
            client.close()
            gateway.run()


def test_what_is_no_host_is_refused_wherever_it_stands():
    with MemoryGateway(config()) as gateway:
        origin = gateway.upstream(HOST, PORT, SCRIPT)
        for host in NO_HOST:
            requests = [f"GET / HTTP/1.1\r\nHost: {host}\r\n\r\n"]
            if host and not set(host) & set("/?# "):
                requests.append(f"GET http://{host}/ HTTP/1.1\r\nHost: a.test\r\n\r\n")
            for request in requests:
                before = len(gateway.records)
                client = gateway.client()
                client.send(request.encode())
                gateway.run()
                assert [each.status for each in answers(client.received)] == [400], request
                assert len(gateway.records) == before + 1
                client.close()
                gateway.run()
        assert not origin.connections


def test_a_host_of_a_trusted_proxy_is_told_but_does_not_route(seen):
    rules = [rule("/", hosts=["a.test"], name="a"), rule("/", hosts=["b.test"], name="b")]
    with MemoryGateway(config(rules, [module("spy", "PRE_UPSTREAM")], **TRUSTED)) as gateway:
        origin = gateway.upstream(HOST, PORT, SCRIPT)
        got = told(gateway, origin, PROXY, b"X-Forwarded-Host: b.test", b"X-Forwarded-Proto: https")
        assert seen.pop() == ("10.0.0.5", "a.test", b"https")
        assert gateway.records[-1].route == "a"
        assert (got["host"], got["x-forwarded-host"], got["x-forwarded-proto"]) == (["a.test"], ["b.test"], ["https"])
        got = told(gateway, origin, PROXY, b"X-Forwarded-Host: b.test/x")
        assert got["x-forwarded-host"] == ["a.test"], "what is no host is not passed on"
        got = told(gateway, origin, STRANGER, b"X-Forwarded-Host: b.test")
        assert got["x-forwarded-host"] == ["a.test"]
