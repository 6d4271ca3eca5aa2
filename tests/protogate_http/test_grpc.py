"""The words of gRPC: content types, timeouts, statuses, messages."""

from __future__ import annotations

from urllib.parse import unquote_to_bytes

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protogate.errors import CLIENT, GATEWAY, UPSTREAM, Abort, Phase, overdue, timeout
from protogate.message import Headers, Request, Response
from protogate_http import grpc


@pytest.mark.parametrize(
    ("value", "web", "text", "suffix"),
    [
        (b"application/grpc", False, False, b""),
        (b"application/grpc+proto", False, False, b"+proto"),
        (b"application/grpc+json; charset=utf-8", False, False, b"+json"),
        (b"Application/GRPC ;x=y", False, False, b""),
        (b"application/grpc-web", True, False, b""),
        (b"application/grpc-web+proto", True, False, b"+proto"),
        (b"application/grpc-web-text", True, True, b""),
        (b"application/GRPC-Web-Text+thrift", True, True, b"+thrift"),
    ],
)
def test_content_types_of_grpc_are_known(value: bytes, web: bool, text: bool, suffix: bytes) -> None:
    kind = grpc.kind_of(Headers([(b"a", b"b"), (b"content-type", value)]))
    assert kind is not None
    assert (kind.web, kind.text, kind.suffix) == (web, text, suffix)
    assert kind.type() == value.split(b";")[0].strip().lower()


@pytest.mark.parametrize(
    "value",
    [
        b"",
        b"application/json",
        b"application/grpc-text",
        b"application/grpc-webs",
        b"application/grpcx",
        b"application/grpc proto",
        b"application/grpc-web-texts",
        b"text/application/grpc",
    ],
)
def test_other_content_types_are_not(value: bytes) -> None:
    assert grpc.kind_of(Headers([(b"content-type", value)])) is None
    assert grpc.kind_of(Headers()) is None


@pytest.mark.parametrize(
    ("target", "service"),
    [
        (b"/shop.v1.Orders/Place", "shop.v1.Orders"),
        (b"/Greeter/SayHello", "Greeter"),
        (b"/", ""),
        (b"/Greeter", ""),
        (b"/Greeter/", ""),
        (b"//SayHello", ""),
        (b"/a/b/c", ""),
        (b"/Gre%65ter/SayHello", ""),
        (b"/Greeter/SayHello?a=b", ""),
        (b"*", ""),
    ],
)
def test_the_service_stands_in_the_path(target: bytes, service: str) -> None:
    assert grpc.service_of(target) == service


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        (b"1H", 3600.0),
        (b"2M", 120.0),
        (b"30S", 30.0),
        (b"1500m", 1.5),
        (b"250u", 0.00025),
        (b"99999999n", 0.099999999),
        (b"0n", 0.0),
        (b"00000001S", 1.0),
    ],
)
def test_a_timeout_is_a_number_and_a_unit(value: bytes, seconds: float) -> None:
    assert grpc.seconds_of(value) == pytest.approx(seconds, rel=1e-12)


@pytest.mark.parametrize(
    "value",
    [b"", b"S", b"1", b"1s", b"123456789m", b"-1S", b"+1S", b"1.5S", b" 1S", b"1S ", b"1_0S", b"\xb9S", b"1S\n"],
)
def test_what_else_is_none(value: bytes) -> None:
    assert grpc.seconds_of(value) is None


@pytest.mark.parametrize(
    ("seconds", "value"),
    [
        (1.5, b"1500000u"),
        (0.0123456789, b"12345u"),
        (0.0000001, b"1000u"),
        (0.0, b"1000u"),
        (-5.0, b"1000u"),
        (99.999999, b"99999999u"),
        (100.0, b"100000m"),
        (99_999.999, b"99999999m"),
        (100_000.0, b"100000S"),
        (99_999_999.0, b"99999999S"),
        (100_000_000.0, b"1666666M"),
        (6e9 + 1, b"1666666H"),
        (1e15, b"99999999H"),
    ],
)
def test_a_timeout_is_written_as_exactly_as_eight_digits_allow(seconds: float, value: bytes) -> None:
    assert grpc.timeout_of(seconds) == value


@given(st.floats(min_value=-10, max_value=1e9))
def test_a_timeout_that_is_written_can_be_read_and_is_never_longer(seconds: float) -> None:
    found = grpc.seconds_of(grpc.timeout_of(seconds))
    assert found is not None
    assert found <= max(seconds, 0.001) * (1 + 1e-12)
    assert found >= seconds * 0.999 - 60  # a unit at most, and no unit is a thousandth of what eight digits cannot say


