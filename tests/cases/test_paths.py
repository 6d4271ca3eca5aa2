"""Paths that gateways and upstreams read differently: what rules saw, what was forwarded, what was refused."""

from __future__ import annotations

import json
import re
from pathlib import Path
from urllib.parse import unquote

import pytest
from edge import EVERYBODY, GET, SCRIPT, answer, config, fetch, fields, heads, installed, module, rule, to
from hypothesis import given
from hypothesis import strategies as st

from protogate.testing.gateway import MemoryGateway
from protogate.testing.upstream import Expect

CTRIP = Path(__file__).parents[1] / "fixtures" / "ctrip"

READ = [
    # as sent, as seen by rules, as forwarded
    ("/b", "/b", "/b"),
    ("/a/../b", "/b", "/b"),
    ("/a/%2e%2e/b", "/b", "/b"),
    ("/a/%2E%2e/b", "/b", "/b"),
    ("/a/.%2e/b", "/b", "/b"),
    ("/a/%2e./b", "/b", "/b"),
    ("/a/b/../../c", "/c", "/c"),
    ("/a/b/..", "/a/", "/a/"),
    ("/a/./b", "/a/b", "/a/b"),
    ("/a/%2e/b", "/a/b", "/a/b"),
    ("/a/.", "/a/", "/a/"),
    ("//b", "/b", "//b"),
    ("/a//b", "/a/b", "/a//b"),
    ("/a///b/", "/a/b/", "/a///b/"),
    ("/a//../b", "/b", "/b"),
    ("/%252e%252e/b", "/%252e%252e/b", "/%252e%252e/b"),
    ("/a/%252e%252e%252fb", "/a/%252e%252e%252fb", "/a/%252e%252e%252fb"),
    ("/a%2Fb", "/a%2Fb", "/a%2Fb"),
    ("/a%2fb", "/a%2Fb", "/a%2fb"),
    ("/@scope%2fname", "/@scope%2Fname", "/@scope%2fname"),
    ("/a%5cb", "/a%5Cb", "/a%5cb"),
    ("/%61dmin", "/admin", "/%61dmin"),
    ("/%7Euser", "/~user", "/%7Euser"),
    ("/a%3fb", "/a%3Fb", "/a%3fb"),
    ("/a;x=1/b", "/a;x=1/b", "/a;x=1/b"),
    ("/;jsessionid=1", "/;jsessionid=1", "/;jsessionid=1"),
    ("/..b", "/..b", "/..b"),
    ("/a..", "/a..", "/a.."),
    ("/.well-known/x", "/.well-known/x", "/.well-known/x"),
    ("/%e4%bd%a0", "/%E4%BD%A0", "/%e4%bd%a0"),
]
REFUSED = [
    "/a/%2e%2e%2fb",
    "/a%2f..%2fb",
    "/a%2F..%2Fb",
    "/public%2f..%2fadmin",
    "/public%2f%2e%2e%2fadmin",
    "/..%5cb",
    "/a/..%5c..%5cb",
    "/a%5c..%5cb",
    "/a/..;/b",
    "/a/..;x=1/b",
    "/a/%2e%2e;/b",
    "/;x=1/a",
    "/a/%3B/b",
    "/....//b",
    "/a/..../b",
    "/..",
    "/../b",
    "/a/../../b",
    "/%2e%2e/b",
    "/a/%",
    "/a/%z",
    "/a/%zz",
    "/a/%2",
    "/%00",
    "/a%0d%0ab",
    "/a%7f",
    "/a%1f",
    "/\\b",
    "/a\\..\\b",
    "/a/..%2f",
    "/a/..%c0%afb",
    "/a/%c0%ae%c0%ae/b",
    "/a#b",
]


def wide(policy: str = "canonical", **other):
    """Everything to the origin, and a spy that notes what rules see."""
    return config([rule("/admin"), rule()], [module("spy", "PRE_UPSTREAM")], pathPolicy=policy, **other)


@pytest.fixture
def seen():
    """What the spy saw: path and name of the rule."""
    found = []

    def spy(exchange):
        found.append((exchange.request.path, exchange.route.name))

    with installed(spy=spy):
        yield found


def line(origin) -> bytes:
    """The request line of the latest request."""
    return heads(origin.connections[-1])[-1].partition(b"\r\n")[0]


def test_one_form_for_rules_and_upstreams(seen):
    with MemoryGateway(wide()) as gateway:
        origin = gateway.upstream("192.0.2.7", 80, SCRIPT)
        for sent, form, forwarded in READ:
            for prefix in ("", "http://a.test"):
                for query in ("", "?x=%2e%2e/../%zz&y"):
                    assert fetch(gateway, prefix + sent + query).status == 200, sent
                    assert seen.pop() == (form, "/admin" if form == "/admin" else "/"), sent
                    assert line(origin) == f"GET {forwarded}{query} HTTP/1.1".encode(), sent


