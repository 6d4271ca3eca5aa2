"""redirect: somewhere else, and nowhere that a stranger says."""

from __future__ import annotations

import pytest
from twisted.trial.unittest import SynchronousTestCase

from protogate.config.model import Module
from protogate.errors import Abort
from protogate.governance.binding import bind
from protogate.governance.redirect import RedirectFactory
from protogate.testing.exchange import exchange
from protogate.testing.module import ModuleContract


class RedirectContract(ModuleContract, SynchronousTestCase):
    factory = RedirectFactory
    good = (
        {"location": "https://shop.example/"},
        {"location": "https://shop.example/x?from=${request.path}", "status": 301},
        {"location": "/new${request.path}", "status": 307},
        {"scheme": "https", "port": 8443},
        {"host": "shop.example", "path": "/x/${source.ip}", "query": False},
    )
    bad = (
        ({}, "location"),
        ({"location": "https://a.example/", "host": "b.example"}, "host"),
        ({"location": "${request.path}"}, "location"),
        ({"location": "/${request.path}"}, "location"),
        ({"location": "//${request.path}"}, "location"),
        ({"location": "https://${request.host}/"}, "location"),
        ({"location": "https://shop.example${request.path}"}, "location"),
        ({"location": "https://a.example/ö"}, "location"),
        ({"location": "https://a.example/\r\nx: y"}, "location"),
        ({"location": ""}, "location"),
        ({"status": 200, "scheme": "https"}, "status"),
        ({"status": 304, "scheme": "https"}, "status"),
        ({"scheme": "ftp"}, "scheme"),
        ({"host": "shop.example:80"}, "host"),
        ({"host": "a/b"}, "host"),
        ({"port": 0}, "port"),
        ({"path": "/%zz"}, "path"),
        ({"host": "${request.host}"}, "host"),
    )


def location(params, **request):
    entry = Module(name="redirect", action_param=params)
    (bound,) = bind([entry], lambda interface, name: RedirectFactory())["PRE_REQUEST"]
    answer = bound.process(exchange(**request))
    ((name, value),) = answer.headers
    assert name == b"location"
    return answer.status, value.decode("ascii")


@pytest.mark.parametrize(
    ("params", "request_", "wanted"),
    [
        ({"scheme": "https"}, {}, "https://a.test/path?q=1"),
        ({"scheme": "https"}, {"authority": b"a.test:8080"}, "https://a.test/path?q=1"),
        ({"scheme": "https", "port": 8443}, {}, "https://a.test:8443/path?q=1"),
        ({"scheme": "https", "port": 443}, {}, "https://a.test/path?q=1"),
        ({"scheme": "https"}, {"authority": b"[2001:db8::1]:80"}, "https://[2001:db8::1]/path?q=1"),
        ({"host": "b.test"}, {}, "http://b.test/path?q=1"),
        ({"host": "b.test"}, {"tls": True}, "https://b.test/path?q=1"),
        ({"path": "/x"}, {"authority": b"a.test:8080"}, "http://a.test:8080/x?q=1"),
        ({"path": "/x", "query": False}, {}, "http://a.test/x"),
        ({"path": "/x"}, {"target": b"/y"}, "http://a.test/x"),
        ({"port": 81}, {"tls": True, "target": b"//evil.example/"}, "https://a.test:81//evil.example/"),
        ({"scheme": "https"}, {"target": b"*", "method": b"OPTIONS"}, "https://a.test/"),
    ],
)
def test_what_is_not_named_stays_as_it_was_asked_for(params, request_, wanted):
    assert location(params, **request_) == (302, wanted)


@pytest.mark.parametrize("text", ["a\r\nx: y", "a b", 'a"<>\\^`{|}', "ö"])
def test_what_a_template_puts_in_ends_no_line_and_is_a_url(text):
    headers = [(b"x-to", text.encode())]
    _, made = location({"location": "https://a.example/?to=${request.headers['x-to']}"}, headers=headers)
    assert made.startswith("https://a.example/?to=")
    assert not set(made) & set(' \r\n\\"<>ö') - set('"<>^`{|}')


def test_a_path_from_a_template_is_a_path_of_this_site():
    _, made = location({"path": "${request.headers['x-to']}"}, headers=[(b"x-to", b"//evil.example/../x")])
    assert made.startswith("http://a.test/")
    with pytest.raises(Abort) as caught:
        location({"path": "/${request.headers['x-to']}"}, headers=[(b"x-to", b"../../x")])
    assert caught.value.status == 400


def test_a_request_without_a_host_cannot_be_sent_to_another_scheme():
    with pytest.raises(Abort, match="names no host") as caught:
        location({"scheme": "https"}, authority=b"")
    assert caught.value.status == 400
