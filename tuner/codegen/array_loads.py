"""Loads from arrays in memory: one element, or one element per lane of a vector axis.

Lanes may access contiguous elements, elements at a small stride, a few repeated elements, or
elements that are loaded one by one. `gathers.py` loads elements at data.
"""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.schedules.algebra.affine import Affine, interval
from tilewright.schedules.dtypes import DType

from .addresses import Addresses, Array, aligned_to
from .indices import VectorAxis
from .spread import Spread
from .values import Val, lane_choice, literal, scalar_type, suffix, type_text


class ArrayLoads(Addresses):
    """A writer of load instructions. `where` is a mask of lanes. Lanes in which it is false do not
    access the array, and their value is zero."""

    def one(self, place: Array, offset: Affine, dtype: DType, where: Val | None) -> Val:
        """Load one element, or zero if `where` is false in all lanes."""
        pointer = self.pointer(place, offset)
        if where is not None:
            pointer = self._redirect(pointer, self._any(where))
        align = dtype.bytes if where is not None else aligned_to(place, offset, 1)
        type_ = scalar_type(dtype)
        return Val(self.text.assign(f"load {type_}, ptr {pointer}, align {align}", "l"), dtype)

    def lanes(
        self, place: Array, offset: Affine, dtype: DType, axis: VectorAxis, where: Val | None
    ) -> Val:
        """Load one element per lane of `axis`."""
        found = self.in_vectors(place, offset, dtype, axis, where)
        return found or self._gather(place, offset, dtype, axis, where)

    def in_vectors(
        self, place: Array, offset: Affine, dtype: DType, axis: VectorAxis, where: Val | None
    ) -> Val | None:
        """Load one element per lane of `axis` by loads of whole vectors, or return None if the
        elements are too far apart."""
        lanes, vector = axis.lanes, type_text(dtype, axis.lanes)
        base = offset.minus_var(axis.var)
        if base.mentions(axis.var):
            linear = offset.is_linear_in(axis.var)
            spread = Spread.of(offset.coefficient(axis.var), lanes) if linear else None
            if spread is not None:
                return self._load_spread(place, offset, dtype, axis, where, spread)
            return None if linear else self._load_repeated(place, offset, dtype, axis, where)
        pointer = self.pointer(place, base)
        align = aligned_to(place, base, lanes)
        if where is None:
            text = f"load {vector}, ptr {pointer}, align {align}"
        elif where.lanes == 1:
            pointer = self._redirect(pointer, where.name)
            text = f"load {vector}, ptr {pointer}, align {dtype.bytes}"
        else:
            return self._load_masked(place, base, dtype, where)
        return Val(self.text.assign(text, "l"), dtype, lanes)

    def _load_spread(
        self,
        place: Array,
        offset: Affine,
        dtype: DType,
        axis: VectorAxis,
        where: Val | None,
        spread: Spread,
    ) -> Val:
        """Load the vectors of `spread` completely, and select the elements of the lanes from
        them."""
        base = self.lane(offset, axis, 0)
        if where is None:
            spread = self._shared(place, base, offset.coefficient(axis.var), spread)
        result: Val | None = None
        for start, lanes in zip(spread.starts, spread.lanes_of, strict=True):
            at = base + start
            if where is not None and where.lanes > 1:
                loaded = self._load_masked(place, at, dtype, self._spread_mask(where, lanes))
            else:
                loaded = self._load_whole(place, at, dtype, axis.lanes, where)
            places = {lane: n for n, lane in enumerate(lanes) if lane is not None}
            if result is None:
                result = self._shuffled(loaded, [places.get(n) for n in range(axis.lanes)])
                continue
            chosen = [axis.lanes + places[n] if n in places else n for n in range(axis.lanes)]
            text = f"shufflevector {result.typed}, {loaded.typed}, {lane_choice(chosen)}"
            result = Val(self.text.assign(text, "l"), dtype, axis.lanes)
        assert result is not None
        return result

    def _load_repeated(
        self, place: Array, offset: Affine, dtype: DType, axis: VectorAxis, where: Val | None
    ) -> Val | None:
        """Load one vector of the few elements that the lanes use, and copy its elements to the
        lanes.

        Return None if the condition differs between lanes, if the distances between the elements
        vary, if the vector would be longer than `axis`, or if it might extend beyond the array.
        """
        if where is not None and where.lanes > 1:
            return None
        first, away = self.lane(offset, axis, 0), self.distances(offset, axis)
        if away is None:
            return None
        low = min(away)
        count = max(away) - low + 1
        whole = 1 << (count - 1).bit_length()
        reach = interval(first + low, self.indices.ranges)
        ends = reach.hi + whole > place.buffer.elements
        low -= whole - count if ends else 0  # the vector ends with the last element instead
        exists = reach.lo >= whole - count if ends else reach.lo >= 0
        if whole > axis.lanes or (whole > count and (where is not None or not exists)):
            return None
        if whole == 1:
            return self.one(place, first, dtype, where)
        loaded = self._load_whole(place, first + low, dtype, whole, where)
        return self._shuffled(loaded, [a - low for a in away])

    def _shared(self, place: Array, base: Affine, step: int, spread: Spread) -> Spread:
        """Return the vectors that loads of neighbouring elements use too. Return `spread` if these
        vectors may extend beyond the array, or if the stride is negative."""
        if step < 0:
            return spread
        wide = Spread.shared(step, len(spread.lanes_of[0]), base.const % step)
        reach, (first, last) = interval(base, self.indices.ranges), wide.reach()
        exists = reach.lo + first >= 0 and reach.hi + last < place.buffer.elements
        return wide if exists else spread

    def _load_whole(
        self, place: Array, at: Affine, dtype: DType, lanes: int, where: Val | None
    ) -> Val:
        """Load the vector that begins at element `at`. Other loads of the same vector reuse it."""
        loaded = self.text.levels[-1].loaded_from(place.buffer.name)
        key = (at, lanes, where.name if where else None)
        if key not in loaded:
            pointer = self.pointer(place, at)
            if where is not None:
                pointer = self._redirect(pointer, where.name)
            text = f"load {type_text(dtype, lanes)}, ptr {pointer}, align {dtype.bytes}"
            loaded[key] = Val(self.text.assign(text, "l"), dtype, lanes)
        return loaded[key]

    def _spread_mask(self, mask: Val, lanes: Sequence[int | None]) -> Val:
        """Return `mask` with its lanes permuted to vector elements. `lanes` has the lane of each
        element, or None if no lane uses the element."""
        none = literal(0, DType.BOOL, mask.lanes)
        chosen = [mask.lanes if lane is None else lane for lane in lanes]
        text = f"shufflevector {mask.typed}, {none.typed}, {lane_choice(chosen)}"
        never = frozenset(n for n, x in enumerate(lanes) if x is None or x in mask.never)
        return Val(self.text.assign(text, "c"), DType.BOOL, mask.lanes, never)

    def _load_masked(self, place: Array, base: Affine, dtype: DType, mask: Val) -> Val:
        """Load `mask.lanes` contiguous elements. If the masked loads of the target are narrower,
        load them in parts."""
        most = self.module.instructions.masked_load_bits
        width = mask.lanes if most is None else most // (dtype.bytes * 8)
        if mask.lanes <= width:
            return self._load_masked_whole(place, base, dtype, mask)
        result = literal(0, dtype, mask.lanes)
        for start in range(0, mask.lanes, width):
            piece = range(start, min(start + width, mask.lanes))
            if mask.never.issuperset(piece):
                continue
            if len(piece) == 1:
                pointer = self._redirect(
                    self.pointer(place, base + start), self._mask_bit(mask, start)
                )
                one = f"{scalar_type(dtype)} {self._load_at(pointer, dtype)}"
                name = self.text.assign(f"insertelement {result.typed}, {one}, i64 {start}", "l")
            else:
                bits = self._shuffled(mask, [*piece])
                loaded = self._load_masked_whole(place, base + start, dtype, bits)
                lanes = range(mask.lanes)
                wide = self._shuffled(loaded, [n - start if n in piece else None for n in lanes])
                choice = lane_choice([mask.lanes + n if n in piece else n for n in lanes])
                name = self.text.assign(
                    f"shufflevector {result.typed}, {wide.typed}, {choice}", "l"
                )
            result = Val(name, dtype, mask.lanes)
        return result

    def _load_masked_whole(self, place: Array, base: Affine, dtype: DType, mask: Val) -> Val:
        vector, kind = type_text(dtype, mask.lanes), suffix(dtype, mask.lanes)
        function = self.module.intrinsic(
            f"llvm.masked.load.{kind}.p0", vector, ("ptr", mask.type, vector)
        )
        pointer, align = self.pointer(place, base), aligned_to(place, base, mask.lanes)
        zero = literal(0, dtype, mask.lanes).name
        arguments = f"ptr align {align} {pointer}, {mask.typed}, {vector} {zero}"
        return Val(
            self.text.assign(f"call {vector} {function}({arguments})", "l"), dtype, mask.lanes
        )

    def _gather(
        self, place: Array, offset: Affine, dtype: DType, axis: VectorAxis, where: Val | None
    ) -> Val:
        vector = type_text(dtype, axis.lanes)
        result = "poison"
        for lane in range(axis.lanes):
            pointer = self.pointer(place, self.lane(offset, axis, lane))
            if where is not None:
                pointer = self._redirect(pointer, self._mask_bit(where, lane))
            one = f"{scalar_type(dtype)} {self._load_at(pointer, dtype)}"
            result = self.text.assign(f"insertelement {vector} {result}, {one}, i64 {lane}", "l")
        return Val(result, dtype, axis.lanes)

    def _any(self, mask: Val) -> str:
        """Return whether any lane of a mask is true, as an i1."""
        if mask.lanes == 1:
            return mask.name
        function = self.module.intrinsic(
            f"llvm.vector.reduce.or.{suffix(DType.BOOL, mask.lanes)}", "i1", (mask.type,)
        )
        return self.text.assign(f"call i1 {function}({mask.typed})", "c")

    def _redirect(self, pointer: str, cond: str) -> str:
        return self.text.assign(f"select i1 {cond}, ptr {pointer}, ptr {self.module.zeros()}", "p")

    def _load_at(self, pointer: str, dtype: DType) -> str:
        return self.text.assign(
            f"load {scalar_type(dtype)}, ptr {pointer}, align {dtype.bytes}", "l"
        )

    def _shuffled(self, vector: Val, lanes: list[int | None]) -> Val:
        """Return a vector of the given lanes of `vector`. An entry None gives an undefined
        element."""
        text = f"shufflevector {vector.typed}, {vector.type} poison, {lane_choice(lanes)}"
        return Val(self.text.assign(text, "l"), vector.dtype, len(lanes))

    def _mask_bit(self, mask: Val, lane: int) -> str:
        if mask.lanes == 1:
            return mask.name
        return self.text.assign(f"extractelement {mask.typed}, i64 {lane}", "c")
