"""Initialise and TakeSelected: reductions whose outputs data select, as scatters."""

from __future__ import annotations

import numpy as np
import pytest

from tests.support.golden_text import Golden
from tests.support.interpreter.interpret import interpret
from tests.support.schedules.workloads import applied, matmul, notation
from tilewright.schedules.errors import ScheduleError
from tilewright.schedules.lowering.lower import clean, lower, plain_nest
from tilewright.schedules.nest.loop_ir import For, LoopKind, Nest, StoreElement, transform
from tilewright.schedules.nest.printer import to_text
from tilewright.schedules.nest.verify_nest import MalformedNest, verify
from tilewright.schedules.primitives import (
    CacheWrite,
    ComputeAt,
    Extend,
    Fuse,
    Initialise,
    Parallel,
    Partition,
    Primitive,
    Reorder,
    RFactor,
    SkipZeros,
    Split,
    TakeSelected,
    TransformLayout,
    Unroll,
    Vectorize,
)
from tilewright.schedules.trace import Trace
from tilewright.schedules.workload.workload import Workload

HISTOGRAM = notation("H[v] += where(I[n] == v, 1, 0)", {"v": 5}, I="i32[23]").normalised()
SEGMENTS = notation(
    "Y[v,d] += where(I[n] == v, X[n,d], 0.0)", {"v": 5}, I="u8[23]", X="f32[23,7]"
).normalised()
SCATTER = (Reorder(("s0.r0", "s0.d0", "s0.d1")), Initialise("s0", ""), TakeSelected("s0.d0"))
TABLES = (
    Split("s0.r0", 8), RFactor("s0.r0o", "tables"),
    TransformLayout("tables", (), ((2, 0), (0, 0), (1, 0))),
    Reorder(("s0.r0o", "s0.r0i", "s0.d0", "s0.d1")), Initialise("tables", "s0.r0o"),
    SkipZeros("tables"), TakeSelected("s0.d0"),
)  # fmt: skip


def test_one_iteration_is_executed_for_each_term(golden: Golden) -> None:
    assert to_text(clean(applied(SEGMENTS, *SCATTER))) == golden


def test_threads_have_tables_of_their_own(golden: Golden) -> None:
    assert to_text(clean(applied(SEGMENTS, *TABLES, Parallel("s0.r0o")))) == golden


@pytest.mark.parametrize(
    "steps",
    [
        (*SCATTER, Split("s0.d1", 4), Vectorize("s0.d1i"), Unroll("s0.d1o")),
        (*SCATTER, Split("s0.r0", 4), Unroll("s0.r0i")),
        (*SCATTER, Partition("s0.d0", 2)),
        (Split("s0.d0", 2), Reorder(("s0.d0o", "s0.r0", "s0.d0i", "s0.d1")),
         Initialise("s0", "s0.d0o"), TakeSelected("s0.d0i"), Parallel("s0.d0o")),
        (Reorder(("s0.d1", "s0.r0", "s0.d0")), Initialise("s0", "s0.d1"), TakeSelected("s0.d0"),
         Parallel("s0.d1")),
        (Split("s0.r0", 5), *SCATTER[1:2], Reorder(("s0.r0o", "s0.d1", "s0.r0i", "s0.d0")),
         TakeSelected("s0.d0")),
        (Extend("s0.d0", 9), *SCATTER),
    ],
)  # fmt: skip
def test_the_meaning_stays(steps: tuple[Primitive, ...]) -> None:
    applied(SEGMENTS, *steps)


@pytest.mark.parametrize("dtype", ["i8", "u8", "i32", "i64"])
@pytest.mark.parametrize(("sign", "other"), [("+=", 0), ("max=", -(2**31)), ("min=", 2**31 - 1)])
def test_integers_at_the_ends_of_their_type_select_nothing(
    dtype: str, sign: str, other: int
) -> None:
    workload = notation(
        f"Y[v] {sign} where(I[n] == v + 3, X[n], {other})", {"v": 5}, I=f"{dtype}[9]", X="i32[9]"
    ).normalised()
    nest = lower(workload, Trace((Reorder(("s0.r0", "s0.d0")), *SCATTER[1:])))
    kind = workload.inputs[0].dtype
    least, most = kind.integer_range
    data = np.array([least, most, most - 4, 2, 3, 7, 8, 3, 0], kind.numpy)
    terms = np.arange(1, 10, dtype=np.int32)
    (found,) = interpret(nest, [data, terms])
    found_of = {"+=": [13, 0, 0, 0, 6], "max=": [8, other, other, other, 6],
                "min=": [5, other, other, other, 6]}  # fmt: skip
    np.testing.assert_array_equal(found, found_of[sign])


def test_two_outputs_are_selected_in_turn() -> None:
    workload = notation(
        "Y[u,v] += where(I[n] == v && J[n] == u, X[n], 0)", {"v": 3, "u": 4},
        I="i32[19]", J="i64[19]", X="i32[19]",
    ).normalised()  # fmt: skip
    nest = applied(workload, *SCATTER, TakeSelected("s0.d1"))
    kinds = [loop.kind for loop in nest.body[1].inside.loops if isinstance(nest.body[1], For)]  # type: ignore[union-attr]
    assert kinds == [LoopKind.SERIAL, LoopKind.SELECTED, LoopKind.SELECTED]


ONCE = "must contain the only statement"


