"""Where a Redis is, as a configuration says it."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from authority import Authority
from protogate.config.faults import ConfigFaults
from protogate.errors import ConfigError
from protogate.expression import template
from protogate.governance import redissettings
from protogate.governance.params import Params


def read(**given):
    reader = Params({"redis": given}, "redis")
    settings = reader.redis("redis")
    reader.done()
    return settings


def faults(**given):
    with pytest.raises((ConfigError, ConfigFaults)) as caught:
        read(**given)
    found = getattr(caught.value, "faults", [caught.value])
    return [(".".join(map(str, fault.path)), fault.message) for fault in found]


@pytest.mark.parametrize(
    ("url", "host", "port", "database", "tls", "shown"),
    [
        ("redis://10.0.0.1", "10.0.0.1", 6379, 0, False, "10.0.0.1:6379/0"),
        ("redis://10.0.0.1:7000/", "10.0.0.1", 7000, 0, False, "10.0.0.1:7000/0"),
        ("redis://Store.Test:7000/12", "store.test", 7000, 12, False, "store.test:7000/12"),
        ("rediss://store.test/1", "store.test", 6379, 1, True, "store.test:6379/1"),
        ("redis://[2001:db8::1]:7000", "2001:db8::1", 7000, 0, False, "[2001:db8::1]:7000/0"),
        ("redis://[::1]", "::1", 6379, 0, False, "[::1]:6379/0"),
    ],
)
def test_a_url_says_where(url, host, port, database, tls, shown):
    made = read(url=url)
    assert (made.host, made.port, made.database, made.tls, made.shown) == (host, port, database, tls, shown)
    assert (made.secured is not None) is tls


def test_a_socket_of_this_machine():
    made = read(url="unix:///run/redis/redis.sock")
    assert (made.path, made.host, made.shown) == ("/run/redis/redis.sock", "", "/run/redis/redis.sock/0")


@pytest.mark.parametrize(
    ("given", "path", "message"),
    [
        ({}, "redis.url", "url is missing"),
        ({"url": "http://10.0.0.1"}, "redis.url", "expected a URL such as redis://"),
        ({"url": "redis://"}, "redis.url", "expected a URL such as redis://"),
        ({"url": "redis://:6379"}, "redis.url", "expected host:port"),
        ({"url": "redis://a:0"}, "redis.url", "expected host:port with a port from 1"),
        ({"url": "redis://a:65536"}, "redis.url", "expected host:port with a port from 1"),
        ({"url": "redis://a..b:1"}, "redis.url", "expected a host name or an address"),
        ({"url": "redis://a/x"}, "redis.url", "expected a URL such as redis://"),
        ({"url": "redis://a/0?x=1"}, "redis.url", "expected a URL such as redis://"),
        ({"url": "redis://user:s3cret@a"}, "redis.url", "a URL here has no user and password"),
        ({"url": "redis://a", "pasword": {"env": "X"}}, "redis.pasword", "did you mean"),
        ({"url": "redis://a", "password": "s3cret"}, "redis.password", "the secret is not written here"),
        ({"url": "redis://a", "username": "u"}, "redis.username", "needs its password"),
        ({"url": "redis://a", "timeout": "0"}, "redis.timeout", "expected a duration from"),
        ({"url": "redis://a", "timeout": "1m"}, "redis.timeout", "expected a duration from"),
        ({"url": "redis://a", "ca": {"file": "/x.pem"}}, "redis.ca", "write rediss://"),
        ({"url": "rediss://a", "ca": {"file": "/nowhere/x.pem"}}, "redis.ca", "cannot be read: No such file"),
        ({"url": "rediss://a", "ca": "/nowhere/x.pem"}, "redis.ca", "expected {file: path}"),
        ({"url": "rediss://a", "ca": {"env": "CA"}}, "redis.ca", "expected {file: path}"),
        ({"url": template.compile("${source.ip}")}, "redis.url", "expected a plain text"),
    ],
)
def test_faults_name_their_parameter(given, path, message):
    ((where, told),) = faults(**given)
    assert where == path
    assert message in told
    assert "s3cret" not in told


def test_all_faults_are_told_at_once():
    found = dict(faults(url="redis://u@h", timeout="5", password="x", ca=7))
    assert set(found) == {"redis.url", "redis.timeout", "redis.password"}


def test_authorities_are_read_at_load(tmp_path):
    file = tmp_path / "ca.pem"
    file.write_bytes(b"nothing of the kind")
    assert faults(url="rediss://a.test", ca={"file": str(file)}) == [("redis.ca", "no certificate stands in it")]
    file.write_bytes(b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n")
    ((where, told),) = faults(url="rediss://a.test", ca={"file": str(file)})
    assert (where, told.startswith("a certificate in it cannot be read")) == ("redis.ca", True)
    pem = Path(Authority(tmp_path).file).read_bytes()
    file.write_bytes(b"# ours\n" + pem + pem)
    assert read(url="rediss://a.test", ca={"file": str(file)}).authorities.count(b"BEGIN") == 2


def test_the_password_comes_from_elsewhere_and_is_never_shown(monkeypatch):
    monkeypatch.setenv("REDIS_PASSWORD", "s3cret")
    made = read(url="redis://a", username="gateway", password={"env": "REDIS_PASSWORD"}, timeout="20ms")
    assert (made.username, made.password, made.timeout) == ("gateway", b"s3cret", 0.02)
    assert "s3cret" not in repr(made)


def test_a_missing_package_is_told_at_load(monkeypatch):
    monkeypatch.setattr(redissettings, "find_spec", lambda name: None if name == "hiredis" else sys)
    assert faults(url="redis://a") == [("redis", "hiredis is not installed: pip install 'protogate[redis]'")]


def test_what_is_no_mapping():
    reader = Params({"redis": "redis://a"}, "redis")
    assert reader.redis("redis") is None
    assert [fault.message for fault in reader.faults] == ['expected {url: redis://host:port/0}, got "redis://a"']
    assert Params({}, "redis").redis("redis") is None
