"""The bases for protocols that answer in order, held to the contract by a protocol of their own."""

from __future__ import annotations

from toy import ToyCodec
from twisted.trial.unittest import SynchronousTestCase

from protogate.testing.codec import CodecContract
from protogate.testing.interop import InteropContract
from protogate_http.http1 import Http1


class ToyContract(CodecContract, SynchronousTestCase):
    codec = ToyCodec


class ToyToHttp(InteropContract, SynchronousTestCase):
    down, up, lacks = ToyCodec, Http1, ToyCodec.lacks


class HttpToToy(InteropContract, SynchronousTestCase):
    down, up, lacks = Http1, ToyCodec, ToyCodec.lacks
