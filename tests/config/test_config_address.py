from __future__ import annotations

from contextlib import suppress
from ipaddress import ip_network

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protogate.config import address
from protogate.config.address import Listen, Url
from protogate.errors import ConfigError
from protogate.uri import host_of


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("127.0.0.1:8080", Listen("127.0.0.1", 8080)),
        ("127.0.0.1:0", Listen("127.0.0.1", 0)),
        ("Gateway.Example:65535", Listen("gateway.example", 65535)),
        ("[::1]:80", Listen("::1", 80)),
        ("[0:0::0001]:80", Listen("::1", 80)),
        ("[::ffff:10.0.0.1]:80", Listen("10.0.0.1", 80)),
        ("[FE80::1%Eth0]:80", Listen("fe80::1%Eth0", 80)),
        ("gateway.example.:80", Listen("gateway.example", 80)),
        ("unix:/run/a.sock", Listen("", 0, "/run/a.sock")),
        ("unix:/run//x/../a.sock", Listen("", 0, "/run/a.sock")),
    ],
)
def test_listening_addresses(text: str, parts: Listen) -> None:
    assert address.listen(text) == parts


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "the port is missing"),
        ("8080", "the port is missing"),
        ("127.0.0.1", "the port is missing"),
        (":8080", 'write "0.0.0.0:8080"'),
        ("*:8080", 'write "0.0.0.0:8080"'),
        ("127.0.0.1:", "a port from 0 to 65535"),
        ("127.0.0.1:http", "a port from 0 to 65535"),
        ("127.0.0.1:080", "a port from 0 to 65535"),
        ("127.0.0.1:65536", "a port from 0 to 65535"),
        ("127.0.0.1:+80", "a port from 0 to 65535"),
        ("127.0.0.1:٨", "a port from 0 to 65535"),
        ("::1:80", "needs brackets"),
        ("[::1", r"expected \[v6\]:port"),
        ("[::1]80", r"expected \[v6\]:port"),
        ("[::1]", "the port is missing"),
        ("[]:80", "IPv6 address in the brackets"),
        ("[127.0.0.1]:80", "IPv6 address in the brackets"),
        ("[::1::2]:80", "IPv6 address in the brackets"),
        ("[::g]:80", "IPv6 address in the brackets"),
        ("[fe80::1%]:80", "IPv6 address in the brackets"),
        ("[fe80::1%a%b]:80", "IPv6 address in the brackets"),
        ("[fe80::1%a b]:80", "the name of an interface"),
        ("[fe80::1%\n]:80", "the name of an interface"),
        ("127.1:80", "four numbers"),
        ("0127.0.0.1:80", "four numbers"),
        ("0x7f000001:80", "four numbers"),
        ("a b:80", "a host name or an address"),
        ("-a:80", "a host name or an address"),
        ("a-:80", "a host name or an address"),
        (".:80", "a host name or an address"),
        ("a." * 127 + "aa:80", "a host name or an address"),
        ("a..b:80", "a host name or an address"),
        ("a" * 64 + ":80", "a host name or an address"),
        ("bücher.example:80", "xn--bcher-kva.example"),
        ("\udcff:80", "xn--…"),
        ("http://127.0.0.1:80", "not a URL"),
        ("unix:run/a", "absolute path"),
        ("unix:", "absolute path"),
        ("unix:/" + "ü" * 60, "107 bytes"),
    ],
)
def test_what_is_no_listening_address(text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        address.listen(text)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("127.0.0.1:80", "127.0.0.1:80"),
        ("localhost:80", "127.0.0.1:80"),
        ("0.0.0.0:80", "10.0.0.1:80"),
        ("[::1]:80", "[0::1]:80"),
        ("[::]:80", "[::1]:80"),
        ("A.test:80", "a.test:80"),
        ("unix:/a/b", "unix:/a//b"),
    ],
)
def test_addresses_in_each_others_way(one: str, other: str) -> None:
    assert address.listen(one).covers(address.listen(other))
    assert address.listen(other).covers(address.listen(one))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("127.0.0.1:80", "127.0.0.1:81"),
        ("127.0.0.1:0", "127.0.0.1:0"),
        ("10.0.0.1:80", "10.0.0.2:80"),
        ("0.0.0.0:80", "[::1]:80"),
        ("[::1]:80", "[::2]:80"),
        ("unix:/a", "unix:/b"),
        ("unix:/a", "127.0.0.1:80"),
    ],
)
def test_addresses_side_by_side(one: str, other: str) -> None:
    assert not address.listen(one).covers(address.listen(other))
    assert not address.listen(other).covers(address.listen(one))


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("http://a.test", Url("http", "a.test", 80, "")),
        ("HTTP://A.test:8080/", Url("http", "a.test", 8080, "/")),
        ("http://up.test.:80/", Url("http", "up.test", 80, "/")),
        ("http://my_service", Url("http", "my_service", 80, "")),
        ("http://[::1]:1/a%20b;c=(d)", Url("http", "::1", 1, "/a%20b;c=(d)")),
        ("http://xn--bcher-kva.example/", Url("http", "xn--bcher-kva.example", 80, "/")),
    ],
)
def test_urls(text: str, parts: Url) -> None:
    assert address.url(text) == parts


