"""
What is offered and asked for, as contexts of C{ssl}: for uvloop's TLS.

C{ssl} reads keys from files only, so that a context is made from the same files again; who renews them meanwhile
makes a pair that does not fit, which is a fault like any other, and the next look at them finds them as they should be.
"""

from __future__ import annotations

import ssl
from typing import Any, Final

from protogate.errors import ConfigError
from protogate.reactor.tls import TLS, Context
from protogate.tls.client import Client
from protogate.tls.files import Pair
from protogate.tls.server import Pairs, Server
from protogate.tls.session import Session

NAME: Final = "ssl"
"""In C{contexts}."""
VERSIONS: Final = {"1.2": ssl.TLSVersion.TLSv1_2, "1.3": ssl.TLSVersion.TLSv1_3}
LONG: Final = 86400.0
"""Seconds: a handshake has a clock of ours, not of uvloop's."""
CLOSING: Final = 5.0
"""Seconds for the peer to answer close_notify."""


def serving(side: Server) -> TLS:
    """The context of a listener; made once."""
    made: TLS | None = side.contexts.get(NAME)
    if made is None:
        made = side.contexts[NAME] = TLS(_serving(side), handshake=LONG, shutdown=CLOSING)
    return made


def asking(side: Client) -> ssl.SSLContext:
    """The context of an upstream; made once."""
    made: ssl.SSLContext | None = side.contexts.get(NAME)
    if made is None:
        made = side.contexts[NAME] = _asking(side)
    return made


def _serving(side: Server) -> ssl.SSLContext:
    contexts: dict[Pairs, ssl.SSLContext] = {}
    for pairs in (side.first, *side.names.values()):
        if pairs not in contexts:
            contexts[pairs] = _of_pairs(side, pairs)
    base = contexts[side.first]

    def choose(connection: Any, name: str | None, _: ssl.SSLContext) -> None:
        if name is None:
            return
        name = name.lower()
        found = side.find(name)
        connection.asked = name, found is not None
        if found is not None:
            connection.context = contexts[found]

    base.sni_callback = choose
    return base


def _of_pairs(side: Server, pairs: Pairs) -> ssl.SSLContext:
    context = Context(ssl.PROTOCOL_TLS_SERVER)
    _common(context, side)
    for pair in pairs:
        _load(context, pair)
    if side.mode != "off":
        context.verify_mode = ssl.CERT_REQUIRED if side.mode == "required" else ssl.CERT_OPTIONAL
        context.load_verify_locations(cadata=side.authorities)
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    return context


def _asking(side: Client) -> ssl.SSLContext:
    context = Context(ssl.PROTOCOL_TLS_CLIENT)
    _common(context, side)
    if not side.verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    elif side.authorities:
        context.load_verify_locations(cadata=side.authorities)
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    else:
        context.load_default_certs()
    if side.pair is not None:
        _load(context, side.pair)
    return context


def _common(context: ssl.SSLContext, side: Server | Client) -> None:
    context.minimum_version = VERSIONS[side.least]
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_COMPRESSION
    context.set_ciphers(side.ciphers)
    if side.alpn:
        context.set_alpn_protocols([token.decode("ascii") for token in side.alpn])


def _load(context: ssl.SSLContext, pair: Pair) -> None:
    try:
        context.load_cert_chain(pair.cert, pair.key, password=_none)
    except (OSError, ValueError) as error:  # renewed between two looks, or nothing that this OpenSSL takes
        raise ConfigError(f"{pair.cert}: TLS does not take it with {pair.key}: {error}") from None


def _none() -> str:
    """The password of a key: nobody knows one, and nobody is to be asked on a terminal."""
    return ""


def session(connection: Any) -> Session:
    """What was negotiated, of an C{ssl.SSLObject}."""
    alpn = connection.selected_alpn_protocol()
    name, known = getattr(connection, "asked", ("", True))
    cipher = connection.cipher()
    return Session(
        connection.version() or "",
        cipher[0] if cipher else "",
        None if alpn is None else alpn.encode("ascii"),
        name,
        bool(connection.session_reused),
        connection.getpeercert(True),
        known,
    )
