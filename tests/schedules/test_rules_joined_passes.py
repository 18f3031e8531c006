"""Reductions of common elements share their pass over a row, also before a later reduction."""

from __future__ import annotations

import random

import numpy as np
import pytest

from tests.support.schedule_fuzz.check import this_machine
from tests.support.schedules.workloads import check_meaning, notation
from tilewright.schedules.nest.loop_ir import LoopKind, Nest, loops
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
LOSSES = [COSINE_LOSS, MARGIN_LOSS, STORED_LOSS]
CHAIN = "S[i] += X[i,k]; Q[i] += (X[i,k] - S[i]) * X[i,k]; Y[i] = Q[i] - S[i]"


def of_rows(text: str, rows: int, columns: int, dtype: str = "f32") -> Workload:
    shape = f"{dtype}[{rows},{columns}]"
    operands = {name: shape for name in "VWX" if f"{name}[" in text}
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


@pytest.mark.parametrize(
    ("text", "expected"), [(RANGE, 1), (MOMENTS, 1), (PAIR, 1), (COSINES, 1), (CHAIN, 2)]
)
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
    rows, total = first.parts
    assert isinstance(rows, RowSketch)
    assert isinstance(total, RowSketch)
    assert [view.is_reduction for view in rows.stages[-2:]] == [True, False]
    assert [view.is_reduction for view in total.stages] == [True]
    nest = first.lowered(first.default())[1]
    assert passes(nest, besides=total.stages[0].name) == 1


@pytest.mark.parametrize("text", [RANGE, MOMENTS, NORM, PAIR, COSINES, CHAIN, *LOSSES])
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
