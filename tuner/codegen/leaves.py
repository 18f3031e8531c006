"""Code for the leaves of a nest: compute a value, combine it with the old element, store it."""

from __future__ import annotations

from collections.abc import Callable

from tilewright.schedules.algebra.affine import ZERO, Affine, Interval, affine, var
from tilewright.schedules.algebra.comparisons import Eq0, prove, substitute_cond
from tilewright.schedules.algebra.scalar import (
    Binary,
    BinaryOp,
    Compare,
    Load,
    Reducer,
    Scalar,
    Select,
    loads,
    substitute,
    walk,
)
from tilewright.schedules.lowering.storage import ALIGN_BYTES
from tilewright.schedules.nest.instructions import MULTIPLY_ADDS, InstructionCall
from tilewright.schedules.nest.loop_ir import For, Leaf, PrefetchHint, StoreElement, Update
from tilewright.schedules.nest.scans import Recurrence, scan_step

from .addresses import Array
from .indices import Indices, VectorAxis
from .memory import BufferAddresses
from .module import ModuleText
from .scalars import Scalars, is_zero
from .text import FunctionText
from .values import Val, lane_choice, literal, suffix


class LeafWriter:
    """A writer of leaves. The buffers in `streamed` are written by non-temporal stores. Elements of
    the buffers in `compared` are compared with what may replace them."""

    def __init__(
        self,
        text: FunctionText,
        indices: Indices,
        memory: BufferAddresses,
        scalars: Scalars,
        module: ModuleText,
        streamed: frozenset[str],
        compared: frozenset[str],
    ) -> None:
        self.text = text
        self.indices = indices
        self.memory = memory
        self.scalars = scalars
        self.module = module
        self.streamed = streamed
        self.compared = compared
        self.serial: list[str] = []
        """The variables of the serial loops around the current statement, outermost first."""

    def leaf(self, leaf: StoreElement | Update) -> None:
        """Write one store or update under its guards."""
        self.text.forget_computed()
        if self.text.in_sequence:
            divisible = isinstance(leaf, StoreElement) or not _is_sum_of_products(leaf)
            reads = frozenset(load.tensor for load in loads(leaf.value)) if divisible else None
            self.text.begin_statement(reads)
        self._where_guards_hold(leaf, lambda mask: self._write(leaf, mask))

    def _where_guards_hold(
        self, leaf: StoreElement | Update, write: Callable[[Val | None], None]
    ) -> None:
        """Call `write` with a mask of the lanes in which the guards of `leaf` hold.

        Guards that are equal for all lanes become a branch around the written code.
        """
        mask: Val | None = None
        scalar_guard: Val | None = None
        for guard in leaf.guards:
            index = self.indices.resolve(guard.index)
            known = self.indices.cond(type(guard)(index), self.scalars.axis)
            if known is False:
                return
            if isinstance(known, Val):
                if known.lanes > 1:
                    mask = known if mask is None else self.scalars.both(mask, known)
                else:
                    scalar_guard = (
                        known if scalar_guard is None else self.scalars.both(scalar_guard, known)
                    )
        if scalar_guard is None:
            write(mask)
            return
        with self.text.only_where(scalar_guard, frozenset({leaf.buffer})):
            write(mask)

    def instruction(self, call: InstructionCall) -> None:
        """Write the instruction that replaces a loop, under the guards of the loop's leaf."""
        self.text.forget_computed()
        if self.text.in_sequence:
            self.text.begin_statement(None)
        self._where_guards_hold(call.leaf, lambda _: self._call(call))

    def _call(self, call: InstructionCall) -> None:
        row, leaf, lanes = call.instruction, call.leaf, call.loop.extent
        axis = VectorAxis(call.loop.var, lanes)
        old = self.memory.load(leaf.buffer, leaf.index, row.sums, axis, None)
        operands = [self._operand(call, load) for load in (call.left, call.right)]
        given = [old, *operands] if row.sums_first else [*operands, old]
        name = call.form.function
        if not call.form.bits:
            name = f"{name}.{suffix(row.sums, lanes)}"
        function = self.module.intrinsic(name, old.type, tuple(x.type for x in given))
        arguments = ", ".join(x.typed for x in given)
        new = self.text.assign(f"call {old.type} {function}({arguments})", "f")
        self.memory.store(leaf.buffer, leaf.index, Val(new, row.sums, lanes), axis, None)

    def _operand(self, call: InstructionCall, load: Load) -> Val:
        """Return an operand as a vector with `steps` elements for each lane of the loop. An operand
        that is equal for all lanes is repeated."""
        steps, lanes = call.instruction.steps, call.loop.extent
        first = {call.loop.var: ZERO, call.step: ZERO}
        index = tuple(i.substitute(first) for i in load.index)
        if not call.is_shared(load):
            return self.memory.load_side_by_side(load.tensor, index, steps * lanes)
        once = self.memory.load_side_by_side(load.tensor, index, steps)
        if steps == 1:
            return self.scalars.broadcast(once, lanes)
        chosen = lane_choice([*range(steps)] * lanes)
        text = f"shufflevector {once.typed}, {once.type} poison, {chosen}"
        return Val(self.text.assign(text, "l"), once.dtype, steps * lanes)

    def _write(self, leaf: StoreElement | Update, mask: Val | None) -> None:
        axis = self.scalars.axis
        index = leaf.index
        if isinstance(leaf, StoreElement):
            step = self._scan_step(leaf)
            with self.scalars.before_jump(leaf.buffer in self.compared):
                value = (
                    self.scalars.value(leaf.value, mask)
                    if step is None
                    else self._scanned(leaf, step, mask)
                )
            if axis is not None:
                value = self.scalars.broadcast(value, axis.lanes)
            streamed = leaf.buffer in self.streamed
            self.memory.store(leaf.buffer, index, value, axis, mask, streamed)
            return
        # A search for the position of the extreme compares the same value with it.
        with self.scalars.before_jump(leaf.reducer in (Reducer.MAX, Reducer.MIN)):
            self._update(leaf, mask)

    def _update(self, leaf: Update, mask: Val | None) -> None:
        axis, index = self.scalars.axis, leaf.index
        if axis is not None and not any(i.mentions(axis.var) for i in index):
            value = self._across_lanes(leaf, mask)
            self.scalars.axis = None
            value = self.scalars.binary(leaf.reducer.op, self._old(leaf, index, None, None), value)
            self.memory.store(leaf.buffer, index, value, None, None)
            self.scalars.axis = axis
            return
        value = self._combined(leaf, mask, lambda: self._old(leaf, index, axis, mask))
        if axis is not None:
            value = self.scalars.broadcast(value, axis.lanes)
        if leaf.reducer in (Reducer.MAX, Reducer.MIN) and value.dtype.is_float and value.lanes > 1:
            value = self._stored_whole(leaf.buffer, value)
        self.memory.store(leaf.buffer, index, value, axis, mask)

    def _stored_whole(self, buffer: str, value: Val) -> Val:
        """Return `value` such that all its lanes are stored. LLVM 22 replaces a store of a choice
        between the stored element and another by a masked store, which takes ten times as long on
        AMD's cores with AVX2."""
        if self.memory.in_registers(buffer):
            return value
        name = self.text.assign(f"freeze {value.typed}")
        return Val(name, value.dtype, value.lanes)

    def _scan_step(self, leaf: StoreElement) -> Recurrence | None:
        """Return `leaf` as a step of a scan along the lanes, or None if it is something else."""
        axis = self.scalars.axis
        if axis is None or all(load.tensor != leaf.buffer for load in loads(leaf.value)):
            return None
        return scan_step(leaf, For(axis.var, axis.lanes, (leaf,)), self.indices.ranges)

    def _scanned(self, leaf: StoreElement, step: Recurrence, mask: Val | None) -> Val:
        """Return the elements of all lanes. Lanes outside the mask follow all others, so that their
        values do not matter.

        The element before the first lane is carried in a register if it is the last lane of the
        vector before: loading it would wait until that vector is stored.
        """
        axis, scalars = self.scalars.axis, self.scalars
        assert axis is not None
        value = scalars.broadcast(scalars.value(step.value, mask), axis.lanes)
        total = scalars.running(step.op, value)
        previous = substitute(step.previous, {axis.var: ZERO})
        carrier = self.serial[-1] if self.serial else ""
        if not carrier or not self._follows(leaf, step, axis, carrier):
            before = scalars.broadcast(self._alone(previous, None), axis.lanes)
            return scalars.binary(step.op, before, total)
        is_first = self.indices.cond(Eq0(self.indices.resolve(var(carrier))), None)
        assert isinstance(is_first, Val), "a serial loop has several iterations"
        slot = self.text.alloca(total.type, ALIGN_BYTES)
        first = scalars.broadcast(self._alone(previous, is_first), axis.lanes)
        loaded = self.text.assign(f"load {total.type}, ptr {slot}", "c")
        before = scalars.select(is_first, first, Val(loaded, total.dtype, axis.lanes))
        # The next vector waits for this operation only, not for the lanes of this one.
        mask_of_last = lane_choice([axis.lanes - 1] * axis.lanes)
        text = f"shufflevector {total.typed}, {total.type} poison, {mask_of_last}"
        last = Val(self.text.assign(text, "c"), total.dtype, axis.lanes)
        kept = scalars.binary(step.op, before, last)
        self.text.add(f"  store {kept.typed}, ptr {slot}")
        return scalars.binary(step.op, before, total)

    def _follows(self, leaf: StoreElement, step: Recurrence, axis: VectorAxis, loop: str) -> bool:
        """Return whether the element before the first lane is the last lane of the iteration of
        `loop` before, in all iterations but the first."""
        last = {axis.var: affine(axis.lanes - 1), loop: var(loop) - 1}
        first_lane = {axis.var: ZERO}
        ranges = self.indices.ranges
        later = {**ranges, loop: Interval(1, max(ranges[loop].hi, 1))}
        conds = (substitute_cond(cond, first_lane) for cond in step.conds)
        pairs = zip(leaf.index, step.before.index, strict=True)
        return all(prove(cond, later) for cond in conds) and all(
            i.substitute(last) == before.substitute(first_lane) for i, before in pairs
        )

    def _alone(self, node: Scalar, where: Val | None) -> Val:
        """Return the value of `node`, which is equal for all lanes."""
        axis, self.scalars.axis = self.scalars.axis, None
        value = self.scalars.value(node, where)
        self.scalars.axis = axis
        return value

    def _across_lanes(self, leaf: Update, mask: Val | None) -> Val:
        """Return the combination of all lanes of the leaf's value. A lane outside the mask counts
        as the identity of the operation."""
        axis = self.scalars.axis
        assert axis is not None
        value = self.scalars.broadcast(self.scalars.value(leaf.value, mask), axis.lanes)
        if mask is not None:
            identity = literal(leaf.reducer.identity(value.dtype), value.dtype, axis.lanes)
            value = self.scalars.select(mask, value, identity)
        return self.scalars.horizontal(leaf.reducer.op, value)

    def _old(
        self, leaf: Update, index: tuple[Affine, ...], axis: VectorAxis | None, mask: Val | None
    ) -> Val:
        """Return the element before the update, or the identity if this is its first update."""
        dtype = leaf.value.dtype
        first: Val | None = None
        for cond in leaf.first or ():
            known = self.indices.cond(type(cond)(self.indices.resolve(cond.index)), axis)
            if known is False:
                first = None
                break
            if isinstance(known, Val):
                first = known if first is None else self.scalars.both(first, known)
        else:
            if leaf.first is not None and first is None:
                return literal(leaf.reducer.identity(dtype), dtype)
        old = self.memory.load(leaf.buffer, index, dtype, axis, mask)
        if first is None:
            return old
        identity = literal(leaf.reducer.identity(dtype), dtype)
        return self.scalars.select(first, identity, old)

    def _combined(self, leaf: Update, mask: Val | None, old: Callable[[], Val]) -> Val:
        """Return the value that the leaf stores. `old` loads the element. It is called after the
        value is computed, but before it if a multiply-add combines both."""
        value = leaf.value
        if _is_sum_of_products(leaf):
            if not isinstance(value, Select):
                return self._multiply_add(value, old(), mask)
            before = old()
            return self.scalars.chosen(
                value, mask, lambda inner, where: self._multiply_add(inner, before, where), before
            )
        result = self.scalars.value(value, mask)
        return self.scalars.binary(leaf.reducer.op, old(), result)

    def _multiply_add(self, value: Scalar, old: Val, mask: Val | None) -> Val:
        assert isinstance(value, Binary)
        a, b = self.scalars.value(value.a, mask), self.scalars.value(value.b, mask)
        return self.scalars.multiply_add(a, b, old)

    def prefetch(self, leaf: PrefetchHint) -> None:
        """Prefetch the cache line of an element. If the buffer is in registers, write nothing."""
        if not isinstance(self.memory.places[leaf.buffer], Array):
            return
        axis = self.scalars.axis
        first_lane = {} if axis is None else {axis.var: Affine((), 0)}
        index = tuple(i.substitute(first_lane) for i in leaf.index)
        pointer = self.memory.pointer(leaf.buffer, index)
        function = self.module.intrinsic("llvm.prefetch.p0", "void", ("ptr", "i32", "i32", "i32"))
        # LLVM's locality argument: 2 for L2 and farther levels, 3 for all levels
        kept = 2 if leaf.far else 3
        self.text.add(
            f"  call void {function}(ptr {pointer}, i32 {int(leaf.for_write)}, i32 {kept}, i32 1)"
        )


def keeps_an_extreme(leaf: Leaf) -> bool:
    """Return whether a leaf chooses between its old element and another value, as a scan or a
    reduction of tuples that keeps an extreme does. Its first element may be stored elsewhere."""
    if not isinstance(leaf, StoreElement):
        return False
    parts = list(walk(leaf.value))
    chooses = any(
        isinstance(part, Compare)
        or (isinstance(part, Binary) and part.op in (BinaryOp.MAX, BinaryOp.MIN))
        for part in parts
    )
    return chooses and any(isinstance(part, Load) and part.tensor == leaf.buffer for part in parts)


def _is_sum_of_products(leaf: Update) -> bool:
    """Return whether multiply-add instructions compute the leaf. It must be a sum of products,
    which may have a condition."""
    value = leaf.value
    if leaf.reducer is not Reducer.SUM or value.dtype not in MULTIPLY_ADDS:
        return False
    if isinstance(value, Select):
        return _multiplies(value.on_true) and is_zero(value.on_false)
    return _multiplies(value)


def _multiplies(value: Scalar) -> bool:
    return isinstance(value, Binary) and value.op is BinaryOp.MUL
