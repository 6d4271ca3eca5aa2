"""
What a client is told when something failed: a problem document (RFC 9457) with the request id and nothing internal, and
C{Proxy-Status} (RFC 9209), which names the phase and the side.
"""

from __future__ import annotations

from http import HTTPStatus
from typing import Final

import msgspec

from protogate.body import Whole
from protogate.errors import Abort
from protogate.message import Headers, Response

_encode = msgspec.json.Encoder().encode

_TITLES: Final = {status.value: status.phrase for status in HTTPStatus} | {
    # RFC 9110 has other names for some than Python 3.11.
    413: "Content Too Large",
    414: "URI Too Long",
    416: "Range Not Satisfiable",
    422: "Unprocessable Content",
    499: "Client Left",
}

# The error types of RFC 9209, 2.3, for failures that name none of their own.
_ERRORS: Final = {
    403: "http_request_denied",
    404: "destination_not_found",
    500: "proxy_internal_error",
    502: "http_protocol_error",
    503: "destination_unavailable",
    504: "http_response_timeout",
}


def kind(abort: Abort) -> str:
    """The error type for C{Proxy-Status} and the record."""
    if abort.error:
        return abort.error
    return _ERRORS.get(abort.status) or ("http_request_error" if abort.status < 500 else "proxy_internal_error")


def answer(abort: Abort, name: str, request_id: str) -> Response:
    """
    The Response for a failure.

    @param name: the gateway's, a token.
    """
    status = abort.status if 400 <= abort.status < 600 and abort.status != 499 else 500
    document = {
        "type": "about:blank",
        "title": abort.title or _TITLES.get(status, "Error"),
        "status": status,
        "requestId": request_id,
    }
    if abort.detail:
        document["detail"] = abort.detail
    side = f"{abort.who} {abort.phase}" if abort.phase else str(abort.who)
    identifier = name if name[:1].isalpha() else f'"{name}"'  # a token of RFC 8941 begins with a letter
    data = _encode(document)
    headers = Headers(
        [
            (b"content-type", b"application/problem+json"),
            (b"cache-control", b"no-store"),
            (b"proxy-status", f'{identifier}; error={kind(abort)}; details="{side}"'.encode("latin-1")),
            *abort.headers,
        ]
    )
    response = Response(status, headers, Whole(data))
    response.reason = abort
    return response
