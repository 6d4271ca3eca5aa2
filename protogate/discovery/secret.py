"""
A secret that a source of endpoints shows: a password, a token.

Rules
- It is read when the configuration is loaded, so that a missing one is a fault, and again when it is refused: it may
  have been changed since.
- It stands in no message.
"""

from __future__ import annotations

import os
from typing import Final

from protogate.config import model
from protogate.config.stamp import read
from protogate.errors import ConfigError

SIZE: Final = 64 * 1024
"""Bytes of one."""


def secret(place: model.Secret) -> bytes:
    """
    What stands there, without white space around it; a file is read here and now.

    @raise ConfigError: nothing does.
    """
    if bool(place.file) == bool(place.env):
        raise ConfigError("a secret is not written here: give {file: path} or {env: NAME}")
    if place.env:
        found = os.environb.get(place.env.encode(), b"").strip()
        where, why = place.env, "this variable of the environment is not set, or empty"
    else:
        where, why = place.file, "this file is empty"
        try:
            found = read(place.file, SIZE)[0].strip()
        except ValueError as error:
            raise ConfigError(f"{where}: {error}", ("file",)) from None
    if not found:
        raise ConfigError(f"{where}: {why}", ("env" if place.env else "file",))
    if not found.isascii() or not found.decode("ascii").isprintable():
        raise ConfigError(f"{where}: expected one line of ASCII", ("env" if place.env else "file",))
    return found
