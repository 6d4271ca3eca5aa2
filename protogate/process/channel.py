"""
The line between a supervisor and one worker: messages both ways over a pair of sockets, with descriptors.

Rules
- A frame is its length, in 4 bytes, and msgpack.  Descriptors go with the first byte of their frame; no more than
  L{CARRIED} at once, so those of a frame with more go ahead on empty frames.
- Each call is answered once, in any order.  When the line is lost, every call fails with L{Lost}.
- It never blocks.  What a peer does not take waits here; a peer that takes nothing for good is for others to notice.
- Whatever descriptors come and nobody takes are closed.
"""

from __future__ import annotations

import os
import socket
from array import array
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

import msgspec
from twisted.internet.defer import Deferred, maybeDeferred
from twisted.internet.interfaces import IReadWriteDescriptor
from twisted.logger import Logger
from twisted.python.failure import Failure
from zope.interface import implementer

from protogate.process.messages import Failed, Message, Word

CARRIED: Final = 200
"""Descriptors that one system call carries; Linux allows 253."""
LARGEST: Final = 64 << 20
"""Bytes of a frame: more than any configuration has."""

_CHUNK: Final = 1 << 16
_log = Logger()


class Lost(Exception):
    """The other side is gone."""


class Refused(Exception):
    """The other side did not do it; the text says why."""


class Frame(msgspec.Struct, array_like=True):
    """
    One message on its way.

    @ivar number: of the call, or of the call that this answers; 0 = nobody waits for an answer.
    @ivar descriptors: how many belong to it.
    """

    number: int
    answer: bool
    descriptors: int
    body: msgspec.Raw


_frames: Final = msgspec.msgpack.Decoder(Frame)
_messages: Final[msgspec.msgpack.Decoder[Any]] = msgspec.msgpack.Decoder(Word)
_encode: Final = msgspec.msgpack.Encoder().encode

Handler = Callable[[Message, list[int]], Any]
"""Given a message and its descriptors, which are its own now, it gives the answer or a Deferred of it."""


