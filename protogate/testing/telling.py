"""What a codec tells of itself, held to its word: for L{protogate.testing.codec}."""
# ruff: noqa: PT009 - under trial only these assertions show the values

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

from twisted.trial.unittest import SkipTest
from zope.interface.verify import verifyObject

from protogate.config.model import Model
from protogate.config.schema import described
from protogate.interfaces import IConfigurableCodec, IDescribedCodec, IStreamCodec
from protogate.testing.matrix import LACKS, Matrix


class TellingTests(Matrix):
    """
    @cvar codec: makes the codec, called without arguments.
    """

    codec: ClassVar[Callable[[], Any]]

    def test_codec(self) -> None:
        codec = type(self).codec()
        verifyObject(IStreamCodec, codec)
        self.assertRegex(codec.name, r"\A[a-z][a-z0-9_-]*\Z")
        for token in codec.alpn:
            self.assertIsInstance(token, bytes)
        if IDescribedCodec.providedBy(codec):
            verifyObject(IDescribedCodec, codec)
            self.assertLessEqual({*codec.lacks, *codec.depends}, LACKS)
            self.assertFalse({*codec.lacks} & {*codec.depends}, "never, or not with some: one of the two")

    def test_options(self) -> None:
        codec = type(self).codec()
        if not IConfigurableCodec.providedBy(codec):
            raise SkipTest("the codec has no options")
        verifyObject(IConfigurableCodec, codec)
        self.assertTrue(issubclass(codec.options, Model))
        for key, known in described(codec.options).items():
            self.assertTrue(known["description"], f"a docstring below {key}, for who configures it")
        told = codec.options()
        self.assertEqual(hash(told), hash(codec.options()), "equal options have one hash")
        made = codec.configure(told)
        self.assertIsNot(made, codec, "the other one stays as it is")
        verifyObject(IStreamCodec, made)
        self.assertEqual((made.name, tuple(made.alpn)), (codec.name, tuple(codec.alpn)))
        self.assertEqual(IDescribedCodec.providedBy(made), IDescribedCodec.providedBy(codec))
