"""
Where servers are written down, without a network: an L{Etcd} and a L{Consul} that are asked as the real ones are.

    etcd = Etcd()
    etcd.put("/services/shop/one", "192.0.2.7:80")
    serve(gateway.reactor, "192.0.2.9", 2379, etcd)     # or handed to a source as the service that it asks

Rules
- They keep to what the real ones say, and when; what a source of endpoints never asks they do not know.
- C{away} makes them answer nothing, C{broken} whatever a test wants.
"""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections.abc import Callable
from functools import partial
from typing import Any
from urllib.parse import parse_qsl

from twisted.internet.defer import Deferred, fail
from twisted.internet.protocol import Factory
from zope.interface import implementer

from protogate.body import Whole
from protogate.context import Context
from protogate.errors import IDEMPOTENT, UPSTREAM, Abort
from protogate.interfaces import IService, IStreamCodec
from protogate.message import Field, Headers, Request, Response
from protogate.plugins import find
from protogate.testing.bodies import Giver
from protogate.testing.cell import read_then
from protogate.testing.reactor import MemoryReactor
from protogate.wheel import Wheel

JSON = (b"content-type", b"application/json")
Instance = dict[str, Any]


@implementer(IService)
class Catalogue:
    """
    What both have in common.

    @ivar asked: method and target of each question, in order.
    @ivar away: it answers nothing: what is asked fails, what is under way breaks off.
    @ivar broken: what it answers instead, or None.
    """

    def __init__(self) -> None:
        self.asked: list[tuple[bytes, bytes]] = []
        self.broken: Callable[[Request], Response | Deferred[Response]] | None = None
        self._away = False

    @property
    def away(self) -> bool:
        """See above."""
        return self._away

    @away.setter
    def away(self, away: bool) -> None:
        self._away = away
        if away:
            self.cut()

    def cut(self) -> None:
        """Break off what is under way."""
        raise NotImplementedError

    def handle(self, request: Request) -> Response | Deferred[Response]:
        """L{IService}."""
        self.asked.append((request.method, request.target))
        if self._away:
            return fail(lost())
        if self.broken is not None:
            return self.broken(request)
        return read_then(self.answer)(request)

    def answer(self, request: Request, data: bytes) -> Any:
        """To a question that is there as a whole: a Response, or a Deferred of one."""
        raise NotImplementedError


def lost() -> Abort:
    """What is said of a connection that is gone."""
    return Abort("the upstream closed before its response", UPSTREAM, 502, IDEMPOTENT, error="connection_terminated")


def answered(value: object, status: int = 200, headers: tuple[Field, ...] = ()) -> Response:
    """An answer in JSON."""
    return Response(status, Headers([JSON, *headers]), Whole(json.dumps(value).encode()))


def coded(text: str | bytes) -> str:
    """As etcd's gateway has keys and values."""
    return b64encode(text.encode() if isinstance(text, str) else text).decode("ascii")


