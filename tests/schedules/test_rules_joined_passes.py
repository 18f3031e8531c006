"""Reductions of common elements share their pass over a row, also before a later reduction."""

from __future__ import annotations

import random

import numpy as np
import pytest

from tests.support.schedule_fuzz.check import this_machine
from tests.support.schedules.workloads import check_meaning, notation
from tilewright.schedules.dtypes import DType
from tilewright.schedules.nest.loop_ir import LoopKind, Nest, loops
from tilewright.schedules.primitives import Partition
from tilewright.schedules.sketches import space_for
from tilewright.schedules.sketches.fused.rows import RowSketch
from tilewright.schedules.workload.workload import Workload

RANGE = "M[i] max= X[i,k]; N[i] min= X[i,k]; Y[i] = M[i] - N[i]"
MOMENTS = "S[i] += X[i,k]; Q[i] += X[i,k] * X[i,k]; M[i] max= X[i,k]; Y[i] = S[i] * M[i] - Q[i]"
NORM = "S[i] += X[i,k]; Q[i] += X[i,k] * X[i,k]; Y[i,k] = X[i,k] * Q[i] - S[i]"
PAIR = "S[i] += X[i,k] * W[i,k]; Q[i] += X[i,k]; Y[i] = S[i] - Q[i]"
PRODUCTS = "S[i] += X[i,k] * W[i,k]; Q[i] += X[i,k] * X[i,k]; R[i] += W[i,k] * W[i,k]; "
COSINES = PRODUCTS + "Y[i] = S[i] * S[i] - Q[i] * R[i]"
COSINE_LOSS = PRODUCTS + "Y[z] += 1.0 - S[i] / (sqrt(Q[i] * R[i]) + 1.0)"
MARGIN_LOSS = (
    "S[i] += abs(X[i,k] - W[i,k]); Q[i] += abs(X[i,k] - V[i,k]); "
    "Y[z] += max(S[i] - Q[i] + 1.0, 0.0)"
)
STORED_LOSS = (
    "D[i,k] = X[i,k] - W[i,k]; E[i,k] = X[i,k] - V[i,k]; "
    "S[i] += D[i,k] * D[i,k]; Q[i] += E[i,k] * E[i,k]; "
    "L[i] = max(S[i] - Q[i], 0.0); Y[z] += 0.5 * L[i]"
)
APART = "S[i] += X[i,k]; Q[i] += W[i,k]; Y[i] = S[i] - Q[i]"
BETWEEN = "S[i] += X[i,k]; R[i] += W[i,k]; Q[i] += X[i,k] * X[i,k]; Y[i] = S[i] * R[i] - Q[i]"
SCALED = "S[i] += X[i,k] - B[i]; Q[i] += W[i,k] * B[i]; Y[i] = S[i] - Q[i]"
CHOSEN_LOSS = PRODUCTS + "Y[z] += where(B[i] > 0.0, S[i] / (sqrt(Q[i] * R[i]) + 1.0), 0.0)"
WEIGHTED_LOSS = "S[i] += X[i,k]; Q[i] += X[i,k] * X[i,k]; Y[j] += (S[i] - Q[i]) * U[i,j]"
CHAIN = "S[i] += X[i,k]; Q[i] += (X[i,k] - S[i]) * X[i,k]; Y[i] = Q[i] - S[i]"
LOSSES = [COSINE_LOSS, MARGIN_LOSS, STORED_LOSS, CHOSEN_LOSS, WEIGHTED_LOSS]
CASES = [
    (RANGE, 1), (MOMENTS, 1), (PAIR, 1), (COSINES, 1),
    (CHAIN, 2), (APART, 2), (BETWEEN, 2), (SCALED, 2),
]  # fmt: skip


def of_rows(text: str, rows: int, columns: int, dtype: str = "f32") -> Workload:
    shape = f"{dtype}[{rows},{columns}]"
    shapes = dict.fromkeys("VWX", shape)
    shapes |= {"B": f"{dtype}[{rows}]", "U": f"{dtype}[{rows},{columns // 8}]"}
    operands = {name: shape for name, shape in shapes.items() if f"{name}[" in text}
    return notation(text, {"z": 1} if "Y[z]" in text else None, **operands).normalised()


def passes(nest: Nest, besides: str = "") -> int:
    """Return the number of loops over most of a row, except those of the stage `besides`."""
    return sum(
        loop.reduce
        and loop.kind is LoopKind.SERIAL
        and loop.extent > 2
        and loop.var.partition(".")[0] != besides
        for loop in loops(nest.body)
    )


@pytest.mark.parametrize(("text", "expected"), CASES)
def test_reductions_of_common_elements_have_one_pass(text: str, expected: int) -> None:
    sketch = space_for(of_rows(text, 7, 2048), this_machine()).sketches[0]
    setting = list(sketch.default())
    names = [knob.name for knob in sketch.knobs]
    setting[names.index("software_pipelining")] = 0
    _, nest = sketch.lowered(setting)
    assert passes(nest) == expected


