"""What an upstream's URLs and names may be."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protogate.config import model
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
        ("https://up.test", "http://host:port"),
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
        ("http://[fe80::1%25eth0]", "host and port"),
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


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("orders.internal:8080", Source("orders.internal", 8080)),
        ("_web._tcp.orders.internal", Source("_web._tcp.orders.internal", None)),
        ("_web._tcp.Orders.internal.", Source("_web._tcp.orders.internal", None)),
        ("_web.internal:80", Source("_web.internal", 80)),
    ],
)
def test_names_to_look_up(name: str, expected: Source) -> None:
    assert source(name) == expected


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("orders.internal", "host:port"),
        ("_web._tcp.orders.internal:80", 'remove ":80"'),
        ("10.0.0.1:80", "write it as an endpoint"),
        ("[::1]:80", "write it as an endpoint"),
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
