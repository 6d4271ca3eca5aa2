"""What an upstream's URLs and names may be."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protogate.config import address, model
from protogate.config.faults import ConfigFaults
from protogate.errors import ConfigError
from protogate.upstream.endpoint import Place, Source, layout, place, source


@pytest.mark.parametrize(
    ("url", "host", "port", "authority", "address"),
    [
        ("http://10.0.0.11:8080", "10.0.0.11", 8080, b"10.0.0.11:8080", "10.0.0.11:8080"),
        ("http://10.0.0.11:8080/", "10.0.0.11", 8080, b"10.0.0.11:8080", "10.0.0.11:8080"),
        ("HTTP://Up.Test", "up.test", 80, b"up.test", "up.test:80"),
        ("http://up.test.:80/", "up.test", 80, b"up.test", "up.test:80"),
        ("http://[2001:DB8::1]:81", "2001:db8::1", 81, b"[2001:db8::1]:81", "[2001:db8::1]:81"),
        ("http://[::1]/", "::1", 80, b"[::1]", "[::1]:80"),
        ("http://[FE80::1%Eth0]:81", "fe80::1%Eth0", 81, b"[fe80::1]:81", "[fe80::1%Eth0]:81"),
        ("mini://up.test:80", "up.test", 80, b"up.test:80", "up.test:80"),
        ("http://my_service", "my_service", 80, b"my_service", "my_service:80"),
    ],
)
def test_urls(url: str, host: str, port: int, authority: bytes, address: str) -> None:
    found = place(url, 7, "PRO")
    assert found == Place(host, port, authority, 7, "PRO")
    assert found.address == address


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("mini://up.test", "only http:// has a usual port"),
        ("up.test:80", "http://host:port"),
        ("http://up.test/path", "without a path"),
        ("http://up.test:80//", "without a path"),
        ("http://up.test?x", "without a path"),
        ("http://", "host and port"),
        ("http://:80", "host and port"),
        ("http://user@up.test", "host and port"),
        ("http://up.test:", "host and port"),
        ("http://up.test:+80", "host and port"),
        ("http://up.test:\uff18\uff10", "host and port"),
        ("http://up.test:80\n", "host and port"),
        ("http://a b", "host and port"),
        ("http://::1", "host and port"),
        ("http://[::1", "host and port"),
        ("http://[::1]x", "host and port"),
        ("http://[fe80::1%]", "host and port"),
        ("http://[fe80::1%a%b]", "host and port"),
        ("http://[::g]", "host and port"),
        ("http://[1.2.3.4]", "IPv6"),
        ("http://[::1::2]", "IPv6"),
        ("http://up.test:0", "1 to 65535"),
        ("http://up.test:65536", "1 to 65535"),
        ("http://1.2.3", "neither a name nor an IPv4 address"),
        ("http://1.2.3.256", "neither a name nor an IPv4 address"),
        ("http://a..b", "not a host name"),
        ("http://-a", "not a host name"),
        ("http://a-", "not a host name"),
        ("http://.", "neither"),
        ("http://" + "a" * 64, "not a host name"),
        ("http://" + "a." * 127 + "aa", "not a host name"),
    ],
)
def test_faulty_urls_say_what_is_wrong(url: str, says: str) -> None:
    with pytest.raises(ConfigError) as caught:
        place(url)
    assert says in caught.value.message


@given(st.text())
def test_any_text_is_a_place_or_a_fault(text: str) -> None:
    for url in (text, f"http://{text}"):
        try:
            found = place(url)
        except ConfigError:
            continue
        assert 0 < found.port < 65536
        assert found.host
        assert place(f"http://{found.address}/") == found


_HOSTS = st.one_of(
    st.from_regex(r"[A-Za-z0-9_.-]{1,12}", fullmatch=True),
    st.ip_addresses(v=4).map(str),
    st.ip_addresses(v=6).map("[{}]".format),
    st.ip_addresses(v=6).map("[{}%eth0]".format),
    st.from_regex(r"_[a-z]{1,3}[._a-z]{0,12}", fullmatch=True),
)
_PORTS = st.one_of(
    st.just(""), st.integers(0, 70_000).map(":{}".format), st.from_regex(r":[0-9+-]{0,6}", fullmatch=True)
)


@given(host=_HOSTS, port=_PORTS, scheme=st.sampled_from(["http", "HTTP", "mini"]), end=st.sampled_from(["", "/", "/x"]))
def test_what_a_configuration_may_say_is_never_a_fault_here(host: str, port: str, scheme: str, end: str) -> None:
    """A file is checked before anything live is touched; what passed that must not fail while it is put in force."""
    url = f"{scheme}://{host}{port}{end}"
    try:
        parts = address.origin(url, scheme="mini")
    except ConfigError:
        pass
    else:
        assert place(url).port == parts.port
    try:
        resolved = address.name_to_resolve(f"{host}{port}")
    except ConfigError:
        pass
    else:
        assert source(f"{host}{port}").port == resolved[1]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("orders.internal:8080", Source("orders.internal", 8080)),
        ("_web._tcp.orders.internal", Source("_web._tcp.orders.internal", None)),
        ("_web._tcp.Orders.internal.", Source("_web._tcp.orders.internal", None)),
        ("_web.internal:80", Source("_web.internal", 80)),
        ("_dns._udp.a.test", Source("_dns._udp.a.test", None)),
        ("10.0.0.1:80", Source("10.0.0.1", 80)),
        ("[::1]:80", Source("::1", 80)),
    ],
)
def test_names_to_look_up(name: str, expected: Source) -> None:
    assert source(name) == expected


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("orders.internal", "host:port"),
        ("10.0.0.1", "host:port"),
        ("http://a:80", "host and port"),
        ("", "host and port"),
    ],
)
def test_faulty_names_say_what_is_wrong(name: str, says: str) -> None:
    with pytest.raises(ConfigError) as caught:
        source(name)
    assert says in caught.value.message


def test_all_faults_of_an_upstream_are_found_each_at_its_place() -> None:
    config = model.Upstream(
        name="up",
        endpoints=(model.Endpoint(url="http://a"), model.Endpoint(url="b"), model.Endpoint(url="http://c:0")),
        discovery=model.Discovery(dns="d"),
    )
    with pytest.raises(ConfigFaults) as caught:
        layout(config)
    assert [fault.path for fault in caught.value.faults] == [
        ("endpoints", 1, "url"),
        ("endpoints", 2, "url"),
        ("discovery", "dns"),
    ]


def test_an_upstream_that_leads_nowhere_is_a_fault() -> None:
    with pytest.raises(ConfigFaults) as caught:
        layout(model.Upstream(name="up"))
    assert 'upstream "up" leads nowhere' in str(caught.value)


def test_a_layout() -> None:
    config = model.Upstream(
        name="up",
        endpoints=(model.Endpoint(url="http://a", weight=3, zone="PRO"),),
        discovery=model.Discovery(dns="b:81"),
    )
    assert layout(config) == ((Place("a", 80, b"a", 3, "PRO"),), Source("b", 81))
    assert Source("b", 81).authority == b"b:81"
