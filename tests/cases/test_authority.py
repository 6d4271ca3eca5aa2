"""Whose request is it: target and Host are read once, alike by routing, by access rules and by what is sent on."""

from __future__ import annotations

import pytest
from scene import CONFIG, Scene, passed, refused
from wire import equal

HOSTS = CONFIG | {
    "routes": [
        {"name": name, "value": "/", "matcherType": "prefix", "hosts": [host], "routes": CONFIG["routes"][0]["routes"]}
        for name, host in (("a", "a.test"), ("b", "b.test"), ("six", "[::1]"), ("four", "192.0.2.1"))
    ]
    + [CONFIG["routes"][0]],
}
DENY_B = HOSTS | {
    "modules": [
        {
            "name": "respond",
            "stage": "PRE_REQUEST",
            "condition": 'request.host == "b.test"',
            "actionParam": {"status": 403, "body": "no"},
        }
    ]
}

TARGETS = [
    (b"/x", b"a.test", b"/x", b"a.test", "a"),
    (b"/x?y=/../z", b"a.test", b"/x?y=/../z", b"a.test", "a"),
    (b"http://b.test/x", b"a.test", b"/x", b"b.test", "b"),
    (b"HTTP://B.test/x", b"a.test", b"/x", b"B.test", "b"),
    (b"https://b.test/x", b"a.test", b"/x", b"b.test", "b"),
    (b"http://b.test", b"a.test", b"/", b"b.test", "b"),
    (b"http://b.test?q", b"a.test", b"/?q", b"b.test", "b"),
    (b"http://b.test:80/x", b"b.test", b"/x", b"b.test:80", "b"),
    (b"http://b.test:8080/x", b"a.test:80", b"/x", b"b.test:8080", "b"),
    (b"http://b.test./x", b"a.test", b"/x", b"b.test.", "b"),
    (b"http://[::1]:8/x", b"a.test", b"/x", b"[::1]:8", "six"),
    (b"http://b.test/http://a.test/", b"a.test", b"/http://a.test/", b"b.test", "b"),
    (b"/http://b.test/", b"a.test", b"/http://b.test/", b"a.test", "a"),
]


@pytest.mark.parametrize(("target", "host", "path", "sent", "route"), TARGETS)
def test_the_authority_of_an_absolute_target_is_the_host(target, host, path, sent, route):
    """An absolute target against another Host: routing, rules and the upstream must all see the target's."""

    def check(request):
        assert (request.target, request.get(b"host")) == (path, sent)
        assert request.get(b"x-forwarded-host") == sent

    data = b"GET " + target + b" HTTP/1.1\r\nHost: " + host + b"\r\n\r\n"
    with Scene(config=HOSTS) as scene:
        passed(scene, data, check)
        assert {(record.route, record.host) for record in scene.records if record.target != "/next"} == {
            (route, sent.decode())
        }
    with Scene(config=DENY_B) as scene:
        assert scene.play(data).statuses == [403 if route == "b" else 200]


@pytest.mark.parametrize("scheme", [b"ftp", b"ws", b"file", b"h2c", b"http+unix", b"javascript"])
def test_other_schemes_are_refused(scheme):
    """A gateway for HTTP asks nobody in other tongues."""
    with Scene() as scene:
        refused(scene, b"GET " + scheme + b"://b.test/ HTTP/1.1\r\nHost: b.test\r\n\r\n", step=4)


FORMS = [
    b"http:///x",
    b"http:x",
    b"http:/x",
    b"http://",
    b"http://?x",
    b"b.test:80",
    b"x",
    b"*",
    b"a/b",
    b"?x",
    b"#x",
    b"://b.test/",
]
FORMS += [
    b"http:\\\\b.test\\",
    b"//",
    b"/x#y",
    b"http://b.test/x#y",
    b"/%zz",
    b"/%",
    b"/%0",
    b"/%00",
    b"/\\b",
    b"http://b.test#x",
]


@pytest.mark.parametrize("target", [form for form in FORMS if form != b"//"])
def test_a_target_of_no_known_form_is_refused(target):
    """Origin-form, absolute-form, * for OPTIONS, host:port for CONNECT; nothing else."""
    with Scene() as scene:
        refused(scene, b"GET " + target + b" HTTP/1.1\r\nHost: a.test\r\n\r\n", step=2)


GOOD = [
    b"a",
    b"a.test",
    b"A.TEST",
    b"a.test.",
    b"a:0",
    b"a:1",
    b"a:80",
    b"a:8080",
    b"a:65535",
    b"a:0080",
    b"[::1]",
    b"[::1]:8080",
]
GOOD += [
    b"[2001:db8::1]",
    b"[2001:DB8:0:0::1]:443",
    b"[::ffff:192.0.2.1]",
    b"192.0.2.1",
    b"192.0.2.1:80",
    b"a-b_c.test",
    b"xn--4ca.test",
    b"1",
]


