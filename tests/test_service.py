"""What a gateway tells the log when it starts."""

from __future__ import annotations

import pytest
from twisted.internet.address import IPv4Address, IPv6Address, UNIXAddress
from twisted.logger import capturedLogs, formatEvent

from protogate.downstream.ports import shown
from protogate.testing.gateway import MemoryGateway

CONFIG = """
listeners: [{name: web, address: "127.0.0.1:8080"}, {name: six, address: "[::1]:8081"}]
upstreams: [{name: off, endpoints: [{url: "http://192.0.2.7", weight: 0}]}]
routes: [{value: /, matcherType: prefix, routes: [{targets: [{upstream: off}]}]}]
"""


def test_a_start_tells_warnings_and_where_it_listens() -> None:
    spoken = {"protogate.service", "protogate.loading"}
    with capturedLogs() as captured, MemoryGateway(CONFIG):
        told = [formatEvent(event) for event in captured if event["log_namespace"] in spoken]
    warning, *listeners = told
    assert "upstreams[0].endpoints: every endpoint has weight 0" in warning
    assert listeners == ["listener web on 127.0.0.1:8080", "listener six on [::1]:8081"]


@pytest.mark.parametrize(
    ("address", "text"),
    [
        (IPv4Address("TCP", "127.0.0.1", 80), "127.0.0.1:80"),
        (IPv6Address("TCP", "::1", 80), "[::1]:80"),
        (UNIXAddress("/run/gateway.sock"), "unix:/run/gateway.sock"),
        (UNIXAddress(b"/run/\xff.sock"), "unix:/run/\udcff.sock"),
    ],
)
def test_an_address_is_shown_as_a_configuration_writes_it(address: object, text: str) -> None:
    assert shown(address) == text