@pytest.mark.parametrize(
    ("deadline", "headers", "told"),
    [
        (1002.5, [(b"content-type", b"application/grpc")], [b"2500000u"]),
        (1002.5, [(b"content-type", b"application/grpc"), (b"grpc-timeout", b"9H")], [b"2500000u"]),
        (900.0, [(b"content-type", b"application/grpc+proto")], [b"1000u"]),
        (1002.5, [(b"content-type", b"text/plain")], []),
        (None, [(b"content-type", b"application/grpc"), (b"grpc-timeout", b"later")], [b"later"]),
    ],
)
def test_an_upstream_is_told_what_is_left(
    deadline: float | None, headers: list[tuple[bytes, bytes]], told: list[bytes]
) -> None:
    request = Request(b"POST", b"/s/m", headers)
    request.deadline = deadline
    grpc.tell_deadline(request, 1000.0)
    assert request.headers.all(b"grpc-timeout") == told


def _answer(status: int, reason: Abort | None = None) -> Response:
    response = Response(status)
    response.reason = reason
    return response


@pytest.mark.parametrize(
    ("response", "malformed", "status"),
    [
        (_answer(503, timeout(Phase.QUEUE, GATEWAY, 5)), False, 14),
        (_answer(502, Abort("refused", UPSTREAM, 502)), False, 14),
        (_answer(504, timeout(Phase.RESPONSE_HEAD, UPSTREAM, 5)), False, 4),
        (_answer(504, overdue(UPSTREAM)), False, 4),
        (_answer(500, Abort("late", GATEWAY, 500, phase=Phase.TOTAL)), False, 4),
        (_answer(500, Abort("oops", GATEWAY, 500)), False, 13),
        (_answer(404, Abort("no rule matches", CLIENT, 404)), False, 12),
        (_answer(413, Abort("large", CLIENT, 413)), False, 8),
        (_answer(408, timeout(Phase.CLIENT_STALL, CLIENT, 5)), False, 4),
        (_answer(400, Abort("bad", CLIENT, 400)), True, 13),
        (_answer(431, Abort("large", CLIENT, 431)), True, 8),
        (_answer(400), False, 3),
        (_answer(401), False, 16),
        (_answer(403), False, 7),
        (_answer(429), False, 8),
        (_answer(501), False, 12),
        (_answer(507), False, 13),
        (_answer(418), False, 2),
        (_answer(302), False, 2),
        (_answer(200), False, 2),
    ],
)
def test_answers_of_the_gateway_have_a_status(response: Response, malformed: bool, status: int) -> None:
    assert grpc.status_of(response, malformed) == status


def test_every_status_is_one_of_grpc() -> None:
    assert {
        grpc.status_of(Response(status), malformed) for status in range(200, 600) for malformed in (True, False)
    } <= set(range(1, 17))


@pytest.mark.parametrize(
    ("status", "fields", "expected"),
    [
        (404, [], 5),
        (409, [(b"sotp-status", b"6")], 6),
        (500, [(b"sotp-status", b"15")], 15),
        (413, [(b"sotp-status", b"17")], 8),
        (500, [(b"sotp-status", b"0")], 13),
        (500, [(b"sotp-status", b"?")], 13),
        (503, [], 14),
    ],
)
def test_answers_of_other_protocols_have_the_status_that_they_had(
    status: int, fields: list[tuple[bytes, bytes]], expected: int
) -> None:
    assert grpc.status_of(Response(status, fields, None, "SOTP/1"), False) == expected


@pytest.mark.parametrize(
    ("response", "message"),
    [
        (_answer(502), b"Bad Gateway"),
        (_answer(599), b"status 599"),
        (_answer(200), b"the answer is not one of gRPC"),
        (_answer(502, Abort("10.0.0.1 refused", UPSTREAM, 502)), b"Bad Gateway"),
        (_answer(500, Abort("late", GATEWAY, 500, title="Async-Timeout-Processing")), b"Async-Timeout-Processing"),
        (_answer(400, Abort("secret", CLIENT, 400, detail="100% wrong", title="t")), b"100%25 wrong"),
    ],
)
def test_a_message_tells_what_a_stranger_may_read(response: Response, message: bytes) -> None:
    assert grpc.message_of(response) == message


@given(st.text())
def test_a_message_is_printable_and_can_be_read_back(text: str) -> None:
    message = grpc.escaped(text)
    assert all(0x20 <= byte <= 0x7E for byte in message)
    assert unquote_to_bytes(message) == text.encode("utf-8", "replace")


def test_printable_text_stands_for_itself() -> None:
    text = "".join(map(chr, range(0x20, 0x7F))).replace("%", "")
    assert grpc.escaped(text) == text.encode()
    assert grpc.escaped("%\n\x7fé\ud800") == b"%25%0A%7F%C3%A9?"


@pytest.mark.parametrize(
    ("value", "number"), [(b"0", 0), (b"14", 14), (b"99", 99), (None, None), (b"", None), (b"-1", None), (b"1 ", None)]
)
def test_a_status_is_a_number(value: bytes | None, number: int | None) -> None:
    assert grpc.number_of(value) == number
