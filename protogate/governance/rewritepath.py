"""
C{rewritePath}: another path for the request; the query stays as it is.

Exactly one of C{path} (a text or template), C{prefix} and C{regex}; the last two with C{replacement}.  They see the
canonical path, as routing and access rules do, and what comes out is made canonical again: whatever a template or a
group brought along, everybody behind this module sees the path that the upstream gets.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final

from zope.interface import classImplements, implementer

from protogate.errors import CLIENT, Abort, ConfigError
from protogate.expression import regex
from protogate.expression.template import Template
from protogate.governance.params import Params
from protogate.governance.stages import PRE_REQUEST, PRE_UPSTREAM
from protogate.interfaces import IModule, IModuleFactory
from protogate.uri import canonical

if TYPE_CHECKING:
    from protogate.exchange.exchange import Exchange

Rewrite = Callable[["Exchange", str], str]
"""The new path for an exchange and its path."""

WAYS: Final = ("path", "prefix", "regex")
KNOWN: Final = 1024
"""Paths that are remembered; all are forgotten when there are more."""
LONGEST: Final = 256
"""Characters of one."""
_QUOTED: Final = {ord(" "): "%20", ord("?"): "%3F", ord("#"): "%23"}
"""What has a meaning of its own in a request target, but none in what is a path as a whole."""


def target_of(path: str) -> bytes:
    """
    The canonical form of a path that was put together; a first slash that got lost on the way is put back.

    @raise ValueError: it is no path.
    """
    if not path.startswith("/"):
        path = f"/{path}"
    try:
        data = path.translate(_QUOTED).encode("latin-1")
    except UnicodeEncodeError:
        data = path.translate(_QUOTED).encode("utf-8", "replace")
    return canonical(data).path.encode("ascii")


def along(path: str | Template, exchange: Exchange, target: bytes) -> bytes:
    """
    C{target} with that path, and the query that it has; as it is where C{path} is empty, or it has none.

    @raise ValueError: it is no path.
    """
    if not path or not target.startswith(b"/"):
        return target
    _, mark, query = target.partition(b"?")
    return target_of(path if isinstance(path, str) else path(exchange)) + mark + query


class RewritePath:
    """@param rewrite: makes the new path."""

    __slots__ = ("_known", "_rewrite")

    def __init__(self, rewrite: Rewrite) -> None:
        self._rewrite = rewrite
        self._known: dict[str, tuple[bytes, str]] = {}

    def process(self, exchange: Exchange) -> None:
        """Change path and target, or leave both alone."""
        request = exchange.request
        target = request.target
        if not target.startswith(b"/"):
            return  # OPTIONS * and CONNECT have no path
        before = request.path
        after = self._rewrite(exchange, before)
        if after == before:
            return
        path, text = self._known.get(after) or self._made(after)
        _, mark, query = target.partition(b"?")
        request.target = path + mark + query
        request.path = text

    def _made(self, after: str) -> tuple[bytes, str]:
        """L{target_of}, and its text, which are remembered for a while."""
        try:
            path = target_of(after)
        except ValueError as error:
            raise Abort(
                f"rewritePath: what came out is no path: {error}",
                CLIENT,
                400,
                error="http_request_error",
                detail="the path cannot be rewritten",
            ) from None
        found = path, path.decode("ascii")
        if len(after) <= LONGEST:
            if len(self._known) >= KNOWN:
                self._known.clear()
            self._known[after] = found
        return found


classImplements(RewritePath, IModule)


@implementer(IModuleFactory)
class RewritePathFactory:
    """Makes L{RewritePath}."""

    name = "rewritePath"
    stages = (PRE_REQUEST, PRE_UPSTREAM)
    guards = False

    def build(self, params: Mapping[str, object]) -> RewritePath:
        """See L{IModuleFactory.build}."""
        reader = Params(params, *WAYS, "replacement")
        ways = [way for way in WAYS if way in reader]
        rewrite: Rewrite | None = None
        if len(ways) != 1:
            reader.fault(f"expected exactly one of {', '.join(WAYS)}, got {' and '.join(ways) or 'none'}")
        elif ways[0] == "path":
            rewrite = _whole(reader)
        elif "replacement" not in reader:
            reader.fault(f"replacement is missing: what {ways[0]} becomes", "replacement")
        else:
            rewrite = _prefix(reader) if ways[0] == "prefix" else _regex(reader)
        reader.done()
        assert rewrite is not None
        return RewritePath(rewrite)


def _whole(reader: Params) -> Rewrite:
    path = reader.text("path")
    if "replacement" in reader:
        reader.fault("path is what the path becomes: there is nothing to replace", "replacement")
    if isinstance(path, Template):
        return lambda exchange, before: path(exchange)
    check_path(reader, "path", path)
    return lambda exchange, before: path


def _prefix(reader: Params) -> Rewrite:
    prefix = reader.literal("prefix")
    check_path(reader, "prefix", prefix)
    replacement = reader.text("replacement")
    if isinstance(replacement, str) and replacement:
        check_path(reader, "replacement", replacement)
    stem = prefix.rstrip("/")
    inner, size = stem + "/", len(stem)
    if isinstance(replacement, str):
        start = replacement.rstrip("/")

        def moved(exchange: Exchange, before: str) -> str:
            return start + before[size:] if before == stem or before.startswith(inner) else before

        return moved

    def rewrite(exchange: Exchange, before: str) -> str:
        if before != stem and not before.startswith(inner):
            return before
        return replacement(exchange).rstrip("/") + before[size:]

    return rewrite


def _regex(reader: Params) -> Rewrite:
    text, replacement = reader.literal("regex"), reader.literal("replacement")
    try:
        pattern = regex.compile(text)
    except ConfigError as error:
        reader.fault(error.message, "regex")
        return lambda exchange, before: before
    try:
        pattern.sub(replacement, "")
    except (re.error, IndexError) as error:
        reader.fault(f'"{replacement}" does not fit the regular expression: {error}', "replacement")
    sub = pattern.sub
    return lambda exchange, before: sub(replacement, before, 1)


def check_path(reader: Params, name: str, path: str) -> None:
    """A path in the configuration is written as it will be seen."""
    if reader.faults:
        return
    if not path.startswith("/"):
        reader.fault(f'"{path}" is no path: it does not start with a slash', name)
        return
    try:
        made = target_of(path).decode("ascii")
    except ValueError as error:
        reader.fault(f'"{path}" is no path: {error}', name)
        return
    if "?" in path or "#" in path:
        reader.fault(f'"{path}" is more than a path: the query stays as it is', name)
    elif made != path:
        reader.fault(f'"{path}" is not in its canonical form, nobody would see it so; write "{made}"', name)
