"""Tokens: read in one way only, and held to what they must say."""

from __future__ import annotations

import hmac
import json
from base64 import urlsafe_b64decode

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protogate.identity import jwk
from protogate.identity.jwt import Demands, Refused, Token
from tokens import CLAIMS, EC, NOW, OCT, OTHER, RSA, SECRET, part, public, signed, token

KEYS = jwk.parse(public(RSA, EC))
ALLOWED = frozenset(jwk.ALGORITHMS)
DEMANDS = Demands(issuers=frozenset(["https://id.test"]), audiences=frozenset(["shop", "shops"]))
HEAD = b'{"alg":"RS256","kid":"rsa"}'
BODY = json.dumps(CLAIMS).encode()


def judged(text, demands=DEMANDS, keys=KEYS, now=NOW):
    read = Token(text)
    read.verify(keys, ALLOWED)
    return demands.judge(read, now)


def test_a_good_one_is_good_until_its_end():
    assert judged(token()) == NOW + 90
    assert judged(token("ES256", EC)) == NOW + 90
    assert judged(token(aud=["x", "shops"])) == NOW + 90
    assert judged(signed(b'{"alg":"RS256"}', BODY, "RS256", RSA)) == NOW + 90


HEADERS = {
    "none": {"alg": "none"},
    "None": {"alg": "NonE"},
    "empty": {"alg": ""},
    "list": {"alg": ["RS256"]},
    "missing": {"alg": None},
    "other family": {"alg": "ES256"},
    "other hash": {"alg": "RS384"},
    "hmac": {"alg": "HS256"},
    "kid path": {"kid": "../../etc/passwd"},
    "kid null byte": {"kid": "rsa\0"},
    "kid sql": {"kid": "' OR 1=1 --"},
    "kid number": {"kid": 7},
    "kid object": {"kid": {"$ne": ""}},
    "kid long": {"kid": "r" * 257},
    "kid of another kind": {"kid": "ec"},
    "crit": {"crit": ["exp"], "exp": 1},
    "crit empty": {"crit": []},
    "crit null": {"crit": "x"},
    "b64": {"b64": False},
    "typ number": {"typ": 1},
    "typ other": {"typ": "dpop+jwt"},
    "typ empty application": {"typ": "application/logout+jwt"},
}


@pytest.mark.parametrize("header", HEADERS.values(), ids=HEADERS)
def test_a_header_chooses_nothing(header):
    with pytest.raises(Refused):
        judged(token(header=header))


def test_keys_that_a_token_brings_along_are_not_looked_at():
    brought = {
        "jwk": OTHER.as_dict(private=False),
        "jku": "https://evil.test/jwks",
        "x5u": "https://evil.test/x",
        "x5c": [],
    }
    assert judged(token(header=brought))
    with pytest.raises(Refused, match="no key that is known"):
        judged(token(key=OTHER, header=brought))
    with pytest.raises(Refused, match="signature is wrong"):
        judged(token(key=OTHER, header={**brought, "kid": "rsa"}))
    with pytest.raises(Refused, match="signature is wrong"):
        judged(token(key=OTHER, header={**brought, "kid": None}))


def test_a_public_key_is_no_secret():
    """The best known confusion: HMAC with the public key, in every form that somebody could hold it."""
    text = part(b'{"alg":"HS256","kid":"rsa"}') + b"." + part(BODY)
    shapes = [
        public(RSA),
        RSA.as_pem(private=False),
        RSA.as_der(private=False),
        RSA.as_dict(private=False)["n"].encode(),
    ]
    for shape in shapes:
        forged = text + b"." + part(hmac.digest(shape, text, "sha256"))
        with pytest.raises(Refused, match="not among those that are allowed"):
            judged(forged)
        read = Token(forged)
        with pytest.raises(Refused, match="no key that is known"):
            read.verify(KEYS, ALLOWED | {"HS256"})


