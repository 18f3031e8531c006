"""NumPy's einsum and matrix product as sums of products."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from math import prod

from ...algebra.scalar import BinaryOp, Reducer
from ...errors import WorkloadError
from ...limits import MAX_DIMS
from ..expr_core import Expr, arithmetic, shown
from .node import ORIGIN, Indices, Node, Read, is_costly, stand_in
from .reductions import reduction
from .shapes import broadcast, check_rank


def einsum(subscripts: object, operands: Sequence[Node]) -> Node:
    """Return the sum of products that `subscripts` describe. Raise WorkloadError if they are not
    those of NumPy's einsum or do not fit the operands.

    Three or more operands are multiplied pair by pair if that takes fewer multiplications than one
    sum over all of them.
    """
    terms, output = _parsed(subscripts, operands)
    factors = [_Factor(tuple(t), x) for t, x in zip(terms, operands, strict=True)]
    pairs = _pairwise(terms, output, _extents(terms, operands))
    for first, second in pairs:
        left, right = factors[first], factors[second]
        rest = [x for n, x in enumerate(factors) if n not in (first, second)]
        kept = _kept(left.term, right.term, [x.term for x in rest], output)
        # "costly" makes it a stage, although a product of two elements is not
        product = replace(_sum_of_products([left, right], kept), costly=True)
        factors = [*rest, _Factor(kept, product)]
    return _sum_of_products(factors, output)


@dataclass(frozen=True)
class _Factor:
    """An operand with one label per dimension."""

    term: tuple[str, ...]
    node: Node


def _kept(
    left: Sequence[str],
    right: Sequence[str],
    others: Sequence[Sequence[str]],
    output: Sequence[str],
) -> tuple[str, ...]:
    """Return the labels of the product of two factors that `others` or the output use."""
    used = {*output, *(label for term in others for label in term)}
    return tuple(label for label in dict.fromkeys((*left, *right)) if label in used)


def _pairwise(
    terms: Sequence[Sequence[str]], output: Sequence[str], extents: Mapping[str, int]
) -> list[tuple[int, int]]:
    """Return the positions of the factors of all products but the last, each of the two factors
    whose product takes the fewest multiplications. A product follows the factors that are left.
    Return nothing if one sum over all factors takes no more multiplications."""

    def points(labels: Iterable[str]) -> int:
        return prod(extents[label] for label in set(labels))

    left, found, total = [tuple(term) for term in terms], list[tuple[int, int]](), 0
    while len(left) > 2:
        pairs = combinations(range(len(left)), 2)
        pair = min(pairs, key=lambda p: points((*left[p[0]], *left[p[1]])))
        total += points(left[pair[0]] + left[pair[1]])
        rest = [term for n, term in enumerate(left) if n not in pair]
        left = [*rest, _kept(left[pair[0]], left[pair[1]], rest, output)]
        if len(left[-1]) > MAX_DIMS:
            return []
        found.append(pair)
    total += points(label for term in left for label in term)
    whole = (len(terms) - 1) * points(label for term in terms for label in term)
    return found if total < whole else []


def _sum_of_products(factors: Sequence[_Factor], output: Sequence[str]) -> Node:
    """Return the sum of the products of all factors over the labels that `output` does not have."""
    terms, operands = [x.term for x in factors], [x.node for x in factors]
    extents = _extents(terms, operands)
    shape = tuple(extents[label] for label in output)
    check_rank(shape)
    over = [label for label in extents if label not in output]

    def product(of: Sequence[Expr]) -> Expr:
        found, *others = of
        for factor in others:
            found = arithmetic(BinaryOp.MUL, found, factor)
        return found

    def value(index: Indices, sums: Indices, read: Read) -> Expr:
        entries = dict(zip((*output, *over), (*index, *sums), strict=True))
        return product([
            read(n, tuple(
                ORIGIN if extent < extents[label] else entries[label]
                for label, extent in zip(term, n.shape, strict=True)
            ))
            for term, n in zip(terms, operands, strict=True)
        ])  # fmt: skip

    sample = product([stand_in(n.dtype) for n in operands])
    inserted = frozenset(
        n for n, label in enumerate(output)
        if all(_inserts(label, term, x) for term, x in zip(terms, operands, strict=True))
    )  # fmt: skip
    if over:
        return reduction(
            Reducer.SUM, shape, [extents[label] for label in over], value, tuple(operands),
            inserted=inserted, sample=sample,
        )  # fmt: skip
    return Node(
        shape=shape, dtype=sample.dtype, operands=tuple(operands), label="einsum",
        element=lambda index, read: value(index, (), read), inserted=inserted,
        costly=is_costly(sample.node),
        rearranges=len(operands) == 1 and len(set(terms[0])) == len(terms[0]),
    )  # fmt: skip


def matmul(a: Node, b: Node) -> Node:
    """Return the matrix product by NumPy's rules for 1, 2 and more dimensions."""
    if not a.shape or not b.shape:
        raise WorkloadError(
            f"{a.shape} @ {b.shape}: a matrix product needs at least one dimension on each side",
            code="bad_rank",
        )
    inner = a.shape[-1], b.shape[-2:][0]
    if inner[0] != inner[1]:
        raise WorkloadError(
            f"{a.shape} @ {b.shape}: the last extent on the left, {inner[0]}, must be equal to the"
            f" {'last but one' if len(b.shape) > 1 else 'last'} on the right, {inner[1]}",
            code="shape_clash",
        )
    left, right = "ik"[-len(a.shape) :], "kj"[: len(b.shape)]
    result = left.replace("k", "") + right.replace("k", "")
    return einsum(f"...{left},...{right}->...{result}", (a, b))