@pytest.mark.parametrize("host", GOOD)
def test_a_host_with_or_without_port_passes_as_it_is(host):
    """Names, addresses, ports; the same where the target carries it."""

    def check(request):
        assert request.get(b"host") == host

    with Scene(config=HOSTS) as scene:
        passed(scene, b"GET /x HTTP/1.1\r\nHost: " + host + b"\r\n\r\n", check, step=3)
        passed(scene, b"GET http://" + host + b"/x HTTP/1.1\r\nHost: other.test\r\n\r\n", check, step=7)
        route = {b"192": "four", b"[::": "six"}.get(host[:3], "all")
        if host in (b"a.test", b"A.TEST", b"a.test."):
            route = "a"
        if host == b"[::ffff:192.0.2.1]":
            route = "all"
        assert {record.route for record in scene.records if record.target != "/next"} == {route}


BAD = [
    b"",
    b":80",
    b"::1",
    b"::1:80",
    b"2001:db8::1",
    b"[::1",
    b"::1]",
    b"[::1]x",
    b"[::1]80",
    b"[]",
    b"[]:80",
    b"[::1]]",
    b"[[::1]]",
]
BAD += [
    b"[fe80::1%25eth0]",
    b"[fe80::1%eth0]",
    b"[fe80::1%]",
    b"[1.2.3.4]",
    b"[a.test]",
    b"[v1.a]",
    b"[::1]:",
    b"[::1]:x",
    b"[:::1]",
]
BAD += [
    b"a:",
    b"a:65536",
    b"a:99999",
    b"a:100000",
    b"a:+80",
    b"a:-80",
    b"a:80:80",
    b"a:8 0",
    b"a:80x",
    b"a:x",
    "a:\uff18\uff10".encode(),
    b"a:0x50",
]
BAD += [
    b"a b",
    b"a,b",
    b"a/b",
    b"a/",
    b"a?b",
    b"a#b",
    b"a@b",
    b"u:p@a",
    b"@a",
    b"a\\b",
    b"a%00b",
    b"a%2eb",
    b"\xe4.test",
    b"a..b",
    b".a",
    b".",
    b"a;b ",
]
BAD += [b"http://a", b"a\tb", b"<a>", b'"a"', b"a|b", b"a^b", b"a`b", b"{a}"]


@pytest.mark.parametrize("host", [each for each in BAD if each not in (b"a,b", b"a;b ")])
def test_a_host_that_two_parsers_read_differently_is_refused(host):
    """One parser for routing, for rules and for what is sent on: it refuses what is neither a name nor an address."""
    with Scene(config=HOSTS) as scene:
        refused(scene, b"GET /x HTTP/1.1\r\nHost: " + host + b"\r\n\r\n", step=3)
    if b" " not in host and b"\t" not in host and host[:1].isascii():
        target = b"http://" + host + b"/x"
        if not any(mark in host for mark in (b"/", b"?", b"#")) and host != b"":
            with Scene(config=HOSTS) as scene:
                refused(scene, b"GET " + target + b" HTTP/1.1\r\nHost: a.test\r\n\r\n", step=7)


@pytest.mark.parametrize("host", [b"b.test:x", b"", b"[::1", b"b test", b"b/c", b"u@b", b"b%00", b"b\xe4", b"b:123456"])
def test_a_bad_host_is_refused_beside_a_good_target_too(host):
    """Who is overruled is still read: the next server may prefer it."""
    with Scene(config=HOSTS) as scene:
        refused(scene, b"GET http://a.test/x HTTP/1.1\r\nHost: " + host + b"\r\n\r\n", step=5)


LINES = [
    b"",
    b"Host: a.test\r\nHost: a.test\r\n",
    b"Host: a.test\r\nHost: b.test\r\n",
    b"Host: a.test\r\nX: y\r\nhost: b.test\r\n",
]
LINES += [b"Host: a.test\r\nHost:\r\n", b"Hos: a.test\r\n", b"Host: a.test, b.test\r\n", b"Connection: host\r\n"]


@pytest.mark.parametrize("lines", LINES)
def test_exactly_one_host_is_wanted(lines):
    """None, two equal ones, two different ones, a list of two."""
    with Scene(config=HOSTS) as scene:
        refused(scene, b"GET /x HTTP/1.1\r\n" + lines + b"\r\n", step=2)


def test_http_1_0_may_come_without_a_host_but_not_with_two():
    """The upstream gets a Host in any case, be it empty."""
    with Scene() as scene:
        seen = scene.play(b"GET /x HTTP/1.0\r\n\r\n")
        assert (seen.statuses, seen.eof_before) == ([200], True)
        assert [request.all(b"host") for request in seen.requests] == [[b""]]
    with Scene() as scene:
        refused(scene, b"GET /x HTTP/1.0\r\nHost: a.test\r\nHost: b.test\r\n\r\n", step=3)


def test_options_for_the_server_as_a_whole():
    """* in both its spellings."""
    config = CONFIG | {
        "routes": [{"name": "star", "value": "*", "routes": CONFIG["routes"][0]["routes"]}, *CONFIG["routes"]]
    }
    for target in (b"*", b"http://a.test"):
        with Scene(config=config) as scene:
            data = b"OPTIONS " + target + b" HTTP/1.1\r\nHost: a.test\r\n\r\n"
            passed(scene, data, lambda request: equal((request.target, request.get(b"host")), (b"*", b"a.test")))
