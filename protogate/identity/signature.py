"""
Signatures of requests: HTTP Message Signatures (RFC 9421).

What is signed is a text of one line for each component that the signature covers, and a last one with the parameters:

    "@method": POST
    "@authority": shop.example
    "@path": /orders
    "@query": ?express=1
    "content-digest": sha-256=:X48E9qOokqqrvdts8nOjRJN3OWDUoyWxBf7kbu9DBPE=:
    "@signature-params": ("@method" "@authority" "@path" "@query" "content-digest");created=1800000000;keyid="partner-7"

Rules
- Method, authority and target are those that the client sent (C{exchange.line}), whatever modules made of them; fields
  are as they are when this is asked.
- What is not understood is refused: other components, parameters of components.
- The key decides by which algorithm a signature is verified; one that says it was made by another is refused.
- Of several signatures of a request one counts: the one with the tag that is asked for, or else the only one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from protogate.identity.structured import Inner, Item, dictionary, written

if TYPE_CHECKING:
    from protogate.exchange.exchange import Exchange
    from protogate.identity.secrets import Secret

DERIVED: Final = ("@method", "@target-uri", "@authority", "@scheme", "@request-target", "@path", "@query")
"""Components that are no fields (RFC 9421, 2.2)."""
_MEANS: Final[dict[str, tuple[str, ...]]] = {
    "@target-uri": ("@scheme", "@authority", "@path", "@query"),
    "@request-target": ("@path", "@query"),
}
"""Who covers one of these covers the others."""
_PARAMETERS: Final[dict[str, type]] = {
    "created": int,
    "expires": int,
    "nonce": str,
    "alg": str,
    "keyid": str,
    "tag": str,
}
_USUAL: Final = {b"http": b":80", b"https": b":443"}


class Refused(Exception):
    """
    A signature that is not good.

    @ivar absent: there is none.
    """

    def __init__(self, why: str, absent: bool = False) -> None:
        super().__init__(why)
        self.absent = absent


class Signature:
    """
    One that was read, and not verified.

    @ivar algorithm: that it says it was made with; empty = it does not.
    @ivar components: what it covers.
    @ivar value: itself.
    @ivar key: name of the secret it was made with.
    @ivar created: when it says it was made, in seconds since the epoch; None = it does not.
    @ivar expires: until when it is good, likewise.
    @ivar nonce: what makes it unique; empty = nothing.
    """

    __slots__ = ("_input", "algorithm", "components", "created", "expires", "key", "nonce", "value")

    def __init__(self, exchange: Exchange, tag: str) -> None:
        """
        @param tag: of the one that counts; empty = the only one.
        @raise Refused: there is none, or none that could be understood.
        """
        inputs, values = _read(exchange, b"signature-input"), _read(exchange, b"signature")
        if not inputs and not values:
            raise Refused("there is no signature", absent=True)
        label = _label(inputs, tag)
        found, value = inputs[label], values.get(label)
        if not isinstance(found, Inner) or not isinstance(value, Item) or not isinstance(value.value, bytes):
            raise Refused("the signature, or what it covers, is missing or of another form")
        self._input, self.value = found, value.value
        self.components = tuple([_component(item) for item in found.items])
        if len(set(self.components)) != len(self.components):
            raise Refused("it covers something twice")
        told: dict[str, Any] = found.parameters
        for name, kind in _PARAMETERS.items():
            if name in told and type(told[name]) is not kind:
                raise Refused(f"its parameter {name} is of another form")
        self.created, self.expires = told.get("created"), told.get("expires")
        self.key, self.nonce, self.algorithm = told.get("keyid", ""), told.get("nonce", ""), told.get("alg", "")

    def covers(self, component: str) -> bool:
        """Whether it does, by that name or another."""
        return component in self.components or any(component in _MEANS.get(each, ()) for each in self.components)

    def base(self, exchange: Exchange) -> bytes:
        """
        What was signed (RFC 9421, 2.5).

        @raise Refused: it covers what is not there.
        """
        lines = [b'"%b": %b' % (name.encode("ascii"), value_of(exchange, name)) for name in self.components]
        lines.append(b'"@signature-params": ' + written(self._input).encode("ascii"))
        return b"\n".join(lines)

    def verifies(self, exchange: Exchange, secret: Secret) -> bool:
        """
        Whether it was made with that secret.

        @raise Refused: it covers what is not there, or says that it was made in another way.
        """
        if self.algorithm not in ("", secret.algorithm):
            raise Refused("its algorithm is not the one of its key")
        return secret.verifies(self.base(exchange), self.value)


def value_of(exchange: Exchange, name: str) -> bytes:  # noqa: PLR0911 - a table
    """
    The value of a component.

    @raise Refused: it is not there, or stands for something else in each protocol.
    """
    request = exchange.request
    method, authority, target = exchange.line
    path, mark, query = target.partition(b"?")
    match name:
        case "@method":
            return method
        case "@scheme":
            return request.scheme
        case "@authority":
            return authority.lower().removesuffix(_USUAL.get(request.scheme, b" "))
        case "@target-uri":
            return b"%b://%b%b" % (request.scheme, authority, target)
        case "@request-target":
            return target
        case "@path":
            return path or b"/"
        case "@query":
            return b"?" + query if mark else b"?"
        case "host":
            return authority
        case "content-length" if request.body is not None and request.body.length is not None:
            return b"%d" % request.body.length
    values = request.headers.all(name.encode("ascii"))
    if not values:
        raise Refused(f"it covers {name}, which is not there")
    return b", ".join(values)


def _read(exchange: Exchange, name: bytes) -> dict[str, Any]:
    try:
        return dictionary(b", ".join(exchange.request.headers.all(name)).decode("ascii"))
    except ValueError as error:
        why = "it is not ASCII" if isinstance(error, UnicodeDecodeError) else str(error)
        raise Refused(f"{name.decode()}: {why}") from None


def _label(inputs: dict[str, Any], tag: str) -> str:
    labels = [label for label, member in inputs.items() if not tag or (member.parameters.get("tag") == tag)]
    if not labels:
        raise Refused("none of the signatures has our tag")
    if len(labels) > 1:
        raise Refused("there are several signatures, and nothing says which of them counts")
    return labels[0]


def _component(item: Item) -> str:
    name = item.value
    if type(name) is not str or name != name.lower() or not name.isascii() or not name:
        raise Refused("it covers something that is no component")
    if item.parameters:
        raise Refused(f"it covers {name[:64]} with parameters, which are not understood")
    if name.startswith("@") and name not in DERIVED:
        raise Refused(f"it covers {name[:64]}, which is not understood")
    return name
