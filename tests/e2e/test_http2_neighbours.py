"""HTTP/2 between the gateway and its neighbours, on either side, in cleartext and over TLS, over both engines."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from typing import Any

import pytest
from h2chains import ME, MIB, ORIGIN, REWRITE, Chains, Servers, can, chains, servers
from h2wire import Told, connected
from multiplexed import ENGINES, engine, rule

from gateways import config, eventually, start, wire
from neighbours import Neighbours, free_port, need

pytestmark = pytest.mark.unwatched

UPLOAD = bytes(range(256)) * (10 * MIB // 256)


@pytest.fixture(scope="module")
def there(company: Neighbours, node: int) -> Servers:
    return servers(company, node)


@pytest.fixture(scope="module", params=ENGINES)
def world(request: pytest.FixtureRequest, there: Servers) -> Iterator[Chains]:
    made = chains(there, request.param)
    yield made
    made.gateway.healthy()


def seen(told: Told) -> dict[str, str]:
    """The fields that Node saw; names in lower case."""
    names = json.loads(told.fields["x-seen"])["fields"]
    return {name.lower(): value for name, value in zip(names[::2], names[1::2], strict=True)}


@pytest.mark.parametrize("chain", can())
def test_small_and_large_answers_come_whole(world: Chains, chain: str) -> None:
    with world.client(chain) as (client, prefix):
        small = client.get(f"{prefix}{ORIGIN['small']}")
        assert (small.status, bytes(small.body)) == (200, b"hello\n")
        large = client.get(f"{prefix}{ORIGIN['large']}")
        assert (large.status, large.body) == (200, b"x" * 10 * MIB)
        assert large.fields["content-length"] == str(10 * MIB)


@pytest.mark.parametrize("chain", can("sum"))
def test_a_large_upload_arrives_whole(world: Chains, chain: str) -> None:
    with world.client(chain) as (client, prefix):
        told = client.post(f"{prefix}/sum", UPLOAD)
    assert (told.status, told.body.decode()) == (200, hashlib.sha256(UPLOAD).hexdigest())


@pytest.mark.parametrize("chain", can())
def test_what_is_sent_back_while_it_comes_is_whole(world: Chains, chain: str) -> None:
    with world.client(chain) as (client, prefix):
        told = client.post(f"{prefix}/echo", UPLOAD[:MIB], [("content-length", str(MIB))])
    assert (told.status, told.body) == (200, UPLOAD[:MIB])


@pytest.mark.parametrize("chain", can())
def test_many_streams_of_one_connection_are_all_answered(world: Chains, chain: str) -> None:
    with world.client(chain) as (client, prefix):
        client.until(lambda: client.settings, "settings")
        numbers = [client.ask("GET", f"{prefix}/bytes/5000") for _ in range(90)]
        answers = [client.answer(number) for number in numbers]
    assert {(told.status, len(told.body), told.code) for told in answers} == {(200, 5000, None)}


@pytest.mark.parametrize("chain", can())
def test_head_says_how_much_it_would_be(world: Chains, chain: str) -> None:
    with world.client(chain) as (client, prefix):
        told = client.get(f"{prefix}/bytes/5000", "HEAD")
        assert (told.status, told.fields["content-length"], bytes(told.body)) == (200, "5000", b"")
        assert len(client.get(f"{prefix}/bytes/5000").body) == 5000


@pytest.mark.parametrize("chain", can("empty", "fresh"))
def test_answers_without_content_have_none(world: Chains, chain: str) -> None:
    with world.client(chain) as (client, prefix):
        empty = client.get(f"{prefix}/empty")
        assert (empty.status, bytes(empty.body), "content-length" in empty.fields) == (204, b"", False)
        fresh = client.get(f"{prefix}/fresh", fields=[("if-none-match", '"a"')])
        assert (fresh.status, bytes(fresh.body), fresh.fields["etag"]) == (304, b"", '"a"')


@pytest.mark.parametrize("chain", can("trailers"))
def test_trailers_pass_both_ways(world: Chains, chain: str) -> None:
    with world.client(chain) as (client, prefix):
        up = client.post(f"{prefix}/echo", b"body", [("te", "trailers")], [("x-check", "abc")])
        assert json.loads((up.trailers or {})["x-trailers"])["x-check"] == "abc"
        down = client.get(f"{prefix}/trailers", fields=[("te", "trailers")])
        assert (bytes(down.body), (down.trailers or {})["x-sum"]) == (b"onetwo", "42")


@pytest.mark.parametrize("chain", can("hints"))
def test_interim_answers_pass(world: Chains, chain: str) -> None:
    with world.client(chain) as (client, prefix):
        told = client.get(f"{prefix}/hints")
    assert [(status, fields["link"].split(", ")) for status, fields in told.interims] == [
        (103, ["</a.css>; rel=preload", "</b.js>; rel=preload"])
    ]
    assert bytes(told.body) == b"hinted"


@pytest.mark.parametrize("chain", can("continue"))
def test_content_may_wait_until_it_is_asked_for(world: Chains, chain: str) -> None:
    with world.client(chain) as (client, prefix):
        number = client.ask("POST", f"{prefix}/echo", [("expect", "100-continue"), ("content-length", "4")], end=False)
        client.until(lambda: client.told[number].interims, "100")
        assert client.told[number].interims[0][0] == 100
        client.send(number, b"body")
        told = client.answer(number)
    assert (told.status, bytes(told.body)) == (200, b"body")


@pytest.mark.parametrize("chain", can("refuse"))
def test_an_early_refusal_arrives_and_the_connection_goes_on(world: Chains, chain: str) -> None:
    with world.client(chain) as (client, prefix):
        number = client.ask("POST", f"{prefix}/refuse", end=False)
        client.send(number, UPLOAD)
        told = client.answer(number)
        assert (told.status, bytes(told.body)) == (413, b"too much\n")
        assert client.get(f"{prefix}/hello").status == 200


@pytest.mark.parametrize("chain", can("gone"))
def test_the_server_learns_that_a_client_gave_up(world: Chains, chain: str) -> None:
    name = f"{chain}-{world.gateway.port}"
    with world.client(chain) as (client, prefix):
        number = client.ask("GET", f"{prefix}/hold/{name}")
        client.until(lambda: client.told[number].body, "some of it")
        client.reset(number)

        def gone() -> bool:
            return name in json.loads(client.get(f"{prefix}/gone").body)

        eventually(gone, "Node is told")


@pytest.mark.parametrize("chain", [each for each in can() if each.startswith("behind")])
def test_a_proxy_in_front_tells_whose_request_it_is(world: Chains, chain: str) -> None:
    with world.client(chain) as (client, prefix):
        fields = seen(client.get(f"{prefix}/echo?{chain}"))
    hops = [hop.strip() for hop in fields["x-forwarded-for"].split(",")]
    # With a PROXY header the connection is the client's, and no client is believed what it writes.
    assert hops == ([ME] if "-proxy" in chain else [ME, "127.0.0.1"])
    assert fields["host"] == "shop.test"

    def record() -> Any:
        return [each for each in world.gateway.records() if each["target"].endswith(f"?{chain}")]

    (found,) = eventually(record, "the record")
    assert (found["client"], found["protocol"]) == (ME, "HTTP/2")


ODD = {
    "three streams at a time": ["-m", "3"],
    "padding": ["-b", "255"],
    "no table of fields": ["-c", "0", "--encoder-header-table-size", "0"],
    "small windows": ["-w", "10", "-W", "16"],
    "no lengths": ["--no-content-length"],
    "no priorities": ["--no-rfc7540-pri"],
}


@pytest.mark.parametrize("engined", ENGINES)
def test_servers_with_odd_settings_are_spoken_to_as_they_wish(
    neighbours: Neighbours, there: Servers, engined: str
) -> None:
    ports = {name: free_port() for name in ODD}
    files = there.company.directory / "files"
    for name, options in ODD.items():
        argv = [need("nghttpd"), "--no-tls", "-a", "127.0.0.1", "-d", str(files), "--echo-upload", *options]
        neighbours.start([*argv, str(ports[name])], port=ports[name])
    upstreams = [
        {"name": f"u{index}", "endpoints": [{"url": f"h2c://127.0.0.1:{port}"}]}
        for index, port in enumerate(ports.values())
    ]
    settings = config(
        0,
        listeners=[{"name": "web", "address": "127.0.0.1:0", "protocols": ["http2"]}],
        upstreams=upstreams,
        routes=[rule(f"/{each['name']}/", each["name"]) for each in upstreams],
        modules=[REWRITE],
    )
    with engine(engined, neighbours.directory):
        gateway = start(neighbours, settings)
    with connected(gateway.port) as client:
        for index, name in enumerate(ODD):
            numbers = [client.ask("GET", f"/u{index}/bytes/5000") for _ in range(60)]
            found = {(told.status, len(told.body), told.code) for told in map(client.answer, numbers)}
            assert found == {(200, 5000, None)}, name
            told = client.post(f"/u{index}/echo", UPLOAD[:MIB])
            assert (told.status, told.body) == (200, UPLOAD[:MIB]), name
    gateway.healthy()


@pytest.mark.parametrize("engined", ENGINES)
def test_a_server_that_speaks_no_http2_is_told_apart(neighbours: Neighbours, node: int, engined: str) -> None:
    upstreams = [{"name": "origin", "endpoints": [{"url": f"h2c://127.0.0.1:{node}"}]}]
    with engine(engined, neighbours.directory):
        gateway = start(neighbours, config(0, upstreams=upstreams, accessLog={"file": "access.log"}))
    with wire(gateway.port) as client:
        client.send(b"GET / HTTP/1.1\r\nHost: shop.test\r\n\r\n")
        head, _ = client.answer()
    assert head.startswith(b"HTTP/1.1 502 ")
    assert b"error=http_protocol_error" in head
    (record,) = eventually(gateway.records, "the record")
    assert "cannot be used: bad frame" in record["error"]
    gateway.healthy()