class Etcd(Catalogue):
    """
    The JSON gateway of an etcd (v3.4): range, watch, authenticate.

    @ivar revision: of the last change.
    @ivar cluster: its identity.
    @ivar users: passwords, by name; none = nobody is asked who he is.
    @ivar tokens: that are good.
    @ivar watches: how many are open.
    """

    def __init__(self) -> None:
        super().__init__()
        self.revision, self.cluster = 1, 14841639068965178418
        self.users: dict[str, str] = {}
        self.tokens: set[str] = set()
        self._log: list[tuple[int, str, str, bytes]] = []  # revision, type, key, value
        self._compacted = 0
        self._made = 0
        self._watches: list[_Watch] = []

    @property
    def watches(self) -> int:
        """See above."""
        return len([watch for watch in self._watches if not watch.giver.stopped])

    # -- for tests

    def put(self, key: str, value: str | bytes) -> None:
        """Write a key."""
        self._change("PUT", key, value.encode() if isinstance(value, str) else value)

    def delete(self, key: str) -> None:
        """Take a key away."""
        self._change("DELETE", key, b"")

    def elsewhere(self) -> None:
        """Something happens that nobody here wants to know."""
        self.revision += 1

    def compact(self) -> None:
        """Forget how it came to what there is."""
        self._compacted = self.revision

    def restore(self) -> None:
        """It was set up anew, with nothing in it."""
        self.cluster += 1
        self.revision, self._log, self._compacted = 1, [], 0
        self.cut()

    def say(self, message: object) -> None:
        """Something that it never says, on each watch."""
        data = message if isinstance(message, bytes) else json.dumps(message).encode() + b"\n"
        for watch in list(self._watches):
            watch.giver.write(data)

    def progress(self) -> None:
        """That nothing has happened."""
        self.say({"result": {"header": self._header()}})

    def end(self) -> None:
        """End every watch well."""
        watches, self._watches = self._watches, []
        for watch in watches:
            watch.giver.finish()

    def cut(self) -> None:
        """L{Catalogue}."""
        watches, self._watches = self._watches, []
        for watch in watches:
            watch.giver.abort(lost())

    # -- what is asked

    def answer(self, request: Request, data: bytes) -> Response:
        """L{Catalogue}."""
        asked = json.loads(data)
        if request.target == b"/v3/auth/authenticate":
            return self._authenticate(asked)
        if self.users and (request.headers.get(b"authorization") or b"").decode() not in self.tokens:
            if request.target == b"/v3/watch":
                return self._watching(asked["create_request"], "rpc error: code = PermissionDenied")
            return answered({"error": "etcdserver: invalid auth token", "code": 16}, 401)
        if request.target == b"/v3/watch":
            return self._watching(asked["create_request"])
        return self._range(asked)

    def _authenticate(self, asked: dict[str, str]) -> Response:
        if not self.users:
            return answered({"error": "etcdserver: authentication is not enabled", "code": 9}, 400)
        if self.users.get(asked["name"]) != asked["password"]:
            return answered({"error": "etcdserver: authentication failed, invalid user ID or password"}, 400)
        self._made += 1
        token = f"token.{self._made}"
        self.tokens.add(token)
        return answered({"header": self._header(), "token": token})

    def _range(self, asked: dict[str, Any]) -> Response:
        pairs: dict[str, dict[str, str]] = {}
        for revision, kind, key, value in self._log:
            if _within(asked, key):
                pairs.pop(key, None)
                if kind == "PUT":
                    pairs[key] = {"key": coded(key), "value": coded(value), "mod_revision": str(revision)}
        kvs = [pairs[key] for key in sorted(pairs)][: asked["limit"]]
        found = {"kvs": kvs, "count": str(len(pairs))} if pairs else {}  # zero values are left out
        return answered({"header": self._header(), **found})

    def _watching(self, asked: dict[str, Any], refused: str = "") -> Response:
        giver = Giver(close=False)
        watch = _Watch(asked, giver, self._watches)
        self._watches.append(watch)
        response = Response(200, Headers([JSON]), giver.body)
        start = int(asked["start_revision"])
        created = {"header": self._header(), "created": True}
        if refused:
            watch.tell({**created, "canceled": True, "cancel_reason": refused})
        elif start <= self._compacted:
            watch.tell(created)
            watch.tell({"header": self._header(), "canceled": True, "compact_revision": str(self._compacted)})
        else:
            watch.tell(created)
            for change in self._log:
                if change[0] >= start:
                    self._tell(watch, change)
            return response
        self._watches.remove(watch)
        giver.finish()
        return response

    def _change(self, kind: str, key: str, value: bytes) -> None:
        self.revision += 1
        change = (self.revision, kind, key, value)
        self._log.append(change)
        for watch in list(self._watches):
            self._tell(watch, change)

    def _tell(self, watch: _Watch, change: tuple[int, str, str, bytes]) -> None:
        revision, kind, key, value = change
        if not _within(watch.asked, key):
            return
        pair = {"key": coded(key), "mod_revision": str(revision)}
        if kind == "PUT":
            event: dict[str, Any] = {"kv": {**pair, "value": coded(value)}}  # PUT is 0, and left out
        else:
            event = {"type": kind, "kv": pair}
        watch.tell({"header": self._header(), "events": [event]})

    def _header(self) -> dict[str, str]:
        return {"cluster_id": str(self.cluster), "revision": str(self.revision), "raft_term": "2"}


def _within(asked: dict[str, Any], key: str) -> bool:
    return b64decode(asked["key"]) <= key.encode() < b64decode(asked["range_end"])