GOOD = token()
HEAD_, BODY_, SIGN_ = GOOD.split(b".")
SHAPES = {
    "empty": b"",
    "one part": b"abc",
    "two parts": HEAD_ + b"." + BODY_,
    "four parts": GOOD + b".x",
    "encrypted": GOOD + b".x.y",
    "trailing dot": GOOD + b".",
    "leading dot": b"." + GOOD,
    "no signature": HEAD_ + b"." + BODY_ + b".",
    "no claims": HEAD_ + b".." + SIGN_,
    "no header": b"." + BODY_ + b"." + SIGN_,
    "padding": HEAD_ + b"." + BODY_ + b"." + SIGN_ + b"==",
    "padded header": HEAD_ + b"=." + BODY_ + b"." + SIGN_,
    "space": GOOD + b" ",
    "inner space": GOOD[:20] + b" " + GOOD[20:],
    "line feed": GOOD + b"\n",
    "standard alphabet": HEAD_ + b"." + BODY_ + b"." + SIGN_[:-2] + b"+/",
    "latin-1": GOOD + b"\xe9",
    "cut": GOOD[:-4],
    "other claims": HEAD_ + b"." + part(BODY.replace(b"alice", b"admin")) + b"." + SIGN_,
    "header no JSON": signed(b"x", BODY, "RS256", RSA),
    "header a list": signed(b"[]", BODY, "RS256", RSA),
    "header not UTF-8": signed(b'{"alg":"RS256","kid":"\xff"}', BODY, "RS256", RSA),
    "header UTF-16": signed(HEAD.decode().encode("utf-16"), BODY, "RS256", RSA),
    "header nested": signed(b'{"alg":"RS256","x":' + b"[" * 3000 + b"]" * 3000 + b"}", BODY, "RS256", RSA),
    "alg twice": signed(b'{"alg":"none","kid":"rsa","alg":"RS256"}', BODY, "RS256", RSA),
    "kid twice": signed(b'{"alg":"RS256","kid":"rsa","kid":"rsa"}', BODY, "RS256", RSA),
    "claim twice": signed(HEAD, BODY[:-1] + b',"sub":"admin"}', "RS256", RSA),
    "claim twice within": signed(HEAD, BODY[:-1] + b',"x":{"a":1,"a":2}}', "RS256", RSA),
    "claims a list": signed(HEAD, b"[]", "RS256", RSA),
    "claims no JSON": signed(HEAD, b"alice", "RS256", RSA),
    "claims not UTF-8": signed(HEAD, BODY[:-1] + b',"x":"\xff"}', "RS256", RSA),
    "claims NaN": signed(HEAD, BODY[:-1] + b',"x":NaN}', "RS256", RSA),
    "claims trailing": signed(HEAD, BODY + b"{}", "RS256", RSA),
    "claims BOM": signed(HEAD, b"\xef\xbb\xbf" + BODY, "RS256", RSA),
    "endless number": signed(HEAD, BODY[:-1] + b',"x":' + b"9" * 5000 + b"}", "RS256", RSA),
}  # fmt: skip


@pytest.mark.parametrize("text", SHAPES.values(), ids=SHAPES)
def test_what_has_no_reading_or_two_is_refused(text):
    with pytest.raises(Refused):
        judged(text)


def test_bits_that_no_encoder_writes_are_refused():
    """The last character of a part may hide bits: the same token would have several texts."""
    last = GOOD[-1:]
    alphabet = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
    twin = GOOD[:-1] + bytes([alphabet[alphabet.index(last) ^ 1]])
    with pytest.raises(Refused, match=r"not base64url|signature is wrong"):
        judged(twin)


WRONG = {
    "expired": {"exp": NOW - 31},
    "expired at the edge": {"exp": NOW - 30},
    "no end": {"exp": None},
    "end a text": {"exp": str(int(NOW + 60))},
    "end true": {"exp": True},
    "end a list": {"exp": [NOW + 60]},
    "end infinite": {"exp": float("1e300")},
    "end negative": {"exp": -1},
    "not yet": {"nbf": NOW + 31},
    "nbf a text": {"nbf": "0"},
    "iat a text": {"iat": "yesterday"},
    "other issuer": {"iss": "https://evil.test"},
    "issuer with a slash": {"iss": "https://id.test/"},
    "no issuer": {"iss": None},
    "issuer a list": {"iss": ["https://id.test"]},
    "other audience": {"aud": "bank"},
    "audience part": {"aud": "shop,bank"},
    "audience case": {"aud": "Shop"},
    "no audience": {"aud": None},
    "audience list": {"aud": ["bank", "Shop"]},
    "audience empty": {"aud": []},
    "audience object": {"aud": {"shop": 1}},
    "audience nested": {"aud": [["shop"]]},
}


@pytest.mark.parametrize("claims", WRONG.values(), ids=WRONG)
def test_a_token_that_does_not_say_what_it_must_is_refused(claims):
    with pytest.raises(Refused):
        judged(token(**claims))


def test_clocks_may_differ_a_little():
    assert judged(token(exp=NOW - 29, nbf=NOW + 30)) == NOW + 1
    with pytest.raises(Refused, match="it is over") as caught:
        judged(token(exp=NOW - 1), Demands(leeway=0))
    assert caught.value.detail == "the token has expired"
    with pytest.raises(Refused, match="not good yet") as caught:
        judged(token(nbf=NOW + 1), Demands(leeway=0))
    assert caught.value.detail == "the token is not valid yet"


