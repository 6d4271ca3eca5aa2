"""rewritePath."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protogate.config.faults import ConfigFaults
from protogate.config.model import Module
from protogate.errors import Abort, ConfigError
from protogate.exchange.pipeline import run
from protogate.governance.binding import bind
from protogate.governance.rewritepath import KNOWN, LONGEST, RewritePathFactory
from protogate.uri import canonical


@pytest.fixture
def rewrite(fakes):
    """C{rewrite(target, **params)}: the target behind the module; path and target must agree."""

    def rewrite(target, headers=(), **params):
        entry = Module(name="rewritePath", action_param=params)
        bound = bind([entry], fakes.finder(RewritePathFactory()))["PRE_REQUEST"]
        exchange = fakes.Exchange(target=target, headers=headers)
        request = exchange.request
        if target.startswith(b"/"):
            request.path = canonical(target.partition(b"?")[0]).path
        run(bound, exchange)
        if request.target != target:
            assert request.target.partition(b"?")[0] == request.path.encode("ascii")
            assert canonical(request.path.encode("ascii")).path == request.path
        return request.target

    return rewrite


@pytest.mark.parametrize(
    ("target", "prefix", "replacement", "after"),
    [
        (b"/api/x?q=1&q=%2f", "/api", "/v2", b"/v2/x?q=1&q=%2f"),
        (b"/api/x", "/api/", "/v2/", b"/v2/x"),
        (b"/api", "/api", "/v2", b"/v2"),
        (b"/api/", "/api", "/v2", b"/v2/"),
        (b"/apix/y", "/api", "/v2", b"/apix/y"),
        (b"/api/x", "/api", "", b"/x"),
        (b"/api", "/api", "", b"/"),
        (b"/api", "/api", "/", b"/"),
        (b"/x", "/", "/base", b"/base/x"),
        (b"/", "/", "/base", b"/base/"),
        (b"/other", "/api", "/v2", b"/other"),
        (b"/%61pi/x", "/api", "/v2", b"/v2/x"),
        (b"/x/../api/y", "/api", "/v2", b"/v2/y"),
        (b"*", "/api", "/v2", b"*"),
    ],
)
def test_prefix(rewrite, target, prefix, replacement, after):
    assert rewrite(target, prefix=prefix, replacement=replacement) == after


@pytest.mark.parametrize(
    ("target", "regex", "replacement", "after"),
    [
        (b"/user/7/orders?x", "^/user/([0-9]+)/(.*)", r"/\2/of/\1", b"/orders/of/7?x"),
        (b"/user/7", "^/user/(?P<id>[0-9]+)$", r"/u/\g<id>", b"/u/7"),
        (b"/user/x", "^/user/([0-9]+)$", r"/\1", b"/user/x"),
        (b"/a/b", ".*", "/x", b"/x"),
        (b"/old/x", "^/old/", "", b"/x"),
        (b"/a", "^/(.*)", r"/\1/../b", b"/b"),
    ],
)
def test_regex(rewrite, target, regex, replacement, after):
    assert rewrite(target, regex=regex, replacement=replacement) == after


def test_path(rewrite):
    assert rewrite(b"/x?a=1", path="/fixed") == b"/fixed?a=1"
    assert rewrite(b"/fixed?a=1", path="/fixed") == b"/fixed?a=1"


@pytest.mark.parametrize(
    ("name", "after"),
    [
        (b"plain", b"/files/plain?k"),
        (b"a b", b"/files/a%20b?k"),
        (b"a?b#c", b"/files/a%3Fb%23c?k"),
        (b"../admin", b"/admin?k"),
        (b"\xe9", b"/files/%E9?k"),
    ],
)
def test_template_brings_a_path_and_nothing_else(rewrite, name, after):
    assert rewrite(b"/x?k", [(b"x-file", name)], path="/files/${request.headers['x-file']}") == after


def test_template_beyond_latin1_is_utf8(rewrite):
    assert rewrite(b"/?q=%E4%B8%AD", path="/${request.query['q']}") == b"/%E4%B8%AD?q=%E4%B8%AD"


def test_template_in_the_replacement(rewrite):
    assert rewrite(b"/api/x", prefix="/api", replacement="/${gateway.zone}") == b"/zone-a/x"


@pytest.mark.parametrize("name", [b"../../x", b"%zz", b"a\\b", b"%2f..%2f"])
def test_what_is_no_path_is_refused(rewrite, name):
    with pytest.raises(Abort) as caught:
        rewrite(b"/x", [(b"x-file", name)], path="/files/${request.headers['x-file']}")
    assert (caught.value.status, caught.value.who) == (400, "client")
    assert caught.value.reason.startswith("rewritePath: what came out is no path: ")


def test_whatever_a_template_brings_target_and_path_agree(fakes):
    module = RewritePathFactory().build({"regex": "^/(.*)$", "replacement": "/\\1"})

    @given(st.text())
    def check(text):
        exchange = fakes.Exchange(target=b"/before?q")
        exchange.request.path = text
        try:
            module.process(exchange)
        except Abort:
            return
        request = exchange.request
        assert request.target.endswith(b"?q")
        if request.path != text:
            assert canonical(request.target[:-2]).path == request.path

    check()


@pytest.mark.parametrize(
    ("params", "path", "message"),
    [
        ({}, (), "exactly one of path, prefix, regex, got none"),
        ({"path": "/a", "regex": "b"}, (), "got path and regex"),
        ({"path": "/a", "replacement": "/b"}, ("replacement",), "nothing to replace"),
        ({"path": "a"}, ("path",), "does not start with a slash"),
        ({"path": "/a?b=1"}, ("path",), "the query stays as it is"),
        ({"path": "/a/../b"}, ("path",), 'write "/b"'),
        ({"path": "/%zz"}, ("path",), '"/%zz" is no path: '),
        ({"path": 5}, ("path",), "put it in quotes"),
        ({"prefix": "/a"}, ("replacement",), "replacement is missing: what prefix becomes"),
        ({"prefix": "a", "replacement": "/b"}, ("prefix",), "does not start with a slash"),
        ({"prefix": "/a", "replacement": "b"}, ("replacement",), "does not start with a slash"),
        ({"regex": "(", "replacement": "/b"}, ("regex",), ""),
        ({"regex": "^/(a)", "replacement": r"/\2"}, ("replacement",), "invalid group reference"),
        ({"regex": "^/(a)", "replacement": r"/\g<x>"}, ("replacement",), "unknown group name"),
        ({"regexp": "^/a", "replacement": "/b"}, ("regexp",), 'did you mean "regex"'),
    ],
)
def test_what_cannot_be_built(params, path, message):
    with pytest.raises((ConfigError, ConfigFaults)) as caught:
        RewritePathFactory().build(params)
    first = getattr(caught.value, "faults", [caught.value])[0]
    assert isinstance(first, ConfigError)
    assert first.path == path
    assert message in first.message


def test_regex_takes_no_template_in_its_replacement(rewrite):
    with pytest.raises(ConfigFaults, match="not evaluated here"):
        rewrite(b"/", regex="a", replacement="${func.requestId}")


def test_what_is_remembered_is_bounded(fakes):
    module = RewritePathFactory().build({"prefix": "/", "replacement": "/new"})
    for number in range(KNOWN + 10):
        made = fakes.Exchange(target=b"/%d" % number)
        made.request.path = f"/{number}"
        module.process(made)
        assert made.request.target == b"/new/%d" % number
    assert 0 < len(module._known) <= KNOWN
    made = fakes.Exchange(target=b"/" + b"x" * LONGEST)
    made.request.path = "/" + "x" * LONGEST
    before = len(module._known)
    module.process(made)
    assert len(module._known) == before
