"""HTTP/1 keeps the contract of every codec."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from protogate.testing.codec import CodecContract
from protogate_http.http1 import Http1


class Http1Contract(CodecContract, SynchronousTestCase):
    codec = Http1
