"""
The endpoints under a prefix of an etcd (v3.4 and later), by its JSON gateway: read once, then watched.

A value is C{host:port}, a URL, or JSON: C{{"url": …, "weight": …, "zone": …}}, or as etcd's own clients for gRPC write
it, with C{Addr}.

Rules
- The watch begins with the revision after the one that was read, and is taken up where it broke off: no change is
  missed, and none makes all be read again.  Where etcd has compacted what came since, or is another one than before,
  all is read anew.
- A watch that is silent for L{SILENCE} seconds is begun anew: that etcd has nothing to say sounds the same as that it
  is gone.  And a member that has lost the others says so, rather than nothing.
- A token is asked for when it is needed, and again, with the password as it is then, when it is not taken any more.
  One that somebody else makes is read anew then.
"""

from __future__ import annotations

import json
import re
from base64 import b64decode, b64encode
from collections.abc import Mapping, Sequence
from typing import Any, Final

from twisted.internet.defer import CancelledError, Deferred
from zope.interface import implementer

from protogate.body import Whole
from protogate.config import model
from protogate.config.faults import under
from protogate.config.scalar import shown
from protogate.discovery.conversation import Conversation, located, refused, target
from protogate.discovery.entries import MOST, Entry, Legible, legible
from protogate.discovery.lines import Lines, TooLong
from protogate.discovery.secret import secret
from protogate.errors import Abort, ConfigError, Phase
from protogate.governance.asking import Answer, Question
from protogate.identity.strictjson import mapping
from protogate.interfaces import IBody, IDiscoveryFactory
from protogate.message import Request
from protogate.upstream.endpoint import Place

SILENCE: Final = 45.0
"""Seconds without a word after which a watch is begun anew; less than the usual C{timeouts.responseStall}."""
SHORT: Final = 1.0
"""Seconds that a watch must have lived for its end to be no failure."""
_DIGITS: Final = re.compile(r"[0-9]{1,19}", re.ASCII).fullmatch
LONGEST: Final = 64 * 1024
"""Bytes of a message of a watch: it is read on the event loop.  After a longer one all is read anew, in a thread."""
_HEADERS: Final = (
    (b"content-type", b"application/json"),
    (b"grpc-metadata-hasleader", b"true"),  # a member that has lost the others breaks watches off
)