def test_what_is_demanded_can_be_chosen():
    assert judged(token(exp=None), Demands(lasting=True)) == NOW + 3600
    assert judged(token(iss=None, aud=None), Demands())
    strict = Demands(kinds=frozenset(["at+jwt"]), required=("tenant",))
    assert judged(token(header={"typ": "application/at+JWT"}, tenant="a"), strict)
    for header, tenant in (
        ({"typ": "JWT"}, "a"),
        ({"typ": None}, "a"),
        ({"typ": "at+jwt"}, ""),
        ({"typ": "at+jwt"}, None),
    ):
        with pytest.raises(Refused):
            judged(token(header=header, tenant=tenant), strict)


def test_who_signs_with_a_key_that_is_not_known_may_be_ahead_of_us():
    for text, unknown in (
        (token(header={"kid": "next"}), True),
        (token(key=OTHER, header={"kid": None}), True),
        (token(key=OTHER, header={"kid": "rsa"}), False),
        (token(header={"alg": "none"}), False),
    ):
        with pytest.raises(Refused) as caught:
            judged(text)
        assert caught.value.unknown is unknown


def test_a_shared_secret():
    keys = jwk.secret(SECRET)
    read = Token(token("HS256", OCT))
    read.verify(keys, frozenset(["HS256"]))
    with pytest.raises(Refused):
        read.verify(keys, frozenset(["RS256"]))


@given(
    st.binary(max_size=200)
    | st.lists(st.binary(max_size=40), max_size=5).map(lambda parts: b".".join(map(part, parts)))
)
def test_whatever_it_is_it_is_refused_and_nothing_else(data):
    with pytest.raises(Refused):
        judged(data)


@given(st.integers(0, len(GOOD) - 1), st.integers(1, 255))
def test_no_byte_of_a_good_token_can_be_another(at, change):
    text = GOOD[:at] + bytes([GOOD[at] ^ change]) + GOOD[at + 1 :]
    with pytest.raises(Refused):
        judged(text)


JOE = b"eyJpc3MiOiJqb2UiLA0KICJleHAiOjEzMDA4MTkzODAsDQogImh0dHA6Ly9leGFtcGxlLmNvbS9pc19yb290Ijp0cnVlfQ"
EXAMPLES = {
    "RFC 7515, A.1": (
        "AyM1SysPpbyDfgZld3umj1qzKObwVMkoqQ-EstJQLr_T-1qS0gZH75aKtMN3Yj0iPS4hcgUuTwjAzZr1Z9CAow",
        b"eyJ0eXAiOiJKV1QiLA0KICJhbGciOiJIUzI1NiJ9." + JOE + b".dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk",
    ),
    "RFC 7515, A.3": (
        {
            "kty": "EC",
            "crv": "P-256",
            "x": "f83OJ3D2xF1Bg8vub9tLe1gHMzV76e8Tus9uPHvRVEU",
            "y": "x_FEzRu9m36HLN_tue659LNpXW6pCyStikYjKIWI5a0",
        },
        b"eyJhbGciOiJFUzI1NiJ9."
        + JOE
        + b".DtEhU3ljbEg8L38VWAfUAqOyKAM6-Xx-F4GawxaepmXFCgfTjDxw5djxLa8ISlSApmWQxfKTUJqPP3-Kg6NU1Q",
    ),
}


@pytest.mark.parametrize(("key", "text"), EXAMPLES.values(), ids=EXAMPLES)
def test_the_examples_of_the_rfc(key, text):
    if isinstance(key, str):
        keys, allowed = jwk.secret(urlsafe_b64decode(key + "==")), frozenset(["HS256"])
    else:
        keys, allowed = jwk.parse(json.dumps({"keys": [key]}).encode()), ALLOWED
    read = Token(text)
    read.verify(keys, allowed)
    demands = Demands(issuers=frozenset(["joe"]), leeway=0)
    assert demands.judge(read, 1300819379) == 1300819380
    with pytest.raises(Refused, match="it is over"):
        demands.judge(read, 1300819380)
    assert read.claims["http://example.com/is_root"] is True


def test_the_signature_of_ed25519_that_its_rfc_shows():
    """RFC 8037, A.4: what is signed there is no token."""
    public_key = {"kty": "OKP", "crv": "Ed25519", "x": "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"}
    (key,) = jwk.parse(json.dumps({"keys": [public_key]}).encode()).find(None, "EdDSA")
    text = b"eyJhbGciOiJFZERTQSJ9.RXhhbXBsZSBvZiBFZDI1NTE5IHNpZ25pbmc"
    made = b"hgyY0il_MGCjP0JzlnLWG1PPOt7-09PGcvMg3AIbQR6dWbhijcNR4ki4iylGjg5BhVsPt9g7sVvpAr_MuM0KAg"
    assert key.verifies("EdDSA", text, urlsafe_b64decode(made + b"=="))
    with pytest.raises(Refused, match="its claims"):
        Token(text + b"." + made)
