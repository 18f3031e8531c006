"""Indices and index conditions as text: "2*h + r - 1", "(oh - r)//2", "h >= 1", "j == i".

Parsing the text that `str` returns for an `Affine` or a condition gives the same value.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

from ..errors import WorkloadError
from ..limits import MAX_INDEX_CONST
from .affine import Affine, affine, var
from .comparisons import Cond, at_least, equal, less
from .text_parser import Infix, Name, Number, Prefix, Ref, Tree, parse_expression, syntax_error

_MAX_TEXT = 1000
_MAX_TERMS = 24


@lru_cache(maxsize=4096)
def parse_index(text: str) -> Affine:
    """Parse the affine index `text`; every name in it is a variable."""
    _check_length(text)
    return affine_of(parse_expression(text), text)


@lru_cache(maxsize=4096)
def parse_condition(text: str) -> Cond:
    """Parse the condition `text`, a comparison of two indices by `<`, `<=`, `>`, `>=` or `==`."""
    _check_length(text)
    tree = parse_expression(text)
    if isinstance(tree, Infix) and tree.op in _COMPARE:
        return _COMPARE[tree.op](affine_of(tree.a, text), affine_of(tree.b, text))
    raise syntax_error(
        text, tree.pos, "a condition compares two indices: h >= 1, i == j", "bad_index"
    )


def _check_length(text: str) -> None:
    if len(text) > _MAX_TEXT:
        raise WorkloadError(
            f"an index has at most {_MAX_TEXT} characters, this has {len(text)}", code="bad_index"
        )


_COMPARE: dict[str, Callable[[Affine, Affine], Cond]] = {
    "<": less,
    ">": lambda a, b: less(b, a),
    "<=": lambda a, b: at_least(b, a),
    ">=": at_least,
    "==": equal,
}


def affine_of(tree: Tree, text: str) -> Affine:
    """Convert `tree` to an index. Raise WorkloadError "bad_index" if it is not affine."""
    match tree:
        case Number(value) if isinstance(value, int) and abs(value) <= MAX_INDEX_CONST:
            return affine(value)
        case Number():
            raise syntax_error(
                text, tree.pos, f"an index has integers within +-{MAX_INDEX_CONST}", "bad_index"
            )
        case Name(name):
            return var(name)
        case Prefix("-", x):
            return _checked(-affine_of(x, text), tree, text)
        case Infix(op, a, b) if op in ("+", "-", "*", "//", "%"):
            return _checked(_combined(op, affine_of(a, text), affine_of(b, text), tree, text),
                            tree, text)  # fmt: skip
        case Ref(name):
            raise syntax_error(
                text,
                tree.pos,
                f"only the index of a read may be data, got {name}[...]: this one is made of index"
                " names and integers",
                "bad_index",
            )
        case _:
            raise syntax_error(
                text, tree.pos, "an index is made of variables, integers, + - * // %", "bad_index"
            )


def _combined(op: str, a: Affine, b: Affine, tree: Infix, text: str) -> Affine:
    if op == "+":
        return a + b
    if op == "-":
        return a - b
    if op == "*":
        if not a.is_const and not b.is_const:
            raise syntax_error(
                text, tree.pos, "the product of two index variables is not affine", "bad_index"
            )
        return a * b.const if b.is_const else b * a.const
    if not b.is_const or b.const < 1:
        raise syntax_error(
            text, tree.pos, f"{op} in an index needs a constant integer >= 1", "bad_index"
        )
    return a // b.const if op == "//" else a % b.const


def _checked(index: Affine, tree: Tree, text: str) -> Affine:
    if len(index.terms) > _MAX_TERMS:
        raise syntax_error(
            text, tree.pos, f"an index has at most {_MAX_TERMS} different terms", "bad_index"
        )
    numbers = (index.const, *(c for _, c in index.terms))
    if any(abs(n) > MAX_INDEX_CONST for n in numbers):
        raise syntax_error(
            text, tree.pos, f"numbers in an index must be within +-{MAX_INDEX_CONST}", "bad_index"
        )
    return index