def test_what_has_two_readings_is_refused(seen):
    with MemoryGateway(wide()) as gateway:
        origin = gateway.upstream("192.0.2.7", 80, SCRIPT)
        for sent in REFUSED:
            before = len(gateway.records)
            assert fetch(gateway, sent).status == 400, sent
            (record,) = gateway.records[before:]
            assert (record.status, record.who, record.malformed) == (400, "client", True), sent
            assert record.target == sent
        assert not seen
        assert not origin.connections


def test_policy_reject_refuses_whatever_is_not_canonical(seen):
    with MemoryGateway(wide("reject")) as gateway:
        origin = gateway.upstream("192.0.2.7", 80, SCRIPT)
        for sent, form, _ in READ:
            assert fetch(gateway, sent).status == (200 if sent == form else 400), sent
            if sent == form:
                assert line(origin) == f"GET {sent} HTTP/1.1".encode()
        for sent in REFUSED:
            assert fetch(gateway, sent).status == 400, sent


def test_policy_raw_forwards_what_came_and_matches_the_canonical_form(seen):
    with MemoryGateway(wide("raw")) as gateway:
        origin = gateway.upstream("192.0.2.7", 80, SCRIPT)
        for sent, form, _ in READ:
            assert fetch(gateway, sent).status == 200, sent
            assert seen.pop()[0] == form
            assert line(origin) == f"GET {sent} HTTP/1.1".encode()
        for sent in REFUSED:
            assert fetch(gateway, sent).status == 400, sent


# -- no way around a deny rule

DENY = module("accessList", "PRE_REQUEST", deny=EVERYBODY, condition_="request.path.startsWith('/admin')")
UNRESERVED = re.compile(r"[A-Za-z0-9._~-]")


def reference(path: str) -> str:
    """RFC 3986, 6.2.2: unreserved characters decoded, dot segments removed by the algorithm of 5.2.4 as it stands."""
    path = re.sub(
        r"%([0-9A-Fa-f]{2})",
        lambda m: chr(int(m[1], 16)) if UNRESERVED.fullmatch(chr(int(m[1], 16))) else m[0].upper(),
        path,
    )
    path = re.sub(r"/{2,}", "/", path)
    out = ""
    while path:
        if path.startswith("/./") or path == "/.":
            path = "/" + path[3:]
        elif path.startswith("/../") or path == "/..":
            path, out = "/" + path[4:], out.rpartition("/")[0]
        else:
            segment = re.match(r"/?[^/]*", path)[0]
            path, out = path[len(segment) :], out + segment
    return out


def sloppy(path: str) -> list[str]:
    """The segments as the most careless server reads them: everything decoded, backslashes, parameters cut off."""
    text = unquote(path, "latin-1").replace("\\", "/")
    return [segment.partition(";")[0].strip() for segment in text.split("/")]


def spelled(text: str):
    """Any spelling of a text: each character as it is or percent-encoded, in both cases."""
    return st.tuples(*(st.sampled_from([c, f"%{ord(c):02x}", f"%{ord(c):02X}"]) for c in text)).map("".join)


SLASH = st.sampled_from(["/", "//", "/./", "/%2e/", "///", "%2f", "%5c", "\\", "/x/../", "/x/%2e%2E/", ";/", "/..;/"])
UP = st.sampled_from(["..", "%2e%2e", ".%2e", "%2E.", "..;x=1", "....", "..%00", "..%20", "%252e%252e"])
DIRECT = st.tuples(SLASH, spelled("admin"), SLASH, st.just("x")).map("".join)
AROUND = st.tuples(st.just("/public"), SLASH, UP, SLASH, spelled("admin"), SLASH, st.just("x")).map("".join)


@given(st.lists(DIRECT | AROUND, min_size=20, max_size=40))
def test_no_spelling_gets_round_a_deny_rule(paths):
    saw = []

    def spy(exchange):
        saw.append(exchange.request.path)

    with (
        installed(spy=spy),
        MemoryGateway(config([rule("/admin"), rule()], [DENY, module("spy", "PRE_UPSTREAM")])) as gateway,
    ):
        origin = gateway.upstream("192.0.2.7", 80, SCRIPT)
        for path in paths:
            client = gateway.client()
            client.send(GET % path.encode())
            gateway.run()
            status = answer(client.received).status
            client.close()
            gateway.run()
            if status != 200:
                assert status in (400, 403)
                continue
            got = line(origin).split(b" ")[1].decode()
            form = saw.pop()
            assert reference(got) == form
            assert not form.startswith("/admin")
            assert ".." not in sloppy(got)
            assert "." not in sloppy(got)


