"""
What passes between codecs.  Knows no protocol: a field here means the same whatever carried it (RFC 9110 vocabulary).

Rules
- Field names are lower-case bytes, values are bytes without leading or trailing white space.  Nothing is decoded before
  somebody asks: C{host}, C{query} and C{cookies} are parsed on first access, and only once.
- Framing and connection fields (content-length, transfer-encoding, connection, host, te, upgrade …) never stand in
  C{headers}: the decoding codec takes them out, the encoding codec writes its own.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable
from ipaddress import IPv6Address, ip_address
from typing import TYPE_CHECKING, Any, Final

from mypy_extensions import mypyc_attr
from twisted.internet.interfaces import ISSLTransport

from protogate.errors import Abort
from protogate.uri import cookies_of, host_of, query_of

if TYPE_CHECKING:
    from protogate.exchange.ledger import Ledger
    from protogate.interfaces import IBody
    from protogate.tls.session import Session

Field = tuple[bytes, bytes]
"""
A line: lower-case name, value.  What a codec hands on may be of a subclass that says more of it, so whoever sorts lines
out goes through them as C{Any}: the compiler makes plain tuples anew of those that it knows to be tuples.
"""
CONNECT: Final = b"connect"
"""C{Request.upgrade} of a plain CONNECT (RFC 9110, 9.3.6)."""


def spellings(name: bytes) -> frozenset[bytes]:
    """A field name with C{_} in place of one or more C{-}: other names, except for who turns them into variables."""
    found = [b""]
    for byte in name:
        found = [start + end for start in found for end in ((b"-", b"_") if byte == 45 else (bytes((byte,)),))]
    return frozenset(found) - {name}


_ALIKE: Final = bytes([each if each < 128 and chr(each).isalnum() else 0x2D for each in range(256)])


def alike(name: bytes) -> bytes:
    """
    A field name as who turns names into variables (CGI, WSGI and their like) knows it: to all of them C{x_user} is
    C{x-user}, to some C{x.user} as well.  All but letters and digits is C{-}.
    """
    return name.translate(_ALIKE)


@mypyc_attr(native_class=False)
class Headers(list[Field]):
    """Field lines in the order they came, as C{(lower-case name, value)}."""

    __slots__ = ()

    def get(self, name: bytes) -> bytes | None:
        """The value of the first line of that name, or None."""
        fields: list[Field] = self  # compiled, a list needs no iterator
        for key, value in fields:
            if key == name:
                return value
        return None

    def all(self, name: bytes) -> list[bytes]:
        """The values of every line of that name."""
        fields: list[Field] = self
        return [value for key, value in fields if key == name]

    def set(self, name: bytes, value: bytes) -> None:
        """One line of that name, instead of whatever there was; in the place of the first."""
        fields: list[Field] = self
        for field in fields:
            if field[0] == name:
                at = fields.index(field)
                fields[at] = (name, value)
                behind: list[Any] = fields[at + 1 :]
                kept = [each for each in behind if each[0] != name]
                if len(kept) != len(behind):
                    fields[at + 1 :] = kept
                return
        fields.append((name, value))

    def remove(self, name: bytes) -> None:  # type: ignore[override]
        """No line of that name."""
        fields: list[Field] = self
        for field in [each for each in fields if each[0] == name]:  # one, or none
            del fields[fields.index(field)]

    def without(self, names: Container[bytes]) -> None:
        """No line of those names."""
        lines: list[Any] = self
        lines[:] = [line for line in lines if line[0] not in names]


class Peer:
    """
    Who sent a request.

    @ivar ip: address in its canonical text form, e.g. C{192.0.2.1} or C{2001:db8::1}; empty for a UNIX socket.
    @ivar port: 0 where there is none.
    @ivar tls: whether the connection is encrypted.
    @ivar session: what was negotiated then, where that is known, and the peer's certificate; else None.
    @ivar here: address and port of ours that it has connected to; None where that is not known, or a UNIX socket.
    """

    __slots__ = ("here", "ip", "port", "session", "tls")

    def __init__(
        self,
        ip: str = "",
        port: int = 0,
        tls: bool = False,
        session: Session | None = None,
        here: tuple[str, int] | None = None,
    ) -> None:
        self.ip, self.port, self.tls, self.session, self.here = ip, port, tls, session, here


NOBODY: Final = Peer()


def peer_of(transport: Any) -> Peer:
    """
    Who is at the other end of a connection: where a codec asks, so that it is answered in one place.

    Whoever has accepted the connection may know better than its socket does (TLS, a proxy in front), and says so in the
    transport's C{peer}.
    """
    known = getattr(transport, "peer", None)
    if isinstance(known, Peer):
        return known
    peer, host = peer_at(transport.getPeer(), ISSLTransport.providedBy(transport)), transport.getHost()
    where = getattr(host, "host", None)
    if isinstance(where, str):
        peer.here = where, host.port
    return peer


def peer_at(address: Any, tls: bool = False, session: Session | None = None) -> Peer:
    """Whoever is at a Twisted address, with the IP in its canonical form (a mapped IPv4 address is an IPv4 address)."""
    host = getattr(address, "host", None)
    if not isinstance(host, str):
        return Peer("", 0, tls, session)
    try:
        ip = ip_address(host.partition("%")[0])
    except ValueError:
        return Peer(host, address.port, tls, session)
    mapped = ip.ipv4_mapped if isinstance(ip, IPv6Address) else None
    return Peer(str(mapped or ip), address.port, tls, session)


def ignore(_: object) -> None:
    """The C{interim} of a codec that has no interim responses, and the C{closed} of a request nobody watches."""


class Request:
    """
    @ivar method: token, e.g. C{b"GET"}; case matters.
    @ivar scheme: C{b"http"} or C{b"https"}: what the client believes it uses.
    @ivar authority: host and optional port as the client named them, or empty.
    @ivar target: path and query, as they came; C{b"*"} for OPTIONS *; empty for CONNECT.
    @ivar headers: see the rules above.
    @ivar body: L{protogate.interfaces.IBody}, or None when there is no content.
    @ivar upgrade: token of the protocol to switch to (lower case; L{CONNECT} for a plain CONNECT), or None.  When set,
        C{body} is not content but what will flow through the tunnel: attach it only after the tunnel was accepted.
    @ivar interim: C{interim(response)} passes on a 1xx: any number before the final response, never 100 (attaching the
        body says that), never 101; harmless when too late.
    @ivar malformed: an L{Abort}: this is not a request, only what is left of one.  It must be answered with an error.
    @ivar closed: C{closed(reason)} is called exactly once, by the server codec, when this request is over in both
        directions: None after a clean end, else the Abort that broke it off.  Set by the exchange.
    @ivar gone: the Abort with which the client left, set before the answer's Deferred is cancelled; else None.
    @ivar protocol: name for people, logs and C{Via}: C{"HTTP/1.1"}, C{"HTTP/2"}, C{"SOTP/1"}.
    @ivar service: number or name of the service in protocols that have one, else empty.
    @ivar deadline: when the client stops waiting for the end of the answer, in seconds on the wheel's clock; None = it
        does not say.  Set by the server codec, enforced by the exchange.  A client codec whose protocol has deadlines
        writes what is left of it at that moment, a millisecond at least.
    @ivar peer: the other end of the connection.
    @ivar key: what it belongs to an endpoint by, where its upstream chooses by that; else empty.
    @ivar ledger: where codecs and pools note when a phase ended; None when nobody asks.
    """

    __slots__ = (
        "_cookies",
        "_host",
        "_path",
        "_query",
        "authority",
        "body",
        "closed",
        "deadline",
        "gone",
        "headers",
        "interim",
        "key",
        "ledger",
        "malformed",
        "method",
        "peer",
        "protocol",
        "scheme",
        "service",
        "target",
        "upgrade",
    )

    def __init__(
        self,
        method: bytes,
        target: bytes,
        headers: Iterable[Field] = (),
        body: IBody | None = None,
        authority: bytes = b"",
        scheme: bytes = b"http",
        upgrade: bytes | None = None,
        interim: Callable[[Response], None] = ignore,
        protocol: str = "",
        peer: Peer = NOBODY,
    ) -> None:
        self.method, self.target, self.body = method, target, body
        self.headers = headers if type(headers) is Headers else Headers(headers)
        self.authority, self.scheme, self.upgrade = authority, scheme, upgrade
        self.interim = interim
        self.protocol, self.peer, self.service = protocol, peer, ""
        self.key = ""
        self.malformed: Abort | None = None
        self.gone: Abort | None = None
        self.closed: Callable[[Abort | None], None] = ignore
        self.ledger: Ledger | None = None
        self.deadline: float | None = None
        self._host: str | None = None
        self._path: str | None = None
        self._query: dict[str, str] | None = None
        self._cookies: dict[str, str] | None = None

    @property
    def host(self) -> str:
        """C{authority} without the port, in lower case; empty when there is none."""
        host = self._host
        if host is None:
            host = self._host = host_of(self.authority)
        return host

    @property
    def path(self) -> str:
        """
        The one form of the path that routing, access rules and conditions see.  Set once, by the exchange, to the
        canonical form (L{protogate.uri.canonical}); before that it is C{target} up to the query.
        """
        path = self._path
        return self.target.partition(b"?")[0].decode("latin-1") if path is None else path

    @path.setter
    def path(self, path: str) -> None:
        self._path = path

    @property
    def query(self) -> dict[str, str]:
        """Parameters by name, percent-decoded; the first of several wins.  Do not change it."""
        query = self._query
        if query is None:
            query = self._query = query_of(self.target)
        return query

    @property
    def cookies(self) -> dict[str, str]:
        """Cookies by name (RFC 6265, 5.4, over all cookie lines); the first of several wins.  Do not change it."""
        cookies = self._cookies
        if cookies is None:
            cookies = self._cookies = cookies_of(self.headers.all(b"cookie"))
        return cookies

    @property
    def operation(self) -> str:
        """What is asked of C{service}: what stands behind it in the path; empty where there is no service."""
        service = self.service
        named, _, rest = self.path[1:].partition("/") if service else ("", "", "")
        return rest if named == service else ""

    def forget(self) -> None:
        """C{authority}, C{target} or cookie lines were changed: what was parsed of them is parsed again."""
        self._host = self._query = self._cookies = None

    def again(self, headers: Headers, body: IBody | None = None) -> Request:
        """
        The same, for somebody else to be asked; what becomes of it is its own.  Whoever asks says whether there is a
        deadline, a key, a ledger, and somebody for interim responses.
        """
        made = Request(
            self.method,
            self.target,
            headers,
            body,
            self.authority,
            self.scheme,
            protocol=self.protocol,
            peer=self.peer,
        )
        made.service = self.service
        return made


class Response:
    """
    @ivar status: 100..599.
    @ivar headers: see the rules of this module.  HEAD and 304 keep content-length: it describes, it frames nothing.
    @ivar body: L{protogate.interfaces.IBody}, or None.
    @ivar protocol: what it came over, as L{Request.protocol}; empty for an answer of the gateway's own.
    @ivar reason: of such an answer, the L{Abort} that it tells of, for codecs that have words of their own for it; else
        None.
    """

    __slots__ = ("body", "headers", "protocol", "reason", "status")

    def __init__(
        self, status: int, headers: Iterable[Field] = (), body: IBody | None = None, protocol: str = ""
    ) -> None:
        self.status, self.body, self.protocol = status, body, protocol
        self.headers = headers if type(headers) is Headers else Headers(headers)
        self.reason: Abort | None = None


def tunnels(request: Request, response: Response) -> bool:
    """
    Did the response open the tunnel the request asked for?  101 is the word for 'accepted' between codecs (one that
    spells it 200 translates), except for a plain CONNECT, which is answered 2xx.  Then both bodies are raw bytes,
    finish() is a half-close, and the exchange is over when both have ended.
    """
    if request.upgrade is None:
        return False
    return response.status == 101 or (request.method == b"CONNECT" and 200 <= response.status < 300)
