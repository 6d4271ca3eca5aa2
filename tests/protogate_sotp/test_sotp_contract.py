"""SOTP keeps the contract of every codec."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from protogate.errors import ALWAYS, CLIENT, Abort
from protogate.testing.codec import CodecContract
from protogate_sotp.codec import Sotp


class SotpContract(CodecContract, SynchronousTestCase):
    codec = Sotp

    def refuse(self, server):
        stream = list(server.streams.values())[-1]
        stream.reset(Abort("not looked at", CLIENT, 502, ALWAYS))
        stream.lost(Abort("not looked at", CLIENT, 502))
