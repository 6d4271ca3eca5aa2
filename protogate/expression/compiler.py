"""
Tree → closures.  Types are checked and constants folded on the way, so a closure that was made cannot fail.

Common shapes get a closure of their own: a header, or the method, compared with a literal compares bytes; C{in} a list
of literals looks into a set.
"""

from __future__ import annotations

from typing import Final

from protogate.config.nearest import hint
from protogate.errors import ConfigError
from protogate.expression import cidr, regex
from protogate.expression.code import Code, Table, constant
from protogate.expression.names import TEMPLATE, Entry, Space
from protogate.expression.operators import PARTS, all_of, among, any_of, compare, part_of
from protogate.expression.tree import (
    Call,
    Choice,
    Fault,
    Index,
    Listing,
    Literal,
    Logic,
    Member,
    Name,
    Node,
    Relation,
    Unary,
)
from protogate.expression.types import (
    BOOL,
    DOUBLE,
    INT,
    ORDERED,
    STRING,
    Type,
    comparable,
    is_list,
    list_of,
)

_STRING_METHODS: Final = tuple(sorted((*PARTS, "matches", "size")))
_FUNCTIONS: Final = ("inCidr", "size")
_MACROS: Final = frozenset({"all", "exists", "exists_one", "map", "filter"})


def compile(node: Node, names: Space) -> Code:  # noqa: A001
    """The code of a whole expression.  Raises L{Fault}."""
    return _Compiler(names).value(node)


