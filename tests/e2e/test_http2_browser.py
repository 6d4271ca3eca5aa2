"""
Chromium, headless, over HTTPS: it fetches, streams, uploads and opens a WebSocket, and tells what became of all that in
the path of a last request, which is in the access log.
"""

from __future__ import annotations

import base64
import hashlib
import json
import urllib.parse
from collections.abc import Iterator
from typing import Any

import pytest
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from multiplexed import ENGINES, World, rule, world

from gateways import eventually, origin
from neighbours import Neighbours, need

PAGE = """<!doctype html><title>trial</title><script>
const told = {};
async function trial() {
  const upload = new Uint8Array(300000).map((_, index) => index % 251);
  const echoed = await fetch('/one/echo', {method: 'POST', body: upload, headers: {'x-mine': 'yes'}});
  const back = new Uint8Array(await echoed.arrayBuffer());
  told.upload = [echoed.status, back.length, back.every((byte, index) => byte === index % 251)];
  const sizes = await Promise.all([...Array(60).keys()].map(async (index) =>
    (await (await fetch((index % 2 ? '/one' : '/two') + '/bytes/5000?' + index)).text()).length));
  told.many = sizes.filter((size) => size === 5000).length;
  const reader = (await fetch('/one/hold/page')).body.getReader();
  const read = async () => new TextDecoder().decode((await reader.read()).value);
  const first = await read();
  await fetch('/one/release/page');
  told.stream = [first, await read()];
  const leave = new AbortController();
  const held = await fetch('/two/hold', {signal: leave.signal});
  await held.body.getReader().read();
  leave.abort();
  told.protocols = [...new Set(performance.getEntriesByType('resource').map((entry) => entry.nextHopProtocol))];
  told.socket = await new Promise((done) => {
    const socket = new WebSocket('wss://' + location.host + '/ws/echo');
    const got = [];
    socket.binaryType = 'arraybuffer';
    socket.onopen = () => (socket.send('text \\u2603'), socket.send(new Uint8Array(70000)));
    socket.onmessage = ({data}) => {
      got.push(typeof data === 'string' ? data : data.byteLength);
      if (got.length === 2) socket.close(4000, 'enough');
    };
    socket.onerror = () => got.push('error');
    socket.onclose = (event) => done([...got, event.code, event.wasClean]);
  });
}
trial().catch((error) => (told.error = String(error))).finally(() =>
  fetch('/one/done/' + encodeURIComponent(JSON.stringify(told))));
</script>"""


@pytest.fixture(scope="module", params=ENGINES)
def there(request: pytest.FixtureRequest, company: Neighbours, node: int) -> Iterator[World]:
    sockets = origin(company, "websocket_server.py").port
    page = {"status": 200, "body": PAGE, "headers": {"content-type": "text/html; charset=utf-8"}}
    made = world(
        company,
        node,
        request.param,
        routes=[rule("/ws", "sockets")],
        upstreams=[{"name": "sockets", "endpoints": [{"url": f"http://127.0.0.1:{sockets}"}]}],
        modules=[{"name": "respond", "condition": "request.path == '/page'", "actionParam": page}],
    )
    yield made
    made.gateway.healthy()


def test_chromium_does_all_of_it_over_http2(there: World) -> None:
    key = there.issued.certificate.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    pin = base64.b64encode(hashlib.sha256(key).digest()).decode()
    profile = there.company.directory / f"profile-{there.tls}"
    browser = there.company.start(
        [
            need("chromium"),
            "--headless=new",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--no-first-run",
            "--disable-background-networking",
            "--disable-component-update",
            "--no-proxy-server",
            f"--user-data-dir={profile}",
            f"--ignore-certificate-errors-spki-list={pin}",
            f"{there.url}/page",
        ]
    )

    def done() -> list[Any]:
        return [record for record in there.gateway.records() if record["target"].startswith("/one/done/")]

    (record,) = eventually(done, f"the end of the page; the browser says {browser.output()}", 60)
    browser.stop()
    told = json.loads(urllib.parse.unquote(record["target"].removeprefix("/one/done/")))
    assert told == {
        "upload": [200, 300_000, True],
        "many": 60,
        "stream": ["first\n", "last\n"],
        "protocols": ["h2"],
        "socket": ["text ☃", 70_000, 4000, True],
    }

    def sockets() -> list[Any]:
        return [each for each in there.gateway.records() if each["target"] == "/ws/echo"]

    (socket,) = eventually(sockets, "the end of the socket")  # a tunnel is over when both ends have said so
    records = there.gateway.records()
    assert {each["protocol"] for each in records if each["target"] != "/page"} == {"HTTP/2"}
    assert socket["protocol"] == "HTTP/2", "RFC 8441, not a connection of its own"
