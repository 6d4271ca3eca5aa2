"""errorPage: what people and programs see when something failed."""

from __future__ import annotations

import json

import pytest
from twisted.trial.unittest import SynchronousTestCase

from protogate.config.model import Module
from protogate.errors import CLIENT, Abort
from protogate.exchange import problem
from protogate.governance.binding import bind
from protogate.governance.errorpage import ErrorPageFactory
from protogate.testing.bodies import Taker
from protogate.testing.caller import Caller
from protogate.testing.exchange import exchange
from protogate.testing.gateway import MemoryGateway
from protogate.testing.module import ModuleContract

PAGE = {"statuses": [404], "html": "<h1>${request.path}</h1>", "json": '{"path": "${request.path}"}', "text": "none"}


class ErrorPageContract(ModuleContract, SynchronousTestCase):
    factory = ErrorPageFactory
    good = ({"pages": [PAGE]}, {"pages": [{"statuses": ["4xx", 500], "text": "${response.status}"}], "upstream": True})
    bad = (
        ({}, "pages"),
        ({"pages": []}, "pages"),
        ({"pages": [7]}, "pages"),
        ({"pages": [{"text": "x"}]}, "statuses"),
        ({"pages": [{"statuses": [], "text": "x"}]}, "statuses"),
        ({"pages": [{"statuses": [200], "text": "x"}]}, "statuses"),
        ({"pages": [{"statuses": ["3xx"], "text": "x"}]}, "statuses"),
        ({"pages": [{"statuses": [True], "text": "x"}]}, "statuses"),
        ({"pages": [{"statuses": [404]}]}, "pages"),
        ({"pages": [{"statuses": [404], "text": 7}]}, "text"),
        ({"pages": [{"statuses": [404], "html": {"file": "/nowhere/at/all"}}]}, "html"),
        ({"pages": [{"statuses": [404], "html": {"url": "http://a"}}]}, "html"),
        ({"pages": [{"statuses": [404], "pdf": "x"}]}, "pdf"),
        ({"pages": [PAGE], "upstream": 1}, "upstream"),
    )


def shown(params, status=404, own=True, target=b"/a", accept=None, headers=()):
    """The answer that a client gets."""
    entry = Module(name="errorPage", action_param=params)
    (bound,) = bind([entry], lambda interface, name: ErrorPageFactory())["PRE_RESPONSE"]
    made = exchange("PRE_RESPONSE", target=target, headers=[] if accept is None else [(b"accept", accept)])
    made.request.path = target.decode("latin-1")
    response = made.response
    if own:
        abort = Abort("no rule", CLIENT, status, headers=[(b"retry-after", b"7")])
        response = made.response = problem.answer(abort, "edge", made.id)
    response.status = status
    response.headers.extend(headers)
    assert bound.process(made) is None
    return response


@pytest.mark.parametrize(
    ("accept", "kind", "content"),
    [
        (None, b"text/html; charset=utf-8", b"<h1>/a</h1>"),
        (b"text/html,*/*;q=0.5", b"text/html; charset=utf-8", b"<h1>/a</h1>"),
        (b"application/json", b"application/json", b'{"path": "/a"}'),
        (b"text/plain, application/json;q=0.9", b"text/plain; charset=utf-8", b"none"),
        (b"image/png", b"text/html; charset=utf-8", b"<h1>/a</h1>"),
    ],
)
def test_the_client_says_what_it_gets(accept, kind, content):
    response = shown({"pages": [PAGE]}, accept=accept)
    assert response.headers.all(b"content-type") == [kind]
    assert (Taker(response.body).data, response.body.length) == (content, len(content))
    assert response.headers.all(b"vary") == [b"accept"]


def test_what_a_template_puts_in_is_no_markup():
    path = b"/<script>alert('x')</script>\"&\\"
    assert Taker(shown({"pages": [PAGE]}, target=path).body).data == (
        b"<h1>/&lt;script&gt;alert(&#x27;x&#x27;)&lt;/script&gt;&quot;&amp;\\</h1>"
    )
    made = Taker(shown({"pages": [PAGE]}, target=path, accept=b"application/json").body).data
    assert json.loads(made) == {"path": path.decode()}


def test_status_and_other_fields_stay_and_what_is_about_the_content_goes():
    response = shown({"pages": [PAGE]}, headers=[(b"etag", b'"1"'), (b"content-encoding", b"br"), (b"x-a", b"1")])
    names = [name for name, _ in response.headers]
    assert response.status == 404
    assert response.headers.get(b"retry-after") == b"7"
    assert {b"proxy-status", b"x-a"} <= set(names)
    assert not {b"etag", b"content-encoding"} & set(names)
    assert response.reason is not None


def test_a_page_is_for_its_statuses():
    pages = [PAGE, {"statuses": ["4xx"], "text": "four"}, {"statuses": [500, "5xx"], "text": "five ${response.status}"}]
    for status, content in ((404, b"<h1>/a</h1>"), (403, b"four"), (500, b"five 500"), (503, b"five 503")):
        assert Taker(shown({"pages": pages}, status).body).data == content
    assert shown({"pages": [PAGE]}, 403).headers.get(b"content-type") == b"application/problem+json"


def test_errors_of_the_upstream_are_its_own_unless_they_are_to_be_replaced():
    assert shown({"pages": [PAGE]}, own=False).headers.get(b"content-type") is None
    response = shown({"pages": [PAGE], "upstream": True}, own=False)
    assert Taker(response.body).data == b"<h1>/a</h1>"
    assert shown({"pages": [PAGE], "upstream": True}, 200, own=False).body is None


def test_a_page_from_a_file(tmp_path):
    (tmp_path / "page.html").write_text("<p>${response.status} ä</p>")
    pages = [{"statuses": [404], "html": {"file": str(tmp_path / "page.html")}}]
    response = shown({"pages": pages})
    assert Taker(response.body).data == "<p>404 ä</p>".encode()
    assert response.headers.all(b"vary") == []


@pytest.mark.parametrize(
    ("content", "why"),
    [(b"${response.stats}", "stats"), (b"\xff", "utf-8"), (b"x" * 300_000, "larger than")],
)
def test_what_is_wrong_with_a_file_names_it(tmp_path, content, why):
    (tmp_path / "page.html").write_bytes(content)
    with pytest.raises(Exception, match=f"page.html: .*{why}"):
        shown({"pages": [{"statuses": [404], "html": {"file": str(tmp_path / "page.html")}}]})


CONFIG = """
listeners:
  - {name: http1, address: "127.0.0.1:8080", protocols: [http1]}
  - {name: sotp, address: "127.0.0.1:8081", protocols: [sotp]}
upstreams: [{name: shop, endpoints: [{url: "http://192.0.2.7:80"}]}]
routes: [{value: /shop, matcherType: prefix, routes: [{targets: [{upstream: shop}]}]}]
modules:
  - {name: errorPage, actionParam: {pages: [{statuses: [4xx], text: "nothing here"}]}}
"""


@pytest.mark.parametrize("codec", ["http1", "sotp"])
def test_in_a_gateway(codec):
    with MemoryGateway(CONFIG) as gateway:
        got = Caller(gateway, codec, codec).ask(b"POST", b"/1001/x")
        assert (got.status, got.content) == (404, b"nothing here")
