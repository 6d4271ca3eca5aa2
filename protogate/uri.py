"""Authority, path, query and cookies (RFC 3986, RFC 6265)."""
from __future__ import annotations
from collections.abc import Iterable


def host_of(authority: bytes) -> str:
    host, colon, port = authority.rpartition(b":")
    return (host if colon and port.isdigit() else authority).decode("latin-1").lower()


def query_of(target: bytes) -> dict[str, str]:
    from urllib.parse import parse_qsl
    return dict(reversed(parse_qsl(target.partition(b"?")[2].decode("latin-1"), keep_blank_values=True)))


def cookies_of(lines: Iterable[bytes]) -> dict[str, str]:
    out: dict[str, str] = {}
    for line in lines:
        for crumb in line.split(b";"):
            name, eq, value = crumb.partition(b"=")
            out.setdefault(name.strip(b" \t").decode("latin-1"), value.strip(b" \t").decode("latin-1"))
    return out