def _inserts(label: str, term: Sequence[str], x: Node) -> bool:
    return all(dim in x.inserted for dim, found in enumerate(term) if found == label)


@dataclass(frozen=True)
class _Term:
    """The labels of one operand before and after `...`; `rest` is None without `...`."""

    first: str
    rest: str | None

    @property
    def letters(self) -> str:
        return self.first + (self.rest or "")


def _parsed(subscripts: object, operands: Sequence[Node]) -> tuple[list[list[str]], list[str]]:
    """Return one label per dimension of each operand and of the result. A label of a dimension
    below `...` is its position from the last one, as text."""
    if not isinstance(subscripts, str):
        raise WorkloadError(
            f'einsum takes subscripts such as "ik,kj->ij" first, got {shown(subscripts)}',
            code="bad_syntax",
        )
    text = subscripts.replace(" ", "")
    left, arrow, right = text.partition("->")
    parts = [_term(part, text) for part in left.split(",")]
    if len(parts) != len(operands):
        raise WorkloadError(
            f"einsum {text!r} has {len(parts)} operands, got {len(operands)}", code="bad_syntax"
        )
    below = 0
    terms: list[list[str]] = []
    for number, (part, x) in enumerate(zip(parts, operands, strict=True)):
        dots = len(x.shape) - len(part.letters)
        if dots < 0 or (dots and part.rest is None):
            raise WorkloadError(
                f"einsum {text!r}: operand {number} has {len(x.shape)} dimensions {x.shape}, its"
                f" subscripts name {len(part.letters)}"
                + ("" if part.rest is None else " besides ..."),
                code="bad_rank",
            )
        terms.append([*part.first, *_dots(dots), *(part.rest or "")])
        below = max(below, dots)
    letters = "".join(part.letters for part in parts)
    if not arrow:
        once = sorted(c for c in set(letters) if letters.count(c) == 1)
        return terms, [*_dots(below), *once]
    output = _term(right, text)
    for n, letter in enumerate(output.letters):
        if letter not in letters:
            raise _wrong(text, f"the output has {letter!r}, which no operand has")
        if letter in output.letters[:n]:
            raise _wrong(text, f"the output has {letter!r} twice")
    if below and output.rest is None:
        raise _wrong(text, "the output needs ... for the dimensions below ... of the operands")
    dots = below if output.rest is not None else 0
    return terms, [*output.first, *_dots(dots), *(output.rest or "")]


def _term(part: str, text: str) -> _Term:
    first, dots, rest = part.partition("...")
    for letter in first + rest:
        if not (letter.isascii() and letter.isalpha()):
            raise _wrong(text, f"{letter!r} is no subscript; subscripts are the letters a..z, A..Z")
    return _Term(first, rest if dots else None)


def _wrong(text: str, what: str) -> WorkloadError:
    return WorkloadError(f"einsum {text!r}: {what}", code="bad_syntax")


def _dots(count: int) -> list[str]:
    return [str(n) for n in reversed(range(count))]


def _extents(terms: Sequence[Sequence[str]], operands: Sequence[Node]) -> dict[str, int]:
    """Return the extent of each label, in order of appearance. Dimensions of extent 1 are
    broadcast."""
    found: dict[str, int] = {}
    for term, x in zip(terms, operands, strict=True):
        for label, extent in zip(term, x.shape, strict=True):
            before = found.setdefault(label, extent)
            if 1 in (before, extent):
                found[label] = max(before, extent)
            elif before != extent:
                if label.isdigit():  # raises the error of shapes that do not broadcast
                    broadcast([n.shape for n in operands])
                raise WorkloadError(
                    f"einsum: subscript {label!r} has the extents {before} and {extent} in the"
                    f" shapes {', '.join(str(n.shape) for n in operands)}",
                    code="shape_clash",
                )
    return found
