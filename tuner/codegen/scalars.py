"""Arithmetic in generated code. Each node of a scalar expression gives one LLVM value.

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
    ON_INTEGERS_ONLY,
    All,
    Binary,
    BinaryOp,
    Cast,
    Clamped,
    Compare,
    CompareOp,
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
from tilewright.schedules.nest.instructions import MULTIPLY_ADDS
from tilewright.schedules.nest.scans import REDUCER_OF

from ..isa.instruction_set import instruction_set
from .data_indices import DataIndices
from .gathers import Position
from .indices import Indices, VectorAxis
from .mathlib import ROUNDINGS
from .memory import BufferAddresses
from .module import ModuleText
from .narrow_floats import NARROWED, WIDENED, before_narrowing
from .reciprocals import reciprocal_of
from .text import FunctionText
from .values import Val, lane_choice, lane_numbers, literal, suffix, type_text


class Scalars:
    """A writer of scalar expressions in one function, for the current values of unrolled loops."""

    def __init__(
        self, text: FunctionText, indices: Indices, memory: BufferAddresses, module: ModuleText
    ) -> None:
        self.text = text
        self.indices = indices
        self.memory = memory
        self.module = module
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
                with self._before_jump(op.function.rounds_to_integer):
                    return self._unary(op, self.value(x, where))
            case Binary(BinaryOp.DIV):
                return self._quotient(node, where)
            case Binary(op) if op.function is not None:
                if not self._is_moving(node) or self._is_invariant(node):
                    return self._once(node, where)
                return self.binary(op, self.value(node.a, where), self.value(node.b, where))
            case Binary(op, a, b):
                return self.binary(op, self.value(a, where), self.value(b, where))
            case Compare(op, a, b):
                with self._before_jump(True):
                    return self._compare(op, self.value(a, where), self.value(b, where))
            case Cast(x, dtype):
                with self._before_jump(not dtype.is_float):
                    return self.cast(self.value(x, where), dtype)
            case All():
                mask = self.all_of(node)
                return mask if isinstance(mask, Val) else literal(mask, DType.BOOL)
            case Select():
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
    def _before_jump(self, jumps: bool) -> Iterator[None]:
        """In this context, quotients are correctly rounded if `jumps` is set. Before a
        discontinuous function such as floor, 3/3 must not be below 1."""
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

    def both(self, a: Val | bool, b: Val | bool) -> Val:
        """Return `a and b`. Neither may be a constant."""
        assert isinstance(a, Val)
        assert isinstance(b, Val)
        a, b = self.same_lanes(a, b)
        name = self.text.assign(f"and {a.type} {a.name}, {b.name}", "m")
        return Val(name, DType.BOOL, a.lanes, a.never | b.never)

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
            memo[key] = self._compare(node.op, a, b)
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
            name = self.text.assign(f"xor {cond.typed}, {ones}", "m")
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

    def select(self, cond: Val, on_true: Val, on_false: Val) -> Val:
        on_true, on_false = self.same_lanes(on_true, on_false)
        if cond.lanes > 1:
            on_true = self.broadcast(on_true, cond.lanes)
            on_false = self.broadcast(on_false, cond.lanes)
        name = self.text.assign(f"select {cond.typed}, {on_true.typed}, {on_false.typed}")
        return Val(name, on_true.dtype, on_true.lanes)

    def broadcast(self, value: Val, lanes: int) -> Val:
        """Return `value` in all `lanes` lanes."""
        if value.lanes == lanes:
            return value
        assert value.lanes == 1
        if not value.name.startswith("%"):
            return Val(f"splat ({value.typed})", value.dtype, lanes)
        loaded = self.text.levels[-1].loaded_from("broadcast")
        key = (value.name, lanes)
        if key not in loaded:
            vector = type_text(value.dtype, lanes)
            one = self.text.assign(f"insertelement {vector} poison, {value.typed}, i64 0", "b")
            name = self.text.assign(
                f"shufflevector {vector} {one}, {vector} poison, <{lanes} x i32> zeroinitializer",
                "b",
            )
            loaded[key] = Val(name, value.dtype, lanes)
        return loaded[key]

    def same_lanes(self, a: Val, b: Val) -> tuple[Val, Val]:
        lanes = max(a.lanes, b.lanes)
        return self.broadcast(a, lanes), self.broadcast(b, lanes)

    def _index_value(self, index: Affine, dtype: DType) -> Val:
        axis = self.axis
        if axis is None or not index.mentions(axis.var):
            return self.cast(self.indices.scalar(index), dtype)
        if index.is_linear_in(axis.var):
            base = Affine(tuple(t for t in index.terms if t[0] != Var(axis.var)), index.const)
            start = self.broadcast(self.indices.scalar(base), axis.lanes)
            steps = lane_numbers(DType.I64, axis.lanes, index.coefficient(axis.var))
            total = self.text.assign(f"add {start.type} {start.name}, {steps}")
            return self.cast(Val(total, DType.I64, axis.lanes), dtype)
        vector = type_text(DType.I64, axis.lanes)
        result = "poison"
        for lane in range(axis.lanes):
            at = simplify(index.substitute({axis.var: Affine((), lane)}), self.indices.ranges)
            one = self.indices.scalar(at)
            result = self.text.assign(f"insertelement {vector} {result}, {one.typed}, i64 {lane}")
        return self.cast(Val(result, DType.I64, axis.lanes), dtype)

    def binary(self, op: BinaryOp, a: Val, b: Val) -> Val:
        a, b = self.same_lanes(a, b)
        name = self.text.assign
        dtype, lanes = a.dtype, a.lanes
        if op in (BinaryOp.MIN, BinaryOp.MAX):
            if dtype.is_float:
                # A comparison with NaN is false and selects `b`, so a constant must be `a`.
                if not b.name.startswith("%"):
                    a, b = b, a
                test = "fcmp ogt" if op is BinaryOp.MAX else "fcmp olt"
            else:
                sign = "s" if dtype.is_signed else "u"
                test = f"icmp {sign}{'gt' if op is BinaryOp.MAX else 'lt'}"
            cond = Val(name(f"{test} {a.type} {a.name}, {b.name}", "c"), DType.BOOL, lanes)
            return self.select(cond, a, b)
        if op in ON_INTEGERS_ONLY:
            return self._of_integers(op, a, b)
        if op.function is not None:
            function = self.module.function_of_two(op, dtype, lanes)
            return Val(name(f"call {a.type} {function}({a.typed}, {b.typed})"), dtype, lanes)
        instruction = _FLOAT_OPS[op] if dtype.is_float else _INTEGER_OPS[op]
        return Val(name(f"{instruction} {a.type} {a.name}, {b.name}"), dtype, lanes)

    def _of_integers(self, op: BinaryOp, a: Val, b: Val) -> Val:
        """Return `op(a, b)` of integers with as many lanes each. LLVM's shifts and divisions are
        undefined for some operands, which are replaced."""
        match op:
            case BinaryOp.BIT_AND | BinaryOp.BIT_OR | BinaryOp.BIT_XOR:
                name = op.value.removeprefix("bit_")
                return self._instruction(name, a, b)
            case BinaryOp.SHIFT_LEFT:
                fits, count = self._shift_count(b)
                return self.select(fits, self._instruction("shl", a, count), self._like(a, 0))
            case BinaryOp.SHIFT_RIGHT:
                fits, count = self._shift_count(b)
                if not a.dtype.is_signed:
                    return self.select(fits, self._instruction("lshr", a, count), self._like(a, 0))
                most = self.select(fits, count, self._like(a, a.dtype.bits - 1))
                return self._instruction("ashr", a, most)
            case _:
                return self._floor_divided(op, a, b)

    def _instruction(self, name: str, a: Val, b: Val) -> Val:
        return Val(self.text.assign(f"{name} {a.typed}, {b.name}"), a.dtype, a.lanes)

    def _like(self, a: Val, value: int) -> Val:
        return literal(value, a.dtype, a.lanes)

    def _shift_count(self, b: Val) -> tuple[Val, Val]:
        """Return whether a shift by `b` leaves any bits, and `b` where it does, else 0."""
        text = f"icmp ult {b.typed}, {self._like(b, b.dtype.bits).name}"
        fits = Val(self.text.assign(text, "c"), DType.BOOL, b.lanes)
        return fits, self.select(fits, b, self._like(b, 0))

    def _floor_divided(self, op: BinaryOp, a: Val, b: Val) -> Val:
        """Return the quotient rounded down, or the remainder with the sign of `b`; 0 for `b` = 0.

        The hardware rounds towards zero and traps for `b` = 0, and if the quotient of the least
        number and -1 overflows. Both divisors are replaced by 1, which leaves the remainder 0.
        """
        zero, one = self._like(a, 0), self._like(a, 1)

        def test(condition: str, x: Val, y: Val) -> Val:
            name = self.text.assign(f"icmp {condition} {x.typed}, {y.name}", "c")
            return Val(name, DType.BOOL, a.lanes)

        is_zero_divisor = test("eq", b, zero)
        if not a.dtype.is_signed:
            safe = self.select(is_zero_divisor, one, b)
            name = "udiv" if op is BinaryOp.FLOOR_DIV else "urem"
            return self.select(is_zero_divisor, zero, self._instruction(name, a, safe))
        negates = test("eq", b, self._like(a, -1))
        safe = self.select(negates, one, self.select(is_zero_divisor, one, b))
        rest = self._instruction("srem", a, safe)
        differ = test("slt", self._instruction("xor", rest, safe), zero)
        is_low = self.both(test("ne", rest, zero), differ)
        if op is BinaryOp.FLOOR_MOD:
            return self.select(is_low, self._instruction("add", rest, safe), rest)
        quotient = self._instruction("sdiv", a, safe)
        lower = self._instruction("sub", quotient, one)
        found = self.select(is_low, lower, quotient)
        found = self.select(negates, self._instruction("sub", zero, a), found)
        return self.select(is_zero_divisor, zero, found)

    def _quotient(self, node: Binary, where: Val | None) -> Val:
        a = self.value(node.a, where)
        shared = not self._is_moving(node.b) or self._is_invariant(node.b)
        if not shared or a.lanes == 1 or not a.dtype.is_float or self._is_before_jump:
            return self.binary(node.op, a, self.value(node.b, where))
        if isinstance(node.b, Const) and self.module.instructions.multiply_add:
            return self._by_constant(a, node.b.value)
        scale, reciprocal = (self.broadcast(v, a.lanes) for v in self._reciprocal(node.b, where))
        scaled = self.text.assign(f"fmul {a.typed}, {scale.name}")
        name = self.text.assign(f"fmul {a.type} {scaled}, {reciprocal.name}")
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
                size, scale = self._unary(UnaryOp.ABS, b), one
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
                    self._unary(node.op, x)
                    if isinstance(node, Unary)
                    else self.binary(node.op, x, *others)
                )
            return memo[key]

    def multiply_add(self, a: Val, b: Val, c: Val) -> Val:
        """Return `a * b + c`, with one rounding if the target has the instruction."""
        lanes = max(a.lanes, b.lanes, c.lanes)
        a, b, c = (self.broadcast(v, lanes) for v in (a, b, c))
        (fused,) = MULTIPLY_ADDS[c.dtype].forms
        name = fused.function if self.module.instructions.multiply_add else "llvm.fmuladd"
        function = self.module.intrinsic(
            f"{name}.{suffix(c.dtype, lanes)}", c.type, (a.type, b.type, c.type)
        )
        name = self.text.assign(f"call {c.type} {function}({a.typed}, {b.typed}, {c.typed})", "f")
        return Val(name, c.dtype, lanes)

    def _unary(self, op: UnaryOp, x: Val) -> Val:
        if op is UnaryOp.NEG:
            text = f"fneg {x.typed}" if x.dtype.is_float else f"sub {x.type} {_zero(x)}, {x.name}"
            return Val(self.text.assign(text), x.dtype, x.lanes)
        if op is UnaryOp.ABS and not x.dtype.is_float:
            if not x.dtype.is_signed:
                return x
            function = self.module.intrinsic(
                f"llvm.abs.{suffix(x.dtype, x.lanes)}", x.type, (x.type, "i1")
            )
            name = self.text.assign(f"call {x.type} {function}({x.typed}, i1 false)")
            return Val(name, x.dtype, x.lanes)
        if op in ROUNDINGS and not instruction_set(self.module.target).rounding:
            function = self.module.math_function(op, x.dtype, x.lanes)
            return Val(self.text.assign(f"call {x.type} {function}({x.typed})"), x.dtype, x.lanes)
        if op in _FLOAT_INTRINSICS:
            function = self.module.intrinsic(
                f"llvm.{_FLOAT_INTRINSICS[op]}.{suffix(x.dtype, x.lanes)}", x.type, (x.type,)
            )
            return Val(self.text.assign(f"call {x.type} {function}({x.typed})"), x.dtype, x.lanes)
        if op is UnaryOp.RSQRT:
            root = self._unary(UnaryOp.SQRT, x)
            return self.binary(BinaryOp.DIV, literal(1, x.dtype), root)
        if x.lanes > 1 and self.text.is_divisible:
            return self._divided(op, x)
        function = self.module.math_function(op, x.dtype, x.lanes)
        return Val(self.text.assign(f"call {x.type} {function}({x.typed})"), x.dtype, x.lanes)

    def _divided(self, op: UnaryOp, x: Val) -> Val:
        """Write a math function in two parts (see `overlap`). The first part may move before other
        statements."""
        halves = self.module.math_halves(op, x, self.text.new("m")[2:])
        self.text.here.extend(halves.first)
        self.text.divide(
            halves.live_registers * max(1, x.lanes * x.dtype.bits // self.module.target.vector_bits)
        )
        self.text.here.extend(halves.second)
        return Val(halves.result, x.dtype, x.lanes)

    def _compare(self, op: CompareOp, a: Val, b: Val) -> Val:
        a, b = self.same_lanes(a, b)
        if a.dtype.is_float:
            test = f"fcmp {_FLOAT_TESTS[op]}"
        else:
            order = op in (CompareOp.LT, CompareOp.LE)
            test = f"icmp {('s' if a.dtype.is_signed else 'u') if order else ''}{op.value}"
        return Val(
            self.text.assign(f"{test} {a.type} {a.name}, {b.name}", "c"), DType.BOOL, a.lanes
        )

    def cast(self, x: Val, to: DType) -> Val:
        """Convert `x` to `to`. Floats become integers by truncation and clamping, NaN becomes 0."""
        if x.dtype is to:
            return x
        if x.dtype.is_narrow_float:
            return self.cast(WIDENED[x.dtype](self.text, self.module, x), to)
        if to.is_narrow_float:
            wide = before_narrowing(self.text, x, to) or self.cast(x, to.wide)
            return NARROWED[to](self.text, self.module, wide)
        target = type_text(to, x.lanes)
        if to is DType.BOOL:
            test = f"{'fcmp une' if x.dtype.is_float else 'icmp ne'} {x.typed}, {_zero(x)}"
            return Val(self.text.assign(test, "c"), to, x.lanes)
        if x.dtype.is_float and not to.is_float:
            sign = "s" if to.is_signed else "u"
            function = self.module.intrinsic(
                f"llvm.fpto{sign}i.sat.{suffix(to, x.lanes)}.{suffix(x.dtype, x.lanes)}",
                target,
                (x.type,),
            )
            return Val(self.text.assign(f"call {target} {function}({x.typed})"), to, x.lanes)
        if to.is_float and x.dtype.is_float:
            op = "fpext" if to.bits > x.dtype.bits else "fptrunc"
        elif to.is_float:
            op = "sitofp" if x.dtype.is_signed else "uitofp"
        elif to.bits == x.dtype.bits:
            return Val(x.name, to, x.lanes)
        elif to.bits < x.dtype.bits:
            op = "trunc"
        else:
            op = "sext" if x.dtype.is_signed else "zext"
        return Val(self.text.assign(f"{op} {x.typed} to {target}"), to, x.lanes)

    def horizontal(self, op: BinaryOp, vector: Val) -> Val:
        """Combine all lanes to one value. While the number of lanes is even, the upper half is
        combined with the lower half. The remaining lanes are combined one by one."""
        lanes, current = vector.lanes, vector
        while lanes > 1 and lanes % 2 == 0:
            half = lanes // 2
            parts = []
            for start in (0, half):
                mask = lane_numbers(DType.I32, half, 1, start)
                text = (
                    f"shufflevector {current.typed}, {current.type} poison, <{half} x i32> {mask}"
                )
                if half == 1:
                    text = f"extractelement {current.typed}, i64 {start}"
                parts.append(Val(self.text.assign(text, "h"), vector.dtype, half))
            current, lanes = self.binary(op, parts[0], parts[1]), half
        if lanes == 1:
            return current
        total: Val | None = None
        for lane in range(lanes):
            one = Val(
                self.text.assign(f"extractelement {current.typed}, i64 {lane}", "h"), vector.dtype
            )
            total = one if total is None else self.binary(op, total, one)
        assert total is not None
        return total

    def running(self, op: BinaryOp, vector: Val) -> Val:
        """Return the running results of `op` over the lanes: lane n combines the lanes 0 to n.

        Hillis and Steele, "Data parallel algorithms", CACM 29 (1986): in step s, every lane is
        combined with the lane 2**s before it. Lanes without such a lane are combined with the
        identity.
        """
        neutral = REDUCER_OF[op].identity(vector.dtype)
        if neutral == 0 and vector.dtype.is_float:
            neutral = -0.0  # keeps the sign of zero, and is shifted in faster than zeros (x86)
        identity = literal(neutral, vector.dtype, vector.lanes)
        lanes, current, distance = vector.lanes, vector, 1
        while distance < lanes:
            # Numbers below `lanes` choose lanes of the first operand, the others of the second.
            chosen = [
                lane - distance if lane >= distance else lanes + lane for lane in range(lanes)
            ]
            mask = lane_choice(chosen)
            text = f"shufflevector {current.typed}, {identity.typed}, {mask}"
            moved = Val(self.text.assign(text, "h"), vector.dtype, lanes)
            current, distance = self.binary(op, moved, current), 2 * distance
        return current


def is_zero(node: Scalar) -> bool:
    """Return whether `node` is the constant 0 or -0, so that a sum may omit it."""
    return isinstance(node, Const) and node.value == 0


def _zero(x: Val) -> str:
    return literal(0, x.dtype, x.lanes).name


_SLOW = frozenset(UnaryOp) - {UnaryOp.NEG, UnaryOp.ABS, *ROUNDINGS}
_FLOAT_OPS = {
    BinaryOp.ADD: "fadd", BinaryOp.SUB: "fsub", BinaryOp.MUL: "fmul", BinaryOp.DIV: "fdiv",
}  # fmt: skip
_INTEGER_OPS = {BinaryOp.ADD: "add", BinaryOp.SUB: "sub", BinaryOp.MUL: "mul"}
_FLOAT_INTRINSICS = {UnaryOp.SQRT: "sqrt", UnaryOp.ABS: "fabs", **ROUNDINGS}
_FLOAT_TESTS = {
    CompareOp.LT: "olt", CompareOp.LE: "ole", CompareOp.EQ: "oeq", CompareOp.NE: "une",
}  # fmt: skip
