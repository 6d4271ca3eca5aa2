"""protogate.build: what is made of a file goes away without the garbage collector."""

from __future__ import annotations

import gc
import weakref
from pathlib import Path

import pytest

from protogate.build import build, build_quietly
from protogate.config.faults import ConfigFaults

RICH = """
gateway: {name: edge-1, zone: PRO, trustedProxies: [10.0.0.0/8]}
listeners: [{name: web, address: "127.0.0.1:8080"}]
upstreams:
  - {name: a, endpoints: [{url: "http://192.0.2.1"}, {url: "http://192.0.2.2", weight: 5}]}
  - {name: b, discovery: {dns: "b.test:80"}}
routes:
  - value: /hotel
    matcherType: prefix
    hosts: ["*.a.test", b.test]
    methods: [GET, POST]
    tags: [x]
    properties: {core: "true"}
    routes:
      - condition: "request.headers['x'].matches('^a+$') && inCidr(source.ip, '10.0.0.0/8') || request.path in ['/a']"
        targets: [{upstream: a}]
      - sticky: {key: "request.cookies['sid']"}
        targets: [{upstream: a, weight: 95}, {url: "http://192.0.2.9/inn", weight: 5}]
  - {value: "/t/{id}/x", matcherType: template, routes: [{zone: UAT, targets: [{upstream: b}]}]}
  - {value: "^/r/[0-9]+$", matcherType: regex, routes: [{targets: [{upstream: b}]}]}
  - {type: header, value: x-a=1, routes: [{targets: [{upstream: a}]}]}
  - {type: host, value: c.test, published: false, routes: [{targets: [{upstream: a}]}]}
modules:
  - {name: accessList, actionParam: {deny: [192.0.2.0/24]}, grayRatio: 50}
  - {name: respond, condition: "request.malformed", actionParam: {status: 400, body: "${func.requestId}"}}
  - {name: setRequestHeader, actionParam: {x-a: "${request.host}", x-b: [one, "${source.ip}"]}}
  - {name: addResponseHeader, actionParam: {x-c: "${request.func.remoteCost}"}}
  - {name: removeHeader, actionParam: {names: [x-d]}}
  - {name: rewritePath, actionParam: {regex: "^/a/(.*)$", replacement: "/b/$1"}}
accessLog: {file: "-", always: "response.status >= 500"}
"""


@pytest.fixture
def path(tmp_path: Path) -> str:
    """Of the file."""
    file = tmp_path / "gateway.yaml"
    file.write_text(RICH, encoding="utf-8")
    return str(file)


def test_a_configuration_refers_to_itself_nowhere(path: str) -> None:
    build(path)  # what is imported and remembered once is no matter
    gc.collect()
    gc.disable()
    try:
        built = build(path)
        router = weakref.ref(built.router)
        del built
        assert router() is None
        assert gc.collect() == 0
    finally:
        gc.enable()


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("pathPolicy: canonical", "pathPolicy: canonicl"),  # of the file
        ("{upstream: b}", "{upstream: nobody}"),
        ("'^a+$'", "'^a+($'"),  # of an expression
        ("x-a: ", "x a: "),  # of a module
        ("192.0.2.0/24", "192.0.2.0/99"),
    ],
)
def test_one_with_faults_leaves_nothing_behind(path: str, right: str, wrong: str) -> None:
    file = Path(path)
    text = file.read_text(encoding="utf-8").replace("gateway: {", "gateway: {pathPolicy: canonical, ")
    assert right in text
    file.write_text(text.replace(right, wrong), encoding="utf-8")

    def fails() -> None:
        try:
            build_quietly(path)
        except ConfigFaults:
            return
        pytest.fail("it has no fault")

    fails()
    gc.collect()
    gc.disable()
    try:
        fails()
        assert gc.collect() == 0
    finally:
        gc.enable()


def test_warnings_tell_where_they_come_from(tmp_path: Path) -> None:
    file = tmp_path / "gateway.yaml"
    file.write_text(
        'listeners: [{name: web, address: "127.0.0.1:8080"}]\n'
        'routes: [{value: /, matcherType: prefix, routes: [{targets: [{url: "http://192.0.2.1"}]}]}]\n'
        "modules:\n"
        "  - name: addResponseHeader\n"
        "    actionParam: {connection: keep-alive}\n",
        encoding="utf-8",
    )
    (warning,) = build(str(file)).warnings
    assert warning.startswith(f"{file}:5:31: modules[0].actionParam.connection: ")
