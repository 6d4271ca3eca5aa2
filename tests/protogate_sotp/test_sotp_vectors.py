"""The vectors, the page and the code say the same."""

from __future__ import annotations

import itertools
import re

import pytest
from sotp_ends import VECTORS, End
from twisted.internet.defer import Deferred

from pages import DOCS, codes, table, tables
from protogate.body import Whole
from protogate.context import Limits, uncounted
from protogate.message import Request, Response
from protogate.testing.bodies import Giver, Taker
from protogate_sotp.faults import CODES, FAULTS
from protogate_sotp.fields import Bad
from protogate_sotp.frames import LEAST, NAMES, Hello
from protogate_sotp.heads import (
    TYPES,
    read_request,
    read_response,
    read_trailers,
    write_request,
    write_response,
    write_trailers,
)
from protogate_sotp.options import Options
from protogate_sotp.status import STATUSES, TABLE, grpc_of, http_of
from protogate_sotp.streams import FOLLOWING, NEXT, STATES

ALL = 3
"""A peer that reads every compression."""


def pairs(fields):
    return [[name.decode("latin-1"), value.decode("latin-1")] for name, value in fields]


def fields(pairs):
    return [(name.encode("latin-1"), value.encode("latin-1")) for name, value in pairs]


def named(group):
    return pytest.mark.parametrize("each", VECTORS[group], ids=lambda each: each["name"])


@named("requests")
def test_a_request_is_read_and_written_as_its_vector_says(each):
    data = bytes.fromhex(each["hex"])
    made = read_request(data, Limits())
    assert made.bad is None
    assert {
        "service": made.service,
        "method": made.method.decode(),
        "target": made.target.decode(),
        "authority": made.authority.decode(),
        "scheme": made.scheme.decode(),
        "upgrade": made.upgrade.decode() if made.upgrade else None,
        "length": made.length,
        "deadline": made.deadline,
        "fields": pairs(made.fields),
    } == {key: value for key, value in each.items() if key not in ("name", "hex")}
    body = None if made.length is None else Whole(b"x" * made.length)
    request = Request(made.method, made.target, made.fields, body, made.authority, made.scheme, made.upgrade)
    assert write_request(request, ALL, uncounted, made.deadline) == data


@named("bad requests")
def test_a_bad_request_is_refused_as_its_vector_says(each):
    made = read_request(bytes.fromhex(each["hex"]), Limits())
    assert made.bad is not None
    assert (made.bad.status, made.bad.text) == (each["http"], each["text"])
    assert STATUSES[TABLE[made.bad.status]][0] == each["status"]


@named("responses")
def test_a_response_is_read_and_written_as_its_vector_says(each):
    data = bytes.fromhex(each["hex"])
    made = read_response(data)
    assert (made.status, made.length, pairs(made.fields)) == (each["http"], each["length"], each["fields"])
    assert write_response(Response(made.status, made.fields), made.length, ALL, uncounted) == data


@named("bad responses")
def test_a_bad_response_is_refused_as_its_vector_says(each):
    with pytest.raises(Bad) as caught:
        read_response(bytes.fromhex(each["hex"]))
    assert caught.value.text == each["text"]


@named("trailers")
def test_trailers_are_read_and_written_as_their_vector_says(each):
    data = bytes.fromhex(each["hex"])
    assert pairs(read_trailers(data)) == each["fields"]
    assert write_trailers(fields(each["fields"]), uncounted) == (data if each["fields"] else b"")


# -- the page


def rows(*headings):
    return table("sotp.md", *headings)


def test_the_page_names_the_frames():
    assert [(int(row[0]), row[1]) for row in rows("Type", "Name")] == list(enumerate(NAMES))


def test_the_page_has_the_least_values_of_hello_and_what_protogate_says():
    least = {row[2]: int(row[3]) for row in rows("At", "Size", "Field", "Least") if row[3]}
    assert least == {key: getattr(LEAST, key) for key in least}
    assert len(least) == 7
    limits = {codes(row[0])[0]: row[1] for row in rows("What", "How much") if codes(row[0])}
    assert int(limits["streams"]) == Hello().streams
    assert int(limits["window"].partition(";")[0]) == Hello().window
    assert int(limits["data"]) == Hello().data


