"""
How built-in modules read their C{actionParam}: strictly, and with all faults in one go.

Rules
- An unknown parameter is a fault that names the nearest known one; a missing one is a fault.
- Nothing is guessed: a number is no text, a text is no number.
- Field names and literal values are checked and encoded at load.  What a template gives at request time is foreign
  input: L{Template.header} lets no control character through (RFC 9110, 5.5).
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Any, Final

from protogate.config import scalar, units
from protogate.config.faults import ConfigFaults
from protogate.config.nearest import hint
from protogate.config.stamp import read
from protogate.errors import ConfigError
from protogate.expression.template import Template
from protogate.governance import redissettings
from protogate.governance.asking import Question
from protogate.governance.fields import Line
from protogate.governance.redissettings import RedisSettings
from protogate.governance.sources import Followed, Source

FRAMING: Final = frozenset((b"content-length", b"transfer-encoding"))
"""Fields that frame a message: nobody but the codec may write them (RFC 9112, 6)."""
CONNECTION: Final = frozenset((b"connection", b"keep-alive", b"proxy-connection", b"te", b"trailer", b"upgrade"))
"""Fields that are about one connection only (RFC 9110, 7.6.1): the codec decides what becomes of them."""

SECRET: Final = 64 * 1024
"""Bytes of a secret."""

_token = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+").fullmatch
_value = re.compile(r"(?:[\x21-\x7e](?:[\t\x20-\x7e]*[\x21-\x7e])?)?").fullmatch


def shown(value: object) -> str:
    """A value of the configuration, as messages show it."""
    return "a template" if isinstance(value, Template) else scalar.shown(value)


class Params:
    """
    One reading of C{actionParam}.

    Each method notes its faults and returns something harmless instead; L{done} raises them.

    @ivar faults: what is wrong.
    @ivar warnings: what works, but perhaps not as it was meant.
    """

    def __init__(self, params: Mapping[str, object], *known: str) -> None:
        """@param known: names that may occur; none = the names are the module's own business."""
        self._params = params
        self.faults: list[ConfigError] = []
        self.warnings: list[ConfigError] = []
        if known:
            for name in params:
                if name not in known:
                    self.fault(f"unknown parameter {shown(name)}; {hint(name, known)}", name)

    def __contains__(self, name: str) -> bool:
        return name in self._params

    def fault(self, message: str, *path: str | int) -> None:
        """Note one fault."""
        self.faults.append(ConfigError(message, path))

    def warn(self, message: str, *path: str | int) -> None:
        """Note one warning."""
        self.warnings.append(ConfigError(message, path))

    def done(self) -> None:
        """
        The reading is over.

        @raise ConfigError: the only fault.
        @raise ConfigFaults: all faults, when there are several.
        """
        if len(self.faults) == 1:
            raise self.faults[0]
        if self.faults:
            raise ConfigFaults(self.faults)

    def given(self, name: str) -> object:
        """What stands there, whatever it is; None where nothing does."""
        return self._params.get(name)

    def text(self, name: str, default: str | None = None) -> str | Template:
        """A text or a template; without default it must be there."""
        value = self._value(name, default, "a text")
        if isinstance(value, (str, Template)):
            return value
        if value is not None:
            self.fault(_no_text(value), name)
        return ""

    def literal(self, name: str, default: str | None = None) -> str:
        """A text that holds no C{${…}}."""
        value = self.text(name, default)
        if isinstance(value, Template):
            self.fault("expected a plain text: ${…} is not evaluated here", name)
            return ""
        return value

    def integer(self, name: str, default: int, low: int, high: int) -> int:
        """A whole number in [low, high]."""
        value = self._params.get(name, default)
        if type(value) is int and low <= value <= high:
            return value
        self.fault(f"expected a number from {low} to {high}, got {shown(value)}", name)
        return default

    def percent(self, name: str, default: float = 100.0) -> float:
        """A number in [0, 100]."""
        value = self._params.get(name, default)
        if isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value <= 100:
            return float(value)
        self.fault(f"expected percent, from 0 to 100, got {shown(value)}", name)
        return default

    def flag(self, name: str, default: bool = False) -> bool:
        """True or false."""
        value = self._params.get(name, default)
        if isinstance(value, bool):
            return value
        self.fault(f"expected true or false, got {shown(value)}", name)
        return default

    def seconds(self, name: str, default: float, low: float = 0.0, high: float = 86_400.0 * 366) -> float:
        """A duration, C{250ms 10s 5m 1h}, in [low, high] seconds."""
        value = self._params.get(name)
        if value is None and name not in self._params:
            return default
        return self._seconds(value, low, high, name)

    def size(self, name: str, default: int, low: int = 0, high: int = 1 << 62) -> int:
        """A size, C{512B 8KiB 1MB}, in [low, high] bytes."""
        value = self._params.get(name)
        if value is None and name not in self._params:
            return default
        try:
            number = int(units.size(value))
        except ValueError as error:
            self.fault(str(error), name)
            return default
        if low <= number <= high:
            return number
        self.fault(f"expected a size from {low} to {high} bytes, got {shown(value)}", name)
        return default

    def choice(self, name: str, default: str, *known: str) -> str:
        """One of the known words."""
        value = self._params.get(name, default)
        if isinstance(value, str) and value in known:
            return value
        self.fault(f"expected one of {', '.join(known)}, got {shown(value)}", name)
        return default

    def secret(self, name: str) -> bytes:
        """
        C{{file: path}} or C{{env: NAME}}: what stands there, without white space around it.  A secret never stands in
        the configuration itself, nor in a message; without it, or when it is empty, that is a fault.
        """
        given = self._params.get(name)
        kind, where = next(iter(given.items())) if isinstance(given, Mapping) and len(given) == 1 else ("", "")
        if kind not in ("file", "env") or not isinstance(where, str) or not where:
            missing = "is missing" if name not in self._params else "is not written here"
            self.fault(f"the secret {missing}: give {{file: path}} or {{env: NAME}}", name)
            return b""
        found = b""
        if kind == "env":
            found = os.environb.get(where.encode(), b"").strip()
            why = "this variable of the environment is not set, or empty"
        else:
            try:
                found, why = read(where, SECRET)[0].strip(), "this file is empty"
            except ValueError as error:
                why = str(error)
        if len(found) > SECRET:
            why, found = f"larger than {SECRET} bytes: no secret", b""
        if not found:
            self.fault(f"{where}: {why}", name, kind)
        return found

    def question(self, name: str) -> Question | None:
        """
        Whom to ask: a URL, or C{{upstream: name, path: /path}}, where the upstream is one of the configuration.

        @return: None when it is missing or wrong, which is a fault.
        """
        given = self._params.get(name)
        try:
            if isinstance(given, str):
                return Question.of_url(given)
            if isinstance(given, Mapping) and "upstream" in given and not given.keys() - {"upstream", "path"}:
                return Question.of_upstream(given["upstream"], given.get("path", "/"))
        except ConfigError as error:
            self.fault(error.message, name)
            return None
        if name in self._params:
            self.fault(f"expected a URL, or {{upstream: name, path: /path}}, got {shown(given)}", name)
        else:
            self.fault(f"{name} is missing", name)
        return None

    def source(self, name: str) -> Source | None:
        """
        Content that is refreshed, see L{source_at}.

        @return: None when it is missing, or wrong, which is a fault.
        """
        return self.source_at(self._params[name], name) if name in self._params else None

    def source_at(self, given: object, *path: str | int) -> Source | None:
        """
        C{{file: path}}, or C{{url: URL, interval: 5m}}, where instead of a URL may stand
        C{{upstream: name, path: /path}}.

        @param path: of what is given.
        @return: None when it is wrong, which is a fault.
        """
        if not isinstance(given, Mapping) or ("file" in given) == ("url" in given):
            self.fault(f"expected {{file: path}} or {{url: …, interval: 5m}}, got {shown(given)}", *path)
            return None
        inner = Params(given, *(("file",) if "file" in given else ("url", "interval")))
        source: Source | None = None
        if "file" in given:
            source = Source(file=inner.literal("file"))
        else:
            url, interval = inner.question("url"), inner.seconds("interval", 300.0, 1.0)
            source = None if url is None else Source(url=url, interval=interval)
        self.faults += [ConfigError(fault.message, (*path, *fault.path)) for fault in inner.faults]
        return None if inner.faults else source

    def load(self, followed: Followed[Any], *path: str | int) -> None:
        """Read what is to be followed, if it is a file.  @param path: of the parameter that says where it is."""
        try:
            followed.load()
        except ConfigError as error:
            self.fault(error.message, *path)

    def trusted(self, source: Source, *path: str | int) -> None:
        """Warn of content that decides who may come in, if others could write it.  @param path: as for L{load}."""
        if source.url is not None and source.url.clear:
            self.warn("it comes without TLS: whoever is on the way can put something else in its place", *path, "url")

    def entries(self, name: str) -> list[tuple[tuple[str | int, ...], Any]]:
        """The path and value of each item of a list; a mapping in its place is its only item."""
        value = self._params.get(name)
        if isinstance(value, Mapping):
            return [((name,), value)]
        return [((name, index), item) for index, item in enumerate(self.items(name))]

    def redis(self, name: str) -> RedisSettings | None:
        """
        Where a Redis is: C{{url: "redis://host:port/0", timeout: 50ms}}, with C{{username}}, C{{password}} and C{{ca}}.

        @return: None when it is missing, or wrong, which is a fault.
        """
        given = self._params.get(name)
        if name not in self._params:
            return None
        if not isinstance(given, Mapping):
            self.fault(f"expected {{url: redis://host:port/0}}, got {shown(given)}", name)
            return None
        inner = Params(given, "url", "username", "password", "timeout", "ca")
        settings = redissettings.read(inner)
        self.faults += [ConfigError(fault.message, (name, *fault.path)) for fault in inner.faults]
        return None if inner.faults else settings

    def words(self, name: str) -> list[str]:
        """A text or a list of them, none empty; an empty list when it is not there."""
        given = self._params.get(name)
        if given is None and name not in self._params:
            return []
        words = given if isinstance(given, (list, tuple)) else [given]
        for word in words:
            if not isinstance(word, str) or not word:
                self.fault(f"expected a text, or a list of them, got {shown(word)}", name)
                return []
        if not words:
            self.fault("expected a text, or a list of them: this one is empty", name)
        return list(words)

    def items(self, name: str) -> list[Any]:
        """A list; empty when it is not there."""
        value = self._params.get(name, [])
        if isinstance(value, (list, tuple)):
            return list(value)
        self.fault(f"expected a list, got {shown(value)}", name)
        return []

    def _seconds(self, value: object, low: float, high: float, *path: str | int) -> float:
        try:
            number = float(units.duration(value))
        except ValueError as error:
            self.fault(str(error), *path)
            return low
        if low <= number <= high:
            return number
        self.fault(f"expected a duration from {low:g}s to {high:g}s, got {shown(value)}", *path)
        return low

    def lines(self, name: str | None = None) -> list[Line]:
        """
        Fields to write: a mapping of names to values.  A value is a text, a template, or a list of them: a line each.

        @param name: the parameter that holds the mapping; None = the parameters are the fields.
        """
        path: tuple[str, ...] = () if name is None else (name,)
        fields = self._params if name is None else self._params.get(name, {})
        if not isinstance(fields, Mapping):
            self.fault(f"expected a mapping of field names and values, got {shown(fields)}", *path)
            return []
        lines: list[Line] = []
        for field, value in fields.items():
            key = self.field(field, *path, field)
            if key in FRAMING:
                self.fault(f"{field} belongs to the codec, which frames each message itself", *path, field)
            elif key in CONNECTION:
                self.warn(
                    f"{field} is about one connection: the codec honours it where it can, or drops it", *path, field
                )
            many = isinstance(value, (list, tuple))
            for index, one in enumerate(value if many else (value,)):
                lines.append((key, *self._field_value(one, *path, field, *((index,) if many else ()))))
        return lines

    def field(self, text: object, *path: str | int) -> bytes:
        """A field name, in lower case."""
        if isinstance(text, str) and _token(text):
            return text.lower().encode("ascii")
        self.fault(f"{shown(text)} is no field name", *path)
        return b""

    def _field_value(self, value: object, *path: str | int) -> tuple[bytes, Template | None]:
        if isinstance(value, Template):
            return b"", value
        if not isinstance(value, str):
            self.fault(_no_text(value), *path)
        elif not _value(value):
            self.fault(f"{shown(value)} is no field value: visible ASCII, spaces and tabs between, nothing else", *path)
        else:
            return value.encode("ascii"), None
        return b"", None

    def _value(self, name: str, default: object, kind: str) -> object:
        value = self._params.get(name, default)
        if value is None:
            self.fault(f"expected {kind}, got nothing" if name in self._params else f"{name} is missing", name)
        return value


def _no_text(value: object) -> str:
    advice = "; put it in quotes" if isinstance(value, (int, float)) else ""
    return f"expected a text, got {shown(value)}{advice}"
