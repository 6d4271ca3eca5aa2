"""What a configuration says about TLS, as a whole."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from authority import Authority
from protogate.build import Build, build
from protogate.config.faults import ConfigFaults


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    (tmp_path / "tls").mkdir()
    return Authority(tmp_path / "tls")


def built(folder: Path, **parts: Any) -> Build:
    """Of a configuration in that folder."""
    path = folder / "gateway.yaml"
    listeners = [{"name": "web", "address": "127.0.0.1:8080"}]
    path.write_text(json.dumps({"listeners": listeners, **parts}))
    return build(str(path))


def faults(folder: Path, **parts: Any) -> list[str]:
    """What is wrong with it."""
    with pytest.raises(ConfigFaults) as caught:
        built(folder, **parts)
    return [f"{'.'.join(map(str, fault.path))}: {fault.message}" for fault in caught.value.faults]


def to(*names: str) -> list[dict[str, Any]]:
    """A route to each."""
    return [{"value": f"/{name}", "routes": [{"targets": [{"upstream": name}]}]} for name in names]


def listener(*pairs: dict[str, str], **more: Any) -> list[dict[str, Any]]:
    return [{"name": "web", "address": "127.0.0.1:8443", "tls": {"certificates": list(pairs), **more}}]


def test_paths_are_relative_to_the_file(tmp_path: Path, authority: Authority) -> None:
    authority.issue("shop.test", file="shop")
    pair = {"cert": "tls/shop.pem", "key": "tls/shop.key"}
    upstreams = [
        {"name": "up", "endpoints": [{"url": "https://up.test"}], "tls": {"ca": "tls/authority.pem", **pair}},
    ]
    made = built(
        tmp_path,
        listeners=listener(pair, clientAuth={"ca": "tls/authority.pem", "mode": "optional"}),
        upstreams=upstreams,
        routes=to("up"),
    )
    assert made.warnings == ()
    assert made.tls.servers["web"].mode == "optional"
    assert made.tls.servers["web"].alpn == (b"http/1.1",)
    client = made.tls.clients["up"]
    assert client.pair is not None
    assert client.authorities.startswith("-----BEGIN CERTIFICATE-----")
    assert {Path(path).name for path in made.tls.stamps} == {"shop.pem", "shop.key", "authority.pem"}


def test_who_is_asked_for_the_same_has_the_same_side(tmp_path: Path) -> None:
    upstreams = [
        {"name": name, "endpoints": [{"url": f"https://{name}.test"}], "tls": {"verify": name != "c"}}
        for name in ("a", "b", "c")
    ]
    targets = [{"targets": [{"url": "https://d.test/x"}]}]
    routes = [*to("a", "b", "c"), {"value": "/d", "routes": targets}]
    made = built(tmp_path, upstreams=upstreams, routes=routes)
    a, b, c, d = (made.tls.clients[name] for name in ("a", "b", "c", "https://d.test:443"))
    assert a is b is d
    assert (a.verify, c.verify) == (True, False)
    (warning,) = made.warnings
    assert "upstreams[2].tls.verify: whoever answers is taken for the upstream" in warning


def test_everything_that_is_wrong_is_told_in_one_go(tmp_path: Path, authority: Authority) -> None:
    issued, other = authority.issue("a.test", file="a"), authority.issue("b.test", file="b")
    upstreams = [
        {"name": "up", "endpoints": [{"url": "https://up.test"}], "tls": {"ca": str(issued.key)}},
        {"name": "what", "endpoints": [{"url": "tls://up.test:1"}]},
    ]
    found = faults(
        tmp_path,
        listeners=listener({"cert": str(issued.cert), "key": str(other.key)}, {"cert": "no.pem", "key": "no.key"}),
        upstreams=upstreams,
        routes=[*to("up", "what"), {"value": "/x", "routes": [{"targets": [{"url": "tls://x.test:1"}]}]}],
    )
    assert [each.partition(": ")[0] for each in found] == [
        "listeners.0.tls.certificates.0.key",
        "listeners.0.tls.certificates.1.cert",
        "upstreams.0.tls.ca",
        "upstreams.1.endpoints.0.url",
        "routes.2.routes.0.targets.0.url",
    ]


def test_what_is_said_about_tls_where_there_is_none_is_a_warning(tmp_path: Path) -> None:
    upstreams = [{"name": "up", "endpoints": [{"url": "http://up.test"}], "tls": {"serverName": "up.test"}}]
    (warning,) = built(tmp_path, upstreams=upstreams, routes=to("up")).warnings
    assert "upstreams[0].tls: no endpoint is spoken to over TLS" in warning


def test_a_name_that_two_certificates_have_is_a_warning(tmp_path: Path, authority: Authority) -> None:
    pairs = [authority.issue("shop.test", file=file) for file in ("a", "b")]
    made = built(tmp_path, listeners=listener(*({"cert": str(one.cert), "key": str(one.key)} for one in pairs)))
    (warning,) = made.warnings
    assert "listeners[0].tls.certificates[1].cert: " in warning
    assert "an earlier certificate is for shop.test already" in warning
    assert made.tls.servers["web"].first[0].cert == str(pairs[0].cert)


def test_discovery_says_whether_there_is_tls(tmp_path: Path) -> None:
    upstreams = [{"name": "up", "discovery": {"dns": "up.test:443", "scheme": "https"}}]
    assert set(built(tmp_path, upstreams=upstreams, routes=to("up")).tls.clients) == {"up"}
