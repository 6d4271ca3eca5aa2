"""SOTP keeps the contract of every codec."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from protogate.testing.codec import CodecContract
from protogate_sotp.codec import Sotp


class SotpContract(CodecContract, SynchronousTestCase):
    codec = Sotp
