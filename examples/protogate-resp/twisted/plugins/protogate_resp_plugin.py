"""Declarations only, as in every drop-in."""

from protogate.interfaces import IStreamCodec
from protogate.plugins import Plugin

resp = Plugin(IStreamCodec, "resp", "protogate_resp.codec.Resp")