class _Compiler:
    def __init__(self, names: Space) -> None:
        self._names = names

    def value(self, node: Node) -> Code:
        """The code of a node that must be a value."""
        entry = self.entry(node)
        if isinstance(entry, Code):
            return entry
        if isinstance(entry, Table):
            raise Fault(f"{_spelled(node)} is a map; take a value out of it: {_spelled(node)}['name']", _start(node))
        names = [_spelled(node) + "." + name for name in entry]
        raise Fault(f"{_spelled(node)} is no value; name a member: {', '.join(names)}", _start(node))

    def typed(self, node: Node, kind: Type, what: str) -> Code:
        """The code of a node that must be of that type."""
        code = self.value(node)
        if code.type != kind:
            raise Fault(f"{what} must be a {kind}, this is {code.type.described}", _start(node))
        return code

    def entry(self, node: Node) -> Entry:  # noqa: PLR0911
        """The code of a node, or the map or the space it names."""
        match node:
            case Literal():
                return constant(node.type, node.value)
            case Listing():
                return self._listing(node)
            case Name():
                return self._name(node)
            case Member():
                return self._member(node)
            case Index():
                return self._index(node)
            case Call():
                return self._function(node) if node.of is None else self._method(node, node.of)
            case Unary():
                return self._unary(node)
            case Relation():
                return self._in(node) if node.operator == "in" else self._relation(node)
            case Logic():
                return self._logic(node)
            case Choice():
                return self._choice(node)

    def _name(self, node: Name) -> Entry:
        entry = self._names.get(node.name)
        if entry is not None:
            return entry
        if node.name == "response":
            raise Fault('"response" exists from the stage PRE_RESPONSE on, this is evaluated before', node.at)
        if node.name in TEMPLATE:
            raise Fault(f'"{node.name}" exists in templates only', node.at)
        raise Fault(f'unknown name "{node.name}"; {hint(node.name, sorted(self._names))}', node.at)

    def _member(self, node: Member) -> Entry:
        of = self.entry(node.of)
        if isinstance(of, Code):
            if is_list(of.type) or of.type != STRING:
                raise Fault(f"{of.type.described} has no members", node.at)
            raise Fault(f'a string has no member "{node.name}"{_call(node.name)}', node.at)
        if isinstance(of, Table):
            whole = _spelled(node.of)
            instead = f"size({whole})" if node.name == "size" else f"{whole}['{node.name}']"
            raise Fault(f"{whole} is a map; write {instead}", node.at)
        entry: Entry | None = of.get(node.name)
        if entry is None:
            if node.name == "func" and node.of == Name(_start(node), 1, "request"):
                raise Fault('"request.func" exists in templates only', node.at)
            raise Fault(f'{_spelled(node.of)} has no member "{node.name}"; {hint(node.name, sorted(of))}', node.at)
        return entry

    def _index(self, node: Index) -> Code:
        of = self.entry(node.of)
        if not isinstance(of, Table):
            what = of.type.described if isinstance(of, Code) else _spelled(node.of)
            raise Fault(f"only maps have keys in brackets, {what} has none", node.at)
        key = self.typed(node.key, STRING, "a key")
        try:
            return of.item(key)
        except ValueError as error:
            raise Fault(str(error), _start(node.key)) from None

    def _listing(self, node: Listing) -> Code:
        codes = [self.value(item) for item in node.items]
        for item, code in zip(node.items[1:], codes[1:], strict=True):
            if not comparable(code.type, codes[0].type):
                raise Fault(
                    f"the items of a list are of one type: this is {code.type.described}, "
                    f"the first is {codes[0].type.described}",
                    _start(item),
                )
        kind = list_of(codes[0].type if codes else None)
        if all(code.run is None for code in codes):
            return constant(kind, tuple(code.value for code in codes))
        runs = tuple(code.closure for code in codes)
        return Code(kind, lambda exchange: tuple([run(exchange) for run in runs]))

    def _unary(self, node: Unary) -> Code:
        if node.operator == "!":
            code = self.typed(node.operand, BOOL, 'what stands behind "!"')
            if code.run is None:
                return constant(BOOL, not code.value)
            run = code.run
            return Code(BOOL, lambda exchange: not run(exchange))
        code = self.value(node.operand)
        if code.type not in (INT, DOUBLE):
            raise Fault(
                f'what stands behind "-" must be an int or a double, this is {code.type.described}',
                _start(node.operand),
            )
        if code.run is None:
            if code.type == INT and code.value == -(1 << 63):
                raise Fault("the number does not fit into 64 bits", node.at)
            return constant(code.type, -code.value)
        run = code.run
        return Code(code.type, lambda exchange: -run(exchange))

    def _relation(self, node: Relation) -> Code:
        left, right = self.value(node.left), self.value(node.right)
        if not comparable(left.type, right.type):
            advice = ""
            if "null" in (left.type.name, right.type.name):
                advice = "; nothing is null here: what is missing is empty"
            raise Fault(
                f'"{node.operator}" cannot compare {left.type.described} with {right.type.described}{advice}', node.at
            )
        if node.operator not in ("==", "!=") and left.type not in ORDERED:
            raise Fault(f'"{node.operator}" needs numbers, strings or bools, this is {left.type.described}', node.at)
        return compare(node.operator, left, right)

    def _in(self, node: Relation) -> Code:
        left = self.value(node.left)
        table = self.entry(node.right)
        if isinstance(table, Table):
            if left.type != STRING:
                raise Fault(f"the keys of a map are strings, this is {left.type.described}", _start(node.left))
            try:
                return table.holds(left)
            except ValueError as error:
                raise Fault(str(error), _start(node.left)) from None
        right = self.value(node.right)
        if not is_list(right.type):
            advice = "; use .contains()" if right.type == STRING else ""
            raise Fault(f'"in" needs a list or a map on its right, this is {right.type.described}{advice}', node.at)
        element = right.type.element
        if element is not None and not comparable(left.type, element):
            raise Fault(f'"in": {left.type.described} is never in a {right.type}', node.at)
        return among(left, right)

    def _logic(self, node: Logic) -> Code:
        every = node.operator == "&&"
        codes = [self.typed(operand, BOOL, f'each side of "{node.operator}"') for operand in node.operands]
        if any(code.run is None and code.value is not every for code in codes):
            return constant(BOOL, not every)
        runs = tuple(code.run for code in codes if code.run is not None)
        if not runs:
            return constant(BOOL, every)
        return Code(BOOL, all_of(runs) if every else any_of(runs))

    def _choice(self, node: Choice) -> Code:
        test = self.typed(node.test, BOOL, 'what stands before "?"')
        yes, no = self.value(node.yes), self.value(node.no)
        if yes.type != no.type:
            raise Fault(
                f"both sides of a choice are of one type: {yes.type.described} and {no.type.described}", node.at
            )
        if test.run is None:
            return yes if test.value else no
        decide, left, right = test.run, yes.closure, no.closure
        return Code(
            yes.type,
            lambda exchange: left(exchange) if decide(exchange) else right(exchange),
            latin=yes.latin and no.latin,
        )

    def _function(self, node: Call) -> Code:
        if node.name == "size":
            self._arity(node, 1)
            return self._size(node, node.arguments[0])
        if node.name == "inCidr":
            self._arity(node, 2)
            return self._in_cidr(node)
        if node.name == "has":
            raise Fault("has() is not in the language; write 'name' in request.headers", node.at)
        if node.name in _STRING_METHODS:
            raise Fault(f"{node.name} is called on a string: request.path.{node.name}(…)", node.at)
        raise Fault(f'unknown function "{node.name}"; {hint(node.name, _FUNCTIONS)}', node.at)

    def _method(self, node: Call, of: Node) -> Code:
        if node.name in _MACROS:
            raise Fault(f"the macro {node.name}() is not in the language", node.at)
        if node.name == "size":
            self._arity(node, 0)
            return self._size(node, of)
        entry = self.entry(of)
        if node.name not in _STRING_METHODS:
            if isinstance(entry, Code) and entry.type == STRING:
                raise Fault(f'a string has no function "{node.name}"; {hint(node.name, _STRING_METHODS)}', node.at)
            if isinstance(entry, Code | Table):
                known = f"; {hint(node.name, ['size'])}" if _sized(entry) else ""
                raise Fault(f'{_described(entry)} has no function "{node.name}"{known}', node.at)
            raise Fault(f'{_spelled(of)} has no function "{node.name}"', node.at)
        text = self.value(of)
        if text.type != STRING:
            raise Fault(f".{node.name}() is called on strings, this is {text.type.described}", node.at)
        self._arity(node, 1)
        part = self.typed(node.arguments[0], STRING, f"the argument of {node.name}()")
        if node.name == "matches":
            return self._matches(node, text, part)
        return part_of(node.name, text, part)

    def _arity(self, node: Call, count: int) -> None:
        if len(node.arguments) != count:
            wanted = ("no arguments", "1 argument", "2 arguments")[count]
            raise Fault(f"{node.name}() takes {wanted}, not {len(node.arguments)}", node.at)

    def _size(self, node: Call, of: Node) -> Code:
        entry = self.entry(of)
        if isinstance(entry, Table):
            return entry.size()
        code = self.value(of)
        if not _sized(code):
            raise Fault(f"size() is of strings, lists and maps, this is {code.type.described}", node.at)
        if code.run is None:
            return constant(INT, len(code.value))
        run = code.raw or code.run
        return Code(INT, lambda exchange: len(run(exchange)))

    def _matches(self, node: Call, text: Code, pattern: Code) -> Code:
        at = _start(node.arguments[0])
        if pattern.run is not None:
            raise Fault("the pattern of matches() must be a constant", at)
        try:
            search = regex.compile(pattern.value).search
        except ConfigError as error:
            raise Fault(error.message, at) from None
        if text.run is None:
            return constant(BOOL, search(text.value) is not None)
        run = text.run
        return Code(BOOL, lambda exchange: search(run(exchange)) is not None)

    def _in_cidr(self, node: Call) -> Code:
        address = self.typed(node.arguments[0], STRING, "the first argument of inCidr()")
        network = self.typed(node.arguments[1], STRING, "the second argument of inCidr()")
        at = _start(node.arguments[1])
        if network.run is not None:
            raise Fault("the network of inCidr() must be a constant", at)
        try:
            inside = cidr.compile(network.value)
        except ConfigError as error:
            raise Fault(error.message, at) from None
        if address.run is None:
            return constant(BOOL, inside(address.value))
        run = address.run
        return Code(BOOL, lambda exchange: inside(run(exchange)))


def _sized(entry: Code | Table) -> bool:
    return not isinstance(entry, Code) or entry.type == STRING or is_list(entry.type)


def _described(entry: Code | Table) -> str:
    return entry.type.described if isinstance(entry, Code) else "a map"


def _call(name: str) -> str:
    return f"; call it: .{name}()" if name in _STRING_METHODS else ""


def _start(node: Node) -> int:
    """Where the text of a node begins."""
    while True:
        match node:
            case Member(of=of) | Index(of=of):
                node = of
            case Call(of=of) if of is not None:
                node = of
            case Relation(left=left):
                node = left
            case Logic(operands=operands):
                node = operands[0]
            case Choice(test=test):
                node = test
            case _:
                return node.at


def _spelled(node: Node) -> str:
    """A name as it was written."""
    if isinstance(node, Member):
        return f"{_spelled(node.of)}.{node.name}"
    return node.name if isinstance(node, Name) else "this"
