"""
What the types of a configuration file are made of: durations, sizes, ratios, texts that are checked, and the base of
every object.
"""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct


class Seconds(float):
    """A duration: C{250ms 10s 5m 1h}, or 0."""

    __slots__ = ()


class Bytes(int):
    """A size: C{512B 8KiB 1MB 2GiB}, or 0."""

    __slots__ = ()


class Workers(int):
    """How many processes do the work: C{0} to C{256}, or C{auto}, which is -1 here."""

    __slots__ = ()


Weight = Annotated[int, Meta(ge=0, le=1000)]
Percent = Annotated[float, Meta(ge=0, le=100)]
Count = Annotated[int, Meta(ge=1)]
Ratio = Annotated[float, Meta(ge=0, le=1)]
Properties = dict[str, str]
ListenAddress = Annotated[str, Meta(extra={"check": "listen"})]
Network = Annotated[str, Meta(extra={"check": "network"})]
HostPattern = Annotated[str, Meta(extra={"check": "host"})]
Url = Annotated[str, Meta(extra={"check": "url"})]
Resolvable = Annotated[str, Meta(extra={"check": "name"})]
FieldName = Annotated[str, Meta(extra={"check": "field"})]
RequestPath = Annotated[str, Meta(extra={"check": "path"})]
Statuses = Annotated[str, Meta(extra={"check": "statuses"})]


def within(least: float, most: float, off: bool = False) -> Meta:
    """
    Bounds of a duration or a size: C{Annotated[Seconds, within(1, 3600)]}.

    @param off: whether it may be 0 as well.
    """
    return Meta(extra={"within": (least, most, off)})


class Model(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="camel", gc=False):
    """
    Base of every object of the file.

    Nothing in a file can refer to itself, so the garbage collector need not look at it: a large configuration does not
    make its full collections longer.
    """
