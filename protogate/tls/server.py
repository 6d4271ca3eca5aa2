"""
What a listener offers over TLS, and which of its certificates is for which name.

Rules
- A name is looked for as it is, then with C{*} in place of its first label (RFC 9525, 6.3); who names none, or one that
  nobody has, gets the first certificate of the list.
- One name may have certificates with keys of different kinds: the client's abilities decide.
- Nothing of it changes: renewed files make another L{Server}.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from protogate.config import model
from protogate.config.faults import ConfigFaults
from protogate.config.stamp import Stamp
from protogate.errors import ConfigError
from protogate.tls import files
from protogate.tls.files import Pair, Reading

CIPHERS: Final = (
    "ECDHE-ECDSA-AES128-GCM-SHA256:ECDHE-RSA-AES128-GCM-SHA256:ECDHE-ECDSA-AES256-GCM-SHA384:"
    "ECDHE-RSA-AES256-GCM-SHA384:ECDHE-ECDSA-CHACHA20-POLY1305:ECDHE-RSA-CHACHA20-POLY1305"
)
"""Of TLS 1.2: forward secret, and authenticated in one step; those of TLS 1.3 all are."""

Pairs = tuple[Pair, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """
    @ivar names: which certificates are for which name.
    @ivar first: those for everybody else.
    @ivar mode: whether a client is asked for a certificate: C{off}, C{optional}, C{required}.
    @ivar authorities: PEM: by whom it must be issued.
    @ivar least: C{1.2} or C{1.3}.
    @ivar alpn: what is offered, best first.
    @ivar stamps: the files that all this was read from.
    @ivar contexts: what the libraries made of it, by name; see L{native} and L{openssl}.
    """

    names: Mapping[str, Pairs]
    first: Pairs
    mode: str = "off"
    authorities: str = ""
    least: str = "1.2"
    ciphers: str = CIPHERS
    alpn: Sequence[bytes] = ()
    stamps: Mapping[str, Stamp | None] = field(default_factory=dict)
    contexts: dict[str, Any] = field(default_factory=dict, compare=False, repr=False)

    def find(self, name: str) -> Pairs | None:
        """The certificates for a name in lower case, or None."""
        found = self.names.get(name)
        if found is None:
            found = self.names.get(f"*.{name.partition('.')[2]}")
        return found


def server(config: model.ListenerTls, alpn: Sequence[bytes], reading: Reading) -> Server:
    """
    Read what a listener needs.

    @raise ConfigFaults: all that is wrong with it; paths are relative to C{config}.
    """
    faults: list[ConfigError] = []
    pairs: list[Pair] = []
    for index, each in enumerate(config.certificates):
        try:
            pairs.append(reading.pair(each.cert, each.key, ("certificates", index)))
        except ConfigError as error:
            faults.append(error)
    authorities, mode = "", "off"
    try:
        if config.client_auth is not None and config.client_auth.mode != "off":
            mode = config.client_auth.mode
            authorities = reading.authorities(config.client_auth.ca, ("clientAuth", "ca"))
    except ConfigError as error:
        faults.append(error)
    try:
        if config.ciphers:
            files.ciphers(config.ciphers, ("ciphers",))
    except ConfigError as error:
        faults.append(error)
    if faults:
        raise ConfigFaults(faults)
    names: dict[str, Pairs] = {}
    for index, pair in enumerate(pairs):
        for name in pair.names:
            there = names.get(name, ())
            if any(other.kind == pair.kind for other in there):
                message = f"{pair.cert}: an earlier certificate is for {name} already, and is used for it"
                reading.warnings.append(ConfigError(message, ("certificates", index, "cert")))
            else:
                names[name] = (*there, pair)
    first = pairs[0]
    beside = [pair for pair in pairs[1:] if pair.kind != first.kind and set(pair.names) == set(first.names)]
    return Server(
        names=names,
        first=(first, *beside[:1]),
        mode=mode,
        authorities=authorities,
        least=config.min_version,
        ciphers=config.ciphers or CIPHERS,
        alpn=tuple(alpn),
        stamps=dict(reading.stamps),
    )