class Etcd(Conversation):
    """
    @param prefix: of the keys.
    @param username: empty = nobody, or whoever the token is of.
    @param place: where the password stands, or the token; None = there is none.
    @raise ConfigError: what is wrong with it.
    """

    def __init__(
        self,
        question: Question,
        path: tuple[str | int, ...],
        prefix: bytes,
        entry: Entry,
        username: str = "",
        place: model.Secret | None = None,
    ) -> None:
        super().__init__(question, path, place is not None)
        self._entry, self._username, self._place = entry, username, place
        self._secret = b"" if place is None else secret(place)
        self._range = {"key": _coded(prefix), "range_end": _coded(_end(prefix))}
        self._token = b""
        self._renewed = False  # the token was asked for in this very talk
        self._alive = False  # this watch has said something
        self._cluster = ""
        self._revision = 0  # up to which everything is known; 0 = nothing is
        self._places: dict[str, Place] = {}

    async def talk(self) -> None:
        """L{Conversation}: read all where nothing is known, then watch until the watch ends."""
        self._renewed = False
        if not self._revision:
            await self._read()
        try:
            await self._watch()
        except TooLong:
            self._revision = 0
        except Abort as reason:
            if reason.phase is not Phase.RESPONSE_STALL or not self._alive:
                raise

    # -- all of it

    async def _read(self) -> None:
        answer = await self._call(b"/v3/kv/range", {**self._range, "limit": MOST + 1})
        self._cluster, self._revision, legible_ = await self.think(_whole, answer.content, self._entry)
        self._places = legible_.places
        self.complain(legible_.faults)
        self._tell()

    def _tell(self) -> None:
        self.well()
        self.findings.found([self._places[key] for key in sorted(self._places)])

    # -- what changes

    async def _watch(self) -> None:
        self._alive = False
        wheel = self.findings.wheel
        began = wheel.now()
        lines = Lines(await self._opened(), LONGEST)
        taking = lines.take()
        silence = wheel.after(SILENCE, lambda: taking.cancel())  # noqa: PLW0108 - whichever it is by then
        try:
            while messages := await taking:
                if not self._heard(messages):
                    return
                silence.set(SILENCE)
                taking = lines.take()
        except CancelledError:
            self.findings  # noqa: B018 - raises where this was stopped; else it was the silence
            if not self._alive:
                raise ValueError(f"the watch says nothing for {SILENCE:g} s") from None
            return
        finally:
            silence.end()
            lines.stop()
        if wheel.now() - began < SHORT:
            raise ValueError("the watch ended as soon as it had begun")

    async def _opened(self) -> IBody:
        """The content of a watch that goes on where all is known."""
        if self._place is not None and not self._token:
            await self._authenticate()
        create = {**self._range, "start_revision": str(self._revision + 1), "progress_notify": True}
        answer = self.findings.service(self.question.service).handle(
            self._request(b"/v3/watch", {"create_request": create})
        )
        response = await answer if isinstance(answer, Deferred) else answer
        body = response.body
        if self._findings is None or response.status != 200:
            if body is not None:
                body.stopProducing()
            self.findings  # noqa: B018 - raises where this was stopped
            self._token = b""
            raise ValueError(f"it answered {response.status} to a watch")
        if body is None:
            raise ValueError("it answered a watch with nothing")
        return body

    def _heard(self, messages: Sequence[bytes]) -> bool:
        """Take what a watch says; False = it is of no more use."""
        changed = False
        for message in messages:
            told = mapping(message)
            if "result" not in told:
                raise ValueError(
                    f"it breaks the watch off: {shown(_mapping(told.get('error', {})).get('message', ''))}"
                )
            result = _mapping(told["result"])
            header = _mapping(result.get("header", {}))
            if result.get("canceled"):
                return self._canceled(result)
            revision, events = _number(header.get("revision")), result.get("events")
            if result.get("created"):
                if revision < self._revision or str(header.get("cluster_id", "")) != self._cluster:
                    self._revision = 0  # it is another one, was set back, or is behind
                    return False
                self._alive = changed = True
            elif not events:
                self._revision = max(self._revision, revision)  # there was nothing for us up to there
            for event in _items(events):
                self._change(_mapping(event))
                changed = True
        if changed:
            self._tell()
        return True

    def _change(self, event: Mapping[str, Any]) -> None:
        pair = _mapping(event.get("kv", {}))
        key = _key(pair)
        self._revision = max(self._revision, _number(pair.get("mod_revision")))
        self._places.pop(key, None)
        if event.get("type", "PUT") == "PUT":
            try:
                self._places[key] = self._entry(_value(pair))
            except ConfigError as error:
                self.complain([f"{key}: {error.message}"])
            if len(self._places) > MOST:
                self._revision = 0
                raise ValueError(f"more than {MOST} endpoints")

    def _canceled(self, result: Mapping[str, Any]) -> bool:
        if _number(result.get("compact_revision", 0)):
            self._revision = 0
        elif self._token and not self._renewed:
            self._token = b""  # it may have been that
        else:
            raise ValueError(f"it refuses to be watched: {shown(result.get('cancel_reason', ''))}")
        return False

    # -- questions

    async def _call(self, path: bytes, asked: Mapping[str, object]) -> Answer:
        if self._place is not None and not self._token:
            await self._authenticate()
        answer = await self.ask(self._request(path, asked))
        if answer.status == 401 and self._place is not None and not self._renewed:
            await self._authenticate()
            answer = await self.ask(self._request(path, asked))
        if answer.status != 200:
            self._token = b""
            raise refused(answer)
        return answer

    async def _authenticate(self) -> None:
        self._token, self._renewed = b"", True
        found, self._secret = self._secret, b""
        if not found:  # what was read at load has been used
            found = await self.think(secret, self._place)
        if not self._username:
            self._token = found
            return
        asked = {"name": self._username, "password": found.decode("ascii")}
        answer = await self.ask(self._request(b"/v3/auth/authenticate", asked))
        if answer.status != 200:
            raise refused(answer)
        token = mapping(answer.content).get("token")
        if not isinstance(token, str) or not token.isascii() or not token.isprintable() or not token:
            raise ValueError("it gave no token")
        self._token = token.encode("ascii")

    def _request(self, path: bytes, asked: Mapping[str, object]) -> Request:
        headers = [*_HEADERS]
        if self._token:
            headers.append((b"authorization", self._token))
        body = Whole(json.dumps(asked).encode("ascii"))
        return self.question.request(b"POST", headers, target(self.question, path), body)


