"""
Asking a service something, for the gateway's own use: a set of keys, a verdict, a list.

Rules
- An answer is read up to a limit and within a time; what goes beyond ends it.
- It costs a Deferred and a timer: never for what an exchange could know without.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from twisted.internet.defer import Deferred
from twisted.python.failure import Failure
from zope.interface import implementer

from protogate.config import address
from protogate.config.scalar import shown
from protogate.errors import UPSTREAM, Abort, ConfigError
from protogate.interfaces import IBody, IService, ISink
from protogate.message import Field, Headers, Request, Response
from protogate.wheel import Wheel

LIMIT: Final = 1 << 20
"""Bytes of an answer, unless said otherwise."""
_QUERY: Final = re.compile(r"[!$-;=?-Z_a-z~]*").fullmatch
_LOOPBACK: Final = re.compile(r"http://(?:127\.[0-9.]+|localhost|\[::1\])(?::[0-9]+)?").fullmatch
_NAMELESS: Final = re.compile(rb"[^0-9A-Za-z.-]")


@dataclass(frozen=True, slots=True)
class Answer:
    """
    A whole answer.

    @ivar content: its body; at most as many bytes as were allowed.
    """

    status: int
    headers: Headers
    content: bytes
    trailers: tuple[Field, ...] = ()


@dataclass(frozen=True, slots=True)
class Question:
    """
    Whom to ask for what: a URL, or a path of an upstream.

    @ivar service: name of the upstream, or origin.
    @ivar scheme: that the service is to believe.
    @ivar authority: its name for itself.
    @ivar target: path and query.
    """

    service: str
    scheme: bytes
    authority: bytes
    target: bytes

    @property
    def clear(self) -> bool:
        """Whether whoever is on the way could read or change what is asked; of an upstream its own settings tell."""
        return self.service.startswith("http://") and not _LOOPBACK(self.service)

    @classmethod
    def of_url(cls, text: str) -> Question:
        """
        C{https://host:port/path?query}.

        @raise ConfigError: it is none.
        """
        base, mark, query = text.partition("?")
        url = address.url(base)
        if not _QUERY(query):
            raise ConfigError(f"expected the query of a URL behind the ?, got {shown(query)}")
        usual = address.SCHEMES[url.scheme].port
        host = url.authority.rpartition(":")[0] if url.port == usual else url.authority
        target = (url.path or "/") + mark + query
        return cls(url.origin, url.scheme.encode("ascii"), host.encode("ascii"), target.encode("ascii"))

    @classmethod
    def of_upstream(cls, name: object, path: object) -> Question:
        """
        A path of an upstream of the configuration; its scheme and authority are not told to it.

        @raise ConfigError: it is none.
        """
        if not isinstance(name, str) or not name:
            raise ConfigError(f"expected the name of an upstream, got {shown(name)}")
        if not isinstance(path, str) or not path.startswith("/") or not path.isascii() or not path.isprintable():
            raise ConfigError(f"expected a path that begins with /, got {shown(path)}")
        return cls(name, b"http", _NAMELESS.sub(b"-", name.encode()), path.encode("ascii"))

    def request(
        self, method: bytes = b"GET", headers: Iterable[Field] = (), target: bytes = b"", body: IBody | None = None
    ) -> Request:
        """@param target: instead of the question's own."""
        return Request(method, target or self.target, headers, body, self.authority, self.scheme)


def ask(service: IService, request: Request, wheel: Wheel, seconds: float, limit: int = LIMIT) -> Deferred[Answer]:
    """
    Ask, and read the whole answer.

    @param seconds: that it may take, from now to its last byte.
    @param limit: bytes that its body may have.
    @return: fails with an L{Abort}: the service's own, too late, too long, or cut off.  Cancelling it gives up.
    """
    answer: Deferred[Answer] = Deferred(lambda _: asking.end())
    asking = _Asking(answer, request, wheel, seconds, limit)
    asking.begin(service, request)
    return answer


@implementer(ISink)
class _Asking:
    """One question under way."""

    __slots__ = ("_answer", "_body", "_parts", "_pending", "_response", "_room", "_seconds", "_timer", "_what")

    def __init__(self, answer: Deferred[Answer], request: Request, wheel: Wheel, seconds: float, limit: int) -> None:
        self._answer: Deferred[Answer] | None = answer  # None = it is over
        self._what = f"{request.authority.decode('latin-1')}{request.target.partition(b'?')[0].decode('latin-1')}"
        self._room, self._seconds = limit, seconds
        self._parts: list[bytes] = []
        self._response: Response | None = None
        self._body: IBody | None = None
        self._pending: Deferred[Response] | None = None
        self._timer = wheel.after(seconds, self._late)

    def begin(self, service: IService, request: Request) -> None:
        result = service.handle(request)
        if isinstance(result, Deferred):
            self._pending = result
            result.addCallbacks(self._responded, self._failed)
        else:
            self._responded(result)

    def _responded(self, response: Response) -> None:
        self._pending, body = None, response.body
        if self._answer is None:  # cancelled, but the answer won
            if body is not None:
                body.stopProducing()
            return
        self._response, self._body = response, body
        if body is None:
            self.finish()
        elif body.length is not None and body.length > self._room:
            self._long()
        else:
            body.attach(self)

    def _failed(self, failure: Failure) -> None:
        self._pending = None
        self.end(failure)

    # -- the sink of the answer's body

    def write(self, data: bytes) -> None:
        """L{ISink}."""
        self._room -= len(data)
        if self._room < 0:
            self._long()
        else:
            self._parts.append(data)

    def finish(self, trailers: Sequence[Field] | None = None) -> None:
        """L{ISink}."""
        response = self._response
        assert response is not None
        self.end(Answer(response.status, response.headers, b"".join(self._parts), tuple(trailers or ())))

    def abort(self, reason: Abort) -> None:
        """L{ISink}."""
        self.end(Failure(reason))

    # -- its end

    def _late(self) -> None:
        self.end(Failure(Abort(f"{self._what}: no whole answer after {self._seconds:g} s", UPSTREAM, 504)))

    def _long(self) -> None:
        self.end(Failure(Abort(f"{self._what}: the answer is too long", UPSTREAM, 502)))

    def end(self, result: Answer | Failure | None = None) -> None:
        """It is over, if it is not yet.  None = nobody waits for it any more."""
        answer, self._answer = self._answer, None
        if answer is None:
            return
        self._timer.end()
        pending, self._pending = self._pending, None
        body, self._body = self._body, None
        if pending is not None:
            pending.cancel()
        if body is not None:
            body.stopProducing()
        if isinstance(result, Failure):
            answer.errback(result)
        elif result is not None:
            answer.callback(result)
