"""Keys that verify tokens."""

from __future__ import annotations

import json
from base64 import urlsafe_b64encode

import pytest
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from joserfc.jwk import ECKey, RSAKey
from joserfc.jws import JWSRegistry

from authority import Authority
from protogate.identity import jwk
from tokens import EC, EC5, ED, OCT, OTHER, RSA, SECRET, public

TEXT = b"signed"


def sign(algorithm, key):
    return JWSRegistry.algorithms[algorithm].sign(TEXT, key)


ALL = jwk.parse(public(RSA, EC, EC5, ED))


@pytest.mark.parametrize(
    ("algorithm", "key"),
    [
        *((name, RSA) for name in ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512")),
        ("ES256", EC),
        ("ES512", EC5),
        ("EdDSA", ED),
        ("Ed25519", ED),
    ],
)
def test_each_key_verifies_its_algorithms(algorithm, key):
    (found,) = ALL.find(key.kid, algorithm)
    signature = sign(algorithm, key)
    assert found.verifies(algorithm, TEXT, signature)
    assert not found.verifies(algorithm, TEXT + b" ", signature)
    assert not found.verifies(algorithm, TEXT, signature[:-1])
    assert not found.verifies(algorithm, TEXT, b"")


@pytest.mark.parametrize(
    ("kid", "algorithm"),
    [
        ("rsa", "ES256"),
        ("ec", "RS256"),
        ("ec", "ES512"),
        ("ed", "ES256"),
        ("rsa", "HS256"),
        ("rsa", "none"),
        ("no", "RS256"),
    ],
)
def test_no_key_is_found_for_what_it_is_not(kid, algorithm):
    assert ALL.find(kid, algorithm) == []


def test_a_key_is_asked_for_its_own_algorithms_only():
    (found,) = ALL.find("rsa", "RS256")
    forged = JWSRegistry.algorithms["HS256"].sign(TEXT, OCT)
    assert not found.verifies("HS256", TEXT, forged)
    assert not found.verifies("none", TEXT, b"")


def test_a_key_that_names_its_algorithm_is_used_for_that_one_only():
    keys = jwk.parse(public(RSA, alg="PS256"))
    assert len(keys.find("rsa", "PS256")) == 1
    assert keys.find("rsa", "RS256") == []
    with pytest.raises(ValueError, match="no key in it that can be used"):
        jwk.parse(public(RSA, alg="ES256"))


PLAIN = {name: value for name, value in RSA.as_dict(private=False).items() if name != "kid"}


def test_where_one_side_has_no_name_some_are_tried():
    keys = jwk.parse(public(*(RSA,) * 6))
    assert len(keys.find(None, "RS256")) == jwk.TRIED
    nameless = jwk.parse(json.dumps({"keys": [PLAIN]}).encode())
    assert len(nameless.find("anything", "RS256")) == 1


WEAK = rsa.generate_private_key(65537, 1024).public_key()
NUMBERS = WEAK.public_numbers()


def number(value):
    return urlsafe_b64encode(value.to_bytes((value.bit_length() + 7) // 8)).rstrip(b"=").decode()


@pytest.mark.parametrize(
    "entry",
    [
        {**RSA.as_dict(private=False), "use": "enc"},
        {**RSA.as_dict(private=False), "key_ops": ["encrypt"]},
        {**RSA.as_dict(private=False), "kid": 7},
        {**RSA.as_dict(private=False), "n": 7},
        {**RSA.as_dict(private=False), "e": "!"},
        {"kty": "RSA", "n": number(NUMBERS.n), "e": number(NUMBERS.e)},
        {"kty": "RSA", "e": "AQAB"},
        {"kty": "EC", "crv": "secp256k1", "x": "AA", "y": "AA"},
        {**EC.as_dict(private=False), "x": "AA"},
        {**EC.as_dict(private=False), "crv": None},
        {"kty": "OKP", "crv": "X25519", "x": "AA"},
        {"kty": "oct", "k": number(int.from_bytes(SECRET))},
        {"kty": "future"},
        {},
        7,
        None,
    ],
    ids=range(16),
)
def test_what_cannot_be_used_is_left_out_and_harms_no_other(entry):
    assert len(jwk.parse(json.dumps({"keys": [entry, EC.as_dict(private=False)]}).encode())) == 1
    with pytest.raises(ValueError, match="no key in it that can be used"):
        jwk.parse(json.dumps({"keys": [entry]}).encode())


def test_a_private_key_that_somebody_published_is_used_as_a_public_one():
    keys = jwk.parse(json.dumps({"keys": [RSA.as_dict(private=True)]}).encode())
    assert keys.find("rsa", "RS256")[0].verifies("RS256", TEXT, sign("RS256", RSA))


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "no JSON"),
        (b"<html>", "no JSON"),
        (b"\xff", "not UTF-8"),
        (b"[]", "no object"),
        (b"{}", "expected"),
        (b'{"keys": {}}', "expected"),
        (b'{"keys": [], "keys": []}', "twice"),
        (b'{"keys": []}', "no key in it"),
        (b'{"keys": [' + b"{}," * 256 + b"{}]}", "more than 256"),
        (b"[" * 100_000, "nested"),
        (b"-----BEGIN PUBLIC KEY-----\nx\n-----END PUBLIC KEY-----", "cannot be read"),
        (b"-----BEGIN PRIVATE KEY-----\nx\n-----END PRIVATE KEY-----", "no key in it"),
    ],
)
def test_what_is_no_set_of_keys(data, why):
    with pytest.raises(ValueError, match=why):
        jwk.parse(data)


def pem(key):
    return key.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)


def test_public_keys_and_certificates_in_pem_form(tmp_path):
    issued = Authority(tmp_path).issue("id.test")
    certified = ECKey.import_key(issued.key.read_bytes())
    data = b"# ours\n" + pem(RSA.public_key) + pem(ED.public_key) + pem(WEAK) + issued.cert.read_bytes()
    keys = jwk.parse(data[7:])
    for algorithm, key in (("RS256", RSA), ("EdDSA", ED), ("ES256", certified)):
        assert any(found.verifies(algorithm, TEXT, sign(algorithm, key)) for found in keys.find("any", algorithm))
    with pytest.raises(ValueError, match="no key in it"):
        jwk.parse(pem(ec.generate_private_key(ec.SECP256K1()).public_key()))


def test_a_secret_is_long_enough_for_its_algorithms():
    assert jwk.secret(b"s" * 32).find(None, "HS512") == []
    (key,) = jwk.secret(SECRET).find("any", "HS512")
    assert key.verifies("HS512", TEXT, sign("HS512", OCT))
    with pytest.raises(ValueError, match="32 bytes at least, this one has 31"):
        jwk.secret(b"s" * 31)


def test_another_key_does_not_verify():
    (found,) = ALL.find("rsa", "RS256")
    assert not found.verifies("RS256", TEXT, sign("RS256", OTHER))
    assert isinstance(OTHER, RSAKey)
