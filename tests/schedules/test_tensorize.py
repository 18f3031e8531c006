"""Loops that are run by one instruction: what Tensorize accepts, refuses, and leaves behind."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.support.golden_text import Golden
from tests.support.interpreter.interpret import interpret
from tests.support.paths import example_target
from tests.support.schedules.instructions import MARK, PACKED, narrow, schedule
from tests.support.schedules.workloads import applied, matmul
from tilewright.schedules.algebra.affine import var
from tilewright.schedules.algebra.comparisons import less
from tilewright.schedules.algebra.narrow import narrowed
from tilewright.schedules.algebra.scalar import Const
from tilewright.schedules.dtypes import DType
from tilewright.schedules.errors import ScheduleError
from tilewright.schedules.lowering.lower import clean, lower, plain_nest
from tilewright.schedules.nest.instructions import INSTRUCTIONS, Instruction, fastest_for
from tilewright.schedules.nest.loop_ir import (
    For,
    Nest,
    RunByInstruction,
    StoreElement,
    Update,
    loops,
    transform,
)
from tilewright.schedules.nest.printer import to_text
from tilewright.schedules.nest.verify_nest import MalformedNest, verify
from tilewright.schedules.primitives import (
    CacheRead,
    CacheWrite,
    Partition,
    Primitive,
    Reorder,
    Split,
    Tensorize,
    TransformLayout,
    Unroll,
)
from tilewright.schedules.primitives.tensorize import check_target
from tilewright.schedules.trace import Trace
from tilewright.schedules.workload.tensors import Tensor


def marked(nest: Nest) -> dict[str, str]:
    kinds = {loop.var: loop.kind for loop in loops(nest.body)}
    return {var: kind.name for var, kind in kinds.items() if isinstance(kind, RunByInstruction)}


@pytest.mark.parametrize("lanes", [8, 16])
@pytest.mark.parametrize("register", [True, False])
def test_a_loop_that_has_the_semantics_of_an_instruction_is_run_by_it(
    lanes: int, register: bool
) -> None:
    nest = applied(narrow(), *schedule(MARK, lanes=lanes, register=register))
    assert marked(nest) == {"s0.d1i": "vpdpbusd"}
    assert marked(clean(nest)) == {"s0.d1i": "vpdpbusd"}


def test_it_is_printed_as_the_mark_of_its_loop(golden: Golden) -> None:
    assert to_text(clean(applied(narrow(), *schedule(MARK)))) == golden


def test_a_trace_with_it_is_json() -> None:
    trace = Trace(schedule(MARK))
    document = trace.to_json()
    assert document[-1] == {"do": "Tensorize", "loop": "s0.d1i", "instruction": "vpdpbusd"}
    assert Trace.from_json(document) == trace


def test_multiply_adds_are_an_instruction_like_others() -> None:
    steps = (Reorder(("s0.r0", "s0.d1")), CacheWrite("s0", "s0.d0", "c", False))
    nest = applied(matmul(4, 6, 5), *steps, Tensorize("s0.d1", "fma.f32"))
    assert marked(nest) == {"s0.d1": "fma.f32"}
    with pytest.raises(ScheduleError, match=r"must add 1 products of f64 and f64 .* in f64"):
        applied(matmul(4, 6, 5), *steps, Tensorize("s0.d1", "fma.f64"))


def semantics_of(row: Instruction, lanes: int) -> Nest:
    """The nest of a row as a kernel: its sums begin at zero."""
    nest = row.semantics(lanes)
    first = row.rows if row.rows > 1 else lanes
    sums = Tensor("sums", (lanes * row.rows,), row.sums)
    left = Tensor("left", (first * row.steps,), row.left)
    right = Tensor("right", (lanes * row.steps,), row.right)
    zero = StoreElement("sums", (var("x"),), Const(0, row.sums))
    return Nest((left, right), (sums,), (For("x", lanes * row.rows, (zero,)), nest))


@pytest.mark.parametrize("row", INSTRUCTIONS, ids=lambda row: str(row.name))
def test_the_semantics_of_a_row_are_a_nest(row: Instruction) -> None:
    """Against NumPy, with small numbers, which every type holds."""
    lanes, rng = 4, np.random.default_rng(3)
    nest = semantics_of(row, lanes)
    verify(nest)
    left, right = (
        rng.integers(0, 4, (tensor.elements // row.steps, row.steps)) for tensor in nest.inputs
    )
    stored = [
        narrowed(x.astype(np.float32), t.dtype).reshape(t.shape)
        if t.dtype.is_narrow_float
        else x.astype(t.dtype.numpy).reshape(t.shape)
        for x, t in zip((left, right), nest.inputs, strict=True)
    ]
    (found,) = interpret(nest, stored)
    expected = left @ right.T if row.rows > 1 else (left * right).sum(1)
    assert np.array_equal(found, expected.reshape(-1))


REFUSED: dict[str, tuple[tuple[Primitive, ...], str]] = {
    "no such instruction": (
        schedule(Tensorize("s0.d1i", "vpdpbuud")), "unknown instruction; choices: fma",
    ),
    "no loop": (schedule(Tensorize("j", "vpdpbusd")), "there is no loop 'j'"),
    "lanes": (schedule(MARK, lanes=4), r"4 lanes of i32 are not a vector .* \(bits: 512, 256\)"),
    "tiles": (schedule(Tensorize("s0.d1i", "tdpbusd")), r"are not a vector .* \(bits: none\)"),
    "rounding": (schedule(Tensorize("s0.d1i", "vdpbf16ps")), "rounds differently"),
    "types": (schedule(Tensorize("s0.d1i", "fma.f32")), "add 1 products of f32 and f32"),
    "a loop of another kind": (schedule(Unroll("s0.d1i"), MARK), "is unrolled"),
    "another loop inside": (schedule(Split("s0.r0i", 2), MARK), "add 4 products of u8 and i8"),
    "the loop inside": (schedule(Tensorize("s0.r0i", "vpdpbusd")), "4 lanes of i32"),
    "operands as they are": (
        schedule(MARK)[2:], r"'i1' must be at offset 4\*s0.d1i \+ s0.r0i",
    ),
    "operands in another order": (
        (PACKED[0], TransformLayout("p", (), ((1, 0), (0, 0))), *schedule(MARK)[2:]),
        "'p' must be at offset",
    ),
    "sums apart": (
        (*schedule(), TransformLayout("c", ((1, 2),), ((1, 2), (1, 1), (0, 0))), MARK),
        "sums in 'c' must be contiguous",
    ),
    "the first of a sum": ((*schedule()[:-3], MARK), "and do nothing else"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_no_such_instruction_is_refused(case: str) -> None:
    steps, message = REFUSED[case]
    with pytest.raises(ScheduleError, match=message):
        Trace(steps).apply(plain_nest(narrow()))


def test_guards_are_cut_off_first() -> None:
    ragged = narrow(n=40)
    with pytest.raises(ScheduleError, match="guards exclude lanes or steps"):
        Trace(schedule(MARK)).apply(plain_nest(ragged))
    whole = applied(ragged, *schedule(Partition("s0.d1o", 2), MARK, register=False))
    assert marked(clean(whole)) == {"s0.d1i": "vpdpbusd"}
    assert "if" not in to_text(clean(whole)).partition("s0.d1o.t")[0]


AFTERWARDS: dict[str, Primitive] = {
    "a step inside": Unroll("s0.r0i"),
    "a loop inside cut": Partition("s0.r0i", 2),
    "its lanes cut": Partition("s0.d1i", 4),
    "operands moved": TransformLayout("p", (), ((1, 0), (0, 0), (2, 0))),
    "sums moved": TransformLayout("c", ((1, 4),), ((0, 0), (1, 2), (1, 1))),
}


@pytest.mark.parametrize("case", AFTERWARDS)
def test_a_later_step_may_not_make_it_another_loop(case: str) -> None:
    with pytest.raises(ScheduleError, match=r"'s0\.d1i' cannot be vpdpbusd"):
        Trace(schedule(MARK, AFTERWARDS[case])).apply(plain_nest(narrow()))


def test_steps_around_it_are_free() -> None:
    again = (Unroll("s0.d1o"), Split("s0.d0", 2), CacheRead("i0", "s0.r0o", "a"))
    nest = applied(narrow(m=4), *schedule(MARK, *again))
    assert marked(clean(nest)) == {"s0.d1i": "vpdpbusd"}


def test_a_guard_that_moves_into_the_operands_is_refused() -> None:
    """Cleaning computes rows beyond the end too, from zeros: nobody looks at the result."""
    steps = schedule(Split("s0.d0", 2), CacheRead("i0", "s0.r0o", "a"), MARK)
    applied(narrow(m=4), *steps)
    with pytest.raises(ScheduleError, match=r"the lowered nest: .* and do nothing else"):
        lower(narrow(m=3), Trace(steps))


def test_rows_beyond_the_end_are_branched_around() -> None:
    nest = lower(narrow(m=3), Trace(schedule(Split("s0.d0", 2), MARK)))
    assert marked(nest) == {"s0.d1i": "vpdpbusd"}


def test_lowering_refuses_a_loop_that_cleaning_made_another() -> None:
    """Whatever changes a leaf under the mark, no code is generated for the instruction."""
    nest = applied(narrow(), *schedule(MARK))
    changed = transform(
        nest.body,
        lambda stmt: (
            (replace(stmt, guards=(less(var("s0.d1i"), 9),)),)
            if isinstance(stmt, Update) and stmt.buffer == "c"
            else None
        ),
    )
    with pytest.raises(ScheduleError, match=r"the lowered nest: 's0\.d1i' cannot be vpdpbusd"):
        clean(replace(nest, body=changed))
    with pytest.raises(MalformedNest, match=r"loop s0\.d1i is no vpdpbusd: guards exclude"):
        verify(replace(nest, body=changed))


def test_a_target_without_the_instruction_is_told_before_code_is_generated() -> None:
    nest = lower(narrow(), Trace(schedule(MARK)))
    check_target(nest, example_target("znver5"))
    for cpu in ("x86-64-v3", "neoverse-n1"):
        with pytest.raises(ScheduleError, match=r"Tensorize\(.*\): .* does not have it for 16"):
            check_target(nest, example_target(cpu))


def test_bounds_take_the_fastest_row() -> None:
    zen = example_target("znver5")
    for target, dtype, name in (
        (zen, DType.I8, "vpdpbusd"),
        (zen, DType.BF16, "vdpbf16ps"),
        (example_target("x86-64-v3"), DType.U8, "vpmaddwd"),
    ):
        row = fastest_for(dtype, target)
        assert row is not None
        assert row.name == name
    assert fastest_for(DType.F32, zen) is None