@pytest.mark.parametrize(
    ("workload", "steps", "reason"),
    [
        (HISTOGRAM, (Initialise("none", ""),), "there is no buffer 'none'"),
        (HISTOGRAM, (Initialise("s0", "s0.r0"),), "is also combined over loops"),
        (HISTOGRAM, (Reorder(("s0.r0", "s0.d0")), Initialise("s0", "s0.r0")), "is also combined"),
        (HISTOGRAM, (Initialise("s0", ""), Initialise("s0", "")), ONCE),
        (HISTOGRAM, (Partition("s0.d0", 2), Initialise("s0", "")), ONCE),
        (HISTOGRAM, (Partition("s0.d0", 2), Initialise("s0", "s0.d0")), ONCE),
        (notation("C[i] = A[i] + 1", A="f32[5]"), (Initialise("s0", ""),), "no statement reduces"),
        (HISTOGRAM, (CacheWrite("s0", "", "acc"), Initialise("acc", "")), ONCE),
        (HISTOGRAM, (Parallel("s0.d0"), Initialise("s0", "")), "is parallel or has bounds"),
        (notation("C[i] += A[i,k]", A="f32[5,8]"),
         (Split("s0.d0", 3), Split("s0.r0", 3), Fuse("s0.r0o", "s0.r0i"),
          CacheWrite("s0", "s0.d0i", "acc"), Initialise("s0", "")), "no statement reduces"),
        (SEGMENTS, (TakeSelected("s0.d0"),), "data select no iteration"),
        (SEGMENTS, (*SCATTER[:2], TakeSelected("s0.d1")), "data select no iteration"),
        (SEGMENTS, (*SCATTER[:2], TakeSelected("s0.r0")), "data select no iteration"),
        (SEGMENTS, (Initialise("s0", ""), TakeSelected("s0.d0")), "data select no iteration"),
        (SEGMENTS, (*SCATTER[:2], Unroll("s0.d0"), TakeSelected("s0.d0")), "needs a serial loop"),
        (SEGMENTS, (*SCATTER, Split("s0.d0", 2)), "this needs a serial loop"),
        (SEGMENTS, (*SCATTER, Parallel("s0.d1")), "nested in serial loops only"),
        (SEGMENTS, (*SCATTER, Parallel("s0.r0")), "combine into the same elements"),
        (SEGMENTS, (*SCATTER, Vectorize("s0.r0")), "must be innermost"),
        (SEGMENTS, (*SCATTER, RFactor("s0.r0", "P")), "written in more than one place"),
        (SEGMENTS, (*SCATTER[:2], Split("s0.d0", 2), TakeSelected("s0.d0o")), "data select no"),
        (SEGMENTS, (*TABLES[:5], TakeSelected("s0.d0")), "may be read out of bounds"),
        (SEGMENTS, (*SCATTER, CacheWrite("s0", "s0.d0", "acc")), "data no longer select"),
        (notation("Z[n] = I[n] + 1; H[v] += where(Z[n] == v, 1, 0)", {"v": 5}, I="i32[23]"),
         (Reorder(("s1.r0", "s1.d0")), Initialise("s1", ""), TakeSelected("s1.d0"),
          ComputeAt("s0", "s1.d0")), "data no longer select"),
    ],
)  # fmt: skip
def test_what_is_not_legal_is_refused(
    workload: Workload, steps: tuple[Primitive, ...], reason: str
) -> None:
    with pytest.raises(ScheduleError, match=reason):
        Trace(steps).apply(plain_nest(workload))


@pytest.mark.parametrize(
    "value",
    [
        "f32(I[n] == v) * X[n,d]",  # an infinity that is not selected would be NaN
        "where(I[n] <= v, X[n,d], 0.0)",
        "where(I[n] == v, X[n,d], 1.0)",
        "where(I[n] == 2*v, X[n,d], 0.0)",
        "where(I[n] + v == v, X[n,d], 0.0)",
        "where(I[v] == v, X[n,d], 0.0)",
        "where(I[n] == v, X[n,d], 0.0) + X[n,d]",
        "where(I[n] == v + d, X[n,d], 0.0)",
    ],
)
def test_other_sums_select_no_outputs(value: str) -> None:
    workload = notation(f"Y[v,d] += {value}", {"v": 5, "d": 7}, I="i32[23]", X="f32[23,7]")
    with pytest.raises(ScheduleError, match="data select no iteration"):
        Trace(SCATTER).apply(plain_nest(workload))


def test_registers_are_not_indexed_by_data() -> None:
    steps = (Reorder(("s0.r0", "s0.d0")), CacheWrite("s0", "", "acc"), TakeSelected("s0.d0"))
    with pytest.raises(ScheduleError, match="index it and must be unrolled or vectorised"):
        lower(HISTOGRAM, Trace(steps))


def test_other_statements_in_a_selected_loop_are_malformed() -> None:
    nest = Trace((Reorder(("s0.r0", "s0.d0")), *SCATTER[1:])).apply(plain_nest(HISTOGRAM))

    def stored(stmt: object) -> tuple[StoreElement, ...] | None:
        if isinstance(stmt, For | StoreElement):
            return None
        return (StoreElement(stmt.buffer, stmt.index, stmt.value),)  # type: ignore[attr-defined]

    with pytest.raises(MalformedNest, match=r"loop s0\.d0 is selected, but data select no"):
        verify(Nest(nest.inputs, nest.outputs, transform(nest.body, stored)))


def test_reductions_of_products_may_begin_with_stored_zeros(golden: Golden) -> None:
    nest = applied(matmul(), Initialise("s0", "s0.d0"), Reorder(("s0.r0", "s0.d1")))
    assert to_text(clean(nest)) == golden
