"""How far apart the elements are that neighbours along a loop access: the strides of vectors, and
the reads whose lanes are selected from whole vectors."""

from __future__ import annotations

from math import prod

from ...algebra.affine import (
    Affine,
    Datum,
    FloorDiv,
    Mod,
    Var,
    affine,
    recombine,
    vars_inside,
)
from ...leaves import MAX_LANE_STRIDE

WINDOW = 16
"""Neighbours of which few elements are counted: the lanes of a wide vector."""

TABLE_ELEMENTS = 4 * WINDOW
"""Most elements, of those that data may select for the lanes of a vector, that are looked up in
registers."""

Index = tuple[Affine, ...]


def element_step(shape: tuple[int, ...], index: Index, loop: str) -> int | None:
    """Return the distance in elements between neighbours along `loop` in a dense array. Return None
    if it is not constant because an index divides the loop."""
    if all(i.is_linear_in(loop) for i in index):
        return _along(loop, index, shape)
    total = recombine(_flat(index, shape))
    return total.coefficient(loop) if total.is_linear_in(loop) else None


def lane_step(shape: tuple[int, ...], index: Index, loop: str) -> int | None:
    """Return `element_step`. If data select one of a few rows, return the distance within a row,
    because every row is loaded."""
    return element_step(shape, _in_row(index), loop)


def is_near(shape: tuple[int, ...], index: Index, loop: str) -> bool:
    """Return whether neighbours along `loop` are within a few vectors but not contiguous. Their
    stride is small, each element is repeated a few times in a row, neighbours exchange places, or
    data select elements of a small table."""
    if any(i.has_data for i in index) and _is_table(shape, index, loop):
        return True
    index = _in_row(index)
    step = element_step(shape, index, loop)
    if step is not None:
        return 2 <= abs(step) <= MAX_LANE_STRIDE
    *outer, last = index
    if any(loop in i.vars() for i in outer):
        return False
    divided = _divisions(last, loop)
    if divided is None or not all(_is_small(atom) for atom in divided):
        return False
    found = _distances(shape, index, loop)
    return max(found) - min(found) < WINDOW


def _is_table(shape: tuple[int, ...], index: Index, loop: str) -> bool:
    """Return whether the lanes along `loop` and the data select among few elements."""
    data = {atom for i in index for atom, _ in i.terms if isinstance(atom, Datum)}
    fixed = tuple(i.replace_data(_first) for i in index)
    divided = [_divisions(i, loop) for i in fixed]
    if any(atoms is None for atoms in divided):
        return False
    if any(WINDOW % atom.divisor for atoms in divided for atom in atoms or ()):
        return False
    steps = (
        prod(shape[d + 1 :]) * (atom.extent - 1)
        for d, i in enumerate(index)
        for atom, _ in i.terms
        if atom in data and isinstance(atom, Datum)
    )
    found = _distances(shape, fixed, loop)
    return max(found) - min(found) + sum(steps) < TABLE_ELEMENTS


def _in_row(index: Index) -> Index:
    """Return the index within a row if data select one of a few rows, else `index`."""
    data = {atom for i in index for atom, _ in i.terms if isinstance(atom, Datum)}
    if not data or prod(atom.extent for atom in data) > WINDOW:
        return index
    return tuple(i.replace_data(_first) for i in index)


def _first(datum: Datum) -> Affine:
    return affine(0)


def _is_small(atom: FloorDiv | Mod) -> bool:
    """Return whether the lanes of any vector use the elements of a quotient or remainder in the
    same order."""
    is_power = atom.divisor & (atom.divisor - 1) == 0
    return atom.divisor <= MAX_LANE_STRIDE and (is_power or isinstance(atom, FloorDiv))


def _divisions(index: Affine, loop: str) -> list[FloorDiv | Mod] | None:
    """Return the quotients and remainders of `index` that contain `loop`. Return None if one of
    them is not of the loop itself plus other terms, or if the index depends on data."""
    found: list[FloorDiv | Mod] = []
    for atom, _ in index.terms:
        if isinstance(atom, Var) or loop not in vars_inside(atom):
            continue
        if isinstance(atom, Datum) or not atom.numerator.is_linear_in(loop):
            return None
        if abs(atom.numerator.coefficient(loop)) > atom.divisor:
            return None
        found.append(atom)
    return found


def _distances(shape: tuple[int, ...], index: Index, loop: str) -> list[int]:
    """Return the elements that the first `WINDOW` iterations of `loop` access, if all other loops
    are in their first iteration."""
    names = frozenset().union(*(i.vars() for i in index))
    first = {name: affine(0) for name in names}
    total = _flat(index, shape)
    return [total.substitute({**first, loop: affine(n)}).const for n in range(WINDOW)]


def _flat(index: Index, shape: tuple[int, ...]) -> Affine:
    sizes = (prod(shape[dim + 1 :]) for dim in range(len(shape)))
    return sum((i * size for i, size in zip(index, sizes, strict=True)), affine(0))


def _along(loop: str, index: Index, shape: tuple[int, ...]) -> int:
    sizes = (prod(shape[dim + 1 :]) for dim in range(len(shape)))
    return sum(i.coefficient(loop) * size for i, size in zip(index, sizes, strict=True))
