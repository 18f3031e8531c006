"""Well-formed nests: the good ones pass, each broken rule is named."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.support.schedules.hand_nests import (
    load,
    loop,
    matmul,
    number,
    over,
    plus,
    store,
    tensor,
    tiled_matmul,
    update,
)
from tilewright.schedules.algebra.affine import affine, floor_div, modulo, var
from tilewright.schedules.algebra.comparisons import Cond, at_least, equal, less
from tilewright.schedules.algebra.scalar import (
    All,
    Binary,
    BinaryOp,
    Cast,
    Compare,
    CompareOp,
    Const,
    IndexValue,
    Reducer,
    Scalar,
    Select,
    Unary,
    UnaryOp,
)
from tilewright.schedules.dtypes import DType
from tilewright.schedules.nest.loop_ir import (
    Allocate,
    Buffer,
    BufferScope,
    For,
    LoopKind,
    Nest,
    PrefetchHint,
    Stmt,
)
from tilewright.schedules.nest.verify_nest import MalformedNest, verify

I, J = var("i"), var("j")
BODY = store("C", (I,), load("A", I))
GOOD = over(4, BODY)


def test_good_nests_pass() -> None:
    verify(GOOD)
    verify(matmul(3, 4, 5))
    verify(matmul(3, 4, 5, DType.I8))
    verify(tiled_matmul(30, 20, 10, 4, 16))


def with_loop(stmt: Stmt) -> Nest:
    return replace(GOOD, body=(stmt,))


def with_value(value: Scalar) -> Nest:
    return over(4, store("C", (I,), value))


def bounded(*bounds: Cond) -> Nest:
    return with_loop(loop("j", 4, For("i", 4, (BODY,), bounds=bounds)))


SCRATCH = Buffer("T", (4,), DType.F32, BufferScope.WORKSPACE)


@pytest.mark.parametrize(
    ("nest", "message"),
    [
        (
            with_loop(loop("i", 4, loop("i", 4, BODY))),
            "loop names are unique, i occurs more than once",
        ),
        (
            with_loop(Allocate(replace(SCRATCH, name="A"), GOOD.body)),
            "buffer names are unique, A occurs more than once",
        ),
        (
            with_loop(Allocate(SCRATCH, (Allocate(SCRATCH, GOOD.body),))),
            "buffer names are unique, T occurs more than once",
        ),
        (with_loop(loop("", 4, BODY)), "every loop has a name"),
        (with_loop(loop("i", 0, BODY)), "the extent of loop i is >= 1, got 0"),
        (with_loop(loop("i", 4, BODY, loop("j", 2))), "a block has at least one statement"),
        (
            replace(GOOD, inputs=(tensor("A", 4, 0),)),
            r"extents of A are >= 1, its shape is \[4, 0\]",
        ),
        (
            with_loop(Allocate(replace(SCRATCH, shape=(-1,)), GOOD.body)),
            r"extents of T are >= 1, its shape is \[-1\]",
        ),
        (
            with_loop(Allocate(replace(SCRATCH, dtype=DType.BOOL), GOOD.body)),
            "T holds bool, which is never stored",
        ),
        (
            with_loop(Allocate(replace(SCRATCH, scope=BufferScope.ARGUMENT), GOOD.body)),
            "allocated buffer T is workspace, registers or prepacked, found argument",
        ),
        (
            replace(GOOD, outputs=(*GOOD.outputs, tensor("D", 4))),
            "output D is never written",
        ),
        (over(4, store("A", (I,), number(0)), LoopKind.SERIAL), "output C is never written"),
        (
            with_loop(loop("i", 4, BODY, store("A", (I,), number(0)))),
            "input A is written",
        ),
        (with_loop(loop("j", 4, BODY)), r"C\[i\] uses i, the loops around it are: j"),
        (
            with_loop(loop("i", 4, replace(BODY, guards=(less(J, 2),)))),
            r"a guard of C\[i\], j <= 1 uses j, the loops around it are: i",
        ),
        (
            over(4, update("C", (I,), load("A", I), (equal(J, 0),))),
            r"`first` of C\[i\], j == 0 uses j",
        ),
        (bounded(less(var("k"), 2)), "the bounds of loop i, k <= 1 uses k"),
        (
            with_loop(loop("i", 4, PrefetchHint("A", (J,)), BODY)),
            r"A\[j\] uses j, the loops around it are: i",
        ),
        (
            with_loop(loop("i", 4, PrefetchHint("T", (I,)), BODY)),
            r"T\[i\]: there is no buffer T here",
        ),
        (with_value(IndexValue(J, DType.F32)), r"value written to C\[i\] uses j"),
        (
            with_value(Select(All((less(J, 2),)), number(0), number(1))),
            r"value written to C\[i\], j <= 1 uses j",
        ),
        (over(4, store("C", (I, I), number(0))), r"C\[i, i\] has 2 indices, C has 1 axes"),
        (with_value(load("A", 0, I)), r"A\[0, i\] has 2 indices, A has 1 axes"),
        (with_value(load("Z", I)), r"Z\[i\]: there is no buffer Z here, only A, C"),
        (
            with_loop(loop("i", 4, Allocate(SCRATCH, (BODY,)), store("C", (I,), load("T", I)))),
            r"T\[i\]: there is no buffer T here, only A, C",
        ),
        (
            with_value(load("A", I, dtype=DType.F64)),
            r"loads A\[i\] as f64, A holds f32",
        ),
        (
            with_value(number(0, DType.F64)),
            r"the value written to C\[i\] is f64, C holds f32",
        ),
        (
            with_value(plus(number(0), number(0, DType.F64))),
            r"has operands of f32 and f64 in 0\.0 \+ 0\.0",
        ),
        (
            with_value(Select(All(()), number(0), number(0, DType.F64))),
            "has operands of f32 and f64 in 0.0 if true else 0.0",
        ),
        (
            with_value(Select(load("A", I), number(0), number(1))),
            r"selects by A\[i\], which is f32",
        ),
        (
            with_value(
                Select(Compare(CompareOp.LT, number(0), number(0, DType.I8)), number(0), number(1))
            ),
            r"has operands of f32 and i8 in 0\.0 < 0",
        ),
        (
            over(4, store("C", (I,), Const(256, DType.U8)), dtype=DType.U8),
            "has the constant 256, which is no u8",
        ),
        (
            over(4, store("C", (I,), Const(1.5, DType.I32)), dtype=DType.I32),
            r"has the constant 1\.5, which is no i32",
        ),
        (
            with_value(Select(Const(2, DType.BOOL), number(0), number(1))),
            "has the constant 2, which is no bool",
        ),
        (
            over(
                4,
                store("C", (I,), Unary(UnaryOp.EXP, load("A", I, dtype=DType.I8))),
                dtype=DType.I8,
            ),
            r"value written to C\[i\]: exp is defined on f32 and f64, got i8",
        ),
        (
            over(
                4,
                store("C", (I,), plus(load("A", I, dtype=DType.BF16), number(1, DType.BF16))),
                dtype=DType.BF16,
            ),
            r"value written to C\[i\]: add is defined on f32, f64 and integers, got bf16",
        ),
        (
            over(4, update("C", (I,), load("A", I, dtype=DType.BF16)), dtype=DType.BF16),
            r"the update of C\[i\]: add is defined on f32, f64 and integers, got bf16",
        ),
        (
            over(
                4,
                store(
                    "C",
                    (I,),
                    Select(
                        Compare(
                            CompareOp.EQ, load("A", I, dtype=DType.BF16), number(0, DType.BF16)
                        ),
                        number(0, DType.BF16),
                        number(1, DType.BF16),
                    ),
                ),
                dtype=DType.BF16,
            ),
            "compares values of bf16; cast bf16 to f32 first",
        ),
        (
            with_loop(
                loop("j", 2, loop("i", 4, BODY, kind=LoopKind.PARALLEL), kind=LoopKind.PARALLEL)
            ),
            "parallel loop i is inside a parallel loop",
        ),
        (
            with_loop(For("i", 4, (BODY,), LoopKind.PARALLEL, reduce=True)),
            "parallel loop i is a reduction",
        ),
        (
            with_loop(loop("j", 2, loop("i", 4, BODY), kind=LoopKind.VECTORIZED)),
            "the body of vectorized loop j has leaves only",
        ),
        (
            with_loop(loop("i", 4, Allocate(SCRATCH, (BODY,)), kind=LoopKind.VECTORIZED)),
            "the body of vectorized loop i has leaves only",
        ),
        (bounded(at_least(I, 2)), "bounds of loop i stay false once they are false, found i >= 2"),
        (bounded(equal(I, 2)), "stay false once they are false, found i == 2"),
        (bounded(less(modulo(I, 2), 1)), "stay false once they are false, found i%2 <= 0"),
        (bounded(at_least(floor_div(I, 2), 1)), "stay false once they are false, found i//2 >= 1"),
    ],
)
def test_each_rule_names_what_breaks_it(nest: Nest, message: str) -> None:
    with pytest.raises(MalformedNest, match=message):
        verify(nest)


@pytest.mark.parametrize(
    "bound",
    [
        less(4 * J + I, 6),
        less(floor_div(I, 2), 1),
        at_least(floor_div(2 - I, 2), 0),
        at_least(J, 1),
        equal(J, 1),
        less(modulo(J, 2), I * -1 + 1),
    ],
)
def test_bounds_that_stay_false_pass(bound: Cond) -> None:
    verify(bounded(bound))


def test_bf16_is_copied_selected_and_cast() -> None:
    bf16 = DType.BF16
    loaded = load("A", I, dtype=bf16)
    doubled = Cast(plus(Cast(loaded, DType.F32), Cast(loaded, DType.F32)), bf16)
    chosen = Select(All((less(I, 2),)), doubled, number(0, bf16))
    verify(over(4, store("C", (I,), chosen), dtype=bf16))


def test_updates_of_narrow_integers_pass() -> None:
    leaf = update("C", (I,), load("A", I, dtype=DType.I8), (), Reducer.MAX)
    verify(over(4, leaf, dtype=DType.I8))
    product = Binary(BinaryOp.MUL, load("A", I, dtype=DType.U8), Const(255, DType.U8))
    verify(over(4, store("C", (I,), product), dtype=DType.U8))


def test_a_buffer_is_in_scope_in_its_body() -> None:
    steps = (store("T", (affine(0),), load("A", I)), store("C", (I,), load("T", 0)))
    verify(with_loop(loop("i", 4, Allocate(SCRATCH, steps), kind=LoopKind.PARALLEL)))
