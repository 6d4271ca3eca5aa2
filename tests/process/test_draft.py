from __future__ import annotations

import json

import pytest

from protogate.config.faults import ConfigFaults
from protogate.process.draft import draft, draft_quietly


def written(folder, **more):
    targets = [{"upstream": "orders"}, {"url": "http://192.0.2.1:8080/v1"}]
    configuration = {
        "listeners": [{"name": "web", "address": "127.0.0.1:0"}],
        "upstreams": [
            {"name": "orders", "endpoints": [{"url": "http://192.0.2.7"}]},
            {"name": "spare", "endpoints": [{"url": "http://192.0.2.8"}]},
        ],
        "routes": [{"type": "uri", "value": "/", "matcherType": "exact", "routes": [{"targets": targets}]}],
    }
    path = folder / "gateway.json"
    path.write_text(json.dumps(configuration | more))
    return str(path)


@pytest.mark.parametrize("read", [draft, draft_quietly])
def test_a_draft_knows_whom_requests_are_sent_to_by_name_and_by_origin(tmp_path, read):
    made = read(written(tmp_path))
    assert set(made.upstreams) == {"orders", "spare", "http://192.0.2.1:8080"}
    assert made.config.listeners[0].name == "web"
    assert b'"orders"' in made.source[0]


@pytest.mark.parametrize("read", [draft, draft_quietly])
def test_a_file_with_faults_gives_none(tmp_path, read):
    with pytest.raises(ConfigFaults, match="listeners"):
        read(written(tmp_path, listeners=[{"name": "web", "address": "nowhere"}]))
