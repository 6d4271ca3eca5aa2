"""
Modules at work: what each is told, and shown, where it is measured.

Rules
- Every module has a row; a request passes, unless the note says otherwise.
- Credentials, and who knows them, are those of L{credentials}.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from email.utils import formatdate
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import configuration
import credentials
from protogate.message import Field

NEVER: Final = "request.path == '/never'"
FIELDS: Final[tuple[Field, ...]] = (
    (b"user-agent", b"curl/8.5.0"),
    (b"accept", b"*/*"),
    (b"origin", b"https://shop.example"),
    (b"authorization", credentials.PASSWORD),
    (b"x-app", b"100041"),
    (b"x-drop", b"1"),
)


ANSWER: Final[tuple[Field, ...]] = (
    (b"server", b"origin"),
    (b"date", b"Mon, 30 Nov 2026 10:00:00 GMT"),
    (b"content-type", b"text/html"),
    (b"via", b"1.1 bench"),
)


@dataclass(frozen=True)
class Setting:
    """
    One module at work.

    @ivar params: its C{actionParam}; C{FOLDER} in a text stands for a folder with L{credentials.FILES}.
    @ivar stage: where it runs; empty = its own.
    @ivar request: what the exchange is asked with, see L{protogate.testing.exchange.exchange}.
    @ivar fields: further ones of the request.
    @ivar note: what one has to know.
    @ivar module: its name, where one has several rows; empty = the row's.
    @ivar answer: fields of the answer.
    @ivar read: the body of the answer is read to its end, the first times.
    """

    params: Mapping[str, Any] = field(default_factory=dict)
    stage: str = ""
    request: Mapping[str, Any] = field(default_factory=dict)
    fields: Sequence[Field] = ()
    note: str = ""
    module: str = ""
    answer: Sequence[Field] = ANSWER
    read: bool = False


SETTINGS: Final[dict[str, Setting]] = {
    "accessList": Setting({"deny": configuration.networks(10_000)}, note="10,000 networks"),
    "addResponseHeader": Setting({"x-cost": "${request.func.remoteCost}"}, note="a template"),
    "basicAuth": Setting({"users": {"file": "FOLDER/users"}}, note="a password that is remembered"),
    "bodyLimit": Setting({"request": "1MiB", "response": "10MiB"}),
    "cache": Setting({}, note="nothing is kept yet: the upstream is asked"),
    "cache: a hit": Setting(
        {},
        request={"response_body": b"x" * 200},
        note="what is kept is answered",
        module="cache",
        answer=((b"date", formatdate(usegmt=True).encode()), (b"cache-control", b"public, max-age=86400")),
        read=True,
    ),
    "circuitBreaker": Setting({}, note="without what it does with the answer"),
    "compress": Setting(
        {},
        fields=((b"accept-encoding", b"gzip"),),
        request={"response_body": b"x" * 4096},
        note="without the packing itself",
    ),
    "concurrencyLimit": Setting({"limit": 1_000_000}),
    "cors": Setting({"origins": ["https://shop.example"], "credentials": True}),
    "decompress": Setting({"request": True}, note="a request without content"),
    "degrade": Setting({"give": [{"answer": {"text": "later"}}]}, note="the upstream answers"),
    "errorPage": Setting({"pages": [{"statuses": [404], "text": "none"}]}, note="no error"),
    "faultInject": Setting({"abort": 503, "ratio": 0.001}, note="hits nobody"),
    "forwardAuth": Setting(
        {"ask": "https://auth.test/", "take": "x-user", "remember": {"key": "${source.ip}", "good": "1h"}},
        note="a verdict that is remembered",
    ),
    "hmacAuth": Setting(
        {"keys": {"file": "FOLDER/secrets"}, "maxAge": "1h", "replay": "allow"},
        fields=credentials.signed(),
        note="each is verified",
    ),
    "jwtAuth": Setting(
        {"keys": {"file": "FOLDER/jwks"}, "issuer": "bench", "audience": "bench", "from": {"header": "x-token"}},
        fields=((b"x-token", credentials.token()),),
        note="a token that is remembered",
    ),
    "keyAuth": Setting({"keys": {"file": "FOLDER/keys"}}, fields=((b"x-api-key", b"bench"),)),
    "loginCheck": Setting(
        {"redis": {"url": f"redis://{credentials.STORE}"}, "remember": "1h"},
        fields=((b"cookie", b"session=bench"),),
        note="a session that is remembered",
    ),
    "mtlsAuth": Setting({"allow": [{"subject": "CN=bench"}]}),
    "quota": Setting({"limit": 1_000_000_000, "per": "day"}, note="local"),
    "rateLimit": Setting({"limit": "1000000/s"}, note="local"),
    "rbac": Setting({"rules": [{"name": "all", "when": "request.method == 'GET'", "then": "allow"}]}),
    "redirect": Setting({"scheme": "https"}, note="it answers"),
    "removeHeader": Setting({"names": ["x-drop"]}),
    "respond": Setting({"status": 204}, note="it answers"),
    "rewriteMethod": Setting({"method": "POST"}),
    "rewritePath": Setting({"prefix": "/path", "replacement": "/other"}),
    "rewriteQuery": Setting({"set": {"limit": "50"}}),
    "setRequestHeader": Setting({"x-client": "${source.ip}"}, note="a template"),
    "setResponseHeader": Setting({"server": "edge"}),
    "trafficCopy": Setting({"upstream": "http://next.test:80", "ratio": 0}, note="copies nothing"),
}
TEN: Final = "a chain of ten"
CHAIN: Final = (
    "accessList",
    "cors",
    "rateLimit",
    "basicAuth",
    "rbac",
    "removeHeader",
    "setRequestHeader",
    "rewritePath",
    "bodyLimit",
    "addResponseHeader",
)


def entry(name: str, folder: Path, condition: str = "true") -> dict[str, Any]:
    """As the configuration has it."""
    setting = SETTINGS[name]
    params = _placed(setting.params, folder)
    return {"name": setting.module or name, "stage": setting.stage, "condition": condition, "actionParam": params}


def _placed(value: Any, folder: Path) -> Any:
    if isinstance(value, str):
        return value.replace("FOLDER", str(folder))
    if isinstance(value, Mapping):
        return {key: _placed(inner, folder) for key, inner in value.items()}
    return [_placed(inner, folder) for inner in value] if isinstance(value, list) else value


@contextmanager
def files() -> Iterator[Path]:
    """A folder with what modules read."""
    with TemporaryDirectory(prefix="protogate-modules-") as name:
        folder = Path(name)
        for file, text in credentials.FILES.items():
            (folder / file).write_text(text)
        yield folder
