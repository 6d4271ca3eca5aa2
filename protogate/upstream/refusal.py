"""What a request is told when there is no connection for it: whose fault, status, error type (RFC 9209, 2.3)."""

from __future__ import annotations

import errno
from collections.abc import Sequence
from typing import Final

from twisted.internet import error
from twisted.internet.error import ConnectError

from protogate.errors import ALWAYS, GATEWAY, UPSTREAM, Abort, Phase, Who, timeout
from protogate.message import Field
from protogate.tls.layer import Trouble

RETRY_AFTER: Final = ((b"retry-after", b"1"),)
"""Seconds; what a 503 carries (RFC 9110, 10.2.3)."""
TERMINATED: Final = "connection_terminated"
"""Somebody accepted a connection, and closed it before it could be used (RFC 9209, 2.3.7)."""


def gone(why: str) -> Abort:
    """For who asks for an endpoint that is not there, or no longer."""
    return Abort(
        why,
        UPSTREAM,
        503,
        ALWAYS,
        error="destination_unavailable",
        detail="no endpoint",
        headers=RETRY_AFTER,
    )


def unwell(name: str) -> Abort:
    """For who waits for a connection to an endpoint that is found not to be well: says nothing of it that is new."""
    return Abort(
        f"{name} was found not to be well before there was a connection",
        GATEWAY,
        503,
        ALWAYS,
        error="destination_unavailable",
        detail="no endpoint",
        headers=RETRY_AFTER,
    )


def unfound(name: str, why: str) -> Abort:
    """For who asks for an upstream whose endpoints are not known yet."""
    return Abort(
        f"the endpoints of upstream {name} are not known: {why}",
        UPSTREAM,
        503,
        ALWAYS,
        error="destination_unavailable",
        phase=Phase.DNS,
        detail="no endpoint is known yet",
        headers=RETRY_AFTER,
    )


def queued(name: str, seconds: float) -> Abort:
    """For who waited too long for a connection."""
    return late(name, Phase.QUEUE, GATEWAY, seconds, RETRY_AFTER)


def late(name: str, phase: Phase, who: Who, seconds: float, headers: Sequence[Field] = ()) -> Abort:
    """L{timeout} of what is done for an endpoint or a name, which it names."""
    plain = timeout(phase, who, seconds, ALWAYS)
    return Abort(
        f"{name}: {plain.reason}",
        plain.who,
        plain.status,
        plain.retry,
        error=plain.error,
        phase=plain.phase,
        detail=plain.detail,
        headers=headers,
    )


def unresolved(host: str, why: str) -> Abort:
    """For who asks for the addresses of a name that has none, or of which nobody knows them."""
    return Abort(
        f"cannot resolve {host}: {why}",
        UPSTREAM,
        502,
        ALWAYS,
        error="dns_error",
        phase=Phase.DNS,
        detail="name resolution failed",
    )


def unsecured(name: str, trouble: Trouble) -> Abort:
    """For who asks for an endpoint with which there is no TLS (RFC 9209, 2.3.11 to 2.3.13)."""
    if trouble.left:
        kind, detail = TERMINATED, "the upstream closed the connection"
    elif trouble.certificate and not trouble.alert:
        kind, detail = "tls_certificate_error", "the upstream is not whom its certificate should say"
    elif trouble.alert:
        kind, detail = "tls_alert_received", "the upstream refused the TLS handshake"
    else:
        kind, detail = "tls_protocol_error", "the TLS handshake with the upstream failed"
    return Abort(
        f"{name}: TLS handshake failed: {trouble.text}",
        UPSTREAM,
        502,
        ALWAYS,
        error=kind,
        phase=Phase.TLS,
        detail=detail,
    )


def not_agreed(name: str, codec: str) -> Abort:
    """For who asks for an endpoint that does not say by ALPN that it speaks what it must."""
    return Abort(
        f"{name} did not agree by ALPN to speak {codec}",
        UPSTREAM,
        502,
        ALWAYS,
        error="tls_protocol_error",
        phase=Phase.TLS,
        detail="the upstream does not speak that protocol over TLS",
    )


def full(name: str, most: int) -> Abort:
    """For who finds the queue full."""
    return Abort(
        f"{name}: {most} requests wait already",
        GATEWAY,
        503,
        ALWAYS,
        error="connection_limit_reached",
        detail="too many requests wait",
        headers=RETRY_AFTER,
    )


_OURS: Final = {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM, errno.EADDRNOTAVAIL}
_UNROUTABLE: Final = {
    errno.ENETUNREACH,
    errno.EHOSTUNREACH,
    errno.ENETDOWN,
    errno.EACCES,
    errno.EPERM,
    errno.EAFNOSUPPORT,
}


def refusal(problem: BaseException | None, name: str, host: str, address: str) -> Abort:
    """What a failed TCP connect means (RFC 9209, 2.3): whose fault, and its error type."""
    where = name if address == host else f"{name} at {address}"
    number = problem.osError if isinstance(problem, ConnectError) else None
    who, status = UPSTREAM, 502
    if isinstance(problem, error.ConnectionRefusedError) or number == errno.ECONNREFUSED:
        kind, detail = "connection_refused", "the upstream refused the connection"
    elif isinstance(problem, error.TCPTimedOutError) or number == errno.ETIMEDOUT:
        kind, detail, status = "connection_timeout", "the upstream did not answer", 504
    elif isinstance(problem, error.NoRouteError) or number in _UNROUTABLE:
        kind, detail = "destination_ip_unroutable", "no route to the upstream"
    elif number in _OURS:  # out of descriptors, memory or ports: no upstream can help that
        kind, detail, who, status = "proxy_internal_error", "out of resources", GATEWAY, 503
    else:
        kind, detail = TERMINATED, "the connection failed"
    text = str(problem).rstrip(".") or type(problem).__name__
    return Abort(
        f"cannot connect to {where}: {text}",
        who,
        status,
        ALWAYS,
        error=kind,
        phase=Phase.CONNECT,
        detail=detail,
    )
