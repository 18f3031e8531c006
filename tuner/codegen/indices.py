"""Index arithmetic in generated code: scalars, addresses, lane conditions.

An index is computed at the nesting level (see `text`) of its deepest loop variable, outer terms
first, so that an inner loop adds only the terms that change in it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from tilewright.schedules.algebra.affine import (
    Affine,
    Atom,
    Datum,
    Interval,
    Mod,
    Var,
    interval,
    simplify,
    var,
)
from tilewright.schedules.algebra.comparisons import Cond, Ge0, prove
from tilewright.schedules.dtypes import DType

from .text import FunctionText
from .values import Val, lane_numbers, literal


class VectorAxis(NamedTuple):
    """The loop whose iterations are vector lanes."""

    var: str
    lanes: int


@dataclass(frozen=True, slots=True)
class _Parts:
    """The terms of an index, separated by whether their variable is unrolled.

    `Indices` caches these values by the identity of `index`, so each keeps `index` alive.
    """

    index: Affine
    moving: tuple[tuple[Atom, int], ...]
    """The terms whose variables are not unrolled."""
    unrolled: tuple[tuple[str, int], ...]
    """The unrolled variables, which are constants in each unrolled copy, with their
    coefficients."""
    divided: bool
    """Whether the index has a quotient or a remainder. Such an index is not separated into
    terms."""

    @classmethod
    def of(cls, index: Affine, unrolled: frozenset[str]) -> _Parts:
        if not all(isinstance(atom, Var) for atom, _ in index.terms):
            return cls(index, (), (), True)
        moving = tuple((a, c) for a, c in index.terms if str(a) not in unrolled)
        fixed = tuple((str(a), c) for a, c in index.terms if str(a) in unrolled)
        return cls(index, moving, fixed, False)


class Indices:
    """A writer of index arithmetic in one function. `ranges` has the bounds of every loop variable.

    In a *resolved* index, unrolled variables are replaced by their current values (see `fix`).
    """

    def __init__(
        self, text: FunctionText, ranges: Mapping[str, Interval], unrolled: frozenset[str]
    ) -> None:
        self.text = text
        self.unrolled = unrolled
        self._parts: dict[int, _Parts] = {}
        self.ranges: dict[str, Interval] = dict(ranges)
        self.fixed: dict[str, Affine] = {}
        self._variables: dict[str, tuple[str, int]] = {}
        self._positions: dict[str, int] = {}

    def bind(self, name: str, register: str, level: int) -> None:
        """Record that loop variable `name` is in `register`, defined at `level`."""
        self._variables[name] = (register, level)

    def bind_position(self, register: str, level: int, extent: int) -> Affine:
        """Return the integer 0..extent-1 in `register`, defined at `level`, as an index."""
        self._positions[register] = level
        self.ranges[register] = Interval(0, extent - 1)
        return var(register)

    def unbind(self, name: str) -> None:
        """Remove a loop variable whose loop is closed, because its register is no longer valid."""
        del self._variables[name]

    def bound(self) -> dict[str, tuple[str, int]]:
        """Return the register and nesting level of each variable of an open loop."""
        return self._variables

    def fix(self, name: str, value: int) -> None:
        """Set the current value of the unrolled variable `name`."""
        self.fixed[name] = Affine((), value)
        self.ranges[name] = Interval(value, value)

    def resolve(self, index: Affine) -> Affine:
        """Return `index` with unrolled variables replaced by their current values."""
        if not self.fixed:
            return index
        known = self._parts.get(id(index))
        if known is None:
            known = self._parts[id(index)] = _Parts.of(index, self.unrolled)
        if known.divided:
            if self.fixed.keys().isdisjoint(index.vars()):
                return index
            return simplify(index.substitute(self.fixed), self.ranges)
        if not known.unrolled:
            return index
        const = index.const
        for name, coefficient in known.unrolled:
            const += coefficient * self.fixed[name].const
        return Affine(known.moving, const)

    def level_of(self, index: Affine) -> int:
        """Return the outermost level at which `index` can be computed."""
        level = 0
        for atom, _ in index.terms:
            level = max(level, self._atom_level(atom))
        return level

    def scalar(self, index: Affine) -> Val:
        """Return the value of a resolved index as an i64."""
        if index.is_const:
            return literal(index.const, DType.I64)
        level = self.level_of(index)
        memo = self.text.levels[level].memo
        found = memo.get(index)
        if found is not None:
            return found
        inner = tuple((a, c) for a, c in index.terms if self._atom_level(a) == level)
        outer = Affine(tuple((a, c) for a, c in index.terms if (a, c) not in inner), index.const)
        total: Val | None = None if not outer.terms and not outer.const else self.scalar(outer)
        for atom, c in inner:
            term = self._atom(atom, level)
            if c != 1:
                term = self._op("mul", term, literal(c, DType.I64), level)
            total = term if total is None else self._op("add", total, term, level)
        assert total is not None
        memo[index] = total
        return total

    def _atom_level(self, atom: Atom) -> int:
        if isinstance(atom, Var):
            return self._variable(atom.name)[1]
        if isinstance(atom, Datum):
            return self.text.depth  # the data may be written in the loops around
        return self.level_of(atom.numerator)

    def _variable(self, name: str) -> tuple[str, int]:
        """Return the register and the level of a loop variable or a position."""
        level = self._positions.get(name)
        return self._variables[name] if level is None else (name, level)

    def _op(self, op: str, a: Val, b: Val, level: int) -> Val:
        return Val(self.text.assign(f"{op} i64 {a.name}, {b.name}", "x", level), DType.I64)

    def _atom(self, atom: Atom, level: int) -> Val:
        if isinstance(atom, Var):
            return Val(self._variable(atom.name)[0], DType.I64)
        assert not isinstance(atom, Datum), f"{atom} is read before its index is used"
        memo = self.text.levels[level].memo
        if atom in memo:
            return memo[atom]
        lowest = interval(atom.numerator, self.ranges).lo
        # Unsigned division rounds down. A shift makes the numerator non-negative.
        shift = 0 if lowest >= 0 else -(lowest // atom.divisor)
        numerator = self.scalar(atom.numerator + shift * atom.divisor)
        divisor = literal(atom.divisor, DType.I64)
        if isinstance(atom, Mod):
            result = self._op("urem", numerator, divisor, level)
        else:
            result = self._op("udiv", numerator, divisor, level)
            if shift:
                result = self._op("sub", result, literal(shift, DType.I64), level)
        memo[atom] = result
        return result

    def address(self, base: str, element_type: str, offset: Affine) -> str:
        """Return a pointer to element `offset` of the array at `base`. `offset` is a resolved
        index."""
        if not offset.terms and not offset.const:
            return base
        level = self.level_of(offset)
        memo = self.text.levels[level].memo
        key = (base, element_type, offset)  # private arrays of two types may share memory
        found = memo.get(key)
        if found is None:
            name = self._new_address(base, element_type, offset, level)
            found = memo[key] = Val(name, DType.I64)
        return found.name

    def _new_address(self, base: str, element_type: str, offset: Affine, level: int) -> str:
        """Write the address of element `offset`, from the address of its terms of outer levels."""
        if offset.const:
            start = self.address(base, element_type, Affine(offset.terms, 0))
            text = f"getelementptr {element_type}, ptr {start}, i64 {offset.const}"
            return self.text.assign(text, "p", level)
        inner = tuple((a, c) for a, c in offset.terms if self._atom_level(a) == level)
        outer = Affine(tuple((a, c) for a, c in offset.terms if (a, c) not in inner), 0)
        start = self.address(base, element_type, outer)
        step = self.scalar(Affine(inner, 0))
        return self.text.assign(
            f"getelementptr {element_type}, ptr {start}, i64 {step.name}", "p", level
        )

    def cond(self, cond: Cond, axis: VectorAxis | None) -> Val | bool:
        """Return the value of a resolved condition. It is a bool if the condition is constant, an
        i1 if it is equal for all lanes, otherwise an i1 per lane."""
        if axis is None or not cond.index.mentions(axis.var):
            known = prove(cond, self.ranges)
            return known if known is not None else self._scalar_cond(cond)
        known = prove(cond, {**self.ranges, axis.var: Interval(0, axis.lanes - 1)})
        if known is not None:
            return known
        return self._lane_cond(cond, axis)

    def _scalar_cond(self, cond: Cond) -> Val:
        level = self.level_of(cond.index)
        memo = self.text.levels[level].memo
        if cond in memo:
            return memo[cond]
        value = self.scalar(cond.index)
        test = "icmp sge" if isinstance(cond, Ge0) else "icmp eq"
        memo[cond] = Val(self.text.assign(f"{test} i64 {value.name}, 0", "c", level), DType.BOOL)
        return memo[cond]

    def _lane_cond(self, cond: Cond, axis: VectorAxis) -> Val:
        lanes = axis.lanes
        step = cond.index.coefficient(axis.var)
        if not cond.index.is_linear_in(axis.var):
            return self._lane_by_lane(cond, axis)
        base = Affine(
            tuple((a, c) for a, c in cond.index.terms if a != Var(axis.var)), cond.index.const
        )
        if base.is_const:
            bits = [
                base.const + step * lane >= 0
                if isinstance(cond, Ge0)
                else base.const + step * lane == 0
                for lane in range(lanes)
            ]
            text = ", ".join(f"i1 {'true' if b else 'false'}" for b in bits)
            never = frozenset(lane for lane in range(lanes) if not bits[lane])
            return Val(f"<{text}>", DType.BOOL, lanes, never)
        level = self.level_of(base)
        memo = self.text.levels[level].memo
        key = (cond, lanes)
        if key in memo:
            return memo[key]
        # Far from zero only the sign matters. Therefore the base is clamped, to fit into 32 bits.
        limit = abs(step) * lanes + 1
        value = self.scalar(base).name
        for bound, name in ((-limit, "smax"), (limit, "smin")):
            value = self.text.assign(
                f"call i64 @llvm.{name}.i64(i64 {value}, i64 {bound})", "x", level
            )
        narrow = self.text.assign(f"trunc i64 {value} to i32", "x", level)
        vector = f"<{lanes} x i32>"
        one = self.text.assign(f"insertelement {vector} poison, i32 {narrow}, i64 0", "x", level)
        every = self.text.assign(
            f"shufflevector {vector} {one}, {vector} poison, {vector} zeroinitializer", "x", level
        )
        lane_steps = lane_numbers(DType.I32, lanes, step)
        total = self.text.assign(f"add {vector} {every}, {lane_steps}", "x", level)
        test = "sge" if isinstance(cond, Ge0) else "eq"
        mask = self.text.assign(f"icmp {test} {vector} {total}, zeroinitializer", "m", level)
        memo[key] = Val(mask, DType.BOOL, lanes)
        return memo[key]

    def _lane_by_lane(self, cond: Cond, axis: VectorAxis) -> Val:
        vector = f"<{axis.lanes} x i1>"
        mask = "poison"
        for lane in range(axis.lanes):
            index = simplify(cond.index.substitute({axis.var: Affine((), lane)}), self.ranges)
            bit = self.cond(type(cond)(index), None)
            name = bit.name if isinstance(bit, Val) else ("true" if bit else "false")
            mask = self.text.assign(f"insertelement {vector} {mask}, i1 {name}, i64 {lane}", "m")
        return Val(mask, DType.BOOL, axis.lanes)
