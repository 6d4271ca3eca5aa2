"""
The JSON Schema (2020-12) of the configuration file, for editors.

It is made from the model: types from the classes, descriptions from the docstrings under their fields.  What ships as
C{schema.json} is the output of C{python -m protogate.config.schema}; a test holds that it is up to date.  Of codecs it
has the options of those that come with it (L{IConfigurableCodec}); those of others are any.
"""

from __future__ import annotations

import ast
import json
import sys
from collections.abc import Callable, Iterator
from functools import cache
from inspect import cleandoc, getsource
from typing import Any, Final

from msgspec import NODEFAULT, inspect

from protogate.config import model
from protogate.config.units import CROWD, written
from protogate.interfaces import IConfigurableCodec, IDescribedCodec, IStreamCodec
from protogate.plugins import find, names

Schema = dict[str, Any]

DURATION: Final = r"^(0|[0-9]{1,12}(\.[0-9]{1,9})?(ms|s|m|h|d))$"
SIZE: Final = r"^(0|[0-9]{1,19}([KMG]i?B|B))$"

_CHOICES: Final[dict[str, Schema]] = {
    "Target": {"oneOf": [{"required": ["upstream"]}, {"required": ["url"]}]},
    "Upstream": {"anyOf": [{"required": ["endpoints"]}, {"required": ["discovery"]}]},
    "Discovery": {"oneOf": [{"required": [name]} for name in ("dns", "file", "etcd", "consul", "plugin")]},
    "Secret": {"oneOf": [{"required": ["file"]}, {"required": ["env"]}]},
    "Etcd": {"oneOf": [{"required": ["upstream"]}, {"required": ["url"]}]},
    "Consul": {"oneOf": [{"required": ["upstream"]}, {"required": ["url"]}]},
}
"""What the types cannot say."""


def schema() -> Schema:
    """The schema, as plain values."""
    return _Generator().whole()


def text() -> str:
    """The schema, as the file holds it."""
    return json.dumps(schema(), indent=2, ensure_ascii=False) + "\n"


def described(kind: type[model.Model]) -> dict[str, Schema]:
    """The keys of one class: type, description and default of each."""
    keys: dict[str, Schema] = _Generator().struct(inspect.type_info(kind))["properties"]
    return keys


def configurable() -> Iterator[tuple[str, type[model.Model]]]:
    """The codecs of this distribution that have options, and these."""
    for name in names(IStreamCodec):
        codec: Any = find(IStreamCodec, name)
        ours = IDescribedCodec.providedBy(codec) and codec.distribution == "protogate"
        if ours and IConfigurableCodec.providedBy(codec):
            yield name, codec.options


class _Generator:
    def __init__(self) -> None:
        self._definitions: dict[str, Schema] = {}
        self._makers: dict[type, Callable[[Any], Schema]] = {
            inspect.AnyType: lambda kind: {},
            inspect.BoolType: lambda kind: {"type": "boolean"},
            inspect.CustomType: _unit,
            inspect.DictType: lambda kind: {"type": "object", "additionalProperties": self._schema(kind.value_type)},
            inspect.FloatType: lambda kind: _bounds("number", minimum=kind.ge, maximum=kind.le),
            inspect.IntType: lambda kind: _bounds("integer", minimum=kind.ge, maximum=kind.le),
            inspect.LiteralType: lambda kind: {"enum": list(kind.values)},
            inspect.Metadata: lambda kind: self._schema(kind.type),
            inspect.NoneType: lambda kind: {"type": "null"},
            inspect.StrType: lambda kind: _bounds("string", minLength=kind.min_length),
            inspect.StructType: self._reference,
            inspect.UnionType: lambda kind: {"anyOf": [self._schema(one) for one in kind.types]},
            inspect.VarTupleType: lambda kind: {
                **_bounds("array", minItems=kind.min_length),
                "items": self._schema(kind.item_type),
            },
        }

    def whole(self) -> Schema:
        """The root and its definitions."""
        root = self._schema(inspect.type_info(model.Config))
        self._definitions["Config"]["properties"]["codecs"]["properties"] = {
            name: self._schema(inspect.type_info(kind)) for name, kind in configurable()
        }
        return {
            "$schema": "https://json-schema.org/draft/2020-12/schema",
            "title": "protogate",
            **root,
            "$defs": dict(sorted(self._definitions.items())),
        }

    def _schema(self, kind: inspect.Type) -> Schema:
        return self._makers[type(kind)](kind)

    def _reference(self, kind: inspect.StructType) -> Schema:
        cls = kind.cls
        name = (
            cls.__name__
            if issubclass(cls, model.Model) and cls.__module__.startswith("protogate.config.")
            else f"{cls.__module__}.{cls.__name__}"
        )
        self._definitions[name] = self.struct(kind)
        return {"$ref": f"#/$defs/{name}"}

    def struct(self, kind: Any) -> Schema:
        """An object, by what msgspec says of its class."""
        name, texts = kind.cls.__name__, _descriptions(kind.cls.__module__)
        definition: Schema = {"description": cleandoc(kind.cls.__doc__ or ""), "type": "object", "properties": {}}
        for field in kind.fields:
            made = self._schema(field.type)
            made = {"description": texts.get((name, field.name), ""), **made}
            if isinstance(field.default, model.Seconds | model.Bytes):
                made["default"] = written(field.default)
            elif field.default not in (NODEFAULT, None):
                made["default"] = list(field.default) if isinstance(field.default, tuple) else field.default
            definition["properties"][field.encode_name] = made
        required = [field.encode_name for field in kind.fields if field.required]
        return {
            **definition,
            **({"required": required} if required else {}),
            "additionalProperties": False,
            **_CHOICES.get(name, {}),
        }


def _bounds(kind: str, **bounds: float | None) -> Schema:
    return {"type": kind, **{name: value for name, value in bounds.items() if value is not None}}


def _unit(kind: inspect.CustomType) -> Schema:
    if kind.cls is model.Workers:
        return {"anyOf": [{"const": "auto"}, _bounds("integer", minimum=0, maximum=CROWD)]}
    pattern, example = (DURATION, "10s") if kind.cls is model.Seconds else (SIZE, "8KiB")
    return {"anyOf": [{"type": "string", "pattern": pattern, "examples": [example]}, {"const": 0}]}


@cache
def _descriptions(module: str) -> dict[tuple[str, str], str]:
    """The docstring under each field of a module's classes, by class and field."""
    found: dict[tuple[str, str], str] = {}
    for node in ast.parse(getsource(sys.modules[module])).body:
        if not isinstance(node, ast.ClassDef):
            continue
        for field, below in zip(node.body, node.body[1:], strict=False):
            if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name) and isinstance(below, ast.Expr):
                found[node.name, field.target.id] = cleandoc(ast.literal_eval(below.value))
    return found


if __name__ == "__main__":
    sys.stdout.write(text())
