"""
What an upstream is asked for over TLS, whom it must prove to be, and what we prove to it.

Rules
- An upstream is verified, by chain and by name, unless the configuration says in so many words that it is not.
- Sessions are resumed with who has proved the same name under the same L{Client}, and nobody else.
- Nothing of a L{Client} changes: renewed files make another one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from protogate.config import model
from protogate.config.faults import ConfigFaults
from protogate.config.stamp import Stamp
from protogate.errors import ConfigError
from protogate.tls import files
from protogate.tls.files import Pair, Reading
from protogate.tls.server import CIPHERS


@dataclass(frozen=True, slots=True, kw_only=True)
class Client:
    """
    @ivar verify: whether the upstream must prove who it is.
    @ivar authorities: PEM: by whom its certificate must be issued; empty = by one whom the system trusts.
    @ivar name: which it must prove to have, and is asked for; empty = the host of its endpoint.
    @ivar pair: what we prove to it, or None.
    @ivar least: C{1.2} or C{1.3}.
    @ivar alpn: what is offered, best first.
    @ivar stamps: the files that all this was read from.
    @ivar contexts: what the libraries made of it, by name; see L{native} and L{openssl}.
    """

    verify: bool = True
    authorities: str = ""
    name: str = ""
    pair: Pair | None = None
    least: str = "1.2"
    ciphers: str = CIPHERS
    alpn: Sequence[bytes] = ()
    stamps: Mapping[str, Stamp | None] = field(default_factory=dict)
    contexts: dict[str, Any] = field(default_factory=dict, compare=False, repr=False)


def client(config: model.UpstreamTls, alpn: Sequence[bytes], reading: Reading) -> Client:
    """
    Read what an upstream needs.

    @raise ConfigFaults: all that is wrong with it; paths are relative to C{config}.
    """
    faults: list[ConfigError] = []
    authorities, pair = "", None
    try:
        if config.ca:
            authorities = reading.authorities(config.ca, ("ca",))
    except ConfigError as error:
        faults.append(error)
    try:
        if config.cert and config.key:
            pair = reading.pair(config.cert, config.key, ())
        elif config.cert or config.key:
            missing, given = ("key", "cert") if config.cert else ("cert", "key")
            faults.append(ConfigError(f"a certificate needs its key: {missing} is missing", (given,)))
    except ConfigError as error:
        faults.append(error)
    try:
        if config.ciphers:
            files.ciphers(config.ciphers, ("ciphers",))
    except ConfigError as error:
        faults.append(error)
    if not config.verify:
        if config.ca:
            faults.append(ConfigError("with verify: false nobody looks at it; leave one of them out", ("ca",)))
        reading.warnings.append(ConfigError("whoever answers is taken for the upstream", ("verify",)))
    if faults:
        raise ConfigFaults(faults)
    return Client(
        verify=config.verify,
        authorities=authorities,
        name=config.server_name,
        pair=pair,
        least=config.min_version,
        ciphers=config.ciphers or CIPHERS,
        alpn=tuple(alpn),
        stamps=dict(reading.stamps),
    )
