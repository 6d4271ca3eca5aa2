"""
Networks (RFC 4632, RFC 4291, 2.3).

An IPv4 address that came in its IPv6 form (C{::ffff:192.0.2.1}, RFC 4291, 2.5.5.2) is the IPv4 address: what a
dual-stack socket reports must not slip past a list.  What is no address is in no network.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache
from ipaddress import IPv4Network, ip_network
from socket import AF_INET, AF_INET6, inet_pton
from typing import Final

from protogate.errors import ConfigError

KNOWN: Final = 4096
"""Addresses whose numbers are remembered."""
_NETWORK: Final = re.compile(r"([0-9A-Fa-f.:]{2,45})(?:/[0-9]{1,3})?")
_MAPPED: Final = bytes(10) + b"\xff\xff"


@lru_cache(KNOWN)  # who asks once asks again, and several modules want to know
def number(address: str) -> tuple[int, int] | None:
    """Version and number of an address, a zone (C{%eth0}) left out; None for what is none."""
    try:
        if ":" not in address:
            return 4, int.from_bytes(inet_pton(AF_INET, address))
        packed = inet_pton(AF_INET6, address.partition("%")[0])
    except (OSError, ValueError):
        return None  # ValueError: NUL, or what is not ASCII
    if packed.startswith(_MAPPED):
        return 4, int.from_bytes(packed[12:])
    return 6, int.from_bytes(packed)


def _no_network(text: str) -> ConfigError:
    return ConfigError(f'"{text}" is no network; write e.g. 10.0.0.0/8 or 2001:db8::/32')


def compile(text: str) -> Callable[[str], bool]:  # noqa: A001
    """
    A function that tells whether an address is in the network C{text}: C{10.0.0.0/8}, C{2001:db8::/32}, or a single
    address.  Raises L{ConfigError}.
    """
    if _NETWORK.fullmatch(text) is None:
        raise _no_network(text)
    try:
        network = ip_network(text)
    except ValueError:
        try:
            meant = ip_network(text, strict=False)
        except ValueError:
            raise _no_network(text) from None
        raise ConfigError(f'"{text}" has bits set behind its prefix; did you mean "{meant}"?') from None
    bits, shift = int(network.network_address), network.max_prefixlen - network.prefixlen
    version = 4 if isinstance(network, IPv4Network) else 6
    if version == 6 and network.prefixlen >= 96 and bits >> 32 == 0xFFFF:
        version, bits = 4, bits & 0xFFFFFFFF
    key = bits >> shift

    def inside(address: str) -> bool:
        found = number(address)
        return found is not None and found[0] == version and found[1] >> shift == key

    return inside
