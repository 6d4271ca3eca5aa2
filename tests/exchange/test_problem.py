"""What a client reads of a failure."""

from __future__ import annotations

import json

import pytest

from protogate.body import Whole
from protogate.errors import CLIENT, Abort
from protogate.exchange.problem import answer


@pytest.mark.parametrize(
    ("status", "title"),
    [
        (404, "Not Found"),
        (413, "Content Too Large"),
        (414, "URI Too Long"),
        (416, "Range Not Satisfiable"),
        (422, "Unprocessable Content"),
    ],
)
def test_titles_are_those_of_rfc_9110(status: int, title: str) -> None:
    body = answer(Abort("a secret", CLIENT, status), "edge", "77").body
    assert isinstance(body, Whole)
    assert json.loads(body._data) == {"type": "about:blank", "title": title, "status": status, "requestId": "77"}
