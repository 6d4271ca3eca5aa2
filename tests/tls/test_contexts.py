"""Contexts of both libraries: what they refuse, and that they are made once."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from authority import Authority, rsa_key
from protogate.config import model
from protogate.errors import ConfigError
from protogate.securing import Sides, renewed
from protogate.tls import client as asked
from protogate.tls import server as offered
from protogate.tls.files import Reading
from protogate.tls.layer import prepare

LIBRARIES = pytest.mark.parametrize("of_ssl", [True, False], ids=["ssl", "pyOpenSSL"])


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


def config(authority: Authority, *files: str) -> model.ListenerTls:
    folder = authority.folder
    pairs = (model.CertificateFiles(cert=f"{folder}/{file}.pem", key=f"{folder}/{file}.key") for file in files)
    return model.ListenerTls(certificates=tuple(pairs))


@LIBRARIES
def test_contexts_are_made_once(authority: Authority, of_ssl: bool) -> None:
    authority.issue("a.test", file="a")
    server = offered.server(config(authority, "a"), (), Reading())
    client = asked.client(model.UpstreamTls(ca=str(authority.file)), (), Reading())
    for side in (server, client):
        prepare(side, of_ssl)
        (made,) = side.contexts.values()
        prepare(side, of_ssl)
        assert [*side.contexts.values()] == [made]


@LIBRARIES
def test_files_that_changed_since_they_were_read_are_a_fault(authority: Authority, of_ssl: bool) -> None:
    authority.issue("a.test", file="a")
    server = offered.server(config(authority, "a"), (), Reading())
    os.replace(authority.issue("a.test", file="b").cert, authority.folder / "a.pem")
    with pytest.raises(ConfigError, match=r"a.pem: TLS does not take it with .*a.key"):
        prepare(server, of_ssl)


@LIBRARIES
def test_what_the_library_does_not_take_is_not_put_in_force(
    authority: Authority, of_ssl: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    authority.issue("a.test", file="a")
    listener = model.Listener(name="web", address="127.0.0.1:1", tls=config(authority, "a"))
    url = model.Endpoint(url="https://up.test")
    upstream = model.Upstream(name="up", endpoints=(url,), tls=model.UpstreamTls(ca=str(authority.file)))
    whole = model.Config(listeners=(listener,), upstreams=(upstream,))

    def refuse(side: object, of_ssl: bool) -> None:
        raise ConfigError("no")

    with monkeypatch.context() as patched:
        patched.setattr("protogate.securing.prepare", refuse)
        sides, faults = renewed(Sides({}, {}), whole, {}, [], of_ssl)
    assert (sides.servers, sides.clients) == ({}, {})
    assert [fault.message for fault in faults] == ["no", "no"]
    sides, faults = renewed(sides, whole, {}, [], of_ssl)
    assert (set(sides.servers), set(sides.clients), faults) == ({"web"}, {"up"}, [])
    again, _ = renewed(sides, whole, {}, [], of_ssl)
    assert again.servers["web"] is sides.servers["web"], "nothing has changed"
    assert again.clients["up"] is sides.clients["up"]


def test_certificates_of_two_kinds_of_keys_go_together(authority: Authority) -> None:
    for file, key in (("ec", None), ("rsa", rsa_key()), ("other", None)):
        authority.issue("a.test" if file != "other" else "b.test", file=file, key=key)
    server = offered.server(config(authority, "ec", "rsa", "other"), (), Reading())
    assert [Path(pair.cert).stem for pair in server.first] == ["ec", "rsa"]
    assert server.find("a.test") == server.first
    assert [Path(pair.cert).stem for pair in server.find("b.test") or ()] == ["other"]


@pytest.mark.parametrize(
    ("name", "found"),
    [("a.test", True), ("x.b.test", True), ("b.test", False), ("y.x.b.test", False), ("", False), ("test", False)],
)
def test_a_star_stands_for_one_label(authority: Authority, name: str, found: bool) -> None:
    authority.issue("it", ["a.test", "*.b.test"], file="it")
    assert (offered.server(config(authority, "it"), (), Reading()).find(name) is not None) is found
