"""One cohort per user: the same for the routes and the modules of a whole gateway, whatever protocol is spoken."""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path

import pytest

from protogate.cohort import position
from protogate.interfaces import IStreamCodec
from protogate.plugins import names
from protogate.testing.caller import Caller
from protogate.testing.gateway import MemoryGateway
from protogate.testing.upstream import Expect

CODECS = tuple(names(IStreamCodec))
USERS = tuple(f"user-{number}" for number in range(60))
OK = [Expect(b"\r\n\r\n"), b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok"]
LISTENERS = ", ".join(
    f'{{name: {name}, address: "127.0.0.1:{8080 + at}", protocols: [{name}]}}' for at, name in enumerate(CODECS)
)
CONFIG = """
gateway: {cohort: %(key)s}
listeners: [%(listeners)s]
upstreams:
  - {name: old, endpoints: [{url: "http://192.0.2.7:80"}]}
  - {name: new, endpoints: [{url: "http://192.0.2.8:80"}]}
routes:
  - {value: /1001, matcherType: prefix, routes: [{targets: [{upstream: old}, {upstream: new, gray: %(percent)g}]}]}
modules:
  - {name: keyAuth, ruleOrder: 1, actionParam: {keys: {file: "%(file)s"}, optional: true}}
  - {name: setRequestHeader, stage: PRE_REQUEST, ruleOrder: 2, grayRatio: %(percent)g, actionParam: {x-gray: "1"}}
  - {name: addResponseHeader, grayRatio: %(percent)g, actionParam: {x-gray: "1"}}
"""


class Scene:
    """A gateway that knows its users by their keys."""

    def __init__(self, gateway: MemoryGateway) -> None:
        self.gateway = gateway
        self.old, self.new = gateway.upstream("192.0.2.7", 80, OK), gateway.upstream("192.0.2.8", 80, OK)

    def gray(self, codec: str, *users: str) -> set[str]:
        """Which of them are gray: for the route, and for both modules.  One without a name shows no key."""
        found = set()
        for user in users:
            caller = Caller(self.gateway, codec, codec)
            key = [(b"x-api-key", f"key of {user}".encode())] if user else []
            got = caller.ask(b"POST", b"/1001/get", key, b"")
            caller.close()
            assert got.status == 200
            new = self.gateway.records[-1].upstream == "new"
            asked = self.new if new else self.old
            assert (b"x-gray: 1" in asked.received[-1]) is new
            assert (got.headers.get(b"x-gray") == b"1") is new
            if new:
                found.add(user)
        return found


def scene(tmp_path: Path, percent: float, key: str = "identity.user") -> MemoryGateway:
    file = tmp_path / "keys"
    file.write_text("".join(f"sha256:{sha256(f'key of {user}'.encode()).hexdigest()} {user}\n" for user in USERS))
    return MemoryGateway(CONFIG % {"key": key, "listeners": LISTENERS, "percent": percent, "file": file})


@pytest.mark.parametrize("codec", CODECS)
def test_who_is_gray_is_gray_for_routes_and_modules(codec: str, tmp_path: Path) -> None:
    with scene(tmp_path, 30) as gateway:
        assert Scene(gateway).gray(codec, *USERS) == {user for user in USERS if position(user) < 30}


def test_who_is_not_known_is_gray_by_the_address_and_so_for_all(tmp_path: Path) -> None:
    at = position("127.0.0.1")
    for percent in (at - 1, at + 1):
        with scene(tmp_path, percent) as gateway:
            assert bool(Scene(gateway).gray("http1", "")) is (percent > at)


def test_a_reload_that_takes_more_in_keeps_who_was_in(tmp_path: Path) -> None:
    with scene(tmp_path, 10) as gateway:
        whole = Scene(gateway)
        before = whole.gray("http1", *USERS)
        text = CONFIG % {
            "key": "identity.user", "listeners": LISTENERS, "percent": 40, "file": tmp_path / "keys",
        }  # fmt: skip
        assert gateway.reload(text)
        assert before < whole.gray("http1", *USERS)
