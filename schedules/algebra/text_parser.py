"""Parser of index notation: text to a syntax tree with positions (grammar: `docs/workload.md`).

The parser checks neither tensors nor types. `notation.py` evaluates the tree, and `index_text.py`
uses the same syntax for the indices of JSON documents.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import NoReturn, TypeAlias, assert_never

from ..errors import WorkloadError
from ..limits import MAX_BODY_DEPTH
from .balance import balanced_sum

MAX_TEXT = 1 << 14
_MAX_NUMBER = 40
_TOKEN = re.compile(
    r"\s*(?:(?P<number>(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)|(?P<name>[A-Za-z_][A-Za-z0-9_]*)"
    r"|(?P<symbol>//|\*\*|<=|>=|==|!=|&&|\|\||\+=|\*=|<<|>>|[-+*/%()\[\],;<>=!&|^~])|(?P<end>\Z)"
    r"|(?P<bad>.))",
    re.DOTALL | re.ASCII,
)
_WORDS = {"and": "&&", "or": "||", "not": "!"}
_COMPARISONS = frozenset({"<", "<=", ">", ">=", "==", "!="})
_PRECEDENCE = {
    "||": 1, "&&": 2, **dict.fromkeys(_COMPARISONS, 3), "|": 4, "^": 5, "&": 6, "<<": 7, ">>": 7,
    "+": 8, "-": 8, "*": 9, "/": 9, "//": 9, "%": 9, "**": 11,
}  # fmt: skip
"""The precedences of Python."""

_AFTER_NOT, _AFTER_MINUS = 3, 10
_SIGNS = {"+": 1, "-": -1}


@dataclass(frozen=True, slots=True)
class Number:
    value: int | float
    pos: int
    depth: int = 1


@dataclass(frozen=True, slots=True)
class Name:
    """An index variable or a named constant."""

    name: str
    pos: int
    depth: int = 1


@dataclass(frozen=True, slots=True)
class Ref:
    """A tensor element: `name[args]`."""

    name: str
    args: tuple[Tree, ...]
    pos: int
    depth: int


@dataclass(frozen=True, slots=True)
class Call:
    """A function call: `name(args)`."""

    name: str
    args: tuple[Tree, ...]
    pos: int
    depth: int


@dataclass(frozen=True, slots=True)
class Prefix:
    """A prefix operation: `-x`, `!x` or `~x`."""

    op: str
    x: Tree
    pos: int
    depth: int


@dataclass(frozen=True, slots=True)
class Infix:
    op: str
    a: Tree
    b: Tree
    pos: int
    depth: int


Tree: TypeAlias = Number | Name | Ref | Call | Prefix | Infix


class AssignmentOp(StrEnum):
    """The operator of a statement. It determines how several values for one element are
    combined."""

    STORE = "="
    SUM = "+="
    PROD = "*="
    MAX = "max="
    MIN = "min="


@dataclass(frozen=True, slots=True)
class AssignmentTree:
    """A statement, such as `target = value` or `target += value`."""

    target: Ref
    operator: AssignmentOp
    value: Tree


@dataclass(frozen=True, slots=True)
class _Token:
    kind: str
    text: str
    pos: int


def syntax_error(text: str, pos: int, message: str, code: str = "bad_syntax") -> WorkloadError:
    """Return an error whose message shows the line at position `pos` of `text`, with a caret under
    the position."""
    start = text.rfind("\n", 0, pos) + 1
    stop = text.find("\n", pos)
    line = text[start : stop if stop >= 0 else len(text)]
    column = pos - start
    cut = 0 if column < 60 else column - 40
    shown = line[cut : cut + 80]
    caret = " " * (column - cut) + "^"
    return WorkloadError(f"{message}\n  {shown}\n  {caret}", code=code)


def tokens(text: str) -> list[_Token]:
    """Return the tokens of `text`; the last one has the kind "end"."""
    if len(text) > MAX_TEXT:
        raise WorkloadError(
            f"the text has {len(text)} characters, at most {MAX_TEXT} are allowed",
            code="too_large",
        )
    found: list[_Token] = []
    position = 0
    while not found or found[-1].kind != "end":
        match = _TOKEN.match(text, position)
        assert match is not None
        assert match.lastgroup is not None
        kind, start = match.lastgroup, match.start(match.lastgroup)
        token = match[kind]
        if kind == "bad":
            raise syntax_error(text, start, f"unexpected character {token!r}")
        if kind == "name" and token in _WORDS:
            kind, token = "symbol", _WORDS[token]
        if len(token) > 64 or (kind == "number" and len(token) > _MAX_NUMBER):
            raise syntax_error(text, start, f"a {kind} of {len(token)} characters is too long")
        found.append(_Token(kind, token, start))
        position = match.end()
    return found


def parse_program(text: str) -> list[AssignmentTree]:
    """Parse the statements of `text`, of which there must be at least one."""
    parser = _Parser(text)
    statements: list[AssignmentTree] = []
    while not parser.at("end"):
        if parser.take(";"):
            continue
        statements.append(parser.statement())
        if not parser.at("end"):
            parser.expect(";")
    if not statements:
        raise syntax_error(text, 0, "nothing is computed; write a statement such as C[i] = A[i]")
    return statements


def parse_expression(text: str) -> Tree:
    """Parse `text` as a single expression."""
    parser = _Parser(text)
    tree = parser.expression()
    if not parser.at("end"):
        parser.fail("the end")
    return tree


class _Parser:
    """A recursive-descent parser with operator precedence. A limit on nesting protects the
    stack."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = tokens(text)
        self._next = 0
        self._nesting = 0

    @property
    def _token(self) -> _Token:
        return self._tokens[self._next]

    def at(self, what: str) -> bool:
        """Return whether the next token is the symbol `what` or has the kind `what`."""
        token = self._token
        return token.kind == what or (token.kind == "symbol" and token.text == what)

    def take(self, symbol: str) -> bool:
        if not self.at(symbol):
            return False
        self._next += 1
        return True

    def expect(self, what: str) -> _Token:
        if not self.at(what):
            self.fail({"name": "a name"}.get(what, f"'{what}'"))
        self._next += 1
        return self._tokens[self._next - 1]

    def fail(self, wanted: str) -> NoReturn:
        token = self._token
        found = "the end" if token.kind == "end" else f"'{token.text}'"
        raise syntax_error(self._text, token.pos, f"expected {wanted}, found {found}")

    def statement(self) -> AssignmentTree:
        name = self.expect("name")
        if self.at("(") or self.at("end"):
            self.fail("'[' or an assignment")
        args = self._arguments("]") if self.take("[") else ()
        target = Ref(name.text, args, name.pos, self._depth(name.pos, *args))
        return AssignmentTree(target, self._assignment(), self.expression())

    def _assignment(self) -> AssignmentOp:
        token = self._token
        if token.kind == "name" and token.text in ("max", "min"):
            self._next += 1
            self.expect("=")
            return AssignmentOp(f"{token.text}=")
        if token.text not in ("=", "+=", "*="):
            self.fail("'=', '+=', '*=', 'max=' or 'min='")
        self._next += 1
        return AssignmentOp(token.text)

    def expression(self, lowest: int = 1) -> Tree:
        self._nesting += 1
        if self._nesting > MAX_BODY_DEPTH:
            raise syntax_error(
                self._text, self._token.pos, f"nested more than {MAX_BODY_DEPTH} levels", "too_deep"
            )
        tree, compared = self._operand(), None
        while (precedence := self._precedence()) >= lowest:
            token = self._token
            self._next += 1
            associates_right = token.text == "**"
            right = self.expression(precedence if associates_right else precedence + 1)
            if compared is not None and token.text in _COMPARISONS:
                # 0 <= i < n: the middle operand is compared with both others.
                more = self._infix(token, compared, right)
                depth = self._depth(token.pos, tree, more)
                tree = Infix("&&", tree, more, token.pos, depth)
            else:
                tree = self._infix(token, tree, right)
            compared = right if token.text in _COMPARISONS else None
        self._nesting -= 1
        return tree

    def _precedence(self) -> int:
        token = self._token
        return _PRECEDENCE.get(token.text, 0) if token.kind == "symbol" else 0

    def _infix(self, token: _Token, a: Tree, b: Tree) -> Tree:
        if token.text in _SIGNS and max(a.depth, b.depth) >= MAX_BODY_DEPTH:
            return self._balanced([*_signed_terms(a), (_SIGNS[token.text], b)], token.pos)
        return Infix(token.text, a, b, token.pos, self._depth(token.pos, a, b))

    def _balanced(self, terms: list[tuple[int, Tree]], pos: int) -> Tree:
        def joined(op: str) -> Callable[[Tree, Tree], Tree]:
            return lambda a, b: Infix(op, a, b, pos, self._depth(pos, a, b))

        return balanced_sum(terms, joined("+"), joined("-"))

    def _operand(self) -> Tree:
        token = self._token
        if self.take("-"):
            x = self.expression(_AFTER_MINUS)
            if isinstance(x, Number):
                return Number(-x.value, token.pos)
            return Prefix("-", x, token.pos, self._depth(token.pos, x))
        if self.take("!"):
            x = self.expression(_AFTER_NOT)
            return Prefix("!", x, token.pos, self._depth(token.pos, x))
        if self.take("~"):
            x = self.expression(_AFTER_MINUS)
            if isinstance(x, Number) and isinstance(x.value, int):
                return Number(~x.value, token.pos)
            return Prefix("~", x, token.pos, self._depth(token.pos, x))
        if self.take("+"):
            return self.expression(_AFTER_MINUS)
        if self.take("("):
            tree = self.expression()
            self.expect(")")
            return tree
        if token.kind == "number":
            self._next += 1
            return Number(self._number(token), token.pos)
        if token.kind != "name":
            self.fail("a value")
        self._next += 1
        for opening, closing, kind in (("[", "]", Ref), ("(", ")", Call)):
            if self.take(opening):
                args = self._arguments(closing)
                return kind(token.text, args, token.pos, self._depth(token.pos, *args))
        return Name(token.text, token.pos)

    def _number(self, token: _Token) -> int | float:
        if token.text.isdigit():
            return int(token.text)
        value = float(token.text)
        if math.isinf(value):
            raise syntax_error(self._text, token.pos, f"{token.text} is beyond the range of f64")
        return value

    def _arguments(self, closing: str) -> tuple[Tree, ...]:
        args: list[Tree] = []
        if self.take(closing):
            return ()
        while True:
            args.append(self.expression())
            if self.take(closing):
                return tuple(args)
            if not self.take(","):
                self.fail(f"',' or '{closing}'")

    def _depth(self, pos: int, *parts: Tree) -> int:
        depth = 1 + max((p.depth for p in parts), default=0)
        if depth > MAX_BODY_DEPTH:
            raise syntax_error(
                self._text,
                pos,
                f"an expression may be {MAX_BODY_DEPTH} levels deep; use several statements",
                "too_deep",
            )
        return depth


def _signed_terms(tree: Tree) -> list[tuple[int, Tree]]:
    """Return the terms of a chain of additions and subtractions, in order, with their signs."""
    terms: list[tuple[int, Tree]] = []
    while isinstance(tree, Infix) and tree.op in _SIGNS:
        terms.append((_SIGNS[tree.op], tree.b))
        tree = tree.a
    return [(1, tree), *reversed(terms)]


def references(tree: Tree) -> Iterator[Ref]:
    """Yield every read of a tensor element in `tree`, in the order of the text."""
    match tree:
        case Ref(_, args) | Call(_, args):
            if isinstance(tree, Ref):
                yield tree
            for arg in args:
                yield from references(arg)
        case Prefix(_, x):
            yield from references(x)
        case Infix(_, a, b):
            yield from references(a)
            yield from references(b)
        case Number() | Name():
            return
        case _:
            assert_never(tree)