@implementer(IReadWriteDescriptor)
class Channel:
    """
    @param line: one end of a connected pair of stream sockets; it is ours from now on.
    @param handle: is called for each message that is no answer.
    @param lost: is called once, when the other side is gone; not after L{close}.
    @param number: of the last call, and C{held}: what was read of the next frame, where this goes on with the line of
        another Channel; see L{detach}.
    """

    def __init__(
        self,
        reactor: Any,
        line: socket.socket,
        handle: Handler,
        lost: Callable[[], object] = lambda: None,
        number: int = 0,
        held: bytes = b"",
    ) -> None:
        self._reactor, self._line, self._handle, self._lost = reactor, line, handle, lost
        self._held = bytearray(held)
        self._descriptors: deque[int] = deque()
        self._out: deque[tuple[memoryview, Sequence[int]]] = deque()
        self._calls: dict[int, Deferred[Message]] = {}
        self._number = number
        self._open = True
        self.waiting = 0
        """Bytes that the other side has not taken yet."""
        line.setblocking(False)
        reactor.addReader(self)

    # -- saying

    def call(self, message: Message, descriptors: Sequence[int] = ()) -> Deferred[Message]:
        """
        Say something that is answered.

        @param descriptors: stay the caller's, who may close them at once.
        @return: the answer; fails with L{Refused} or L{Lost}.
        """
        answered: Deferred[Message] = Deferred()
        if not self._open:
            answered.errback(Lost())
            return answered
        self._number += 1
        self._calls[self._number] = answered
        self._send(message, self._number, False, descriptors)
        return answered

    def tell(self, message: Message) -> None:
        """Say something that is not answered."""
        if self._open:
            self._send(message, 0, False)

    def close(self) -> None:
        """Say and hear nothing more."""
        if self._open:
            self._open = False
            self._reactor.removeReader(self)
            self._reactor.removeWriter(self)
            self._line.close()
            _close(self._descriptors)
            self._descriptors.clear()
            for _, descriptors in self._out:
                _close(descriptors)
            self._out.clear()
            calls, self._calls = self._calls, {}
            for each in calls.values():
                each.errback(Lost())

    def detach(self) -> tuple[int, int, bytes]:
        """
        Give the line away, to the program that this process becomes: its descriptor, and C{number} and C{held} for the
        Channel there.  What is not sent by now never is.
        """
        number, held = self._number, bytes(self._held)
        self._open = False
        self._reactor.removeReader(self)
        self._reactor.removeWriter(self)
        return self._line.detach(), number, held

    def _send(self, message: Message, number: int, answer: bool, descriptors: Sequence[int] = ()) -> None:
        body = _encode(Frame(number, answer, len(descriptors), msgspec.Raw(_encode(message))))
        while len(descriptors) > CARRIED:
            self._put(b"", descriptors[:CARRIED])
            descriptors = descriptors[CARRIED:]
        self._put(body, descriptors)

    def _put(self, body: bytes, descriptors: Sequence[int]) -> None:
        frame = len(body).to_bytes(4, "big") + body
        self.waiting += len(frame)
        self._out.append((memoryview(frame), [os.dup(each) for each in descriptors]))
        if len(self._out) == 1:
            self.doWrite()
            if self._out and self._open:
                self._reactor.addWriter(self)

    # -- IReadWriteDescriptor

    def fileno(self) -> int:
        """Twisted."""
        return self._line.fileno() if self._open else -1

    def logPrefix(self) -> str:
        """Twisted."""
        return "channel"

    def doWrite(self) -> None:
        """Twisted: there is room."""
        while self._out:
            data, descriptors = self._out[0]
            try:
                sent = socket.send_fds(self._line, [data], descriptors) if descriptors else self._line.send(data)
            except BlockingIOError:
                return
            except OSError:
                return  # the reader finds out
            self.waiting -= sent
            _close(descriptors)
            if sent < len(data):
                self._out[0] = data[sent:], ()
            else:
                self._out.popleft()
        self._reactor.removeWriter(self)

    def doRead(self) -> None:
        """Twisted: there is something."""
        try:
            data, descriptors = _received(self._line)
        except BlockingIOError:
            return
        except OSError:
            data, descriptors = b"", array("i")
        self._descriptors.extend(descriptors)
        if not data:
            self._end()
            return
        self._held += data
        while self._open and len(self._held) >= 4:
            size = int.from_bytes(self._held[:4], "big")
            if size > LARGEST:
                _log.error("a frame of {size} bytes is none", size=size)
                self._end()
                return
            if len(self._held) < 4 + size:
                return
            body = bytes(self._held[4 : 4 + size])
            del self._held[: 4 + size]
            if body:
                self._heard(body)

    def connectionLost(self, reason: Failure) -> None:
        """Twisted: the reactor stops, or the descriptor is bad."""
        self._end()

    def _end(self) -> None:
        if self._open:
            self.close()
            self._lost()

    # -- hearing

    def _heard(self, body: bytes) -> None:
        try:
            frame = _frames.decode(body)
        except msgspec.MsgspecError:
            _log.error("what came is no frame")
            self._end()
            return
        descriptors = [self._descriptors.popleft() for _ in range(min(frame.descriptors, len(self._descriptors)))]
        try:
            message = _messages.decode(frame.body)
        except msgspec.MsgspecError as error:
            _close(descriptors)
            self._answered(frame, Failed(text=f"not understood: {error}"))
            return
        if frame.answer:
            self._answered(frame, message)
            return
        answer: Deferred[Any] = maybeDeferred(self._handle, message, descriptors)
        answer.addErrback(_failed)
        if frame.number:
            answer.addCallback(self._answer, frame.number)

    def _answer(self, message: Message, number: int) -> None:
        if self._open:
            self._send(message, number, True)

    def _answered(self, frame: Frame, message: Message) -> None:
        if not frame.answer:
            if frame.number:
                self._answer(message, frame.number)
            return
        waiting = self._calls.pop(frame.number, None)
        if waiting is None:
            return
        if isinstance(message, Failed):
            waiting.errback(Refused(message.text))
        else:
            waiting.callback(message)


def _received(line: socket.socket) -> tuple[bytes, array[int]]:
    """What is there.  (The recv_fds of Python 3.11 passes its flags over.)"""
    came = array("i")
    flags = getattr(socket, "MSG_CMSG_CLOEXEC", 0)
    data, more, _, _ = line.recvmsg(_CHUNK, socket.CMSG_SPACE((CARRIED + 53) * came.itemsize), flags)
    for level, kind, held in more:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            came.frombytes(held[: len(held) - len(held) % came.itemsize])
    if not flags:
        for descriptor in came:
            os.set_inheritable(descriptor, False)
    return data, came


def _close(descriptors: Iterable[int]) -> None:
    for descriptor in descriptors:
        os.close(descriptor)


def _failed(failure: Failure) -> Failed:
    """What a handler raised is the answer."""
    if not failure.check(Refused):
        _log.failure("what the other side asked for failed", failure)
    return Failed(text=failure.getErrorMessage())
