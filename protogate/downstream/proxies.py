"""
Whose word a listener takes on where a connection comes from (the PROXY protocol).

That is decided by where the connection itself comes from, before a byte of it is read: a header from elsewhere is
nothing but bytes.
"""

from __future__ import annotations

from typing import Any

from protogate.config import model
from protogate.expression import cidr
from protogate.message import peer_at


class Proxies:
    """
    @ivar required: whether nobody else may come, and they have to say it.
    """

    def __init__(self, config: model.ProxyProtocol) -> None:
        self.required = config.mode == "required"
        self._inside = [cidr.compile(network) for network in config.trusted]

    def trusts(self, address: Any) -> bool:
        """Whether whoever is at that Twisted address is one of them; on a UNIX socket its permissions have decided."""
        ip = peer_at(address).ip
        return not ip or any(inside(ip) for inside in self._inside)
