"""
C{mtlsAuth}: who shows which certificate.  That its chain is good the listener has verified; this says whose are let in,
and as whom.

Rules
- Only what the connection itself has shown counts: behind a proxy that ends TLS there is no certificate.
- Names are compared as a whole; only a star at the end stands for more.
- Fingerprints are compared as bytes, however they are written.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from zope.interface import implementer

from protogate.errors import ConfigError
from protogate.governance.admission import COMMON, Admission
from protogate.governance.params import Params, shown
from protogate.governance.stages import PRE_REQUEST, PRE_UPSTREAM
from protogate.identity.identity import Identity, certain
from protogate.interfaces import IModuleFactory, IReservingModule
from protogate.tls.session import Certificate

if TYPE_CHECKING:
    from protogate.exchange.exchange import Exchange

Test = Callable[[Certificate], bool]
FIELDS: Final = ("subject", "issuer", "san", "serial", "fingerprint")
USERS: Final = ("san", "subject", "commonName", "fingerprint")
KNOWN: Final = 10_000
"""Certificates that are remembered; all are forgotten when there are more."""
_FINGERPRINT: Final = re.compile(r"(?:[0-9a-f]{2}:?){31}[0-9a-f]{2}", re.IGNORECASE)
_PARTS: Final = re.compile(r"(?:[^,+\\]|\\.)+", re.DOTALL)


@implementer(IReservingModule)
class MtlsAuth:
    """
    @param tests: of one or more rules: who passes all of one is let in; none at all = everybody with a certificate.
    @param user: one of L{USERS}: what of it is the name.
    """

    __slots__ = ("_admission", "_known", "_tests", "_user", "hides", "reserves", "warnings")

    def __init__(
        self, admission: Admission, tests: list[tuple[Test, ...]], user: str, warnings: list[ConfigError]
    ) -> None:
        self._admission, self._tests, self._user, self.warnings = admission, tuple(tests), user, warnings
        self.reserves: frozenset[bytes] = admission.reserves
        self.hides = ()
        self._known: dict[str, Identity] = {}

    def process(self, exchange: Exchange) -> None:
        """Let somebody in, or raise the Abort that refuses him."""
        if exchange.request.malformed is not None:
            return
        session = exchange.source.session
        certificate = None if session is None else session.certificate
        if certificate is None:
            self._admission.absent()
            return
        known = self._known.get(certificate.fingerprint)
        if known is None:
            known = self._identity(certificate)
            if len(self._known) >= KNOWN:
                self._known.clear()
            self._known[certificate.fingerprint] = known
        self._admission.admit(exchange, known)

    def _identity(self, certificate: Certificate) -> Identity:
        """Whose it is, if he is allowed."""
        if self._tests and not any(all(test(certificate) for test in tests) for tests in self._tests):
            raise self._admission.forbidden(f"no rule allows {certificate.subject or certificate.fingerprint}")
        name = _name(certificate, self._user)
        if not name or not certain(name):
            why = f"its certificate has no {self._user}, or one that is no name: {certificate.fingerprint}"
            raise self._admission.forbidden(why)
        claims = {
            "subject": certificate.subject,
            "issuer": certificate.issuer,
            "serial": certificate.serial,
            "fingerprint": certificate.fingerprint,
            "san": list(certificate.san),
        }
        return Identity(name, "certificate", claims)


def _name(certificate: Certificate, what: str) -> str:
    if what == "san":
        return certificate.san[0] if certificate.san else ""
    if what == "commonName":
        names = [part[3:] for part in _PARTS.findall(certificate.subject) if part.startswith("CN=")]
        return names[0] if len(names) == 1 else ""
    name: str = getattr(certificate, what)
    return name


@implementer(IModuleFactory)
class MtlsAuthFactory:
    """Makes L{MtlsAuth}."""

    name = "mtlsAuth"
    stages = (PRE_REQUEST, PRE_UPSTREAM)
    guards = True

    def build(self, params: Mapping[str, object]) -> MtlsAuth:
        """See L{IModuleFactory.build}."""
        common = [name for name in COMMON if name not in ("keepCredential", "realm")]
        reader = Params(params, "allow", "user", *common)
        admission = Admission.read(reader, self.name, "")
        tests: list[tuple[Test, ...]] = []
        entries = reader.items("allow")
        for index, entry in enumerate(entries):
            if not isinstance(entry, Mapping) or not entry:
                known = ", ".join(FIELDS)
                reader.fault(f"expected some of {known} and their values, got {shown(entry)}", "allow", index)
                continue
            inner = Params(entry, *FIELDS)
            tests.append(tuple([_test(inner, name) for name in FIELDS if name in inner]))
            for fault in inner.faults:
                reader.fault(fault.message, "allow", index, *fault.path)
        if "allow" in reader and not entries and not reader.faults:
            reader.fault("the list is empty: nobody could come in", "allow")
        user = reader.choice("user", "subject", *USERS)
        reader.done()
        return MtlsAuth(admission, tests, user, reader.warnings)


def _test(reader: Params, name: str) -> Test:
    """Whether a field of a certificate is one of these."""
    words = reader.words(name)
    if "*" in words:
        reader.fault("a star alone says nothing", name)
    if name == "fingerprint":
        if not all(_FINGERPRINT.fullmatch(word) for word in words):
            reader.fault("expected the SHA-256 of a certificate: 64 hex digits, with or without colons", name)
        words = [word.replace(":", "").lower() for word in words]
    elif name == "serial":
        words = [word.replace(":", "").lower().lstrip("0") for word in words]
    whole = frozenset(word for word in words if not word.endswith("*"))
    begun = tuple(word[:-1] for word in words if word.endswith("*"))
    return _any_of(name, whole, begun)


def _any_of(name: str, whole: frozenset[str], begun: tuple[str, ...]) -> Test:
    if name == "san":
        return lambda certificate: any(each in whole or each.startswith(begun) for each in certificate.san)

    def test(certificate: Any) -> bool:
        value: str = getattr(certificate, name)
        return value in whole or (value != "" and value.startswith(begun))

    return test