def test_the_direct_ways_are_denied():
    """What the property test relies on: it would pass if everything were 400."""
    with MemoryGateway(config([rule("/admin"), rule()], [DENY])) as gateway:
        gateway.upstream("192.0.2.7", 80, SCRIPT)
        for path in (
            "/admin/x",
            "//admin/x",
            "/%61dmin/x",
            "/public/../admin/x",
            "/./admin/x",
            "/public/%2e%2E//admin",
        ):
            assert fetch(gateway, path).status == 403, path
        for path in ("/public/x", "/a/admin/x", "/%2561dmin/x"):
            assert fetch(gateway, path).status == 200, path


# -- prefixes replaced


def test_the_matched_prefix_is_replaced_by_the_path_of_the_target():
    def at(url):
        return rule("/hotel/order", routes=to({"url": url}))

    cases = [
        ("http://192.0.2.7/hotel", "/hotel/order/1?q=%2f", "/hotel/1?q=%2f"),
        ("http://192.0.2.7/hotel/", "/hotel/order/1", "/hotel/1"),
        ("http://192.0.2.7/", "/hotel/order/1", "/1"),
        ("http://192.0.2.7/hotel", "/hotel/order", "/hotel"),
        ("http://192.0.2.7/hotel", "/hotel/order/", "/hotel/"),
        ("http://192.0.2.7/hotel", "/hotel//order/%61%2fb", "/hotel/%61%2fb"),
        ("http://192.0.2.7/hotel", "/hotel/%6frder/1//2", "/hotel/1//2"),
        ("http://192.0.2.7/hotel", "/x/../hotel/order/1", "/hotel/1"),
        ("http://192.0.2.7", "/hotel//order/1", "/hotel//order/1"),
    ]
    for url, sent, forwarded in cases:
        with MemoryGateway(config([at(url)])) as gateway:
            origin = gateway.upstream("192.0.2.7", 80, SCRIPT)
            assert fetch(gateway, sent).status == 200, sent
            assert line(origin) == f"GET {forwarded} HTTP/1.1".encode()
            for near in ("/hotel/orders", "/hotel/order%2f1", "/hotel/order/../x", "/hotel"):
                assert fetch(gateway, near).status == 404, near


def test_the_published_samples_load_unchanged_and_do_what_they_say():
    route = json.loads((CTRIP / "ctrip-route.json").read_text())
    adds = json.loads((CTRIP / "ctrip-module.json").read_text())
    with MemoryGateway(config([route], [adds], zone="PRO")) as gateway:
        gateway.names.hosts["test.ctrip.com"] = ["192.0.2.80"]
        body = b"HTTP/1.1 200 OK\r\nConnection: close\r\nX-Own: 1\r\nContent-Length: 2\r\n\r\nok"
        origin = gateway.upstream("192.0.2.80", 80, [Expect(b"\r\n\r\n")])
        client = gateway.client()
        client.send(GET % b"/hotel/order/1")
        gateway.run()
        gateway.advance(0.25)  # what the upstream takes
        origin.connections[0].send(body)
        gateway.run()
        got = answer(client.received)
        head = heads(origin.connections[0])[0]
        assert head.startswith(b"GET /hotel/1 HTTP/1.1\r\n")
        assert fields(head)["host"] == ["test.ctrip.com"]
        assert (got.status, got.body, got["x-own"]) == (200, b"ok", "1")
        assert got["connection"] == "keep-alive"
        assert got["access-control-expose-headers"] == "x-service-call"
        assert re.fullmatch(r"[0-9a-f]{32}", got["x-gate-root-id"])
        assert 250 <= int(got["x-service-call"]) <= 350
        client.take()
        trace = "0af7651916cd43dd8448eb211c80319c"
        origin.scripts = ([Expect(b"\r\n\r\n"), body],)
        client.send(
            b"GET /hotel/order/1/2?x HTTP/1.1\r\nHost: a\r\nTraceparent: 00-%b-b7ad6b7169203331-01\r\n\r\n"
            % trace.encode()
        )
        gateway.run()
        assert answer(client.received)["x-gate-root-id"] == trace
        assert heads(origin.connections[-1])[0].startswith(b"GET /hotel/1/2?x HTTP/1.1\r\n")
        made = gateway.records[-1]
        assert (made.route, made.upstream, made.trace) == ("uri /hotel/order", "http://test.ctrip.com:80", trace)
        assert fetch(gateway, "/hotel/orders").status == 404
    with MemoryGateway(config([route], [adds], zone="UAT")) as gateway:
        assert fetch(gateway, "/hotel/order/1").status == 404
