"""Quasi-affine index arithmetic: normal form, intervals, and proofs of index conditions.

An `Affine` is `const + sum(coefficient * atom)`. An atom is a variable, a floor division by a
positive constant, a remainder by a positive constant, or an integer that is read from a tensor
(`Datum`). Divisions round towards minus infinity, as in Python. Equal normal forms are equal
functions, but equal functions may have different ones.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from math import gcd
from typing import NamedTuple, TypeAlias, Union

# Thousands of intervals and indices are made for each candidate, so they have an `__init__` that
# stores fields in half the time of a frozen dataclass.


@dataclass(frozen=True, slots=True, init=False)
class Interval:
    """The integers `lo..hi`, both ends included; never empty."""

    lo: int
    hi: int

    def __init__(self, lo: int, hi: int) -> None:
        if lo > hi:
            raise ValueError(f"an interval needs lo <= hi, got {lo}..{hi}")
        _set_lo(self, lo)
        _set_hi(self, hi)

    @property
    def is_point(self) -> bool:
        return self.lo == self.hi


_set_lo, _set_hi = Interval.__dict__["lo"].__set__, Interval.__dict__["hi"].__set__

Ranges: TypeAlias = Mapping[str, Interval]
"""The range of each variable, by name."""


class Var(NamedTuple):
    """A variable. Python hashes and compares a tuple in a quarter of the time of a dataclass."""

    name: str

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True)
class FloorDiv:
    """`numerator // divisor`, with divisor > 1."""

    numerator: Affine
    divisor: int

    def __str__(self) -> str:
        return f"{_parenthesised(self.numerator)}//{self.divisor}"


@dataclass(frozen=True, slots=True)
class Mod:
    """`numerator % divisor`, with divisor > 1; the result is in 0..divisor-1."""

    numerator: Affine
    divisor: int

    def __str__(self) -> str:
        return f"{_parenthesised(self.numerator)}%{self.divisor}"


class Datum(ABC):
    """An integer in 0..extent-1 that is known only when data is read; `scalar.py` has its class.

    Nothing is known about it except its range and the variables on which it depends. Proofs that
    use only these two hold for every content of the tensors.
    """

    __slots__ = ()
    extent: int

    @abstractmethod
    def vars(self) -> frozenset[str]:
        """Return the names of the variables on which the integer depends."""

    @abstractmethod
    def map_index(self, change: Callable[[Affine], Affine]) -> Datum:
        """Return the datum with `change` applied to every index in it."""


Atom: TypeAlias = Var | FloorDiv | Mod | Datum
IndexLike: TypeAlias = Union["Affine", Var, int]


@dataclass(frozen=True, slots=True, init=False)
class Affine:
    """The index `const + sum(c * atom for atom, c in terms)`. Terms are sorted by text, and no
    coefficient is zero.

    Use `affine`, `var` and the operators to build an `Affine`: they preserve the normal form.
    """

    terms: tuple[tuple[Atom, int], ...]
    const: int

    def __init__(self, terms: tuple[tuple[Atom, int], ...], const: int) -> None:
        _set_terms(self, terms)
        _set_const(self, const)

    def __add__(self, other: IndexLike) -> Affine:
        other = affine(other)
        if not other.terms:
            return Affine(self.terms, self.const + other.const) if other.const else self
        if not self.terms:
            return Affine(other.terms, self.const + other.const) if self.const else other
        total = dict(self.terms)
        for atom, coefficient in other.terms:
            total[atom] = total.get(atom, 0) + coefficient
        return _from_terms(total, self.const + other.const)

    __radd__ = __add__

    def __sub__(self, other: IndexLike) -> Affine:
        other = affine(other)
        if not other.terms:
            return Affine(self.terms, self.const - other.const) if other.const else self
        total = dict(self.terms)
        for atom, coefficient in other.terms:
            total[atom] = total.get(atom, 0) - coefficient
        return _from_terms(total, self.const - other.const)

    def minus_var(self, name: str) -> Affine:
        """Return the index minus the variable `name`."""
        for n, (atom, c) in enumerate(self.terms):
            if isinstance(atom, Var) and atom.name == name:
                rest = ((atom, c - 1),) if c != 1 else ()
                return Affine((*self.terms[:n], *rest, *self.terms[n + 1 :]), self.const)
        return self - var(name)

    def __rsub__(self, other: IndexLike) -> Affine:
        return affine(other) - self

    def __neg__(self) -> Affine:
        return self * -1

    def __mul__(self, factor: int) -> Affine:
        if not isinstance(factor, int):
            return NotImplemented
        if factor == 0:
            return ZERO
        if factor == 1:
            return self
        return Affine(tuple([(a, c * factor) for a, c in self.terms]), self.const * factor)

    __rmul__ = __mul__

    def __floordiv__(self, divisor: int) -> Affine:
        return floor_div(self, divisor)

    def __mod__(self, divisor: int) -> Affine:
        return modulo(self, divisor)

    def __str__(self) -> str:
        return _text(self)

    @property
    def is_const(self) -> bool:
        return not self.terms

    def coefficient(self, name: str) -> int:
        """Return the coefficient of the variable `name` outside divisions and remainders."""
        for atom, c in self.terms:
            if isinstance(atom, Var) and atom.name == name:
                return c
        return 0

    def vars(self) -> frozenset[str]:
        """Return the names of all variables, including those inside divisions, remainders and
        data."""
        names = []
        for atom, _ in self.terms:  # cheaper than hashing `self` for the cache of `_vars`
            if not isinstance(atom, Var):
                return _vars(self)
            names.append(atom.name)
        return frozenset(names)

    def mentions(self, name: str) -> bool:
        """Return whether the variable `name` occurs, also inside divisions, remainders and
        data."""
        for atom, _ in self.terms:
            if atom.name == name if isinstance(atom, Var) else _is_inside(name, atom):
                return True
        return False

    def is_linear_in(self, name: str) -> bool:
        """Return whether `name` occurs only as a plain variable, never inside `//`, `%` or
        data."""
        return all(isinstance(atom, Var) or not _is_inside(name, atom) for atom, _ in self.terms)

    @property
    def has_data(self) -> bool:
        """Whether the value depends on data, also inside divisions and remainders."""
        return any(
            not isinstance(atom, Var) and (isinstance(atom, Datum) or atom.numerator.has_data)
            for atom, _ in self.terms
        )

    def substitute(self, mapping: Mapping[str, Affine]) -> Affine:
        """Return the index with all variables in `mapping` replaced simultaneously."""
        if not any(_mentions(atom, mapping) for atom, _ in self.terms):
            return self
        total: dict[Atom, int] = {}
        const = self.const
        for atom, c in self.terms:
            match atom:
                case Var(name):
                    replaced = mapping.get(name)
                    if replaced is None:
                        total[atom] = total.get(atom, 0) + c
                        continue
                case FloorDiv(numerator, divisor):
                    replaced = floor_div(numerator.substitute(mapping), divisor)
                case Mod(numerator, divisor):
                    replaced = modulo(numerator.substitute(mapping), divisor)
                case Datum():
                    inside = atom.map_index(lambda i: i.substitute(mapping))
                    replaced = Affine(((inside, 1),), 0)
            const += c * replaced.const
            for inner, inner_c in replaced.terms:
                total[inner] = total.get(inner, 0) + c * inner_c
        return _from_terms(total, const)

    def evaluate(self, env: Mapping[str, int]) -> int:
        """Return the value of the index if the variables have the values in `env`, integers or
        arrays of one shape. Raise KeyError if it depends on data: see `without_data`."""
        total = self.const
        for atom, c in self.terms:
            match atom:
                case Var(name):
                    total = total + c * env[name]
                case FloorDiv(numerator, divisor):
                    total = total + c * (numerator.evaluate(env) // divisor)
                case Mod(numerator, divisor):
                    total = total + c * (numerator.evaluate(env) % divisor)
                case Datum():
                    raise KeyError(str(atom))
        return total

    def data(self) -> tuple[Datum, ...]:
        """Return the data in the index, also inside divisions and remainders."""
        found: list[Datum] = []
        for atom, _ in self.terms:
            if isinstance(atom, Datum):
                found.append(atom)
            elif not isinstance(atom, Var):
                found += atom.numerator.data()
        return tuple(dict.fromkeys(found))

    def replace_data(self, change: Callable[[Datum], Affine]) -> Affine:
        """Return the index with each datum replaced by the result of `change`."""
        if not self.has_data:
            return self
        total = affine(self.const)
        for atom, c in self.terms:
            match atom:
                case Var():
                    term = affine(atom)
                case FloorDiv(numerator, divisor):
                    term = floor_div(numerator.replace_data(change), divisor)
                case Mod(numerator, divisor):
                    term = modulo(numerator.replace_data(change), divisor)
                case Datum():
                    term = change(atom)
            total = total + term * c
        return total


_set_terms, _set_const = Affine.__dict__["terms"].__set__, Affine.__dict__["const"].__set__

Index: TypeAlias = tuple[Affine, ...]
"""The index of a tensor element, with one entry per dimension."""

ZERO = Affine((), 0)


def affine(value: IndexLike) -> Affine:
    """Convert an integer, a variable or an `Affine` to an `Affine`."""
    if isinstance(value, Affine):
        return value
    if isinstance(value, Var):
        return Affine(((value, 1),), 0)
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"an index is an integer or an affine expression, got {value!r}")
    return Affine((), value)


def var(name: str) -> Affine:
    """Return the index that consists of the variable `name` only."""
    return Affine(((Var(name), 1),), 0)


def floor_div(numerator: Affine, divisor: int) -> Affine:
    """Return `numerator // divisor` in normal form. Multiples of the divisor are moved out of the
    division."""
    if divisor < 1:
        raise ValueError(f"division needs a divisor >= 1, got {divisor}")
    if divisor == 1:
        return numerator
    whole = tuple((a, c // divisor) for a, c in numerator.terms if c % divisor == 0)
    rest = tuple((a, c) for a, c in numerator.terms if c % divisor)
    quotient, remainder = divmod(numerator.const, divisor)
    outside = Affine(whole, quotient)
    if not rest:
        return outside
    # (g*x + r) // (g*d) == (x + r // g) // d for every integer x: common factors cancel.
    common = gcd(divisor, *(c for _, c in rest))
    inner = Affine(tuple((a, c // common) for a, c in rest), remainder // common)
    divisor //= common
    if divisor == 1:
        return outside + inner
    if not inner.const and len(inner.terms) == 1 and inner.terms[0][1] == 1:
        atom = inner.terms[0][0]
        if isinstance(atom, FloorDiv):  # (x // a) // b == x // (a * b)
            return outside + floor_div(atom.numerator, atom.divisor * divisor)
        if isinstance(atom, Mod) and atom.divisor <= divisor:
            return outside
    return outside + Affine(((FloorDiv(inner, divisor), 1),), 0)


def modulo(numerator: Affine, divisor: int) -> Affine:
    """Return `numerator % divisor` in normal form. Multiples of the divisor are removed."""
    if divisor < 1:
        raise ValueError(f"a remainder needs a divisor >= 1, got {divisor}")
    if divisor == 1:
        return ZERO
    rest = tuple((a, c % divisor) for a, c in numerator.terms if c % divisor)
    inner = Affine(rest, numerator.const % divisor)
    if not rest:
        return inner
    common = gcd(divisor, *(c for _, c in rest))
    if common > 1 and inner.const % common == 0:
        reduced = Affine(tuple((a, c // common) for a, c in rest), inner.const // common)
        return modulo(reduced, divisor // common) * common
    if not inner.const and len(rest) == 1 and rest[0][1] == 1:
        atom = rest[0][0]
        if isinstance(atom, Mod) and atom.divisor % divisor == 0:
            return modulo(atom.numerator, divisor)
        if isinstance(atom, Mod) and atom.divisor <= divisor:
            return inner
    return Affine(((Mod(inner, divisor), 1),), 0)


def interval(index: Affine, ranges: Ranges) -> Interval:
    """Return an interval that contains all values of `index` over `ranges`. It is exact for sums of
    plain variables."""
    lo = hi = index.const
    for atom, c in index.terms:
        bounds = _atom_interval(atom, ranges)
        low, high = (bounds.lo, bounds.hi) if c > 0 else (bounds.hi, bounds.lo)
        lo += c * low
        hi += c * high
    return Interval(lo, hi)


def _atom_interval(atom: Atom, ranges: Ranges) -> Interval:
    match atom:
        case Var(name):
            return ranges[name]
        case FloorDiv(numerator, divisor):
            inner = interval(numerator, ranges)
            return Interval(inner.lo // divisor, inner.hi // divisor)
        case Mod(numerator, divisor):
            inner = interval(numerator, ranges)
            if inner.lo // divisor == inner.hi // divisor:
                return Interval(inner.lo % divisor, inner.hi % divisor)
            return Interval(0, divisor - 1)
        case Datum():
            return Interval(0, atom.extent - 1)


def simplify(index: Affine, ranges: Ranges) -> Affine:
    """Return an index that is equal to `index` over `ranges`, and simpler if possible.

    Divisions and remainders are removed if `ranges` determine their results. Variables with a
    single value become constants.
    """
    for atom, _ in index.terms:
        if _simplifies(atom, ranges):
            break
    else:
        return index
    total = affine(index.const)
    for atom, c in index.terms:
        total = total + _simplify_atom(atom, ranges) * c
    return total


def _simplifies(atom: Atom, ranges: Ranges) -> bool:
    """Return whether `_simplify_atom` may return an index other than `atom`."""
    if type(atom) is not Var:
        return True
    bounds = ranges.get(atom.name)
    return bounds is not None and bounds.lo == bounds.hi


def _simplify_atom(atom: Atom, ranges: Ranges) -> Affine:
    if isinstance(atom, Var):
        bounds = ranges.get(atom.name)
        return affine(bounds.lo) if bounds is not None and bounds.is_point else affine(atom)
    if isinstance(atom, Datum):
        if atom.extent == 1:
            return ZERO
        return Affine(((atom.map_index(lambda i: simplify(i, ranges)), 1),), 0)
    numerator = simplify(atom.numerator, ranges)
    divisor = atom.divisor
    bounds = interval(numerator, ranges)
    quotient = bounds.lo // divisor
    if quotient == bounds.hi // divisor:
        return affine(quotient) if isinstance(atom, FloorDiv) else numerator - quotient * divisor
    # numerator = step*x + r, step divides the divisor and 0 <= r < step: r cannot carry.
    for step in sorted({gcd(c, divisor) for _, c in numerator.terms} - {1}, reverse=True):
        coarse, fine = split_by_step(numerator, step)
        fine_bounds = interval(fine, ranges)
        if coarse.terms and fine_bounds.lo >= 0 and fine_bounds.hi < step:
            if isinstance(atom, FloorDiv):
                return floor_div(coarse, divisor // step)
            return modulo(coarse, divisor // step) * step + fine
    return (
        floor_div(numerator, divisor) if isinstance(atom, FloorDiv) else modulo(numerator, divisor)
    )


def split_by_step(index: Affine, step: int) -> tuple[Affine, Affine]:
    """Return `(coarse, fine)` with `index == step * coarse + fine`. `fine` has the terms whose
    coefficients `step` does not divide, and the remainder of the constant."""
    quotient, remainder = divmod(index.const, step)
    coarse = Affine(tuple((a, c // step) for a, c in index.terms if c % step == 0), quotient)
    fine = Affine(tuple((a, c) for a, c in index.terms if c % step), remainder)
    return coarse, fine


def atoms_in(index: Affine) -> int:
    """Return the number of variables, divisions and remainders in `index`, nested ones included."""
    inside = (atom.numerator for atom, _ in index.terms if isinstance(atom, FloorDiv | Mod))
    return len(index.terms) + sum(map(atoms_in, inside))


def fresh(name: str, taken: frozenset[str] | set[str]) -> str:
    """Return `name` if it is not in `taken`, else `name` with the smallest unused number from 1."""
    if name not in taken:
        return name
    number = 1
    while f"{name}{number}" in taken:
        number += 1
    return f"{name}{number}"


def _mentions(atom: Atom, mapping: Mapping[str, Affine]) -> bool:
    if isinstance(atom, Var):
        return atom.name in mapping
    return not mapping.keys().isdisjoint(vars_inside(atom))


def vars_inside(atom: FloorDiv | Mod | Datum) -> frozenset[str]:
    """Return the names of the variables in a quotient, a remainder or a datum."""
    return atom.vars() if isinstance(atom, Datum) else _vars(atom.numerator)


def _is_inside(name: str, atom: FloorDiv | Mod | Datum) -> bool:
    return name in atom.vars() if isinstance(atom, Datum) else atom.numerator.mentions(name)


def _from_terms(total: Mapping[Atom, int], const: int) -> Affine:
    kept = [(a, c) for a, c in total.items() if c]
    if len(kept) > 1:
        kept.sort(key=_term_key)
    return Affine(tuple(kept), const)


def _term_key(term: tuple[Atom, int]) -> tuple[int, str]:
    atom = term[0]
    return (0, atom.name) if isinstance(atom, Var) else (1, _atom_text(atom))


@lru_cache(maxsize=65536)
def _atom_text(atom: FloorDiv | Mod | Datum) -> str:
    return str(atom)


@lru_cache(maxsize=65536)
def _vars(index: Affine) -> frozenset[str]:
    return frozenset(_each_var(index))


def _each_var(index: Affine) -> Iterator[str]:
    for atom, _ in index.terms:
        if isinstance(atom, Var):
            yield atom.name
        else:
            yield from vars_inside(atom)


@lru_cache(maxsize=65536)
def _text(index: Affine) -> str:
    parts: list[str] = []
    for atom, c in index.terms:
        sign = "-" if c < 0 else "+"
        # Without parentheses, `2*i//3` and `-i//3` mean (2*i)//3 and (-i)//3.
        tight = isinstance(atom, Var) or (abs(c) == 1 and (c == 1 or bool(parts)))
        name = str(atom) if tight else f"({atom})"
        body = name if abs(c) == 1 else f"{abs(c)}*{name}"
        parts.append(f" {sign} {body}" if parts else ("-" + body if c < 0 else body))
    if index.const or not parts:
        if parts:
            parts.append(f" {'-' if index.const < 0 else '+'} {abs(index.const)}")
        else:
            parts.append(str(index.const))
    return "".join(parts)


def _parenthesised(index: Affine) -> str:
    simple = len(index.terms) == 1 and not index.const and index.terms[0][1] == 1
    return str(index) if simple else f"({index})"


def recombine(index: Affine) -> Affine:
    """Return `index` with quotients and remainders of the same expression combined again.

    `n*(x // n) + x % n` becomes `x`, and `n*((a + x // n) % m) + x % n` becomes `(n*a + x) %
    (n*m)`. The same is done for multiples of these sums. Flattening the index of a fused loop
    produces such sums.
    """
    changed = True
    while changed:
        changed = False
        for atom, c in index.terms:
            better = _recombined(index, atom, c)
            if better is not None:
                index, changed = better, True
                break
    return index


def _recombined(index: Affine, atom: Atom, c: int) -> Affine | None:
    if isinstance(atom, FloorDiv):
        whole, divisor = atom.numerator, atom.divisor
    elif isinstance(atom, Mod):
        # `floor_div` moves multiples of the divisor out of the quotient, so (a + x // n) % m is
        # the normal form of ((n*a + x) // n) % m.
        quotients = [a for a, k in atom.numerator.terms if isinstance(a, FloorDiv) and k == 1]
        if len(quotients) != 1:
            return None
        (inner,) = quotients
        divisor = inner.divisor
        others = atom.numerator - Affine(((inner, 1),), 0)
        whole = modulo(others * divisor + inner.numerator, divisor * atom.divisor)
    else:
        return None
    if c % divisor:
        return None
    factor = c // divisor
    rest = modulo(whole, divisor) * factor
    candidate = index - Affine(((atom, c),), 0) - rest + whole * factor
    return candidate if _divisions(candidate) < _divisions(index) else None


def _divisions(index: Affine) -> int:
    return sum(1 for atom, _ in index.terms if not isinstance(atom, Var))
