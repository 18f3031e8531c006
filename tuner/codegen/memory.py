"""Reads and writes in generated code: of arrays, and of registers that stand for small arrays."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from math import gcd

from schedules.algebra.affine import Affine, Var, affine, interval, recombine, simplify
from schedules.dtypes import DType
from schedules.nest.loop_ir import Buffer, Scope

from .indices import Indices, VectorAxis
from .module import ModuleText
from .spread import Spread
from .text import FunctionText
from .turning import Turned
from .values import Val, lane_choice, literal, scalar_type, suffix, type_text


@dataclass(slots=True)
class Registers:
    """A small array kept in slots of `lanes` elements; slot n holds elements n*lanes onwards."""

    buffer: Buffer
    lanes: int
    slots: dict[int, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Array:
    """An array in memory. `align` is what its base is known to be aligned to, in bytes."""

    buffer: Buffer
    base: str
    align: int


class Memory:
    """Where each buffer is in one function, and how its elements are read and written."""

    def __init__(self, text: FunctionText, indices: Indices, module: ModuleText) -> None:
        self.text = text
        self.indices = indices
        self.module = module
        self.places: dict[str, Array | Registers] = {}
        self._flat: dict[tuple[str, int], tuple[tuple[Affine, ...], Affine]] = {}

    def _offset(self, buffer: Buffer, index: tuple[Affine, ...]) -> Affine:
        """The element number for the present copy; flattened once for all copies of a leaf."""
        key = (buffer.name, id(index))
        if key not in self._flat:
            self._flat[key] = (index, flat_offset(buffer, index))
        return self.indices.resolve(self._flat[key][1])

    def load(
        self,
        tensor: str,
        index: tuple[Affine, ...],
        dtype: DType,
        axis: VectorAxis | None,
        where: Val | None,
    ) -> Val:
        """The element, or one a lane where the index moves with `axis`; zero outside `where`."""
        place = self.places[tensor]
        offset = self._offset(place.buffer, index)
        if axis is not None and axis.var not in offset.vars():
            axis = None
        loaded = self.text.levels[-1].loaded
        key = (tensor, offset, axis, where.name if where else None)
        if key not in loaded:
            if isinstance(place, Registers):
                loaded[key] = self._load_registers(place, offset, axis)
            elif axis is None:
                loaded[key] = self._load_one(place, offset, dtype, where)
            else:
                loaded[key] = self._load_lanes(place, offset, dtype, axis, where)
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
        """Write `value` (one a lane where the index moves with `axis`) where `where` is true;
        `streamed`: past the caches, if the address turns out to be aligned."""
        place = self.places[tensor]
        offset = self._offset(place.buffer, index)
        if axis is not None and axis.var not in offset.vars():
            raise AssertionError("lanes of a store must be different elements")
        self.forget(tensor)
        if isinstance(place, Registers):
            self._store_registers(place, offset, value, axis, where)
        elif axis is None:
            assert where is None
            pointer = self._pointer(place, offset)
            self.text.add(f"  store {value.typed}, ptr {pointer}, align {_align(place, offset, 1)}")
        else:
            whole = self._flat[place.buffer.name, id(index)][1]
            streamed = streamed and self._keeps_alignment(place, whole, axis)
            self._store_lanes(place, offset, value, axis, where, streamed)

    def home(self, tensor: str, index: tuple[Affine, ...], axis: VectorAxis | None) -> int:
        """The outermost level where this element may be read in advance, or those of all lanes
        that lie side by side: nothing from there on writes the buffer, and the element exists
        whatever the loops and guards inside do."""
        depth, place = self.text.depth, self.places[tensor]
        offset = self._offset(place.buffer, index)
        reach = interval(offset, self.indices.ranges)
        if isinstance(place, Registers) or reach.lo < 0 or reach.hi >= place.buffer.elements:
            return depth
        if axis is not None and axis.var in offset.vars():
            offset = offset - Affine(((Var(axis.var), 1),), 0)
            if axis.var in offset.vars():
                return depth
        lowest = self.indices.level_of(offset)
        while depth > lowest and tensor not in self.text.levels[depth].writes:
            depth -= 1
        return depth

    def exists(self, tensor: str, index: tuple[Affine, ...]) -> bool:
        """Whether the element is one of the buffer's whatever the loops do, conditions aside: it
        may be read where nobody asks for it."""
        place = self.places[tensor]
        if isinstance(place, Registers):
            return False
        reach = interval(self._offset(place.buffer, index), self.indices.ranges)
        return reach.lo >= 0 and reach.hi < place.buffer.elements

    def forget(self, tensor: str) -> None:
        """Values read from `tensor` before are no longer known."""
        for level in self.text.levels:
            for key in [k for k in level.loaded if isinstance(k, tuple) and k[0] == tensor]:
                del level.loaded[key]
            for block in [k for k in level.turned if k[0] == tensor]:
                del level.turned[block]

    def forget_all(self) -> None:
        for level in self.text.levels:
            level.loaded.clear()
            level.turned.clear()

    def in_registers(self, tensor: str) -> bool:
        return isinstance(self.places[tensor], Registers)

    def pointer(self, tensor: str, index: tuple[Affine, ...]) -> str:
        """The address of an element of an array (for prefetching)."""
        place = self.places[tensor]
        assert isinstance(place, Array)
        return self._pointer(place, self._offset(place.buffer, index))

    def _pointer(self, place: Array, offset: Affine) -> str:
        return self.indices.address(place.base, scalar_type(place.buffer.dtype), offset)

    def _load_one(self, place: Array, offset: Affine, dtype: DType, where: Val | None) -> Val:
        pointer = self._pointer(place, offset)
        if where is not None:
            pointer = self._redirect(pointer, self._any(where))
        align = dtype.bytes if where is not None else _align(place, offset, 1)
        type_ = scalar_type(dtype)
        return Val(self.text.assign(f"load {type_}, ptr {pointer}, align {align}", "l"), dtype)

    def _any(self, mask: Val) -> str:
        """Whether any lane of a mask is set."""
        if mask.lanes == 1:
            return mask.name
        function = self.module.intrinsic(
            f"llvm.vector.reduce.or.{suffix(DType.BOOL, mask.lanes)}", "i1", (mask.type,)
        )
        return self.text.assign(f"call i1 {function}({mask.typed})", "c")

    def _redirect(self, pointer: str, cond: str) -> str:
        return self.text.assign(f"select i1 {cond}, ptr {pointer}, ptr {self.module.zeros()}", "p")

    def _load_lanes(
        self, place: Array, offset: Affine, dtype: DType, axis: VectorAxis, where: Val | None
    ) -> Val:
        lanes, vector = axis.lanes, type_text(dtype, axis.lanes)
        base = offset - Affine(((Var(axis.var), 1),), 0)
        if axis.var in base.vars():
            linear = offset.is_linear_in(axis.var)
            spread = Spread.of(offset.coefficient(axis.var), lanes) if linear else None
            if spread is not None:
                return self._load_spread(place, offset, dtype, axis, where, spread)
            repeated = None if linear else self._load_repeated(place, offset, dtype, axis, where)
            return repeated or self._gather(place, offset, dtype, axis, where)
        pointer = self._pointer(place, base)
        align = _align(place, base, lanes)
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
        """Lanes a few elements apart, from whole vectors that reach from the first to the last."""
        base = self._lane(offset, axis, 0)
        if where is None:
            spread = self._shared(place, base, offset.coefficient(axis.var), spread)
        result: Val | None = None
        for start, lanes in zip(spread.starts, spread.taken, strict=True):
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
        """Lanes that take the same few elements in turn, from one vector of these; None where they
        are not neighbours, lanes are left out, or what fills up the vector may not exist."""
        if where is not None and where.lanes > 1:
            return None
        first = self._lane(offset, axis, 0)
        away = [self._lane(offset, axis, lane) - first for lane in range(axis.lanes)]
        if not all(a.is_const for a in away):
            return None
        low = min(a.const for a in away)
        count = max(a.const for a in away) - low + 1
        whole = 1 << (count - 1).bit_length()
        reach = interval(first + low, self.indices.ranges)
        exists = reach.lo >= 0 and reach.hi + whole <= place.buffer.elements
        if whole > axis.lanes or (whole > count and (where is not None or not exists)):
            return None
        if whole == 1:
            return self._load_one(place, first, dtype, where)
        loaded = self._load_whole(place, first + low, dtype, whole, where)
        return self._shuffled(loaded, [a.const - low for a in away])

    def _shared(self, place: Array, base: Affine, step: int, spread: Spread) -> Spread:
        """Vectors that reads of neighbouring elements share, if all of these vectors exist."""
        if step < 0:
            return spread
        wide = Spread.shared(step, len(spread.taken[0]), base.const % step)
        reach, (first, last) = interval(base, self.indices.ranges), wide.reach()
        exists = reach.lo + first >= 0 and reach.hi + last < place.buffer.elements
        return wide if exists else spread

    def _load_whole(
        self, place: Array, at: Affine, dtype: DType, lanes: int, where: Val | None
    ) -> Val:
        """A vector from element `at` on, loaded once for all that take lanes from it."""
        loaded = self.text.levels[-1].loaded
        key = (place.buffer.name, at, lanes, where.name if where else None)
        if key not in loaded:
            pointer = self._pointer(place, at)
            if where is not None:
                pointer = self._redirect(pointer, where.name)
            text = f"load {type_text(dtype, lanes)}, ptr {pointer}, align {dtype.bytes}"
            loaded[key] = Val(self.text.assign(text, "l"), dtype, lanes)
        return loaded[key]

    def _spread_mask(self, mask: Val, lanes: Sequence[int | None]) -> Val:
        """For each element of a vector, whether a lane takes it that is in `mask`."""
        none = literal(0, DType.BOOL, mask.lanes)
        chosen = [mask.lanes if lane is None else lane for lane in lanes]
        text = f"shufflevector {mask.typed}, {none.typed}, {lane_choice(chosen)}"
        never = frozenset(n for n, x in enumerate(lanes) if x is None or x in mask.never)
        return replace(Val(self.text.assign(text, "c"), DType.BOOL, mask.lanes), never=never)

    def _load_masked(self, place: Array, base: Affine, dtype: DType, mask: Val) -> Val:
        """`mask.lanes` elements from element `base` on, in pieces if the target needs that."""
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
                    self._pointer(place, base + start), self._mask_bit(mask, start)
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
        pointer, align = self._pointer(place, base), _align(place, base, mask.lanes)
        zero = literal(0, dtype, mask.lanes).name
        arguments = f"ptr align {align} {pointer}, {mask.typed}, {vector} {zero}"
        return Val(
            self.text.assign(f"call {vector} {function}({arguments})", "l"), dtype, mask.lanes
        )

    def _load_at(self, pointer: str, dtype: DType) -> str:
        return self.text.assign(
            f"load {scalar_type(dtype)}, ptr {pointer}, align {dtype.bytes}", "l"
        )

    def _shuffled(self, vector: Val, lanes: list[int | None]) -> Val:
        """A vector of these lanes of `vector`; None is a lane that is never looked at."""
        text = f"shufflevector {vector.typed}, {vector.type} poison, {lane_choice(lanes)}"
        return Val(self.text.assign(text, "l"), vector.dtype, len(lanes))

    def _gather(
        self, place: Array, offset: Affine, dtype: DType, axis: VectorAxis, where: Val | None
    ) -> Val:
        vector = type_text(dtype, axis.lanes)
        result = "poison"
        for lane in range(axis.lanes):
            pointer = self._pointer(place, self._lane(offset, axis, lane))
            if where is not None:
                pointer = self._redirect(pointer, self._mask_bit(where, lane))
            one = self.text.assign(
                f"load {scalar_type(dtype)}, ptr {pointer}, align {dtype.bytes}", "l"
            )
            result = self.text.assign(
                f"insertelement {vector} {result}, {scalar_type(dtype)} {one}, i64 {lane}", "l"
            )
        return Val(result, dtype, axis.lanes)

    def _mask_bit(self, mask: Val, lane: int) -> str:
        if mask.lanes == 1:
            return mask.name
        return self.text.assign(f"extractelement {mask.typed}, i64 {lane}", "c")

    def _lane(self, offset: Affine, axis: VectorAxis, lane: int) -> Affine:
        at = offset.substitute({axis.var: affine(lane)})
        return at if offset.is_linear_in(axis.var) else simplify(at, self.indices.ranges)

    def _store_lanes(
        self,
        place: Array,
        offset: Affine,
        value: Val,
        axis: VectorAxis,
        where: Val | None,
        streamed: bool,
    ) -> None:
        dtype, lanes = value.dtype, axis.lanes
        base = offset - Affine(((Var(axis.var), 1),), 0)
        if axis.var not in base.vars():
            pointer = self._pointer(place, base)
            align = _align(place, base, lanes)
            if where is None:
                plain = f"  store {value.typed}, ptr {pointer}, align {align}"
                if streamed:
                    self._store_streamed(place, value, pointer, plain)
                else:
                    self.text.add(plain)
                return
            only = _only_lane(where)
            if only is not None:
                # LLVM 22 on x86 makes a masked store of one lane of a truncated vector a scalar
                # store of the type before truncation: it writes over what is next.
                element = self.text.assign(f"extractelement {value.typed}, i64 {only}")
                one = self._pointer(place, self._lane(offset, axis, only))
                self.text.add(
                    f"  store {scalar_type(dtype)} {element}, ptr {one}, align {dtype.bytes}"
                )
                return
            function = self.module.intrinsic(
                f"llvm.masked.store.{suffix(dtype, lanes)}.p0",
                "void",
                (value.type, "ptr", where.type),
            )
            self.text.add(
                f"  call void {function}({value.typed}, ptr align {align} {pointer}, {where.typed})"
            )
            return
        pointers = "poison"
        for lane in range(lanes):
            one = self._pointer(place, self._lane(offset, axis, lane))
            if where is None:
                element = self.text.assign(f"extractelement {value.typed}, i64 {lane}")
                self.text.add(
                    f"  store {scalar_type(dtype)} {element}, ptr {one}, align {dtype.bytes}"
                )
            else:
                pointers = self.text.assign(
                    f"insertelement <{lanes} x ptr> {pointers}, ptr {one}, i64 {lane}", "p"
                )
        if where is not None:
            function = self.module.intrinsic(
                f"llvm.masked.scatter.{suffix(dtype, lanes)}.v{lanes}p0",
                "void",
                (value.type, f"<{lanes} x ptr>", where.type),
            )
            self.text.add(
                f"  call void {function}({value.typed}, <{lanes} x ptr> align {dtype.bytes}"
                f" {pointers}, {where.typed})"
            )

    def _keeps_alignment(self, place: Array, offset: Affine, axis: VectorAxis) -> bool:
        """Whether all copies of a leaf write vectors that are aligned where the array itself is,
        of a size that the machine streams. A line that is streamed in part costs more than one
        that is not, so it is all copies or none."""
        size = place.buffer.dtype.bytes
        rest = offset - Affine(((Var(axis.var), 1),), 0)
        step = gcd(rest.const * size, *(c * size for _, c in rest.terms))
        whole = size * axis.lanes
        return step % whole == 0 and whole in self.module.instructions.streams

    def _store_streamed(self, place: Array, value: Val, pointer: str, plain: str) -> None:
        """Such stores need an aligned address, which is known when the kernel runs: a test that
        always goes the same way."""
        text, whole = self.text, place.buffer.dtype.bytes * value.lanes
        memo = text.levels[0].memo
        key = ("aligned", place.base, whole)
        if key not in memo:
            address = text.assign(f"ptrtoint ptr {place.base} to i64", "w", 0)
            low = text.assign(f"and i64 {address}, {whole - 1}", "w", 0)
            memo[key] = Val(text.assign(f"icmp eq i64 {low}, 0", "c", 0), DType.BOOL)
        past, through, done = text.label("past"), text.label("through"), text.label("done")
        text.add(f"  br i1 {memo[key].name}, label %{past}, label %{through}")
        text.start_block(past)
        mark = self.module.nontemporal()
        text.add(f"  store {value.typed}, ptr {pointer}, align {whole}, !nontemporal {mark}")
        text.add(f"  br label %{done}")
        text.start_block(through)
        text.add(plain)
        text.add(f"  br label %{done}")
        text.start_block(done)

    def _slot(self, place: Registers, number: int) -> str:
        if number not in place.slots:
            type_ = type_text(place.buffer.dtype, place.lanes)
            place.slots[number] = self.text.alloca(type_, 64)
        return place.slots[number]

    def _load_registers(self, place: Registers, offset: Affine, axis: VectorAxis | None) -> Val:
        dtype, lanes = place.buffer.dtype, place.lanes
        if axis is not None:
            step = offset.coefficient(axis.var)
            if step > 1:
                return self._load_turned(place, offset.const, step // lanes, axis.lanes)
            start = (offset - Affine(((Var(axis.var), 1),), 0)).const
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

    def _load_turned(self, place: Registers, start: int, step: int, count: int) -> Val:
        """One lane of `count` registers, `step` apart: a column of the block they hold."""
        first, lane = divmod(start, place.lanes)
        numbers = tuple(range(first, first + step * count, step))
        blocks = self.text.levels[-1].turned
        key = (place.buffer.name, numbers)
        if key not in blocks:
            vector = type_text(place.buffer.dtype, place.lanes)
            rows = [
                self.text.assign(f"load {vector}, ptr {self._slot(place, n)}, align 64", "r")
                for n in numbers
            ]
            values = [Val(row, place.buffer.dtype, place.lanes) for row in rows]
            blocks[key] = Turned(self.text.assign, values)
        return blocks[key].column(lane)

    def _store_registers(
        self,
        place: Registers,
        offset: Affine,
        value: Val,
        axis: VectorAxis | None,
        where: Val | None,
    ) -> None:
        dtype, lanes = place.buffer.dtype, place.lanes
        vector = type_text(dtype, lanes)
        if axis is not None:
            start = (offset - Affine(((Var(axis.var), 1),), 0)).const
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


def strides(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Elements between neighbours in each dimension of a dense row-major array."""
    result = [1] * len(shape)
    for d in range(len(shape) - 2, -1, -1):
        result[d] = result[d + 1] * shape[d + 1]
    return tuple(result)


def flat_offset(buffer: Buffer, index: tuple[Affine, ...]) -> Affine:
    """The element number of `buffer[index]`."""
    total = affine(0)
    for i, stride in zip(index, strides(buffer.shape), strict=True):
        total = total + i * stride
    return recombine(total)


def _only_lane(mask: Val) -> int | None:
    """The lane that `mask` allows, where it is a constant that allows one; else None."""
    lanes = re.findall(r"i1 (true|false)", mask.name) if mask.name.startswith("<") else []
    return lanes.index("true") if lanes.count("true") == 1 else None


def _align(place: Array, offset: Affine, lanes: int) -> int:
    """What the address of element `offset` is surely aligned to, at most one vector, in bytes."""
    size = place.buffer.dtype.bytes
    if place.buffer.scope is Scope.ARGUMENT:
        return size
    common = gcd(place.align, *(c * size for _, c in offset.terms), offset.const * size)
    whole = size * lanes
    return max(min(common & -common, whole & -whole), size)
