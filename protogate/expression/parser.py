"""
Tokens → tree, by recursive descent, with CEL's precedences::

    Expr     = Or ["?" Or ":" Expr]
    Or       = And {"||" And}
    And      = Relation {"&&" Relation}
    Relation = Unary {("==" | "!=" | "<" | "<=" | ">" | ">=" | "in") Unary}
    Unary    = "!" Unary | "-" Unary | Postfix
    Postfix  = Primary {"." name ["(" [Expr {","}] ")"] | "[" Expr "]"}
    Primary  = literal | name | name "(" … ")" | "[" [Expr {","}] "]" | "(" Expr ")"

What stands deeper than L{MAX_DEPTH} or is longer than L{MAX_LENGTH} is a fault, so nobody runs out of stack or time.
"""

from __future__ import annotations

from typing import Final

from protogate.expression.lexer import END, Token, tokens
from protogate.expression.tree import (
    MAX_DEPTH,
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
from protogate.expression.types import BOOL, DOUBLE, INT, NULL, STRING, UINT

MAX_LENGTH: Final = 16 * 1024
"""Characters of one expression."""

_RELATIONS: Final = frozenset({"==", "!=", "<", "<=", ">", ">=", "in"})
_ARITHMETIC: Final = frozenset({"+", "-", "*", "/", "%"})
_CONSTANTS: Final = {"true": (BOOL, True), "false": (BOOL, False), "null": (NULL, None)}
_WORDS: Final = {"and": "&&", "or": "||", "not": "!", "eq": "==", "is": "=="}
"""What other languages write."""


def parse(text: str, at: int = 0, end: str = END) -> tuple[Node, int]:
    """
    The expression that begins at offset C{at} and goes on to the token C{end}; and the offset behind that token.
    Raises L{Fault}.
    """
    parser = _Parser(text, at)
    if parser.token.kind == end:
        raise Fault("an expression is missing here", parser.token.at)
    node = parser.expression()
    token = parser.token
    if token.kind != end:
        raise parser.unexpected("" if end == END else f'expected "{end}"')
    return node, token.at + len(token.text)


def _deeper(at: int, *nodes: Node) -> int:
    """The depth of a node over these."""
    depth = 1 + max((node.depth for node in nodes), default=0)
    if depth > MAX_DEPTH:
        raise Fault(f"the expression is nested more than {MAX_DEPTH} deep", at)
    return depth


class _Parser:
    def __init__(self, text: str, at: int) -> None:
        self._tokens = tokens(text, at)
        self._start = at
        self._level = 0
        self.token = next(self._tokens)

    def _take(self) -> Token:
        token = self.token
        if token.at - self._start > MAX_LENGTH:
            raise Fault(f"the expression is longer than {MAX_LENGTH} characters", self._start)
        self.token = next(self._tokens)
        return token

    def _expect(self, kind: str, opened: Token) -> None:
        if self.token.kind == END:
            raise Fault(f'"{opened.text}" is never closed', opened.at)
        if self.token.kind != kind:
            raise self.unexpected(f'expected "{kind}"')
        self._take()

    def _enter(self) -> None:
        self._level += 1
        if self._level > MAX_DEPTH:
            raise Fault(f"the expression is nested more than {MAX_DEPTH} deep", self.token.at)

    def unexpected(self, wanted: str = "") -> Fault:
        """What is wrong with the token we stand at."""
        token = self.token
        if token.kind in _ARITHMETIC:
            return Fault(f'arithmetic is not in the language: "{token.text}"', token.at)
        if token.kind == "name" and token.text in _WORDS:
            return Fault(f'unexpected "{token.text}"; did you mean "{_WORDS[token.text]}"?', token.at)
        if token.kind == "?":
            return Fault('unexpected "?"; put a choice inside another one into parentheses', token.at)
        return Fault(f"{wanted}, got {token}" if wanted else f"unexpected {token}", token.at)

    def expression(self) -> Node:
        self._enter()
        node = self._logic("||")
        if self.token.kind == "?":
            at = self._take().at
            yes = self._logic("||")
            if self.token.kind != ":":
                raise self.unexpected('expected ":"')
            self._take()
            no = self.expression()
            node = Choice(at, _deeper(at, node, yes, no), node, yes, no)
        self._level -= 1
        return node

    def _logic(self, operator: str) -> Node:
        first = self._logic("&&") if operator == "||" else self._relation()
        if self.token.kind != operator:
            return first
        at = self.token.at
        operands = [first]
        while self.token.kind == operator:
            self._take()
            operands.append(self._logic("&&") if operator == "||" else self._relation())
        return Logic(at, _deeper(at, *operands), operator, tuple(operands))

    def _relation(self) -> Node:
        left = self._unary()
        while self.token.text in _RELATIONS and self.token.kind != "string":
            operator = self._take()
            right = self._unary()
            left = Relation(operator.at, _deeper(operator.at, left, right), operator.text, left, right)
        return left

    def _unary(self) -> Node:
        token = self.token
        if token.kind not in ("!", "-"):
            return self._postfix()
        self._take()
        if token.kind == "-" and self.token.kind in ("int", "double") and self.token.text[-1] not in "uU":
            number = self.token
            return self._after(self._number(self._take(), token.at, "-"), number)
        self._enter()
        operand = self._unary()
        self._level -= 1
        return Unary(token.at, _deeper(token.at, operand), token.kind, operand)

    def _postfix(self) -> Node:
        start = self.token
        return self._after(self._primary(), start)

    def _after(self, node: Node, start: Token) -> Node:
        """What follows a primary: members, calls and indexes."""
        while True:
            opened = self.token
            if opened.kind == ".":
                self._take()
                name = self._take()
                if name.kind != "name":
                    raise Fault(f'expected a name behind ".", got {name}', name.at)
                if self.token.kind == "(":
                    arguments = self._list("(", ")")
                    depth = _deeper(name.at, node, *arguments)
                    node = Call(name.at, depth, node, name.text, arguments)
                else:
                    node = Member(name.at, _deeper(name.at, node), node, name.text)
            elif opened.kind == "[":
                self._take()
                key = self.expression()
                self._expect("]", opened)
                node = Index(opened.at, _deeper(opened.at, node, key), node, key)
            elif opened.kind == "{" and start.kind == "name":
                raise Fault("messages and maps cannot be made here", opened.at)
            else:
                return node

    def _list(self, opening: str, closing: str) -> tuple[Node, ...]:
        opened = self._take()
        items: list[Node] = []
        while self.token.kind != closing:
            items.append(self.expression())
            if self.token.kind != ",":
                break
            self._take()
        self._expect(closing, opened)
        return tuple(items)

    def _primary(self) -> Node:  # noqa: PLR0911
        token = self.token
        match token.kind:
            case "string":
                self._take()
                return Literal(token.at, 1, STRING, token.text)
            case "int" | "double":
                return self._number(self._take(), token.at)
            case "[":
                items = self._list("[", "]")
                return Listing(token.at, _deeper(token.at, *items), items)
            case "(":
                self._take()
                node = self.expression()
                self._expect(")", token)
                return node
            case "{":
                raise Fault("messages and maps cannot be made here", token.at)
            case "name" if token.text not in _RELATIONS:
                self._take()
                if token.text in _CONSTANTS:
                    kind, value = _CONSTANTS[token.text]
                    return Literal(token.at, 1, kind, value)
                if self.token.kind == "(":
                    arguments = self._list("(", ")")
                    return Call(token.at, _deeper(token.at, *arguments), None, token.text, arguments)
                return Name(token.at, 1, token.text)
        raise self.unexpected("expected a value")

    @staticmethod
    def _number(token: Token, at: int, sign: str = "") -> Node:
        text = token.text
        if token.kind == "double":
            value = float(sign + text)
            if value in (float("inf"), float("-inf")):
                raise Fault(f"{sign}{text} is too large for a double", at)
            return Literal(at, 1, DOUBLE, value)
        unsigned = text[-1] in "uU"
        digits = text[:-1] if unsigned else text
        # Lengths are checked first: int() of a very long text is slow, and refused above 4300 digits.
        number = int(sign + digits, 16 if digits.startswith("0x") else 10) if len(digits) <= 64 else 1 << 64
        low, high = (0, (1 << 64) - 1) if unsigned else (-(1 << 63), (1 << 63) - 1)
        if not low <= number <= high:
            raise Fault(f"{sign}{text} does not fit into 64 bits", at)
        return Literal(at, 1, UINT if unsigned else INT, number)
