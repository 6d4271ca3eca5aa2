"""C{protogate codecs}: what is installed, and what each can say."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, TextIO

from protogate.commands.registry import add
from protogate.interfaces import IDescribedCodec, IReadableCodec, IStreamCodec
from protogate.plugins import PluginError, declared, find

if TYPE_CHECKING:
    from protogate.commands.registry import Commands


def register(commands: Commands) -> None:
    """Add it."""
    add(commands, "codecs", "List the installed codecs: version, ALPN, what they cannot say.", run)


def run(options: Namespace, out: TextIO) -> int:
    """One paragraph a codec; status 1 when one of them cannot be used."""
    status = 0
    for plugin in declared(IStreamCodec):
        try:
            codec = find(IStreamCodec, plugin.name)
        except PluginError as error:
            print(f"{plugin.name}\n  unusable     {error.args[0]}", file=out)
            status = 1
        else:
            print("\n".join([plugin.name, *(f"  {line}" for line in described(codec, plugin.path))]), file=out)
    return status


def described(codec: IStreamCodec, path: str) -> Iterator[str]:
    """A line for each thing that is known of a codec."""
    yield f"made by      {path}"
    if IDescribedCodec.providedBy(codec):
        name = codec.distribution
        try:
            yield f"version      {name} {version(name)}"
        except PackageNotFoundError:
            yield f"version      {name}, which is not installed as a distribution"
    yield f"ALPN         {', '.join(token.decode('ascii', 'backslashreplace') for token in codec.alpn) or 'none'}"
    if IDescribedCodec.providedBy(codec):
        yield f"cannot say   {', '.join(sorted(codec.lacks)) or '(nothing that is known)'}"
        depends: dict[str, list[str]] = {}
        for word, peers in codec.depends.items():
            depends.setdefault(peers, []).append(word)
        for peers, words in depends.items():
            yield f"not with {peers}: {', '.join(words)}"
    else:
        yield "cannot say   (the codec does not tell)"
    yield f"can be read  {'yes, by protogate decode' if IReadableCodec.providedBy(codec) else 'no'}"
