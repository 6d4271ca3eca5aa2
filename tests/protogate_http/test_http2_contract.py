"""HTTP/2 keeps the contract of every codec, with either engine."""

from __future__ import annotations

from functools import partial

from twisted.trial.unittest import SynchronousTestCase

from protogate.testing.codec import CodecContract
from protogate_http.http2 import Http2


class Ngh2Contract(CodecContract, SynchronousTestCase):
    codec = partial(Http2, "ngh2")


class H2Contract(CodecContract, SynchronousTestCase):
    codec = partial(Http2, "h2")