@pytest.mark.parametrize("text", LOSSES)
def test_a_reduction_of_their_results_leaves_one_pass(text: str) -> None:
    """The later reduction needs all rows, but the formula that it sums needs only its own."""
    first = space_for(of_rows(text, 512, 2048), this_machine()).sketches[0]
    rows, _ = first.parts
    assert isinstance(rows, RowSketch)
    assert [view.is_reduction for view in rows.stages[-2:]] == [True, False]
    assert rows.group.last.outputs == 512
    (last,) = set(first.workload.outputs)
    assert last not in {view.name for view in rows.stages}
    assert passes(first.lowered(first.default())[1], besides=last) == 1


@pytest.mark.parametrize("text", [NORM, *(text for text, _ in CASES), *LOSSES])
@pytest.mark.parametrize(("rows", "columns"), [(6, 40), (3, 129), (16, 64)])
def test_every_setting_is_legal_and_right(text: str, rows: int, columns: int) -> None:
    workload = of_rows(text, rows, columns)
    space, rng = space_for(workload, this_machine()), random.Random(0)
    assert not space.dropped
    for sketch in space.sketches:
        for _ in range(8):
            setting = tuple(rng.randrange(len(knob.values)) for knob in sketch.knobs)
            if sketch.feasible(np.asarray([setting]))[0]:
                check_meaning(workload, sketch.lowered(setting)[1])


def test_reductions_of_which_a_part_is_needed_have_their_own_passes() -> None:
    """`ComputeAt` computes one column of Q, so that its loops are others than those of S."""
    text = "S[i,j] += X[i,j,k]; Q[i,j] max= X[i,j,k]; Y[i,j] = S[i,j] - Q[i,{}]"
    for part in ("0", "j//2", "j"):
        workload = notation(text.format(part), None, X="f32[4,6,64]").normalised()
        space = space_for(workload, this_machine())
        assert not space.dropped
        for sketch in space.sketches:
            check_meaning(workload, sketch.lowered(sketch.default())[1])


def test_every_pass_of_a_pipeline_is_cut_before_its_remainder() -> None:
    text = (
        "S[i] += X[i,k] * V[i,k]; Q[i] += X[i,k]; R[i] += W[i,k]; "
        "Y[i,k] = X[i,k] * (S[i] - Q[i] - R[i])"
    )
    sketch = space_for(of_rows(text, 64, 1000), this_machine()).sketches[0]
    (rows,) = sketch.parts
    assert isinstance(rows, RowSketch)
    assert len(rows.rows.steps) == 2
    setting = list(sketch.default())
    setting[[knob.name for knob in sketch.knobs].index("software_pipelining")] = 1
    cuts = sum(isinstance(step, Partition) for step in sketch.trace(setting).steps)
    assert cuts == len(set(rows.rows.pass_of.values())) - 1  # one is fused with another step's


def test_the_lanes_of_rows_are_those_of_their_longest_stage() -> None:
    sums = "S[i] += X[i,k]; Q[i] max= X[i,k]; "
    for end in ("Y[z] += f64(S[i] * Q[i])", "Y[z] max= S[i] > Q[i]", "Y[z] += S[i] * Q[i]"):
        first = space_for(of_rows(sums + end, 64, 256), this_machine()).sketches[0]
        rows = first.parts[0]
        assert isinstance(rows, RowSketch)
        assert len(rows.stages) == 3
        assert rows.lanes == rows.target.lanes(DType.F32)


@pytest.mark.parametrize("text", [NORM, *(text for text, _ in CASES)])
def test_the_order_of_the_loops_is_predicted(text: str) -> None:
    """Sums that only the last stage reads follow those that another sum reads."""
    sketch = space_for(of_rows(text, 7, 256), this_machine()).sketches[0]
    rows = sketch.parts[0]
    assert isinstance(rows, RowSketch)
    names = [knob.name for knob in sketch.knobs]
    setting = list(sketch.default())
    setting[names.index("software_pipelining")] = 0
    found = (loop.var.partition(".")[0] for loop in loops(sketch.lowered(setting)[1].body))
    own = {view.name for view in rows.group.producers}
    order = dict.fromkeys(name for name in found if name in own)
    assert list(order) == [view.name for view in rows.group.nest_order if view.name in own]


@pytest.mark.parametrize("rows", [(3, 4), (2, 6), (4, 4), (6, 4, 2), (2, 3, 8), (24, 2)])
@pytest.mark.parametrize("threads", [2, 3])
@pytest.mark.parametrize("end", ["Q[{0}] += ({1}) * B[i,k]", "Q[{0},k] = ({1}) * B[i,k]"])
def test_tasks_of_pipelined_rows_write_distinct_results(
    rows: tuple[int, ...], threads: int, end: str
) -> None:
    """A task is one range of rows. B keeps the axes of the rows from being merged."""
    axes = ",".join("hij"[-len(rows) :])
    text = f"S[{axes}] += X[{axes},k]; {end.format(axes, f'X[{axes},k] - S[{axes}]')}"
    extents = ",".join(map(str, rows))
    width = rows[1] if len(rows) > 2 else rows[0]
    operands = {"X": f"f32[{extents},64]", "B": f"f32[{width},64]"}
    workload = notation(text, None, **operands).normalised()
    for sketch in space_for(workload, this_machine(threads)).sketches:
        sizes = [len(knob.values) for knob in sketch.knobs]
        drawn = np.random.default_rng(0).integers(0, sizes, (40, len(sizes)))
        for setting in drawn[sketch.feasible(drawn)]:
            sketch.lowered(tuple(map(int, setting)))
