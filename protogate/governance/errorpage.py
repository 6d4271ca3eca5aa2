"""
C{errorPage}: what people and programs see when something failed: a page, JSON or text, by what they accept.

Rules
- Status and fields of an error stay (C{Retry-After}, C{WWW-Authenticate}, C{Allow}): only the content is another one.
- What templates put into HTML or JSON is escaped for it: a path is no markup.
- Protocols with words of their own for errors (gRPC, SOTP) keep them: L{Response.reason} stays.
"""

from __future__ import annotations

import html
import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from zope.interface import implementer

from protogate.body import Whole
from protogate.config.stamp import read
from protogate.errors import ConfigError
from protogate.expression import template
from protogate.expression.template import Template
from protogate.governance.negotiation import media
from protogate.governance.params import Params, shown
from protogate.governance.stages import PRE_RESPONSE
from protogate.interfaces import IModule, IModuleFactory
from protogate.message import Response

if TYPE_CHECKING:
    from protogate.exchange.exchange import Exchange

LARGEST: Final = 256 * 1024
"""Bytes of a page."""
STATUSES: Final = re.compile(r"[45](?:xx|[0-9]{2})").fullmatch
_GONE: Final = frozenset(
    (
        b"accept-ranges",
        b"content-digest",
        b"content-encoding",
        b"content-language",
        b"content-length",
        b"content-location",
        b"content-range",
        b"content-type",
        b"etag",
        b"last-modified",
        b"repr-digest",
    )
)
"""Fields that are about the content as it was."""


def _quoted(text: str) -> str:
    """As it stands within the quotation marks of JSON."""
    return json.dumps(text)[1:-1]


KINDS: Final[Mapping[str, tuple[bytes, bytes, Callable[[str], str]]]] = {
    "html": (b"text/html", b"text/html; charset=utf-8", html.escape),
    "json": (b"application/json", b"application/json", _quoted),
    "text": (b"text/plain", b"text/plain; charset=utf-8", str),
}
"""Parameter → media type, C{Content-Type}, and how what templates put in is escaped."""


class Page:
    """
    What is said for some statuses.

    @ivar statuses: those it is for.
    """

    __slots__ = ("_made", "_offered", "statuses")

    def __init__(self, statuses: frozenset[int], texts: Mapping[str, str | Template]) -> None:
        self.statuses = statuses
        self._offered = tuple(KINDS[kind][0] for kind in texts)
        self._made = {KINDS[kind][0]: (*KINDS[kind][1:], text) for kind, text in texts.items()}

    def show(self, exchange: Exchange, response: Response) -> None:
        """Let it be the content of an answer."""
        accept = exchange.request.headers.all(b"accept")
        kind, escape, text = self._made[media(accept, self._offered)]
        content = text if isinstance(text, str) else text.escaped(exchange, escape)
        if response.body is not None:
            response.body.stopProducing()
        response.headers.without(_GONE)
        response.headers.append((b"content-type", kind))
        if len(self._offered) > 1:
            response.headers.append((b"vary", b"accept"))
        response.body = Whole(content.encode("utf-8", "replace"))


@implementer(IModule)
class ErrorPage:
    """
    @param pages: the first that is for a status counts.
    @param upstream: whether errors of the upstream get one, too.
    """

    __slots__ = ("_pages", "_upstream")

    def __init__(self, pages: Sequence[Page], upstream: bool) -> None:
        self._pages: dict[int, Page] = {}
        for page in pages:
            for status in page.statuses:
                self._pages.setdefault(status, page)
        self._upstream = upstream

    def process(self, exchange: Exchange) -> None:
        """Show the page for the status of the answer, if there is one."""
        response = exchange.response
        if response is None or response.status < 400:
            return
        page = self._pages.get(response.status)
        if page is not None and (self._upstream or response.reason is not None):
            page.show(exchange, response)


@implementer(IModuleFactory)
class ErrorPageFactory:
    """Makes L{ErrorPage}."""

    name = "errorPage"
    stages = (PRE_RESPONSE,)
    guards = False

    def build(self, params: Mapping[str, object]) -> ErrorPage:
        """See L{IModuleFactory.build}."""
        reader = Params(params, "pages", "upstream")
        pages = [_page(reader, given, index) for index, given in enumerate(reader.items("pages"))]
        if not pages and not reader.faults:
            reader.fault("expected at least one page", "pages")
        upstream = reader.flag("upstream")
        reader.done()
        return ErrorPage([page for page in pages if page is not None], upstream)


def _page(reader: Params, given: object, index: int) -> Page | None:
    if not isinstance(given, Mapping):
        reader.fault(f"expected a mapping of statuses and html, json or text, got {shown(given)}", "pages", index)
        return None
    inner = Params(given, "statuses", *KINDS)
    statuses: set[int] = set()
    for at, status in enumerate(inner.items("statuses")):
        text = str(status)
        if isinstance(status, bool) or not isinstance(status, (int, str)) or not STATUSES(text):
            inner.fault(f"expected a status such as 404, or 4xx or 5xx, got {shown(status)}", "statuses", at)
        elif text.endswith("xx"):
            statuses.update(range(int(text[0]) * 100, int(text[0]) * 100 + 100))
        else:
            statuses.add(int(text))
    if not statuses and not inner.faults:
        inner.fault("expected at least one status, or 4xx or 5xx", "statuses")
    texts = texts_of(inner, given)
    if not texts:
        inner.fault(f"expected {', '.join(KINDS)}, or some of them")
    reader.faults += [ConfigError(fault.message, ("pages", index, *fault.path)) for fault in inner.faults]
    return None if inner.faults else Page(frozenset(statuses), texts)


def texts_of(reader: Params, given: Mapping[str, Any]) -> dict[str, str | Template]:
    """C{html}, C{json} and C{text}, as far as they are given."""
    return {kind: _text(reader, given[kind], kind) for kind in KINDS if kind in given}


def _text(reader: Params, given: Any, kind: str) -> str | Template:
    """A text or template, or what stands in a file."""
    if not isinstance(given, Mapping):
        return reader.text(kind)
    path = given.get("file")
    if set(given) != {"file"} or not isinstance(path, str):
        reader.fault(f"expected a text, or {{file: path}}, got {shown(given)}", kind)
        return ""
    try:
        data, _ = read(path, LARGEST)
        return template.compile(data.decode("utf-8"), response=True)
    except ValueError as error:
        reader.fault(f"{path}: {error}", kind)
    return ""
