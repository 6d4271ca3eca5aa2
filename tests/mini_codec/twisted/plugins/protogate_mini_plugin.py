"""Declarations only, as in every drop-in."""

from protogate.interfaces import IStreamCodec
from protogate.plugins import Plugin

mini = Plugin(IStreamCodec, "mini", "protogate_mini.codec.Mini")