class _Watch:
    def __init__(self, asked: dict[str, Any], giver: Giver, among: list[_Watch]) -> None:
        self.asked, self.giver, self._among = asked, giver, among

    def tell(self, result: object) -> None:
        if self.giver.stopped:
            if self in self._among:
                self._among.remove(self)
        else:
            self.giver.write(json.dumps({"result": result}).encode() + b"\n")


class Consul(Catalogue):
    """
    The health endpoint of a Consul: blocking queries.

    @ivar index: of the last change.
    @ivar token: without which nobody is told anything; empty = there is none.
    @ivar waiting: questions that are kept.
    @ivar services: instances, by name; after a change in place call L{changed}.
    """

    def __init__(self, wheel: Wheel) -> None:
        super().__init__()
        self.index = 10
        self.token = ""
        self.services: dict[str, list[Instance]] = {}
        self.waiting: list[Deferred[Response]] = []
        self._wheel = wheel

    def register(self, service: str, address: str, port: int, **more: Any) -> Instance:
        """
        One more instance.

        @param more: C{weight}, C{zone}, C{status} of its check, C{tags}.
        """
        instance: Instance = {
            "Node": {"Node": "n1", "Address": "192.0.2.99", "Datacenter": "dc1", "Meta": {}},
            "Service": {
                "ID": f"{service}-{address}-{port}",
                "Service": service,
                "Address": address,
                "Port": port,
                "Tags": more.get("tags", []),
                "Meta": {"zone": more["zone"]} if "zone" in more else {},
                "Weights": {"Passing": more.get("weight", 1), "Warning": 1},
            },
            "Checks": [{"CheckID": "serfHealth", "Status": more.get("status", "passing")}],
        }
        self.services.setdefault(service, []).append(instance)
        self.changed()
        return instance

    def deregister(self, service: str, address: str) -> None:
        """Its instances there are gone."""
        left = [each for each in self.services[service] if each["Service"]["Address"] != address]
        self.services[service] = left
        self.changed()

    def changed(self) -> None:
        """Something is other than it was: who waits is told."""
        self.index += 1
        self._release()

    def reset(self) -> None:
        """Its state was set back."""
        self.index = 3
        self._release()

    def cut(self) -> None:
        """L{Catalogue}."""
        waiting, self.waiting = self.waiting, []
        for each in waiting:
            each.errback(lost())

    def answer(self, request: Request, data: bytes) -> Any:
        """L{Catalogue}."""
        path, _, query = request.target.decode().partition("?")
        asked = parse_qsl(query)
        if self.token and (request.headers.get(b"x-consul-token") or b"").decode() != self.token:
            return Response(403, Headers([(b"content-type", b"text/plain")]), Whole(b"ACL not found"))
        words = dict(asked)
        now = partial(self._now, path.rpartition("/")[2], asked)
        if int(words["index"]) != self.index:
            return now()
        kept: Deferred[Response] = Deferred(self._forgotten)
        self.waiting.append(kept)
        wait = float(words["wait"].removesuffix("ms")) / 1000
        timer = self._wheel.after(wait * 1.05, self._release)
        return kept.addBoth(self._over, timer, now)

    def _over(self, result: Any, timer: Any, now: Callable[[], Response]) -> Any:
        timer.end()
        return now() if result is None else result

    def _release(self) -> None:
        waiting, self.waiting = self.waiting, []
        for each in waiting:
            each.callback(None)  # type: ignore[arg-type]

    def _forgotten(self, kept: Deferred[Response]) -> None:
        if kept in self.waiting:
            self.waiting.remove(kept)

    def _now(self, service: str, asked: list[tuple[str, str]]) -> Response:
        def wanted(each: Instance) -> bool:
            status = {check["Status"] for check in each["Checks"]}
            tags = all(value in each["Service"]["Tags"] for name, value in asked if name == "tag")
            return tags and (("passing", "true") not in asked or status == {"passing"})

        found = [each for each in self.services.get(service, []) if wanted(each)]
        return answered(found, headers=((b"x-consul-index", b"%d" % self.index),))


def serve(reactor: MemoryReactor, host: str, port: int, service: IService) -> None:
    """Let it be asked over connections, in HTTP/1.1."""

    class Served(Factory):
        noisy = False

        def buildProtocol(self, addr: object) -> Any:
            return find(IStreamCodec, "http1").server(service, Context(Wheel(reactor)))

    reactor.listenTCP(port, Served(), interface=host)