def test_the_page_has_every_code():
    assert {int(row[0]): row[1] for row in rows("Code", "Name")} == CODES


def test_the_page_has_every_fault():
    found = {}
    for what, scope, code, text in rows("Fault", "Scope"):
        found[codes(what)[-1]] = (scope == "connection", code, text)
    assert found == {name: (whole, CODES[code], text) for name, (whole, code, text) in FAULTS.items()}


def test_the_page_has_every_status():
    assert {int(row[0]): (row[1], int(row[2]), int(row[3])) for row in rows("Status", "Name")} == STATUSES


def test_statuses_of_http_become_what_the_page_says():
    numbers = {name: number for number, (name, _, _) in STATUSES.items()}
    left = set(range(100, 600))
    others = {}
    for what, name in rows("HTTP", "Status"):
        for part in what.split(", "):
            if part.startswith("other ") or part.endswith("xx"):
                others[part[-3]] = numbers[name]
            else:
                assert TABLE[int(part)] == numbers[name]
                left.remove(int(part))
    assert {status: TABLE[status] for status in left} == {status: others[str(status)[0]] for status in left}


def test_a_status_is_the_same_when_it_comes_back():
    for status in [*STATUSES, 21, 999, 65535]:
        made = read_response(status.to_bytes(2, "big") + bytes(8))
        assert made.status == http_of(status)
        again = write_response(Response(made.status, made.fields), None, 0, uncounted)
        assert again == status.to_bytes(2, "big") + bytes(8)
    assert (http_of(999), grpc_of(999), grpc_of(17)) == (500, 2, 8)


def test_the_page_has_every_serialization():
    found = {int(row[0]): codes(row[1])[0].encode() for row in rows("Number", "Same as") if row[0] != "other"}
    assert found == TYPES


def test_the_states_of_the_page_are_those_of_the_code():
    moves = {(state, NAMES[kind]) for state, following in NEXT.items() for kind in following}
    said = {(STATES.index(row[0]), row[1]) for row in rows("State", "May come") if row[1] != "nothing"}
    assert said == moves
    for state, following in NEXT.items():
        for kind, then in following.items():
            assert then in FOLLOWING[state], NAMES[kind]


def test_the_examples_of_the_page_are_frames():
    text = (DOCS / "sotp.md").read_text()
    known = {each["hex"] for each in VECTORS["frames"]}
    shown = [re.sub(r"\s", "", block) for block in re.findall(r"```text\n(d550[0-9a-f \n]*)```", text)]
    assert len(shown) == 3
    assert [block for block in shown if block not in known] == ["d5500103010000050000000168656c6c6f"]


def test_the_conversation_of_the_page_is_one():
    text = (DOCS / "sotp.md").read_text()
    (block,) = re.findall(r"```text\n(C  .*?)```", text, re.DOTALL)
    said = {"C": b"", "S": b""}
    for line in block.splitlines():
        said[line[0]] += bytes.fromhex(re.sub(r"\s", "", line[1:]))
    end = End(options=Options(heartbeat=0), limits=Limits())
    held = Deferred()

    def answer(request):
        if request.service == "orders":
            return Response(204)
        taker = Taker(request.body)
        assert (taker.data, taker.finished) == (b"hello", True)
        return held

    end.app.answer = answer
    end.feed(said["C"])
    one, two = end.app.requests
    assert (one.target, one.headers, one.body.length) == (
        b"/1001/order.create",
        [(b"content-type", b"text/plain; charset=utf-8")],
        5,
    )
    assert (two.target, two.headers, two.deadline) == (b"/orders/list", [], end.clock.seconds() + 1.5)
    held.callback(Response(200, [(b"a", b"1"), (b"content-type", b"application/json")], Giver([b"{}"], 2).body))
    assert end.wire.take().hex() == said["S"].hex()
    end.close()


def test_every_table_of_the_page_that_gives_places_adds_up():
    """At + Size is where the next field is."""
    for _, found in tables(DOCS / "sotp.md"):
        if found[0][:2] == ["At", "Size"]:
            places = [(int(row[0]), int(row[1])) for row in found[1:] if row[0].isdigit() and row[1].isdigit()]
            for (at, size), (then, _) in itertools.pairwise(places):
                assert at + size == then, found
