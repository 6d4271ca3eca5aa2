"""One end of SOTP for tests, on a wire of its own, and what it said as frames."""

from __future__ import annotations

import json
from pathlib import Path

import protogate_sotp
from protogate.context import Limits, Timeouts
from protogate.message import Request
from protogate.testing.cell import Bench
from protogate.testing.transport import Wire
from protogate_sotp.codec import Sotp
from protogate_sotp.frames import LEAST, REQUEST, Hello, Reader, frame

VECTORS = json.loads((Path(protogate_sotp.__file__).parent / "vectors.json").read_text())
WIDE = Hello(data=1 << 20, heads=1 << 20)
HELLO = LEAST.pack()
"""A peer that asks for nothing."""
ORDER = bytes.fromhex(next(each["hex"] for each in VECTORS["requests"] if each["name"] == "by number"))
"""A REQUEST."""


def frames(data):
    """Every frame in C{data}, which holds nothing else."""
    reader = Reader(WIDE.sizes)
    out = reader.feed(data)
    assert reader.fault is None, reader.fault
    assert not reader.waiting
    return out


class End(Bench):
    """
    A server or a client on a wire of its own.

    @ivar said: the frames it wrote, HELLO excepted, since they were looked at last.
    """

    def __init__(self, side="server", limits=None, options=None, high=65536, **timeouts):
        super().__init__(limits=limits or Limits(), timeouts=Timeouts(**timeouts))
        self.wire = Wire(high=high)
        codec = Sotp(options)
        if side == "server":
            self.end = codec.server(self.app, self.context)
        else:
            self.end = self.client = codec.client(self._rose, self.context)
        self._watch(self.end)
        self.end.makeConnection(self.wire)

    def ends(self):
        return [self.end]

    def feed(self, *data):
        for piece in data:
            self.end.dataReceived(piece)
        return self

    @property
    def said(self):
        return [each for each in frames(self.wire.take()) if each[0]]

    def order(self, number=1, flags=1, payload=ORDER):
        return self.feed(frame(REQUEST, flags, number, payload))

    def call(self, request=None, **named):
        return self.send(request or Request(b"POST", b"/1001/order.create", **named))

    def close(self):
        from twisted.internet.error import ConnectionDone

        self.wire.lost(self.end, ConnectionDone())
        self.finish()


def greeted(side="server", hello=HELLO, **named):
    """One that has read a HELLO; what it said of itself is gone."""
    end = End(side, **named)
    end.feed(hello)
    assert frames(end.wire.take())[0][0] == 0
    return end
