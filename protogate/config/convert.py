"""
Plain values → the model, with every fault.

Rules
- Each entry of a list is tried in one piece by msgspec, which is quick and says little; only what it refuses is walked
  through field by field, for the messages.  So no single step holds the interpreter for long.
- Where the model names a check for a string (C{Meta(extra={"check": …})}), or bounds (L{within}), it is made here.
- A mapping with an unknown key that is nearly the missing one has one fault, not two.
- A key that is known further in, or at the top of the file, is not misspelt but in the wrong place.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache, partial
from typing import Any, Final, TypeVar

import msgspec
from msgspec import inspect

from protogate.config import address, units
from protogate.config.faults import AtKey, ConfigFaults
from protogate.config.field import field_name
from protogate.config.health import request_path, statuses
from protogate.config.model import Bytes, Config, Model, Module, Seconds, Workers
from protogate.config.nearest import hint, nearest
from protogate.config.scalar import shown
from protogate.errors import ConfigError

Path = tuple[str | int, ...]
Faults = list[ConfigError]
Converter = Callable[[Any, Path, Faults], Any]
"""C{converter(value, path, faults)}: the converted value; or FAILED, and at least one more fault."""

FAILED: Final = object()
T = TypeVar("T", bound=Model)

_BOOLEANS: Final = {
    **dict.fromkeys(("yes", "y", "on", "true"), "true"),
    **dict.fromkeys(("no", "n", "off", "false"), "false"),
}

CHECKS: Final[dict[str, Callable[[str], object]]] = {
    "listen": address.listen,
    "name": address.name_to_resolve,
    "network": address.network,
    "host": address.host_pattern,
    "url": address.url,
    "field": field_name,
    "path": request_path,
    "statuses": statuses,
}


def convert(value: Any) -> tuple[Config | None, Faults]:
    """The configuration, or None and what is wrong."""
    faults: Faults = []
    config = _CONFIG(value, (), faults)
    return (None if config is FAILED else config), faults


def options(kind: type[T], value: object) -> T:
    """
    An object whose class the model does not know, since only who is told it does: the options of a codec.

    @raise ConfigFaults: all that is wrong; paths begin within it.
    """
    faults: Faults = []
    made = _options(kind)(value, (), faults)
    if faults:
        raise ConfigFaults(faults)
    return made  # type: ignore[no-any-return]


@lru_cache(maxsize=64)
def _options(kind: type[Model]) -> Converter:
    return _converter(inspect.type_info(kind))


def _hook(kind: type, value: Any) -> Any:
    if kind is Seconds:
        return units.duration(value)
    if kind is Bytes:
        return units.size(value)
    if kind is Workers:
        return units.workers(value)
    raise NotImplementedError(kind)


def _converter(kind: inspect.Type) -> Converter:
    """Made once, at import."""
    return _MAKERS[type(kind)](kind)


def _any(kind: inspect.AnyType) -> Converter:
    return lambda value, path, faults: value


def _metadata(kind: inspect.Metadata) -> Converter:
    inner = _converter(kind.type)
    check = _check(kind.extra)

    def convert(value: Any, path: Path, faults: Faults) -> Any:
        value = inner(value, path, faults)
        if check is not None and value is not FAILED:
            try:
                check(value)
            except ConfigError as error:
                faults.append(ConfigError(error.message, path))
                return FAILED
        return value

    return convert


def _leaf(expected: str, fits: Callable[[Any], bool], advice: Callable[[Any], str] = lambda value: "") -> Converter:
    def convert(value: Any, path: Path, faults: Faults) -> Any:
        if fits(value):
            return value
        faults.append(ConfigError(f"expected {expected}, got {shown(value)}{advice(value)}", path))
        return FAILED

    return convert


def _string(kind: inspect.StrType) -> Converter:
    least = kind.min_length or 0

    def advice(value: Any) -> str:
        return "; put it in quotes" if isinstance(value, bool | int | float) else ""

    return _leaf(
        "a string that is not empty" if least else "a string",
        lambda value: type(value) is str and len(value) >= least,
        advice,
    )


def _bool(kind: inspect.BoolType) -> Converter:
    def advice(value: Any) -> str:
        meant = _BOOLEANS.get(value.lower()) if isinstance(value, str) else None
        return f"; write {meant}" if meant else ""

    return _leaf("true or false", lambda value: type(value) is bool, advice)


def _number(kind: inspect.IntType | inspect.FloatType) -> Converter:
    least, most = kind.ge, kind.le
    whole = isinstance(kind, inspect.IntType)
    allowed = (int,) if whole else (int, float)
    if least is not None and most is not None:
        span = f" from {least:g} to {most:g}"
    else:
        span = "" if least is None else f" of at least {least:g}"

    def convert(value: Any, path: Path, faults: Faults) -> Any:
        if type(value) in allowed and (least is None or value >= least) and (most is None or value <= most):
            return value if whole else float(value)
        word = "a whole number" if whole and type(value) is float else "a number"
        text = value if isinstance(value, str) else ""
        advice = "; remove the quotes" if units.is_number(text) else ""
        if text.endswith("%") and units.is_number(text[:-1]) and most == 100:
            advice = f"; write {text[:-1]}"
        faults.append(ConfigError(f"expected {word}{span}, got {shown(value)}{advice}", path))
        return FAILED

    return convert


def _literal(kind: inspect.LiteralType) -> Converter:
    values = [value for value in kind.values if value != ""]
    names = [str(value) for value in values]
    only = len(values) == 1
    expected = f"{names[0]}, the only choice in this release" if only else f"one of {', '.join(names)}"

    def advice(value: Any) -> str:
        if not isinstance(value, str) and str(value) in names:
            return "; put it in quotes"
        # Of numbers, such as versions, the nearest one is no guess at what was meant.
        close = nearest(value, names) if isinstance(value, str) and not only and not units.is_number(value) else ""
        return f"; did you mean {close}?" if close else ""

    return _leaf(
        expected,
        lambda value: any(type(value) is type(known) and value == known for known in kind.values),
        advice,
    )


def _custom(kind: inspect.CustomType) -> Converter:
    def convert(value: Any, path: Path, faults: Faults) -> Any:
        try:
            return _hook(kind.cls, value)
        except ConfigError as error:
            faults.append(ConfigError(error.message, path))
            return FAILED

    return convert


def _optional(kind: inspect.UnionType) -> Converter:
    (inner,) = [_converter(one) for one in kind.types if not isinstance(one, inspect.NoneType)]
    return lambda value, path, faults: None if value is None else inner(value, path, faults)


def _list(kind: inspect.VarTupleType) -> Converter:
    inner = _converter(kind.item_type)
    least = kind.min_length or 0
    entries = isinstance(kind.item_type, inspect.StructType)

    def convert(value: Any, path: Path, faults: Faults) -> Any:
        if type(value) is not list:
            advice = ""
            if value is None and not least:
                advice = "; remove the key, or write []"
            elif isinstance(value, dict) and entries:
                advice = '; each entry begins with "- "'
            elif isinstance(value, str):
                advice = f"; a list of one is written [{shown(value)}]"
            faults.append(ConfigError(f"expected a list, got {shown(value)}{advice}", path))
            return FAILED
        if len(value) < least:
            faults.append(ConfigError("expected a list of at least one entry, got an empty list", path))
            return FAILED
        items = tuple([inner(item, (*path, index), faults) for index, item in enumerate(value)])
        return FAILED if any(item is FAILED for item in items) else items

    return convert


def _dict(kind: inspect.DictType) -> Converter:
    inner = _converter(kind.value_type)

    def convert(value: Any, path: Path, faults: Faults) -> Any:
        if type(value) is not dict:
            faults.append(ConfigError(f"expected a mapping, got {shown(value)}", path))
            return FAILED
        items = {key: inner(item, (*path, key), faults) for key, item in value.items()}
        return FAILED if any(item is FAILED for item in items.values()) else items

    return convert


def _struct(kind: inspect.StructType) -> Converter:
    cls = kind.cls
    fields = {field.encode_name: field for field in kind.fields}
    inner = {field.encode_name: _converter(field.type) for field in kind.fields}
    required = [field.encode_name for field in kind.fields if field.required]
    whole = cls is Config
    check = _checker(kind)

    def convert(value: Any, path: Path, faults: Faults) -> Any:
        if not whole:
            try:
                quick = msgspec.convert(value, cls, dec_hook=_hook)
                if check is not None:
                    check(quick)
            except (msgspec.ValidationError, ConfigError):
                pass
            else:
                return quick
        return walk(value, path, faults)

    def walk(value: Any, path: Path, faults: Faults) -> Any:
        if type(value) is not dict:
            keys = ", ".join(required or list(fields)[:5])
            advice = ""
            if not required and path:
                advice = "; remove the key, or write {}" if value is None else ""
                advice = "; for all of it with its defaults write {}" if value is True else advice
            elif len(required) == 1 and type(value) is str:
                advice = f"; write {{{keys}: {shown(value)}}}"
            faults.append(ConfigError(f"expected a mapping with keys such as {keys}, got {shown(value)}{advice}", path))
            return FAILED
        before = len(faults)
        values = {}
        meant = set()
        for key, item in value.items():
            if key in fields:
                values[fields[key].name] = inner[key](item, (*path, key), faults)
            else:
                place = _elsewhere(key, kind, path)
                if not place:
                    meant.add(nearest(key, [name for name in fields if name not in value]))
                    place = hint(key, fields)
                    if cls is Module and not nearest(key, fields):
                        place += "; what the module is told stands in actionParam"
                faults.append(AtKey(f"unknown key; {place}", (*path, key)))
        faults.extend(
            ConfigError(f'the key "{name}" is missing', path)
            for name in required
            if name not in value and name not in meant
        )
        return cls(**values) if len(faults) == before else FAILED

    return convert


def _below(kind: inspect.StructType) -> dict[str, list[str]]:
    """
    Keys of the objects that one of this kind may hold, and of what these hold, each with its nearest places:
    C{timeouts.connect}.  What lies deeper is no guess at what was meant.
    """
    found: dict[str, list[str]] = {}
    level = [("", kind)]
    for _ in range(2):
        here: dict[str, list[str]] = {}
        deeper = []
        for prefix, each in level:
            for field in each.fields:
                inner, many = _object(field.type)
                if inner is not None:
                    place = f"{prefix}{field.encode_name}{many}."
                    deeper.append((place, inner))
                    for key in inner.fields:
                        here.setdefault(key.encode_name, []).append(place + key.encode_name)
        found = {**here, **found}
        level = deeper
    return found


def _object(kind: inspect.Type) -> tuple[inspect.StructType | None, str]:
    """The object that a value is, or has many of (then with C{[]}); None = neither."""
    many = ""
    while not isinstance(kind, inspect.StructType):
        if isinstance(kind, inspect.UnionType):
            kind = next(one for one in kind.types if not isinstance(one, inspect.NoneType))
        elif isinstance(kind, inspect.VarTupleType):
            kind, many = kind.item_type, "[]"
        else:
            return None, ""
    return kind, many


def _elsewhere(key: str, kind: inspect.StructType, path: Path) -> str:
    """Where a key belongs that is in the wrong place, for a message; C{""} when nobody knows."""
    places = _below(kind).get(key)
    if places:
        return f"it belongs further in: {' or '.join(places)}"
    if path and key in {field.encode_name for field in msgspec.structs.fields(Config)}:
        return "it belongs at the top of the file, in no other key"
    return ""


_Checker = Callable[[Any], object]


def _check(extra: Mapping[str, Any] | None) -> _Checker | None:
    """What the model wants to be looked at, if anything."""
    if not extra:
        return None
    return CHECKS[extra["check"]] if "check" in extra else partial(_within, *extra["within"])


def _within(least: float, most: float, off: bool, value: Seconds | Bytes) -> None:
    """Whether a duration or a size keeps to its bounds."""
    if not least <= value <= most and (value or not off):
        kind = type(value)
        zero = "0, or " if off else ""
        bounds = f"{zero}{units.written(kind(least))} to {units.written(kind(most))}"
        raise ConfigError(f"expected {bounds}, got {units.written(value)}")


def _checker(kind: inspect.Type) -> _Checker | None:
    """What makes the checks of strings on a value that msgspec converted, or None when there are none."""
    if isinstance(kind, inspect.Metadata):
        return _check(kind.extra)
    if isinstance(kind, inspect.UnionType):
        inner = next(filter(None, map(_checker, kind.types)), None)
        return None if inner is None else lambda value: None if value is None else inner(value)
    if isinstance(kind, inspect.VarTupleType):
        each = _checker(kind.item_type)
        return None if each is None else lambda value: [each(item) for item in value]
    if isinstance(kind, inspect.StructType):
        checks = [(field.name, check) for field in kind.fields if (check := _checker(field.type)) is not None]

        def run(value: Any) -> None:
            for name, check in checks:
                check(getattr(value, name))

        return run if checks else None
    return None


_MAKERS: Final[dict[type, Callable[[Any], Converter]]] = {
    inspect.AnyType: _any,
    inspect.Metadata: _metadata,
    inspect.StrType: _string,
    inspect.BoolType: _bool,
    inspect.IntType: _number,
    inspect.FloatType: _number,
    inspect.LiteralType: _literal,
    inspect.CustomType: _custom,
    inspect.UnionType: _optional,
    inspect.VarTupleType: _list,
    inspect.DictType: _dict,
    inspect.StructType: _struct,
}

_CONFIG: Final = _converter(inspect.type_info(Config))
