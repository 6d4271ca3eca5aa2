"""curl, through the gateway, to Node."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gateways import WITHIN, Gateway, config, eventually, heads, start
from neighbours import Neighbours, need, run

MIB = 1024 * 1024


def curl(*arguments: str, data: bytes | None = None) -> bytes:
    """What curl wrote; it must be content."""
    done = run([need("curl"), "-sS", "--max-time", f"{WITHIN:g}", *arguments], data=data, timeout=WITHIN + 5)
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout


def seen(answer: bytes) -> dict[str, Any]:
    """What /echo saw of the request."""
    found: dict[str, Any] = json.loads(heads(answer)[-1][1]["x-seen"])
    found["fields"] = {
        name.lower(): value for name, value in zip(found["fields"][::2], found["fields"][1::2], strict=True)
    }
    return found


def body(answer: bytes) -> bytes:
    """What follows the heads of C{curl -i} output."""
    for _ in heads(answer):
        answer = answer.partition(b"\r\n\r\n")[2]
    return answer


def test_get(edge: Gateway) -> None:
    answer = curl("-i", f"{edge.url}/hello?a=%20b")
    (first, fields), *_ = heads(answer)
    assert first == "HTTP/1.1 200 OK"
    assert fields["content-length"] == "6"
    assert body(answer) == b"hello\n"


def test_post_keeps_target_fields_and_body(edge: Gateway) -> None:
    answer = curl("-i", "-H", "X-Mine: 1", "--data-binary", "a=1&b=2", f"{edge.url}/echo?x=%2F/./")
    found = seen(answer)
    assert (found["method"], found["target"]) == ("POST", "/echo?x=%2F/./")
    assert found["fields"]["x-mine"] == "1"
    assert found["fields"]["content-length"] == "7"
    assert found["fields"]["host"] == f"127.0.0.1:{edge.port}"
    assert found["fields"]["x-forwarded-for"] == "127.0.0.1"
    assert found["fields"]["via"].startswith("1.1 ")
    assert body(answer) == b"a=1&b=2"


def test_an_upload_of_unknown_length_goes_chunked_and_comes_back_whole(edge: Gateway) -> None:
    upload = bytes(range(256)) * 8192
    answer = curl("-i", "-T", "-", "-H", "Expect:", f"{edge.url}/echo", data=upload)
    found = seen(answer)
    assert found["method"] == "PUT"
    assert found["fields"]["transfer-encoding"] == "chunked"
    assert body(answer) == upload


def test_expect_100_continue_with_a_mebibyte(edge: Gateway) -> None:
    upload = b"u" * MIB
    # Without the 100 curl would wait longer than it may take.
    waits = ("--expect100-timeout", f"{WITHIN * 2:g}", "-H", "Expect: 100-continue")
    answer = curl("-i", *waits, "--data-binary", "@-", f"{edge.url}/echo", data=upload)
    assert [first.split()[1] for first, _ in heads(answer)] == ["100", "200"]
    assert body(answer) == upload


def test_head_has_the_fields_and_no_body(edge: Gateway) -> None:
    answer = curl("-I", f"{edge.url}/bytes/1234", f"{edge.url}/hello")
    assert [fields["content-length"] for _, fields in heads(answer)] == ["1234", "6"]


def test_http_1_0(edge: Gateway) -> None:
    # A body of unknown length for a client that knows no chunks: it ends with the connection.
    answer = curl("-i", "--http1.0", f"{edge.url}/chunks/20")
    (first, fields), *_ = heads(answer)
    assert first.startswith("HTTP/1.1 200")
    assert "transfer-encoding" not in fields
    assert fields["connection"] == "close"
    assert body(answer) == b"".join(b"chunk %d\n" % index for index in range(20))


def test_several_urls_share_a_connection(edge: Gateway) -> None:
    urls = [f"{edge.url}/{path}" for path in ("hello", "chunks/3", "empty", "bytes/70000", "hello")]
    outputs = [part for _ in urls for part in ("-o", "/dev/null")]
    told = curl("-w", "%{http_code} %{num_connects}\n", *outputs, *urls).decode().splitlines()
    assert told == ["200 1", "200 0", "204 0", "200 0", "200 0"]


def test_connection_close_is_honoured(edge: Gateway) -> None:
    url = f"{edge.url}/hello"
    answer = curl("-i", "-H", "Connection: close", url, url)
    assert [fields["connection"] for _, fields in heads(answer)] == ["close"]  # the next head follows the body
    told = curl("-H", "Connection: close", "-o", "/dev/null", "-o", "/dev/null", "-w", "%{num_connects}\n", url, url)
    assert told.split() == [b"1", b"1"]


def test_trailers_pass(edge: Gateway) -> None:
    answer = curl("-i", "--raw", f"{edge.url}/trailers")
    (_, fields), *_ = heads(answer)
    assert fields["transfer-encoding"] == "chunked"
    assert "content-length" not in fields
    assert body(answer).endswith(b"0\r\nx-sum: 42\r\n\r\n")


def test_an_early_refusal_of_a_large_upload_arrives(edge: Gateway, tmp_path: Path) -> None:
    upload = tmp_path / "upload"
    upload.write_bytes(b"r" * 3_000_000)
    answer = curl("-i", "-H", "Expect:", "--data-binary", f"@{upload}", f"{edge.url}/refuse")
    assert heads(answer)[0][0].startswith("HTTP/1.1 413 ")
    assert body(answer) == b"too much\n"


@pytest.fixture(scope="module")
def narrow(company: Neighbours, node: int) -> Iterator[Gateway]:
    """A gateway that takes a mebibyte and no more."""
    gateway = start(company, config(node, gateway={"limits": {"body": "1MiB"}}, accessLog={"file": "access.log"}))
    yield gateway
    gateway.healthy()


@pytest.mark.parametrize("how", ["known", "unknown", "asked"])
def test_a_body_over_the_limit_is_refused_and_the_answer_arrives(narrow: Gateway, tmp_path: Path, how: str) -> None:
    upload = tmp_path / "upload"
    upload.write_bytes(b"r" * 3_000_000)
    ways = {
        "known": ["-H", "Expect:", "--data-binary", f"@{upload}"],
        "unknown": ["-H", "Expect:", "-H", "Transfer-Encoding: chunked", "--data-binary", f"@{upload}"],
        "asked": [
            "-H",
            "Expect: 100-continue",
            "--expect100-timeout",
            f"{WITHIN * 2:g}",
            "--data-binary",
            f"@{upload}",
        ],
    }
    answer = curl("-i", *ways[how], f"{narrow.url}/wait/{how}")
    assert [first.split()[1] for first, _ in heads(answer)] == ["413"]  # and no 100 before it
    assert json.loads(body(answer))["status"] == 413
    (record,) = eventually(lambda: [it for it in narrow.records() if it["target"] == f"/wait/{how}"], "its record")
    assert (record["status"], record["who"]) == (413, "client")
    assert curl("--data-binary", "@-", f"{narrow.url}/echo", data=b"f" * MIB) == b"f" * MIB  # exactly the limit


def test_early_hints_pass(edge: Gateway) -> None:
    answer = curl("-i", f"{edge.url}/hints")
    assert [first.split()[1] for first, _ in heads(answer)] == ["103", "200"]
    assert answer.count(b"rel=preload") == 2
    assert body(answer) == b"hinted"


def test_a_path_without_an_upstream_answer_is_a_problem_document(edge: Gateway) -> None:
    answer = curl("-i", "--path-as-is", f"{edge.url}/../../etc/passwd")
    (first, fields), *_ = heads(answer)
    assert first.startswith("HTTP/1.1 400 ")
    assert fields["content-type"] == "application/problem+json"
    assert json.loads(body(answer))["status"] == 400


@pytest.mark.parametrize("path", ["hello", "empty", "chunks/3"])
def test_each_request_has_one_record(edge: Gateway, path: str) -> None:
    target = f"/{path}?who={path[0]}{id(edge)}"
    curl("-o", "/dev/null", edge.url + target)

    def mine() -> list[dict[str, Any]]:
        return [record for record in edge.records() if record["target"] == target]

    assert len(eventually(mine, "a record")) == 1