def test_an_authority_has_brackets_where_they_belong() -> None:
    assert address.url("http://[::1]:1").authority == "[::1]:1"
    assert address.url("http://a").authority == "a:80"
    assert address.url("http://A/b").origin == "http://a:80"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "expected a URL such as"),
        ("a.test:80", "expected a URL such as"),
        ("//a.test", "expected a URL such as"),
        ("ftp://a.test", "begins with http://"),
        ("h3://a.test", "begins with http://, https://"),
        ("tls://a.test", "tls:// has no usual one"),
        ("http://", "the host is missing"),
        ("http://:80", "the host is missing"),
        ("http:///path", "the host is missing"),
        ("http://a:0", "a port from 1 to 65535"),
        ("http://a:", "a port from 1 to 65535"),
        ("http://a:99999", "a port from 1 to 65535"),
        ("http://a/b c", "percent-encoded"),
        ("http://a/%zz", "without two hex digits"),
        ("http://a/ü", 'write "/%C3%BC"'),
        ("http://a/b/../c", 'write "/c"'),
        ("http://a//", 'write "/"'),
        ("http://a/../c", "climbs above the root"),
        ("http://a?b", r'remove "\?b"'),
        ("http://a/?", r'remove "\?"'),
        ("http://a/#b", 'remove "#b"'),
        ("http://a\n", "a host name or an address"),
        ("http://a:80\n", "a port from 1 to 65535"),
        ("http://a:+80", "a port from 1 to 65535"),
        ("http://::1", "needs brackets"),
        ("http://u@a", "user and password"),
        ("http://300.0.0.1", "four numbers"),
        ("mini://a:7", "begins with http://"),
    ],
)
def test_what_is_no_url(text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        address.url(text)


def test_the_name_of_the_codec_is_a_scheme_too() -> None:
    assert address.url("mini://a:7", scheme="mini") == Url("mini", "a", 7, "")
    with pytest.raises(ConfigError, match=r"begins with http://, https://, .* tls:// or mini://, got"):
        address.url("minni://a:7", scheme="mini")
    with pytest.raises(ConfigError, match=r"the port is missing .* mini:// has no usual one"):
        address.url("mini://a", scheme="mini")


def test_an_endpoint_has_no_path() -> None:
    assert address.origin("http://a/").host == "a"
    with pytest.raises(ConfigError, match='remove the path "/b"'):
        address.origin("http://a/b")


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("a.internal:80", ("a.internal", 80)),
        ("_web._tcp.a.internal", ("_web._tcp.a.internal", None)),
        ("_web._tcp.A.internal.", ("_web._tcp.a.internal", None)),
        ("_dns._udp.a.test", ("_dns._udp.a.test", None)),
        ("_web.internal:80", ("_web.internal", 80)),
        ("10.0.0.1:80", ("10.0.0.1", 80)),
        ("[::1]:80", ("::1", 80)),
    ],
)
def test_names_to_resolve(text: str, parts: tuple[str, int | None]) -> None:
    assert address.name_to_resolve(text) == parts


@pytest.mark.parametrize(
    "text",
    [
        "",
        "a.internal",
        "10.0.0.1",
        "a:0",
        ":80",
        "_web._tcp.",
        "_web._tcp.a b",
        "_web._tcp.::1",
        "a b:80",
        "::1:80",
        "http://a:80",
    ],
)
def test_what_cannot_be_resolved(text: str) -> None:
    with pytest.raises(ConfigError, match=r"expected|brackets"):
        address.name_to_resolve(text)


def test_networks() -> None:
    assert address.network("10.0.0.0/8") == ip_network("10.0.0.0/8")
    assert address.network("10.0.0.1") == ip_network("10.0.0.1/32")
    assert address.network("fd00::/8") == ip_network("fd00::/8")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("10.0.0.1/8", "for the whole network write 10.0.0.0/8"),
        ("10.0.0.0/33", "expected a network"),
        ("", "expected a network"),
        ("all", "expected a network"),
    ],
)
def test_what_is_no_network(text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        address.network(text)


def test_host_patterns() -> None:
    assert address.host_pattern("A.test") == "a.test"
    assert address.host_pattern("*.Ctrip.com") == "*.ctrip.com"
    assert address.host_pattern("[::1]") == "::1"
    assert address.host_pattern("a.test.") == "a.test"


@given(
    st.from_regex(r"[a-zA-Z0-9.-]{1,9}", fullmatch=True)
    | st.ip_addresses().map(str)
    | st.ip_addresses(v=6).map("[{}]".format)
)
def test_a_host_pattern_is_what_a_request_for_that_host_has(text: str) -> None:
    with suppress(ConfigError):
        assert address.host_pattern(text) == host_of(text.encode())


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("*", "leave hosts out"),
        ("*.*.a", r"only the first label may be \*"),
        ("a*", r"only the first label may be \*"),
        ("a:80", "without a port"),
        ("a/b", "no scheme, no path"),
        ("", "a host name or an address"),
        ("*.", "a host name or an address"),
        ("ü.test", "ASCII form"),
        ("[fe80::1%a]", "no request has the host"),
        ("*.[::1]", "an address has no labels"),
        ("*.10.0.0.1", "an address has no labels"),
    ],
)
def test_what_is_no_host_pattern(text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        address.host_pattern(text)


def test_no_message_shows_credentials() -> None:
    urls = [
        "http://u:hunter2@a",
        "https://u:hunter2@a",
        "ftp://u:hunter2@a",
        "u:hunter2@a",
        "http://u:hunter2@a/ /",
        "http://u:hunter2@a?b",
    ]
    for text in urls:
        with pytest.raises(ConfigError) as caught:
            address.url(text)
        assert "hunter2" not in caught.value.message


@given(st.text(max_size=60) | st.from_regex(r"(http://)?[a-z0-9:.\[\]@/?#*%-]{0,30}", fullmatch=True))
def test_any_text_is_an_address_or_a_fault(text: str) -> None:
    for reader in (
        address.listen,
        address.url,
        address.origin,
        address.name_to_resolve,
        address.network,
        address.host_pattern,
    ):
        with suppress(ConfigError):
            reader(text)
