"""
C{loginCheck}: is somebody logged in?  The session that a request names is looked up in a Redis, where whoever logs
people in has put it.

Rules
- Who is not logged in is refused; a browser that asked for a page can be sent to where one logs in.
- While the Redis cannot be asked nobody is let in whose session is not remembered: 503.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

from twisted.internet.defer import Deferred
from twisted.python.failure import Failure
from zope.interface import implementer

from protogate.config import address
from protogate.errors import ConfigError
from protogate.governance.admission import COMMON, Admission, located
from protogate.governance.lookup import LONGEST, NOBODY, Lookup
from protogate.governance.params import Params, shown
from protogate.governance.redis import RedisError
from protogate.governance.stages import PRE_REQUEST, PRE_UPSTREAM
from protogate.identity import place
from protogate.identity.identity import Identity
from protogate.identity.place import Cookie, Place
from protogate.interfaces import ILiveModule, IModuleFactory, IReservingModule
from protogate.message import Response

if TYPE_CHECKING:
    from protogate.exchange.exchange import Exchange
    from protogate.governance.means import Means

PAGES: Final = frozenset((b"GET", b"HEAD"))
"""Methods with which a browser asks for a page."""
RETURN: Final = 2048
"""Bytes of the URL that a login page is told to come back to."""


class Login:
    """
    Where one logs in.

    @param url: of the page.
    @param back: its parameter that says where to come back to; empty = none.
    """

    __slots__ = ("_back", "_url")

    def __init__(self, url: str, back: str) -> None:
        self._url, self._back = url, back

    def answer(self, exchange: Exchange) -> Response | None:
        """To go there; None where nobody would see the page."""
        request = exchange.request
        accept = b",".join(request.headers.all(b"accept"))
        if request.method not in PAGES or b"text/html" not in accept or request.upgrade is not None:
            return None
        url = self._url
        _, authority, target = exchange.line
        here = b"%b://%b%b" % (request.scheme, authority, target)
        if self._back and authority and len(here) <= RETURN:
            url += f"{'&' if '?' in url else '?'}{quote(self._back, safe='')}={quote(here, safe='')}"
        return Response(302, [(b"location", url.encode("ascii")), (b"cache-control", b"no-store")])


@implementer(ILiveModule, IReservingModule)
class LoginCheck:
    """
    @param places: where sessions stand.
    @param lookup: knows whose they are.
    @param login: where one logs in, or None.
    """

    asks: Mapping[str, tuple[str | int, ...]] = {}

    def __init__(
        self,
        admission: Admission,
        places: tuple[Place, ...],
        lookup: Lookup,
        login: Login | None,
        warnings: list[ConfigError],
    ) -> None:
        self._admission, self._places, self._lookup, self._login = admission, places, lookup, login
        self.warnings, self.waits = warnings, lookup.waits
        self._means: Means | None = None
        self.insists = not admission.optional
        self.reserves, self.hides = admission.reserves, place.parameters(places)

    # -- ILiveModule

    def start(self, means: Means, before: Any) -> None:
        """See L{ILiveModule.start}."""
        self._means = means
        self._lookup.start(means, before._lookup if isinstance(before, LoginCheck) else None)

    def stop(self) -> None:
        """See L{ILiveModule.stop}."""
        self._lookup.stop()

    # -- IModule

    def process(self, exchange: Exchange) -> Response | Deferred[Response | None] | None:
        """Let somebody in, send him to where one logs in, or raise the Abort that refuses him."""
        if exchange.request.malformed is not None:
            return None
        found = place.find(self._places, exchange.request)
        if found is None:
            away = None if self._admission.optional else self._away(exchange)
            if away is None:
                self._admission.absent()
            return away
        where, session = found
        if not 0 < len(session) <= LONGEST:
            return self._judge(NOBODY, exchange, where)
        try:
            identity = self._lookup.find(session, self._count)
        except RedisError as error:
            raise self._admission.unable(str(error)) from None
        if isinstance(identity, Deferred):
            return identity.addCallbacks(self._judge, self._failed, callbackArgs=(exchange, where))
        return self._judge(identity, exchange, where)

    def _judge(self, identity: Identity, exchange: Exchange, where: Place) -> Response | None:
        if identity is not NOBODY:
            self._admission.admit(exchange, identity, where)
            return None
        away = self._away(exchange)
        if away is None:
            raise self._admission.refusal("nobody has that session", "the session is over")
        return away

    def _away(self, exchange: Exchange) -> Response | None:
        away = None if self._login is None else self._login.answer(exchange)
        if away is not None:
            self._count("sent_to_login")
        return away

    def _failed(self, failure: Failure) -> Response | None:
        failure.trap(RedisError)
        raise self._admission.unable(str(failure.value)) from None

    def _count(self, event: str) -> None:
        if self._means is not None:
            self._means.count(event)


@implementer(IModuleFactory)
class LoginCheckFactory:
    """Makes L{LoginCheck}."""

    name = "loginCheck"
    stages = (PRE_REQUEST, PRE_UPSTREAM)
    guards = True

    def build(self, params: Mapping[str, object]) -> LoginCheck:
        """See L{IModuleFactory.build}."""
        stored = ("redis", "prefix", "hashed", "format", "user", "remember", "rememberUnknown")
        reader = Params(params, "from", "login", "back", *stored, *COMMON)
        places = located(reader, "from", Cookie(b"session"))
        admission = Admission.read(reader, self.name, "Session", places)
        if "redis" not in reader:
            reader.fault("expected where the sessions are: {url: redis://host:port/0}, got nothing", "redis")
        lookup = Lookup.read(reader, "session", "session:", False, "user")
        url, back = reader.literal("login", ""), reader.literal("back", "")
        if url:
            try:
                address.url(url.partition("?")[0])
                url.encode("ascii")
            except (ConfigError, UnicodeEncodeError):
                reader.fault(f"expected the URL of a page, got {shown(url)}", "login")
        elif back:
            reader.fault("from where? There is no login", "back")
        reader.done()
        assert lookup is not None
        return LoginCheck(admission, places, lookup, Login(url, back) if url else None, reader.warnings)
