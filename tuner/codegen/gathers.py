"""Gathers: loads whose index has data that differ between lanes.

Where the data can select only a few elements, whole vectors are loaded, and the elements of the
lanes are selected in registers:

- The elements of all lanes are within a few vectors, as in a table: instructions that permute
  vectors look them up.
- Few rows, each read in vectors, as in a pyramid of few intensities: each row is loaded, and
  comparisons of the integer select its lanes.

Otherwise, elements are loaded one by one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from math import prod
from typing import TypeAlias

from tilewright.schedules.algebra.affine import Affine, affine, interval, var
from tilewright.schedules.dtypes import DType

from ..isa import x86
from .addresses import Array
from .array_loads import ArrayLoads
from .indices import VectorAxis
from .values import Val, literal, type_text

MOST_TABLES = 4
"""Most vectors that are permuted for one gather."""

Position: TypeAlias = Val | tuple[str, ...]
"""An integer that differs between lanes: a vector, or an i64 register for each lane."""


@dataclass(frozen=True, slots=True)
class _Reach:
    """The elements that the lanes of a gather may read: `first + away[lane]` + those that data
    add."""

    first: Affine
    away: tuple[int, ...]
    added: int
    """The largest number that data add."""

    @property
    def start(self) -> Affine:
        return self.first + min(self.away)

    @property
    def span(self) -> int:
        """The number of elements from the first to the last one."""
        return max(self.away) - min(self.away) + self.added + 1


class Gathers(ArrayLoads):
    """A writer of loads, including gathers."""

    def gather(
        self,
        place: Array,
        offset: Affine,
        dtype: DType,
        axis: VectorAxis,
        lanes: Mapping[str, Position],
        where: Val | None,
    ) -> Val:
        """Load one element per lane. `lanes` has the variables of `offset` that differ between
        lanes, besides `axis`, with their values. `where` is as in `ArrayLoads`."""
        vectors = {name: found for name, found in lanes.items() if isinstance(found, Val)}
        if len(vectors) == len(lanes):
            found = self._looked_up(place, offset, dtype, axis, vectors)
            if found is not None:
                return self._only(where, found)
            found = self._selected(place, offset, dtype, axis, vectors, where)
            if found is not None:
                return found
        registers = {
            name: self._apart(found) if isinstance(found, Val) else found
            for name, found in lanes.items()
        }
        return self.one_by_one(place, offset, dtype, axis, registers, where)

    def _looked_up(
        self,
        place: Array,
        offset: Affine,
        dtype: DType,
        axis: VectorAxis,
        lanes: Mapping[str, Val],
    ) -> Val | None:
        """Look up the elements in vectors that contain all that data may select, or return None if
        these are too many, or if the target has no such instruction."""
        count = axis.lanes
        if dtype.bytes != 4 or count not in x86.PERMUTE:
            return None
        if not all(offset.is_linear_in(name) and offset.coefficient(name) > 0 for name in lanes):
            return None  # a table with another layout, or read from its end
        reach = self._reach(offset, axis, lanes)
        if count > self.module.instructions.table_floats or reach is None:
            return None
        tables = -(-reach.span // count)
        if tables > MOST_TABLES:
            return None
        at = self._start(place, reach, tables * count)
        if at is None:
            return None
        moved = reach.start - at
        position = self._position(offset, reach, lanes, moved.const)
        vector = type_text(DType.F32, count)
        loaded: list[str] = []
        for n in range(tables):
            one = self._load_whole(place, at + n * count, dtype, count, None)
            as_float = self.text.assign(f"bitcast {one.typed} to {vector}", "l")
            loaded.append(as_float)
        found = Val(self._lookup(loaded, position), DType.F32, count)
        if dtype is DType.F32:
            return found
        result = self.text.assign(f"bitcast {found.typed} to {type_text(dtype, count)}", "l")
        return Val(result, dtype, count)

    def _reach(self, offset: Affine, axis: VectorAxis, lanes: Mapping[str, Val]) -> _Reach | None:
        """Return the elements that a gather may read, or None if the distances between lanes
        vary."""
        fixed = offset.substitute({name: affine(0) for name in lanes})
        first = self.lane(fixed, axis, 0)
        away = self.distances(fixed, axis)
        if away is None:
            return None
        added = sum(offset.coefficient(name) * self.indices.ranges[name].hi for name in lanes)
        return _Reach(first, away, added)

    def _start(self, place: Array, reach: _Reach, elements: int) -> Affine | None:
        """Return where so many elements around those of `reach` begin, all inside the array, or
        None."""
        for start in (reach.start, reach.start - (elements - reach.span)):
            found = interval(start, self.indices.ranges)
            if found.lo >= 0 and found.hi + elements <= place.buffer.elements:
                return start
        return None

    def _position(self, offset: Affine, reach: _Reach, lanes: Mapping[str, Val], moved: int) -> Val:
        """Return the number of each lane's element in the vectors, as an i32."""
        count = len(reach.away)
        numbers = ", ".join(f"i32 {n - min(reach.away) + moved}" for n in reach.away)
        total = Val(f"<{numbers}>", DType.I32, count)
        for name, value in lanes.items():
            term = self._narrow(value)
            factor = literal(offset.coefficient(name), DType.I32, count)
            term = self._op("mul", term, factor)
            total = self._op("add", term, total)
        return total

    def _narrow(self, value: Val) -> Val:
        if value.dtype is DType.I32:
            return value
        kind = type_text(DType.I32, value.lanes)
        return Val(self.text.assign(f"trunc {value.typed} to {kind}", "x"), DType.I32, value.lanes)

    def _compared(self, test: str, a: Val, b: Val) -> Val:
        return self._op(f"icmp {test}", a, b)._replace(dtype=DType.BOOL)

    def _op(self, op: str, a: Val, b: Val) -> Val:
        """Return the result of an instruction, written once for all gathers of a block."""
        memo = self.text.levels[-1].loaded_from("lane positions")
        key = (op, a.name, b.name)
        if key not in memo:
            memo[key] = Val(self.text.assign(f"{op} {a.typed}, {b.name}", "x"), a.dtype, a.lanes)
        return memo[key]

    def _lookup(self, tables: Sequence[str], position: Val) -> str:
        """Return the elements at `position` in the concatenation of `tables`."""
        count = position.lanes
        vector = type_text(DType.F32, count)
        pair = x86.PERMUTE_PAIR.get(count)
        size = 2 if pair and len(tables) > 1 else 1
        result = ""
        for n in range(0, len(tables), size):
            if pair and n + 1 < len(tables) and size > 1:
                kinds = (vector, position.type, vector)
                function = self.module.intrinsic(pair, vector, kinds)
                arguments = f"{vector} {tables[n]}, {position.typed}, {vector} {tables[n + 1]}"
            else:
                function = self.module.intrinsic(
                    x86.PERMUTE[count], vector, (vector, position.type)
                )
                arguments = f"{vector} {tables[n]}, {position.typed}"
            found = self.text.assign(f"call {vector} {function}({arguments})", "l")
            if n:
                limit = literal(n * count, DType.I32, count)
                beyond = self._compared("sge", position, limit)
                text = f"select {beyond.typed}, {vector} {found}, {vector} {result}"
                found = self.text.assign(text, "l")
            result = found
        return result

    def _selected(
        self,
        place: Array,
        offset: Affine,
        dtype: DType,
        axis: VectorAxis,
        lanes: Mapping[str, Val],
        where: Val | None,
    ) -> Val | None:
        """Load the vector for each value of the data, and select from them. Return None if there
        are more values than lanes, or if vectors cannot be loaded."""
        values = [self.indices.ranges[name].hi + 1 for name in lanes]
        if prod(values) > axis.lanes:
            return None
        result: Val | None = None
        for number in range(prod(values)):
            left, chosen = number, dict[str, int]()
            for name, extent in zip(lanes, values, strict=True):
                left, chosen[name] = divmod(left, extent)
            at = offset.substitute({name: affine(n) for name, n in chosen.items()})
            row = self._row(place, at, dtype, axis, where)
            if row is None:
                if result is None:
                    return None
                row = self._gather(place, at, dtype, axis, where)
            if result is not None:
                equal = (
                    self._compared("eq", lanes[name], literal(n, lanes[name].dtype, axis.lanes))
                    for name, n in chosen.items()
                )
                is_here = reduce(self._both, equal)
                text = f"select {is_here.typed}, {row.typed}, {result.typed}"
                row = Val(self.text.assign(text, "l"), dtype, axis.lanes)
            result = row
        return result

    def _both(self, a: Val, b: Val) -> Val:
        return self._op("and", a, b)

    def _row(
        self, place: Array, at: Affine, dtype: DType, axis: VectorAxis, where: Val | None
    ) -> Val | None:
        """Load the elements of all lanes in vectors, or return None."""
        if at.mentions(axis.var):
            return self.in_vectors(place, at, dtype, axis, where)
        one = self.one(place, at, dtype, where)
        vector = type_text(dtype, axis.lanes)
        first = self.text.assign(f"insertelement {vector} poison, {one.typed}, i64 0", "b")
        text = f"shufflevector {vector} {first}, {vector} poison, <{axis.lanes} x i32>"
        every = Val(self.text.assign(f"{text} zeroinitializer", "b"), dtype, axis.lanes)
        return self._only(where, every)

    def _only(self, where: Val | None, found: Val) -> Val:
        """Return `found` in lanes in which `where` is true, and zero in the others."""
        if where is None:
            return found
        zero = literal(0, found.dtype, found.lanes)
        text = f"select {where.typed}, {found.typed}, {zero.typed}"
        return Val(self.text.assign(text, "l"), found.dtype, found.lanes)

    def one_by_one(
        self,
        place: Array,
        offset: Affine,
        dtype: DType,
        axis: VectorAxis,
        lanes: Mapping[str, Sequence[str]],
        where: Val | None,
    ) -> Val:
        """Load the elements of the lanes one by one."""
        vector, text = type_text(dtype, axis.lanes), self.text
        result = "poison"
        for lane in range(axis.lanes):
            at = {name: var(each[lane]) for name, each in lanes.items()}
            place_of = self.lane(offset.substitute(at), axis, lane)
            pointer = self.pointer(place, place_of)
            if where is not None:
                pointer = self._redirect(pointer, self._mask_bit(where, lane))
            found = f"{type_text(dtype, 1)} {self._load_at(pointer, dtype)}"
            result = text.assign(f"insertelement {vector} {result}, {found}, i64 {lane}", "l")
        return Val(result, dtype, axis.lanes)

    def _apart(self, values: Val) -> tuple[str, ...]:
        """Return the lanes of a vector of positions as i64 registers."""
        memo = self.text.levels[-1].loaded_from("lanes")
        most = self.indices.ranges[values.name].hi
        registers: list[str] = []
        for lane in range(values.lanes):
            key = (values.name, lane)
            if key not in memo:
                one = self.text.assign(f"extractelement {values.typed}, i64 {lane}", "x")
                if values.dtype is not DType.I64:
                    one = self.text.assign(f"zext {values.dtype.llvm} {one} to i64", "x")
                memo[key] = Val(one, DType.I64)
            register = memo[key].name
            self.indices.bind_position(register, self.text.depth, most + 1)
            registers.append(register)
        return tuple(registers)
