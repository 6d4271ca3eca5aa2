"""
What all modules that authenticate do at their end: let somebody in, tell the upstream who it is, or turn him away.

Rules
- The fields that say who it is (C{forward}) are the gateway's: L{IReservingModule} has them taken out of what clients
  send.  None that a request needs otherwise can be among them.
- 401 has a challenge (RFC 9110, 11.6.1).  Operators read why; strangers read what they could know anyway.
- Whoever cannot be judged, because what is needed for it is not there, is not let in: 503.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeVar

from protogate.config.nearest import hint
from protogate.errors import CLIENT, GATEWAY, Abort, Phase
from protogate.governance.fields import Fields
from protogate.governance.params import CONNECTION, FRAMING, Params, shown
from protogate.governance.sources import Followed
from protogate.identity import place as places
from protogate.identity.identity import Identity
from protogate.identity.place import Authorization, Cookie, Header, Place, Query
from protogate.message import Field

if TYPE_CHECKING:
    from protogate.exchange.exchange import Exchange

COMMON: Final = ("forward", "optional", "keepCredential", "realm")
"""Parameters that L{Admission.read} reads."""
KINDS: Final = ("authorization", "header", "cookie", "query")
_NEEDED: Final = frozenset((b"host", b"authorization", b"cookie", b"content-type", b"accept"))
_ANEW: Final = frozenset((b"forwarded", b"via", b"x-real-ip"))
T = TypeVar("T")
_realm: Final = re.compile(r"[\x20\x21\x23-\x5b\x5d-\x7e]{1,128}").fullmatch
_cookie: Final = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]{1,128}").fullmatch


class Admission:
    """
    @ivar optional: whoever shows no credential is let pass.
    @ivar reserves: names of the fields that tell upstreams who it is.
    """

    __slots__ = ("_challenge", "_fields", "_keep", "_name", "optional", "reserves")

    def __init__(
        self, name: str, challenge: bytes, fields: Fields | None = None, optional: bool = False, keep: bool = False
    ) -> None:
        """
        @param name: of the module, for operators.
        @param challenge: C{WWW-Authenticate} of a 401; empty = there is no such scheme: 403.
        @param fields: to forward.
        @param keep: the credential is passed on.
        """
        self._name, self._challenge, self._fields = name, challenge, fields
        self.optional, self._keep = optional, keep
        self.reserves: frozenset[bytes] = frozenset() if fields is None else fields.names

    @classmethod
    def read(cls, reader: Params, name: str, scheme: str, used: Iterable[Place] = (), more: str = "") -> Admission:
        """
        Of a module's parameters.

        @param scheme: of the challenge; empty = none.
        @param used: where the credential comes from: nothing of that can be forwarded.
        @param more: what follows the realm in the challenge.
        """
        realm = reader.literal("realm", "gateway")
        if not _realm(realm):
            reader.fault("expected up to 128 visible ASCII characters but quotation marks and backslashes", "realm")
        lines = reader.lines("forward")
        taken = places.headers(used)
        for field in {line[0] for line in lines}:
            text = field.decode("ascii")
            if field in taken:
                reader.fault(f"{text} is where the credential comes from", "forward")
            elif field in _NEEDED or field in FRAMING or field in CONNECTION:
                reader.fault(
                    f"{text} has another meaning: no client could send it any more; use setRequestHeader", "forward"
                )
            elif field in _ANEW or field.startswith(b"x-forwarded-"):
                reader.fault(f"{text} is written anew by the gateway behind this module", "forward")
        challenge = f'{scheme} realm="{realm}"{more}'.encode("ascii", "replace") if scheme else b""
        return cls(
            name,
            challenge,
            Fields(lines, exact=True) if lines else None,
            reader.flag("optional"),
            reader.flag("keepCredential"),
        )

    def admit(self, exchange: Exchange, identity: Identity, where: Place | None = None) -> None:
        """
        Let somebody in.

        @param where: the credential stood; it is taken out, unless it is to be kept.
        """
        exchange.identity = identity
        request = exchange.request
        if where is not None and not self._keep:
            where.remove(request)
        fields = self._fields
        if fields is not None:
            headers = request.headers
            headers.without(fields.names)
            headers.extend([field for field in fields.of(exchange) if field[1]])

    def absent(self, headers: Sequence[Field] = ()) -> None:
        """
        There is no credential.

        @param headers: that a refusal gets, too.
        @raise Abort: there must be one.
        """
        if not self.optional:
            raise self.refusal("there is no credential", "authentication is required", headers=headers)

    def refusal(
        self,
        why: str,
        detail: str = "the credential is not valid",
        error: str = "",
        headers: Sequence[Field] = (),
    ) -> Abort:
        """
        The Abort for somebody who is not let in: 401, or 403 where there is no challenge.

        @param why: for operators; no secret, nothing that a client may make long.
        @param error: parameters that the challenge gets.
        @param headers: that the answer gets, too.
        """
        challenge = self._challenge
        return Abort(
            f"{self._name}: {why}",
            CLIENT,
            401 if challenge else 403,
            error="http_request_denied",
            detail=detail,
            headers=[*([(b"www-authenticate", challenge + error.encode("ascii"))] if challenge else []), *headers],
        )

    def forbidden(self, why: str) -> Abort:
        """The Abort for somebody who is known, and may not."""
        return Abort(f"{self._name}: {why}", CLIENT, 403, error="http_request_denied", detail="access denied")

    def unable(self, why: str, seconds: int = 1) -> Abort:
        """The Abort for somebody who cannot be judged: 503."""
        return Abort(
            f"{self._name}: {why}",
            GATEWAY,
            503,
            error="proxy_internal_error",
            phase=Phase.MODULE,
            detail="the credential cannot be checked at the moment",
            headers=[(b"retry-after", b"%d" % seconds)],
        )


def located(reader: Params, name: str, *default: Place) -> tuple[Place, ...]:
    """
    Where credentials stand, of a parameter: C{{header: x-api-key}}, C{{authorization: bearer}}, C{{cookie: sid}},
    C{{query: key}}, or a list of them.
    """
    if name not in reader:
        return default
    given = reader.given(name)
    entries = given if isinstance(given, list | tuple) else [given]
    found: list[Place] = []
    for index, entry in enumerate(entries):
        path = (name, index) if entries is given else (name,)
        kind, value = next(iter(entry.items())) if isinstance(entry, Mapping) and len(entry) == 1 else ("", "")
        if kind not in KINDS:
            known = ", ".join(f"{{{each}: name}}" for each in KINDS)
            got = f"an unknown place {shown(kind)}; {hint(str(kind), KINDS)}" if kind else shown(entry)
            reader.fault(f"expected one of {known}, got {got}", *path)
        elif kind == "header":
            found.append(Header(_named(reader, value, *path, kind)))
        elif kind == "query":
            if not isinstance(value, str) or not value:
                reader.fault(f"expected the name of a parameter, got {shown(value)}", *path, kind)
            else:
                found.append(Query(value))
        elif not isinstance(value, str) or not _cookie(value):
            what = "a cookie" if kind == "cookie" else "a scheme"
            reader.fault(f"expected the name of {what}, got {shown(value)}", *path, kind)
        else:
            found.append(Cookie(value.encode("ascii")) if kind == "cookie" else Authorization(value))
    if not entries:
        reader.fault("expected at least one place", name)
    return tuple(found)


def _named(reader: Params, value: object, *path: str | int) -> bytes:
    name = reader.field(value, *path)
    if name in (b"cookie", b"host") or name in FRAMING or name in CONNECTION:
        reader.fault(f"no credential stands in {shown(value)}", *path)
    return name


def followed(reader: Params, name: str, parse: Callable[[bytes], T], limit: int) -> Followed[T] | None:
    """
    Content that says who may come in, of a parameter; read, if it is a file.

    @return: None when it is missing, or wrong, which is a fault.
    """
    source = reader.source(name)
    if source is None:
        if name not in reader:
            reader.fault("expected {file: path} or {url: …, interval: 5m}, got nothing", name)
        return None
    found = Followed(source, parse, limit)
    reader.load(found, name)
    reader.trusted(source, name)
    return found


def asks(name: str, what: Followed[Any] | None) -> dict[str, tuple[str | int, ...]]:
    """C{ILiveModule.asks} of a module whose parameter C{name} says where that content is."""
    url = None if what is None else what.source.url
    return {} if url is None else {url.service: (name, "url")}
