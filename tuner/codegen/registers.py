"""Small arrays in registers: stack slots that LLVM promotes to values."""

from __future__ import annotations

from dataclasses import dataclass, field

from tilewright.schedules.algebra.affine import Affine
from tilewright.schedules.nest.loop_ir import Buffer

from .indices import VectorAxis
from .text import FunctionText
from .transposing import Transposed
from .values import Val, type_text


@dataclass(slots=True)
class Registers:
    """A small array in slots of `lanes` elements. Slot n has elements n * lanes to (n + 1) * lanes
    - 1."""

    buffer: Buffer
    lanes: int
    slots: dict[int, str] = field(default_factory=dict)


class RegisterAccess:
    """A writer of loads and stores of register arrays in one function. All indices are constants,
    because loops over register arrays are unrolled."""

    def __init__(self, text: FunctionText) -> None:
        self.text = text

    def load(self, place: Registers, offset: Affine, axis: VectorAxis | None) -> Val:
        """Load the element at `offset`, or one element per lane of `axis`. The stride of the lanes
        must be 1 or a multiple of `place.lanes`."""
        dtype, lanes = place.buffer.dtype, place.lanes
        if axis is not None:
            step = offset.coefficient(axis.var)
            if step > 1:
                return self._load_transposed(place, offset.const, step // lanes, axis.lanes)
            start = offset.minus_var(axis.var).const
            slot = self._slot(place, start // lanes)
            name = self.text.assign(f"load {type_text(dtype, lanes)}, ptr {slot}, align 64", "r")
            return Val(name, dtype, lanes)
        assert offset.is_const, "register buffers are indexed by constants once unrolled"
        number, lane = divmod(offset.const, lanes)
        slot = self._slot(place, number)
        name = self.text.assign(f"load {type_text(dtype, lanes)}, ptr {slot}, align 64", "r")
        if lanes == 1:
            return Val(name, dtype)
        vector = Val(name, dtype, lanes)
        return Val(self.text.assign(f"extractelement {vector.typed}, i64 {lane}", "r"), dtype)

    def _load_transposed(self, place: Registers, start: int, step: int, count: int) -> Val:
        """Load the same lane of `count` slots whose numbers differ by `step`, as one vector. The
        slots are the rows of a block, which is transposed once. The result is one of its
        columns."""
        first, lane = divmod(start, place.lanes)
        numbers = tuple(range(first, first + step * count, step))
        blocks = self.text.levels[-1].transposed
        key = (place.buffer.name, numbers)
        if key not in blocks:
            vector = type_text(place.buffer.dtype, place.lanes)
            rows = [
                self.text.assign(f"load {vector}, ptr {self._slot(place, n)}, align 64", "r")
                for n in numbers
            ]
            values = [Val(row, place.buffer.dtype, place.lanes) for row in rows]
            blocks[key] = Transposed(self.text.assign, values)
        return blocks[key].column(lane)

    def store(
        self,
        place: Registers,
        offset: Affine,
        value: Val,
        axis: VectorAxis | None,
        where: Val | None,
    ) -> None:
        """Store the element at `offset`, or one element per lane of `axis`. Lanes in which
        the mask `where` is false keep their old value."""
        dtype, lanes = place.buffer.dtype, place.lanes
        vector = type_text(dtype, lanes)
        if axis is not None:
            start = offset.minus_var(axis.var).const
            slot = self._slot(place, start // lanes)
            if where is not None:
                old = self.text.assign(f"load {vector}, ptr {slot}, align 64", "r")
                mask = where.typed
                chosen = self.text.assign(f"select {mask}, {value.typed}, {vector} {old}", "r")
                value = Val(chosen, dtype, lanes)
            self.text.add(f"  store {value.typed}, ptr {slot}, align 64")
            return
        assert offset.is_const, "register buffers are indexed by constants once unrolled"
        assert where is None
        number, lane = divmod(offset.const, lanes)
        slot = self._slot(place, number)
        if lanes > 1:
            old = self.text.assign(f"load {vector}, ptr {slot}, align 64", "r")
            name = self.text.assign(f"insertelement {vector} {old}, {value.typed}, i64 {lane}", "r")
            value = Val(name, dtype, lanes)
        self.text.add(f"  store {value.typed}, ptr {slot}, align 64")

    def _slot(self, place: Registers, number: int) -> str:
        if number not in place.slots:
            type_ = type_text(place.buffer.dtype, place.lanes)
            place.slots[number] = self.text.alloca(type_, 64)
        return place.slots[number]