def _whole(content: bytes, entry: Entry) -> tuple[str, int, Legible]:
    """Cluster, revision and endpoints of an answer."""
    answer = mapping(content)
    header = _mapping(answer.get("header", {}))
    revision = _number(header.get("revision"))
    if not revision:
        raise ValueError("it tells no revision: this is no etcd")
    pairs = [_mapping(pair) for pair in _items(answer.get("kvs"))]

    def read(pair: Any) -> Place:
        return entry(_value(pair))

    return str(header.get("cluster_id", "")), revision, legible(((_key(pair), pair) for pair in pairs), read)


def _mapping(value: object) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise ValueError(f"expected a mapping, got {shown(value)}: this is no etcd")
    return value


def _items(value: object) -> list[Any]:
    if value is not None and not isinstance(value, list):
        raise ValueError(f"expected a list, got {shown(value)}: this is no etcd")
    return value or []


def _number(value: object) -> int:
    """As the gateway writes numbers of 64 bits: in quotes."""
    if (isinstance(value, str) and _DIGITS(value)) or type(value) is int:
        return int(value)
    raise ValueError(f"expected a number, got {shown(value)}: this is no etcd")


def _key(pair: Mapping[str, Any]) -> str:
    return _plain(pair.get("key", "")).decode("utf-8", "backslashreplace")


def _plain(text: object) -> bytes:
    if not isinstance(text, str):
        raise ValueError(f"expected Base64, got {shown(text)}: this is no etcd")
    return b64decode(text, validate=True)


def _value(pair: Mapping[str, Any]) -> object:
    """
    What is written there, as an entry.

    @raise ConfigError: nobody can read it.
    """
    try:
        data = _plain(pair.get("value", "")).strip()
        if not data.startswith(b"{"):
            return data.decode("utf-8")
        value = mapping(data)
    except ValueError:
        raise ConfigError("expected host:port, a URL, or a JSON object with url") from None
    return {"url": value["Addr"]} if "url" not in value and "Addr" in value else value


def _coded(data: bytes) -> str:
    return b64encode(data).decode("ascii")


def _end(prefix: bytes) -> bytes:
    """The first key behind all that begin with a prefix."""
    head = prefix.rstrip(b"\xff")
    return head[:-1] + bytes((head[-1] + 1,)) if head else b"\0"


@implementer(IDiscoveryFactory)
class EtcdFactory:
    """Makes L{Etcd}."""

    name = "etcd"
    options = model.Etcd

    def build(self, options: model.Etcd, entry: Entry) -> Etcd:
        """L{IDiscoveryFactory}."""
        question, path = located(options)
        if bool(options.username) != (options.password is not None):
            raise ConfigError("a username and a password belong together")
        if options.password is not None and options.token is not None:
            raise ConfigError("who has a token needs no password", ("token",))
        name = "password" if options.token is None else "token"
        place = options.password or options.token
        try:
            return Etcd(question, path, options.prefix.encode("utf-8"), entry, options.username, place)
        except ConfigError as fault:
            raise under(fault, name) from None
