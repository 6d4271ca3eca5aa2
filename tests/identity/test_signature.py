"""Signatures of requests."""

from __future__ import annotations

from base64 import b64decode

import pytest

from protogate.identity.secrets import parse, shared
from protogate.identity.signature import Refused, Signature, value_of
from protogate.testing.exchange import exchange
from signing import SECRET, USUAL, signed

SHARED = shared("", SECRET, {})
RFC = {
    "method": b"POST",
    "target": b"/foo?param=Value&Pet=dog",
    "authority": b"example.com",
    "headers": [
        (b"date", b"Tue, 20 Apr 2021 02:07:55 GMT"),
        (b"content-type", b"application/json"),
        (
            b"content-digest",
            b"sha-512=:WZDPaVn/7XgHaAy8pmojAkGWoRx2UFChF41A2svX+TaPm+AbwAgBWnrIiYllu7BNNyealdVLvRwEmTHWXvJwew==:",
        ),
    ],
}
"""RFC 9421, B.2: the test request."""


def test_the_vector_of_the_rfc():
    """RFC 9421, B.2.5: hmac-sha256."""
    secret = b64decode("uzvJfB4u3N0Jy4T7NZ75MDVcr8zSTInedJtkgcu46YW4XByzNJjxBdtjUkdJPBtbmHhIDi6pcl8jsasjlTMtDQ==")
    made = exchange(**RFC)
    made.request.headers += [
        (
            b"signature-input",
            b'sig-b25=("date" "@authority" "content-type");created=1618884473;keyid="test-shared-secret"',
        ),
        (b"signature", b"sig-b25=:pxcQw6G3AjtMBQjwo8XzkZf/bws5LelbaMk5rGIGtE8=:"),
    ]
    found = Signature(made, "")
    assert (found.key, found.created) == ("test-shared-secret", 1618884473)
    assert found.base(made) == (
        b'"date": Tue, 20 Apr 2021 02:07:55 GMT\n'
        b'"@authority": example.com\n'
        b'"content-type": application/json\n'
        b'"@signature-params": ("date" "@authority" "content-type");created=1618884473;keyid="test-shared-secret"'
    )
    assert found.verifies(made, shared("", secret, {}))
    assert not found.verifies(made, shared("", secret[:-1], {}))
    made.request.headers.set(b"content-type", b"text/plain")
    assert not found.verifies(made, shared("", secret, {}))


def test_the_vector_of_the_rfc_with_a_public_key():
    """RFC 9421, B.2.6: ed25519."""
    (key,) = parse(b"test-key-ed25519 rfc ed25519:JrQLj5P/89iXES9+vFgrIy29clF9CC/oPPsw3c5D0bs=").values()
    made = exchange(**RFC, body=b'{"hello": "world"}')
    covered = '("date" "@method" "@path" "@authority" "content-type" "content-length")'
    value = b"wqcAqbmYJ2ji2glfAMaRy4gruYYnx2nEFN2HN6jrnDnQCK1u02Gb04v9EDgwUPiu4A0w6vuQv5lIp5WPpBKRCw=="
    made.request.headers += [
        (b"signature-input", f'sig-b26={covered};created=1618884473;keyid="test-key-ed25519"'.encode()),
        (b"signature", b"sig-b26=:" + value + b":"),
    ]
    found = Signature(made, "")
    assert found.verifies(made, key)
    made.request.headers.set(b"content-type", b"text/plain")
    assert not found.verifies(made, key)
    found.algorithm = "hmac-sha256"
    with pytest.raises(Refused, match="algorithm is not the one of its key"):
        found.verifies(made, key)
    found.algorithm = "ed25519"
    with pytest.raises(Refused, match="algorithm is not the one of its key"):
        found.verifies(made, SHARED)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("@method", b"POST"),
        ("@target-uri", b"https://WWW.Example.com:443/a%20b/?x=1"),
        ("@authority", b"www.example.com"),
        ("@scheme", b"https"),
        ("@request-target", b"/a%20b/?x=1"),
        ("@path", b"/a%20b/"),
        ("@query", b"?x=1"),
        ("host", b"WWW.Example.com:443"),
        ("x-list", b"a, b"),
        ("x-empty", b""),
    ],
)
def test_values_of_components(name, value):
    made = exchange(
        method=b"POST",
        target=b"/a%20b/?x=1",
        authority=b"WWW.Example.com:443",
        tls=True,
        headers=[(b"x-list", b"a"), (b"x-empty", b""), (b"x-list", b"b")],
    )
    assert value_of(made, name) == value


