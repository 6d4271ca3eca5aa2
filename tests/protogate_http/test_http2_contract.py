"""HTTP/2 keeps the contract of every codec, with either engine."""

from __future__ import annotations

from functools import partial

from twisted.trial.unittest import SynchronousTestCase

from protogate.errors import ALWAYS, CLIENT, Abort
from protogate.testing.codec import CodecContract
from protogate_http.http2 import Http2


class Refusing(CodecContract):
    def refuse(self, server):
        stream = list(server.streams.values())[-1]
        stream.reset(Abort("not looked at", CLIENT, 502, ALWAYS))
        stream.lost(Abort("not looked at", CLIENT, 502))
        server.pull()


class Ngh2Contract(Refusing, SynchronousTestCase):
    codec = partial(Http2, "ngh2")


class H2Contract(Refusing, SynchronousTestCase):
    codec = partial(Http2, "h2")
