"""mtlsAuth: who shows which certificate."""

from __future__ import annotations

import pytest
from cryptography.hazmat.primitives.serialization import Encoding
from twisted.trial.unittest import SynchronousTestCase

from authority import Authority
from protogate.errors import Abort
from protogate.expression.template import compile as template
from protogate.governance.mtlsauth import MtlsAuthFactory
from protogate.testing.exchange import exchange
from protogate.testing.module import ModuleContract
from protogate.tls.session import Certificate, Session

HASH = "a" * 64


class Contract(ModuleContract, SynchronousTestCase):
    factory = MtlsAuthFactory
    good = ({}, {"allow": [{"san": "spiffe://a/*"}], "user": "san", "optional": True})
    bad = (
        ({"allow": []}, "allow"),
        ({"allow": {}}, "allow"),
        ({"allow": [{}]}, "allow"),
        ({"allow": ["CN=a"]}, "allow"),
        ({"allow": [{"name": "a"}]}, "name"),
        ({"allow": [{"subject": ""}]}, "subject"),
        ({"allow": [{"subject": []}]}, "subject"),
        ({"allow": [{"subject": "*"}]}, "subject"),
        ({"allow": [{"subject": 7}]}, "subject"),
        ({"allow": [{"fingerprint": "abc"}]}, "fingerprint"),
        ({"allow": [{"fingerprint": [HASH, "x" * 64]}]}, "fingerprint"),
        ({"user": "name"}, "user"),
        ({"realm": "x"}, "realm"),
        ({"keepCredential": True}, "keepCredential"),
    )


class Shown(Certificate):
    """A certificate that says what a test wants."""

    def __init__(
        self, subject="CN=orders,O=Example", issuer="CN=ca", san=("orders.test", "spiffe://prod/orders"), serial="7f"
    ):
        super().__init__(b"der " + subject.encode())
        self._read = (subject, issuer, serial, san)


def asked(certificate, params=None, **what):
    """The exchange, or the Abort."""
    made = exchange(tls=True, **what)
    if certificate is not None:
        made.source.session = Session("TLSv1.3", "TLS_AES_128_GCM_SHA256")
        made.source.session.certificate = certificate
    try:
        MtlsAuthFactory().build(params or {}).process(made)
    except Abort as abort:
        return abort
    return made


def test_a_certificate_is_an_identity():
    made = asked(Shown())
    assert (made.identity.user, made.identity.scheme) == ("CN=orders,O=Example", "certificate")
    assert made.identity.text("issuer") == "CN=ca"
    assert made.identity.texts("san") == ("orders.test", "spiffe://prod/orders")
    assert made.identity.text("serial") == "7f"
    assert len(made.identity.text("fingerprint")) == 64


def test_none_is_refused_unless_it_is_optional():
    abort = asked(None)
    assert (abort.status, abort.who, abort.headers) == (403, "client", [])
    assert asked(None, {"optional": True}).identity is None
    without = exchange(tls=True)
    without.source.session = Session("TLSv1.3", "x")
    with pytest.raises(Abort):
        MtlsAuthFactory().build({}).process(without)


@pytest.mark.parametrize(
    ("rule", "allowed"),
    [
        ({"subject": "CN=orders,O=Example"}, True),
        ({"subject": "CN=orders"}, False),
        ({"subject": "CN=orders*"}, True),
        ({"subject": "cn=orders,o=example"}, False),
        ({"subject": ["CN=a", "CN=orders,O=Example"]}, True),
        ({"issuer": "CN=ca"}, True),
        ({"issuer": "CN=other"}, False),
        ({"san": "spiffe://prod/orders"}, True),
        ({"san": "spiffe://prod/*"}, True),
        ({"san": "spiffe://test/*"}, False),
        ({"san": "spiffe://prod"}, False),
        ({"san": ["other.test", "orders.test"]}, True),
        ({"serial": "7F"}, True),
        ({"serial": "00:7f"}, True),
        ({"serial": "7e"}, False),
        ({"issuer": "CN=ca", "san": "orders.test"}, True),
        ({"issuer": "CN=other", "san": "orders.test"}, False),
    ],
)
def test_all_that_a_rule_says_must_hold(rule, allowed):
    result = asked(Shown(), {"allow": [rule]})
    assert isinstance(result, Abort) is not allowed
    assert isinstance(asked(Shown(), {"allow": [{"subject": "CN=none"}, rule]}), Abort) is not allowed
    if not allowed:
        assert (result.status, result.detail) == (403, "access denied")
        assert result.reason == "mtlsAuth: no rule allows CN=orders,O=Example"


def test_a_fingerprint_is_compared_however_it_is_written():
    certificate = Shown()
    digits = certificate.fingerprint
    spaced = ":".join(digits[at : at + 2] for at in range(0, 64, 2)).upper()
    for text in (digits, spaced):
        assert asked(certificate, {"allow": [{"fingerprint": text}]}).identity
    assert asked(certificate, {"allow": [{"fingerprint": HASH}]}).status == 403


@pytest.mark.parametrize(
    ("user", "certificate", "name"),
    [
        ("subject", Shown(), "CN=orders,O=Example"),
        ("san", Shown(), "orders.test"),
        ("commonName", Shown(), "orders"),
        ("commonName", Shown("O=x+CN=a"), "a"),
        ("commonName", Shown(r"CN=Doe\, John,O=x"), r"Doe\, John"),
        ("commonName", Shown(r"O=evil\,CN=admin,CN=me"), "me"),
        ("commonName", Shown(r"O=evil\\,CN=me"), "me"),
    ],
)
def test_the_name_may_be_another_part(user, certificate, name):
    assert asked(certificate, {"user": user}).identity.user == name


@pytest.mark.parametrize(
    ("user", "certificate"),
    [
        ("subject", Shown("")),
        ("san", Shown(san=())),
        ("commonName", Shown("O=x")),
        ("commonName", Shown("CN=a,CN=b")),
        ("commonName", Shown(r"O=evil\,CN=admin")),
    ],
)
def test_who_has_no_name_or_two_is_refused(user, certificate):
    abort = asked(certificate, {"user": user})
    assert (abort.status, abort.reason.startswith(f"mtlsAuth: its certificate has no {user}")) == (403, True)


def test_an_empty_field_matches_nothing():
    assert asked(Shown(""), {"allow": [{"subject": "CN=*"}], "user": "fingerprint"}).status == 403
    assert asked(Shown(san=()), {"allow": [{"san": "a*"}]}).status == 403


def test_it_is_forwarded():
    params = {"forward": {"x-client": template("${identity.claims['san']}")}}
    assert asked(Shown(), params).request.headers == [(b"x-client", b"orders.test,spiffe://prod/orders")]


def test_a_real_certificate(tmp_path):
    issued = Authority(tmp_path).issue("partner", ["partner.test"]).certificate
    made = asked(
        Certificate(issued.public_bytes(Encoding.DER)),
        {"allow": [{"issuer": "CN=authority", "san": "partner.test"}], "user": "commonName"},
    )
    assert made.identity.user == "partner"
    assert made.identity.text("serial") == f"{issued.serial_number:x}"


def test_what_a_proxy_says_of_a_certificate_is_none():
    """It stands in a field, and nobody has shown it to this gateway."""
    made = exchange(headers=[(b"client-cert", b":AAAA:"), (b"x-forwarded-client-cert", b"Subject=x")])
    with pytest.raises(Abort):
        MtlsAuthFactory().build({}).process(made)
