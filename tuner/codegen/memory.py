"""Loads and stores of a nest's buffers by name, in memory or in registers."""

from __future__ import annotations

from collections.abc import Mapping

from tilewright.schedules.algebra.affine import Affine, Var, interval
from tilewright.schedules.dtypes import DType
from tilewright.schedules.nest.loop_ir import Buffer

from .addresses import Array
from .array_stores import ArrayStores
from .gathers import Gathers, Position
from .indices import Indices, VectorAxis
from .module import ModuleText
from .registers import RegisterAccess, Registers
from .text import FunctionText
from .values import Val


class BufferAddresses:
    """A writer of loads and stores of all buffers in one function."""

    def __init__(self, text: FunctionText, indices: Indices, module: ModuleText) -> None:
        self.text = text
        self.indices = indices
        self.places: dict[str, Array | Registers] = {}
        self._registers = RegisterAccess(text)
        self._loads = Gathers(text, indices, module)
        self._stores = ArrayStores(text, indices, module)
        self._flat: dict[tuple[str, int], tuple[tuple[Affine, ...], Affine]] = {}

    def _offset(self, buffer: Buffer, index: tuple[Affine, ...]) -> Affine:
        """Return the element number of `index` in the current unrolled copy."""
        key = (buffer.name, id(index))
        flat = self._flat.get(key)
        if flat is None:
            flat = self._flat[key] = (index, buffer.flat_offset(index))
        return self.indices.resolve(flat[1])

    def load(
        self,
        tensor: str,
        index: tuple[Affine, ...],
        dtype: DType,
        axis: VectorAxis | None,
        where: Val | None,
    ) -> Val:
        """Load one element, or one per lane if the index depends on `axis`. In lanes in which
        `where` is false, no memory is accessed and the value is zero."""
        place = self.places[tensor]
        offset = self._offset(place.buffer, index)
        if axis is not None and not offset.mentions(axis.var):
            axis = None
        loaded = self.text.levels[-1].loaded_from(tensor)
        key = (offset, axis, where.name if where else None)
        found = loaded.get(key)
        if found is None:
            if isinstance(place, Registers):
                found = self._registers.load(place, offset, axis)
            elif axis is None:
                found = self._loads.one(place, offset, dtype, where)
            else:
                found = self._loads.lanes(place, offset, dtype, axis, where)
            loaded[key] = found
        return found

    def gather(
        self,
        tensor: str,
        index: tuple[Affine, ...],
        dtype: DType,
        axis: VectorAxis,
        lanes: Mapping[str, Position],
        where: Val | None,
    ) -> Val:
        """Load one element per lane of `axis` if the variables `lanes` of `index` differ between
        lanes. `where` is as in `load`."""
        place = self.places[tensor]
        assert isinstance(place, Array), "the index of registers is never data"
        offset = self._offset(place.buffer, index)
        return self._loads.gather(place, offset, dtype, axis, lanes, where)

    def load_side_by_side(self, tensor: str, index: tuple[Affine, ...], count: int) -> Val:
        """Load `count` contiguous elements of an array, beginning at `index`."""
        place, axis = self.places[tensor], VectorAxis("side by side", count)
        assert isinstance(place, Array)
        dtype, offset = place.buffer.dtype, self._offset(place.buffer, index)
        if count > 1:
            offset = offset + Var(axis.var)
        loaded = self.text.levels[-1].loaded_from(tensor)
        key = (offset, axis, None)
        if key not in loaded:
            loaded[key] = (
                self._loads.lanes(place, offset, dtype, axis, None)
                if count > 1
                else self._loads.one(place, offset, dtype, None)
            )
        return loaded[key]

    def store(
        self,
        tensor: str,
        index: tuple[Affine, ...],
        value: Val,
        axis: VectorAxis | None,
        where: Val | None,
        streamed: bool = False,
    ) -> None:
        """Store `value`, one element per lane if the index depends on `axis`, in the lanes in which
        `where` is true. If `streamed`, the stores are non-temporal when the address is aligned at
        run time."""
        place = self.places[tensor]
        offset = self._offset(place.buffer, index)
        if axis is not None and not offset.mentions(axis.var):
            raise AssertionError("lanes of a store must be different elements")
        self.forget(tensor)
        if isinstance(place, Registers):
            self._registers.store(place, offset, value, axis, where)
        elif axis is None:
            assert where is None
            self._stores.one(place, offset, value)
        else:
            whole = self._flat[place.buffer.name, id(index)][1]
            streamed = streamed and self._stores.keeps_alignment(place, whole, axis)
            self._stores.lanes(place, offset, value, axis, where, streamed)

    def home(self, tensor: str, index: tuple[Affine, ...], axis: VectorAxis | None) -> int:
        """Return the lowest nesting level at which the element may be loaded.

        No deeper loop or branch writes the buffer, and the element is inside the buffer in all
        iterations. If the index depends on `axis`, the elements of all lanes must be contiguous. If
        there is no such level, return the current one.
        """
        depth, place = self.text.depth, self.places[tensor]
        offset = self._offset(place.buffer, index)
        reach = interval(offset, self.indices.ranges)
        if isinstance(place, Registers) or reach.lo < 0 or reach.hi >= place.buffer.elements:
            return depth
        if axis is not None and offset.mentions(axis.var):
            offset = offset.minus_var(axis.var)
            if offset.mentions(axis.var):
                return depth
        lowest = self.indices.level_of(offset)
        while depth > lowest and tensor not in self.text.levels[depth].writes:
            depth -= 1
        return depth

    def exists(self, tensor: str, index: tuple[Affine, ...]) -> bool:
        """Return whether the element is inside an array in memory in all iterations, so that it may
        always be loaded."""
        place = self.places[tensor]
        if isinstance(place, Registers):
            return False
        reach = interval(self._offset(place.buffer, index), self.indices.ranges)
        return reach.lo >= 0 and reach.hi < place.buffer.elements

    def forget(self, tensor: str) -> None:
        """Forget the registers of values that were loaded from `tensor`."""
        for level in self.text.levels:
            level.loaded.pop(tensor, None)
            if level.transposed:
                for block in [k for k in level.transposed if k[0] == tensor]:
                    del level.transposed[block]

    def forget_all(self) -> None:
        for level in self.text.levels:
            level.loaded.clear()
            level.transposed.clear()

    def in_registers(self, tensor: str) -> bool:
        return isinstance(self.places[tensor], Registers)

    def pointer(self, tensor: str, index: tuple[Affine, ...]) -> str:
        """Return the address of an element of an array, for prefetching."""
        place = self.places[tensor]
        assert isinstance(place, Array)
        return self._loads.pointer(place, self._offset(place.buffer, index))
