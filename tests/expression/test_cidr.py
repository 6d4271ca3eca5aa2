"""Networks."""

from __future__ import annotations

from ipaddress import ip_address, ip_network

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protogate.errors import ConfigError
from protogate.expression import cidr


@pytest.mark.parametrize(
    ("network", "address", "inside"),
    [
        ("10.0.0.0/8", "10.255.255.255", True),
        ("10.0.0.0/8", "11.0.0.0", False),
        ("0.0.0.0/0", "1.2.3.4", True),
        ("0.0.0.0/0", "::1", False),
        ("192.0.2.1", "192.0.2.1", True),
        ("192.0.2.1/32", "192.0.2.2", False),
        ("::/0", "::1", True),
        ("::/0", "1.2.3.4", False),
        ("2001:db8::/32", "2001:DB8:ffff::1", True),
        ("2001:db8::/32", "2001:db9::1", False),
        ("fe80::/10", "fe80::1%eth0", True),
        ("10.0.0.0/8", "::ffff:10.1.2.3", True),
        ("::ffff:10.0.0.0/104", "10.1.2.3", True),
        ("::ffff:10.0.0.0/104", "::ffff:11.1.2.3", False),
        ("10.0.0.0/8", "", False),
        ("10.0.0.0/8", "10.1.2", False),
        ("10.0.0.0/8", "10.1.2.3 ", False),
        ("10.0.0.0/8", "010.1.2.3", False),
        ("10.0.0.0/8", "10.1.2.3\0", False),
        ("10.0.0.0/8", "é", False),
        ("::/0", "é:", False),
        ("::/0", "::g", False),
    ],
)
def test_inside(network: str, address: str, inside: bool) -> None:
    assert cidr.compile(network)(address) is inside


@pytest.mark.parametrize(
    "text",
    ["", "x", "10", "10.0.0.0/33", "10.0.0.0/", "10.0.0.0/-1", "10.0.0.0/255.0.0.0", "10.0.0/8", "::/129",
     "10.0.0.0/8 ", "10.0.0.0/\u0668", "1.2.3.4.5", ":::/3", "fe80::1%eth0"],
)  # fmt: skip
def test_what_is_no_network_is_a_fault(text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        cidr.compile(text)
    assert caught.value.message == f'"{text}" is no network; write e.g. 10.0.0.0/8 or 2001:db8::/32'


def test_bits_behind_the_prefix_are_a_fault_that_names_what_was_meant() -> None:
    with pytest.raises(ConfigError, match=r'"2001:db8::1/32" .*; did you mean "2001:db8::/32"\?'):
        cidr.compile("2001:db8::1/32")


@given(st.ip_addresses(), st.integers(0, 32), st.ip_addresses())
def test_agrees_with_the_standard_library(base: object, length: int, address: object) -> None:
    network = ip_network((str(base), length), strict=False)
    expected = ip_address(str(address)) in network
    if ":" in str(address) and str(address).startswith("::ffff:"):
        return  # an IPv4 address, to us
    assert cidr.compile(str(network))(str(address)) is expected


@given(st.text())
def test_any_text_is_an_address_or_none(text: str) -> None:
    assert cidr.compile("10.0.0.0/8")(text) in (True, False)
