"""Scalar expressions in generated code. Each node of an expression gives one LLVM value.

A node that does not depend on the vector axis is a scalar until it is combined with a node that
does. Conditional loads need no branches: they are masked, or they read zeros instead of the array.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import assert_never

from tilewright.schedules.algebra.affine import Affine, Var, simplify
from tilewright.schedules.algebra.gathers import is_inside
from tilewright.schedules.algebra.scalar import (
    All,
    Binary,
    BinaryOp,
    Cast,
    Clamped,
    Compare,
    Components,
    Const,
    IndexValue,
    Load,
    Scalar,
    Select,
    Unary,
    UnaryOp,
    children,
    data_of,
    loads,
    substitute,
    vars_of,
    walk,
)
from tilewright.schedules.dtypes import DType

from .arithmetic import Arithmetic
from .data_indices import DataIndices
from .gathers import Position
from .indices import Indices, VectorAxis
from .mathlib import ROUNDINGS
from .memory import BufferAddresses
from .module import ModuleText
from .reciprocals import reciprocal_of
from .text import FunctionText
from .values import Val, lane_numbers, literal, type_text


class Scalars(Arithmetic):
    """A writer of scalar expressions in one function, for the current values of unrolled loops."""

    def __init__(
        self, text: FunctionText, indices: Indices, memory: BufferAddresses, module: ModuleText
    ) -> None:
        super().__init__(text, module)
        self.indices = indices
        self.memory = memory
        self.axis: VectorAxis | None = None
        self._is_before_jump = False
        self._data = DataIndices(text, indices, module)

    def value(self, node: Scalar, where: Val | None = None) -> Val:
        """Return the value of `node`. If `where` is given, elements are loaded only in lanes in
        which it is true."""
        match node:
            case Const(value, dtype):
                return literal(value, dtype)
            case Load():
                return self._load(node, where)
            case IndexValue(index, dtype):
                return self._index_value(self.indices.resolve(index), dtype)
            case Unary(op, x):
                if op in _SLOW and (not self._is_moving(x) or self._is_invariant(x)):
                    return self._once(node, where)
                with self.before_jump(op.function.rounds_to_integer):
                    return self.unary(op, self.value(x, where))
            case Binary(BinaryOp.DIV):
                return self._quotient(node, where)
            case Binary(op) if op.function is not None:
                if not self._is_moving(node) or self._is_invariant(node):
                    return self._once(node, where)
                return self.binary(op, self.value(node.a, where), self.value(node.b, where))
            case Binary(op, a, b):
                return self.binary(op, self.value(a, where), self.value(b, where))
            case Compare(op, a, b):
                with self.before_jump(True):
                    return self.compare(op, self.value(a, where), self.value(b, where))
            case Cast(x, dtype):
                with self.before_jump(not dtype.is_float):
                    return self.cast(self.value(x, where), dtype)
            case All():
                mask = self.all_of(node)
                return mask if isinstance(mask, Val) else literal(mask, DType.BOOL)
            case Select():
                with self.before_jump(_compares_what_it_chooses(node)):
                    return self._select(node, where)
            case Components():
                raise AssertionError("a leaf has one value, not a tuple")
            case _:
                assert_never(node)

    def _load(self, node: Load, where: Val | None) -> Val:
        if not any(i.has_data for i in node.index):
            return self.memory.load(node.tensor, node.index, node.dtype, self.axis, where)
        known = self._data.known(node, lambda datum: self._position(datum, where))
        if not known.lanes:
            return self.memory.load(node.tensor, known.index, node.dtype, self.axis, where)
        assert self.axis is not None
        return self.memory.gather(
            node.tensor, known.index, node.dtype, self.axis, known.lanes, where
        )

    def _position(self, datum: Clamped, where: Val | None) -> Position:
        """Return an integer of an index, written outside as many loops as possible. It is one
        integer if it is equal in all lanes, else a vector or one register per lane."""
        if where is None and self._is_moving(datum.value) and is_inside(datum.value, datum.extent):
            alone = self._lane_by_lane(datum.value)
            if alone is not None:
                return alone
        home = self._home(datum.value)
        where = where if home == self.text.depth else None
        with self.text.outside(home):
            return self._data.clamped(self.value(datum.value, where), datum.extent)

    def _lane_by_lane(self, value: Scalar) -> tuple[str, ...] | None:
        """Return the integers of all lanes as i64 registers, loaded one by one, which is faster
        than to take a vector apart. Return None if `value` is more than a load."""
        read, axis = value.x if isinstance(value, Cast) else value, self.axis
        assert axis is not None
        if not isinstance(read, Load) or not all(i.is_linear_in(axis.var) for i in read.index):
            return None
        self.axis, found = None, list[str]()
        for lane in range(axis.lanes):
            one = self.value(substitute(value, {axis.var: Affine((), lane)}))
            found.append(self.cast(one, DType.I64).name)
        self.axis = axis
        return tuple(found)

    @contextmanager
    def before_jump(self, jumps: bool) -> Iterator[None]:
        """In this context, quotients are correctly rounded if `jumps` is set. Before a
        discontinuous function such as floor, 3/3 must not be below 1, and a quotient must be equal
        to the maximum of equal quotients."""
        before, self._is_before_jump = self._is_before_jump, self._is_before_jump or jumps
        yield
        self._is_before_jump = before

    def all_of(self, node: All) -> Val | bool:
        """Return the conjunction of the conditions: a bool if constant, an i1, or a mask."""
        result: Val | bool = True
        for cond in node.conds:
            index = self.indices.resolve(cond.index)
            one = self.indices.cond(type(cond)(index), self.axis)
            if one is False:
                return False
            if one is not True:
                result = one if result is True else self.both(result, one)
        return result

    def chosen(
        self,
        node: Select,
        where: Val | None,
        combine: Callable[[Scalar, Val | None], Val],
        otherwise: Val,
    ) -> Val:
        """Return `combine(node.on_true, MASK)` in lanes in which the condition of `node` holds, and
        `otherwise` in the other lanes."""
        cond = self._condition(node, where)
        if isinstance(cond, bool):
            return combine(node.on_true, where) if cond else otherwise
        free = self._may_always_read(node.on_true)
        inside = cond if where is None else self.both(where, cond)
        return self.select(cond, combine(node.on_true, where if free else inside), otherwise)

    def _condition(self, node: Select, where: Val | None) -> Val | bool:
        if isinstance(node.cond, All):
            return self.all_of(node.cond)
        gathers = any(data_of(read) for read in loads(node.on_true))
        if gathers and isinstance(node.cond, Compare) and not self._is_moving(node.cond):
            home = max(self._home(node.cond.a), self._home(node.cond.b))
            where = where if home == self.text.depth else None
            with self.text.outside(home):
                return self._shared_condition(node.cond, where, self._is_moving(node))
        return self.value(node.cond, where)

    def _shared_condition(self, node: Compare, where: Val | None, in_lanes: bool) -> Val:
        """Return a comparison that is equal for all lanes, as a mask if `in_lanes`: LLVM would
        branch on one bit for each vector that it selects. Whether an integer is inside is one
        comparison for a whole row."""
        a, b = self.value(node.a, where), self.value(node.b, where)
        memo, key = self.text.levels[-1].loaded_from("condition"), (node.op, a.name, b.name)
        if key not in memo:
            memo[key] = self.compare(node.op, a, b)
        cond = memo[key]
        return self.broadcast(cond, self.axis.lanes) if in_lanes and self.axis else cond

    def _select(self, node: Select, where: Val | None) -> Val:
        cond = self._condition(node, where)
        if isinstance(cond, bool):
            return self.value(node.on_true if cond else node.on_false, where)
        inside = cond if where is None else self.both(where, cond)
        other = node.on_false
        is_padding = isinstance(other, Const) and other.is_plus_zero
        # a masked load gives zero in the other lanes
        if is_padding and isinstance(node.on_true, Load) and not data_of(node.on_true):
            is_shared = cond.lanes > 1 and not self._is_moving(node.on_true)
            free = is_shared and self._may_always_read(node.on_true)
            loaded = self.value(node.on_true, where if free else inside)
            # Registers are loaded as whole vectors, and a scalar is the same in every lane.
            if loaded.lanes < cond.lanes or self.memory.in_registers(node.on_true.tensor):
                return self.select(cond, loaded, literal(0, loaded.dtype))
            return loaded
        free = self._may_always_read(node.on_true)
        on_true = self.value(node.on_true, where if free else inside)
        outside = where
        if not self._may_always_read(node.on_false):
            ones = literal(True, DType.BOOL, cond.lanes).name
            name = self.text.computed(f"xor {cond.typed}, {ones}", "m")
            negated = Val(name, DType.BOOL, cond.lanes)
            outside = negated if where is None else self.both(where, negated)
        on_false = self.value(node.on_false, outside)
        return self.select(cond, on_true, on_false)

    def _may_always_read(self, node: Scalar) -> bool:
        """Return whether all loads in `node`, an alternative of a `Select`, are inside their
        buffers even if the other alternative is chosen.

        Unconditional loads are cheaper and can be shared. Conditions inside `node` still apply.
        """
        return all(self.memory.exists(load.tensor, load.index) for load in loads(node))

    def _index_value(self, index: Affine, dtype: DType) -> Val:
        axis = self.axis
        if axis is None or not index.mentions(axis.var):
            return self.cast(self.indices.scalar(index), dtype)
        if index.is_linear_in(axis.var):
            base = Affine(tuple(t for t in index.terms if t[0] != Var(axis.var)), index.const)
            start = self.broadcast(self.indices.scalar(base), axis.lanes)
            steps = lane_numbers(DType.I64, axis.lanes, index.coefficient(axis.var))
            total = self.text.computed(f"add {start.type} {start.name}, {steps}")
            return self.cast(Val(total, DType.I64, axis.lanes), dtype)
        vector = type_text(DType.I64, axis.lanes)
        result = "poison"
        for lane in range(axis.lanes):
            at = simplify(index.substitute({axis.var: Affine((), lane)}), self.indices.ranges)
            one = self.indices.scalar(at)
            result = self.text.computed(f"insertelement {vector} {result}, {one.typed}, i64 {lane}")
        return self.cast(Val(result, DType.I64, axis.lanes), dtype)

    def _quotient(self, node: Binary, where: Val | None) -> Val:
        a = self.value(node.a, where)
        shared = not self._is_moving(node.b) or self._is_invariant(node.b)
        if not shared or a.lanes == 1 or not a.dtype.is_float or self._is_before_jump:
            return self.binary(node.op, a, self.value(node.b, where))
        if isinstance(node.b, Const) and self.module.instructions.multiply_add:
            return self._by_constant(a, node.b.value)
        scale, reciprocal = (self.broadcast(v, a.lanes) for v in self._reciprocal(node.b, where))
        scaled = self.text.computed(f"fmul {a.typed}, {scale.name}")
        name = self.text.computed(f"fmul {a.type} {scaled}, {reciprocal.name}")
        return Val(name, a.dtype, a.lanes)

    def _by_constant(self, a: Val, divisor: float) -> Val:
        """Return `a` / `divisor`. The code multiplies by the two parts of the reciprocal, or
        divides if `reciprocal_of` gives none."""
        parts = reciprocal_of(divisor, a.dtype)
        if parts is None:
            return self.binary(BinaryOp.DIV, a, literal(divisor, a.dtype))
        high, low = (literal(part, a.dtype) for part in parts)
        return self.multiply_add(a, high, self.binary(BinaryOp.MUL, a, low))

    def _reciprocal(self, node: Scalar, where: Val | None) -> tuple[Val, Val]:
        """Return `(s, r)` with x / node = (x * s) * r for all dividends x. They are computed
        outside as many loops as possible.

        The two roundings are within the error bound of a division. s is a power of two. It scales
        very large and very small divisors, so that r and x * s overflow or lose bits only if the
        quotient does.
        """
        home = self._home(node)
        where = where if home == self.text.depth else None
        with self.text.outside(home):
            b = self.value(node, where)
            key, memo = (b.dtype, b.name), self.text.levels[-1].loaded_from("reciprocal")
            if key not in memo:
                assign, dtype, lanes = self.text.assign, b.dtype, b.lanes
                one = self.broadcast(literal(1.0, dtype), lanes)
                near = 64.0 if dtype is DType.F32 else 512.0
                size, scale = self.unary(UnaryOp.ABS, b), one
                for test, bound in (("ogt", near), ("olt", -near)):
                    limit = self.broadcast(literal(2.0**bound, dtype), lanes).name
                    beyond = assign(f"fcmp {test} {size.typed}, {limit}", "c")
                    less = literal(2.0**-bound, dtype)
                    scale = self.select(Val(beyond, DType.BOOL, lanes), less, scale)
                scaled = assign(f"fmul {b.typed}, {scale.name}")
                memo[key] = Val(assign(f"fdiv {one.typed}, {scaled}"), dtype, lanes)
                memo["scale of", *key] = scale
            return memo["scale of", *key], memo[key]

    def _is_moving(self, node: Scalar) -> bool:
        """Return whether `node` differs between lanes."""
        return self.axis is not None and self.axis.var in vars_of(node)

    def _is_invariant(self, node: Scalar) -> bool:
        """Return whether `node` is the same in every iteration of the current loop."""
        return self._home(node) < self.text.depth

    def _home(self, node: Scalar) -> int:
        """Return the lowest nesting level at which `node` can be computed for the current lanes."""
        level = 0
        for part in walk(node):
            match part:
                case Load():
                    level = max(level, self.memory.home(part.tensor, part.index, self.axis))
                case IndexValue() if self._is_moving(part):
                    return self.text.depth
                case IndexValue():
                    level = max(level, self.indices.level_of(self.indices.resolve(part.index)))
                case Select() | All() | Compare():
                    return self.text.depth
                case _:
                    pass
        return level

    def _once(self, node: Unary | Binary, where: Val | None) -> Val:
        """Return the value of a slow operation. It is computed at the lowest possible nesting
        level, to share the result."""
        home = self._home(node)
        where = where if home == self.text.depth else None
        with self.text.outside(home):
            x, *others = (self.value(operand, where) for operand in children(node))
            memo = self.text.levels[-1].loaded_from("once")
            key = (node.op, x.dtype, x.name, *(other.name for other in others))
            if key not in memo:
                memo[key] = (
                    self.unary(node.op, x)
                    if isinstance(node, Unary)
                    else self.binary(node.op, x, *others)
                )
            return memo[key]


def _compares_what_it_chooses(node: Select) -> bool:
    """Return whether `node` chooses a quotient by comparing it: the quotient that is kept must be
    the one that was compared."""
    if isinstance(node.cond, All):
        return False
    compared = {part for part in walk(node.cond) if _divides(part)}
    if not compared:
        return False
    chosen = (part for side in (node.on_true, node.on_false) for part in walk(side))
    return any(_divides(part) and part in compared for part in chosen)


def _divides(node: Scalar) -> bool:
    return isinstance(node, Binary) and node.op is BinaryOp.DIV


def is_zero(node: Scalar) -> bool:
    """Return whether `node` is the constant 0 or -0, so that a sum may omit it."""
    return isinstance(node, Const) and node.value == 0


_SLOW = frozenset(UnaryOp) - {UnaryOp.NEG, UnaryOp.ABS, *ROUNDINGS}
