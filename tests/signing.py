"""Requests signed as a client would sign them: written from RFC 9421, with nothing of ours."""

from __future__ import annotations

import hashlib
import hmac
from base64 import b64encode

SECRET = bytes(range(64))
NOW = 1_800_000_000
USUAL = ("@method", "@authority", "@path", "@query")


def content_digest(content: bytes, name: str = "sha-256") -> bytes:
    return f"{name}=:{b64encode(hashlib.new(name.replace('-', ''), content).digest()).decode()}:".encode()


def signed(
    method: bytes = b"GET",
    authority: bytes = b"a.test",
    target: bytes = b"/path?q=1",
    headers: list[tuple[bytes, bytes]] | None = None,
    components: tuple[str, ...] = USUAL,
    parameters: str | None = None,
    secret: bytes = SECRET,
    label: str = "sig1",
) -> list[tuple[bytes, bytes]]:
    """The fields of a request, with those that sign it."""
    headers = list(headers or [])
    parameters = f';created={NOW};keyid="partner-7"' if parameters is None else parameters
    path, mark, query = target.partition(b"?")
    lines = []
    for name in components:
        derived = {
            "@method": method,
            "@authority": authority,
            "@path": path,
            "@query": mark + query or b"?",
            "@request-target": target,
            "@scheme": b"http",
            "@target-uri": b"http://" + authority + target,
            "host": authority,
        }
        value = derived.get(name)
        if value is None:
            value = b", ".join(value for key, value in headers if key == name.encode())
        lines.append(f'"{name}": '.encode() + value)
    listed = " ".join(f'"{name}"' for name in components)
    told = f"({listed}){parameters}".encode()
    lines.append(b'"@signature-params": ' + told)
    value = b64encode(hmac.new(secret, b"\n".join(lines), "sha256").digest())
    return [
        *headers,
        (b"signature-input", label.encode() + b"=" + told),
        (b"signature", label.encode() + b"=:" + value + b":"),
    ]
