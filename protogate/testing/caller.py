"""
A client of a L{protogate.testing.gateway.MemoryGateway} that speaks any codec: the codec's own client.

    caller = Caller(gateway, "sotp", "app")
    answer = caller.ask(b"POST", b"/1001/echo", body=b"hello")
    assert (answer.status, answer.content) == (200, b"hello")
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from twisted.python.failure import Failure

from protogate.context import Context
from protogate.interfaces import IStreamCodec
from protogate.message import Field, Headers, Request, Response
from protogate.plugins import find
from protogate.testing.bodies import Giver, Taker
from protogate.testing.gateway import MemoryGateway, Once


class Got:
    """
    What came of a request.

    @ivar status: 0 = no answer.
    @ivar error: why there is none, or why it is not whole.
    @ivar content: of the answer, as far as it came.
    """

    def __init__(self) -> None:
        self.status, self.headers = 0, Headers()
        self.error: BaseException | None = None
        self._taker: Taker | None = None

    @property
    def content(self) -> bytes:
        return b"" if self._taker is None else self._taker.data

    @property
    def whole(self) -> bool:
        """Whether all of it came, and nothing is missing."""
        return bool(self.status) and (self._taker is None or self._taker.finished)

    def take(self, response: Response) -> None:
        """The answer is there."""
        self.status, self.headers = response.status, response.headers
        if response.body is not None:
            self._taker = Taker(response.body)

    def fail(self, failure: Failure) -> None:
        """There will be none."""
        self.error = failure.value


class Caller:
    """One connection to a listener."""

    def __init__(self, gateway: MemoryGateway, codec: str, listener: str = "") -> None:
        """
        @param codec: its name.
        @param listener: its name; empty = the first one.
        """
        self._gateway = gateway
        made: IStreamCodec = find(IStreamCodec, codec)
        self._client: Any = made.client(lambda connection: None, Context(gateway.service.wheel))
        gateway.connect(Once(self._client), listener)

    def ask(
        self,
        method: bytes = b"GET",
        target: bytes = b"/",
        headers: Iterable[Field] = (),
        body: bytes | None = None,
        authority: bytes = b"a.test",
    ) -> Got:
        """Ask, and let the gateway run until all is quiet."""
        content = None if body is None else Giver([body] if body else [], len(body)).body
        request, got = Request(method, target, headers, content, authority), Got()
        self._client.handle(request).addCallbacks(got.take, got.fail)
        self._gateway.run()
        return got

    def close(self) -> None:
        """Break the connection off."""
        self._client.abort()
        self._gateway.run()
