"""Indices that are data: integers that are read, saturated to a dimension, and used as indices.

An integer that is equal in all lanes becomes an index variable in a register, computed outside as
many loops as possible. So the read of a whole row is a read of vectors. An integer that differs
between lanes becomes a vector of positions, at which `gathers.py` loads.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tilewright.schedules.algebra.affine import Affine, Datum, Index, var
from tilewright.schedules.algebra.scalar import Clamped, Load, data_of
from tilewright.schedules.dtypes import DType

from .gathers import Position
from .indices import Indices
from .module import ModuleText
from .text import FunctionText
from .values import Val, literal, suffix


@dataclass(frozen=True, slots=True)
class KnownIndex:
    """An index whose data are replaced by index variables."""

    index: Index
    lanes: dict[str, Position]
    """The variables that differ between lanes, with their values."""


class DataIndices:
    """A writer of the data in the indices of one function."""

    def __init__(self, text: FunctionText, indices: Indices, module: ModuleText) -> None:
        self.text = text
        self.indices = indices
        self.module = module
        self._replaced: dict[tuple[int, tuple[str, ...]], tuple[Load, Index]] = {}

    def known(self, load: Load, position: Callable[[Clamped], Position]) -> KnownIndex:
        """Return the index of `load` without data. `position` writes one integer: an i64 if it is
        equal in all lanes, else a vector or one i64 register per lane."""
        data = data_of(load)
        lanes: dict[str, Position] = {}
        names: tuple[str, ...] = ()
        for datum in data:
            found = position(datum)
            registers = (found.name,) if isinstance(found, Val) else found
            names = (*names, registers[0])
            if isinstance(found, Val) and found.lanes == 1:
                continue
            for register in registers:
                self.indices.bind_position(register, self.text.depth, datum.extent)
            lanes[registers[0]] = found
        key = (id(load), names)
        if key not in self._replaced:
            named: dict[Datum, str] = dict(zip(data, names, strict=True))

            def variable(datum: Datum) -> Affine:
                return var(named[datum])

            # The load is kept because its identity is part of the key.
            self._replaced[key] = load, tuple(i.replace_data(variable) for i in load.index)
        return KnownIndex(self._replaced[key][1], lanes)

    def clamped(self, value: Val, extent: int) -> Val:
        """Return `value` saturated to 0..extent-1: an i64, or its own type if it is a vector."""
        memo = self.text.levels[-1].loaded_from("clamped")
        key = (value.name, extent)
        if key not in memo:
            low = self._limited("smax", value, 0)
            found = self._limited("smin", low, extent - 1)
            if found.lanes == 1:
                if found.dtype is not DType.I64:
                    wide = self.text.assign(f"zext {found.typed} to i64", "x")
                    found = Val(wide, DType.I64)
                self.indices.bind_position(found.name, self.text.depth, extent)
            memo[key] = found
        return memo[key]

    def _limited(self, name: str, x: Val, bound: int) -> Val:
        function = self.module.intrinsic(
            f"llvm.{name}.{suffix(x.dtype, x.lanes)}", x.type, (x.type, x.type)
        )
        limit = literal(bound, x.dtype, x.lanes)
        text = f"call {x.type} {function}({x.typed}, {limit.typed})"
        return Val(self.text.assign(text, "x"), x.dtype, x.lanes)
