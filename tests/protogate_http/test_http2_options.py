"""What HTTP/2 is told, and what its connections make of that."""

from __future__ import annotations

import pytest

from protogate.config.model import Bytes
from protogate.context import Limits
from protogate.errors import ConfigError
from protogate_http import http2
from protogate_http.engine2 import ENGINES
from protogate_http.http2 import Http2
from protogate_http.options2 import Options
from protogate_http.shape2 import LEAST, MOST


def test_an_engine_that_is_not_installed_is_a_fault_of_the_configuration(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http2, "ENGINES", ("h2",))
    with pytest.raises(ConfigError, match=r"install protogate\[ngh2\]") as found:
        Http2().configure(Options(engine="ngh2"))
    assert found.value.path == ("engine",)


@pytest.mark.parametrize("engine", ENGINES)
def test_what_it_is_told_is_another_codec_and_leaves_the_first_as_it_was(engine: str) -> None:
    first = Http2()
    second = first.configure(Options(engine=engine, streams=7))
    assert second is not first
    assert (first._told.streams, second._told.streams) == (128, 7)
    assert (first._engine, second._engine) == (ENGINES[0], engine)


@pytest.mark.parametrize(
    ("options", "total"),
    [
        (Options(), 128 * 65535),
        (Options(streams=1, window=Bytes(16384)), LEAST),
        (Options(streams=10_000, window=Bytes(1 << 24)), MOST),
        (Options(connection_window=Bytes(1 << 20)), 1 << 20),
        (Options(window=Bytes(1 << 21), connection_window=Bytes(1 << 20)), 1 << 21),
    ],
)
def test_a_connection_has_a_window_for_each_stream_unless_told_otherwise(options: Options, total: int) -> None:
    """Within what the RFC allows, and never less than one stream's."""
    shape = options.shape(False, Limits())
    assert (shape.total, shape.window) == (total, options.window)


def test_a_head_may_have_what_the_limits_say_of_http_1() -> None:
    limits = Limits(headers=1000, request_line=100, header_count=10, response_headers=500)
    assert Options().shape(False, limits).fields == 1000 + 100 + 10 * 32
    assert Options().shape(True, limits).fields == 500 + 10 * 32
    assert Options().shape(False, limits).count == 10
