"""Operations on values in generated code: each writes the LLVM instructions of one operation."""

from __future__ import annotations

import numpy as np

from tilewright.schedules.algebra.scalar import ON_INTEGERS_ONLY, BinaryOp, CompareOp, UnaryOp
from tilewright.schedules.dtypes import DType
from tilewright.schedules.nest.instructions import MULTIPLY_ADDS
from tilewright.schedules.nest.scans import REDUCER_OF

from ..isa.instruction_set import instruction_set
from .mathlib import ROUNDINGS
from .module import ModuleText
from .narrow_floats import NARROWED, WIDENED, before_narrowing
from .text import FunctionText
from .values import Val, lane_choice, lane_numbers, literal, suffix, type_text


class Arithmetic:
    """A writer of operations in one function."""

    def __init__(self, text: FunctionText, module: ModuleText) -> None:
        self.text = text
        self.module = module

    def both(self, a: Val | bool, b: Val | bool) -> Val:
        """Return `a and b`. Neither may be a constant."""
        assert isinstance(a, Val)
        assert isinstance(b, Val)
        a, b = self.same_lanes(a, b)
        name = self.text.computed(f"and {a.type} {a.name}, {b.name}", "m")
        return Val(name, DType.BOOL, a.lanes, a.never | b.never)

    def select(self, cond: Val, on_true: Val, on_false: Val) -> Val:
        on_true, on_false = self.same_lanes(on_true, on_false)
        if cond.lanes > 1:
            on_true = self.broadcast(on_true, cond.lanes)
            on_false = self.broadcast(on_false, cond.lanes)
        name = self.text.computed(f"select {cond.typed}, {on_true.typed}, {on_false.typed}")
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
            one = self.text.computed(f"insertelement {vector} poison, {value.typed}, i64 0", "b")
            name = self.text.computed(
                f"shufflevector {vector} {one}, {vector} poison, <{lanes} x i32> zeroinitializer",
                "b",
            )
            loaded[key] = Val(name, value.dtype, lanes)
        return loaded[key]

    def same_lanes(self, a: Val, b: Val) -> tuple[Val, Val]:
        lanes = max(a.lanes, b.lanes)
        return self.broadcast(a, lanes), self.broadcast(b, lanes)

    def binary(self, op: BinaryOp, a: Val, b: Val) -> Val:
        a, b = self.same_lanes(a, b)
        name = self.text.computed
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
            key = f"{op.value} {a.typed}, {b.typed}"
            return Val(
                self.text.computed_by(key, lambda: self._math_of_two(op, a, b)), dtype, lanes
            )
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
        return Val(self.text.computed(f"{name} {a.typed}, {b.name}"), a.dtype, a.lanes)

    def _like(self, a: Val, value: int) -> Val:
        return literal(value, a.dtype, a.lanes)

    def _shift_count(self, b: Val) -> tuple[Val, Val]:
        """Return whether a shift by `b` leaves any bits, and `b` where it does, else 0."""
        text = f"icmp ult {b.typed}, {self._like(b, b.dtype.bits).name}"
        fits = Val(self.text.computed(text, "c"), DType.BOOL, b.lanes)
        return fits, self.select(fits, b, self._like(b, 0))

    def _floor_divided(self, op: BinaryOp, a: Val, b: Val) -> Val:
        """Return the quotient rounded down, or the remainder with the sign of `b`; 0 for `b` = 0.

        The hardware rounds towards zero and traps for `b` = 0, and if the quotient of the least
        number and -1 overflows. Both divisors are replaced by 1, which leaves the remainder 0.
        """
        zero, one = self._like(a, 0), self._like(a, 1)

        def test(condition: str, x: Val, y: Val) -> Val:
            name = self.text.computed(f"icmp {condition} {x.typed}, {y.name}", "c")
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

    def multiply_add(self, a: Val, b: Val, c: Val) -> Val:
        """Return `a * b + c`, with one rounding if the target has the instruction."""
        lanes = max(a.lanes, b.lanes, c.lanes)
        a, b, c = (self.broadcast(v, lanes) for v in (a, b, c))
        (fused,) = MULTIPLY_ADDS[c.dtype].forms
        name = fused.function if self.module.instructions.multiply_add else "llvm.fmuladd"
        function = self.module.intrinsic(
            f"{name}.{suffix(c.dtype, lanes)}", c.type, (a.type, b.type, c.type)
        )
        name = self.text.computed(f"call {c.type} {function}({a.typed}, {b.typed}, {c.typed})", "f")
        return Val(name, c.dtype, lanes)

    def unary(self, op: UnaryOp, x: Val) -> Val:
        if op is UnaryOp.NEG:
            text = f"fneg {x.typed}" if x.dtype.is_float else f"sub {x.type} {_zero(x)}, {x.name}"
            return Val(self.text.computed(text), x.dtype, x.lanes)
        if op is UnaryOp.ABS and not x.dtype.is_float:
            if not x.dtype.is_signed:
                return x
            function = self.module.intrinsic(
                f"llvm.abs.{suffix(x.dtype, x.lanes)}", x.type, (x.type, "i1")
            )
            name = self.text.computed(f"call {x.type} {function}({x.typed}, i1 false)")
            return Val(name, x.dtype, x.lanes)
        if op in ROUNDINGS and not instruction_set(self.module.target).rounding:
            function = self.module.math_function(op, x.dtype, x.lanes)
            return Val(self.text.computed(f"call {x.type} {function}({x.typed})"), x.dtype, x.lanes)
        if op in _FLOAT_INTRINSICS:
            function = self.module.intrinsic(
                f"llvm.{_FLOAT_INTRINSICS[op]}.{suffix(x.dtype, x.lanes)}", x.type, (x.type,)
            )
            return Val(self.text.computed(f"call {x.type} {function}({x.typed})"), x.dtype, x.lanes)
        if op is UnaryOp.RSQRT:
            root = self.unary(UnaryOp.SQRT, x)
            return self.binary(BinaryOp.DIV, literal(1, x.dtype), root)
        name = self.text.computed_by(f"{op.value} {x.typed}", lambda: self._math(op, x))
        return Val(name, x.dtype, x.lanes)

    def _math(self, op: UnaryOp, x: Val) -> str:
        if x.lanes > 1 and self.text.is_divisible:
            return self._divided(op, x)
        function = self.module.math_function(op, x.dtype, x.lanes)
        return self.text.assign(f"call {x.type} {function}({x.typed})")

    def _math_of_two(self, op: BinaryOp, a: Val, b: Val) -> str:
        function = self.module.function_of_two(op, a.dtype, a.lanes)
        return self.text.assign(f"call {a.type} {function}({a.typed}, {b.typed})")

    def _divided(self, op: UnaryOp, x: Val) -> str:
        """Write a math function in two parts (see `overlap`), and return the register of its
        result. The first part may move before other statements."""
        halves = self.module.math_halves(op, x, self.text.new("m")[2:])
        self.text.here.extend(halves.first)
        self.text.divide(
            halves.live_registers * max(1, x.lanes * x.dtype.bits // self.module.target.vector_bits)
        )
        self.text.here.extend(halves.second)
        return halves.result

    def compare(self, op: CompareOp, a: Val, b: Val) -> Val:
        a, b = self.same_lanes(a, b)
        if a.dtype.is_float:
            test = f"fcmp {_FLOAT_TESTS[op]}"
        else:
            order = op in (CompareOp.LT, CompareOp.LE)
            test = f"icmp {('s' if a.dtype.is_signed else 'u') if order else ''}{op.value}"
        return Val(
            self.text.computed(f"{test} {a.type} {a.name}, {b.name}", "c"), DType.BOOL, a.lanes
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
            return Val(self.text.computed(test, "c"), to, x.lanes)
        if x.dtype.is_float and not to.is_float and x.lanes > 1:
            return self._truncated(x, to)
        if x.dtype.is_float and not to.is_float:
            sign = "s" if to.is_signed else "u"
            function = self.module.intrinsic(
                f"llvm.fpto{sign}i.sat.{suffix(to, x.lanes)}.{suffix(x.dtype, x.lanes)}",
                target,
                (x.type,),
            )
            return Val(self.text.computed(f"call {target} {function}({x.typed})"), to, x.lanes)
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
        return Val(self.text.computed(f"{op} {x.typed} to {target}"), to, x.lanes)

    def _truncated(self, x: Val, to: DType) -> Val:
        """Return floats as integers, as `cast`. LLVM writes its saturating conversion of a vector
        lane by lane for x86."""
        low, high = to.integer_range
        least, greatest = (_nearest_inside(bound, x.dtype) for bound in (low, high))
        below, above = (literal(bound, x.dtype, x.lanes) for bound in (least, greatest))
        inside = self.select(self.compare(CompareOp.LT, x, below), below, x)
        inside = self.select(self.compare(CompareOp.LT, above, inside), above, inside)
        inside = self.select(self.compare(CompareOp.NE, x, x), literal(0.0, x.dtype), inside)
        wide = to if to.bits >= DType.I32.bits else DType.I32
        name = self.text.computed(f"fptosi {inside.typed} to {type_text(wide, x.lanes)}")
        found = self.cast(Val(name, wide, x.lanes), to)
        if greatest == high:
            return found
        # `high` itself is no float: larger floats become `high`, not the integer of `above`
        return self.select(self.compare(CompareOp.LT, above, x), literal(high, to), found)

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
                parts.append(Val(self.text.computed(text, "h"), vector.dtype, half))
            current, lanes = self.binary(op, parts[0], parts[1]), half
        if lanes == 1:
            return current
        total: Val | None = None
        for lane in range(lanes):
            one = Val(
                self.text.computed(f"extractelement {current.typed}, i64 {lane}", "h"), vector.dtype
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
            moved = Val(self.text.computed(text, "h"), vector.dtype, lanes)
            current, distance = self.binary(op, moved, current), 2 * distance
        return current


def _zero(x: Val) -> str:
    return literal(0, x.dtype, x.lanes).name


_FLOAT_OPS = {
    BinaryOp.ADD: "fadd", BinaryOp.SUB: "fsub", BinaryOp.MUL: "fmul", BinaryOp.DIV: "fdiv",
}  # fmt: skip
_INTEGER_OPS = {BinaryOp.ADD: "add", BinaryOp.SUB: "sub", BinaryOp.MUL: "mul"}
_FLOAT_INTRINSICS = {UnaryOp.SQRT: "sqrt", UnaryOp.ABS: "fabs", **ROUNDINGS}
_FLOAT_TESTS = {
    CompareOp.LT: "olt", CompareOp.LE: "ole", CompareOp.EQ: "oeq", CompareOp.NE: "une",
}  # fmt: skip


def _nearest_inside(bound: int, dtype: DType) -> float:
    """Return the float of `dtype` nearest to an integer that is no farther from zero."""
    found = dtype.numpy.type(bound)
    return float(
        found if abs(int(found)) <= abs(bound) else np.nextafter(found, dtype.numpy.type(0))
    )
