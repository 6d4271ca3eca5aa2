"""What an upstream's URLs and names may be."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protogate.config import model
from protogate.config.faults import ConfigFaults
from protogate.errors import ConfigError
from protogate.upstream.endpoint import Place, codec_of, layout, place, spoken


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
    found = place(url, 7, "PRO", scheme="mini")
    assert found == Place(host, port, authority, 7, "PRO")
    assert found.address == address


def test_what_is_wrong_with_a_url_is_said_as_everywhere() -> None:
    with pytest.raises(ConfigError, match='an endpoint is a host and a port; remove the path "/path"'):
        place("http://up.test/path")
    with pytest.raises(ConfigError, match="begins with http://"):
        place("mini://up.test:80")


@given(st.text() | st.from_regex(r"[a-z0-9_.:\[\]%-]{1,20}", fullmatch=True))
def test_any_text_is_a_place_or_a_fault(text: str) -> None:
    for url in (text, f"http://{text}", f"mini://{text}"):
        try:
            found = place(url, scheme="mini")
        except ConfigError:
            continue
        assert 0 < found.port < 65536
        assert found.host
        again = place(f"http://{found.address}/")
        assert (again.host, again.port) == (found.host, found.port)


def test_all_faults_of_an_upstream_are_found_each_at_its_place() -> None:
    config = model.Upstream(
        name="up",
        endpoints=(model.Endpoint(url="http://a"), model.Endpoint(url="b"), model.Endpoint(url="http://c:0")),
    )
    with pytest.raises(ConfigFaults) as caught:
        layout(config)
    assert [fault.path for fault in caught.value.faults] == [
        ("endpoints", 1, "url"),
        ("endpoints", 2, "url"),
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
    assert layout(config) == (Place("a", 80, b"a", 3, "PRO"),)


def test_endpoints_may_have_the_scheme_of_their_codec() -> None:
    config = model.Upstream(name="up", protocol="mini", endpoints=(model.Endpoint(url="mini://a:80"),))
    assert layout(config) == (Place("a", 80, b"a:80"),)


@pytest.mark.parametrize(
    ("url", "port", "authority", "tls"),
    [
        ("https://up.test", 443, b"up.test", True),
        ("https://up.test:8443/", 8443, b"up.test:8443", True),
        ("http://up.test:443", 443, b"up.test:443", False),
        ("h2://up.test", 443, b"up.test", True),
        ("grpc://up.test", 80, b"up.test", False),
        ("tls://up.test:7000", 7000, b"up.test:7000", True),
    ],
)
def test_schemes_say_whether_there_is_tls(url: str, port: int, authority: bytes, tls: bool) -> None:
    assert place(url, 7) == Place("up.test", port, authority, 7, tls=tls)


def test_one_with_tls_is_another_one_than_one_without() -> None:
    keys = {place(url).key for url in ("http://up.test:8443", "https://up.test:8443", "h2://up.test:8443")}
    assert keys == {("up.test", 8443, ""), ("up.test", 8443, "up.test")}


def speaks(*urls: str, protocol: str = "", scheme: str = "") -> str:
    endpoints = tuple(model.Endpoint(url=url) for url in urls)
    discovery = model.Discovery(dns="a:80", scheme=scheme) if scheme else None  # type: ignore[arg-type]
    return spoken(model.Upstream(name="up", protocol=protocol, endpoints=endpoints, discovery=discovery))


def test_the_codec_is_what_the_schemes_say_unless_the_upstream_says_it() -> None:
    assert speaks("http://a", "https://b") == "http1"
    assert speaks("H2://a", "grpcs://b") == "http2"
    assert speaks(scheme="h2c") == "http2"
    assert speaks("https://a", protocol="http2") == "http2"
    assert speaks("tls://a:1", "mini://b:1", protocol="mini") == "mini"
    assert speaks(protocol="mini") == "mini"
    assert codec_of("wss://a:443") == "http1"


@pytest.mark.parametrize(
    ("urls", "more", "path", "message"),
    [
        (["h2://a", "wss://b"], {}, ("endpoints", 1, "url"), "wss:// means http1, but another endpoint means http2"),
        (
            ["h2://a"],
            {"protocol": "http1"},
            ("endpoints", 0, "url"),
            "but the upstream's protocol is http1",
        ),
        (["tls://a:1"], {}, ("endpoints", 0, "url"), "does not say which protocol it is"),
        (["h2://a"], {"scheme": "ws"}, ("discovery", "scheme"), "ws:// means http1"),
    ],
)
def test_endpoints_that_do_not_agree_are_a_fault(
    urls: list[str], more: dict[str, str], path: tuple[str | int, ...], message: str
) -> None:
    with pytest.raises(ConfigFaults, match=message) as caught:
        speaks(*urls, **more)
    assert [fault.path for fault in caught.value.faults] == [path]
