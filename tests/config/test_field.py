"""Names of fields that a configuration chooses."""

from __future__ import annotations

import pytest

from protogate.config.field import field_name
from protogate.errors import ConfigError


def test_a_name_is_lower_case_bytes_and_nothing_stays_nothing() -> None:
    assert field_name("X-Request-Timeout-Ms") == b"x-request-timeout-ms"
    assert field_name("") == b""


@pytest.mark.parametrize("text", ["a b", "a:", "é", "a\n", "(x)"])
def test_what_is_no_token_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="is no field name"):
        field_name(text)


@pytest.mark.parametrize("text", ["Host", "connection", "Content-Length", "X-Forwarded-For", "via", "cookie"])
def test_a_field_that_means_something_else_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="has a meaning of its own"):
        field_name(text)
