"""
C{accessList}: who may come in, by address, by a tag of the address, or by any text: a user, an app, a service.

C{deny} wins; when C{allow} is there, everybody else is denied.  The address is C{exchange.source.ip}: what a trusted
proxy says counts as C{gateway.trustedProxies} has it.

Rules
- Entries stand in the configuration, or come from files and URLs that stay up to date.  As long as one of these is not
  there yet, nobody comes in, unless C{failOpen} says so.
- A look-up is one bisection, or one hash, for each list, whether it has ten entries or 100,000.
- Somebody without an address (a UNIX socket) is in no network, and has no tag.
- Of a text with commas each part counts, for several lines of a header are one such text: who has one that is denied
  is denied, and who has one that is not allowed is not allowed.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Final

from mypy_extensions import mypyc_attr
from zope.interface import classImplements, implementer

from protogate.errors import CLIENT, GATEWAY, Abort, ConfigError
from protogate.expression import cidr
from protogate.expression.template import Template
from protogate.governance.means import Means
from protogate.governance.networks import Network, Networks, Tags, network
from protogate.governance.params import Params, shown
from protogate.governance.sources import Followed
from protogate.governance.stages import PRE_REQUEST, PRE_UPSTREAM
from protogate.identity import strictjson
from protogate.interfaces import ILiveModule, IModuleFactory

if TYPE_CHECKING:
    from protogate.exchange.exchange import Exchange

REPORTED: Final = 20
"""Bad entries of one list that are reported one by one."""

Keys = Sequence[Any]
"""What an exchange is looked up by; empty when it has nothing of the kind."""


class Listed:
    """
    One list: what stands in the configuration, and what comes from elsewhere.

    @ivar followed: the latter.
    """

    __slots__ = ("_fixed", "followed")

    def __init__(self, fixed: Container[Any], followed: Sequence[Followed[Any]]) -> None:
        self._fixed, self.followed = fixed, followed

    def shortest(self) -> Container[Any]:
        """What answers soonest whether something is on it."""
        return self if self.followed else self._fixed

    def __contains__(self, key: object) -> bool:
        if key in self._fixed:
            return True
        for each in self.followed:  # noqa: SIM110 - a generator costs as much as the look-up
            if each.value is not None and key in each.value:
                return True
        return False


class AccessList:
    """
    @param keys: by what an exchange is looked up; None = its address.
    @param said: what it was looked up by, for people.
    @param allow: who may come in; None = everybody.
    @param deny: who may not, even so.
    @param tags: the table that C{keys} looks into, if it does.
    @param status: to answer.
    @param opens: what is not there yet lets everybody in.
    """

    admits: ClassVar[bool] = True

    def __init__(
        self,
        keys: Callable[[Exchange], Keys] | None,
        said: Callable[[Exchange], str],
        allow: Listed | None,
        deny: Listed,
        tags: Followed[Tags] | None,
        status: int,
        opens: bool,
        warnings: list[ConfigError],
    ) -> None:
        self._keys, self._said = keys, said
        # Where nothing comes from elsewhere, one set is asked, without a way round.
        self._allow = None if allow is None else allow.shortest()
        self._denied = deny.shortest().__contains__
        self._status, self._opens, self.warnings = status, opens, warnings
        lists = {"deny": deny} if allow is None else {"allow": allow, "deny": deny}
        self._followed: list[Followed[Any]] = [each for one in lists.values() for each in one.followed]
        if tags is not None:
            self._followed.append(tags)
        self.asks = asks(lists, tags)
        self._waiting = any(each.value is None for each in self._followed)

    def start(self, means: Means, before: object) -> None:
        """See L{ILiveModule.start}."""
        old: dict[object, Followed[Any]] = {}
        if isinstance(before, AccessList):
            old = {each.about: each for each in before._followed}
        for each in self._followed:
            each.start(means, old.get(each.about))

    def stop(self) -> None:
        """See L{ILiveModule.stop}."""
        for each in self._followed:
            each.stop()

    def process(self, exchange: Exchange) -> None:
        """Let it pass, or raise the Abort that denies it."""
        if self._waiting and self._incomplete():
            return
        find, allow, denied = self._keys, self._allow, self._denied
        if find is None:
            address = cidr.number(exchange.source.ip)
            keys: Keys = () if address is None else (address,)
        else:
            keys = find(exchange)
        for key in keys:
            if denied(key):
                raise self._refusal(exchange, "is on the deny list")
            if allow is not None and key not in allow:
                raise self._refusal(exchange, "is not on the allow list")
        if allow is not None and not keys:
            raise self._refusal(exchange, "is in no network" if self._said is _client else "is on no list")

    def _incomplete(self) -> bool:
        """Whether to let everybody in, as long as something is not there yet."""
        missing = next((each for each in self._followed if each.value is None), None)
        if missing is None:
            self._waiting = False
            return False
        if self._opens:
            return True
        raise Abort(f"accessList: {missing.source} could not be read yet", GATEWAY, 503, detail="try again later")

    def _refusal(self, exchange: Exchange, why: str) -> Abort:
        reason = f"accessList: {self._said(exchange)} {why}"
        return Abort(reason, CLIENT, self._status, error="http_request_denied", detail="access denied")


def asks(lists: Mapping[str, Listed], tags: Followed[Tags] | None) -> dict[str, tuple[str]]:
    """Who has entries, and which parameter says so."""
    named = [(name, each.source.url) for name, one in lists.items() for each in one.followed]
    if tags is not None:
        named.append(("tags", tags.source.url))
    return {url.service: (name,) for name, url in named if url is not None}


classImplements(AccessList, ILiveModule)


@implementer(IModuleFactory)
class AccessListFactory:
    """Makes L{AccessList}."""

    name = "accessList"
    stages = (PRE_REQUEST, PRE_UPSTREAM)
    guards = True

    def build(self, params: Mapping[str, object]) -> AccessList:
        """See L{IModuleFactory.build}."""
        reader = Params(params, "allow", "deny", "by", "tags", "status", "failOpen")
        status = reader.integer("status", 403, 400, 599)
        opens = reader.flag("failOpen")
        by = reader.text("by", "") if "by" in reader else None
        tags = _tags(reader)
        if by is not None and not isinstance(by, Template):
            reader.fault("expected a template such as \"${request.headers['x-app']}\"", "by")
        if by is not None and tags is not None:
            reader.fault("either by or tags: tags are of addresses", "by")
        kind: type[Networks] | type[_Texts] = Networks if by is None and "tags" not in reader else _Texts
        deny, allow = _list(reader, "deny", kind), _list(reader, "allow", kind)
        if deny is None and allow is None and not reader.faults:
            reader.fault("expected allow, deny, or both: lists of networks")
        if "allow" in reader and not reader.faults and params["allow"] == []:
            reader.warn("the list is empty: everybody is denied", "allow")
        reader.done()
        keys, said = _lookup(by, tags)
        nobody = Listed((), ())
        return AccessList(keys, said, allow, deny or nobody, tags, status, opens, reader.warnings)


@mypyc_attr(native_class=False)
class _Texts(frozenset[str]):
    """A set of texts."""

    __slots__ = ()


def _lookup(
    by: Any, tags: Followed[Tags] | None
) -> tuple[Callable[[Exchange], Keys] | None, Callable[[Exchange], str]]:
    if isinstance(by, Template):
        return lambda exchange: _parts(by(exchange)), lambda exchange: f"{by.text} = {shown(by(exchange))}"
    if tags is not None:
        return partial(_tag, tags), partial(_tagged, tags)
    return None, _client


def _client(exchange: Exchange) -> str:
    return exchange.source.ip or "a client without an address"


def _tag(tags: Followed[Tags], exchange: Exchange) -> Keys:
    address, table = cidr.number(exchange.source.ip), tags.value
    tag = "" if address is None or table is None else table.find(address)
    return (tag,) if tag else ()


def _tagged(tags: Followed[Tags], exchange: Exchange) -> str:
    return f"{_client(exchange)} ({', '.join(_tag(tags, exchange)) or 'no tag'})"


def _parts(text: str) -> Keys:
    if "," not in text:
        return (text,) if text else ()
    parts = [part for each in text.split(",") if (part := each.strip(" \t"))]
    if text[0] == "[":  # perhaps the list of a claim, one of whose texts has a comma
        try:
            listed = strictjson.value(text.encode("utf-8", "surrogatepass"))
        except ValueError:
            return parts
        if isinstance(listed, list):
            parts += [each for each in listed if isinstance(each, str) and each]
    return parts


# -- what stands in the configuration, and in files


def _list(reader: Params, name: str, kind: type[Networks] | type[_Texts]) -> Listed | None:
    """None when there is no such list."""
    if name not in reader:
        return None
    parse: Callable[[bytes], Any] = _networks if kind is Networks else _texts
    followed: list[Followed[Any]] = []
    fixed: list[Any] = []
    bad = 0
    for path, item in reader.entries(name):
        if isinstance(item, Mapping):
            source = reader.source_at(item, *path)
            if source is not None:
                each = Followed(source, parse)
                reader.load(each, *path)
                reader.trusted(source, *path)
                followed.append(each)
            continue
        entry = _entry(item, kind)
        if entry is not None:
            fixed.append(entry)
            continue
        bad += 1
        if bad <= REPORTED:
            reader.fault(_why(item, kind), *path)
    if bad > REPORTED:
        what = "network" if kind is Networks else "text"
        reader.fault(f"and {bad - REPORTED} more that are no {what}", name)
    entries: Any = kind(fixed)
    return Listed(entries, followed)


def _entry(item: object, kind: type[Networks] | type[_Texts]) -> Network | str | None:
    if not isinstance(item, str) or not item:
        return None
    return network(item) if kind is Networks else item


def _why(item: object, kind: type[Networks] | type[_Texts]) -> str:
    if kind is not Networks:
        return f"expected a text, got {shown(item)}{'; put it in quotes' if isinstance(item, (int, float)) else ''}"
    if isinstance(item, str):
        try:
            cidr.compile(item)
        except ConfigError as error:
            return error.message
    return f"{shown(item)} is no network; write e.g. 10.0.0.0/8 or 2001:db8::/32"


def _tags(reader: Params) -> Followed[Tags] | None:
    source = reader.source("tags")
    if source is None:
        return None
    followed = Followed(source, _table)
    reader.load(followed, "tags")
    reader.trusted(source, "tags")
    return followed


def _lines(data: bytes) -> Iterable[tuple[int, str]]:
    """Number and text of each line that says something: what follows a # does not."""
    for number, line in enumerate(data.decode("utf-8").split("\n"), 1):
        text = line.partition("#")[0].strip(" \t\r")
        if text:
            yield number, text


def _networks(data: bytes) -> Networks:
    return Networks([_network(number, text) for number, text in _lines(data)])


def _texts(data: bytes) -> _Texts:
    return _Texts(text for _, text in _lines(data))


def _table(data: bytes) -> Tags:
    tagged: dict[Network, str] = {}
    for line, text in _lines(data):
        where, _, tag = text.replace("\t", " ").partition(" ")
        tag = tag.strip(" ")
        if not tag or " " in tag:
            raise ConfigError(f"line {line}: expected a network and a tag, got {shown(text)}")
        found = _network(line, where)
        if tagged.setdefault(found, tag) != tag:
            raise ConfigError(f"line {line}: {where} has two tags, {tagged[found]} and {tag}")
    return Tags(tagged.items())


def _network(line: int, text: str) -> Network:
    found = network(text)
    if found is None:
        raise ConfigError(f"line {line}: {_why(text, Networks)}")
    return found
