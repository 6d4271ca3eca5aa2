"""
What is offered and asked for, as contexts of pyOpenSSL: for every reactor but uvloop's.

pyOpenSSL verifies chains, not names: service-identity does that, right after the handshake and before anything is said.
"""

from __future__ import annotations

from typing import Any, Final

from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding
from OpenSSL import SSL, crypto
from service_identity import CertificateError, VerificationError
from service_identity.pyopenssl import verify_hostname, verify_ip_address
from twisted.internet.abstract import isIPAddress, isIPv6Address
from twisted.internet.interfaces import IOpenSSLClientConnectionCreator, IOpenSSLServerConnectionCreator
from zope.interface import implementer

from protogate.errors import ConfigError
from protogate.tls.client import Client
from protogate.tls.files import Pair
from protogate.tls.server import Pairs, Server
from protogate.tls.session import Session

NAME: Final = "pyOpenSSL"
"""In C{contexts}."""
_lib: Final[Any] = vars(SSL)["_lib"]
_ffi: Final[Any] = vars(SSL)["_ffi"]
"""For what pyOpenSSL has no method."""
VERSIONS: Final = {"1.2": SSL.TLS1_2_VERSION, "1.3": SSL.TLS1_3_VERSION}
_OPTIONS: Final = SSL.OP_NO_COMPRESSION | SSL.OP_NO_RENEGOTIATION


@implementer(IOpenSSLServerConnectionCreator)
class Serving:
    """Makes the connections of a listener."""

    def __init__(self, side: Server) -> None:
        self._context = _serving(side)

    def serverConnectionForTLS(self, tlsProtocol: Any) -> SSL.Connection:
        """Twisted."""
        return SSL.Connection(self._context, None)


@implementer(IOpenSSLClientConnectionCreator)
class Asking:
    """
    Makes a connection to an upstream.

    @param name: its own, which it is asked for.
    @param session: to go on with, or None.
    """

    def __init__(self, context: SSL.Context, name: str, session: SSL.Session | None) -> None:
        self._context, self._name, self._session = context, name, session

    def clientConnectionForTLS(self, tlsProtocol: Any) -> SSL.Connection:
        """Twisted."""
        connection = SSL.Connection(self._context, None)
        if not _is_address(self._name):
            connection.set_tlsext_host_name(self._name.encode("ascii"))
        if self._session is not None:
            connection.set_session(self._session)
        return connection


def serving(side: Server) -> Serving:
    """What makes the connections of a listener; made once."""
    made: Serving | None = side.contexts.get(NAME)
    if made is None:
        made = side.contexts[NAME] = Serving(side)
    return made


def asking(side: Client) -> SSL.Context:
    """The context of an upstream; made once."""
    made: SSL.Context | None = side.contexts.get(NAME)
    if made is None:
        made = side.contexts[NAME] = _asking(side)
    return made


def _serving(side: Server) -> SSL.Context:
    contexts: dict[Pairs, SSL.Context] = {}
    for pairs in (side.first, *side.names.values()):
        if pairs not in contexts:
            contexts[pairs] = _of_pairs(side, pairs)
    base = contexts[side.first]

    def choose(connection: Any) -> None:
        asked = connection.get_servername()
        if asked is None:
            return
        name = asked.decode("latin-1").lower()
        found = side.find(name)
        connection.asked = name, found is not None  # its app_data is Twisted's
        if found is not None:
            connection.set_context(contexts[found])

    base.set_tlsext_servername_callback(choose)
    return base


def _of_pairs(side: Server, pairs: Pairs) -> SSL.Context:
    context = _common(side)
    for pair in pairs:
        _load(context, pair)
    context.set_session_id(b"protogate")
    if side.alpn:
        offered = tuple(side.alpn)

        def select(_: SSL.Connection, asked: list[bytes]) -> Any:
            return next((token for token in offered if token in asked), SSL.NO_OVERLAPPING_PROTOCOLS)

        context.set_alpn_select_callback(select)
    if side.mode != "off":
        must = SSL.VERIFY_FAIL_IF_NO_PEER_CERT if side.mode == "required" else 0
        context.set_verify(SSL.VERIFY_PEER | must, _noted)
        _trust(context, side.authorities)
    return context


def _asking(side: Client) -> SSL.Context:
    context = _common(side)
    if not side.verify:
        context.set_verify(SSL.VERIFY_NONE)
    else:
        context.set_verify(SSL.VERIFY_PEER, _noted)
        if side.authorities:
            _trust(context, side.authorities)
        else:
            context.set_default_verify_paths()
    if side.pair is not None:
        _load(context, side.pair)
    if side.alpn:
        context.set_alpn_protos(list(side.alpn))
    return context


def _common(side: Server | Client) -> SSL.Context:
    context = SSL.Context(SSL.TLS_METHOD)
    context.set_min_proto_version(VERSIONS[side.least])
    context.set_options(_OPTIONS)
    context.set_cipher_list(side.ciphers.encode("ascii"))
    return context


def _load(context: SSL.Context, pair: Pair) -> None:
    try:
        # This, unlike what takes certificates one by one, knows which chain is whose where there are two.
        context.use_certificate_chain_file(pair.cert)
        context.use_privatekey(pair.secret)
        context.check_privatekey()
    except SSL.Error as error:  # renewed between two looks, or nothing that this OpenSSL takes
        raise ConfigError(f"{pair.cert}: TLS does not take it with {pair.key}: {told(error)}") from None


def _trust(context: SSL.Context, authorities: str) -> None:
    store = context.get_cert_store()
    assert store is not None
    for each in x509.load_pem_x509_certificates(authorities.encode("ascii")):
        store.add_cert(crypto.X509.from_cryptography(each))
    store.set_flags(crypto.X509StoreFlags.PARTIAL_CHAIN)  # what is trusted need not be a root


def _noted(connection: Any, _: object, error: int, depth: int, good: int) -> bool:
    """Keep what is wrong with a certificate: what is raised does not say it."""
    if not good:
        connection.trouble = _ffi.string(_lib.X509_verify_cert_error_string(error)).decode("ascii")
    return bool(good)


def doubt(connection: SSL.Connection) -> str:
    """What was wrong with the peer's certificate, or empty."""
    return getattr(connection, "trouble", "")


def identify(connection: SSL.Connection, name: str) -> str:
    """Why the peer is not whom we asked for; empty if it is."""
    try:
        (verify_ip_address if _is_address(name) else verify_hostname)(connection, name)
    except (VerificationError, CertificateError) as error:
        reasons = getattr(error, "errors", None)
        return f"its certificate is not for {name}" if reasons else f"its certificate is not for {name}: {error}"
    return ""


def _is_address(name: str) -> bool:
    return isIPAddress(name) or isIPv6Address(name)


def told(error: BaseException) -> str:
    """What OpenSSL says, without where in its source it says so."""
    lines = error.args[0] if error.args and isinstance(error.args[0], list) else ()
    return ", ".join(str(line[-1]) for line in lines if line) or str(error) or type(error).__name__


def session(connection: SSL.Connection) -> Session:
    """What was negotiated."""
    certificate = connection.get_peer_certificate(as_cryptography=True)
    name, known = getattr(connection, "asked", ("", True))
    return Session(
        connection.get_protocol_version_name(),
        connection.get_cipher_name() or "",
        connection.get_alpn_proto_negotiated() or None,
        name,
        bool(_lib.SSL_session_reused(connection._ssl)),
        None if certificate is None else certificate.public_bytes(Encoding.DER),
        known,
    )
