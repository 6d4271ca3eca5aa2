"""C{protogate codecs}: what is installed, what each can say, and what it can be told."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, TextIO

from protogate.commands.registry import add
from protogate.interfaces import IConfigurableCodec, IDescribedCodec, IReadableCodec, IRemarkedCodec, IStreamCodec
from protogate.plugins import PluginError, declared, find

if TYPE_CHECKING:
    from protogate.commands.registry import Commands
    from protogate.config.model import Model


def register(commands: Commands) -> None:
    """Add it."""
    add(commands, "codecs", "List the installed codecs: version, ALPN, what they cannot say, options.", run)


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
    if IRemarkedCodec.providedBy(codec):
        for about, text in codec.remarks:
            yield f"{about:12} {text}"
    yield f"can be read  {'yes, by protogate decode' if IReadableCodec.providedBy(codec) else 'no'}"
    if IConfigurableCodec.providedBy(codec):
        yield f"options      codecs.{codec.name} of the configuration, and their defaults"
        yield from _options(codec.options)
    else:
        yield "options      none"


def _shown(default: object) -> str:
    """As the file has it."""
    return str(default).lower() if isinstance(default, bool) else str(default)


def _options(kind: type[Model]) -> Iterator[str]:
    """A line for each key."""
    # Reads source: no gateway that runs has a use for it.
    from protogate.config.schema import described as keys_of  # noqa: PLC0415

    keys = keys_of(kind)
    names = max(map(len, keys), default=0)
    defaults = {key: _shown(known.get("default", "")) for key, known in keys.items()}
    values = max(map(len, defaults.values()), default=0)
    for key, known in keys.items():
        text = " ".join(known["description"].split())
        yield f"  {key:{names}}  {defaults[key]:{values}}  {text}"