def test_what_is_not_there_has_a_value_only_where_the_rfc_says_so():
    made = exchange(target=b"/", authority=b"a.test:8080")
    assert value_of(made, "@query") == b"?"
    assert value_of(made, "@authority") == b"a.test:8080"
    with pytest.raises(Refused, match="it covers x-none, which is not there"):
        value_of(made, "x-none")


def test_it_sees_what_the_client_sent_whatever_modules_made_of_it():
    made = exchange(headers=signed())
    made.request.method, made.request.target, made.request.authority = b"PUT", b"/other", b"inner.test"
    assert Signature(made, "").verifies(made, SHARED)


@pytest.mark.parametrize(
    ("component", "covered"),
    [
        ("@path", ("@target-uri",)),
        ("@authority", ("@target-uri",)),
        ("@scheme", ("@target-uri",)),
        ("@query", ("@request-target",)),
        ("@path", ("@path",)),
    ],
)
def test_who_covers_more_covers_less(component, covered):
    assert Signature(exchange(headers=signed(components=covered)), "").covers(component)
    assert not Signature(exchange(headers=signed(components=("@method",))), "").covers(component)


def fields(input_, value=b"sig1=:AAAA:"):
    return [
        *([(b"signature-input", input_)] if input_ is not None else []),
        *([(b"signature", value)] if value else []),
    ]


@pytest.mark.parametrize(
    ("headers", "why"),
    [
        (fields(b'sig1=("@method")', None), "missing or of another form"),
        (fields(None), "none of the signatures|no signature"),
        (fields(b'sig2=("@method")'), "missing or of another form"),
        (fields(b'sig1="@method"'), "missing or of another form"),
        (fields(b'sig1=("@method")', b"sig1=x"), "missing or of another form"),
        (fields(b'sig1=("@method"'), "signature-input: expected"),
        (fields(b'sig1=("@method")', b"sig1=:AAAA"), "signature: expected"),
        (fields(b"sig1=(\xe9)"), "not ASCII"),
        (fields(b"sig1=(method)"), "no component"),
        (fields(b'sig1=("Date")'), "no component"),
        (fields(b'sig1=("")'), "no component"),
        (fields(b"sig1=(1)"), "no component"),
        (fields(b'sig1=("@status")'), "@status, which is not understood"),
        (fields(b'sig1=("@query-param";name="x")'), "with parameters"),
        (fields(b'sig1=("date";sf)'), "with parameters"),
        (fields(b'sig1=("date" "date")'), "something twice"),
        (fields(b'sig1=("@method");created="x"'), "created is of another form"),
        (fields(b'sig1=("@method");created=?1'), "created is of another form"),
        (fields(b'sig1=("@method");keyid=x'), "keyid is of another form"),
        (fields(b'sig1=("@method");nonce=:AA==:'), "nonce is of another form"),
        (fields(b'sig1=("@method");alg=none'), "alg is of another form"),
        (fields(b'sig1=("@method"), sig2=("@path")'), "several signatures"),
        ([*fields(b'sig1=("@method")'), *fields(b'sig2=("@path")', b"sig2=:AAAA:")], "several signatures"),
        ([*fields(b'sig1=("@method")'), *fields(b'sig1=("@path")')], "twice"),
    ],
)
def test_what_cannot_be_understood_or_in_two_ways_is_refused(headers, why):
    with pytest.raises(Refused, match=why) as caught:
        Signature(exchange(headers=headers), "")
    assert not caught.value.absent


def test_no_signature_is_none():
    with pytest.raises(Refused, match="there is no signature") as caught:
        Signature(exchange(), "")
    assert caught.value.absent


def test_of_several_the_one_with_our_tag_counts():
    headers = signed(components=USUAL, parameters=';keyid="a";tag="shop"')
    other = signed(components=("@method",), parameters=';keyid="b";tag="cdn"', label="sig2")
    made = exchange(headers=[*other, *headers])
    assert Signature(made, "shop").key == "a"
    assert Signature(made, "cdn").key == "b"
    for tag in ("", "none"):
        with pytest.raises(Refused):
            Signature(made, tag)


@pytest.mark.parametrize("at", range(len(USUAL)))
def test_whatever_is_covered_cannot_be_another(at):
    changes = [{"method": b"POST"}, {"authority": b"b.test"}, {"target": b"/other?q=1"}, {"target": b"/path?q=2"}]
    made = exchange(**{"headers": signed(), **changes[at]})
    assert not Signature(made, "").verifies(made, SHARED)
